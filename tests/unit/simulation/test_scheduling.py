"""A scheduler that is configured otherwise, in a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kscale import InputError
from kscale.scheduling.configuration import preemption_candidates
from kscale.scheduling.preemption import Candidates
from kscale.simulation import Scenario, build, simulate
from unit.simulation.test_simulation import problems, scenario
from unit.world.simulated_cases import workload

Json = dict[str, Any]
PACKING = {
    "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {
        "type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}}}],
    "plugins": {"score": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}, {"name": "PodTopologySpread"}]}},
}  # fmt: skip


def configuration(**profile: Any) -> Json:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }


def nodes_with_pods(folder: Path, **world: Any) -> list[int]:
    """How many pods nodes have, in the order of their names."""
    data = scenario(
        horizon="1m",
        objects=[workload("Deployment", "web", 4, cpu="500m")],
        groups=[{**scenario()["groups"][0], "target": 3}],
        controllers={},
        world={"scheduler": "scores", **world},
    )
    setup = build(msgspec.convert(data, Scenario), folder=folder)
    simulate(setup)
    on = [pod.spec.node_name for pod in setup.world.api.get_all("Pod").values()]
    return [on.count(node) for node in sorted(setup.world.api.get_all("Node"))]


def test_pods_go_where_the_configuration_wants_them(tmp_path: Path) -> None:
    assert nodes_with_pods(tmp_path) == [2, 1, 1]
    assert sorted(nodes_with_pods(tmp_path, schedulerConfiguration=configuration(**PACKING))) == [0, 0, 4]
    (tmp_path / "scheduler.yaml").write_text(yaml.safe_dump(configuration(**PACKING)))
    assert sorted(nodes_with_pods(tmp_path, schedulerConfiguration="scheduler.yaml")) == [0, 0, 4]


def test_filters_are_configured_too(tmp_path: Path) -> None:
    """Twelve pods of half a core fit where the resource is not looked at."""
    more = {"pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResources": ["example.com/slot"]}}]}
    web = workload("Deployment", "web", 4)
    web["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["example.com/slot"] = "1"

    def waiting(**world: Any) -> int:
        data = scenario(horizon="1m", objects=[web], controllers={}, world={"scheduler": "scores", **world})
        return simulate(build(msgspec.convert(data, Scenario), folder=tmp_path)).report.pending_pods.at_end

    assert (waiting(), waiting(schedulerConfiguration=configuration(**more))) == (4, 0)


def test_so_many_candidates_of_preemption() -> None:
    def read(**args: Any) -> Candidates:
        return preemption_candidates(configuration(pluginConfig=[{"name": "DefaultPreemption", "args": args}]))

    assert preemption_candidates(configuration()) == Candidates(10, 100) == read()
    assert read(minCandidateNodesPercentage=0, minCandidateNodesAbsolute=3) == Candidates(0, 3)
    assert read(minCandidateNodesPercentage=5, minCandidateNodesAbsolute=0) == Candidates(5, 0)
    for args, text in (
        ({"minCandidateNodesPercentage": 101}, r"101: not in valid range \[0, 100\]"),
        ({"minCandidateNodesAbsolute": -1}, r"-1: not in valid range \[0, inf\)"),
        ({"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0}, "cannot be zero at the same time"),
        ({"minCandidateNodesPercentage": "many"}, "not a whole number"),
        ({"most": 1}, "unknown field"),
    ):
        with pytest.raises(InputError, match=text):
            read(**args)


BAD: list[tuple[Json, str, str]] = [
    (
        {"scheduler": "first-fit", "schedulerConfiguration": configuration()},
        "world.schedulerConfiguration",
        "only with",
    ),
    ({"schedulerConfiguration": {"kind": "Pod"}}, "world.schedulerConfiguration", "gvk"),
    ({"schedulerConfiguration": configuration(plugins=3)}, "world.schedulerConfiguration", "not an object"),
    ({"schedulerConfiguration": "none.yaml"}, "", "No such file"),
    ({"schedulerConfiguration": "list.yaml"}, "world.schedulerConfiguration", "is no object"),
]


@pytest.mark.parametrize(("world", "field", "text"), BAD, ids=[text for _, _, text in BAD])
def test_invalid_scheduler_settings_are_reported(world: Json, field: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("[1]")
    ((name, message),) = problems(scenario(world={"scheduler": "scores", **world}), tmp_path)
    assert (name, text in message) == (field, True), message
