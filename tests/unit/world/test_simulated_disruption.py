"""Disruption budgets of the simulated world, and evictions."""

from __future__ import annotations

from typing import Any

import pytest

from kscale.effects import (
    Evict,
)
from kscale.objects.api.policy import PodDisruptionBudget
from kscale.objects.decode import from_dict
from unit.world.simulated_cases import (
    QUICK,
    deployment,
    done,
    refused,
    run,
    world_of,
)


def budget(**spec: Any) -> PodDisruptionBudget:
    data = {"metadata": {"name": "b", "namespace": "shop"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}}
    return from_dict({**data, "spec": {**data["spec"], **spec}}, PodDisruptionBudget)


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"minAvailable": 3}, 1),
        ({"minAvailable": "60%"}, 1),
        ({"maxUnavailable": 2}, 2),
        ({"maxUnavailable": "30%"}, 2),
        ({"minAvailable": 5}, 0),
    ],
)
def test_budget_limits_evictions(spec: dict[str, Any], allowed: int) -> None:
    world = world_of(budget(**spec), deployment(replicas=4), options=QUICK)
    run(world, 5)
    stored = world.api.get("PodDisruptionBudget", "shop", "b")
    assert stored.status.disruptions_allowed == allowed
    names = [pod.name for pod in world.api.get_all("Pod").values()]
    for name in names[:allowed]:
        done(world, Evict(namespace="shop", name=name))
    error = refused(world, Evict(namespace="shop", name=names[allowed]))
    assert (error.code, error.reason, error.causes) == (429, "TooManyRequests", ("DisruptionBudget",))
    run(world, 30)  # their places are taken
    assert world.api.get("PodDisruptionBudget", "shop", "b").status.disruptions_allowed == allowed


def test_a_pod_that_is_not_running_may_always_be_evicted() -> None:
    world = world_of(budget(minAvailable=9), deployment(replicas=5), options=QUICK)
    run(world, 5)
    waiting = next(pod.name for pod in world.api.get_all("Pod").values() if not pod.spec.node_name)
    done(world, Evict(namespace="shop", name=waiting))
