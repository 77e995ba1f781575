"""How many replicas one metric asks for: upstream's seven functions, over a native kernel.

Decided in C++: ``_native/include/kscale/hpa/replica_calculator.hpp`` (usage ratios, tolerances, missing and
unready pods, the ready count of whole metrics). Here is what it is given, and what its answer means.

Each is a calculation: it yields :class:`~kscale.effects.List` (and what its metrics client yields) where upstream asks,
and returns a :class:`~kscale.hpa.calculation.Replicas`.

Upstream: ``pkg/controller/podautoscaler/replica_calculator.go``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

import msgspec
import numpy as np

from kscale.effects import GetMetric, List, Moment, Outcome, Progress, StepsOf, moment
from kscale.hpa.calculation import (
    MODES,
    Calculation,
    MetricsError,
    PodValues,
    Replicas,
    Tolerances,
    calculate_row,
)
from kscale.hpa.go_text import print_label_selector
from kscale.hpa.options import HPAOptions
from kscale.hpa.pod_groups import GROUPS, PodColumns, SampleColumns, group_pods, pod_requests
from kscale.objects.autoscaling import CrossVersionObjectReference
from kscale.objects.core import Pod
from kscale.objects.meta import LabelSelector
from kscale.objects.selectors import compile_selector

__all__ = ["MetricsClient", "ReplicaCalculator", "selector_text"]

_UTILIZATION, _USAGE, _OBJECT_VALUE, _OBJECT_PER_POD, _EXTERNAL_VALUE, _EXTERNAL_PER_POD = range(len(MODES))

Values = tuple[Sequence[int], Moment]
"""Values of a metric that is not of pods, milli, and the time of the first."""
_T = TypeVar("_T")
_UNLISTED: Final = "unable to get pods while calculating replica count"


class MetricsClient(Protocol):
    """Where calculations get their metrics; each method is a step machine and raises
    :class:`~kscale.hpa.calculation.MetricsError`."""

    def get_resource_metric(
        self, resource: str, namespace: str, selector: str, container: str
    ) -> StepsOf[GetMetric, PodValues]:
        """Usage of a resource by pod; of one container, or of all."""
        ...

    def get_raw_metric(
        self, metric: str, namespace: str, selector: str, metric_selector: str
    ) -> StepsOf[GetMetric, PodValues]:
        """A custom metric by pod."""
        ...

    def get_object_metric(
        self, metric: str, namespace: str, described: CrossVersionObjectReference, metric_selector: str
    ) -> StepsOf[GetMetric, tuple[int, Moment]]:
        """A custom metric of one object, milli, and its time."""
        ...

    def get_external_metric(
        self, metric: str, namespace: str, metric_selector: str
    ) -> StepsOf[GetMetric, tuple[Sequence[int], Moment]]:
        """The values of an external metric, milli, and the time of the first."""
        ...


@dataclass(frozen=True, slots=True)
class ReplicaCalculator:
    """The seven functions over a metrics client (``metrics``), at one moment (``now``). Asks by way of ``progress``.

    ``current_replicas``, ``status_replicas``: of the target's spec and status. Targets: ``target_utilization`` in
    percent of requests; ``target_usage``, ``target_usage_per_pod`` and ``target_average_usage`` in milli-units.
    ``tolerances``: how far from its target a ratio may be, up and down. ``namespace``: where the HPA is; ``selector``:
    of the target's pods, as a text; ``metric_selector``: of the series, likewise; ``container``: the only one that
    counts (empty: all); ``described``: the object that the metric is about. ``options``: what makes pods count as
    unready.
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
    ) -> Calculation:
        """By usage of a resource in percent of the pods' requests."""
        asked = self.metrics.get_resource_metric(resource, namespace, selector, container)
        values = yield from _answer(asked, f"unable to get metrics for resource {resource}")
        if isinstance(values, Replicas):
            return msgspec.structs.replace(values, utilization=0)
        pods = yield from self._list(namespace, selector)
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
        return self._per_pod(_OBJECT_PER_POD, status_replicas, target_average_usage, tolerances, answer)

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
        return self._per_pod(_EXTERNAL_PER_POD, status_replicas, target_usage_per_pod, tolerances, answer)

    def _list(self, namespace: str, selector: str) -> StepsOf[List, Outcome]:
        return (yield from self.progress.act(List(kind="Pod", namespace=namespace, selector=selector)))

    def _object(
        self, metric: str, namespace: str, described: CrossVersionObjectReference, metric_selector: str
    ) -> StepsOf[GetMetric, Replicas | Values]:
        asked = self.metrics.get_object_metric(metric, namespace, described, metric_selector)
        answer = yield from _answer(
            asked, f"unable to get metric {metric} on {described.kind} {namespace}/{described.name}"
        )
        return answer if isinstance(answer, Replicas) else ([answer[0]], answer[1])

    def _external(
        self, metric: str, namespace: str, metric_selector: LabelSelector | None
    ) -> StepsOf[GetMetric, Replicas | Values]:
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
        asked: StepsOf[GetMetric, PodValues],
        failed: str,
    ) -> Calculation:
        """Averages of pods."""
        values = yield from _answer(asked, failed)
        if isinstance(values, Replicas):
            return values
        pods = yield from self._list(namespace, selector)
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
        terms = self.options.terms(self.now)
        held = calculate_row(mode, current, target, tolerances, values=values, terms=terms)
        if current == 0 or "hold_first_pass" in held.path:
            return held
        pods = yield from self._list(namespace, selector)
        if pods.error is not None:
            text = f"{_UNLISTED}: {pods.error.message}"
            return Replicas(usage=held.usage, error=f"unable to calculate ready pods: {text}")
        out = calculate_row(
            mode, current, target, tolerances, values=values, pods=PodColumns.of(pods.value), terms=terms
        )
        if out.error is not None:
            return Replicas(usage=out.usage, error=f"unable to calculate ready pods: {out.error}")
        return out

    def _per_pod(
        self, mode: int, pods: int, target: int, tolerances: Tolerances, answer: Replicas | Values
    ) -> Replicas:
        if isinstance(answer, Replicas):
            return answer
        values, time = answer
        terms = self.options.terms(self.now)
        return calculate_row(mode, pods, target, tolerances, values=values, timestamp=time, terms=terms)

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
        if pods.error is not None:
            text = f"{_UNLISTED}: {pods.error.message}"
            return Replicas(utilization=0 if mode == _UTILIZATION else None, timestamp=values.timestamp, error=text)
        listed: Sequence[Pod] = pods.value
        names = [pod.metadata.name for pod in listed]
        columns, samples = PodColumns.of(listed), SampleColumns.of(names, values.samples)
        known = set(names)
        extra = [sample.value for name, sample in values.samples.items() if name not in known]
        requests, bad, text = np.empty(0, np.int64), -1, ""
        if mode == _UTILIZATION:
            requests, bad, text = pod_requests(listed, container, resource, options=self.options)
        codes = group_pods(columns, samples, resource, options=self.options, now=self.now)
        groups = {name: [names[i] for i in np.flatnonzero(codes == code)] for code, name in enumerate(GROUPS)}
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
            terms=self.options.terms(self.now),
        )


def selector_text(selector: LabelSelector | None) -> str:
    """A metric's label selector as it is sent: absent and empty are both not sent. Raises ``ValueError``."""
    return str(compile_selector(selector))


def _answer(asked: StepsOf[GetMetric, _T], failed: str) -> StepsOf[GetMetric, _T | Replicas]:
    """What a metrics client answers, or the calculation that ends with its error."""
    try:
        return (yield from asked)
    except MetricsError as error:
        return Replicas(error=f"{failed}: {error}")
