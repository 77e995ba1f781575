"""How many replicas one metric asks for: upstream's seven functions, over a native kernel.

Each is a calculation: a generator that yields :class:`~kscale.hpa.actions.ListPods` (and what its metrics client
yields) where upstream asks, and returns a :class:`Replicas`. :func:`run` answers from a list of pods.

Upstream: ``pkg/controller/podautoscaler/replica_calculator.go``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from kscale._native import _replicas
from kscale.hpa.actions import Action, Failure, ListPods, Outcome
from kscale.hpa.go_text import print_label_selector
from kscale.hpa.moments import ZERO_TIME
from kscale.hpa.options import HPAOptions
from kscale.hpa.pod_groups import GROUPS, PodColumns, Sample, SampleColumns, group_pods, pod_requests
from kscale.objects.autoscaling import CrossVersionObjectReference
from kscale.objects.core import Pod
from kscale.objects.meta import LabelSelector
from kscale.objects.selector_text import parse_selector
from kscale.objects.selectors import compile_selector

__all__ = [
    "Calculation",
    "MetricsClient",
    "MetricsError",
    "PodValues",
    "ReplicaCalculator",
    "Replicas",
    "Tolerances",
    "run",
]

MODES: Final = ("utilization", "usage", "object_value", "object_per_pod", "external_value", "external_per_pod")
_UTILIZATION, _USAGE, _OBJECT_VALUE, _OBJECT_PER_POD, _EXTERNAL_VALUE, _EXTERNAL_PER_POD = range(6)

_NO_PODS: Final = "no pods returned by selector while calculating replica count"
_ERRORS: Final = {
    3: _NO_PODS,
    4: "did not receive metrics for targeted pods (pods might be unready)",
    6: "no metrics returned matched known pods",
}
_BAD_REQUEST: Final = 5
_PATHS: Final = ((1, "hold_first_pass"), (2, "second_pass"), (4, "hold_second_pass"), (8, "hold_count_direction"))


class MetricsError(Exception):
    """A metrics client's error; the text is upstream's."""


@dataclass(frozen=True, slots=True)
class PodValues:
    """Values by pod name, and the time of the first of them."""

    samples: Mapping[str, Sample]
    timestamp: int = ZERO_TIME


class MetricsClient(Protocol):
    """Where calculations get their metrics; each method is a generator and raises :class:`MetricsError`."""

    def get_resource_metric(
        self, resource: str, namespace: str, selector: str, container: str
    ) -> Generator[Action, Outcome, PodValues]:
        """Usage of a resource by pod; of one container, or of all."""
        ...

    def get_raw_metric(
        self, metric: str, namespace: str, selector: str, metric_selector: str
    ) -> Generator[Action, Outcome, PodValues]:
        """A custom metric by pod."""
        ...

    def get_object_metric(
        self, metric: str, namespace: str, described: CrossVersionObjectReference, metric_selector: str
    ) -> Generator[Action, Outcome, tuple[int, int]]:
        """A custom metric of one object, milli, and its time."""
        ...

    def get_external_metric(
        self, metric: str, namespace: str, metric_selector: str
    ) -> Generator[Action, Outcome, tuple[Sequence[int], int]]:
        """The values of an external metric, milli, and the time of the first."""
        ...


@dataclass(frozen=True, slots=True)
class Tolerances:
    """How far the ratio of usage to target may be from 1 before anything changes, by direction."""

    scale_down: float = 0.1
    scale_up: float = 0.1


@dataclass(frozen=True, slots=True)
class Replicas:
    """What a calculation came to.

    ``utilization`` is in percent (resource utilisation only), ``usage`` in milli-units: the average of the pods, or the
    value. ``timestamp`` is nanoseconds since 1970. With an ``error`` the number of replicas is 0. The rest says how:
    the pods by group, the ratio of usage to target before and after filling in what is missing, the branches taken.
    """

    replicas: int = 0
    utilization: int | None = None
    usage: int = 0
    timestamp: int = ZERO_TIME
    error: str | None = None
    path: tuple[str, ...] = ()
    ratio: float = 0.0
    second_ratio: float = 0.0
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)


Calculation = Generator[Action, Outcome, Replicas]
Values = tuple[Sequence[int], int]
"""Values of a metric that is not of pods, milli, and the time of the first."""
_T = TypeVar("_T")


def run(calculation: Calculation, pods: Sequence[Pod] | Failure = ()) -> Replicas:
    """Answer a calculation whose metrics client asks for nothing: from pods (of any namespace, with any labels)."""
    try:
        action = next(calculation)
        while True:
            if not isinstance(action, ListPods):
                raise TypeError(f"cannot answer {type(action).__name__}")
            action = calculation.send(pods if isinstance(pods, Failure) else _matching(pods, action))
    except StopIteration as stop:
        result: Replicas = stop.value
        return result


def _matching(pods: Sequence[Pod], query: ListPods) -> list[Pod]:
    selector = parse_selector(query.selector)
    return [pod for pod in pods if pod.metadata.namespace == query.namespace and selector.matches(pod.metadata.labels)]


@dataclass(frozen=True, slots=True)
class ReplicaCalculator:
    """The seven functions over a metrics client, at one moment (nanoseconds since 1970)."""

    metrics: MetricsClient
    now: int
    options: HPAOptions = field(default_factory=HPAOptions)

    def get_resource_replicas(
        self,
        current_replicas: int,
        target_utilization: int,
        resource: str,
        tolerances: Tolerances,
        namespace: str,
        selector: str,
        container: str = "",
    ) -> Calculation:
        """By usage of a resource in percent of the pods' requests."""
        asked = self.metrics.get_resource_metric(resource, namespace, selector, container)
        values = yield from _answer(asked, f"unable to get metrics for resource {resource}")
        if isinstance(values, Replicas):
            return replace(values, utilization=0)
        pods = yield ListPods(namespace=namespace, selector=selector)
        out = self._of_pods(
            _UTILIZATION, current_replicas, target_utilization, resource, tolerances, pods, values, container
        )
        return out if out.error is None else Replicas(utilization=out.utilization, usage=out.usage, error=out.error)

    def get_raw_resource_replicas(
        self,
        current_replicas: int,
        target_usage: int,
        resource: str,
        tolerances: Tolerances,
        namespace: str,
        selector: str,
        container: str = "",
    ) -> Calculation:
        """By usage of a resource as an average of the pods, milli."""
        asked = self.metrics.get_resource_metric(resource, namespace, selector, container)
        failed = f"unable to get metrics for resource {resource}"
        return (
            yield from self._of_usage(
                current_replicas, target_usage, resource, tolerances, namespace, selector, asked, failed
            )
        )

    def get_metric_replicas(
        self,
        current_replicas: int,
        target_usage: int,
        metric: str,
        tolerances: Tolerances,
        namespace: str,
        selector: str,
        metric_selector: str = "",
    ) -> Calculation:
        """By a custom metric of the pods, as their average, milli."""
        asked = self.metrics.get_raw_metric(metric, namespace, selector, metric_selector)
        failed = f"unable to get metric {metric}"
        return (
            yield from self._of_usage(
                current_replicas, target_usage, "", tolerances, namespace, selector, asked, failed
            )
        )

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
    ) -> Calculation:
        """By a metric of one object, in proportion to the pods that are ready."""
        answer = yield from self._object(metric, namespace, described, metric_selector)
        return (
            yield from self._of_value(
                _OBJECT_VALUE, current_replicas, target_usage, tolerances, answer, namespace, selector
            )
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
    ) -> Calculation:
        """By a metric of one object, divided by the pods there are."""
        answer = yield from self._object(metric, namespace, described, metric_selector)
        return _per_pod(_OBJECT_PER_POD, status_replicas, target_average_usage, tolerances, answer)

    def get_external_metric_replicas(
        self,
        current_replicas: int,
        target_usage: int,
        metric: str,
        tolerances: Tolerances,
        namespace: str,
        metric_selector: LabelSelector | None,
        selector: str,
    ) -> Calculation:
        """By the sum of an external metric, in proportion to the pods that are ready."""
        answer = yield from self._external(metric, namespace, metric_selector)
        return (
            yield from self._of_value(
                _EXTERNAL_VALUE, current_replicas, target_usage, tolerances, answer, namespace, selector
            )
        )

    def get_external_per_pod_metric_replicas(
        self,
        status_replicas: int,
        target_usage_per_pod: int,
        metric: str,
        tolerances: Tolerances,
        namespace: str,
        metric_selector: LabelSelector | None,
    ) -> Calculation:
        """By the sum of an external metric, divided by the pods there are."""
        answer = yield from self._external(metric, namespace, metric_selector)
        return _per_pod(_EXTERNAL_PER_POD, status_replicas, target_usage_per_pod, tolerances, answer)

    def _object(
        self, metric: str, namespace: str, described: CrossVersionObjectReference, metric_selector: str
    ) -> Generator[Action, Outcome, Replicas | Values]:
        asked = self.metrics.get_object_metric(metric, namespace, described, metric_selector)
        answer = yield from _answer(
            asked, f"unable to get metric {metric} on {described.kind} {namespace}/{described.name}"
        )
        return answer if isinstance(answer, Replicas) else ([answer[0]], answer[1])

    def _external(
        self, metric: str, namespace: str, metric_selector: LabelSelector | None
    ) -> Generator[Action, Outcome, Replicas | Values]:
        try:
            selector = selector_text(metric_selector)
        except ValueError as error:
            return Replicas(error=str(error))
        asked = self.metrics.get_external_metric(metric, namespace, selector)
        printed = print_label_selector(metric_selector)
        return (yield from _answer(asked, f"unable to get external metric {namespace}/{metric}/{printed}"))

    def _of_usage(
        self,
        current: int,
        target: int,
        resource: str,
        tolerances: Tolerances,
        namespace: str,
        selector: str,
        asked: Generator[Action, Outcome, PodValues],
        failed: str,
    ) -> Calculation:
        """Averages of pods."""
        values = yield from _answer(asked, failed)
        if isinstance(values, Replicas):
            return values
        pods = yield ListPods(namespace=namespace, selector=selector)
        return self._of_pods(_USAGE, current, target, resource, tolerances, pods, values)

    def _of_value(
        self,
        mode: int,
        current: int,
        target: int,
        tolerances: Tolerances,
        answer: Replicas | Values,
        namespace: str,
        selector: str,
    ) -> Calculation:
        """Value-type metrics look at the pods only when the size would change."""
        if isinstance(answer, Replicas):
            return answer
        values, _ = answer
        held = _row(mode, current, target, tolerances, values=values)
        if current == 0 or "hold_first_pass" in held.path:
            return held
        pods = yield ListPods(namespace=namespace, selector=selector)
        if isinstance(pods, Failure):
            text = f"unable to get pods while calculating replica count: {pods.message}"
            return Replicas(usage=held.usage, error=f"unable to calculate ready pods: {text}")
        out = _row(mode, current, target, tolerances, values=values, pods=PodColumns.of(pods))  # type: ignore[arg-type]  # what ListPods is answered with
        if out.error is not None:
            return Replicas(usage=out.usage, error=f"unable to calculate ready pods: {out.error}")
        return out

    def _of_pods(
        self,
        mode: int,
        current: int,
        target: int,
        resource: str,
        tolerances: Tolerances,
        pods: Outcome,
        values: PodValues,
        container: str = "",
    ) -> Replicas:
        if isinstance(pods, Failure):
            text = f"unable to get pods while calculating replica count: {pods.message}"
            return Replicas(utilization=_percent(mode, 0), timestamp=values.timestamp, error=text)
        listed: Sequence[Pod] = pods  # type: ignore[assignment]  # what ListPods is answered with
        names = [pod.metadata.name for pod in listed]
        columns, samples = PodColumns.of(listed), SampleColumns.of(names, values.samples)
        known = set(names)
        extra = [sample.value for name, sample in values.samples.items() if name not in known]
        requests, bad, text = np.empty(0, np.int64), -1, ""
        if mode == _UTILIZATION:
            level = self.options.enabled("PodLevelResources")
            requests, bad, text = pod_requests(listed, container, resource, pod_level_resources=level)
        codes = group_pods(columns, samples, resource, options=self.options, now=self.now)
        groups = {name: [names[i] for i in np.flatnonzero(codes == code)] for code, name in enumerate(GROUPS)}
        return _row(
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
            periods=(self.now, self.options.cpu_initialization_ns, self.options.initial_readiness_ns),
        )


def selector_text(selector: LabelSelector | None) -> str:
    """A metric's label selector as it is sent: absent and empty are both not sent. Raises ``ValueError``."""
    return str(compile_selector(selector))


def _answer(asked: Generator[Action, Outcome, _T], failed: str) -> Generator[Action, Outcome, _T | Replicas]:
    """What a metrics client answers, or the calculation that ends with its error."""
    try:
        return (yield from asked)
    except MetricsError as error:
        return Replicas(error=f"{failed}: {error}")


def _per_pod(mode: int, pods: int, target: int, tolerances: Tolerances, answer: Replicas | Values) -> Replicas:
    if isinstance(answer, Replicas):
        return answer
    values, time = answer
    return _row(mode, pods, target, tolerances, values=values, timestamp=time)


def _percent(mode: int, value: int) -> int | None:
    return value if mode == _UTILIZATION else None


_EMPTY_PODS: Final = PodColumns.of(())
_EMPTY_SAMPLES: Final = SampleColumns.of((), {})
_EMPTY: Final = np.empty(0, np.int64)


def _row(
    mode: int,
    current: int,
    target: int,
    tolerances: Tolerances,
    *,
    cpu: bool = False,
    pods: PodColumns = _EMPTY_PODS,
    samples: SampleColumns = _EMPTY_SAMPLES,
    requests: NDArray[np.int64] = _EMPTY,
    bad_request: tuple[int, str] = (-1, ""),
    extra: Sequence[int] = (),
    values: Sequence[int] = (),
    timestamp: int = ZERO_TIME,
    groups: Mapping[str, Sequence[str]] | None = None,
    periods: tuple[int, int, int] = (0, 0, 0),
) -> Replicas:
    """One row through the kernel."""
    given = _replicas.calculate(
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
        np.array([wrap(sum(extra))], np.int64),
        np.zeros(1, np.int64),
        np.array([len(values)], np.int64),
        *pods.arrays,
        *samples.arrays,
        requests,
        np.array(values, np.int64),
        *periods,
    )
    replicas, utilization, usage, errors, paths, _, ratios = given
    code = int(errors[0])
    error = bad_request[1] if code == _BAD_REQUEST else _ERRORS.get(code)
    return Replicas(
        replicas=int(replicas[0]),
        utilization=_percent(mode, int(utilization[0])),
        usage=int(usage[0]),
        timestamp=timestamp,
        error=error,
        path=tuple(name for bit, name in _PATHS if paths[0] & bit),
        ratio=float(ratios[0, 0]),
        second_ratio=float(ratios[0, 1]),
        groups=groups or {},
    )


def wrap(value: int) -> int:
    """The low 64 bits, signed: what Go's int64 leaves of a sum."""
    return (value + 2**63) % 2**64 - 2**63
