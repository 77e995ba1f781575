"""What was paid, split beside the cheapest mix of nodes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kscale import InputError
from kscale.capacity.mix import MixPlan, mix
from kscale.cli.commands.simulate import simulation_view
from kscale.simulation import Scenario, Simulation, build, simulate
from unit.simulation.test_simulation import ran, scenario

HPA: dict[str, Any] = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 20},
}
HALF = {"type": "Utilization", "averageUtilization": 50}
SLOW = {"type": "AverageValue", "averageValue": "400m"}
JOBS = {"type": "External", "external": {"metric": {"name": "jobs"}, "target": {"type": "Value", "value": "1"}}}


def looked(ideal: int, **more: Any) -> Simulation:
    return simulate(build(msgspec.convert(scenario(**more), Scenario)), ideal=ideal)


def split(run: Simulation) -> dict[str, float]:
    result = run.report.ideal
    assert result is not None
    parts = {name: getattr(result, name) for name in ("ideal", "hpa", "packing", "ca", "boot")}
    assert result.paid == pytest.approx(sum(parts.values()))
    assert result.bound <= result.ideal + 1e-9
    assert min(parts.values()) >= 0
    return {name: round(value, 6) for name, value in parts.items()}


def group(target: int) -> dict[str, Any]:
    return {**scenario()["groups"][0], "target": target, "price": 1.0}


def cpu(target: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


@pytest.mark.parametrize(
    ("metrics", "needed"),
    [([cpu(HALF)], 4), ([cpu(SLOW)], 5), ([cpu(HALF), JOBS], 6)],
    ids=["half", "value", "something else, too"],
)
def test_unneeded_pods_and_unused_nodes_are_split(metrics: list[dict[str, Any]], needed: int) -> None:
    hpa = {**HPA, "spec": {**HPA["spec"], "metrics": metrics}}
    run = looked(
        2,
        horizon="1h",
        objects=[*scenario()["objects"], hpa],
        groups=[{**group(7), "max": 7}],
        load=[{"workload": "Deployment/shop/web", "total": {"cpu": 2}}],
        controllers={},
    )
    # Six pods, each on a node of its own: two nodes would do, and for those that are needed perhaps one.
    nodes = -(-needed // 4)
    assert split(run) == {"ideal": nodes, "hpa": 2 - nodes, "packing": 4, "ca": 1, "boot": 0}


def test_machines_that_boot_and_pods_that_are_spread() -> None:
    run = looked(2, horizon="10m", groups=[{**group(1), "price": 6.0}], machines=[{"boot": "4m"}])
    assert split(run) == {"ideal": 1.5, "hpa": 0, "packing": 0, "ca": 0, "boot": 0.5}
    spread = {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
             "labelSelector": {"matchLabels": {"app": "web"}}}
        ]
    }  # fmt: skip
    web = msgspec.json.decode(msgspec.json.encode(scenario()["objects"][0]))
    web["spec"]["template"]["spec"] |= spread
    web["spec"]["replicas"] = 4
    result = looked(1, objects=[web], groups=[group(2)], world={"scheduler": "scores"}, controllers={}, horizon="1h")
    assert split(result) == {"ideal": 1, "hpa": 0, "packing": 1, "ca": 0, "boot": 0}


def test_mix_never_costs_more_than_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    def dear(*arguments: Any, **more: Any) -> MixPlan:
        result = mix(*arguments, **more)
        return replace(result, cost=result.cost + 7, bound=replace(result.bound, cost=None))

    monkeypatch.setattr("kscale.simulation.accounting.mix", dear)
    result = looked(1, groups=[group(2)], controllers={}, horizon="1h")
    assert split(result) == {"ideal": 2, "hpa": 0, "packing": 0, "ca": 0, "boot": 0}
    assert result.report.ideal is not None
    assert result.report.ideal.bound == 0  # nothing was proven


def test_pods_that_the_mix_has_no_place_for_stay_where_they_are() -> None:
    web = msgspec.json.decode(msgspec.json.encode(scenario()["objects"][0]))
    web["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "pool-0"}
    web["spec"]["replicas"] = 3
    result = looked(1, objects=[web], groups=[group(2)], controllers={}, horizon="1h")
    assert result.report.ideal is not None
    assert result.report.ideal.unplaced == 3
    assert split(result) == {"ideal": 1, "hpa": 0, "packing": 0, "ca": 1, "boot": 0}


def test_pods_on_nodes_without_a_price_are_needed_too() -> None:
    room, small = ({"cpu": cores, "memory": "16Gi", "pods": "1"} for cores in ("8", "1"))
    node = {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"},
        "status": {"allocatable": room, "capacity": room, "conditions": [{"type": "Ready", "status": "True"}]},
    }  # fmt: skip
    hpa = {**HPA, "spec": {**HPA["spec"], "metrics": [cpu(HALF)]}}
    template = {"metadata": {"name": "m"}, "status": {"allocatable": small, "capacity": small}}
    run = looked(
        1,
        horizon="1h",
        objects=[node, *scenario()["objects"], hpa],
        groups=[{**group(0), "template": template}],
        load=[{"workload": "Deployment/shop/web", "total": {"cpu": 2}}],
    )
    # Four of six pods are needed, one of them on the node that costs nothing; each has a node of its own.
    assert split(run) == {"ideal": 3, "hpa": 2, "packing": 0, "ca": 0, "boot": 0}


def test_looking_changes_nothing_else() -> None:
    more = {"horizon": "20m", "machines": [{"boot": "90s"}]}
    plain, result = ran(**more), looked(3, **more)
    assert plain.report.ideal is None
    assert replace(result.report, ideal=None).to_json() == plain.report.to_json()
    assert result.decisions.to_bytes() == plain.decisions.to_bytes()


def test_ideal_is_described_in_the_footer() -> None:
    report = looked(1, groups=[{**group(7), "max": 7}], controllers={}, horizon="1h").report
    assert report.ideal is not None
    first = simulation_view(report).footer[0]
    assert first.startswith("Paid $7.00 = $2.00 cheapest mix found for the load (at least $2.00 ")
    assert first.endswith("+ $4.00 packing + $1.00 nodes without pods (CA) + $0.00 booting.")
    other = replace(report, ideal=replace(report.ideal, methods=["column_generation", "volume"], unplaced=3))
    footer = simulation_view(other).footer[0]
    assert "for the load (without 3 pods that it had no place for: nodes as paid)" in footer
    assert " by column_generation and volume) + " in footer
    with pytest.raises(InputError, match="-1 is negative"):
        looked(-1)
    unpriced = {**group(1), "price": None}
    nothing = looked(1, groups=[{key: value for key, value in unpriced.items() if value is not None}], horizon="1h")
    assert split(nothing) == dict.fromkeys(("ideal", "hpa", "packing", "ca", "boot"), 0)
