"""Answers to metric queries from lists: what a dump of the metrics APIs holds.

Upstream asks servers; the lists are what ``kubectl get --raw`` prints of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kscale.hpa.actions import Failure, GetMetric
from kscale.objects.core import Pod
from kscale.objects.metrics import (
    ExternalMetricValue,
    ExternalMetricValueList,
    MetricValue,
    MetricValueList,
    PodMetrics,
    PodMetricsList,
)
from kscale.objects.selector_text import parse_selector
from kscale.objects.selectors import EVERYTHING, Selector

__all__ = ["MetricLists"]


def _selector(text: str) -> Selector:
    return parse_selector(text) if text else EVERYTHING


@dataclass(slots=True)
class MetricLists:
    """Metrics by namespace, answering :class:`~kscale.hpa.actions.GetMetric`.

    An API whose list is absent (``resource``, ``custom``, ``external`` false) fails as an unregistered API does.
    """

    resource: bool = False
    custom: bool = False
    external: bool = False
    _pods: dict[str, list[PodMetrics]] = field(default_factory=dict)
    _custom: dict[tuple[str, str], list[MetricValue]] = field(default_factory=dict)
    _external: dict[tuple[str, str], list[ExternalMetricValue]] = field(default_factory=dict)
    _labels: dict[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)

    def know_pods(self, pods: Iterable[Pod]) -> None:
        """Labels of pods, for lists whose items carry none."""
        for pod in pods:
            self._labels[pod.metadata.namespace, pod.metadata.name] = pod.metadata.labels or {}

    def add_pod_metrics(self, items: Iterable[PodMetrics]) -> None:
        """Items of a PodMetricsList."""
        self.resource = True
        for item in items:
            self._pods.setdefault(item.metadata.namespace, []).append(item)

    def add_custom(self, items: Iterable[MetricValue]) -> None:
        """Items of a MetricValueList, of pods and of other objects."""
        self.custom = True
        for item in items:
            self._custom.setdefault((item.described_object.namespace, item.name), []).append(item)

    def add_external(self, namespace: str, items: Iterable[ExternalMetricValue]) -> None:
        """Items of an ExternalMetricValueList, which does not say its namespace."""
        self.external = True
        for item in items:
            self._external.setdefault((namespace, item.metric_name), []).append(item)

    def __call__(
        self, query: GetMetric
    ) -> PodMetricsList | MetricValueList | MetricValue | ExternalMetricValueList | Failure:
        """The answer to one query."""
        if not getattr(self, query.api):
            return Failure(f"the {query.api} metrics API is not part of the input", "NotFound")
        if query.api == "resource":
            selector = _selector(query.selector)
            items = self._pods.get(query.namespace, ())
            return PodMetricsList(items=[each for each in items if selector.matches(self._pod_labels(each))])
        if query.api == "external":
            metric = _selector(query.metric_selector)
            values = self._external.get((query.namespace, query.metric), ())
            return ExternalMetricValueList(items=[each for each in values if metric.matches(each.metric_labels)])
        return self._custom_metric(query)

    def _pod_labels(self, item: PodMetrics) -> Mapping[str, str]:
        if item.metadata.labels is not None:
            return item.metadata.labels
        return self._labels.get((item.metadata.namespace, item.metadata.name), {})

    def _custom_metric(self, query: GetMetric) -> MetricValueList | MetricValue | Failure:
        kind = query.kind.partition(".")[0]
        items: Sequence[MetricValue] = self._custom.get((query.namespace, query.metric), ())
        items = [each for each in items if each.described_object.kind == kind]
        if not query.name:
            selector = _selector(query.selector)
            return MetricValueList(
                items=[
                    each
                    for each in items
                    if selector.matches(self._labels.get((query.namespace, each.described_object.name), {}))
                ]
            )
        for each in items:
            if each.described_object.name == query.name:
                return each
        text = f"the server could not find the metric {query.metric} for {query.kind} {query.name}"
        return Failure(text, "NotFound")
