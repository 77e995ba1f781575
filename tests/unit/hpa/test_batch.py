"""A batch of reconciles writes, says and remembers what each would alone."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from kscale.effects import (
    Action,
    ApiError,
    DryRun,
    GetMetric,
    GetScale,
    PutScale,
    WriteStatus,
)
from kscale.errors import InputError
from kscale.hpa.batch import Reconciled, reconcile_all
from kscale.hpa.memory import KeptStates
from kscale.hpa.state import ControllerState
from kscale.objects.autoscaling import Scale
from kscale.objects.decode import to_dict
from kscale.objects.pod_metrics import PodUsage
from kscale.objects.rest_mapping import RESTMapper
from kscale.snapshot.cluster import Cluster
from performing import performed
from unit.hpa.test_decide import NOW, World, one_by_one, store_of, worlds

CONFLICT = ApiError("the object has been modified", code=409, reason="Conflict")


def answer(world: World, action: Action, refusals: dict[str, ApiError]) -> Any:
    """What the world says; a list as columns is one as objects, read."""
    if isinstance(action, GetScale):
        return world.scales[f"{action.namespace}/{action.name}"]
    if isinstance(action, GetMetric):
        found = world.metrics(msgspec.structs.replace(action, columns=False))
        return PodUsage.of(found.items) if action.columns and not isinstance(found, ApiError) else found  # type: ignore[union-attr]
    if isinstance(action, PutScale):
        return refusals.get(f"{action.namespace}/{action.scale.name}")
    assert isinstance(action, WriteStatus)
    return None


def with_names(world: World) -> None:
    """As an API server has them: a scale has the name of its object."""
    for key, scale in world.scales.items():
        if isinstance(scale, Scale):
            scale.metadata.namespace, scale.metadata.name = key.split("/")


def pods_of(world: World) -> Any:
    if not world.indexed:
        return world.pods
    cluster = Cluster()
    for pod in world.pods:
        cluster.apply({"apiVersion": "v1", "kind": "Pod", **to_dict(pod)})
    return cluster


def by_hpa(run: DryRun[Any]) -> dict[str, tuple[list[Any], list[Any]]]:
    """(writes, events) by the HPA's name."""
    found: dict[str, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for action in run.actions:
        if isinstance(action, PutScale):
            found[action.scale.name][0].append((action.scale, action.replicas))
        elif isinstance(action, WriteStatus):
            found[action.object.name][0].append(action.object)
    for event in run.events:
        found[event.regarding.name][1].append(event)
    return found


@settings(max_examples=60, deadline=None)
@given(worlds(), st.sets(st.sampled_from(["ns/a", "ns/b", "ns/c"])), st.sets(st.sampled_from(["ns/a", "ns/b", "ns/c"])))
def test_a_batch_does_what_each_would_do_alone(world: World, watched: set[str], refused: set[str]) -> None:
    with_names(world)
    states = {key: msgspec.structs.replace(state, registered=True) for key, state in world.state.hpas.items()}
    world.state = ControllerState(hpas=states)
    refusals = dict.fromkeys(refused, CONFLICT)
    kept = KeptStates(states)
    steps = reconcile_all(
        world.hpas,
        kept,
        pods_of(world),
        scales={key: scale for key, scale in world.scales.items() if key in watched and isinstance(scale, Scale)},
        now=NOW,
        options=world.options,
        selectors=store_of(world),
        mapper=RESTMapper(),
    )
    run = performed(steps, lambda action: answer(world, action, refusals), now=NOW)
    found: Reconciled = run.value
    assert not found.unfinished
    kept.put(found.keys, found.histories, found.rest)
    said = by_hpa(run)
    counted = len(run.observations)
    for key, want in zip(states, one_by_one(world, store_of(world), refusals), strict=True):
        name = key.split("/")[1]
        if isinstance(want, InputError):
            assert str(found.problems[key]) == str(want)
            assert kept[key] == states[key]
            continue
        assert said[name] == by_hpa(want)[name]
        assert kept[key] == want.value.state
        counted -= len(want.observations)
    assert found.problems or counted == 0
