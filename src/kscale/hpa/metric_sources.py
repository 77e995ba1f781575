"""One metric of a HorizontalPodAutoscaler: which function computes it, with which target, and what is said about it.

Upstream: ``computeReplicasForMetric`` and the ``computeStatusFor...`` functions in ``horizontal.go``. Which field of a
target is set decides, not its ``type``; only Object metrics look at both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

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
    "MetricSource",
    "Target",
    "compute",
    "proposal_of",
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


class MetricProposal(msgspec.Struct, frozen=True, gc=False):
    """A metric that could be computed: the size it asks for, its name in messages, its status, and how it came."""

    name: str
    status: MetricStatus
    replicas: Replicas


class MetricError(msgspec.Struct, frozen=True, gc=False):
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
    if source is None:
        text = f'unknown metric source type "{spec.type}"'
        return MetricError("InvalidMetricSourceType", text, text, invalid=True)
    asked = _calculation(source, target, calculator, tolerances)
    if isinstance(asked, str):
        return _failure(source).of(asked)
    return proposal_of(source, (yield from asked))


def proposal_of(source: MetricSource, replicas: Replicas) -> MetricProposal | MetricError:
    """What is said of a metric for which the calculator said this."""
    if isinstance(source, (ResourceMetricSource, ContainerResourceMetricSource)):
        return _of_resource(source, replicas)
    if replicas.error is not None:
        return _failure(source).of(replicas.error, layer=_layer(source), replicas=replicas)
    if isinstance(source, PodsMetricSource):
        of_pods = PodsMetricStatus(metric=source.metric, current=_current(replicas, True))
        name = f"pods metric {source.metric.name}"
        return MetricProposal(name, MetricStatus(type="Pods", pods=of_pods), replicas)
    per_pod = value_target(source)[0].endswith("per_pod")
    current = _current(replicas, per_pod)
    if isinstance(source, ExternalMetricSource):
        external = ExternalMetricStatus(metric=source.metric, current=current)
        return MetricProposal(_external_name(source.metric), MetricStatus(type="External", external=external), replicas)
    described = source.described_object
    # Upstream names one of a value per pod as if it were an external metric.
    name = _external_name(source.metric) if per_pod else f"{described.kind} metric {source.metric.name}"
    of_object = ObjectMetricStatus(described_object=described, metric=source.metric, current=current)
    return MetricProposal(name, MetricStatus(type="Object", object=of_object), replicas)


def _missing(spec: MetricSpec, field: str) -> InputError:
    return InputError(Problem(f"a metric of type {spec.type} without {field}", field=f"spec.metrics[].{field}"))


MetricSource = (
    ResourceMetricSource | ContainerResourceMetricSource | PodsMetricSource | ObjectMetricSource | ExternalMetricSource
)


def source_of(spec: MetricSpec, options: HPAOptions | None = None) -> MetricSource | None:
    """The source that the type names; None for an unknown type (``ContainerResource`` for a controller that does
    not know it).

    Raises :class:`~kscale.errors.InputError` where upstream would crash.
    """
    source: MetricSource | None
    if spec.type == "Resource":
        field, source = "resource", spec.resource
    elif spec.type == "ContainerResource" and (options is None or options.knows_container_metrics):
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


def _calculation(
    source: MetricSource, target: Target, calculator: ReplicaCalculator, tolerances: Tolerances
) -> Calculation | str:
    """What is asked of the calculator; a text where it cannot be asked."""
    if isinstance(source, (ResourceMetricSource, ContainerResourceMetricSource)):
        container = source.container if isinstance(source, ContainerResourceMetricSource) else ""
        of_pods = (source.name, tolerances, target.namespace, target.selector, container)
        mode, wanted = resource_target(source.target)
        if wanted is None:
            return _NEITHER["Resource"]
        if mode == "usage":
            return calculator.get_raw_resource_replicas(target.spec_replicas, wanted, *of_pods)
        return calculator.get_resource_replicas(target.spec_replicas, wanted, *of_pods)
    if isinstance(source, ExternalMetricSource):
        return _external(source, target, calculator, tolerances)
    metric = source.metric.name
    try:
        selector = selector_text(source.metric.selector)
    except ValueError as error:
        return str(error)
    if isinstance(source, PodsMetricSource):
        assert source.target.average_value is not None  # source_of has looked
        milli = source.target.average_value.milli_value()
        where = (tolerances, target.namespace, target.selector)
        return calculator.get_metric_replicas(target.spec_replicas, milli, metric, *where, selector)
    mode, wanted = value_target(source)
    if wanted is None:
        return _NEITHER["Object"]
    of_object = (wanted, metric, tolerances, target.namespace, source.described_object)
    if mode == "object_per_pod":
        return calculator.get_object_per_pod_metric_replicas(target.status_replicas, *of_object, selector)
    return calculator.get_object_metric_replicas(target.spec_replicas, *of_object, target.selector, selector)


def _external(
    source: ExternalMetricSource, target: Target, calculator: ReplicaCalculator, tolerances: Tolerances
) -> Calculation | str:
    mode, wanted = value_target(source)
    if wanted is None:
        return _NEITHER["External"]
    asked = (wanted, source.metric.name, tolerances, target.namespace, source.metric.selector)
    if mode == "external_per_pod":
        return calculator.get_external_per_pod_metric_replicas(target.status_replicas, *asked)
    return calculator.get_external_metric_replicas(target.spec_replicas, *asked, target.selector)


def _of_resource(
    source: ResourceMetricSource | ContainerResourceMetricSource, replicas: Replicas
) -> MetricProposal | MetricError:
    """Resource and ContainerResource: the same but for what they are called."""
    of_requests = source.target.average_value is None
    if replicas.error is not None:
        what = "utilization" if of_requests else "usage"
        return _failure(source).of(f"failed to get {source.name} {what}: {replicas.error}", replicas=replicas)
    current = MetricValueStatus(
        average_utilization=replicas.utilization if of_requests else None,
        average_value=status_quantity(replicas.usage, source.name),
    )
    name = f"{source.name} resource"
    if isinstance(source, ContainerResourceMetricSource):
        of_container = ContainerResourceMetricStatus(name=source.name, container=source.container, current=current)
        status = MetricStatus(type="ContainerResource", container_resource=of_container)
        whose = f"{source.name} container resource"
    else:
        status = MetricStatus(type="Resource", resource=ResourceMetricStatus(name=source.name, current=current))
        whose = name
    # Upstream forgets the container where the target is an average.
    name = f"{whose} utilization (percentage of request)" if of_requests else name
    return MetricProposal(name, status, replicas)


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


def _failure(source: MetricSource) -> _Failure:
    """How errors of a source are told."""
    if isinstance(source, ResourceMetricSource):
        return _Failure("FailedGetResourceMetric", f"failed to get {source.name} resource metric value")
    if isinstance(source, ContainerResourceMetricSource):
        outer = f"failed to get {source.container} container metric value"
        return _Failure("FailedGetContainerResourceMetric", outer)
    if isinstance(source, PodsMetricSource):
        return _Failure("FailedGetPodsMetric", "failed to get pods metric value")
    if isinstance(source, ObjectMetricSource):
        return _Failure("FailedGetObjectMetric", "failed to get object metric value")
    return _Failure("FailedGetExternalMetric", f"failed to get {source.metric.name} external metric value")


def _layer(source: PodsMetricSource | ObjectMetricSource | ExternalMetricSource) -> str:
    """What the aggregated error puts before the calculator's."""
    if isinstance(source, PodsMetricSource):
        return ""
    mode, _ = value_target(source)
    metric = source.metric.name
    if mode == "object_per_pod":
        return f"failed to get {metric} object metric: "
    if mode == "external_per_pod":
        return f"failed to get {metric} external metric: "
    return f"failed to get external metric {metric}: " if mode == "external_value" else ""


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
