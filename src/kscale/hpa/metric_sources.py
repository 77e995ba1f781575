"""One metric of a HorizontalPodAutoscaler: which function computes it, with which target, and what is said about it.

Upstream: ``computeReplicasForMetric`` and the ``computeStatusFor...`` functions in ``horizontal.go``. Which field of a
target is set decides, not its ``type``; only Object metrics look at both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kscale.effects import GetMetric, List, StepsOf
from kscale.errors import InputError, Problem
from kscale.hpa.calculation import Calculation, Replicas, Tolerances
from kscale.hpa.go_text import print_label_selector
from kscale.hpa.options import HPAOptions
from kscale.hpa.replica_calculator import ReplicaCalculator, selector_text
from kscale.objects.autoscaling import (
    ContainerResourceMetricSource,
    ContainerResourceMetricStatus,
    ExternalMetricSource,
    ExternalMetricStatus,
    HorizontalPodAutoscaler,
    MetricIdentifier,
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
)
from kscale.objects.quantity import BINARY_SI, DECIMAL_SI, Quantity

__all__ = [
    "MetricError",
    "MetricProposal",
    "Target",
    "compute",
    "resource_target",
    "source_of",
    "status_quantity",
    "tolerances_of",
    "value_target",
]

_NEITHER: Final = {
    "Resource": (
        "invalid resource metric source: neither an average utilization target nor an average value (usage) "
        "target was set"
    ),
    "Object": "invalid object metric source: neither a value target nor an average value target was set",
    "External": "invalid external metric source: neither a value target nor an average value target was set",
}


@dataclass(frozen=True, slots=True)
class Target:
    """Whose metrics: where the pods are, which, and how many the scale says there are."""

    namespace: str
    selector: str
    spec_replicas: int
    status_replicas: int


@dataclass(frozen=True, slots=True)
class MetricProposal:
    """A metric that could be computed: the size it asks for, its name in messages, its status, and how it came."""

    name: str
    status: MetricStatus
    replicas: Replicas


@dataclass(frozen=True, slots=True)
class MetricError:
    """A metric that could not: condition and event ``reason``, the event's ``message``, the whole ``error``.

    ``invalid`` is set where the HPA's own spec is at fault (error class ``spec``).
    """

    reason: str
    message: str
    error: str
    invalid: bool = False
    replicas: Replicas | None = None


def tolerances_of(hpa: HorizontalPodAutoscaler, options: HPAOptions) -> Tolerances:
    """The global tolerance, or what ``behavior`` says for a direction."""
    down = up = options.horizontal_pod_autoscaler_tolerance
    behavior = hpa.spec.behavior
    if behavior is not None and options.enabled("HPAConfigurableTolerance"):
        if behavior.scale_down is not None and behavior.scale_down.tolerance is not None:
            down = behavior.scale_down.tolerance.approximate_float()
        if behavior.scale_up is not None and behavior.scale_up.tolerance is not None:
            up = behavior.scale_up.tolerance.approximate_float()
    return Tolerances(down, up, by_distance=options.legacy)


def status_quantity(milli: int, resource: str = "") -> Quantity:
    """A value as statuses hold it: milli-units; memory in binary format."""
    return Quantity.from_int(milli, BINARY_SI if resource == "memory" else DECIMAL_SI, -3)


def compute(
    spec: MetricSpec, target: Target, calculator: ReplicaCalculator, tolerances: Tolerances
) -> StepsOf[GetMetric | List, MetricProposal | MetricError]:
    """The proposal of one metric, or why there is none. Raises ``InputError`` where upstream would crash."""
    source = source_of(spec, calculator.options)
    if isinstance(source, (ResourceMetricSource, ContainerResourceMetricSource)):
        return (yield from _resource(source, target, calculator, tolerances))
    if isinstance(source, PodsMetricSource):
        return (yield from _pods(source, target, calculator, tolerances))
    if isinstance(source, ObjectMetricSource):
        return (yield from _object(source, target, calculator, tolerances))
    if isinstance(source, ExternalMetricSource):
        return (yield from _external(source, target, calculator, tolerances))
    text = f'unknown metric source type "{spec.type}"'
    return MetricError("InvalidMetricSourceType", text, text, invalid=True)


def _missing(spec: MetricSpec, field: str) -> InputError:
    return InputError(Problem(f"a metric of type {spec.type} without {field}", field=f"spec.metrics[].{field}"))


_Source = (
    ResourceMetricSource | ContainerResourceMetricSource | PodsMetricSource | ObjectMetricSource | ExternalMetricSource
)


def source_of(spec: MetricSpec, options: HPAOptions | None = None) -> _Source | None:
    """The source that the type names; None for an unknown type (``ContainerResource`` in the legacy profile).

    Raises :class:`~kscale.errors.InputError` where upstream would crash.
    """
    source: _Source | None
    if spec.type == "Resource":
        field, source = "resource", spec.resource
    elif spec.type == "ContainerResource" and not (options is not None and options.legacy):
        field, source = "containerResource", spec.container_resource
    elif spec.type == "Pods":
        field, source = "pods", spec.pods
        if source is not None and spec.pods is not None and spec.pods.target.average_value is None:
            raise _missing(spec, "pods.target.averageValue")
    elif spec.type == "Object":
        field, source = "object", spec.object
    elif spec.type == "External":
        field, source = "external", spec.external
    else:
        return None
    if source is None:
        raise _missing(spec, field)
    return source


def _usage(
    resource: str,
    container: str,
    of: MetricTarget,
    target: Target,
    calculator: ReplicaCalculator,
    tolerances: Tolerances,
) -> StepsOf[GetMetric | List, tuple[Replicas, MetricValueStatus, str] | str]:
    """(replicas, current values, ``usage`` or ``utilization``) of a resource; a text where no target is set."""
    where = (tolerances, target.namespace, target.selector, container)
    if of.average_value is not None:
        milli = of.average_value.milli_value()
        replicas = yield from calculator.get_raw_resource_replicas(target.spec_replicas, milli, resource, *where)
        return replicas, MetricValueStatus(average_value=status_quantity(replicas.usage, resource)), "usage"
    if of.average_utilization is None:
        return _NEITHER["Resource"]
    percent = of.average_utilization
    replicas = yield from calculator.get_resource_replicas(target.spec_replicas, percent, resource, *where)
    current = MetricValueStatus(
        average_utilization=replicas.utilization, average_value=status_quantity(replicas.usage, resource)
    )
    return replicas, current, "utilization"


def _resource(
    source: ResourceMetricSource | ContainerResourceMetricSource,
    target: Target,
    calculator: ReplicaCalculator,
    tolerances: Tolerances,
) -> StepsOf[GetMetric | List, MetricProposal | MetricError]:
    """Resource and ContainerResource: the same but for what they are called."""
    if isinstance(source, ContainerResourceMetricSource):
        container, name = source.container, f"{source.name} container resource"
        failure = _Failure("FailedGetContainerResourceMetric", f"failed to get {container} container metric value")
    else:
        container, name = "", f"{source.name} resource"
        failure = _Failure("FailedGetResourceMetric", f"failed to get {source.name} resource metric value")
    answer = yield from _usage(source.name, container, source.target, target, calculator, tolerances)
    if isinstance(answer, str):
        return failure.of(answer)
    replicas, current, what = answer
    if replicas.error is not None:
        return failure.of(f"failed to get {source.name} {what}: {replicas.error}", replicas=replicas)
    name = f"{name} utilization (percentage of request)" if what == "utilization" else f"{source.name} resource"
    if isinstance(source, ContainerResourceMetricSource):
        of_container = ContainerResourceMetricStatus(name=source.name, container=container, current=current)
        status = MetricStatus(type="ContainerResource", container_resource=of_container)
    else:
        status = MetricStatus(type="Resource", resource=ResourceMetricStatus(name=source.name, current=current))
    return MetricProposal(name, status, replicas)


def _pods(
    source: PodsMetricSource, target: Target, calculator: ReplicaCalculator, tolerances: Tolerances
) -> StepsOf[GetMetric | List, MetricProposal | MetricError]:
    failure = _Failure("FailedGetPodsMetric", "failed to get pods metric value")
    try:
        selector = selector_text(source.metric.selector)
    except ValueError as error:
        return failure.of(str(error))
    assert source.target.average_value is not None  # source_of has looked
    replicas = yield from calculator.get_metric_replicas(
        target.spec_replicas,
        source.target.average_value.milli_value(),
        source.metric.name,
        tolerances,
        target.namespace,
        target.selector,
        selector,
    )
    if replicas.error is not None:
        return failure.of(replicas.error, replicas=replicas)
    status = MetricStatus(type="Pods", pods=PodsMetricStatus(metric=source.metric, current=_current(replicas, True)))
    return MetricProposal(f"pods metric {source.metric.name}", status, replicas)


def _object(
    source: ObjectMetricSource, target: Target, calculator: ReplicaCalculator, tolerances: Tolerances
) -> StepsOf[GetMetric | List, MetricProposal | MetricError]:
    failure = _Failure("FailedGetObjectMetric", "failed to get object metric value")
    described, metric = source.described_object, source.metric.name
    try:
        selector = selector_text(source.metric.selector)
    except ValueError as error:
        return failure.of(str(error))
    mode, milli = value_target(source)
    if milli is None:
        return failure.of(_NEITHER["Object"])
    where = (tolerances, target.namespace, described)
    calculation: Calculation
    if mode == "object_per_pod":
        # Upstream names it as if it were an external metric.
        layer, name = f"failed to get {metric} object metric: ", _external_name(source.metric)
        calculation = calculator.get_object_per_pod_metric_replicas(
            target.status_replicas, milli, metric, *where, selector
        )
    else:
        layer, name = "", f"{described.kind} metric {metric}"
        calculation = calculator.get_object_metric_replicas(
            target.spec_replicas, milli, metric, *where, target.selector, selector
        )
    replicas = yield from calculation
    if replicas.error is not None:
        return failure.of(replicas.error, layer=layer, replicas=replicas)
    current = _current(replicas, mode == "object_per_pod")
    status = ObjectMetricStatus(described_object=described, metric=source.metric, current=current)
    return MetricProposal(name, MetricStatus(type="Object", object=status), replicas)


def _external(
    source: ExternalMetricSource, target: Target, calculator: ReplicaCalculator, tolerances: Tolerances
) -> StepsOf[GetMetric | List, MetricProposal | MetricError]:
    metric, selector = source.metric.name, source.metric.selector
    failure = _Failure("FailedGetExternalMetric", f"failed to get {metric} external metric value")
    mode, milli = value_target(source)
    if milli is None:
        return failure.of(_NEITHER["External"])
    where = (metric, tolerances, target.namespace, selector)
    calculation: Calculation
    if mode == "external_per_pod":
        layer = f"failed to get {metric} external metric: "
        calculation = calculator.get_external_per_pod_metric_replicas(target.status_replicas, milli, *where)
    else:
        layer = f"failed to get external metric {metric}: "
        calculation = calculator.get_external_metric_replicas(target.spec_replicas, milli, *where, target.selector)
    replicas = yield from calculation
    if replicas.error is not None:
        return failure.of(replicas.error, layer=layer, replicas=replicas)
    status = ExternalMetricStatus(metric=source.metric, current=_current(replicas, mode == "external_per_pod"))
    return MetricProposal(_external_name(source.metric), MetricStatus(type="External", external=status), replicas)


def _current(replicas: Replicas, average: bool) -> MetricValueStatus:
    usage = status_quantity(replicas.usage)
    return MetricValueStatus(average_value=usage) if average else MetricValueStatus(value=usage)


@dataclass(frozen=True, slots=True)
class _Failure:
    """How a source's errors are told: the condition's ``reason``, and what stands before them in the aggregate."""

    reason: str
    outer: str

    def of(self, text: str, *, layer: str = "", replicas: Replicas | None = None) -> MetricError:
        """``layer`` stands in the aggregated error alone."""
        return MetricError(self.reason, text, f"{self.outer}: {layer}{text}", replicas=replicas)


def _external_name(metric: MetricIdentifier) -> str:
    return f"external metric {metric.name}({print_label_selector(metric.selector)})"


def resource_target(target: MetricTarget) -> tuple[str, int | None]:
    """(calculator mode, target: milli or percent; None where none is set) of a resource."""
    if target.average_value is not None:
        return "usage", target.average_value.milli_value()
    return "utilization", target.average_utilization


def value_target(source: ObjectMetricSource | ExternalMetricSource) -> tuple[str, int | None]:
    """(calculator mode, target in milli; None where none is set) of an Object or External metric."""
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
