"""``LoadRealTimeMetrics``: samples of usage, then kills for memory (``input/cluster_feeder.go``)."""

from __future__ import annotations

from collections.abc import Sequence

from kscale.effects import ApiError, Deferred, GetMetric, Observe, Progress, StepsOf
from kscale.errors import InputError
from kscale.objects.metrics import PodMetricsList
from kscale.objects.pod_metrics import PodUsage
from kscale.vpa.metrics import Tally
from kscale.vpa.model import RecommenderState, Usage, UsageError, add_usage
from kscale.vpa.oom import OutOfMemory, usage_of
from kscale.vpa.quality import Quality
from kscale.vpa.recommender.metrics_sources import external_metrics_steps, usage_of_columns, usage_of_pods

__all__ = ["load_metrics_steps"]

_CLIENT = "default-metrics-client"


def load_metrics_steps(
    state: RecommenderState,
    usage: Sequence[Usage] | None,
    ooms: Sequence[OutOfMemory],
    progress: Progress,
    diagnostics: list[str],
) -> StepsOf[GetMetric | Observe, list[UsageError]]:
    """Takes in usage, which is asked for where None is given, and OOMs; what is refused comes back, in order."""
    tally = Tally()
    if usage is None:
        usage = yield from _asked_for(state, progress, tally, diagnostics)
    quality = Quality(tally)
    whole = [*usage, usage_of(ooms)] if ooms else usage
    errors = [error for each in whole for error in add_usage(state, each, progress.now, quality)]
    tally.count("vpa_recommender_aggregate_container_states_count", {}, len(state.aggregates))
    yield from progress.act(Observe(Deferred(tally.observations)))
    return errors


def _asked_for(
    state: RecommenderState, progress: Progress, tally: Tally, diagnostics: list[str]
) -> StepsOf[GetMetric, list[Usage]]:
    """What metrics-server says, or external metrics; nothing where they say nothing."""
    namespace = state.options.vpa_object_namespace
    answer: PodUsage | PodMetricsList | ApiError
    if state.options.use_external_metrics:
        answer = yield from external_metrics_steps(state, progress, namespace)
    else:
        outcome = yield from progress.act(GetMetric(api="resource", namespace=namespace, columns=True))
        answer = outcome.error if outcome.error is not None else outcome.value
    found: Usage | ApiError
    try:
        found = answer if isinstance(answer, ApiError) else _usage_of(answer)
    except InputError as error:
        found = ApiError(str(error))
    refused = isinstance(found, ApiError)
    tally.count("vpa_recommender_metric_server_responses", {"is_error": refused, "client_name": _CLIENT})
    if isinstance(found, ApiError):
        diagnostics.append(f"Cannot get ContainerMetricsSnapshot from MetricsClient: {found.message}")
        return []
    return [found]


def _usage_of(answer: PodUsage | PodMetricsList) -> Usage:
    return usage_of_columns(answer) if isinstance(answer, PodUsage) else usage_of_pods(answer.items)
