"""``UpdateVPAs``: recommendations, conditions, and the statuses that are written (``routines/recommender.go``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from operator import attrgetter
from typing import Any, Final

from kscale.effects import (
    ZERO_TIME,
    Deferred,
    Emit,
    GetScale,
    Machine,
    Moment,
    Observe,
    Patch,
    PatchOperation,
    Progress,
    StepsOf,
    Together,
    from_text,
)
from kscale.objects.base import ResourceList
from kscale.objects.decode import to_dict
from kscale.objects.vpa import (
    RecommendedPodResources,
    VerticalPodAutoscalerCondition,
    VerticalPodAutoscalerStatus,
)
from kscale.snapshot.collector import collector_paused
from kscale.vpa.logic import recommended_amounts
from kscale.vpa.metrics import Tally
from kscale.vpa.model import RecommenderState, Vpa
from kscale.vpa.model.vpa import (
    CONFIG_UNSUPPORTED,
    NO_PODS_MATCHED,
    RECOMMENDATION_PROVIDED,
    Capped,
    Compared,
)
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.postprocess import apply_policy, integer_cpu
from kscale.vpa.quality import Quality
from kscale.vpa.recommender.records import Explaining, VpaResult
from kscale.vpa.recommender.strategy_advice import Advice, advised_amounts
from kscale.vpa.resources import CPU, MEMORY

__all__ = ["API_VERSION", "recommend_for", "same_status", "update_vpas_steps"]

API_VERSION: Final = "autoscaling.k8s.io/v1"
_OBJECTS: Final = "vpa_recommender_vpa_objects_count"
_LATENCY: Final = "vpa_recommender_recommendation_latency_seconds"
_MODES: Final = ("Auto", "InPlace", "InPlaceOrRecreate", "Initial", "Off", "Recreate")
_VERSIONS: Final = ("v1", "v1beta1", "v1beta2")
_BOTH: Final = (False, True)
_SORTED_BY: Final = ("update_mode", "has_recommendation", "api", "matches_pods", "unsupported_config")
_SORTS: Final = tuple(product(_MODES, _BOTH, _VERSIONS, _BOTH, _BOTH))


def update_vpas_steps(
    state: RecommenderState,
    progress: Progress,
    diagnostics: list[str],
    advice: Advice | None = None,
    explain: Explaining | None = None,
) -> StepsOf[GetScale | Together | Emit | Observe, list[VpaResult]]:
    """Recommends for the VPAs that are observed, and writes the statuses that changed, some side by side.

    ``advice``: see :func:`recommend_for`; ``explain`` is told before anything is written.
    """
    tally = Tally()
    results = recommend_for(state, list(state.observed_vpas()), progress.now, diagnostics, Quality(tally), advice)
    if explain is not None:
        yield from explain(results, progress)
    written = [_write(result, diagnostics) for result in results if result.status_written]
    if written:
        yield from progress.together(written, at_most=state.options.update_worker_count, brief=True)
    _count_objects(state, tally)
    yield from progress.act(Observe(Deferred(tally.observations)))
    return results


@collector_paused()
def recommend_for(
    state: RecommenderState,
    vpas: Sequence[Vpa],
    now: Moment,
    diagnostics: list[str],
    quality: Quality,
    advice: Advice | None = None,
) -> list[VpaResult]:
    """Recommendation, post-processors, conditions of each VPA: what its status becomes. Nothing is written.

    ``advice``: a strategy's, which takes the place of upstream's targets; a VPA that it has nothing of keeps what its
    status has, and says so.
    """
    options = state.options
    ordered = sorted(vpas, key=attrgetter("namespace", "name"))
    raw = dict(zip((vpa.key for vpa in ordered), recommended_amounts(state, ordered), strict=True))
    most = _global_max(options)
    results = []
    for vpa in vpas:
        recommendation = raw[vpa.key] if advice is None else _advised(vpa, raw[vpa.key], advice, options)
        if options.cpu_integer_post_processor_enabled:
            recommendation = integer_cpu(recommendation, vpa.annotations)
        had = vpa.has_recommendation
        vpa.update_recommendation(_capped(vpa, recommendation, most), quality)
        if vpa.has_recommendation and not had:
            quality.into.observe(_LATENCY, {}, _waited(vpa, now))
        vpa.update_conditions(now)
        if advice is not None and vpa.pod_count > 0 and (missing_advice := advice.missing(vpa)):
            vpa.set_condition(RECOMMENDATION_PROVIDED, vpa.has_recommendation, *missing_advice, now)
        missing = state.record_recommendation(vpa, now)
        if missing:
            diagnostics.append(missing)
        status = vpa.status()
        results.append(
            VpaResult(
                namespace=vpa.namespace,
                name=vpa.name,
                status=status,
                status_written=not _says_the_same(vpa, status),
                pod_count=vpa.pod_count,
                selector=vpa.selector_text,
            )
        )
    return results


def _advised(
    vpa: Vpa, raw: RecommendedPodResources, advice: Advice, options: RecommenderOptions
) -> RecommendedPodResources:
    own = advice.had.get(vpa)
    if own is None:
        return vpa.recommendation or RecommendedPodResources()
    return advised_amounts(raw, own, options)


def _capped(vpa: Vpa, raw: RecommendedPodResources, most: ResourceList) -> RecommendedPodResources:
    """A recommendation within the policy, and within the largest that is allowed."""
    known = vpa.capped
    if known is None or known.raw is not raw or known.policy is not vpa.resource_policy or known.most != most:
        found = apply_policy(raw, vpa.resource_policy, most)
        assert found is not None  # as the recommendation is not
        known = vpa.capped = Capped(raw, vpa.resource_policy, most, found)
    return known.recommendation


def _says_the_same(vpa: Vpa, status: VerticalPodAutoscalerStatus) -> bool:
    """:func:`same_status` of what was observed and of what it becomes."""
    observed, known = vpa.observed_status, vpa.compared
    one, other = observed.recommendation, status.recommendation
    if known is None or known.observed is not one or known.other is not other:
        known = vpa.compared = Compared(one, other, _same_recommendation(one, other))
    return known.same and _same_rest(observed, status)


def _write(result: VpaResult, diagnostics: list[str]) -> Machine:
    def machine(now: Moment) -> StepsOf[Patch, None]:
        outcome = yield from Progress(now).act(
            Patch(
                kind="VerticalPodAutoscaler",
                api_version=API_VERSION,
                namespace=result.namespace,
                name=result.name,
                subresource="status",
                type="json",
                patch=(PatchOperation("add", "/status", _status_data(result.status)),),
            )
        )
        if outcome.error is not None:
            result.refusal = outcome.error
            diagnostics.append(f"Cannot update VPA {result.namespace}/{result.name}: {outcome.error.message}")

    return machine


def _status_data(status: VerticalPodAutoscalerStatus) -> VerticalPodAutoscalerStatus | dict[str, Any]:
    """A status as the API prints it: the time of a condition that never had one is null."""
    if all(condition.last_transition_time is not None for condition in status.conditions):
        return status
    data: dict[str, Any] = to_dict(status)
    data["conditions"] = [{"lastTransitionTime": None, **condition} for condition in data["conditions"]]
    return data


def _global_max(options: RecommenderOptions) -> ResourceList:
    """The largest recommendation that the flags allow."""
    limits = {
        CPU: options.container_recommendation_max_allowed_cpu,
        MEMORY: options.container_recommendation_max_allowed_memory,
    }
    return {name: quantity for name, quantity in limits.items() if not quantity.is_zero}


def _waited(vpa: Vpa, now: Moment) -> list[float]:
    """Seconds since a VPA was made; nothing where its object does not say when."""
    try:
        created = from_text(vpa.created)
    except ValueError:
        return []
    return [] if created == ZERO_TIME else [(now - created) / 1e9]


def _count_objects(state: RecommenderState, tally: Tally) -> None:
    """``vpa_objects_count``: of every sort of VPAs how many there are, 0 included."""
    found: Counter[tuple[str | bool, ...]] = Counter(
        (
            vpa.update_mode or "Recreate",
            vpa.has_recommendation,
            vpa.api_version,
            not vpa.condition_is_true(NO_PODS_MATCHED),
            vpa.condition_is_true(CONFIG_UNSUPPORTED),
        )
        for vpa in state.observed_vpas()
    )

    def tell(into: Tally) -> None:  # the many sorts of which there is none are named when somebody looks
        for sort in dict.fromkeys([*_SORTS, *found]):
            into.count(_OBJECTS, dict(zip(_SORTED_BY, sort, strict=True)), found[sort])

    tally.later(tell)


def same_status(a: VerticalPodAutoscalerStatus, b: VerticalPodAutoscalerStatus) -> bool:
    """``Semantic.DeepEqual``: quantities by value, times by instant, absent equals empty."""
    return _same_rest(a, b) and _same_recommendation(a.recommendation, b.recommendation)


def _same_rest(a: VerticalPodAutoscalerStatus, b: VerticalPodAutoscalerStatus) -> bool:
    return a.observed_generation == b.observed_generation and (
        a.conditions == b.conditions or _instants(a.conditions) == _instants(b.conditions)
    )


def _same_recommendation(a: RecommendedPodResources | None, b: RecommendedPodResources | None) -> bool:
    if a is None or b is None:
        return a is b
    return len(a.container_recommendations) == len(b.container_recommendations) and all(
        mine.container_name == theirs.container_name
        and (mine.upper_bound or {}) == (theirs.upper_bound or {})  # the first to change: confidence grows
        and (mine.lower_bound or {}) == (theirs.lower_bound or {})
        and (mine.target or {}) == (theirs.target or {})
        and (mine.uncapped_target or {}) == (theirs.uncapped_target or {})
        for mine, theirs in zip(a.container_recommendations, b.container_recommendations, strict=True)
    )


def _instants(conditions: Sequence[VerticalPodAutoscalerCondition]) -> list[tuple[object, ...]]:
    return [(c.type, c.status, from_text(c.last_transition_time), c.reason, c.message) for c in conditions]
