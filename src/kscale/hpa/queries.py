"""Answers to metric queries from lists: what a dump of the metrics APIs holds.

Upstream asks servers; the lists are what ``kubectl get --raw`` prints of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from kscale.effects import ApiError, GetMetric
from kscale.effects.outcomes import NOT_FOUND
from kscale.hpa.batch_pods import PodsLike, batch_pods
from kscale.hpa.replica_calculator import selector_text
from kscale.objects.kinds import group_of
from kscale.objects.metrics import (
    ExternalMetricValue,
    ExternalMetricValueList,
    MetricValue,
    MetricValueList,
    PodMetrics,
    PodMetricsList,
)
from kscale.objects.pod_metrics import PodUsage
from kscale.objects.selector_text import parse_selector
from kscale.objects.selectors import EVERYTHING, Selector

__all__ = ["MetricLists"]


_Labels = tuple[tuple[str, str], ...]
_Series = dict[_Labels, tuple[int, list[ExternalMetricValue]]]


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


def _selector(text: str) -> Selector:
    return parse_selector(text) if text else EVERYTHING


class MetricLists:
    """Metrics by namespace, answering :class:`~kscale.effects.GetMetric`.

    An API whose list is absent (``resource``, ``custom``, ``external`` false) fails as an unregistered API does. Of
    pods only the labels are known that :meth:`know_pods` was told, or that items carry. Single owner: not for use from
    several threads at once.
    """

    __slots__ = (
        "_answered",
        "_custom",
        "_external",
        "_index",
        "_labels",
        "_parts",
        "_seen",
        "custom",
        "external",
        "resource",
    )

    def __init__(self, *, resource: bool = False, custom: bool = False, external: bool = False) -> None:
        self.resource, self.custom, self.external = resource, custom, external
        self._parts: list[PodUsage] = []
        self._seen: set[str] | None = set()
        self._custom: dict[tuple[str, str], dict[tuple[str, ...], MetricValue]] = {}
        self._external: dict[tuple[str, str], _Series] = {}
        self._answered: dict[tuple[str, str, str], list[ExternalMetricValue]] = {}
        self._labels: dict[tuple[str, str], Mapping[str, str]] = {}
        self._index = _Index()

    def __repr__(self) -> str:
        custom = sum(map(len, self._custom.values()))
        external = sum(len(items) for series in self._external.values() for _, items in series.values())
        told = (
            (self.resource, f"{sum(map(len, self._parts)):,} pods"),
            (self.custom, f"{custom:,} custom values"),
            (self.external, f"{external:,} external values"),
        )
        return f"<MetricLists: {', '.join(text for there, text in told if there) or 'nothing'}>"

    def know_pods(self, pods: PodsLike) -> None:
        """Tell the labels of pods, which items of the resource and custom metrics APIs may lack."""
        for key, labels in batch_pods(pods).labels():
            namespace, _, name = key.partition("/")
            self._labels[namespace, name] = labels
        self._index = _Index()

    def read_pod_metrics(self, data: bytes, source: str = "") -> list[str]:
        """A PodMetricsList as the API prints it (``data``), read natively; returns as :meth:`add_pod_metrics`.

        Raises :class:`~kscale.errors.InputError` with the field's path; ``source`` names where it is from.
        """
        return self._add_usage(PodUsage.from_json(data, source))

    def add_pod_metrics(self, items: Iterable[PodMetrics] | PodUsage) -> list[str]:
        """Items of a PodMetricsList; returns those that were there already, in words: the last counts.

        Raises :class:`~kscale.errors.InputError` for an item whose time or window cannot be read.
        """
        return self._add_usage(items if isinstance(items, PodUsage) else PodUsage.of(items))

    def _add_usage(self, usage: PodUsage) -> list[str]:
        again = []
        seen = self._seen if self._seen is not None else set(self._parts[0].keys)
        self._seen = seen
        keys = set(usage.keys)
        if len(keys) != len(usage.keys) or not seen.isdisjoint(keys):
            for key in usage.keys:
                if key in seen:
                    again.append(f"PodMetrics {key}")
                seen.add(key)
        else:
            seen |= keys
        self.resource = True
        self._parts.append(usage)
        self._index.by_label = None
        return again

    def replace_pod_metrics(self, usage: PodUsage) -> None:
        """Another list (``usage``) in place of all that were given: the next round of a controller."""
        self._parts, self._seen = [usage], None
        self.resource, self._index.by_label = True, None

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
        self._index = _Index()
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
        self._index = _Index()
        return again

    def add_external_answer(
        self, namespace: str, metric: str, selector: str, items: Iterable[ExternalMetricValue]
    ) -> None:
        """Add what the API answered for one ``selector`` of a metric's series, whatever labels the values carry.

        Values of :meth:`add_external` no longer count for this selector.
        """
        self.external = True
        self._answered.setdefault((namespace, metric, selector), []).extend(items)

    def is_answered(self, namespace: str, metric: str, selector: str) -> bool:
        """Whether :meth:`add_external_answer` has values for this selector of an external metric."""
        return (namespace, metric, selector) in self._answered

    def drop_unlabelled(self, namespace: str, metric: str) -> None:
        """Drop the values of an external metric that carry no labels."""
        series = self._external.get((namespace, metric), {})
        for labels, (number, items) in list(series.items()):
            labelled = [each for each in items if each.metric_labels is not None]
            if labelled:
                series[labels] = (number, labelled)
            else:
                del series[labels]
        self._index = _Index()

    def untold(self, namespace: str, metric: str, selector: str) -> bool:
        """Whether values of a custom metric do not say which labels they were asked for with, as ``selector`` does."""
        items = self._custom.get((namespace, metric), {}).values()
        return bool(selector) and any(_asked(each) is None for each in items)

    def untold_external(self, namespace: str, metric: str, selector: str) -> bool:
        """The same of an external metric and a ``selector`` of its series, whose values may come without labels."""
        if self.is_answered(namespace, metric, selector):
            return False
        groups = self._external.get((namespace, metric), {}).values()
        return bool(selector) and any(each.metric_labels is None for _, items in groups for each in items)

    def external_names(self, namespace: str) -> list[str]:
        """The external metrics of a namespace."""
        known = dict.fromkeys(metric for of, metric in self._external if of == namespace)
        known |= dict.fromkeys(metric for of, metric, _ in self._answered if of == namespace)
        return list(known)

    # -- for a batch -------------------------------------------------------------------------------------------------

    def usage(self) -> PodUsage:
        """All items of the resource metrics API as columns."""
        if len(self._parts) != 1:
            self._parts = [PodUsage.joined(self._parts)]
        return self._parts[0]

    def usage_of_custom(self, metric: str, metric_selector: str) -> PodUsage:
        """The values of a custom metric of pods, of those series that ``metric_selector`` names, of all namespaces, as
        columns; the resource bears the metric's name.

        Raises :class:`~kscale.errors.InputError` for a value whose time cannot be read.
        """
        key = (metric, metric_selector)
        found = self._index.custom.get(key)
        if found is None:
            namespaces = [of for of, name in self._custom if name == metric]
            items = [each for of in namespaces for each in self._custom_values(of, metric, "Pod", metric_selector)]
            found = self._index.custom[key] = PodUsage.of_values(metric, items, self._labels)
        return found

    def refusal(self, asked: GetMetric) -> ApiError | None:  # noqa: ARG002  # lists refuse nothing
        """Why a question about the usage of pods (``asked``) has no answer of its own; None: it has."""
        return None

    # -- one query ---------------------------------------------------------------------------------------------------

    def __call__(
        self, query: GetMetric
    ) -> PodMetricsList | MetricValueList | MetricValue | ExternalMetricValueList | ApiError:
        """The answer to one query."""
        if not getattr(self, query.api):
            return ApiError(f"the {query.api} metrics API is not part of the input", code=404, reason=NOT_FOUND)
        if query.api == "resource":
            selector, usage = _selector(query.selector), self.usage()
            rows = [row for row in self._rows(query.namespace, selector) if selector.matches(self._labels_of(row))]
            return PodMetricsList(items=[usage.item(row) for row in rows])
        if query.api == "external":
            return ExternalMetricValueList(items=list(self._external_values(query)))
        return self._custom_metric(query)

    def _rows(self, namespace: str, selector: Selector) -> list[int]:
        """Rows of the usage that a selector may match."""
        if self._index.by_label is None:
            by_label: dict[tuple[str, ...], list[int]] = defaultdict(list)
            last = {key: row for row, key in enumerate(self.usage().keys)}  # the last counts, in the first's place
            for key, row in last.items():
                of = key.partition("/")[0]
                by_label[(of,)].append(row)
                for name, value in self._labels_of(row).items():
                    by_label[of, name, value].append(row)
            self._index.by_label = by_label
        label = selector.exact_label()
        return self._index.by_label.get((namespace, *(label or ())), [])

    def _labels_of(self, row: int) -> Mapping[str, str]:
        usage = self.usage()
        if usage.labels[row] >= 0:
            return usage.label_sets[int(usage.labels[row])]
        namespace, _, name = usage.keys[row].partition("/")
        return self._labels.get((namespace, name), {})

    def _external_values(self, query: GetMetric) -> Iterator[ExternalMetricValue]:
        """The values a server would answer; those without labels do not say which they were asked for with."""
        answer = self._answered.get((query.namespace, query.metric, query.metric_selector))
        if answer is not None:
            yield from answer
            return
        where = (query.namespace, query.metric)
        index = self._index.external.get(where)
        if index is None:
            index = self._index.external[where] = defaultdict(list)
            numbered = enumerate(each for _, group in self._external.get(where, {}).values() for each in group)
            for entry in numbered:
                labels = entry[1].metric_labels
                for label in (None, "none") if labels is None else (None, *labels.items()):
                    index[label].append(entry)
        selector = _selector(query.metric_selector)
        exact = selector.exact_label()
        entries = index[None] if exact is None else sorted(index["none"] + index[exact], key=lambda entry: entry[0])
        for _, each in entries:
            if each.metric_labels is None or selector.matches(each.metric_labels):
                yield each

    def _custom_metric(self, query: GetMetric) -> MetricValueList | MetricValue | ApiError:
        where = (query.namespace, query.metric, query.kind, query.metric_selector)
        if not query.name:
            selector = _selector(query.selector)
            return MetricValueList(
                items=[
                    each
                    for each in self._custom_values(*where)
                    if selector.matches(self._labels.get((query.namespace, each.described_object.name), {}))
                ]
            )
        named = self._index.named.get(where)
        if named is None:
            named = self._index.named[where] = {}
            for each in self._custom_values(*where):
                named.setdefault(each.described_object.name, each)
        if query.name in named:
            return named[query.name]
        text = f"the server could not find the metric {query.metric} for {query.kind} {query.name}"
        return ApiError(text, code=404, reason=NOT_FOUND)

    def _custom_values(self, namespace: str, metric: str, kind: str, selector: str) -> list[MetricValue]:
        items = [each for each in self._custom.get((namespace, metric), {}).values() if _is_of(each, kind)]
        # What says which labels it was asked for goes before what does not.
        exact = [each for each in items if (_asked(each) or "") == selector]
        return exact or [each for each in items if _asked(each) is None]


class _Index:
    """What was looked up by, until the lists change."""

    __slots__ = ("by_label", "custom", "external", "named")

    def __init__(self) -> None:
        self.by_label: dict[tuple[str, ...], list[int]] | None = None
        self.custom: dict[tuple[str, str], PodUsage] = {}
        self.external: dict[tuple[str, str], dict[object, list[tuple[int, ExternalMetricValue]]]] = {}
        self.named: dict[tuple[str, ...], dict[str, MetricValue]] = {}
