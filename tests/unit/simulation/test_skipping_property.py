"""Random scenarios of all autoscalers: rounds that are left out change nothing."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kscale.objects.decode import to_dict
from kscale.simulation import Scenario, build, simulate
from unit.drivers.vpa_world import autoscaler
from unit.simulation.test_simulation import scenario
from unit.simulation.test_skipping import BUDGET, comparable_bytes
from unit.world.simulated_cases import pod_template, workload

APPS = ("web", "api")
LEVELS = st.lists(st.integers(0, 8), min_size=1, max_size=5)
SECONDS = st.sampled_from([0, 10, 60, 300])
MACHINES = [{}, {"lifetime": "90s"}, {"stock": 2}, {"failures": 0.5}, {"ready": "15s", "apart": "10s"}]


@st.composite
def rules(draw: st.DrawFn) -> dict[str, Any]:
    policy = {"type": draw(st.sampled_from(["Pods", "Percent"])), "value": draw(st.sampled_from([1, 50])),
              "periodSeconds": draw(st.sampled_from([15, 60]))}  # fmt: skip
    return {"stabilizationWindowSeconds": draw(SECONDS), "policies": [policy]}


@st.composite
def horizontal(draw: st.DrawFn, name: str) -> dict[str, Any]:
    target = draw(st.sampled_from([{"type": "Utilization", "averageUtilization": 60},
                                   {"type": "AverageValue", "averageValue": "700m"}]))  # fmt: skip
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    if draw(st.booleans()):
        deep = {"metric": {"name": "depth"}, "target": {"type": "AverageValue", "averageValue": "3"}}
        metrics.append({"type": "External", "external": deep})
    spec: dict[str, Any] = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": draw(st.integers(1, 3)),
        "maxReplicas": draw(st.integers(3, 9)),
        "metrics": metrics,
    }
    if draw(st.booleans()):
        spec["behavior"] = {side: draw(rules()) for side in draw(st.sets(st.sampled_from(["scaleUp", "scaleDown"])))}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": spec,
    }


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    objects: list[Any] = []
    load: list[Any] = []
    for name in APPS:
        strategy = {"type": draw(st.sampled_from(["RollingUpdate", "Recreate"]))}
        web = {"template": pod_template(name, priority=draw(st.sampled_from([0, 5])))}
        objects.append(workload("Deployment", name, draw(st.integers(1, 4)), spec={"strategy": strategy, **web}))
        levels = draw(LEVELS)
        every = draw(st.sampled_from([7, 45, 60]))
        steps = {"steps": [[f"{every * i}s", level] for i, level in enumerate(levels)]}
        load.append({"workload": f"Deployment/shop/{name}", "total": {"cpu": steps}})
        if draw(st.booleans()):
            objects.append(draw(horizontal(name)))
        if (mode := draw(st.sampled_from([None, "Off", "Initial", "Recreate", "InPlaceOrRecreate"]))) is not None:
            objects.append(autoscaler(name, kind="Deployment", updatePolicy={"updateMode": mode}))
    if draw(st.booleans()):
        objects.append({**BUDGET, "spec": {**BUDGET["spec"], "minAvailable": draw(st.sampled_from([1, "50%"]))}})
    if draw(st.booleans()):
        job = {"completions": 6, "parallelism": draw(st.integers(1, 3)), "template": pod_template("batch")}
        objects += [workload("Job", "batch", None, spec=job), workload("DaemonSet", "agent", None, cpu="100m")]
    period = {"horizontal-pod-autoscaler-sync-period": draw(st.sampled_from(["5s", "15s"]))}
    scale_down = {"scale-down-unneeded-time": "2m"}
    controllers: dict[str, Any] = {"horizontal": {"flags": period}, "clusterAutoscaler": {"flags": scale_down}}
    for each in ("vpaRecommender", "vpaUpdater", "vpaAdmission"):
        if draw(st.booleans()):
            controllers[each] = {}
    depth = {"steps": [[f"{60 * i}s", level] for i, level in enumerate(draw(LEVELS))], "repeat": "6m"}
    return scenario(
        objects=objects,
        load=load,
        controllers=controllers,
        horizon="5m",
        seed=draw(st.integers(0, 99)),
        pods=[{"start": "2s", "readiness": draw(st.sampled_from(["0s", "20s"])), "work": "50s"}],
        machines=[{"boot": "40s", **draw(st.sampled_from(MACHINES))}],
        metrics={
            "scrape": draw(st.sampled_from(["15s", "60s"])),
            "lag": draw(st.sampled_from(["0s", "20s"])),
            "external": [{"namespace": "shop", "name": "depth", "signal": depth}],
        },
        world={
            "watchLag": draw(st.sampled_from(["0s", "700ms", "5s", "16s"])),
            "scheduler": draw(st.sampled_from(["first-fit", "scores"])),
            "preemption": draw(st.booleans()),
        },
    )


def run(data: dict[str, Any], *, skip: bool) -> tuple[bytes, bytes]:
    """All of a run, and what stands in its objects at the end."""
    setup = build(msgspec.convert(data, Scenario))
    result = comparable_bytes(simulate(setup, skip=skip))
    objects = [each for each in setup.world.api if each.kind != "ConfigMap"]  # when it looked last, which it tells
    return result, b"\n".join(msgspec.json.encode(to_dict(each)) for each in objects)


PODS_THAT_GO = scenario(
    objects=[
        workload("Deployment", "api", 4),
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "api", "namespace": "shop"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "api"},
                "minReplicas": 2,
                "maxReplicas": 9,
                "metrics": [
                    {
                        "type": "Resource",
                        "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "700m"}},
                    }
                ],
            },
        },
    ],
    load=[{"workload": "Deployment/shop/api", "total": {"cpu": {"steps": [["0s", 0]]}}}],
    controllers={"horizontal": {"flags": {"horizontal-pod-autoscaler-sync-period": "5s"}}, "clusterAutoscaler": {}},
    horizon="150s",
    seed=75,
    machines=[{"boot": "40s", "lifetime": "90s"}],
    metrics={"scrape": "60s"},
    world={"watchLag": "16s"},
)
"""A machine dies between two scrapes: metrics lack its pods at once, and the watch brings that a while later."""


@settings(max_examples=max(settings().max_examples // 50, 2))
@example(data=PODS_THAT_GO)
@given(data=scenarios())
def test_skipping_changes_nothing_in_any_world(data: dict[str, Any]) -> None:
    assert run(data, skip=True) == run(data, skip=False)
