"""Calculate how many replicas one metric proposes, over a native kernel.

Upstream: ``pkg/controller/podautoscaler/replica_calculator.go`` with its seven functions, ``groupPods`` and
``calculateRequests``. The kernel ``_native/include/kscale/hpa/replica_calculator.hpp`` decides usage ratios,
tolerances, missing and unready pods (``group_of``), and the ready count of metrics without pods. This module prepares
the kernel's inputs and interprets its results.

Each calculation yields :class:`~kscale.effects.List` (and the actions of its metrics client) where upstream sends a
request, and returns a :class:`~kscale.hpa.controller.replica_calculator.CalculatedReplicas`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, Final, Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _hpa
from kscale.effects import ZERO_TIME, GetMetric, List, Moment, Outcome, Progress, StepsOf, moment
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import CrossVersionObjectReference
from kscale.objects.api.core import Container, Pod
from kscale.objects.api.meta import LabelSelector
from kscale.objects.conditions import changed_at
from kscale.objects.pod_resources import demand, is_pod_level_resource, is_sidecar
from kscale.objects.selectors import compile_selector
from kscale.objects.times import moment_in

__all__ = [
    "CALCULATION_MODES",
    "CALCULATION_PATHS",
    "EMPTY_PODS",
    "EMPTY_SAMPLES",
    "POD_GROUPS",
    "CalculatedReplicas",
    "CalculationSteps",
    "MetricsClient",
    "MetricsError",
    "PodColumns",
    "PodSamples",
    "ReplicaCalculator",
    "Sample",
    "SampleColumns",
    "Tolerances",
    "calculate_row",
    "format_go_label_selector",
    "format_metric_selector",
    "get_error_text",
    "get_pod_request",
    "get_pod_requests",
    "group_pods",
    "wrap_int64",
]


POD_GROUPS: Final = ("ready", "unready", "missing", "ignored")
"""The groups by code. Ignored are deleting and failed pods; the calculators of 1.19.0 and before skip these pods, but
their samples stay in the sums."""

_PHASE_CODES: Final = {"Pending": 1, "Running": 2, "Failed": 3}
_READY_CODES: Final = {"True": 1, "False": 2, "Unknown": 3}


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a pod in milli-units, with its time and window in nanoseconds."""

    value: int
    timestamp: Moment = ZERO_TIME
    window: int = 0


@dataclass(frozen=True, slots=True)
class PodColumns:
    """Columns with one row per pod.

    ``phase``, ``deleting``, ``ready`` and ``started`` are uint8. ``start`` and ``transition`` are int64 nanoseconds.
    """

    phase: NDArray[np.uint8]
    deleting: NDArray[np.uint8]
    ready: NDArray[np.uint8]
    started: NDArray[np.uint8]
    start: NDArray[np.int64]
    transition: NDArray[np.int64]

    @classmethod
    def from_pods(cls, pods: Sequence[Pod]) -> PodColumns:
        """Build the columns of pods in their order. Raises InputError for a time of a pod that cannot be read."""
        n = len(pods)
        flags = np.zeros((4, n), np.uint8)
        times = np.full((2, n), ZERO_TIME, np.int64)
        for i, pod in enumerate(pods):
            status = pod.status
            flags[0, i] = _PHASE_CODES.get(status.phase, 0)
            flags[1, i] = pod.metadata.deletion_timestamp is not None
            for condition in status.conditions:
                if condition.type == "Ready":
                    flags[2, i] = _READY_CODES.get(condition.status, 3)
                    times[1, i] = changed_at(pod, condition)
                    break
            if status.start_time is not None:
                flags[3, i] = 1
                times[0, i] = moment_in(pod, status.start_time, "status.startTime")
        return cls(flags[0], flags[1], flags[2], flags[3], times[0], times[1])

    def __len__(self) -> int:
        return len(self.phase)

    def part(self, part: slice) -> PodColumns:
        """Return the columns for a slice of the rows (views, not copies)."""
        return PodColumns(*(column[part] for column in self.arrays))

    arrays = property(
        attrgetter("phase", "deleting", "ready", "started", "start", "transition"),
        doc="The arrays in the order of the kernels' arguments.",
    )


@dataclass(frozen=True, slots=True)
class SampleColumns:
    """Columns with one row per pod: ``present`` uint8; ``value`` (milli-units), ``time``, ``window`` (ns) int64."""

    present: NDArray[np.uint8]
    value: NDArray[np.int64]
    time: NDArray[np.int64]
    window: NDArray[np.int64]

    @classmethod
    def from_samples(cls, names: Sequence[str], samples: Mapping[str, Sample]) -> SampleColumns:
        """Build the columns of samples in the order of the pod names; ``present`` is 0 for a pod without a sample."""
        n = len(names)
        present = np.zeros(n, np.uint8)
        amounts = np.zeros((3, n), np.int64)
        for i, name in enumerate(names):
            sample = samples.get(name)
            if sample is not None:
                present[i] = 1
                amounts[0, i] = sample.value
                amounts[1, i] = sample.timestamp
                amounts[2, i] = sample.window
        return cls(present, amounts[0], amounts[1], amounts[2])

    def part(self, part: slice) -> SampleColumns:
        """Return the columns for a slice of the rows (views, not copies)."""
        return SampleColumns(*(column[part] for column in self.arrays))

    arrays = property(
        attrgetter("present", "value", "time", "window"), doc="The arrays in the order of the kernels' arguments."
    )


def group_pods(
    pods: PodColumns, samples: SampleColumns, resource: str, *, options: HPAOptions, now: Moment
) -> NDArray[np.uint8]:
    """Return the group of every pod as an index into :data:`POD_GROUPS` (uint8, one entry per pod).

    The start-up rules apply to ``cpu`` only.
    """
    arguments = (*pods.arrays, *samples.arrays, resource == "cpu", now, *options.calculator_terms)
    return _hpa.pod_groups(*arguments)


def get_pod_requests(
    pods: Sequence[Pod], container: str, resource: str, *, options: HPAOptions
) -> tuple[NDArray[np.int64], int, str]:
    """Return the pods' requests in milli-units, the index of the first pod without one, and its error.

    The index is -1 and the error empty if every pod has a request. Otherwise the requests from that pod on are 0.
    ``container`` empty: all containers. Pods that are being deleted are included.
    """
    out = np.zeros(len(pods), np.int64)
    for i, pod in enumerate(pods):
        amount = get_pod_request(pod, container, resource, options)
        if isinstance(amount, str):
            return out, i, amount
        out[i] = amount
    return out, -1, ""


def get_pod_request(pod: Any, container: str, resource: str, options: HPAOptions) -> int | str:
    """Return the request of one pod in milli-units, or an error text if it has none.

    With an empty ``container``: the pod-level request if the pod has pod-level requests of any resource (gate
    PodLevelResources), else the sum of all containers and sidecars, wrapped to 64 bits. The legacy profile ignores
    sidecars, and takes 0 as the request of a container that the pod lacks.
    """
    spec = pod.spec
    level = options.gates["PodLevelResources"]
    if not container and level and spec.resources is not None and _has_pod_level_resource(spec.resources.requests):
        amount = demand(pod).get(resource)
        if amount is None:
            return f"missing pod-level request for {resource} in Pod {pod.metadata.name}"
        return amount.milli_value()
    total = 0
    for spec_container in pod.spec.containers if options.legacy else _list_running_containers(pod):
        if container and spec_container.name != container:
            continue
        request = (spec_container.resources.requests or {}).get(resource)
        if request is None and options.legacy:
            return f"missing request for {resource}"
        if request is None:
            return f"missing request for {resource} in container {spec_container.name} of Pod {pod.metadata.name}"
        total += request.milli_value()
        if container:
            return request.milli_value()
    if container and not options.legacy:
        return f"container {container} not found in Pod {pod.metadata.name}"
    return (total + 2**63) % 2**64 - 2**63


def _list_running_containers(pod: Pod) -> list[Container]:
    """Return the containers that run as long as the pod does: the ordinary ones, then the sidecars."""
    return [
        *pod.spec.containers,
        *(init_container for init_container in pod.spec.init_containers if is_sidecar(init_container)),
    ]


def _has_pod_level_resource(requests: Mapping[str, object] | None) -> bool:
    """Check whether any of the requests is of a resource that a pod may request as a whole."""
    return any(map(is_pod_level_resource, requests or ()))


CALCULATION_MODES: Final = (
    "utilization",
    "usage",
    "object_value",
    "object_per_pod",
    "external_value",
    "external_per_pod",
)
"""Calculations by the kernel's code. ``usage`` stands for two functions of upstream."""

_MISSING_REQUEST_ERROR: Final = 5
_ERROR_TEXTS: Final = {
    3: "no pods returned by selector while calculating replica count",
    4: "did not receive metrics for targeted pods (pods might be unready)",
    6: "no metrics returned matched known pods",
}
_LEGACY_ERROR_TEXTS: Final = {**_ERROR_TEXTS, 4: "did not receive metrics for any ready pods"}
CALCULATION_PATHS: Final = (
    (1, "hold_first_pass"),
    (2, "second_pass"),
    (4, "hold_second_pass"),
    (8, "hold_count_direction"),
)
"""Branches of a calculation, by the kernel's bits."""


class MetricsError(Exception):
    """Error of a metrics client, with upstream's text."""


@dataclass(frozen=True, slots=True)
class PodSamples:
    """Values by pod name, and the time of the first of them."""

    samples: Mapping[str, Sample]
    timestamp: Moment = ZERO_TIME


@dataclass(frozen=True, slots=True)
class Tolerances:
    """Limits of how far the ratio of usage to target may be from 1 without a change, as fractions.

    ``scale_down`` applies below 1, ``scale_up`` above. With ``by_distance`` (legacy profile) the distance from 1 is
    compared with ``scale_up`` in both directions.
    """

    scale_down: float = 0.1
    scale_up: float = 0.1
    by_distance: bool = False

    def contains(self, ratio: float) -> bool:
        """Return True if a ratio is within the tolerance, so that the replicas stay.

        The kernel decides this in ``hpa/replica_calculator.hpp``. This method serves explanations.
        """
        if self.by_distance:
            return abs(1.0 - ratio) <= self.scale_up
        return 1.0 - self.scale_down <= ratio <= 1.0 + self.scale_up


class CalculatedReplicas(msgspec.Struct, frozen=True, gc=False):
    """Result of a calculation.

    - ``replicas``: the proposed replicas; 0 with an ``error`` (upstream's text);
    - ``utilization``: in percent, of resource utilization only; ``usage``: in milli-units, the average of the pods, or
      the value; ``timestamp``: of the first value;
    - details: ``path`` (the branches taken), ``ratio`` of usage to target, ``second_ratio`` after missing values
      were filled in, ``groups``: names of pods by :data:`~kscale.hpa.controller.replica_calculator.POD_GROUPS`.
    """

    replicas: int = 0
    utilization: int | None = None
    usage: int = 0
    timestamp: Moment = ZERO_TIME
    error: str | None = None
    path: tuple[str, ...] = ()
    ratio: float = 0.0
    second_ratio: float = 0.0
    groups: Mapping[str, Sequence[str]] = {}


CalculationSteps = StepsOf[GetMetric | List, CalculatedReplicas]
"""Steps of a calculation, which request metrics and pods where upstream does."""

EMPTY_PODS: Final = PodColumns.from_pods(())
EMPTY_SAMPLES: Final = SampleColumns.from_samples((), {})
_NO_VALUES: Final = np.empty(0, np.int64)


def calculate_row(
    mode: int,
    current: int,
    target: int,
    tolerances: Tolerances,
    *,
    cpu: bool = False,
    pods: PodColumns = EMPTY_PODS,
    samples: SampleColumns = EMPTY_SAMPLES,
    requests: NDArray[np.int64] = _NO_VALUES,
    bad_request: tuple[int, str] = (-1, ""),
    extra: Sequence[int] = (),
    values: Sequence[int] = (),
    timestamp: Moment = ZERO_TIME,
    groups: Mapping[str, Sequence[str]] | None = None,
    options: HPAOptions,
    now: Moment,
) -> CalculatedReplicas:
    """Calculate one row with the kernel (``kscale._native._hpa.calculate_replicas``).

    - ``mode``: index into :data:`CALCULATION_MODES`; ``target``: percent for utilization, else milli-units;
    - ``current``: replicas in the target's spec; in its status for the modes that end with ``_per_pod``;
    - ``cpu``: the metric is of the resource cpu, so that the start-up rules apply;
    - ``requests``: of pods; ``values``: of an object or external metric; ``extra``: values of pods that are not listed;
      all in milli-units;
    - ``bad_request``: index of the first pod without a request (-1: none), and its error;
    - ``timestamp``, ``groups``: only copied to the result.
    """
    columns = _hpa.calculate_replicas(
        np.array([mode], np.uint8),
        np.array([cpu], np.uint8),
        np.zeros(1, np.uint8),
        np.array([current], np.int32),
        np.array([target], np.int64),
        np.array([tolerances.scale_down], np.float64),
        np.array([tolerances.scale_up], np.float64),
        np.zeros(1, np.int64),
        np.array([len(pods)], np.int64),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        np.array([bad_request[0]], np.int32),
        np.array([len(extra)], np.int64),
        np.array([wrap_int64(sum(extra))], np.int64),
        np.zeros(1, np.int64),
        np.array([len(values)], np.int64),
        *(*pods.arrays, *samples.arrays, requests, np.array(values, np.int64), now, *options.calculator_terms),
    )
    replicas, utilization, usage, errors, paths, _, ratios = columns
    return CalculatedReplicas(
        replicas=int(replicas[0]),
        utilization=int(utilization[0]) if CALCULATION_MODES[mode] == "utilization" else None,
        usage=int(usage[0]),
        timestamp=timestamp,
        error=get_error_text(int(errors[0]), bad_request[1], legacy=options.legacy),
        path=tuple(name for bit, name in CALCULATION_PATHS if paths[0] & bit),
        ratio=float(ratios[0, 0]),
        second_ratio=float(ratios[0, 1]),
        groups=groups or {},
    )


def get_error_text(code: int, bad_request: str, *, legacy: bool = False) -> str | None:
    """Return upstream's text of the kernel's error code, or None if the code is no error.

    ``bad_request`` is the error of a pod without a request; ``legacy``: use the texts of the old controller.
    """
    return (
        bad_request if code == _MISSING_REQUEST_ERROR else (_LEGACY_ERROR_TEXTS if legacy else _ERROR_TEXTS).get(code)
    )


def wrap_int64(value: int) -> int:
    """Return the low 64 bits as a signed number, as Go's int64 wraps a sum."""
    return (value + 2**63) % 2**64 - 2**63


def format_go_label_selector(selector: LabelSelector | None) -> str:
    """Format a ``*metav1.LabelSelector`` as Go's ``%v`` does (None: ``nil``)."""
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in sorted((selector.match_labels or {}).items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{each.key},Operator:{each.operator},Values:[{' '.join(each.values)}],}},"
        for each in selector.match_expressions
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )


_UTILIZATION, _USAGE, _OBJECT_VALUE, _OBJECT_PER_POD, _EXTERNAL_VALUE, _EXTERNAL_PER_POD = range(len(CALCULATION_MODES))

_ValueRequest = StepsOf[GetMetric, CalculatedReplicas | tuple[Sequence[int], Moment]]
"""Request of a metric that is not of pods: its values in milli-units and the first one's time, or the error."""
_T = TypeVar("_T")
_LIST_PODS_ERROR: Final = "unable to get pods while calculating replica count"


class MetricsClient(Protocol):
    """Source of metrics for calculations.

    Each method is a step machine and raises :class:`~kscale.hpa.controller.replica_calculator.MetricsError`.
    """

    def get_resource_metric(
        self, resource: str, namespace: str, selector: str, container: str
    ) -> StepsOf[GetMetric, PodSamples]:
        """Get the usage of a resource by pod, in milli-units: of one container, or of all if ``container`` is empty."""
        ...

    def get_raw_metric(
        self, metric: str, namespace: str, selector: str, metric_selector: str
    ) -> StepsOf[GetMetric, PodSamples]:
        """Get a custom metric by pod, in milli-units."""
        ...

    def get_object_metric(
        self, metric: str, namespace: str, described: CrossVersionObjectReference, metric_selector: str
    ) -> StepsOf[GetMetric, tuple[int, Moment]]:
        """Get (value of a custom metric of one object in milli-units, its time). Raises MetricsError."""
        ...

    def get_external_metric(
        self, metric: str, namespace: str, metric_selector: str
    ) -> StepsOf[GetMetric, tuple[Sequence[int], Moment]]:
        """Get (values of an external metric in milli-units, time of the first)."""
        ...


@dataclass(frozen=True, slots=True)
class ReplicaCalculator:
    """Upstream's seven calculations over a metrics client (``metrics``) at one moment (``now``).

    Requests are sent through ``progress``. ``options`` define when pods count as unready. Arguments of the methods:

    - ``current_replicas``, ``status_replicas``: replicas in the target's spec and status.
    - ``target_utilization``: target in percent of requests.
    - ``target_usage``, ``target_usage_per_pod``, ``target_average_usage``: targets in milli-units.
    - ``metric``: name of the metric.
    - ``tolerances``: how far from the target a ratio may be, up and down.
    - ``namespace``: the HPA's namespace.
    - ``selector``: selector of the target's pods, as a text.
    - ``metric_selector``: selector of the series, as a text; of an external metric, as an object (None: all series).
    - ``container``: the only container that counts (empty for all).
    - ``described``: the object that the metric is about.

    If a metric or pods cannot be fetched, or a selector is invalid, the result has an ``error``.
    """

    metrics: MetricsClient
    progress: Progress
    now: Moment
    options: HPAOptions = field(default_factory=HPAOptions)

    def __post_init__(self) -> None:
        object.__setattr__(self, "now", moment(self.now))

    def get_resource_replicas(
        self,
        current_replicas: int,
        target_utilization: int,
        resource: str,
        tolerances: Tolerances,
        namespace: str,
        selector: str,
        container: str = "",
    ) -> CalculationSteps:
        """Calculate replicas from the usage of a resource in percent of the pods' requests, and a target percentage."""
        request = self.metrics.get_resource_metric(resource, namespace, selector, container)
        failed = f"unable to get metrics for resource {resource}"
        of_pods = (current_replicas, target_utilization, resource, tolerances, namespace, selector)
        out = yield from self._calculate_from_pods(_UTILIZATION, *of_pods, request, failed, container)
        return (
            out
            if out.error is None
            else CalculatedReplicas(utilization=out.utilization or 0, usage=out.usage, error=out.error)
        )

    def get_raw_resource_replicas(
        self,
        current_replicas: int,
        target_usage: int,
        resource: str,
        tolerances: Tolerances,
        namespace: str,
        selector: str,
        container: str = "",
    ) -> CalculationSteps:
        """Calculate replicas from the average usage of a resource per pod and a target per pod (milli-units)."""
        request = self.metrics.get_resource_metric(resource, namespace, selector, container)
        failed = f"unable to get metrics for resource {resource}"
        of_pods = (current_replicas, target_usage, resource, tolerances, namespace, selector)
        return self._calculate_from_pods(_USAGE, *of_pods, request, failed)

    def get_metric_replicas(
        self,
        current_replicas: int,
        target_usage: int,
        metric: str,
        tolerances: Tolerances,
        namespace: str,
        selector: str,
        metric_selector: str = "",
    ) -> CalculationSteps:
        """Calculate replicas from the average of a custom metric per pod and a target per pod (milli-units)."""
        request = self.metrics.get_raw_metric(metric, namespace, selector, metric_selector)
        of_pods = (current_replicas, target_usage, "", tolerances, namespace, selector)
        return self._calculate_from_pods(_USAGE, *of_pods, request, f"unable to get metric {metric}")

    def get_object_metric_replicas(
        self,
        current_replicas: int,
        target_usage: int,
        metric: str,
        tolerances: Tolerances,
        namespace: str,
        described: CrossVersionObjectReference,
        selector: str,
        metric_selector: str = "",
    ) -> CalculationSteps:
        """Calculate replicas from a metric of one object: value / target * ready pods, rounded up.

        ``target_usage`` is in milli-units. Within the tolerance, ``current_replicas``. From 0 current replicas: value /
        target, rounded up.
        """
        request = self._request_object_metric(metric, namespace, described, metric_selector)
        return self._calculate_from_value(
            _OBJECT_VALUE, current_replicas, target_usage, tolerances, request, namespace, selector
        )

    def get_object_per_pod_metric_replicas(
        self,
        status_replicas: int,
        target_average_usage: int,
        metric: str,
        tolerances: Tolerances,
        namespace: str,
        described: CrossVersionObjectReference,
        metric_selector: str = "",
    ) -> CalculationSteps:
        """Calculate replicas from a metric of one object: value / target per pod, rounded up.

        ``target_average_usage`` is in milli-units. ``status_replicas`` if the value per replica is within the tolerance
        of the target.
        """
        request = self._request_object_metric(metric, namespace, described, metric_selector)
        return self._calculate_per_pod(_OBJECT_PER_POD, status_replicas, target_average_usage, tolerances, request)

    def get_external_metric_replicas(
        self,
        current_replicas: int,
        target_usage: int,
        metric: str,
        tolerances: Tolerances,
        namespace: str,
        metric_selector: LabelSelector | None,
        selector: str,
    ) -> CalculationSteps:
        """Calculate replicas from the sum of an external metric: sum / target * ready pods, rounded up.

        ``target_usage`` is in milli-units. Within the tolerance, ``current_replicas``. From 0 current replicas: sum /
        target, rounded up.
        """
        request = self._request_external_metric(metric, namespace, metric_selector)
        return self._calculate_from_value(
            _EXTERNAL_VALUE, current_replicas, target_usage, tolerances, request, namespace, selector
        )

    def get_external_per_pod_metric_replicas(
        self,
        status_replicas: int,
        target_usage_per_pod: int,
        metric: str,
        tolerances: Tolerances,
        namespace: str,
        metric_selector: LabelSelector | None,
    ) -> CalculationSteps:
        """Calculate replicas from the sum of an external metric: sum / target per pod, rounded up.

        ``target_usage_per_pod`` is in milli-units. ``status_replicas`` if the sum per replica is within the tolerance
        of the target.
        """
        request = self._request_external_metric(metric, namespace, metric_selector)
        return self._calculate_per_pod(_EXTERNAL_PER_POD, status_replicas, target_usage_per_pod, tolerances, request)

    def _list_pods(self, namespace: str, selector: str) -> StepsOf[List, Outcome]:
        """List the pods of a selector. The outcome has the pods or the API's error."""
        return (yield from self.progress.act(List(kind="Pod", namespace=namespace, selector=selector)))

    def _request_object_metric(
        self, metric: str, namespace: str, described: CrossVersionObjectReference, metric_selector: str
    ) -> _ValueRequest:
        """Return ([value in milli-units], time) of an object's metric, or a calculation with the error."""
        request = self.metrics.get_object_metric(metric, namespace, described, metric_selector)
        failed = f"unable to get metric {metric} on {described.kind} {namespace}/{described.name}"
        response = yield from _request_values(request, failed)
        return response if isinstance(response, CalculatedReplicas) else ([response[0]], response[1])

    def _request_external_metric(
        self, metric: str, namespace: str, metric_selector: LabelSelector | None
    ) -> _ValueRequest:
        """Return (values in milli-units, time) of an external metric, or a calculation with the error."""
        try:
            selector = format_metric_selector(metric_selector)
        except ValueError as error:
            return CalculatedReplicas(error=str(error))
        request = self.metrics.get_external_metric(metric, namespace, selector)
        printed = format_go_label_selector(metric_selector)
        return (yield from _request_values(request, f"unable to get external metric {namespace}/{metric}/{printed}"))

    def _calculate_from_value(
        self,
        mode: int,
        current: int,
        target: int,
        tolerances: Tolerances,
        request: _ValueRequest,
        namespace: str,
        selector: str,
    ) -> CalculationSteps:
        """Calculate replicas from the values of ``request``. Other arguments as for :func:`calculate_row`.

        Pods are listed only if there are replicas now and their number would change.
        """
        response = yield from request
        if isinstance(response, CalculatedReplicas):
            return response
        calculate = partial(
            calculate_row,
            mode,
            current,
            target,
            tolerances,
            values=response[0],
            options=self.options,
            now=self.now,
        )
        first_pass = calculate()
        if current == 0 or "hold_first_pass" in first_pass.path:
            return first_pass
        pods = yield from self._list_pods(namespace, selector)
        if pods.error is not None:
            text = f"{_LIST_PODS_ERROR}: {pods.error.message}"
            return CalculatedReplicas(usage=first_pass.usage, error=f"unable to calculate ready pods: {text}")
        out = calculate(pods=PodColumns.from_pods(pods.value))
        if out.error is not None:
            return CalculatedReplicas(usage=out.usage, error=f"unable to calculate ready pods: {out.error}")
        return out

    def _calculate_per_pod(
        self, mode: int, pods: int, target: int, tolerances: Tolerances, request: _ValueRequest
    ) -> CalculationSteps:
        """Calculate replicas from the values of ``request`` and a target per pod. ``pods``: the status replicas."""
        response = yield from request
        if isinstance(response, CalculatedReplicas):
            return response
        values, time = response
        return calculate_row(
            mode, pods, target, tolerances, values=values, timestamp=time, options=self.options, now=self.now
        )

    def _calculate_from_pods(
        self,
        mode: int,
        current: int,
        target: int,
        resource: str,
        tolerances: Tolerances,
        namespace: str,
        selector: str,
        request: StepsOf[GetMetric, PodSamples],
        failed: str,
        container: str = "",
    ) -> CalculationSteps:
        """Calculate replicas from samples of pods, which ``request`` gets.

        ``failed``: prefix of the error if the request fails.
        """
        values = yield from _request_values(request, failed)
        if isinstance(values, CalculatedReplicas):
            return values
        pods = yield from self._list_pods(namespace, selector)
        if pods.error is not None:
            text = f"{_LIST_PODS_ERROR}: {pods.error.message}"
            return CalculatedReplicas(timestamp=values.timestamp, error=text)
        listed: Sequence[Pod] = pods.value
        names = [pod.metadata.name for pod in listed]
        columns, samples = PodColumns.from_pods(listed), SampleColumns.from_samples(names, values.samples)
        listed_names = set(names)
        extra = [sample.value for name, sample in values.samples.items() if name not in listed_names]
        requests, bad, text = _NO_VALUES, -1, ""
        if mode == _UTILIZATION:
            requests, bad, text = get_pod_requests(listed, container, resource, options=self.options)
        codes = group_pods(columns, samples, resource, options=self.options, now=self.now)
        groups = {name: [names[i] for i in np.flatnonzero(codes == code)] for code, name in enumerate(POD_GROUPS)}
        return calculate_row(
            mode,
            current,
            target,
            tolerances,
            cpu=resource == "cpu",
            pods=columns,
            samples=samples,
            requests=requests,
            bad_request=(bad, text),
            extra=extra,
            timestamp=values.timestamp,
            groups=groups,
            options=self.options,
            now=self.now,
        )


def format_metric_selector(selector: LabelSelector | None) -> str:
    """Format a metric's label selector as it is sent; an absent or empty one gives an empty text, which is not sent.

    Raises ``ValueError`` if the selector is invalid.
    """
    return str(compile_selector(selector))


def _request_values(request: StepsOf[GetMetric, _T], failed: str) -> StepsOf[GetMetric, _T | CalculatedReplicas]:
    """Return the metrics client's values, or a calculation with the client's error after the prefix ``failed``."""
    try:
        return (yield from request)
    except MetricsError as error:
        return CalculatedReplicas(error=f"{failed}: {error}")
