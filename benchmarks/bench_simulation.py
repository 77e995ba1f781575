"""What a simulated minute costs: nodes, pods that HPAs scale, and a Cluster Autoscaler, load changing once a minute.

``2m``: the first two minutes, in which all pods are made, placed and started; ``12m``: ten more. With ``vpa`` every app
has a VPA beside, which recommends memory; the load changes within the tolerance of the HPAs, so that none rescales.
``test_day``: ``KSCALE_BENCH_HOURS`` (default 1; 24 is the whole day) of that load (``steady``), and of one that goes up
and down by a quarter in a day, beginning anywhere, and by up to 4 % a minute beside that: HPAs rescale (``tides``).
``test_pod_events``: without autoscalers, all pods of these apps come at once, go at once, and come again. What is
counted is what the API of the world tells of pods: made, bound, started, ready, told to end, gone.

``KSCALE_BENCH_SCALE`` (default 1) multiplies the cluster: 1 is 1,000 nodes, 30,000 pods and 200 HPAs.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kscale.effects import SECOND
from kscale.simulation import Scenario, Setup, Simulation, build, simulate
from kscale.world.simulated.world import SimulatedWorld

SCALE = float(os.environ.get("KSCALE_BENCH_SCALE", "1"))
RENEWING = "vpa-admission-controller"
"""Its rounds decide nothing: they renew a lease, each at its time, so none can be left out."""
HOURS = os.environ.get("KSCALE_BENCH_HOURS", "1")
NODES, APPS, EACH = max(10, round(1_000 * SCALE)), max(2, round(200 * SCALE)), 150
VPA: dict[str, Any] = {"vpaRecommender": {}, "vpaUpdater": {}, "vpaAdmission": {}}
ROOM = {"cpu": "4", "memory": "16Gi", "pods": "110"}


DAY = 24 * 60


def hourly(draw: random.Random) -> dict[str, Any]:
    """Cores that an app uses, minute by minute: within the tolerance of its HPA."""
    steps = [[f"{60 * minute}s", round(EACH * 0.072 * (1 + 0.12 * draw.random()), 3)] for minute in range(60)]
    return {"steps": steps, "repeat": "1h"}


def daily(draw: random.Random) -> dict[str, Any]:
    """Cores that an app uses, minute by minute: up and down again in a day."""
    begin = draw.randrange(DAY)
    tides = [abs((minute + begin) % DAY - DAY // 2) / (DAY // 2) * 2 - 1 for minute in range(DAY)]
    steps = [
        [f"{60 * minute}s", round(EACH * 0.072 * (1 + 0.25 * tide + 0.04 * (2 * draw.random() - 1)), 3)]
        for minute, tide in enumerate(tides)
    ]
    return {"steps": steps, "repeat": "24h"}


Curve = Callable[[random.Random], dict[str, Any]]


def app(number: int, draw: random.Random, curve: Curve = hourly) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A deployment with its HPA, and its load."""
    name = f"app{number}"
    meta = {"name": name, "namespace": "shop"}
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "120m", "memory": "256Mi"}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec = {"replicas": EACH, "selector": {"matchLabels": {"app": name}}, "template": template}
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}
    hpa = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": EACH // 2,
        "maxReplicas": EACH * 2,
        "metrics": [{"type": "Resource", "resource": cpu}],
    }
    objects = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec},
        {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": hpa},
    ]
    return objects, {"workload": f"Deployment/shop/{name}", "total": {"cpu": curve(draw)}}


def recommended(number: int) -> dict[str, Any]:
    """The VPA of an app."""
    name = f"app{number}"
    policy = {"containerName": "*", "controlledResources": ["memory"]}
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "updatePolicy": {"updateMode": "Off"},
            "resourcePolicy": {"containerPolicies": [policy]},
        },
    }


def scenario(horizon: str, *, vpa: bool, curve: Curve = hourly) -> dict[str, Any]:
    """The plain data of a scenario: the apps with their load, HPAs and VPAs, and the programs."""
    draw = random.Random(1)
    apps = [app(number, draw, curve) for number in range(APPS)]
    return {
        "apiVersion": "kscale.dev/v1alpha1",
        "kind": "Simulation",
        "horizon": horizon,
        "objects": [item for objects, _ in apps for item in objects] + [recommended(i) for i in range(APPS) if vpa],
        "load": [load for _, load in apps],
        "groups": [
            {"id": "pool", "max": NODES * 2, "target": NODES, "template": {
                "metadata": {"name": "m"}, "status": {"allocatable": ROOM, "capacity": ROOM}}}
        ],
        "pods": [{"start": "2s", "readiness": "8s"}],
        "controllers": {"horizontal": {}, "clusterAutoscaler": {}} | (VPA if vpa else {}),
    }  # fmt: skip


def run(data: dict[str, Any]) -> Simulation:
    return simulate(build(msgspec.convert(data, Scenario)))


def coming_and_going() -> Setup:
    """The apps without HPAs and load, which lose all their pods after one minute and have them again after two."""
    apps = [app(number, random.Random(1))[0][0] for number in range(APPS)]
    data = {
        "apiVersion": "kscale.dev/v1alpha1",
        "kind": "Simulation",
        "horizon": "3m",
        "objects": apps,
        "groups": [
            {"id": "pool", "max": NODES, "target": NODES, "template": {
                "metadata": {"name": "m"}, "status": {"allocatable": ROOM, "capacity": ROOM}}}
        ],
        "pods": [{"start": "2s", "readiness": "8s"}],
        "controllers": {},
    }  # fmt: skip
    setup = build(msgspec.convert(data, Scenario))
    world = setup.world
    for minute, replicas in ((1, 0), (2, EACH)):
        world.time.at(world.time.now + minute * 60 * SECOND, partial(scale_all, world, replicas))
    return setup


def scale_all(world: SimulatedWorld, replicas: int) -> None:
    for each in list(world.api.get_all("Deployment").values()):
        world.api.put(replace(each, spec=replace(each.spec, replicas=replicas)))


def test_pod_events(benchmark) -> None:
    setup = coming_and_going()
    begin = time.process_time()
    report = benchmark.pedantic(simulate, args=(setup,), rounds=1, iterations=1).report
    seconds = time.process_time() - begin
    pods = APPS * EACH
    assert report.pod_events == (4 + 2 + 4) * pods
    assert (report.pending_pods.at_end, report.pending_pods.pods) == (0, 2 * pods)
    print(f"\n{report.pod_events:,} pod events, {report.pod_events / seconds:,.0f} a second of CPU time")
    benchmark.extra_info["pod events"] = report.pod_events


@pytest.mark.parametrize("vpa", [False, True], ids=["plain", "vpa"])
@pytest.mark.parametrize("horizon", ["2m", "12m"])
def test_simulated(benchmark, horizon: str, vpa: bool) -> None:
    data = scenario(horizon, vpa=vpa)
    result = benchmark.pedantic(run, args=(data,), rounds=1, iterations=1)
    report = result.report
    assert report.pod_events >= 4 * APPS * EACH
    assert report.pending_pods.at_end == 0
    benchmark.extra_info["pod events"] = report.pod_events
    benchmark.extra_info["rounds"] = {each.name: (each.rounds, each.skipped) for each in report.controllers}


@pytest.mark.parametrize("vpa", [False, True], ids=["plain", "vpa"])
@pytest.mark.parametrize("curve", [hourly, daily], ids=["steady", "tides"])
def test_day(benchmark, curve: Curve, vpa: bool) -> None:
    data = scenario(f"{HOURS}h", vpa=vpa, curve=curve)
    begin = time.process_time()
    report = benchmark.pedantic(run, args=(data,), rounds=1, iterations=1).report
    seconds = time.process_time() - begin
    assert (report.rescales > 0) == (curve is daily)
    assert report.pending_pods.at_end == 0
    rounds = sum(each.rounds for each in report.controllers)
    skipped = sum(each.skipped for each in report.controllers)
    renewals = sum(each.rounds for each in report.controllers if each.name == RENEWING)
    print(
        f"\n{HOURS} h in {seconds:.1f} s of CPU time: {rounds:,} loops, {1000 * seconds / rounds:.2f} ms a loop, "
        f"{skipped / rounds:.0%} skipped ({skipped / (rounds - renewals):.0%} of those that decide), "
        f"{report.rescales:,} rescales, {report.pod_events:,} pod events"
    )
    benchmark.extra_info["rescales"] = report.rescales
    benchmark.extra_info["rounds"] = {each.name: (each.rounds, each.skipped) for each in report.controllers}
