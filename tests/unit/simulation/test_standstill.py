"""Scenarios in which time would not go on, or that no cluster can have, are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kscale import InputError
from kscale.ca.options import AutoscalingOptions
from kscale.hpa.options import HPAOptions
from kscale.simulation import Scenario, build, running, simulate
from kscale.vpa.options import RecommenderOptions, UpdaterOptions
from unit.simulation.test_simulation import problems, ran, scenario
from unit.world.simulated_cases import workload

NOW = "between two rounds no time would pass"


def budget(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
    }


def flags(controller: str, **options: str) -> Callable[[dict[str, Any]], None]:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return lambda data: data.update(controllers={controller: {"flags": named}})


def budgets(**spec: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: data["objects"].append(budget(**spec))


CPUS = {"matchExpressions": [{"key": "app", "operator": "Is"}]}
BAD: list[tuple[Callable[[dict[str, Any]], Any], str, str]] = [
    (lambda s: s.update(begin="0001-01-01T00:00:00Z"), "begin", "0001-01-01T00:00:00Z is before 1970"),
    (lambda s: s.update(begin="2262-04-11T23:00:00Z", horizon="2h"), "horizon", "2h is too long: it ends after 2262"),
    (lambda s: s.update(machines=[{"lifetime": "0s"}]), "machines[0].lifetime", "0s is too short"),
    (
        lambda s: s.update(machines=[{"lifetime": {"p0": "10ms", "p100": "1h"}}]),
        "machines[0].lifetime.p0",
        "10ms is too short",
    ),
    (
        lambda s: s.update(pods=[{"workload": "Deployment/shop/web", "work": "1m"}]),
        "pods[0].work",
        "pods of a Deployment run until they are deleted",
    ),
    (flags("clusterAutoscaler", scan_interval="0s"), "controllers.clusterAutoscaler.flags.scan-interval", NOW),
    (
        flags("horizontal", horizontal_pod_autoscaler_sync_period="-1s"),
        "controllers.horizontal.flags.horizontal-pod-autoscaler-sync-period",
        NOW,
    ),
    (
        flags("vpaRecommender", recommender_interval="0s"),
        "controllers.vpaRecommender.flags.recommender-interval",
        "must be greater than zero",
    ),
    (
        flags("vpaUpdater", updater_interval="0s"),
        "controllers.vpaUpdater.flags.updater-interval",
        "must be greater than zero",
    ),
    (budgets(minAvailable=-1), "spec.minAvailable", "-1 is negative"),
    (budgets(maxUnavailable="150%"), "spec.maxUnavailable", "150% is more than 100%"),
    (budgets(maxUnavailable=1, minAvailable=1), "spec", "cannot be both set"),
    (budgets(unhealthyPodEvictionPolicy="Never"), "spec.unhealthyPodEvictionPolicy", "neither AlwaysAllow nor"),
    (budgets(selector=CPUS), "spec.selector", "not a valid label selector operator"),
]


@pytest.mark.parametrize(("change", "field", "message"), BAD, ids=[field for _, field, _ in BAD])
def test_mistakes_are_reported_by_field(
    change: Callable[[dict[str, Any]], Any], field: str, message: str, tmp_path: Path
) -> None:
    data = scenario()
    change(data)
    ((name, text),) = problems(data, tmp_path)
    assert (name, message in text) == (field, True), text


def test_explicit_options_are_checked() -> None:
    created = msgspec.convert(scenario(controllers={}), Scenario)
    nothing = timedelta()
    with pytest.raises(InputError, match=NOW):
        build(created, options={"horizontal": HPAOptions(horizontal_pod_autoscaler_sync_period=nothing)})
    for controller, options, text in (
        ("vpa_recommender", RecommenderOptions(storage="prometheus"), "flags.storage: a simulated cluster has no"),
        ("vpa_updater", UpdaterOptions(updater_interval=nothing), "flags.updater-interval: must be greater than zero"),
        ("cluster_autoscaler", AutoscalingOptions(expander="x"), "flags.expander: Expander x not supported"),
    ):
        with pytest.raises(InputError, match=text):
            build(created, options={controller: options})
    assert [each.field for each in RecommenderOptions(recommender_interval=nothing).problems()] == [
        "recommender_interval"
    ]
    assert [each.field for each in UpdaterOptions(updater_interval=nothing).problems()] == ["updater_interval"]


def test_endless_immediate_restart_is_a_named_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_STANDSTILL", 4)
    job = workload("Job", "endless", None, spec={"completions": 10**9, "parallelism": 1})
    setup = build(
        msgspec.convert(scenario(objects=[job], pods=[{"start": "0s", "work": "0s"}], controllers={}), Scenario)
    )
    with pytest.raises(InputError, match=r"time does not advance beyond 2026-01-01T00:00:00Z"):
        simulate(setup)


def test_work_that_is_usual_is_not_that_of_pods_that_are_started_again() -> None:
    job = workload("Job", "once", None)
    run = ran(objects=[workload("Deployment", "web", 2), job], pods=[{"work": "30s"}])
    assert run.timeline.columns()["pods"][-1] == 2  # that of the job has ended
    assert run.report.pending_pods.pods == 3  # none was made in the place of another


@pytest.mark.parametrize(("maximum", "target"), [(8, 9), (8, 2**64), (2**40, 2**40)])
def test_a_group_that_begins_above_its_maximum_is_refused(maximum: int, target: int) -> None:
    data = scenario()
    data["groups"] = [{**data["groups"][0], "max": maximum, "target": target}]
    with pytest.raises(InputError, match=rf"target: {target} is more than the group may have"):
        build(msgspec.convert(data, Scenario))
