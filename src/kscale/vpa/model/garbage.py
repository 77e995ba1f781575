"""Aggregates that nothing feeds any more, or that are too old to tell anything."""

from __future__ import annotations

from typing import Final

from kscale.effects import SECOND, GetScale, Moment, Progress, StepsOf
from kscale.vpa.controllers import ControllerKey, Controllers, TargetError
from kscale.vpa.model.aggregates import AggregateKey
from kscale.vpa.model.pods import LabelSet, PodState
from kscale.vpa.model.state import RecommenderState, VpaKey
from kscale.vpa.target import topmost_steps

__all__ = ["GC_INTERVAL", "collect_garbage_steps"]

GC_INTERVAL: Final = 3600 * SECOND


def collect_garbage_steps(
    state: RecommenderState, controllers: Controllers, progress: Progress
) -> StepsOf[GetScale, list[AggregateKey]]:
    """``RateLimitedGarbageCollectAggregateCollectionStates``: at most hourly; what was removed comes back, by key."""
    now = progress.now
    if now - state.last_gc < GC_INTERVAL:
        return []
    state.last_gc = now
    contributive = yield from _contributive(state, controllers, progress)
    return _remove(state, contributive, now)


def _remove(state: RecommenderState, contributive: set[AggregateKey], now: Moment) -> list[AggregateKey]:
    removed = []
    for key in sorted(state.aggregates):
        aggregate = state.aggregates[key]
        useless = key not in contributive and aggregate.is_empty(state.store)
        if useless or aggregate.is_expired(state.store, now):
            removed.append(key)
            state.remove_aggregate(aggregate)
    return removed


def _contributive(
    state: RecommenderState, controllers: Controllers, progress: Progress
) -> StepsOf[GetScale, set[AggregateKey]]:
    """Aggregates that an active pod, or a pod whose VPA's target still exists, may feed."""
    alive: dict[VpaKey, bool] = {}
    keys: set[AggregateKey] = set()
    told: dict[LabelSet, set[str]] = {}  # of many pods that are alike once
    for pod in state.pods.values():
        if not pod.active and not (yield from _controller_exists(state, pod, controllers, progress, alive)):
            continue
        known = told.get(pod.label_set)
        if known is None:
            known = told[pod.label_set] = set()
        elif pod.containers.keys() <= known:
            continue
        known.update(pod.containers)
        keys.update(AggregateKey(pod.namespace, container, pod.label_key) for container in pod.containers)
    return keys


def _controller_exists(
    state: RecommenderState, pod: PodState, controllers: Controllers, progress: Progress, known: dict[VpaKey, bool]
) -> StepsOf[GetScale, bool]:
    vpas = state.vpas_of(pod.label_set)
    if not vpas or vpas[0].target is None:
        return False
    vpa, target = vpas[0], vpas[0].target
    if vpa.key not in known:
        key = ControllerKey(vpa.namespace, target.kind, target.name, target.api_version)
        try:
            known[vpa.key] = (yield from topmost_steps(key, controllers, progress)) is not None
        except TargetError:
            known[vpa.key] = False
    return known[vpa.key]
