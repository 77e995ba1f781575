"""One round of the recommender (upstream: ``pkg/recommender/routines/recommender.go``, ``input/cluster_feeder.go``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from kscale.effects import ZERO_TIME, Observation, from_text
from kscale.objects.base import ResourceList
from kscale.objects.core import Container, Pod
from kscale.objects.selectors import NOTHING, Selector
from kscale.objects.vpa import (
    RecommendedPodResources,
    VerticalPodAutoscaler,
    VerticalPodAutoscalerCheckpoint,
    VerticalPodAutoscalerStatus,
)
from kscale.vpa.checkpoint import ContainerCheckpoint, load_all, store_all
from kscale.vpa.controllers import ControllerKey, Controllers, TargetError
from kscale.vpa.logic.recommender import recommended_amounts
from kscale.vpa.metrics import Tally
from kscale.vpa.model.aggregates import AggregateKey
from kscale.vpa.model.cluster import ClusterState
from kscale.vpa.model.intake import UsageError
from kscale.vpa.model.usage import Usage
from kscale.vpa.model.vpa import CONFIG_DEPRECATED, CONFIG_UNSUPPORTED, NO_PODS_MATCHED, Vpa
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.postprocess import apply_policy, integer_cpu
from kscale.vpa.quality import Quality
from kscale.vpa.resources import CPU, MEMORY, current_resources, resources_source
from kscale.vpa.target import selector_of_target, topmost

__all__ = ["RecommenderResult", "Round", "VpaResult", "run_once"]


class Round(msgspec.Struct, kw_only=True):
    """What a round sees. ``vpas`` and ``pods`` None: as in the round before (upstream could not list them).

    Upstream watches pods that are not pending; whoever observes leaves the pending ones out.
    """

    vpas: Sequence[VerticalPodAutoscaler] | None = None
    pods: Sequence[Pod] | None = None
    controllers: Controllers = msgspec.field(default_factory=Controllers)
    usage: Sequence[Usage] = ()
    checkpoints: Sequence[VerticalPodAutoscalerCheckpoint] = ()
    write_checkpoints: bool = True


class VpaResult(msgspec.Struct, kw_only=True):
    """What a round decided about one VPA."""

    namespace: str
    name: str
    status: VerticalPodAutoscalerStatus
    status_written: bool
    """Whether the status differs from the object's, so that upstream patches it."""
    pod_count: int
    selector: str
    checkpoints: list[ContainerCheckpoint] = []

    @property
    def recommendation(self) -> RecommendedPodResources | None:
        """The recommendation in the status."""
        return self.status.recommendation


class RecommenderResult(msgspec.Struct, kw_only=True):
    """What a round decided: VPAs in listed order, refused samples and OOMs in order, garbage, diagnostics."""

    vpas: list[VpaResult]
    errors: list[UsageError]
    collected: list[AggregateKey]
    diagnostics: list[str]
    observations: list[Observation] = []
    """What upstream would count: of ``vpa_objects_count`` only what there is."""


def run_once(state: ClusterState, given: Round, *, now: int) -> RecommenderResult:
    """Load VPAs and pods, take in usage, recommend, make checkpoints, collect garbage.

    ``state`` is changed, as upstream's is: also a merge for a checkpoint leaves traces in it. ``now`` is in
    nanoseconds since 1970. The statuses in the result are not written back to the objects given.
    """
    observed: list[tuple[VerticalPodAutoscaler, Vpa]] = []
    diagnostics: list[str] = []
    if given.vpas is not None:
        observed = load_vpas(state, given.vpas, given.controllers, now)
    diagnostics += load_all(state, given.checkpoints, now)
    gone: list[tuple[str, str]] = []
    seen = Tally()
    if given.pods is not None:
        gone = load_pods(state, given.pods, now, seen)
    quality = Quality(seen)
    errors = [error for usage in given.usage for error in state.add_usage(usage, now, quality)]
    seen.count("vpa_recommender_aggregate_container_states_count", {}, len(state.aggregates))
    for key in gone:
        state.delete_pod(key)
    results = update_vpas(state, observed, now, diagnostics, quality)
    if given.write_checkpoints:
        by_vpa: dict[tuple[str, str], list[ContainerCheckpoint]] = {}
        for checkpoint in store_all(state, [vpa for _, vpa in observed], now):
            by_vpa.setdefault((checkpoint.namespace, checkpoint.vpa), []).append(checkpoint)
        for result in results:
            written = by_vpa.get((result.namespace, result.name), [])
            result.checkpoints = sorted(written, key=lambda item: item.container)
    collected = state.collect_garbage(now, given.controllers)
    return RecommenderResult(
        vpas=results,
        errors=errors,
        collected=collected,
        diagnostics=diagnostics,
        observations=seen.observations(),
    )


# -- VPAs ------------------------------------------------------------------------------------------------------


def in_charge(vpa: VerticalPodAutoscaler, options: RecommenderOptions) -> bool:
    """Whether this recommender takes care of a VPA: by its recommender's name, and by namespace."""
    names = [item.name for item in vpa.spec.recommenders]
    wanted = options.recommender_name
    if wanted not in names and (names or wanted != "default"):
        return False
    if options.vpa_object_namespace:
        return vpa.namespace == options.vpa_object_namespace
    return vpa.namespace not in options.ignored_vpa_object_namespaces


def load_vpas(
    state: ClusterState, vpas: Sequence[VerticalPodAutoscaler], controllers: Controllers, now: int
) -> list[tuple[VerticalPodAutoscaler, Vpa]]:
    """``LoadVPAs``: those in charge of, with their selectors; VPAs that are gone are forgotten."""
    observed = []
    for item in vpas:
        if not in_charge(item, state.options):
            continue
        selector, problem = resolve(item, controllers)
        vpa = state.add_vpa(item, selector)
        vpa.conditions.pop(CONFIG_DEPRECATED, None)
        if problem:
            vpa.set_condition(CONFIG_UNSUPPORTED, True, "", problem, now)
        else:
            vpa.conditions.pop(CONFIG_UNSUPPORTED, None)
        observed.append((item, vpa))
    listed = {vpa.key for _, vpa in observed}
    for key in sorted(set(state.vpas) - listed):
        state.delete_vpa(key)
    return observed


def resolve(vpa: VerticalPodAutoscaler, controllers: Controllers) -> tuple[Selector, str]:
    """The selector of a VPA's target, or one that matches nothing and the text of the ConfigUnsupported condition."""
    try:
        selector = selector_of_target(vpa, controllers)
    except TargetError as error:
        return NOTHING, f"Cannot read targetRef. Reason: {error}"
    target = vpa.spec.target_ref
    assert target is not None
    key = ControllerKey(vpa.namespace, target.kind, target.name, target.api_version)
    try:
        top = topmost(key, controllers)
    except TargetError as error:
        return NOTHING, f"Error checking if target {key} is a topmost well-known or scalable controller: {error}"
    if top is None:
        return NOTHING, f"Unknown error during checking if target {key} is a topmost well-known or scalable controller"
    if top != key:
        should = "it should point to a topmost well-known or scalable controller"
        return NOTHING, f"The target {key} has a parent controller but {should}"
    return selector, ""


# -- pods ------------------------------------------------------------------------------------------------------


def load_pods(state: ClusterState, pods: Sequence[Pod], now: int, seen: Tally | None = None) -> list[tuple[str, str]]:
    """``LoadPods``; the keys of pods that are gone come back, to be deleted after the usage is in."""
    listed = {(pod.namespace, pod.name): pod for pod in pods}
    if seen is not None:
        _count_sources(pods, seen)
    for key in sorted(listed):
        pod = listed[key]
        labels = pod.metadata.labels or {}
        if state.options.memory_saver and not state.matching_vpas(pod.namespace, labels):
            continue
        known = state.add_pod(pod.namespace, pod.name, labels, pod.status.phase, now)
        for container in pod.spec.containers:
            state.add_container(known, container.name, _request(pod, container), now)
        known.init_containers = frozenset(container.name for container in pod.spec.init_containers)
    return sorted(key for key in state.pods if key not in listed)


def _count_sources(pods: Sequence[Pod], seen: Tally) -> None:
    """Where the requests of all containers are read from."""
    found: Counter[str] = Counter()
    for pod in pods:
        found.update(resources_source(pod, container.name) for container in pod.spec.containers)
        found.update(resources_source(pod, container.name, init=True) for container in pod.spec.init_containers)
    for source, count in sorted(found.items()):
        seen.count("vpa_resources_get_resources_count", {"source": source}, count)


def _request(pod: Pod, container: Container) -> tuple[int, int]:
    requests, _ = current_resources(pod, container.name)
    cpu, memory = (requests or {}).get(CPU), (requests or {}).get(MEMORY)
    return (cpu.milli_value() if cpu is not None else 0, memory.value() if memory is not None else 0)


# -- recommendations -------------------------------------------------------------------------------------------


def global_max(options: RecommenderOptions) -> ResourceList:
    """The largest recommendation that the flags allow."""
    limits = {
        CPU: options.container_recommendation_max_allowed_cpu,
        MEMORY: options.container_recommendation_max_allowed_memory,
    }
    return {name: quantity for name, quantity in limits.items() if not quantity.is_zero}


def update_vpas(
    state: ClusterState,
    observed: Sequence[tuple[VerticalPodAutoscaler, Vpa]],
    now: int,
    diagnostics: list[str],
    quality: Quality,
) -> list[VpaResult]:
    """``UpdateVPAs``: recommendation, post-processors, conditions; what the status becomes."""
    options = state.options
    ordered = sorted((vpa for _, vpa in observed), key=lambda vpa: vpa.key)
    raw = dict(zip((vpa.key for vpa in ordered), recommended_amounts(state, ordered), strict=True))
    most = global_max(options)
    results = []
    for item, vpa in observed:
        recommendation = raw[vpa.key]
        if options.cpu_integer_post_processor_enabled:
            recommendation = integer_cpu(recommendation, item.metadata.annotations)
        capped = apply_policy(recommendation, item.spec.resource_policy, most)
        assert capped is not None
        had = vpa.has_recommendation
        vpa.update_recommendation(capped, quality)
        if vpa.has_recommendation and not had:
            quality.into.observe("vpa_recommender_recommendation_latency_seconds", {}, _waited(vpa, now))
        vpa.update_conditions(now)
        missing = state.record_recommendation(vpa, now)
        if missing:
            diagnostics.append(missing)
        _count(vpa, quality.into)
        status = vpa.status()
        results.append(
            VpaResult(
                namespace=vpa.namespace,
                name=vpa.name,
                status=status,
                status_written=not same_status(item.status, status),
                pod_count=vpa.pod_count,
                selector=str(vpa.selector),
            )
        )
    return results


def _waited(vpa: Vpa, now: int) -> list[float]:
    """Seconds since a VPA was made; nothing where its object does not say when."""
    try:
        created = from_text(vpa.created)
    except ValueError:
        return []
    return [] if created == ZERO_TIME else [(now - created) / 1e9]


def _count(vpa: Vpa, into: Tally) -> None:
    """``vpa_objects_count``."""
    labels: dict[str, str | bool] = {
        "update_mode": vpa.update_mode or "Recreate",
        "has_recommendation": vpa.has_recommendation,
        "api": vpa.api_version,
        "matches_pods": not vpa.condition_is_true(NO_PODS_MATCHED),
        "unsupported_config": vpa.condition_is_true(CONFIG_UNSUPPORTED),
    }
    into.count("vpa_recommender_vpa_objects_count", labels)


def same_status(a: VerticalPodAutoscalerStatus, b: VerticalPodAutoscalerStatus) -> bool:
    """``Semantic.DeepEqual``: quantities by value, times by instant, absent equals empty."""
    return _plain(a) == _plain(b)


def _plain(status: VerticalPodAutoscalerStatus) -> object:
    recommendation = status.recommendation
    return (
        status.observed_generation,
        [(c.type, c.status, from_text(c.last_transition_time), c.reason, c.message) for c in status.conditions],
        recommendation is not None,
        [
            (c.container_name, c.target or {}, c.lower_bound or {}, c.upper_bound or {}, c.uncapped_target or {})
            for c in (recommendation.container_recommendations if recommendation is not None else ())
        ],
    )
