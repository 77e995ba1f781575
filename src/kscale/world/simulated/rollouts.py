"""How a deployment goes from one template to another, and how its sets share another size: who has how many replicas
next.

Upstream: ``pkg/controller/deployment`` (``rolling.go``, ``recreate.go``, ``sync.go``), ``util/deployment_util.go``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kscale.objects.apps import Deployment, DeploymentSpec, ReplicaSet
from kscale.objects.numbers_or_percent import share_of
from kscale.objects.workloads import pod_count

__all__ = [
    "RECREATE",
    "Sizes",
    "age_of",
    "first_size",
    "most_of",
    "next_sizes",
    "shared_sizes",
    "size_alone",
]

RECREATE: Final = "Recreate"
_QUARTER: Final = "25%"

Sizes = Mapping[str, int]
"""Replicas by the keys of sets: of those that get others."""


def _bounds(spec: DeploymentSpec, wanted: int) -> tuple[int, int]:
    """(pods that there may be beyond the size, pods of the size that may be away) while it rolls, one of the two at
    least 1 (``ResolveFenceposts``)."""
    if spec.strategy.type == RECREATE:
        return 0, 0
    rolling = spec.strategy.rolling_update
    surge = _QUARTER if rolling is None or rolling.max_surge is None else rolling.max_surge
    away = _QUARTER if rolling is None or rolling.max_unavailable is None else rolling.max_unavailable
    beyond, gone = share_of(surge, wanted, up=True), share_of(away, wanted, up=False)
    return beyond, 1 if not beyond and not gone else gone


def first_size(held: Deployment, old: Iterable[ReplicaSet]) -> int:
    """How large the set of a new template is made (``NewRSNewReplicas``)."""
    return _grown(held, 0, sum(map(pod_count, old)))


def _grown(held: Deployment, new: int, old: int) -> int:
    """The size of the set of the template, which has ``new`` replicas where the others have ``old``."""
    wanted = pod_count(held)
    if held.spec.strategy.type == RECREATE or new > wanted:
        return wanted
    room = wanted + _bounds(held.spec, wanted)[0] - new - old
    return new + max(min(room, wanted - new), 0)


def next_sizes(held: Deployment, new: ReplicaSet, old: Sequence[ReplicaSet]) -> Sizes:
    """The next step of a roll-out: the new set grows, or if it cannot, old ones shrink, what is not available first."""
    old = [each for each in old if pod_count(each)]
    has = pod_count(new)
    size = _grown(held, has, sum(map(pod_count, old)))
    if size != has:
        return {new.key: size}
    if not old:
        return {}
    wanted = pod_count(held)
    stay = wanted - min(_bounds(held.spec, wanted)[1], wanted)
    left = {each.key: pod_count(each) for each in old}
    missing = has - new.status.available_replicas
    most = has + sum(left.values()) - stay - missing
    if most <= 0:
        return {}
    old.sort(key=age_of)
    for each in old:  # pods that are not available first
        left[each.key] -= max(min(most, left[each.key] - each.status.available_replicas), 0)
        most -= pod_count(each) - left[each.key]
    spare = new.status.available_replicas + sum(each.status.available_replicas for each in old) - stay
    for each in old:
        if spare > 0:
            gives = min(left[each.key], spare)
            left[each.key] -= gives
            spare -= gives
    return {each.key: left[each.key] for each in old if left[each.key] != pod_count(each)}


def age_of(each: ReplicaSet) -> tuple[str, str]:
    """The oldest first."""
    return each.metadata.creation_timestamp or "", each.name


def most_of(held: Deployment) -> int:
    """How many pods there may be while it rolls."""
    wanted = pod_count(held)
    return wanted + _bounds(held.spec, wanted)[0]


def size_alone(held: Deployment, current: ReplicaSet | None, old: Iterable[ReplicaSet]) -> Sizes:
    """What the only set that has pods gets while a deployment is paused; where none has, that of the template, or else
    the newest (``FindActiveOrLatest``)."""
    others = sorted(old, key=age_of, reverse=True)
    there = others if current is None else [current, *others]
    found = next((each for each in there if pod_count(each)), there[0] if there else None)
    wanted = pod_count(held)
    return {} if found is None or pod_count(found) == wanted else {found.key: wanted}


def shared_sizes(held: Deployment, sets: Iterable[ReplicaSet], most_before: int) -> Sizes:
    """What sets get of another size of the deployment, of which there might be ``most_before`` pods: each its part
    (``scale``)."""
    wanted = pod_count(held)
    active = sorted((each for each in sets if pod_count(each)), key=age_of)
    if len(active) == 1:
        return {} if pod_count(active[0]) == wanted else {active[0].key: wanted}
    most = most_of(held) if wanted else 0
    more = most - sum(map(pod_count, active))
    if not active or not more or held.spec.strategy.type == RECREATE:
        return {}
    if more > 0:
        active.reverse()  # of equally large ones the newest first, else the oldest
    active.sort(key=lambda each: -pod_count(each))
    sizes: dict[str, int] = {}
    given = 0
    for each in active:
        part = _part(pod_count(each), most, most_before)
        part = min(part, more - given) if more > 0 else max(part, more - given)
        sizes[each.key] = pod_count(each) + part
        given += part
    first = active[0].key
    sizes[first] = max(sizes[first] + more - given, 0)
    return {each.key: sizes[each.key] for each in active if sizes[each.key] != pod_count(each)}


def _part(size: int, most: int, before: int) -> int:
    """What a set gets more (or less) where there may be ``most`` pods, and might be as many as ``before``: in
    proportion, to the nearest number (``getReplicaSetFraction``)."""
    return (2 * size * most + before) // (2 * before) - size if most and before else -size
