"""``UpdateVPAs``: recommendations, post-processors (policy, integer CPU), conditions and the statuses that are written.

Upstream: ``pkg/recommender/routines``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from operator import attrgetter
from typing import Any, Final

import msgspec

from kscale.effects import (
    ZERO_TIME,
    Deferred,
    Emit,
    GetScale,
    Moment,
    Observe,
    Outcome,
    Patch,
    PatchOperation,
    Progress,
    StepsOf,
    Together,
)
from kscale.effects.progress import SingleAction
from kscale.objects.api.meta import ResourceList
from kscale.objects.api.vpa import (
    ContainerPolicies,
    PodResourcePolicy,
    RecommendedPodResources,
    VerticalPodAutoscalerCondition,
    VerticalPodAutoscalerStatus,
)
from kscale.objects.decode import to_dict
from kscale.objects.times import moment_of
from kscale.snapshot.caches import collector_paused
from kscale.vpa.metrics import ObservationTally, QualityObserver
from kscale.vpa.model.saved_state import RecommenderState, Vpa
from kscale.vpa.model.vpa import (
    CONFIG_UNSUPPORTED,
    NO_PODS_MATCHED,
    RECOMMENDATION_PROVIDED,
    CachedCapping,
    CachedComparison,
    StableRound,
)
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.recommender.estimators import recommend_pod_resources
from kscale.vpa.recommender.records import ExplainSteps, VpaResult
from kscale.vpa.recommender.strategy_advice import LatestAdvice, apply_advice
from kscale.vpa.resources import CPU, MEMORY, round_up_quantity

__all__ = [
    "API_VERSION",
    "apply_vpa_policy",
    "find_integer_cpu_containers",
    "is_equal_status",
    "recommend_vpas",
    "round_up_integer_cpu",
    "update_vpas_steps",
]


def apply_vpa_policy(
    recommendation: RecommendedPodResources | None,
    policy: PodResourcePolicy | None,
    global_max: ResourceList | None = None,
) -> RecommendedPodResources | None:
    """Return the recommendation with target and bounds clamped between ``minAllowed`` and ``maxAllowed``.

    The uncapped target stays. ``global_max`` applies to resources without ``maxAllowed``. Zero bounds count as none;
    the maximum wins. Returns None for None.
    """
    if recommendation is None:
        return None
    capped = []
    policies = ContainerPolicies(policy)
    for item in recommendation.container_recommendations:
        own = policies.get(item.container_name)
        low = (own.min_allowed if own is not None else None) or {}
        high = {**(global_max or {}), **((own.max_allowed if own is not None else None) or {})}
        capped.append(
            msgspec.structs.replace(
                item,
                target=_clamp_resources(item.target, low, high),
                lower_bound=_clamp_resources(item.lower_bound, low, high),
                upper_bound=_clamp_resources(item.upper_bound, low, high),
            )
        )
    return RecommendedPodResources(container_recommendations=capped)


def _clamp_resources(resources: ResourceList | None, low: ResourceList, high: ResourceList) -> ResourceList | None:
    """Return a copy of the resources, clamped to minimum and maximum; None for None.

    A zero bound counts as none, and the maximum wins.
    """
    if resources is None:
        return None
    result = dict(resources)
    if not low and not high:
        return result
    for name, quantity in resources.items():
        minimum, maximum = low.get(name), high.get(name)
        if minimum is not None and not minimum.is_zero and quantity < minimum:
            quantity = minimum
        if maximum is not None and not maximum.is_zero and maximum < quantity:
            quantity = maximum
        result[name] = quantity
    return result


INTEGER_CPU_PREFIX: Final = "vpa-post-processor.kubernetes.io/"
INTEGER_CPU_SUFFIX: Final = "_integerCPU"


def get_container_name(key: str, prefix: str = INTEGER_CPU_PREFIX, suffix: str = INTEGER_CPU_SUFFIX) -> str:
    """Return the text of ``key`` between prefix and suffix; empty if either is missing."""
    if not key.startswith(prefix) or not key.endswith(suffix):
        return ""
    return key.removeprefix(prefix).removesuffix(suffix)


def find_integer_cpu_containers(annotations: Mapping[str, str] | None) -> set[str]:
    """Return the names of the containers whose annotation for integer CPU is exactly ``true``."""
    names = {get_container_name(key) for key, value in (annotations or {}).items() if value == "true"}
    return names - {""}


def round_up_integer_cpu(
    recommendation: RecommendedPodResources, annotations: Mapping[str, str] | None
) -> RecommendedPodResources:
    """Return the recommendation with CPU of annotated containers rounded up to whole cores.

    Target, bounds and uncapped target are rounded. ``annotations``: those of the VPA.
    """
    chosen = find_integer_cpu_containers(annotations)
    if not chosen:
        return recommendation

    def rounded(resources: ResourceList | None) -> ResourceList | None:
        if resources is None or CPU not in resources:
            return resources
        return {**resources, CPU: round_up_quantity(resources[CPU])}

    return RecommendedPodResources(
        container_recommendations=[
            msgspec.structs.replace(
                item,
                target=rounded(item.target),
                lower_bound=rounded(item.lower_bound),
                upper_bound=rounded(item.upper_bound),
                uncapped_target=rounded(item.uncapped_target),
            )
            if item.container_name in chosen
            else item
            for item in recommendation.container_recommendations
        ]
    )


API_VERSION: Final = "autoscaling.k8s.io/v1"
_VPA_OBJECTS_METRIC: Final = "vpa_recommender_vpa_objects_count"
_LATENCY_METRIC: Final = "vpa_recommender_recommendation_latency_seconds"
_UPDATE_MODES: Final = ("Auto", "InPlace", "InPlaceOrRecreate", "Initial", "Off", "Recreate")
_API_VERSIONS: Final = ("v1", "v1beta1", "v1beta2")
_FALSE_AND_TRUE: Final = (False, True)
_VPA_OBJECTS_LABELS: Final = ("update_mode", "has_recommendation", "api", "matches_pods", "unsupported_config")
_VPA_OBJECTS_LABEL_VALUES: Final = tuple(
    product(_UPDATE_MODES, _FALSE_AND_TRUE, _API_VERSIONS, _FALSE_AND_TRUE, _FALSE_AND_TRUE)
)


def update_vpas_steps(
    state: RecommenderState,
    progress: Progress,
    diagnostics: list[str],
    advice: LatestAdvice | None = None,
    explain: ExplainSteps | None = None,
) -> StepsOf[GetScale | Together | Emit | Observe, list[VpaResult]]:
    """Compute recommendations for the observed VPAs, and write changed statuses, several concurrently.

    ``advice``: see :func:`recommend_vpas`. ``explain`` is called with the results before anything is written. Returns
    the result of each VPA, in listed order; failed writes are in the results and in ``diagnostics``.
    """
    tally = ObservationTally()
    results = recommend_vpas(
        state, list(state.observed_vpas()), progress.now, diagnostics, QualityObserver(tally), advice
    )
    if explain is not None:
        yield from explain(results, progress)
    written = [_StatusWrite(result, diagnostics) for result in results if result.status_written]
    if written:
        yield from progress.together(written, at_most=state.options.update_worker_count, brief=True)
    _count_objects(state, tally)
    yield from progress.act(Observe(Deferred(tally.observations)))
    return results


@collector_paused()
def recommend_vpas(
    state: RecommenderState,
    vpas: Sequence[Vpa],
    now: Moment,
    diagnostics: list[str],
    quality: QualityObserver,
    advice: LatestAdvice | None = None,
) -> list[VpaResult]:
    """Compute recommendation, post-processing and conditions of each VPA, without writing the status.

    The VPAs in ``state`` are updated, changes of targets are observed in ``quality``, and ``diagnostics`` receives
    messages about VPAs that have been without a recommendation for long. ``advice``: advice of a strategy, which
    replaces upstream's targets. A VPA without advice keeps its recommendation; if it has pods, a condition reports the
    missing advice.
    """
    options = state.options
    ordered = sorted(vpas, key=attrgetter("namespace", "name"))
    raw = dict(zip((vpa.key for vpa in ordered), recommend_pod_resources(state, ordered), strict=True))
    global_max = _get_global_max(options)
    results = []
    for vpa in vpas:
        stable = vpa.stable
        if (
            stable is not None
            and stable.raw is raw[vpa.key]
            and stable.pods == vpa.pod_count
            and stable.most == global_max
            and advice is None
        ):
            assert vpa.recommendation is not None  # that of the last round
            vpa.update_recommendation(vpa.recommendation, quality)
            results.append(stable.result)
            continue
        recommendation = raw[vpa.key] if advice is None else _apply_strategy_advice(vpa, raw[vpa.key], advice, options)
        if options.cpu_integer_post_processor_enabled:
            recommendation = round_up_integer_cpu(recommendation, vpa.annotations)
        had = vpa.has_recommendation
        vpa.update_recommendation(_cap_with_cache(vpa, recommendation, global_max), quality)
        if vpa.has_recommendation and not had:
            quality.into.observe(_LATENCY_METRIC, {}, _measure_age(vpa, now))
        vpa.update_conditions(now)
        if advice is not None and vpa.pod_count > 0 and (missing_advice := advice.missing(vpa)):
            vpa.set_condition(RECOMMENDATION_PROVIDED, vpa.has_recommendation, *missing_advice, now)
        missing = state.record_recommendation(vpa, now)
        if missing:
            diagnostics.append(missing)
        status = vpa.status()
        result = VpaResult(
            namespace=vpa.namespace,
            name=vpa.name,
            status=status,
            status_written=not _is_status_unchanged(vpa, status),
            pod_count=vpa.pod_count,
            selector=vpa.selector_text,
        )
        results.append(result)
        vpa.stable = None
        if (
            vpa.item is not None
            and advice is None
            and vpa.has_recommendation
            and not result.status_written
            and vpa.conditions == {each.type: each for each in vpa.observed_status.conditions}
        ):
            labels = _build_labels(vpa)
            vpa.stable = StableRound(vpa.item, raw[vpa.key], global_max, vpa.pod_count, result, labels)
    return results


def _apply_strategy_advice(
    vpa: Vpa, raw: RecommendedPodResources, advice: LatestAdvice, options: RecommenderOptions
) -> RecommendedPodResources:
    """Return the recommendation with the strategy's targets.

    For a VPA without advice, return its last recommendation, or an empty one.
    """
    own = advice.by_vpa.get(vpa)
    if own is None:
        return vpa.recommendation or RecommendedPodResources()
    return apply_advice(raw, own, options)


def _cap_with_cache(vpa: Vpa, raw: RecommendedPodResources, most: ResourceList) -> RecommendedPodResources:
    """Return the recommendation ``raw`` clamped to the VPA's policy and the global maximum ``most``.

    The result is cached in the VPA.
    """
    cached = vpa.capped
    if cached is None or cached.raw is not raw or cached.policy is not vpa.resource_policy or cached.most != most:
        capped = apply_vpa_policy(raw, vpa.resource_policy, most)
        assert capped is not None  # the recommendation is not None
        cached = vpa.capped = CachedCapping(raw, vpa.resource_policy, most, capped)
    return cached.recommendation


def _is_status_unchanged(vpa: Vpa, status: VerticalPodAutoscalerStatus) -> bool:
    """Check whether the new status equals the observed one, as :func:`is_equal_status` does.

    The comparison of recommendations is cached in the VPA.
    """
    observed, cached = vpa.observed_status, vpa.compared
    one, other = observed.recommendation, status.recommendation
    if cached is None or cached.observed is not one or cached.other is not other:
        cached = vpa.compared = CachedComparison(one, other, _is_equal_recommendation(one, other))
    return cached.same and _is_equal_without_recommendation(observed, status)


class _StatusWrite(SingleAction):
    """Writes a VPA's status. An error is stored in ``result.refusal``."""

    __slots__ = ("_diagnostics", "_result")

    def __init__(self, result: VpaResult, diagnostics: list[str]) -> None:
        self._result, self._diagnostics = result, diagnostics

    def build(self, now: Moment) -> Patch:  # noqa: ARG002  # the status does not depend on the time
        """Return the patch of the VPA's status."""
        result = self._result
        return Patch(
            kind="VerticalPodAutoscaler",
            api_version=API_VERSION,
            namespace=result.namespace,
            name=result.name,
            subresource="status",
            type="json",
            patch=(PatchOperation("add", "/status", _encode_status(result.status)),),
        )

    def finish(self, outcome: Outcome) -> None:
        """Record an error of the patch in the result and in the diagnostics."""
        result = self._result
        if outcome.error is not None:
            result.refusal = outcome.error
            self._diagnostics.append(f"Cannot update VPA {result.namespace}/{result.name}: {outcome.error.message}")


def _encode_status(status: VerticalPodAutoscalerStatus) -> VerticalPodAutoscalerStatus | dict[str, Any]:
    """Return the status.

    If a condition has no time, return its JSON data, with null for the missing time, as the API prints it.
    """
    if all(condition.last_transition_time is not None for condition in status.conditions):
        return status
    data: dict[str, Any] = to_dict(status)
    data["conditions"] = [{"lastTransitionTime": None, **condition} for condition in data["conditions"]]
    return data


def _get_global_max(options: RecommenderOptions) -> ResourceList:
    """Return the maximum of each resource that the flags set for containers without ``maxAllowed``.

    A resource whose flag is 0 is left out.
    """
    limits = {
        CPU: options.container_recommendation_max_allowed_cpu,
        MEMORY: options.container_recommendation_max_allowed_memory,
    }
    return {name: quantity for name, quantity in limits.items() if not quantity.is_zero}


def _measure_age(vpa: Vpa, now: Moment) -> list[float]:
    """Return a list with the seconds since a VPA's creation; empty if the creation time is unknown."""
    try:
        created = moment_of(vpa.created)
    except ValueError:
        return []
    return [] if created == ZERO_TIME else [(now - created) / 1e9]


def _count_objects(state: RecommenderState, tally: ObservationTally) -> None:
    """Count the observed VPAs by all combinations of labels of ``vpa_objects_count``, including zeros.

    VPAs are counted during this call; the counts are added to ``tally`` when its sums are read.
    """
    counts: Counter[tuple[str | bool, ...]] = Counter(
        [_build_labels(vpa) if vpa.stable is None else vpa.stable.labels for vpa in state.observed_vpas()]
    )

    def tell(into: ObservationTally) -> None:  # zero counts are added only when they are read
        for sort in dict.fromkeys([*_VPA_OBJECTS_LABEL_VALUES, *counts]):
            into.count(_VPA_OBJECTS_METRIC, dict(zip(_VPA_OBJECTS_LABELS, sort, strict=True)), counts[sort])

    tally.later(tell)


def _build_labels(vpa: Vpa) -> tuple[str | bool, ...]:
    """Return the values of the labels of ``vpa_objects_count`` for a VPA."""
    return (
        vpa.update_mode or "Recreate",
        vpa.has_recommendation,
        vpa.api_version,
        not vpa.condition_is_true(NO_PODS_MATCHED),
        vpa.condition_is_true(CONFIG_UNSUPPORTED),
    )


def is_equal_status(a: VerticalPodAutoscalerStatus, b: VerticalPodAutoscalerStatus) -> bool:
    """Check equality as ``Semantic.DeepEqual`` does: quantities by value, times by instant.

    An absent list or map equals an empty one; an absent recommendation equals only an absent one.
    """
    return _is_equal_without_recommendation(a, b) and _is_equal_recommendation(a.recommendation, b.recommendation)


def _is_equal_without_recommendation(a: VerticalPodAutoscalerStatus, b: VerticalPodAutoscalerStatus) -> bool:
    """Check whether observed generation and conditions are equal, times by instant."""
    return a.observed_generation == b.observed_generation and (
        a.conditions == b.conditions or _parse_conditions(a.conditions) == _parse_conditions(b.conditions)
    )


def _is_equal_recommendation(a: RecommendedPodResources | None, b: RecommendedPodResources | None) -> bool:
    """Check whether two recommendations are equal, quantities by value. None equals only None."""
    if a is None or b is None:
        return a is b
    return len(a.container_recommendations) == len(b.container_recommendations) and all(
        mine.container_name == theirs.container_name
        and (mine.upper_bound or {}) == (theirs.upper_bound or {})  # compared first, as it changes most often
        and (mine.lower_bound or {}) == (theirs.lower_bound or {})
        and (mine.target or {}) == (theirs.target or {})
        and (mine.uncapped_target or {}) == (theirs.uncapped_target or {})
        for mine, theirs in zip(a.container_recommendations, b.container_recommendations, strict=True)
    )


def _parse_conditions(conditions: Sequence[VerticalPodAutoscalerCondition]) -> list[tuple[object, ...]]:
    """Return the conditions as tuples with parsed times, so that they can be compared; a malformed time as it is."""
    return [(c.type, c.status, _parse_time(c.last_transition_time), c.reason, c.message) for c in conditions]


def _parse_time(text: str | None) -> int | str | None:
    """Return a time in nanoseconds; a malformed one as the text that it is."""
    try:
        return moment_of(text)
    except ValueError:
        return text
