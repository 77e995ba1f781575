"""Answers to metric queries from lists: what a dump of the metrics APIs holds.

Upstream asks servers; the lists are what ``kubectl get --raw`` prints of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kscale.effects import ApiError, GetMetric
from kscale.effects.outcomes import NOT_FOUND
from kscale.hpa.replica_calculator import selector_text
from kscale.objects.core import Pod
from kscale.objects.kinds import group_of
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


_Labels = tuple[tuple[str, str], ...]


def _asked(item: MetricValue) -> str | None:
    """The metric's label selector that an item says it was asked for with; None: it says nothing."""
    told = item.metric.selector if item.metric is not None else item.selector
    if told is None:
        return None
    try:
        return selector_text(told)
    except ValueError:
        return None


def _is_of(item: MetricValue, kind: str) -> bool:
    """Whether an item describes an object of ``Kind.group``; one that does not say its group may."""
    name, _, group = kind.partition(".")
    described = item.described_object
    return described.kind == name and (not described.api_version or group_of(described.api_version) == group)


def _is_asked(item: ExternalMetricValue, selector: Selector) -> bool:
    """Whether the server would have answered a value; one without labels does not say which it was asked for with."""
    return item.metric_labels is None or selector.matches(item.metric_labels)


def _selector(text: str) -> Selector:
    return parse_selector(text) if text else EVERYTHING


@dataclass(slots=True)
class MetricLists:
    """Metrics by namespace, answering :class:`~kscale.effects.GetMetric`.

    An API whose list is absent (``resource``, ``custom``, ``external`` false) fails as an unregistered API does.
    """

    resource: bool = False
    custom: bool = False
    external: bool = False
    _pods: dict[str, dict[str, PodMetrics]] = field(default_factory=dict)
    _custom: dict[tuple[str, str], dict[tuple[str, ...], MetricValue]] = field(default_factory=dict)
    _external: dict[tuple[str, str], dict[_Labels, tuple[int, list[ExternalMetricValue]]]] = field(default_factory=dict)
    _labels: dict[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)

    def know_pods(self, pods: Iterable[Pod]) -> None:
        """Labels of pods, for lists whose items carry none."""
        for pod in pods:
            self._labels[pod.metadata.namespace, pod.metadata.name] = pod.metadata.labels or {}

    def add_pod_metrics(self, items: Iterable[PodMetrics]) -> list[str]:
        """Items of a PodMetricsList; returns what was there already, of which the last counts."""
        self.resource, again = True, []
        for item in items:
            of = self._pods.setdefault(item.metadata.namespace, {})
            if item.metadata.name in of:
                again.append(f"PodMetrics {item.metadata.namespace}/{item.metadata.name}")
            of[item.metadata.name] = item
        return again

    def add_custom(self, items: Iterable[MetricValue]) -> list[str]:
        """Items of a MetricValueList, of pods and of other objects; returns as :meth:`add_pod_metrics`."""
        self.custom, again = True, []
        for item in items:
            described = item.described_object
            of = self._custom.setdefault((described.namespace, item.name), {})
            key = (described.kind, described.name, group_of(described.api_version), _asked(item) or "")
            if key in of:
                again.append(f"MetricValue {item.name} of {described.kind} {described.namespace}/{described.name}")
            of[key] = item
        return again

    def add_external(self, namespace: str, items: Iterable[ExternalMetricValue], number: int = 0) -> list[str]:
        """Items of an ExternalMetricValueList, which does not say its namespace; returns as :meth:`add_pod_metrics`.

        ``number`` tells lists apart: within one, values of the same labels add up; those of a later one replace them.
        """
        self.external, again = True, []
        for item in items:
            of = self._external.setdefault((namespace, item.metric_name), {})
            labels = tuple(sorted((item.metric_labels or {}).items()))
            if labels in of and of[labels][0] != number:
                again.append(f"ExternalMetricValue {namespace}/{item.metric_name}")
                del of[labels]
            of.setdefault(labels, (number, []))[1].append(item)
        return again

    def untold(self, namespace: str, metric: str, selector: str) -> bool:
        """Whether values of a custom metric do not say which labels they were asked for with, as ``selector`` does."""
        items = self._custom.get((namespace, metric), {}).values()
        return bool(selector) and any(_asked(each) is None for each in items)

    def untold_external(self, namespace: str, metric: str, selector: str) -> bool:
        """The same of an external metric, whose values may come without labels."""
        groups = self._external.get((namespace, metric), {}).values()
        return bool(selector) and any(each.metric_labels is None for _, items in groups for each in items)

    def external_names(self, namespace: str) -> list[str]:
        """The external metrics of a namespace."""
        return [metric for of, metric in self._external if of == namespace]

    def __call__(
        self, query: GetMetric
    ) -> PodMetricsList | MetricValueList | MetricValue | ExternalMetricValueList | ApiError:
        """The answer to one query."""
        if not getattr(self, query.api):
            return ApiError(f"the {query.api} metrics API is not part of the input", code=404, reason=NOT_FOUND)
        if query.api == "resource":
            selector = _selector(query.selector)
            items = self._pods.get(query.namespace, {})
            return PodMetricsList(items=[each for each in items.values() if selector.matches(self._pod_labels(each))])
        if query.api == "external":
            metric = _selector(query.metric_selector)
            series = self._external.get((query.namespace, query.metric), {}).values()
            values = [each for _, group in series for each in group]
            return ExternalMetricValueList(items=[each for each in values if _is_asked(each, metric)])
        return self._custom_metric(query)

    def _pod_labels(self, item: PodMetrics) -> Mapping[str, str]:
        if item.metadata.labels is not None:
            return item.metadata.labels
        return self._labels.get((item.metadata.namespace, item.metadata.name), {})

    def _custom_metric(self, query: GetMetric) -> MetricValueList | MetricValue | ApiError:
        items = [
            each for each in self._custom.get((query.namespace, query.metric), {}).values() if _is_of(each, query.kind)
        ]
        # What says which labels it was asked for goes before what does not.
        exact = [each for each in items if (_asked(each) or "") == query.metric_selector]
        items = exact or [each for each in items if _asked(each) is None]
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
        return ApiError(text, code=404, reason=NOT_FOUND)
