"""Scenario files, runs, and what comes of them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from kscale import InputError
from kscale.cli.commands.simulate import simulation_view
from kscale.drivers.horizontal_autoscaler import HorizontalAutoscaler
from kscale.drivers.vpa_updater import VpaUpdater
from kscale.effects import SECOND, Action, Moment, Outcome, Patch
from kscale.objects.quantity import Quantity, QuantityError
from kscale.simulation import Scenario, Simulation, build, read_scenario, simulate
from kscale.simulation.scenario import SignalEntry, Values
from kscale.vpa.recommender import checkpoints
from unit.cli.support import kscale
from unit.drivers.vpa_world import autoscaler
from unit.world.simulated_cases import pod_template, workload

EXAMPLE = Path(__file__).parents[3] / "examples" / "simulate-web.yaml"


def scenario(**more: Any) -> dict[str, Any]:
    room = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    return {
        "apiVersion": "kscale.dev/v1alpha1",
        "kind": "Simulation",
        "horizon": "5m",
        "objects": [workload("Deployment", "web", 6)],
        "groups": [
            {"id": "pool", "max": 5, "target": 1, "price": 0.2, "template": {
                "metadata": {"name": "m", "labels": {"node.kubernetes.io/instance-type": "big"}},
                "status": {"allocatable": room, "capacity": room}}}
        ],
        "controllers": {"clusterAutoscaler": {}},
        **more,
    }  # fmt: skip


def ran(**more: Any) -> Simulation:
    return simulate(build(msgspec.convert(scenario(**more), Scenario)))


def problems(data: dict[str, Any], tmp_path: Path) -> list[tuple[str, str]]:
    """(field, message) of what is wrong with a file."""
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump(data))
    with pytest.raises(InputError) as caught:
        build(read_scenario(file), source=str(file), folder=tmp_path)
    assert all(each.source.startswith(str(tmp_path)) for each in caught.value.problems)
    return [(each.field or each.object, each.message) for each in caught.value.problems]


def test_report_totals_match_the_run() -> None:
    run = ran(machines=[{"boot": "90s", "deletion": "10s"}])
    report = run.report
    assert (report.most_nodes, report.actions["IncreaseSize"], report.pending_pods.at_end) == (2, 1, 0)
    assert (report.pending_pods.pods, report.pending_pods.p50) == (6, 0)
    assert 90 < report.pending_pods.max < 110
    assert report.pending_pods.pod_seconds == pytest.approx(2 * report.pending_pods.max)
    group = report.groups[0]
    booted = 300 - (report.pending_pods.max - 90)
    assert group.node_hours == pytest.approx((300 + booted) / 3600)
    assert report.cost == pytest.approx(0.2 * group.node_hours)
    assert (group.instance_type, group.added, group.removed) == ("big", 1, 0)
    assert report.cores.provisioned == pytest.approx(4 * (600 - report.pending_pods.max) / 3600)
    assert report.cores.under_provisioned == pytest.approx(2 * report.pending_pods.max / 3600)
    assert report.cores.requested + report.cores.over_provisioned == pytest.approx(report.cores.provisioned)


def test_frequent_loops_are_a_flag_of_a_scenario() -> None:
    def rounds(**flags: bool) -> int:
        flags = {name.replace("_", "-"): value for name, value in flags.items()}
        return ran(controllers={"clusterAutoscaler": {"flags": flags}}).report.controllers[0].rounds

    assert rounds(frequent_loops_enabled=False) < rounds(frequent_loops_enabled=True) == rounds()


def test_gates_and_lists_are_flags_as_upstream_writes_them() -> None:
    flags = {"feature-gates": "InPlace=true,PerVPAConfig=false", "ignored-vpa-object-namespaces": "a,b"}
    gates = {"feature-gates": ["HPAConfigurableTolerance=false"]}
    data = scenario(controllers={"vpaUpdater": {"flags": flags}, "horizontal": {"flags": gates}})
    horizontal, updater = (each for each in build(msgspec.convert(data, Scenario)).drivers)
    assert isinstance(updater, VpaUpdater)
    assert isinstance(horizontal, HorizontalAutoscaler)
    assert updater.options.feature_gates == {"InPlace": True, "PerVPAConfig": False}
    assert updater.options.ignored_vpa_object_namespaces == ["a", "b"]
    assert horizontal.options.feature_gates == {"HPAConfigurableTolerance": False}


def test_preemption_is_for_a_scenario_to_choose() -> None:
    def waits(**world: Any) -> str:
        items = [
            workload("Deployment", "vip", 1, spec={"template": pod_template("vip", cpu="2", priority=9)}),
            workload("Deployment", "web", 4),
        ]
        data = scenario(
            objects=items, controllers={}, world=world, groups=[{**scenario()["groups"][0], "max": 1}], horizon="1m"
        )
        setup = build(msgspec.convert(data, Scenario))
        deployment = setup.world.api.find("Deployment", "shop/vip")
        setup.world.api.put(replace(deployment, spec=replace(deployment.spec, replicas=0)))
        setup.world.time.at(
            setup.world.time.now + 20 * SECOND,
            lambda: setup.world.api.put(replace(setup.world.api.find("Deployment", "shop/vip"), spec=deployment.spec)),
        )
        simulate(setup)
        return " ".join(
            sorted(
                {
                    pod.name.partition("-")[0]
                    for pod in setup.world.api.get_all("Pod").values()
                    if not pod.spec.node_name
                }
            )
        )

    assert (waits(), waits(preemption=True)) == ("vip", "web")


def test_a_price_that_is_not_known_makes_no_sum() -> None:
    data = scenario()
    del data["groups"][0]["price"]
    assert ran(groups=data["groups"]).report.cost is None


def test_same_seed_gives_the_same_run() -> None:
    spread = [{"boot": {"p0": "20s", "p50": "60s", "p100": "4m"}, "failures": 0.3}]
    objects = [workload("Deployment", "web", 14)]

    def bytes_of(seed: int) -> bytes:
        run = ran(seed=seed, machines=spread, objects=objects, horizon="3m")
        columns = {name: list(values) for name, values in run.timeline.columns().items()}
        return run.report.to_json() + run.decisions.to_bytes() + repr(columns).encode()

    assert bytes_of(1) == bytes_of(1)
    assert bytes_of(1) != bytes_of(2)


def test_a_queue_and_an_external_metric_drive_an_hpa() -> None:
    metric = {"metric": {"name": "rate"}, "target": {"type": "AverageValue", "averageValue": "100"}}
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1,
            "maxReplicas": 8,
            "metrics": [{"type": "External", "external": metric}],
        },
    }
    run = ran(
        objects=[workload("Deployment", "web", 1), hpa],
        load=[
            {
                "workload": "Deployment/shop/web",
                "queue": {"arrivals": {"steps": [["0s", 90], ["2m", 400]]}, "capacity": 120, "patience": "5s"},
            }
        ],
        metrics={"external": [{"namespace": "shop", "name": "rate", "workload": "Deployment/shop/web"}]},
        controllers={"horizontal": {}, "clusterAutoscaler": {}},
    )
    report = run.report
    assert report.rescales >= 1
    assert report.late is not None
    assert 0 < report.late < 0.5
    assert report.queues[0].arrived == 90 * 120 + 400 * 180
    last = {name: values[-1] for name, values in run.workloads.columns().items()}
    assert (last["workload"], last["replicas"], last["ready"]) == ("Deployment/shop/web", 4, 4)


def test_vpa_runs_and_admits_new_pods() -> None:
    vpa = autoscaler("web", kind="Deployment", updatePolicy={"updateMode": "Recreate", "minReplicas": 1})
    vpa["metadata"]["namespace"] = "shop"
    run = ran(
        horizon="25m",
        objects=[workload("Deployment", "web", 3, cpu="100m", memory="200Mi"), vpa],
        load=[{"workload": "Deployment/shop/web", "perPod": {"cpu": "700m", "memory": "400Mi"}}],
        controllers={"vpaRecommender": {}, "vpaUpdater": {}, "vpaAdmission": {}},
    )
    assert run.report.evictions >= 3
    assert run.report.cores.requested > 3 * 0.1 * 25 / 60 * 1.5  # those that came back asked for more
    assert run.report.refusals == {}
    (recommendation,) = run.report.recommendations
    assert (recommendation.vpa, recommendation.container) == ("shop/web", "c")
    assert 700 < Quantity(recommendation.target["cpu"]).milli_value() < 1000
    assert (
        int(recommendation.lower_bound["memory"])
        <= int(recommendation.target["memory"])
        <= int(recommendation.upper_bound["memory"])
    )


@pytest.mark.parametrize("batch", [256, 2])
def test_checkpoints_are_the_same_whether_they_are_built_late_or_written_one_by_one(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A world whose ``perform`` was replaced gets every request; others build checkpoints when they are read.

    ``batch``: VPAs whose checkpoints are prepared together.
    """
    monkeypatch.setattr(checkpoints, "_VPAS_PER_BATCH", batch)
    names = ("web", "api", "db")
    vpas = [autoscaler(name, kind="Deployment", updatePolicy={"updateMode": "Off"}) for name in names]
    for vpa in vpas:
        vpa["metadata"]["namespace"] = "shop"
    loads = [{"workload": f"Deployment/shop/{name}", "perPod": {"cpu": "70m", "memory": "90Mi"}} for name in names]
    data = scenario(
        horizon="13m30s",
        objects=[*(workload("Deployment", name, 2, cpu="100m", memory="100Mi") for name in names), *vpas],
        load=loads,
        controllers={"vpaRecommender": {"flags": {"update-worker-count": 2, "checkpoints-gc-interval": "5m"}}},
    )
    late, written = (build(msgspec.convert(data, Scenario)) for _ in range(2))
    patched: list[str] = []
    perform = written.world.perform

    def noting(action: Action, now: Moment) -> Outcome:
        if isinstance(action, Patch) and action.kind == "VerticalPodAutoscalerCheckpoint":
            patched.append(action.name)
        return perform(action, now)

    written.world.perform = noting
    reports = [simulate(setup).report for setup in (late, written)]
    assert reports[0] == reports[1]
    assert len(patched) > 3 * 10
    result, expected = (setup.world.api.get_all("VerticalPodAutoscalerCheckpoint") for setup in (late, written))
    assert len(result) == 3
    assert result == expected


def test_checkpoints_that_end_after_the_timeout_are_reported_whether_or_not_they_are_built_late(
    caplog: pytest.LogCaptureFixture,
) -> None:
    vpa = autoscaler("web", kind="Deployment", updatePolicy={"updateMode": "Off"})
    vpa["metadata"]["namespace"] = "shop"
    data = scenario(
        objects=[workload("Deployment", "web", 2, cpu="100m", memory="100Mi"), vpa],
        load=[{"workload": "Deployment/shop/web", "perPod": {"cpu": "70m", "memory": "90Mi"}}],
        world={"latency": "1s"},
        controllers={"vpaRecommender": {"flags": {"checkpoints-timeout": "500ms"}}},
    )
    late, written = (build(msgspec.convert(data, Scenario)) for _ in range(2))
    written.world.perform = partial(written.world.perform)
    messages = []
    for setup in (late, written):
        caplog.clear()
        simulate(setup)
        messages.append(caplog.messages.copy())
    assert messages[0] == messages[1]
    assert sum("checkpoints-timeout" in message for message in messages[0]) > 2


def test_a_run_that_is_stopped_keeps_what_was_simulated() -> None:
    setup = build(msgspec.convert(scenario(horizon="2h"), Scenario))
    calls: list[int] = []
    run = simulate(setup, stop=lambda: calls.append(1) is None and len(calls) > 3, progress=None)
    assert run.report.interrupted
    assert 0 < run.report.seconds < 7200
    assert run.report.node_hours > 0


def test_run_writes_report_decisions_and_timelines(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    run = ran()
    names = [path.name for path in run.write(tmp_path / "out")]
    assert names == ["report.json", "decisions.jsonl", "timeline.parquet", "workloads.parquet"]
    lines = [json.loads(line) for line in (tmp_path / "out" / "decisions.jsonl").read_text().splitlines()]
    assert {"action": "IncreaseSize", "by": "cluster-autoscaler"}.items() <= lines[0].items()
    table = pq.read_table(tmp_path / "out" / "timeline.parquet").to_pydict()
    assert len(table["time"]) == 6
    assert table["nodes"][0] == 1
    assert table["nodes"][-1] == 2
    with pytest.raises(InputError, match="report"):
        run.write(tmp_path / "out" / "report.json")


BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "b", "namespace": "shop"},
    "spec": {"minAvailable": "half"},
}
ENDLESS_BUDGET = {**BUDGET, "spec": {"minAvailable": f"{'9' * 5_000}%"}}
BAD: list[tuple[Callable[[dict[str, Any]], Any], str, str]] = [
    (lambda s: s.update(horizon="soon"), "horizon", "invalid duration"),
    (lambda s: s.update(horizon="-1h"), "horizon", "too short"),
    (lambda s: s.update(begin="yesterday"), "begin", "RFC 3339"),
    (lambda s: s.update(machines=[{"group": "none"}]), "machines[0].group", "no node group 'none'"),
    (lambda s: s.update(machines=[{"boot": {"p50": "1m"}}]), "machines[0].boot", "p100"),
    (lambda s: s.update(machines=[{"boot": {"p0": "2m", "p100": "1m"}}]), "machines[0].boot", "longer times"),
    (lambda s: s.update(machines=[{"boot": {"x": "2m"}}]), "machines[0].boot.x", "quantile"),
    (lambda s: s.update(machines=[{"failures": 2}]), "machines[0].failures", "between 0 and 1"),
    (lambda s: s.update(machines=[{"failures": math.nan}]), "machines[0].failures", "expected `float`, got `str`"),
    (lambda s: s.update(machines=[{"failures": math.inf}]), "machines[0].failures", "expected `float`, got `str`"),
    (lambda s: s["objects"].append(ENDLESS_BUDGET), "spec.minAvailable", "no number and no percentage"),
    (lambda s: s.update(pods=[{"workload": "web"}]), "pods[0].workload", "no workload"),
    (lambda s: s.update(pods=[{"workload": "Deployment/shop/api"}]), "pods[0].workload", "there is no"),
    (lambda s: s["objects"].append(s["objects"][0]), "Deployment shop/web", "is there twice"),
    (lambda s: s["objects"].append(BUDGET), "spec.minAvailable", "no number and no percentage"),
    (
        lambda s: s.update(load=[{"workload": "Deployment/shop/api", "total": {"cpu": 1}}]),
        "load[0].workload",
        "there is no",
    ),
    (lambda s: s.update(load=[{"workload": "Deployment/shop/web"}]), "load[0]", "total, perPod or a queue"),
    (
        lambda s: s.update(load=[{"workload": "Deployment/shop/web", "total": {"cpu": 1}, "perPod": {"cpu": 1}}]),
        "load[0].perPod.cpu",
        "in total already",
    ),
    (
        lambda s: s.update(
            load=[
                {
                    "workload": "Deployment/shop/web",
                    "total": {"cpu": 1},
                    "queue": {"arrivals": 1, "capacity": 1, "used": {"cpu": 1}},
                }
            ]
        ),
        "load[0].queue.used.cpu",
        "as usage already",
    ),
    (
        lambda s: s.update(metrics={"external": [{"namespace": "a", "name": "b", "signal": each} for each in (1, 2)]}),
        "metrics.external[1]",
        "there is a b with these labels already",
    ),
    (
        lambda s: s.update(machines=[{"outOfStock": [{"begin": "2m", "end": "1m"}]}]),
        "machines[0].outOfStock[0].end",
        "1m is not after 2m",
    ),
    (
        lambda s: s.update(load=[{"workload": "Deployment/shop/web", "total": {"cpu": "much"}}]),
        "load[0].total.cpu",
        "not a quantity",
    ),
    (
        lambda s: s.update(
            load=[{"workload": "Deployment/shop/web", "total": {"cpu": {"steps": [["0s", 1], ["1", 2]]}}}]
        ),
        "load[0].total.cpu.steps[1]",
        "missing unit in duration",
    ),
    (
        lambda s: s.update(
            load=[
                {"workload": "Deployment/shop/web", "perPod": {"cpu": {"steps": [["0s", 1], ["1s", -2], ["2s", "x"]]}}}
            ]
        ),
        "load[0].perPod.cpu.steps[1]",
        "-2.0 is out of range",
    ),
    (
        lambda s: s.update(
            load=[{"workload": "Deployment/shop/web", "perPod": {"cpu": {"steps": [["0s", 1], ["1s", "1 "]]}}}]
        ),
        "load[0].perPod.cpu.steps[1]",
        "is not a quantity",
    ),
    (
        lambda s: s.update(load=[{"workload": "Deployment/shop/web", "total": {"cpu": "9E"}}]),
        "load[0].total.cpu",
        "9E is out of range",
    ),
    (
        lambda s: s.update(
            load=[{"workload": "Deployment/shop/web", "total": {"cpu": {"steps": [["0s", "4P"]], "scale": 2}}}]
        ),
        "load[0].total.cpu",
        "8000000000000000 is out of range",
    ),
    (
        lambda s: s.update(load=[{"workload": "Deployment/shop/web", "total": {"cpu": {}}}]),
        "load[0].total.cpu",
        "steps or a file",
    ),
    (
        lambda s: s.update(metrics={"external": [{"namespace": "a", "name": "b"}]}),
        "metrics.external[0]",
        "a signal or the workload",
    ),
    (
        lambda s: s.update(controllers={"clusterAutoscaler": {"flags": {"scan-intervall": "1s"}}}),
        "controllers.clusterAutoscaler.flags.scan-intervall",
        "no flag",
    ),
    (
        lambda s: s.update(controllers={"clusterAutoscaler": {"flags": {"leader-elect": True}}}),
        "controllers.clusterAutoscaler.flags.leader-elect",
        "no effect",
    ),
    (
        lambda s: s.update(controllers={"clusterAutoscaler": {"flags": {"node-autoprovisioning-enabled": True}}}),
        "controllers.clusterAutoscaler.flags.node-autoprovisioning-enabled",
        "release 1.3",
    ),
    (
        lambda s: s.update(controllers={"clusterAutoscaler": {"flags": {"frequent-loops-enabled": "often"}}}),
        "controllers.clusterAutoscaler.flags.frequent-loops-enabled",
        "neither true nor false",
    ),
    *(
        (
            lambda s, controller=controller, flag=flag, value=value: s.update(  # type: ignore[misc]  # bound
                controllers={controller: {"flags": {flag: value}}}
            ),
            f"controllers.{controller}.flags.{flag}",
            text,
        )
        for controller, flag, value, text in [
            ("clusterAutoscaler", "expander", "random,price", "Expander price came after an expander random"),
            ("horizontal", "horizontal-pod-autoscaler-tolerance", -1, "-1.0 is negative"),
            ("horizontal", "horizontal-pod-autoscaler-tolerance", "nan", "nan is negative or not a number"),
            ("horizontal", "horizontal-pod-autoscaler-downscale-stabilization", "-1s", "must not be negative"),
            ("horizontal", "horizontal-pod-autoscaler-cpu-initialization-period", "-1s", "must not be negative"),
            ("horizontal", "horizontal-pod-autoscaler-initial-readiness-delay", "-1s", "must not be negative"),
            ("horizontal", "concurrent-horizontal-pod-autoscaler-syncs", "9" * 23, "value out of range"),
            ("horizontal", "concurrent-horizontal-pod-autoscaler-syncs", "1e3", "invalid syntax"),
            ("horizontal", "concurrent-horizontal-pod-autoscaler-syncs", 0, "must be greater than 0, but got 0"),
            ("horizontal", "concurrent-horizontal-pod-autoscaler-syncs", ["1"], "one value is expected, not a list"),
            ("vpaRecommender", "storage", "prometheus", "a simulated cluster has no Prometheus"),
            ("vpaRecommender", "cpu-histogram-decay-half-life", "-1s", "must not be negative"),
            ("vpaRecommender", "memory-histogram-decay-half-life", "-1ns", "must not be negative"),
            ("vpaRecommender", "memory-saver", "maybe", "invalid syntax"),
            ("vpaUpdater", "eviction-rate-limit", "1 ", "invalid syntax"),
            ("vpaUpdater", "min-replicas", "1.5", "invalid syntax"),
        ]
    ),
    (
        lambda s: s.update(controllers={"horizontal": {"flags": {"sync": 1}}}),
        "controllers.horizontal.flags.sync",
        "no such flag",
    ),
    (
        lambda s: s.update(controllers={"vpaUpdater": {"flags": {"updater-interval": "x"}}}),
        "controllers.vpaUpdater.flags.updater-interval",
        "invalid duration",
    ),
    (
        lambda s: s.update(controllers={"vpaUpdater": {"flags": {"feature-gates": "InPlace=on"}}}),
        "controllers.vpaUpdater.flags.feature-gates",
        "'InPlace=on' is not NAME=true or NAME=false",
    ),
    (
        lambda s: s.update(controllers={"horizontal": {"flags": {"feature-gates": "Sometimes=true"}}}),
        "controllers.horizontal.flags.feature-gates",
        "unrecognized feature gate: Sometimes",
    ),
    (lambda s: s.update(objects=[{"kind": "Pod", "apiVersion": "v1"}]), "metadata.name", ""),
    (lambda s: s.update(groups=[{"id": "a"}]), "groups[0] (a)", "no template"),
    (lambda s: s.update(cluster=["none.json"]), "", "No such file"),
]


@pytest.mark.parametrize(("change", "field", "message"), BAD, ids=[field for _, field, _ in BAD])
def test_mistakes_are_reported_by_field(
    change: Callable[[dict[str, Any]], Any], field: str, message: str, tmp_path: Path
) -> None:
    data = scenario()
    change(data)
    result = problems(data, tmp_path)
    assert [name for name, text in result if message in text] == [field]


@given(
    st.from_regex(r"[0-9]{0,17}\.?[0-9]{0,5}", fullmatch=True) | st.floats(0, 1e17) | st.integers(0, 10**17).map(float)
)
@example("4611686018427387")
@example("999999999999999.999")
def test_plain_amounts_are_those_of_quantities(given_: str | float) -> None:
    values = Values("", Path(), 0)
    result = values.milli(given_, "f")
    try:
        expected = Quantity(str(given_))
    except QuantityError:
        assert (result, [each.field for each in values.problems]) == (0, ["f"])
        return
    fits = expected < Quantity("4611686018427387")
    assert (result, bool(values.problems)) == (expected.milli_value() if fits else 0, not fits)


@pytest.mark.parametrize("scale", ["1", "0.3", 2, 1.5, "1/3"])
def test_steps_are_scaled_exactly(scale: str | float) -> None:
    amounts = [0.001, "7m", 12.345, "3", 10**9]
    entry = SignalEntry(steps=[(f"{i}s", each) for i, each in enumerate(amounts)], scale=scale)
    values = Values("", Path(), 0)
    signal = values.signal(entry, "f")
    milli = [1, 7, 12_345, 3_000, 10**12]
    assert [signal.get_value(i * SECOND) for i in range(5)] == [int(each * Fraction(str(scale))) for each in milli]
    assert not values.problems


def test_a_file_that_is_no_scenario(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    for text, message in (("", "no scenario"), ("kind: Pod", "kind"), ("a: [", "s.yaml")):
        file.write_text(text)
        with pytest.raises(InputError, match=message):
            read_scenario(file)
    with pytest.raises(InputError, match="No such file"):
        read_scenario(tmp_path / "none.yaml")


def test_a_recorded_cluster_goes_on(tmp_path: Path) -> None:
    """Nodes, and pods on them, of a dump."""
    from unit.world.simulated_cases import node

    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "old", "namespace": "shop"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]},
        "status": {"phase": "Running"},
    }
    items = [msgspec.json.decode(msgspec.json.encode(node("n1"), enc_hook=str)), pod]
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    data = scenario(groups=[{"id": "pool", "max": 3, "nodes": ["n1"], "price": 1}])
    setup = build(msgspec.convert(data, Scenario), cluster=[str(dump)])
    run = simulate(setup)
    assert run.report.most_nodes == 3
    assert {pod.spec.node_name for pod in setup.world.api.get_all("Pod").values()} == {"n1", "pool-0", "pool-1"}


@pytest.mark.parametrize(("repeat", "arrived"), [(None, 7), ("4s", 7 * 15), ("6s", 7 * 10)])
def test_events_of_a_file_end_with_the_last(repeat: str | None, arrived: int, tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text(
        "time\n" + "".join(f"{each}\n" for each in (100, 100.5, 101, 102, 103, 103, 103))
    )
    arrivals = {"file": "events.csv", "bin": "1s", "value": "count", **({"repeat": repeat} if repeat else {})}
    data = scenario(
        horizon="1m",
        controllers={},
        load=[{"workload": "Deployment/shop/web", "queue": {"arrivals": arrivals, "capacity": 10}}],
    )
    report = simulate(build(msgspec.convert(data, Scenario), folder=tmp_path)).report
    assert report.queues[0].arrived == arrived


def test_a_dump_without_replica_sets_keeps_its_pods(tmp_path: Path) -> None:
    """Pods of two templates, by replica sets that are not there: none is made anew, those of the old template go."""
    from unit.world.simulated_cases import node

    def pod(number: int, own: str, day: int, cpu: str) -> dict[str, Any]:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"web-{own}", "uid": own, "controller": True}
        created = pod_template("web", cpu=cpu)
        meta = {
            "name": f"web-{own}-{number}",
            "namespace": "shop",
            "labels": {"app": "web", "pod-template-hash": own},
            "ownerReferences": [owner],
            "creationTimestamp": f"2026-01-0{day}T00:00:00Z",
        }
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        return {**created, "apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": status} | {
            "spec": {**created["spec"], "nodeName": "n1"}
        }

    items = [
        msgspec.json.decode(msgspec.json.encode(node("n1", cpu="64"), enc_hook=str)),
        workload("Deployment", "web", 3),
        *(pod(number, "new", 2, "1") for number in range(3)),
        *(pod(number, "old", 1, "2") for number in range(2)),
    ]
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    data = {**scenario(groups=[], controllers={}), "objects": []}
    setup = build(msgspec.convert(data, Scenario), cluster=[str(dump)])
    report = simulate(setup).report
    assert list(setup.world.api.get_all("Pod")) == [f"shop/web-new-{number}" for number in range(3)]
    assert {each.name: each.spec.replicas for each in setup.world.api.get_all("ReplicaSet").values()} == {
        "web-new": 3,
        "web-old": 0,
    }
    assert report.pending_pods.pods == 0


def test_missing_storage_class_is_created() -> None:
    template = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    named = {"metadata": {"name": "logs"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "gp3"}}
    spec = {"volumeClaimTemplates": [template, named]}
    setup = build(msgspec.convert(scenario(objects=[workload("StatefulSet", "db", 2, spec=spec)]), Scenario))
    simulate(setup)
    assert [pod.status.phase for pod in setup.world.api.get_all("Pod").values()] == ["Running"] * 2
    assert list(setup.world.api.get_all("StorageClass")) == ["standard", "gp3"]


def test_a_class_of_storage_that_is_made_up_has_a_name_of_its_own() -> None:
    theirs = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "standard"}}
    spec = {"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]}
    objects = [{**theirs, "provisioner": "disks"}, workload("StatefulSet", "db", 1, spec=spec)]
    setup = build(msgspec.convert(scenario(objects=objects), Scenario))
    simulate(setup)
    assert setup.world.api.get("PersistentVolumeClaim", "shop", "data-db-0").spec.storage_class_name == "standard-1"


def test_ungrouped_nodes_are_reported_without_price() -> None:
    from unit.world.simulated_cases import node

    bare = msgspec.json.decode(msgspec.json.encode(node("bare"), enc_hook=str))
    run = ran(objects=[bare], groups=[{**scenario()["groups"][0], "target": 2}], controllers={}, horizon="30m")
    report = run.report
    assert (report.node_hours, report.ungrouped_node_hours) == (1.0, 0.5)
    assert report.cost == pytest.approx(0.2)
    headline = simulation_view(report).headline
    assert "1.0 node-hours, $0.20; 0.5 more of nodes of no group, which have no price." in headline


def test_the_command(tmp_path: Path) -> None:
    result = kscale("simulate", str(EXAMPLE), "--horizon", "8m", "--to", str(tmp_path / "out"), "-o", "json")
    report = json.loads(result.stdout)
    assert (report["kind"], report["name"], report["seconds"]) == ("SimulationReport", "web-day", 480)
    assert (tmp_path / "out" / "timeline.parquet").exists()
    assert "wrote" in result.stderr


def test_warnings_of_a_prometheus_response_are_reported(tmp_path: Path) -> None:
    values = [[i, str(i % 3)] for i in range(60)]
    data = {"resultType": "matrix", "result": [{"metric": {}, "values": values}]}
    answer = {"status": "success", "data": data, "warnings": ["partial response"]}
    (tmp_path / "load.json").write_text(json.dumps(answer))
    load = {"workload": "Deployment/shop/web", "queue": {"arrivals": {"file": "load.json"}, "capacity": 10}}
    setup = build(msgspec.convert(scenario(horizon="1m", controllers={}, load=[load]), Scenario), folder=tmp_path)
    text = f"what {tmp_path / 'load.json'} lacks, of which Prometheus warned: partial response"
    assert simulate(setup).report.warnings == [text]
