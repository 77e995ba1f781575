"""Load VPAs, pods, metrics and Prometheus history into the state (upstream: ``pkg/recommender/input``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import numpy as np
import numpy.typing as npt

from kscale.effects import (
    ApiError,
    Deferred,
    GetMetric,
    GetScale,
    List,
    Moment,
    Observe,
    Outcome,
    Progress,
    QueryPrometheus,
    StepsOf,
    Within,
    from_text,
    moment,
)
from kscale.errors import InputError, Problem
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import ObjectMeta, ResourceList
from kscale.objects.api.metrics import ContainerMetrics, ExternalMetricValueList, PodMetrics, PodMetricsList
from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.objects.argument_types import typed
from kscale.objects.pod_metrics import PodUsage
from kscale.objects.pod_owners import controller_of
from kscale.objects.selectors import EQUALS, NOTHING, Selector, SelectorError, requirement
from kscale.series.columns import Series
from kscale.series.prometheus import LastLabels, PrometheusHistory, container_keys, last_labels, read_prometheus
from kscale.snapshot.caches import collector_paused
from kscale.vpa.controllers import ControllerKey, Controllers, TargetError
from kscale.vpa.metrics import ObservationTally, QualityObserver, build_observation
from kscale.vpa.model.add_samples import ContainerUsage, add_container_usage
from kscale.vpa.model.saved_state import CPU_SAMPLE, MEMORY_SAMPLE, RecommenderState, Usage, UsageError, add_usage
from kscale.vpa.model.usage import ContainerName, OutOfMemory, to_usage
from kscale.vpa.model.vpa import CONFIG_DEPRECATED, CONFIG_UNSUPPORTED, PodKey, Vpa
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.recommender.records import PodChanges
from kscale.vpa.resources import CPU, MEMORY, get_resources_sources
from kscale.vpa.target import find_topmost_controller_steps, resolve_target_selector_steps

__all__ = [
    "convert_pod_metrics",
    "convert_usage_columns",
    "external_metrics_steps",
    "init_from_prometheus_steps",
    "is_managed_vpa",
    "load_metrics_steps",
    "load_pods",
    "load_pods_steps",
    "load_vpas_steps",
    "query_prometheus_steps",
]


def is_managed_vpa(vpa: VerticalPodAutoscaler, options: RecommenderOptions) -> bool:
    """Check whether this recommender manages a VPA: the VPA names it, and the namespace is not ignored.

    A VPA without names of recommenders belongs to the recommender ``default``.
    """
    named, wanted = vpa.spec.recommenders, options.recommender_name
    if not (any(item.name == wanted for item in named) if named else wanted == "default"):
        return False
    return not options.ignores(vpa.metadata.namespace)


def load_vpas_steps(
    state: RecommenderState,
    vpas: Iterable[VerticalPodAutoscaler],
    controllers: Controllers,
    progress: Progress,
) -> StepsOf[GetScale, Sequence[Vpa]]:
    """Load VPAs into the state and delete those that no longer exist or that this recommender does not manage.

    A VPA whose target cannot be resolved selects nothing, and gets the condition ConfigUnsupported. Returns the VPAs
    that are new or have another selector than before.
    """
    observed = []
    changed = []
    version, targets = controllers.version, state.targets
    same_controllers = version is not None and version == state.controllers_version
    state.controllers_version = None  # until all VPAs are loaded: a round may end at a request
    known = state.vpas
    for item in vpas:
        metadata = item.metadata
        previous = known.get(key := (metadata.namespace, metadata.name))
        if same_controllers and previous is not None and previous.is_loaded_from(item) and key in targets:
            observed.append(key)
            continue
        if not is_managed_vpa(item, state.options):
            continue
        selector, problem = _get_cached_selector(state, item, controllers), ""
        if previous is not None and previous.is_loaded_from(item) and selector is previous.selector:
            observed.append(key)
            continue
        if selector is None:
            targets.pop(key, None)  # the cached target is outdated, also if the new one is not cached
            selector, problem = yield from _resolve_selector_steps(item, controllers, progress)
            if not problem:
                _cache_selector(state, item, controllers, selector)
        vpa = state.add_vpa(item, selector)
        vpa.item, vpa.stable = item, None
        vpa.conditions.pop(CONFIG_DEPRECATED, None)
        if problem:
            vpa.set_condition(CONFIG_UNSUPPORTED, True, "", problem, progress.now)
        else:
            vpa.conditions.pop(CONFIG_UNSUPPORTED, None)
        observed.append(vpa.key)
        if vpa is not previous:
            changed.append(vpa)
    for key in sorted(known.keys() - observed):
        state.delete_vpa(key)
    state.observed, state.controllers_version = observed, version
    return changed


def _get_cached_selector(
    state: RecommenderState, vpa: VerticalPodAutoscaler, controllers: Controllers
) -> Selector | None:
    """Return the cached selector of a VPA's target; None if none is cached, or the target has changed since."""
    namespace = vpa.metadata.namespace
    cached = state.targets.get((namespace, vpa.metadata.name))
    if cached is None:
        return None
    target, controller, selector = cached
    same = controllers.get(target.kind, namespace, target.name) is controller and (
        vpa.spec.target_ref is target or vpa.spec.target_ref == target
    )
    return selector if same else None


def _cache_selector(
    state: RecommenderState, vpa: VerticalPodAutoscaler, controllers: Controllers, selector: Selector
) -> None:
    """Cache the selector of a VPA if its target is watched and has no owner, as it then depends on nothing else."""
    target = vpa.spec.target_ref
    controller = None if target is None else controllers.get(target.kind, vpa.namespace, target.name)
    if target is not None and controller is not None and controller_of(controller.metadata) is None:
        state.targets[vpa.namespace, vpa.name] = target, controller, selector


def _resolve_selector_steps(
    vpa: VerticalPodAutoscaler, controllers: Controllers, progress: Progress
) -> StepsOf[GetScale, tuple[Selector, str]]:
    """Return the selector of a VPA's target and an empty text.

    If the target cannot be resolved, return a selector that matches nothing and the text of the ConfigUnsupported
    condition.
    """
    try:
        selector = yield from resolve_target_selector_steps(vpa, controllers, progress)
    except TargetError as error:
        return NOTHING, f"Cannot read targetRef. Reason: {error}"
    target = vpa.spec.target_ref
    assert target is not None  # a selector requires a target
    key = ControllerKey(vpa.namespace, target.kind, target.name, target.api_version)
    try:
        top = yield from find_topmost_controller_steps(key, controllers, progress)
    except TargetError as error:
        return NOTHING, f"Error checking if target {key} is a topmost well-known or scalable controller: {error}"
    if top is None:
        return NOTHING, f"Unknown error during checking if target {key} is a topmost well-known or scalable controller"
    if top != key:
        should = "it should point to a topmost well-known or scalable controller"
        return NOTHING, f"The target {key} has a parent controller but {should}"
    return selector, ""


def load_pods_steps(
    state: RecommenderState, changes: PodChanges, new_vpas: Iterable[Vpa], progress: Progress, diagnostics: list[str]
) -> StepsOf[List, list[PodKey]]:
    """Load changed pods and return the keys of removed pods, to be deleted after the usage is loaded.

    With ``memory_saver`` pods that no VPA selects are skipped. Therefore the pods of new VPAs are listed, except at the
    first call; requests that fail are added to ``diagnostics``.
    """
    changed = {(pod.namespace, pod.name): pod for pod in changes.changed}
    removed = {key for key in changes.deleted if key not in changed}
    if state.options.memory_saver and state.pods_loaded:
        for vpa in new_vpas:
            if vpa.selector.nothing:
                continue
            outcome = yield from progress.act(
                List(kind="Pod", api_version="v1", namespace=vpa.namespace, selector=str(vpa.selector))
            )
            if outcome.error is not None:
                diagnostics.append(f"listing the pods of VPA {vpa.namespace}/{vpa.name}: {outcome.error.message}")
                continue
            for pod in outcome.value:
                key = (pod.namespace, pod.name)
                if key not in removed:
                    changed.setdefault(key, pod)
    for key in removed:
        state.unselected_pods.pop(key, None)
    load_pods(state, [changed[key] for key in sorted(changed)], progress.now)
    state.pods_loaded = True
    return sorted(removed)


@collector_paused()
def load_pods(state: RecommenderState, pods: Sequence[Pod], now: int) -> None:
    """Load pods into the state, in this order; pods of the state that are not listed stay.

    With ``memory_saver``, a pod that no VPA selects is not added or updated. Only the sources of its resources are
    stored: in ``state.unselected_pods``, or in the pod's state if it has one.
    """
    saver = state.options.memory_saver
    for pod in pods:
        labels = pod.metadata.labels or {}
        containers, init_containers = pod.spec.containers, pod.spec.init_containers
        sources = get_resources_sources(pod)
        key = (pod.namespace, pod.name)
        if saver:
            if not state.is_selected(pod.namespace, labels):
                if key not in state.pods:
                    state.unselected_pods[key] = sources
                else:
                    state.set_sources(state.pods[key], sources)
                continue
            state.unselected_pods.pop(key, None)
        pod_state = state.add_pod(pod.namespace, pod.name, labels, pod.status.phase, now)
        state.set_sources(pod_state, sources)
        for container in containers:
            state.add_container(pod_state, container.name, now)
        state.set_init_containers(pod_state, frozenset(container.name for container in init_containers))


@typed
def convert_pod_metrics(items: Iterable[PodMetrics]) -> Usage:
    """Convert the pod metrics ``items`` to usage with two samples per container at the pod's time, CPU first.

    A missing amount counts as 0. A missing time is the zero time, whose samples are not used. Raises
    :class:`InputError` for a text that is not a time.
    """
    names: list[ContainerName] = []
    times: list[int] = []
    values: list[int] = []
    for pod in items:
        if not pod.containers:
            continue
        try:
            time = from_text(pod.timestamp)
        except ValueError as error:
            raise InputError(Problem(str(error), f"PodMetrics {pod.key}", field="timestamp")) from None
        namespace, name = pod.namespace, pod.name
        for container in pod.containers:
            usage = container.usage
            cpu, memory = usage.get(CPU), usage.get(MEMORY)
            names.append((namespace, name, container.name))
            times.append(time)
            values.append(cpu.milli_value() if cpu is not None else 0)
            values.append(memory.value() if memory is not None else 0)
    count = len(names)
    return Usage(
        names,
        np.repeat(np.arange(count, dtype=np.int32), 2),
        np.repeat(np.array(times, np.int64), 2),
        np.array(values, np.int64),
        np.tile(np.array([CPU_SAMPLE, MEMORY_SAMPLE], np.uint8), count),
    )


def convert_usage_columns(usage: PodUsage) -> Usage:
    """Convert columns of pod usage in the same way as :func:`convert_pod_metrics`."""
    return _read_container_usage(usage).to_usage()


def _read_container_usage(usage: PodUsage) -> ContainerUsage:
    """Return the samples of columns of pod usage. A missing amount is 0."""
    cpu = np.zeros(len(usage.container), np.int64)
    for name, milli, _ in usage.columns():
        if name == CPU:
            cpu = milli
    is_single = len(cpu) == len(usage.ends) and np.array_equal(usage.ends, np.arange(1, len(cpu) + 1))
    time = usage.time if is_single else np.repeat(usage.time, np.diff(usage.ends, prepend=0))
    return ContainerUsage(usage.container_names(), time, cpu, usage.whole(MEMORY))


@typed
def external_metrics_steps(
    state: RecommenderState, progress: Progress, namespace: str = ""
) -> StepsOf[GetMetric, PodMetricsList | ApiError]:
    """Request the usage of each VPA's pods from external.metrics.k8s.io, in ``namespace`` (empty: all namespaces).

    Returns pod metrics as metrics-server would. At the first failed request, or pod name that is too long for a label
    value, returns its error instead. The metrics' names, and the label that identifies the container, are options of
    the recommender. ``progress`` belongs to the calling machine.

    VPAs and their pods are requested by name, CPU first. A pod's time and window are those of the first item of its
    last response with items. Of two items of one container the last counts. Items without the container label are
    skipped. A pod that two VPAs select is requested twice.
    """
    options = state.options
    wanted = ((CPU, options.external_metrics_cpu_metric), (MEMORY, options.external_metrics_memory_metric))
    metrics = []
    for key in sorted(state.vpas):
        vpa = state.vpas[key]
        if vpa.pod_count == 0 or (namespace and vpa.namespace != namespace):
            continue
        for pod in state.matching_pods(vpa):
            try:
                selector = str(_add_pod_requirement(vpa.selector, pod.name))
            except SelectorError as error:  # the name is too long for a label value
                return ApiError(str(error))
            timestamp, window = None, 0
            usage: dict[str, ResourceList] = {}
            for resource, metric in wanted:
                if not metric:
                    continue
                outcome = yield from progress.act(
                    GetMetric(api="external", namespace=vpa.namespace, metric=metric, metric_selector=selector)
                )
                if outcome.error is not None:
                    return outcome.error
                response: ExternalMetricValueList = outcome.value
                if response.items:
                    timestamp, window = response.items[0].timestamp, response.items[0].window or window
                for item in response.items:
                    name = (item.metric_labels or {}).get(options.container_name_label)
                    if name is not None:
                        usage.setdefault(name, {})[resource] = item.value
            metrics.append(
                PodMetrics(
                    metadata=ObjectMeta(name=pod.name, namespace=pod.namespace),
                    timestamp=timestamp,
                    window=f"{window}s",
                    containers=[ContainerMetrics(name=name, usage=usage[name]) for name in sorted(usage)],
                )
            )
    return PodMetricsList(items=metrics)


def _add_pod_requirement(selector: Selector, pod: str) -> Selector:
    """Return a selector that also requires the label ``pod`` with the pod's name, with requirements sorted by key.

    Raises SelectorError if the name is too long for a label value.
    """
    added = (*selector.requirements, requirement("pod", EQUALS, [pod]))
    return Selector(tuple(sorted(added, key=lambda item: item.key)), selector.nothing)


_CLIENT_NAME = "default-metrics-client"


def load_metrics_steps(
    state: RecommenderState,
    usage: Sequence[Usage] | None,
    ooms: Sequence[OutOfMemory],
    progress: Progress,
    diagnostics: list[str],
) -> StepsOf[GetMetric | Observe, list[UsageError]]:
    """Load usage (requested if ``usage`` is None) and OOM kills.

    Returns the rejected samples in order. Failed requests are added to ``diagnostics``.
    """
    tally = ObservationTally()
    all_usage: list[Usage | ContainerUsage] = [*(usage or ())]
    if usage is None:
        all_usage = yield from _request_usage_steps(state, progress, tally, diagnostics)
    quality = QualityObserver(tally)
    errors: list[UsageError] = []
    for each in [*all_usage, *([to_usage(ooms)] if ooms else ())]:
        if isinstance(each, ContainerUsage):
            errors += add_container_usage(state, each, progress.now, quality)
        else:
            errors += add_usage(state, each, progress.now, quality)
    tally.count("vpa_recommender_aggregate_container_states_count", {}, len(state.aggregates))
    yield from progress.act(Observe(Deferred(tally.observations)))
    return errors


def _request_usage_steps(
    state: RecommenderState, progress: Progress, tally: ObservationTally, diagnostics: list[str]
) -> StepsOf[GetMetric, list[Usage | ContainerUsage]]:
    """Request usage from metrics-server or external metrics.

    If a request fails or a response is invalid, returns an empty list and adds the error to ``diagnostics``.
    """
    namespace = state.options.vpa_object_namespace
    response: PodUsage | PodMetricsList | ApiError
    if state.options.use_external_metrics:
        response = yield from external_metrics_steps(state, progress, namespace)
    else:
        outcome = yield from progress.act(GetMetric(api="resource", namespace=namespace, columns=True))
        response = outcome.error if outcome.error is not None else outcome.value
    converted: Usage | ContainerUsage | ApiError
    try:
        converted = response if isinstance(response, ApiError) else _convert_usage(response)
    except InputError as error:
        converted = ApiError(str(error))
    is_error = isinstance(converted, ApiError)
    tally.count("vpa_recommender_metric_server_responses", {"is_error": is_error, "client_name": _CLIENT_NAME})
    if isinstance(converted, ApiError):
        diagnostics.append(f"Cannot get ContainerMetricsSnapshot from MetricsClient: {converted.message}")
        return []
    return [converted]


def _convert_usage(response: PodUsage | PodMetricsList) -> Usage | ContainerUsage:
    """Convert a response of the metrics API to the recommender's input."""
    return _read_container_usage(response) if isinstance(response, PodUsage) else convert_pod_metrics(response.items)


_REQUESTS_METRIC: Final = "vpa_recommender_prometheus_client_api_requests_count"
_DURATIONS_METRIC: Final = "vpa_recommender_prometheus_client_api_requests_duration_seconds"
_MAX_FLOAT_AMOUNT: Final = 1e14
_NAN_AMOUNT: Final = -(2**63)
_AmountArray = npt.NDArray[np.int64]


class _HistoryError(Exception):
    """The history could not be loaded. The message is upstream's."""


@typed
def init_from_prometheus_steps(
    state: RecommenderState, history: PrometheusHistory, *, timeout: int, now: datetime | Moment
) -> StepsOf[Within | Observe, list[str]]:
    """Load usage and labels from Prometheus with the queries of ``history``.

    Each query may take ``timeout`` nanoseconds. Returns texts of problems. Nothing is loaded unless each query has a
    response. A partial response, of which Prometheus warns, is loaded. Pods are loaded by name, the samples of each
    container by time. Pods that no longer exist are deleted in the first loop.
    """
    progress = Progress(moment(now))
    try:
        questions = history.range_queries(progress.now)
        histories = []
        for question in questions:
            query = QueryPrometheus(query=question.query, start=question.start, end=question.end, step=question.step)
            try:
                series = yield from query_prometheus_steps(query, history, progress, timeout)
                container_keys(history, series)
            except InputError as error:
                raise _HistoryError(f"cannot get usage history: {error}") from None
            histories.append(series)
        try:
            query = QueryPrometheus(query=history.metric_for_pod_labels, end=progress.now)
            label_series = yield from query_prometheus_steps(query, history, progress, timeout)
            labels = last_labels(history, label_series)
        except InputError as error:
            raise _HistoryError(f"cannot read last labels: {error}") from None
    except (_HistoryError, InputError) as error:
        return [f"Cannot get cluster history: {error}"]
    cpu, memory = histories
    warnings = dict.fromkeys(text for series in (cpu, memory, label_series) for text in series.warnings)
    return [
        *(f"Prometheus warns of the cluster history: {text}" for text in warnings),
        *_add_history(state, cpu, memory, labels, progress.now),
    ]


def query_prometheus_steps(
    question: QueryPrometheus, history: PrometheusHistory, progress: Progress, timeout: int
) -> StepsOf[Within | Observe, Series]:
    """Query Prometheus, observe the request under upstream's metric names, and return the series.

    ``history``: names the labels to read as columns. ``timeout``: nanoseconds. A failure without a status code is not
    observed. Raises :class:`~kscale.errors.InputError` if the query fails or times out, or its response cannot be read.
    """
    started = progress.now

    def ask(at: Moment) -> StepsOf[QueryPrometheus, Outcome]:
        return (yield from Progress(at).act(question))

    outcome: Outcome = yield from progress.within(timeout, ask)
    error = outcome.error
    if error is None or error.code:
        labels = {"code": str(200 if error is None else error.code), "method": "post"}
        seconds = (progress.now - started) / 1e9
        yield from progress.observe(
            build_observation(_REQUESTS_METRIC, labels), build_observation(_DURATIONS_METRIC, labels, seconds)
        )
    if error is not None:
        raise InputError(error.message)
    return read_prometheus(outcome.value, columns=history.columns, source="Prometheus", finite=False)


def _add_history(
    state: RecommenderState,
    cpu: Series,
    memory: Series,
    labels: dict[tuple[str, str], LastLabels],
    now: Moment,
) -> list[str]:
    """Add pods, containers and samples of the history to the state. Returns texts on rejected samples.

    The pods get the phase Unknown, and no labels if ``labels`` lacks them. Pods of ``labels`` are added, too.
    """
    names: dict[ContainerName, int] = {
        name: i
        for i, name in enumerate(
            sorted({(key.namespace, key.pod, key.container) for s in (cpu, memory) for key in s.keys})
        )
    }
    pods = sorted({*((namespace, pod) for namespace, pod, _ in names), *labels})
    for key in pods:
        state.add_pod(*key, labels[key].labels if key in labels else {}, "Unknown", now)
    for namespace, pod, name in names:
        state.add_container(state.pods[namespace, pod], name, now)
    whose, times, amounts, kinds = [], [], [], []
    for series, resource, factor in ((cpu, CPU_SAMPLE, 1000.0), (memory, MEMORY_SAMPLE, 1.0)):
        place = np.array([names[key.namespace, key.pod, key.container] for key in series.keys], np.int32)
        whose.append(place[series.series] if len(place) else np.zeros(0, np.int32))
        times.append(series.time)
        amounts.append(_to_amounts(series.value * factor))
        kinds.append(np.full(len(series.time), resource, np.uint8))
    container, time, kind = np.concatenate(whose), np.concatenate(times), np.concatenate(kinds)
    order = np.lexsort((kind, time, container))  # CPU before memory, as requested
    usage = Usage(list(names), container[order], time[order], np.concatenate(amounts)[order], kind[order])
    refused = add_usage(state, usage, now)
    return [f"Error adding metric sample for container {each.namespace}/{each.pod}/{each.container}: {each.error}"
            for each in refused]  # fmt: skip


def _to_amounts(values: npt.NDArray[np.float64]) -> _AmountArray:
    """Convert floats to ``ResourceAmount`` (int64), truncated and clipped to 0..10^14.

    NaN becomes a value that the state rejects.
    """
    is_number = ~np.isnan(values)
    cut = np.clip(np.where(is_number, values, 0.0), 0.0, _MAX_FLOAT_AMOUNT).astype(np.int64)
    return np.where(is_number, cut, _NAN_AMOUNT)
