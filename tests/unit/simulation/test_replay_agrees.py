"""An HPA alone in the simulated cluster does what ``kscale replay hpa`` says that it does on the same load."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from kscale.effects import SECOND, from_text
from kscale.hpa.api.admission import admit
from kscale.hpa.replay import Load, Plant, replay
from kscale.objects.quantity import Quantity
from kscale.simulation import Scenario, build, simulate
from unit.simulation.test_simulation import scenario
from unit.world.simulated_cases import workload

BEGIN = "2026-01-01T00:00:00Z"
HORIZON = 2400
STEPS = [(0, 1.2), (127, 5.5), (487, 2.5), (1327, 9.0), (1507, 0.5)]  # never in the second before a scrape


def hpa(metric: dict[str, Any], **behavior: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2,
            "maxReplicas": 15,
            "metrics": [metric],
            **({"behavior": behavior} if behavior else {}),
        },
    }


CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}
RATE = {
    "type": "External",
    "external": {"metric": {"name": "rate"}, "target": {"type": "AverageValue", "averageValue": "800m"}},
}
SLOW = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}


Sizes = list[tuple[int, int]]
"""(seconds since the beginning, another size)."""


def both(item: dict[str, Any], steps: list[tuple[int, float]], startup: int = 10) -> tuple[Sizes, Sizes]:
    """What the HPA asks for in the simulated cluster, and in the replay."""
    signal = {"steps": [[f"{at}s", value] for at, value in steps]}
    data = scenario(
        begin=BEGIN,
        horizon=f"{HORIZON}s",
        objects=[workload("Deployment", "web", 2), item],
        groups=[{**scenario()["groups"][0], "target": 5}],
        load=[{"workload": "Deployment/shop/web", "total": {"cpu": signal}}],
        pods=[{"start": f"{startup}s"}],
        metrics={"window": "1s", "lag": "30s", "external": [{"namespace": "shop", "name": "rate", "signal": signal}]},
        controllers={"horizontal": {}},
    )
    run = simulate(build(msgspec.convert(data, Scenario)))
    begin = from_text(BEGIN)
    requested_sizes = [
        ((from_text(each.at) - begin) // SECOND, each.arguments["replicas"])
        for each in run.decisions.entries
        if each.action == "PutScale"
    ]

    times = np.array([begin + at * SECOND for at, _ in steps] + [begin + HORIZON * SECOND], np.int64)
    load = Load(time=times, value=np.array([value for _, value in steps] + [steps[-1][1]]))
    created = admit(item).hpa
    assert created is not None
    plant = Plant(startup=startup, lag=30, window=1, request=Quantity("1"), start=2)
    expected = replay(created, load, plant)
    sizes, at = expected.desired.tolist(), ((expected.time - begin) // SECOND).tolist()
    changes = [
        (time, now) for time, now, size in zip(at, sizes, expected.replicas.tolist(), strict=True) if now != size
    ]
    return requested_sizes, changes


@pytest.mark.parametrize(
    "item", [hpa(CPU), hpa(RATE), hpa(CPU, **SLOW)], ids=["utilization", "external", "a slow policy"]
)
def test_the_same_sizes_at_the_same_times(item: dict[str, Any]) -> None:
    requested_sizes, changes = both(item, STEPS)
    assert len(changes) >= 4
    assert requested_sizes == changes


UP = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}]}


@pytest.mark.parametrize(
    ("item", "steps", "requested_sizes"),
    [
        (hpa(CPU, scaleUp=UP, scaleDown=UP), [(142, 2.25), (172, 1.25)], [(180, 3), (195, 4), (240, 3), (255, 2)]),
        (
            hpa(CPU, scaleUp=UP),
            [(142, 0.0), (157, 3.5), (217, 1.25)],
            [(195, 3), (210, 4), (225, 5), (240, 6), (555, 4), (570, 2)],
        ),
    ],
    ids=["nothing waits", "a window of five minutes"],
)
def test_pods_that_have_gone_since_had_their_part(
    item: dict[str, Any], steps: list[tuple[int, float]], requested_sizes: Sizes
) -> None:
    """It shows in a second step down within the lag: the load of 1.25 was that of four pods (or six), of which one (or
    two) have gone."""
    simulated, replayed = both(item, [(0, 1.2), *steps])
    assert simulated == replayed == requested_sizes
