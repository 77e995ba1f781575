"""Replica proposals of the metrics of a spec: requests to the metrics APIs, one metric with its target and status, then
the largest of all.

Upstream: ``computeReplicasForMetric``, ``computeReplicasForMetrics`` and the ``computeStatusFor...`` functions in
``horizontal.go``, and ``metrics/client.go``. The field of a target that is set decides, not its ``type``. Only Object
metrics use both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kscale.effects import Emit, GetMetric, List, Moment, Observation, Observe, Outcome, Progress, StepsOf, from_text
from kscale.errors import InputError, Problem
from kscale.hpa.controller.monitor import METRIC_COMPUTATION_DURATION, METRIC_COMPUTATIONS, observe_duration
from kscale.hpa.controller.replica_calculator import (
    CalculatedReplicas,
    CalculationSteps,
    MetricsError,
    PodSamples,
    ReplicaCalculator,
    Sample,
    Tolerances,
    format_go_label_selector,
    format_metric_selector,
    wrap_int64,
)
from kscale.hpa.controller.status import CONDITION_MESSAGES, ReconcileContext
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import (
    ContainerResourceMetricSource,
    ContainerResourceMetricStatus,
    CrossVersionObjectReference,
    ExternalMetricSource,
    ExternalMetricStatus,
    HorizontalPodAutoscaler,
    MetricSpec,
    MetricStatus,
    MetricTarget,
    MetricValueStatus,
    ObjectMetricSource,
    ObjectMetricStatus,
    PodsMetricSource,
    PodsMetricStatus,
    ResourceMetricSource,
    ResourceMetricStatus,
    Scale,
)
from kscale.objects.api.metrics import (
    ExternalMetricValue,
    ExternalMetricValueList,
    MetricValue,
    MetricValueList,
    PodMetrics,
    PodMetricsList,
)
from kscale.objects.argument_types import unchecked
from kscale.objects.quantity import BINARY_SI, DECIMAL_SI, Quantity
from kscale.objects.times import parse_duration

__all__ = [
    "CombinedProposal",
    "MetricError",
    "MetricProposal",
    "MetricSource",
    "RESTMetricsClient",
    "build_computation_observations",
    "build_metric_status",
    "build_object_request",
    "build_proposal",
    "build_proposals",
    "combine_calculated_replicas",
    "compute_replicas_for_metric",
    "compute_replicas_for_metrics",
    "get_metric_name",
    "get_metric_source",
    "get_pod_usage",
    "get_resource_target",
    "get_tolerances",
    "get_value_target",
    "to_status_quantity",
]


class RESTMetricsClient(msgspec.Struct, eq=False):
    """Client of the three metrics APIs, with one :class:`~kscale.effects.GetMetric` per query."""

    _progress: Progress

    def get_resource_metric(
        self, resource: str, namespace: str, selector: str, container: str
    ) -> StepsOf[GetMetric, PodSamples]:
        """Request the usage of a resource by pod, in thousandths of its unit.

        A pod is left out if a container that counts has no value of the resource. ``container``: the only container
        that counts; empty for all. Raises :class:`MetricsError` for an error, for an empty response, and for a
        malformed time or window.
        """
        query = GetMetric(api="resource", namespace=namespace, kind="Pod", selector=selector)
        response: PodMetricsList = _read_response("resource", (yield from self._progress.act(query)))
        samples = {}
        for item in response.items:
            value = get_pod_usage(item, resource, container)
            if value is not None:
                time = _parse_timestamp("resource", item)
                samples[item.metadata.name] = Sample(value, time, _parse_window(item))
        return PodSamples(samples, _parse_timestamp("resource", response.items[0]))

    def get_raw_metric(
        self, metric: str, namespace: str, selector: str, metric_selector: str
    ) -> StepsOf[GetMetric, PodSamples]:
        """Request a custom metric by the pod that it describes; for a repeated pod name the last value counts.

        Raises :class:`MetricsError` for an error, for an empty response, and for a malformed time.
        """
        query = GetMetric(
            api="custom",
            namespace=namespace,
            kind="Pod",
            metric=metric,
            selector=selector,
            metric_selector=metric_selector,
        )
        response: MetricValueList = _read_response("custom", (yield from self._progress.act(query)))
        samples = {}
        for item in response.items:
            value = item.value.milli_value()
            samples[item.described_object.name] = Sample(value, _parse_timestamp("custom", item), item.window_ns)
        return PodSamples(samples, _parse_timestamp("custom", response.items[0]))

    def get_object_metric(
        self, metric: str, namespace: str, described: CrossVersionObjectReference, metric_selector: str
    ) -> StepsOf[GetMetric, tuple[int, Moment]]:
        """Request a custom metric of one object. Returns its value in thousandths, and its time.

        Raises :class:`MetricsError` unless there is one value, and for a malformed time.
        """
        query = build_object_request(metric, namespace, described, metric_selector)
        outcome = yield from self._progress.act(query)
        if outcome.error is not None:
            raise MetricsError(f"unable to fetch metrics from custom metrics API: {outcome.error.message}")
        response: MetricValue | MetricValueList = outcome.value
        if isinstance(response, MetricValueList):
            count = len(response.items)
            if count != 1:
                text = f"the custom metrics API server returned {count} results when we asked for exactly one"
                raise MetricsError(f"unable to fetch metrics from custom metrics API: {text}")
            response = response.items[0]
        return response.value.milli_value(), _parse_timestamp("custom", response)

    def get_external_metric(
        self, metric: str, namespace: str, metric_selector: str
    ) -> StepsOf[GetMetric, tuple[Sequence[int], Moment]]:
        """Request all values of an external metric, in the API's order.

        Returns the values in thousandths and the timestamp of the first. Raises :class:`MetricsError` for an error and
        for an empty response.
        """
        query = GetMetric(api="external", namespace=namespace, metric=metric, metric_selector=metric_selector)
        response: ExternalMetricValueList = _read_response("external", (yield from self._progress.act(query)))
        time = _parse_timestamp("external", response.items[0])
        return [item.value.milli_value() for item in response.items], time


def build_object_request(
    metric: str, namespace: str, described: CrossVersionObjectReference, metric_selector: str
) -> GetMetric:
    """Build the request for a custom metric of one object.

    A Namespace is requested as a root object, and always the HPA's own namespace, whatever ``described`` names.
    """
    group = described.api_version.rpartition("/")[0]
    root = described.kind == "Namespace" and not group
    return GetMetric(
        api="custom",
        namespace="" if root else namespace,
        kind=f"{described.kind}.{group}" if group else described.kind,
        name=namespace if root else described.name,
        metric=metric,
        metric_selector=metric_selector,
    )


def _read_response(api: str, outcome: Outcome) -> Any:
    """Return the list in the response of ``api``.

    Raises :class:`MetricsError`, which names the API, for an error and for an empty list.
    """
    if outcome.error is not None:
        raise MetricsError(f"unable to fetch metrics from {api} metrics API: {outcome.error.message}")
    if not outcome.value.items:
        raise MetricsError(f"no metrics returned from {api} metrics API")
    return outcome.value


def _parse_timestamp(api: str, item: PodMetrics | MetricValue | ExternalMetricValue) -> Moment:
    """Return the time of an item of a response. Raises MetricsError if it is malformed: upstream cannot decode it."""
    try:
        return from_text(item.timestamp)
    except ValueError as error:
        raise MetricsError(f"unable to fetch metrics from {api} metrics API: {error}") from None


def _parse_window(item: PodMetrics) -> int:
    """Return the window in nanoseconds. Raises MetricsError if it is malformed: upstream cannot decode it."""
    try:
        return parse_duration(item.window)
    except ValueError as error:
        raise MetricsError(f"unable to fetch metrics from resource metrics API: {error}") from None


def get_pod_usage(item: PodMetrics, resource: str, container: str) -> int | None:
    """Return a pod's usage of a resource in thousandths: of one container, or of all if ``container`` is empty.

    None if the pod lacks the container, has no containers, or if a container that counts lacks the resource.
    """
    containers = item.containers or []
    if container:
        for each in containers:
            if each.name == container:
                usage = each.usage.get(resource)
                return None if usage is None else usage.milli_value()
        return None
    total = 0
    for each in containers:
        usage = each.usage.get(resource)
        if usage is None:
            return None
        total += usage.milli_value()
    return wrap_int64(total) if containers else None


_NO_TARGET_TEXTS: Final = {
    "Resource": (
        "invalid resource metric source: neither an average utilization target nor an average value (usage) "
        "target was set"
    ),
    "Object": "invalid object metric source: neither a value target nor an average value target was set",
    "External": "invalid external metric source: neither a value target nor an average value target was set",
}


class MetricProposal(msgspec.Struct, frozen=True, gc=False):
    """Proposal of one metric: its replicas, its name in messages, its status, and the calculation."""

    name: str
    status: MetricStatus
    replicas: CalculatedReplicas


class MetricError(msgspec.Struct, frozen=True, gc=False):
    """Error of one metric: ``reason`` of condition and event, ``message`` of the event, and the full ``error``.

    ``invalid``: the HPA's own spec is at fault (error class ``spec``).
    """

    reason: str
    message: str
    error: str
    invalid: bool = False
    replicas: CalculatedReplicas | None = None


def get_tolerances(hpa: HorizontalPodAutoscaler, options: HPAOptions) -> Tolerances:
    """Return the tolerance in ``behavior`` (gate HPAConfigurableTolerance), or else the flag's, for each direction."""
    down = up = options.horizontal_pod_autoscaler_tolerance
    behavior = hpa.spec.behavior
    if behavior is not None and options.gates["HPAConfigurableTolerance"]:
        if behavior.scale_down is not None and behavior.scale_down.tolerance is not None:
            down = behavior.scale_down.tolerance.approximate_float()
        if behavior.scale_up is not None and behavior.scale_up.tolerance is not None:
            up = behavior.scale_up.tolerance.approximate_float()
    return Tolerances(down, up, by_distance=options.legacy)


def to_status_quantity(milli: int, resource: str = "") -> Quantity:
    """Convert milli-units to a quantity as it appears in statuses (memory in binary format)."""
    return _quantity_from_int(milli, BINARY_SI if resource == "memory" else DECIMAL_SI, -3)


_quantity_from_int: Final = unchecked(Quantity.from_int)  # the arguments have the right types


def compute_replicas_for_metric(
    spec: MetricSpec, namespace: str, scale: Scale, calculator: ReplicaCalculator, tolerances: Tolerances
) -> StepsOf[GetMetric | List, MetricProposal | MetricError]:
    """Compute how many replicas one metric proposes, or the error of the metric.

    Raises ``InputError`` if the spec lacks a field without which upstream would crash.
    """
    source = get_metric_source(spec, calculator.options)
    if source is None:
        text = f'unknown metric source type "{spec.type}"'
        return MetricError("InvalidMetricSourceType", text, text, invalid=True)
    calculation = _start_calculation(source, namespace, scale, calculator, tolerances)
    if isinstance(calculation, str):
        return _build_metric_error(source, calculation)
    return build_proposal(source, (yield from calculation))


def build_proposal(source: MetricSource, replicas: CalculatedReplicas) -> MetricProposal | MetricError:
    """Build the proposal of a metric, or its error, from the calculator's result."""
    if isinstance(source, (ResourceMetricSource, ContainerResourceMetricSource)):
        return _build_resource_proposal(source, replicas)
    if replicas.error is not None:
        return _build_metric_error(source, replicas.error, prefix=_get_error_prefix(source), replicas=replicas)
    name = get_metric_name(source)
    if isinstance(source, PodsMetricSource):
        of_pods = PodsMetricStatus(metric=source.metric, current=_build_current_value(replicas, True))
        return MetricProposal(name, MetricStatus(type="Pods", pods=of_pods), replicas)
    current = _build_current_value(replicas, get_value_target(source)[0].endswith("per_pod"))
    if isinstance(source, ExternalMetricSource):
        external = ExternalMetricStatus(metric=source.metric, current=current)
        return MetricProposal(name, MetricStatus(type="External", external=external), replicas)
    of_object = ObjectMetricStatus(described_object=source.described_object, metric=source.metric, current=current)
    return MetricProposal(name, MetricStatus(type="Object", object=of_object), replicas)


def get_metric_name(source: MetricSource) -> str:
    """Return the text with which conditions and events of an HPA name the metric, as upstream writes it.

    Examples: ``cpu resource utilization (percentage of request)``, ``cpu resource`` (target ``averageValue``), ``pods
    metric requests``, ``Service metric latency``, ``external metric queue(nil)`` (with the selector).
    """
    if isinstance(source, (ResourceMetricSource, ContainerResourceMetricSource)):
        if source.target.average_value is not None:  # for this target, upstream omits the container
            return f"{source.name} resource"
        of = "container resource" if isinstance(source, ContainerResourceMetricSource) else "resource"
        return f"{source.name} {of} utilization (percentage of request)"
    if isinstance(source, PodsMetricSource):
        return f"pods metric {source.metric.name}"
    # Upstream names an object metric with a value per pod like an external metric.
    if isinstance(source, ExternalMetricSource) or get_value_target(source)[0].endswith("per_pod"):
        return f"external metric {source.metric.name}({format_go_label_selector(source.metric.selector)})"
    return f"{source.described_object.kind} metric {source.metric.name}"


def _missing_field_error(spec: MetricSpec, field: str) -> InputError:
    """Build the error of a metric whose ``field`` for its type is missing."""
    return InputError(Problem(f"a metric of type {spec.type} without {field}", field=f"spec.metrics[].{field}"))


MetricSource = (
    ResourceMetricSource | ContainerResourceMetricSource | PodsMetricSource | ObjectMetricSource | ExternalMetricSource
)


def get_metric_source(spec: MetricSpec, options: HPAOptions | None = None) -> MetricSource | None:
    """Return the field of a metric spec that its type names, such as ``spec.pods`` for ``Pods``.

    None if the type is unknown; ``ContainerResource`` is unknown to a controller that does not support container
    metrics. Raises :class:`~kscale.errors.InputError` if that field, or ``pods.target.averageValue``, is missing, so
    that upstream would crash.
    """
    source: MetricSource | None
    if spec.type == "Resource":
        field, source = "resource", spec.resource
    elif spec.type == "ContainerResource" and (options is None or options.supports_container_metrics):
        field, source = "containerResource", spec.container_resource
    elif spec.type == "Pods":
        field, source = "pods", spec.pods
        if source is not None and spec.pods is not None and spec.pods.target.average_value is None:
            raise _missing_field_error(spec, "pods.target.averageValue")
    elif spec.type == "Object":
        field, source = "object", spec.object
    elif spec.type == "External":
        field, source = "external", spec.external
    else:
        return None
    if source is None:
        raise _missing_field_error(spec, field)
    return source


def _start_calculation(
    source: MetricSource, namespace: str, scale: Scale, calculator: ReplicaCalculator, tolerances: Tolerances
) -> CalculationSteps | str:
    """Return the calculation for a metric source, or an error text if it cannot start."""
    current, pods = scale.spec.replicas, scale.status.selector
    if isinstance(source, (ResourceMetricSource, ContainerResourceMetricSource)):
        container = source.container if isinstance(source, ContainerResourceMetricSource) else ""
        mode, target = get_resource_target(source.target)
        if target is None:
            return _NO_TARGET_TEXTS["Resource"]
        calculate = calculator.get_raw_resource_replicas if mode == "usage" else calculator.get_resource_replicas
        return calculate(current, target, source.name, tolerances, namespace, pods, container)
    metric = source.metric.name
    if isinstance(source, ExternalMetricSource):
        mode, target = get_value_target(source)
        if target is None:
            return _NO_TARGET_TEXTS["External"]
        of_metric = (target, metric, tolerances, namespace, source.metric.selector)
        if mode == "external_per_pod":
            return calculator.get_external_per_pod_metric_replicas(scale.status.replicas, *of_metric)
        return calculator.get_external_metric_replicas(current, *of_metric, pods)
    try:
        selector = format_metric_selector(source.metric.selector)
    except ValueError as error:
        return str(error)
    if isinstance(source, PodsMetricSource):
        assert source.target.average_value is not None  # checked by get_metric_source
        milli = source.target.average_value.milli_value()
        return calculator.get_metric_replicas(current, milli, metric, tolerances, namespace, pods, selector)
    mode, target = get_value_target(source)
    if target is None:
        return _NO_TARGET_TEXTS["Object"]
    of_object = (target, metric, tolerances, namespace, source.described_object)
    if mode == "object_per_pod":
        return calculator.get_object_per_pod_metric_replicas(scale.status.replicas, *of_object, selector)
    return calculator.get_object_metric_replicas(current, *of_object, pods, selector)


def _build_resource_proposal(
    source: ResourceMetricSource | ContainerResourceMetricSource, replicas: CalculatedReplicas
) -> MetricProposal | MetricError:
    """Build the proposal of a Resource or ContainerResource metric, which differ in names only."""
    of_requests = source.target.average_value is None
    if replicas.error is not None:
        quantity_name = "utilization" if of_requests else "usage"
        text = f"failed to get {source.name} {quantity_name}: {replicas.error}"
        return _build_metric_error(source, text, replicas=replicas)
    status = _build_resource_status(source, replicas.utilization, replicas.usage)
    return MetricProposal(get_metric_name(source), status, replicas)


def _build_resource_status(
    source: ResourceMetricSource | ContainerResourceMetricSource, utilization: int | None, usage: int
) -> MetricStatus:
    """Build the status of a resource metric from its utilization (percent of requests) and usage (milli-units)."""
    current = MetricValueStatus(
        average_utilization=utilization if source.target.average_value is None else None,
        average_value=to_status_quantity(usage, source.name),
    )
    if isinstance(source, ContainerResourceMetricSource):
        of_container = ContainerResourceMetricStatus(name=source.name, container=source.container, current=current)
        return MetricStatus(type="ContainerResource", container_resource=of_container)
    return MetricStatus(type="Resource", resource=ResourceMetricStatus(name=source.name, current=current))


def _build_current_value(replicas: CalculatedReplicas, average: bool) -> MetricValueStatus:
    """Build the current value for a status from the usage: per pod if ``average`` is set, otherwise the total."""
    usage = to_status_quantity(replicas.usage)
    return MetricValueStatus(average_value=usage) if average else MetricValueStatus(value=usage)


def _build_metric_error(
    source: MetricSource, text: str, *, prefix: str = "", replicas: CalculatedReplicas | None = None
) -> MetricError:
    """Build the error of a metric. Only the aggregated error of all metrics begins with ``prefix``."""
    if isinstance(source, ResourceMetricSource):
        reason, failed = "FailedGetResourceMetric", f"{source.name} resource metric"
    elif isinstance(source, ContainerResourceMetricSource):
        reason, failed = "FailedGetContainerResourceMetric", f"{source.container} container metric"
    elif isinstance(source, PodsMetricSource):
        reason, failed = "FailedGetPodsMetric", "pods metric"
    elif isinstance(source, ObjectMetricSource):
        reason, failed = "FailedGetObjectMetric", "object metric"
    else:
        reason, failed = "FailedGetExternalMetric", f"{source.metric.name} external metric"
    return MetricError(reason, text, f"failed to get {failed} value: {prefix}{text}", replicas=replicas)


def _get_error_prefix(source: PodsMetricSource | ObjectMetricSource | ExternalMetricSource) -> str:
    """Return the text before the calculator's error in the aggregated error of all metrics; empty for most types."""
    if isinstance(source, PodsMetricSource):
        return ""
    mode, _ = get_value_target(source)
    metric = source.metric.name
    if mode == "object_per_pod":
        return f"failed to get {metric} object metric: "
    if mode == "external_per_pod":
        return f"failed to get {metric} external metric: "
    return f"failed to get external metric {metric}: " if mode == "external_value" else ""


def get_resource_target(target: MetricTarget) -> tuple[str, int | None]:
    """Return the calculator mode and the target (milli-units or percent, None if unset) of a resource.

    An average value takes precedence over a utilization, whatever the target's type.
    """
    if target.average_value is not None:
        return "usage", target.average_value.milli_value()
    return "utilization", target.average_utilization


def get_value_target(source: ObjectMetricSource | ExternalMetricSource) -> tuple[str, int | None]:
    """Return the calculator mode and the target (milli-units, None if unset) of an Object or External metric.

    The target of an Object metric is read only from the field that the target's type names. If that is unset, returns
    ``object_value`` and None.
    """
    wanted = source.target
    if isinstance(source, ExternalMetricSource):
        if wanted.average_value is not None:
            return "external_per_pod", wanted.average_value.milli_value()
        return "external_value", None if wanted.value is None else wanted.value.milli_value()
    if wanted.type == "Value" and wanted.value is not None:
        return "object_value", wanted.value.milli_value()
    if wanted.type == "AverageValue" and wanted.average_value is not None:
        return "object_per_pod", wanted.average_value.milli_value()
    return "object_value", None


_UNABLE_TO_COMPUTE: Final = "the HPA was unable to compute the replica count: "


class CombinedProposal(msgspec.Struct, frozen=True, gc=False):
    """Result for all metrics of a spec, in order.

    ``replicas`` is the largest proposal, ``name`` the name of the metric that made it. ``refused``: too many metrics
    failed, so the others must not be used. ``error``: the error, whether refused or not; ``error_class``: the class of
    the first failed metric.
    """

    each: tuple[MetricProposal | MetricError, ...]
    statuses: tuple[MetricStatus, ...]
    replicas: int
    name: str
    error: str
    error_class: str
    refused: bool


def compute_replicas_for_metrics(
    context: ReconcileContext, scale: Scale, calculated: Sequence[CalculatedReplicas] | None = None
) -> StepsOf[List | GetMetric | Emit | Observe, CombinedProposal]:
    """Compute the proposals of all metrics and choose the largest.

    Sets ScalingActive, emits an event for each metric that failed, and observes the count and duration of each.
    ``calculated``: the calculator's result for each metric, if it is known; nothing is requested then.
    """
    calculator = ReplicaCalculator(RESTMetricsClient(context.progress), context.progress, context.now, context.options)
    tolerances = get_tolerances(context.hpa, context.options)
    proposals: list[MetricProposal | MetricError] = []
    for i, spec in enumerate(context.hpa.spec.metrics or ()):
        started = context.progress.now
        if calculated is not None and (source := get_metric_source(spec, context.options)) is not None:
            proposal = build_proposal(source, calculated[i])
        else:
            proposal = yield from compute_replicas_for_metric(
                spec, context.hpa.metadata.namespace, scale, calculator, tolerances
            )
        proposals.append(proposal)
        if isinstance(proposal, MetricError):
            yield from context.warn(proposal.reason, proposal.message)
        # The time of the first outcome is the end of the metric's computation.
        labels = _computation_labels(context, spec.type, proposal)
        yield from context.progress.observe(Observation(name=METRIC_COMPUTATIONS, labels=labels))
        yield from context.progress.observe(
            observe_duration(METRIC_COMPUTATION_DURATION, started, context.progress.now, labels)
        )
    return _choose_largest_proposal(context, proposals, scale.spec.replicas)


def combine_calculated_replicas(
    context: ReconcileContext, scale: Scale, calculated: Sequence[CalculatedReplicas]
) -> CombinedProposal:
    """Return the result of :func:`compute_replicas_for_metrics` for known calculator results without errors.

    No request is sent, and no time passes.
    """
    return _choose_largest_proposal(
        context, build_proposals(context.hpa, calculated, context.options), scale.spec.replicas
    )


def build_computation_observations(
    context: ReconcileContext, proposals: Sequence[MetricProposal | MetricError]
) -> list[Observation]:
    """Build the count and the duration of each metric's computation, for computations that took no time."""
    observations: list[Observation] = []
    for spec, proposal in zip(context.hpa.spec.metrics or (), proposals, strict=True):
        labels = _computation_labels(context, spec.type, proposal)
        observations.append(Observation(name=METRIC_COMPUTATIONS, labels=labels))
        observations.append(observe_duration(METRIC_COMPUTATION_DURATION, context.now, context.now, labels))
    return observations


def build_proposals(
    hpa: HorizontalPodAutoscaler, calculated: Sequence[CalculatedReplicas], options: HPAOptions
) -> tuple[MetricProposal, ...]:
    """Build the proposals of an HPA's metrics from known calculator results without errors."""
    proposals: list[MetricProposal] = []
    for spec, replicas in zip(hpa.spec.metrics or (), calculated, strict=True):
        source = get_metric_source(spec, options)
        assert source is not None  # the calculator has a result for it
        proposal = build_proposal(source, replicas)
        assert isinstance(proposal, MetricProposal)  # the result is no error
        proposals.append(proposal)
    return tuple(proposals)


def build_metric_status(source: MetricSource, size: int, utilization: int, usage: int) -> MetricStatus:
    """Build the status of a metric (``source``: of its spec) from the calculator's result, which is no error."""
    if isinstance(source, (ResourceMetricSource, ContainerResourceMetricSource)):
        return _build_resource_status(source, utilization, usage)
    proposal = build_proposal(source, CalculatedReplicas(replicas=size, utilization=utilization, usage=usage))
    assert isinstance(proposal, MetricProposal)  # the result is no error
    return proposal.status


def _choose_largest_proposal(
    context: ReconcileContext, proposals: Sequence[MetricProposal | MetricError], current: int
) -> CombinedProposal:
    """Choose the largest proposal, unless too many metrics failed, and set ScalingActive.

    ``current``: replicas of the scale. With failed metrics, a proposal below ``current`` is refused, except by the
    legacy controller. Without any metric, the decision is refused and the condition stays.
    """
    best, best_name = 0, ""
    failed: list[MetricError] = []
    statuses: list[MetricStatus] = []
    for proposal in proposals:
        if isinstance(proposal, MetricError):
            failed.append(proposal)
            statuses.append(MetricStatus())
            continue
        statuses.append(proposal.status)
        replicas = proposal.replicas.replicas
        if best == 0 or replicas > best:
            best, best_name = replicas, proposal.name
    error, error_class = "", "none"
    if failed:
        error_class = "spec" if failed[0].invalid else "internal"
        error = f"invalid metrics ({len(failed)} invalid out of {len(proposals)}), first error is: {failed[0].error}"
    # Legacy: decides with the remaining metrics, in either direction, without a message.
    lenient = context.options.legacy and len(failed) < len(proposals)
    refused = not lenient and (len(failed) >= len(proposals) or (bool(failed) and best < current))
    if lenient:
        error, error_class = "", "none"
    if refused:
        if failed:
            context.set("ScalingActive", False, failed[0].reason, f"{_UNABLE_TO_COMPUTE}{failed[0].message}")
        error = error or "invalid metrics (0 invalid out of 0), first error is: %!w(<nil>)"
    else:
        text = CONDITION_MESSAGES["ValidMetricFound"].format(metric=best_name)
        context.set("ScalingActive", True, "ValidMetricFound", text)
    return CombinedProposal(tuple(proposals), tuple(statuses), best, best_name, error, error_class, refused)


def _computation_labels(
    context: ReconcileContext, type_: str, proposal: MetricProposal | MetricError
) -> dict[str, str]:
    """Return the labels of the metrics that count and time the computation of one metric of ``type_``."""
    if isinstance(proposal, MetricError):
        return {"action": "none", "error": "spec" if proposal.invalid else "internal", "metric_type": type_}
    # Compared with the replicas of the last status, not of the scale.
    before, wanted = context.hpa.status.current_replicas, proposal.replicas.replicas
    action = "scale_up" if wanted > before else "scale_down" if wanted < before else "none"
    return {"action": action, "error": "none", "metric_type": type_}
