"""The strategies reach what they are for: a rejection by every plug-in, and every way an estimate can end."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from examples import examples
from reference import scheduler
from reference.cluster import Cluster
from reference.plugins import PROFILE
from reference_golden import recorded
from strategies import clusters

Json = dict[str, Any]
SEEDED = settings(derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))


def reaches(
    problems: st.SearchStrategy[Json], outcomes: Callable[[Json], set[str]], expected: set[str], *, seed: int = 3
) -> None:
    """Generates until every wanted outcome was seen; fails when a thousand problems do not show them all.

    Each outcome appears within 500 problems with each seed tried, and within 30 with the seeds here.
    """
    observed: set[str] = set()

    def done(problem: Json) -> bool:
        observed.update(outcomes(problem))
        return expected <= observed

    generating = settings(SEEDED, max_examples=1000, phases=[Phase.generate])
    find(problems, done, settings=generating, random=Random(seed))


def rejections(problem: Json) -> set[str]:
    cluster = Cluster(problem["objects"], problem["options"])
    plugins = {f"PreFilter {plugin}" for plugin, *_ in scheduler.prefilter_report(problem["pod"], cluster).failures}
    for node in cluster.nodes:
        plugins.update(plugin for plugin, *_ in scheduler.all_failing(problem["pod"], node, cluster))
        if scheduler.check_predicates(problem["pod"], node, cluster) is None:
            plugins.add("fits")
    return plugins


OWNED = {
    "plain": {
        "NodeName",
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodeResourcesFit",
        "NodeDeclaredFeatures",
    },
    "ports": {"NodePorts"},
    "affinity": {"InterPodAffinity", "PreFilter InterPodAffinity"},
    "spread": {"PodTopologySpread"},
    "volumes": {
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PreFilter VolumeRestrictions",
        "PreFilter VolumeBinding",
        "PreFilter VolumeZone",
    },
    "dra": {"DynamicResources", "PreFilter DynamicResources"},
}


@pytest.mark.parametrize("feature", clusters.FEATURES)
def test_each_feature_makes_its_plug_ins_reject(feature: str) -> None:
    expected = OWNED[feature] | {"fits"}
    reaches(clusters.fit_problems((feature,)), rejections, expected, seed=0 if feature == "plain" else 3)


def test_all_features_together_still_reach_the_last_plug_ins() -> None:
    expected = {"fits", "InterPodAffinity", "PodTopologySpread", "VolumeBinding", "NodePorts"}
    reaches(clusters.fit_problems(), rejections, expected)


def test_every_plug_in_is_owned_by_a_feature() -> None:
    assert {plugin.NAME for plugin in PROFILE} == {
        name for names in OWNED.values() for name in names if not name.startswith("PreFilter ")
    }


@pytest.mark.parametrize("feature", clusters.FEATURES)
def test_a_feature_switched_off_rejects_nothing(feature: str) -> None:
    # Pods are counted whatever the features are.
    silent = OWNED[feature] - {"NodeResourcesFit"}

    @settings(SEEDED, max_examples=examples(2 / 5))
    @given(clusters.fit_problems(tuple(each for each in clusters.FEATURES if each != feature)))
    def explore(problem: Json) -> None:
        assert not rejections(problem) & silent

    explore()


def estimate_outcomes(problem: Json) -> set[str]:
    outcomes = set()
    for raw, answer in zip(problem["estimates"], recorded.estimates(problem)["estimates"], strict=True):
        pods = sum(element["count"] for element in raw["pods"])
        placed = len(answer["scheduled"])
        outcomes.add("all" if placed == pods else "part" if placed else "none")
        names = answer["nodes_with_pods"] or []
        simulated = [name for name in names if name.startswith("new-") and "fake" not in name]
        for outcome, reached in {
            "several nodes": answer["nodes_added"] > 1,
            "empty node": answer["nodes_added"] > len(simulated),
            "fast path": any("fake" in name for name in names),
            "several groups": len(answer["groups"] or []) > 1,
            "real node": any(not name.startswith("new-") for name in names),
        }.items():
            if reached:
                outcomes.add(outcome)
    return outcomes


def test_estimates_end_in_every_way() -> None:
    expected = {"all", "part", "none", "several nodes", "empty node", "fast path", "several groups"}
    reaches(clusters.estimate_problems(), estimate_outcomes, expected)


def test_a_spread_pod_lands_on_a_real_node() -> None:
    reaches(clusters.estimate_problems(("spread",)), estimate_outcomes, {"real node"}, seed=9)


def filter_outcomes(problem: Json) -> set[str]:
    outcomes = set()
    for index, answer in enumerate(recorded.filter_rounds(problem)["rounds"]):
        outcomes.add("later round" if index else "first round")
        if answer["placement"]:
            outcomes.add("placed")
        if answer["unschedulable"]:
            outcomes.add("left")
    return outcomes


def test_filtering_places_some_and_leaves_some() -> None:
    reaches(clusters.filter_problems(), filter_outcomes, {"placed", "left", "first round", "later round"})
