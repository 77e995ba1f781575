"""Responses of the metrics and scale APIs for a batch: from recorded lists, or from requests that several HPAs share.

Upstream queries servers. The recorded lists are what ``kubectl get --raw`` prints.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from kscale.effects import DEADLINE_EXCEEDED, ApiError, GetMetric, Machine, Moment, Progress, Steps
from kscale.effects.actions import NOT_FOUND
from kscale.hpa.batch.hpas import read_target_references
from kscale.hpa.batch.pods import BatchPods, IndexedPods, PodsLike, to_batch_pods
from kscale.hpa.controller.replica_calculator import format_metric_selector
from kscale.hpa.controller.scale_target import TargetScale, request_scale
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler
from kscale.objects.api.metrics import (
    ExternalMetricValue,
    ExternalMetricValueList,
    MetricValue,
    MetricValueList,
    PodMetrics,
    PodMetricsList,
)
from kscale.objects.kinds import BUILT_IN_MAPPER, RESTMapper, RESTMappingError, group_of, parse_group_version
from kscale.objects.pod_metrics import PodUsage
from kscale.objects.selectors import EVERYTHING, Selector, parse_selector

__all__ = [
    "MetricLists",
    "MetricResponses",
    "has_built_in_targets",
    "is_late_response",
    "request_metrics_steps",
    "request_scales_steps",
]


_Labels = tuple[tuple[str, str], ...]
_Series = dict[_Labels, tuple[int, list[ExternalMetricValue]]]


def _get_requested_selector(item: MetricValue) -> str | None:
    """Return the metric label selector that an item was requested with, or None if the item has none."""
    selector = item.metric.selector if item.metric is not None else item.selector
    if selector is None:
        return None
    try:
        return format_metric_selector(selector)
    except ValueError:
        return None


def _describes_kind(item: MetricValue, kind: str) -> bool:
    """Check whether an item describes an object of a kind ``Kind.group``. An item without a group matches any group."""
    name, _, group = kind.partition(".")
    described = item.described_object
    return described.kind == name and (not described.api_version or group_of(described.api_version) == group)


def _parse_selector_or_everything(text: str) -> Selector:
    """Parse a selector; an empty text matches everything."""
    return parse_selector(text) if text else EVERYTHING


class MetricLists:
    """Metrics by namespace, answering :class:`~kscale.effects.GetMetric`.

    An API whose list is absent (``resource``, ``custom``, ``external`` false) fails as an unregistered API does. Labels
    of pods come from :meth:`add_pod_labels` or from the items. Not safe for concurrent use by several threads.
    """

    __slots__ = (
        "_answered",
        "_custom",
        "_external",
        "_index",
        "_labels",
        "_labels_pending",
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
        self._labels: dict[str, Mapping[str, str]] = {}
        self._labels_pending: list[BatchPods] = []  # pods whose labels are not read yet: most inputs need none
        self._index = _LookupIndex()

    def __repr__(self) -> str:
        custom = sum(map(len, self._custom.values()))
        external = sum(len(items) for series in self._external.values() for _, items in series.values())
        contents = (
            (self.resource, f"{sum(map(len, self._parts)):,} pods"),
            (self.custom, f"{custom:,} custom values"),
            (self.external, f"{external:,} external values"),
        )
        return f"<MetricLists: {', '.join(text for is_present, text in contents if is_present) or 'nothing'}>"

    def add_pod_labels(self, pods: PodsLike) -> None:
        """Store the labels of pods, for items of the resource and custom metrics APIs that have none."""
        batch = to_batch_pods(pods)
        self._labels_pending.append(batch)
        if not isinstance(batch, IndexedPods):  # pods of a list may change, an index does not
            self._get_pod_labels()
        self._index = _LookupIndex()

    def read_pod_metrics(self, data: bytes, source: str = "") -> list[str]:
        """Read the bytes of a PodMetricsList, as the API prints it, with the native decoder, and add its items.

        Returns descriptions of duplicates, as :meth:`add_pod_metrics` does. Raises :class:`~kscale.errors.InputError`
        with the field's path for an invalid list. ``source`` names the origin of the data in errors.
        """
        return self._add_usage(PodUsage.from_json(data, source))

    def add_pod_metrics(self, items: Iterable[PodMetrics] | PodUsage) -> list[str]:
        """Add items of a PodMetricsList and return descriptions of duplicates, of which the last counts.

        Raises :class:`~kscale.errors.InputError` for an item whose time or window cannot be read.
        """
        return self._add_usage(items if isinstance(items, PodUsage) else PodUsage.of(items))

    def _add_usage(self, usage: PodUsage) -> list[str]:
        """Add columns of usage and return descriptions of items whose pod is already present. All items are kept."""
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
        """Replace all pod metrics by another list (``usage``), for a controller's next batch."""
        self._parts, self._seen = [usage], None
        self.resource, self._index.by_label = True, None

    def add_custom(self, items: Iterable[MetricValue]) -> list[str]:
        """Add items of a MetricValueList, of pods and of other objects.

        Returns descriptions of duplicates, as :meth:`add_pod_metrics` does.
        """
        self.custom, duplicates = True, []
        for item in items:
            described = item.described_object
            values = self._custom.setdefault((described.namespace, item.name), {})
            key = (described.kind, described.name, group_of(described.api_version), _get_requested_selector(item) or "")
            if key in values:
                duplicates.append(f"MetricValue {item.name} of {described.kind} {described.namespace}/{described.name}")
            values[key] = item
        self._index = _LookupIndex()
        return duplicates

    def add_external(self, namespace: str, items: Iterable[ExternalMetricValue], number: int = 0) -> list[str]:
        """Add items of an ExternalMetricValueList, which does not contain its namespace.

        Returns descriptions of duplicates, as :meth:`add_pod_metrics` does. ``number`` identifies the list: values with
        equal labels add up within a list, and replace those of an earlier list.
        """
        self.external, duplicates = True, []
        for item in items:
            values = self._external.setdefault((namespace, item.metric_name), {})
            labels = tuple(sorted((item.metric_labels or {}).items()))
            if labels in values and values[labels][0] != number:
                duplicates.append(f"ExternalMetricValue {namespace}/{item.metric_name}")
                del values[labels]
            values.setdefault(labels, (number, []))[1].append(item)
        self._index = _LookupIndex()
        return duplicates

    def add_external_answer(
        self, namespace: str, metric: str, selector: str, items: Iterable[ExternalMetricValue]
    ) -> None:
        """Add the API's response to a request with ``selector`` for a metric's series, whatever labels the values have.

        Values of :meth:`add_external` no longer count for this selector. Further calls for the same request add values.
        """
        self.external = True
        self._answered.setdefault((namespace, metric, selector), []).extend(items)

    def is_answered(self, namespace: str, metric: str, selector: str) -> bool:
        """Check whether :meth:`add_external_answer` has added values for this selector of an external metric."""
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
        self._index = _LookupIndex()

    def lacks_selectors(self, namespace: str, metric: str, selector: str) -> bool:
        """Return True if ``selector`` is not empty and values of a custom metric lack their request's selector."""
        items = self._custom.get((namespace, metric), {}).values()
        return bool(selector) and any(_get_requested_selector(each) is None for each in items)

    def lacks_external_labels(self, namespace: str, metric: str, selector: str) -> bool:
        """Return True if ``selector`` is not empty and values of an external metric have no labels.

        False if the response for this selector was added (:meth:`is_answered`).
        """
        if self.is_answered(namespace, metric, selector):
            return False
        groups = self._external.get((namespace, metric), {}).values()
        return bool(selector) and any(each.metric_labels is None for _, items in groups for each in items)

    def external_names(self, namespace: str) -> list[str]:
        """Return the names of the external metrics of a namespace."""
        names = dict.fromkeys(metric for of, metric in self._external if of == namespace)
        names |= dict.fromkeys(metric for of, metric, _ in self._answered if of == namespace)
        return list(names)

    # -- batch queries -----------------------------------------------------------------------------------------------

    def usage(self) -> PodUsage:
        """Return all items of the resource metrics API as columns."""
        if len(self._parts) != 1:
            self._parts = [PodUsage.concatenate(self._parts)]
        return self._parts[0]

    def usage_of_custom(self, metric: str, metric_selector: str) -> PodUsage:
        """Return a custom metric's values of pods in all namespaces as columns, with the metric's name as the resource.

        ``metric_selector`` selects the series. Raises :class:`~kscale.errors.InputError` for a value whose time cannot
        be read.
        """
        key = (metric, metric_selector)
        usage = self._index.custom.get(key)
        if usage is None:
            namespaces = [of for of, name in self._custom if name == metric]
            items = [each for of in namespaces for each in self._list_custom_values(of, metric, "Pod", metric_selector)]
            usage = self._index.custom[key] = PodUsage.from_values(metric, items, self._get_pod_labels())
        return usage

    def refusal(self, query: GetMetric) -> ApiError | None:  # noqa: ARG002  # no query of a list is refused
        """Return None, as lists that were passed never fail.

        A subclass returns the error of a failed request of pod usage (``query``).
        """
        return None

    # -- one query ---------------------------------------------------------------------------------------------------

    def __call__(
        self, query: GetMetric
    ) -> PodMetricsList | MetricValueList | MetricValue | ExternalMetricValueList | ApiError:
        """Return the response to one query, or the error of an API that the input lacks."""
        if not getattr(self, query.api):
            return ApiError(f"the {query.api} metrics API is not part of the input", code=404, reason=NOT_FOUND)
        if query.api == "resource":
            selector, usage = _parse_selector_or_everything(query.selector), self.usage()
            rows = [
                row
                for row in self._find_candidate_rows(query.namespace, selector)
                if selector.matches(self._get_labels(row))
            ]
            return PodMetricsList(items=[usage.item(row) for row in rows])
        if query.api == "external":
            return ExternalMetricValueList(items=list(self._iterate_external_values(query)))
        return self._find_custom_metric(query)

    def _find_candidate_rows(self, namespace: str, selector: Selector) -> list[int]:
        """Return the usage rows of a namespace whose pods a selector may match. They must still be matched exactly."""
        if self._index.by_label is None:
            by_label: dict[tuple[str, ...], list[int]] = defaultdict(list)
            last = {key: row for row, key in enumerate(self.usage().keys)}  # the last counts, in the first's place
            for key, row in last.items():
                item_namespace = key.partition("/")[0]
                by_label[(item_namespace,)].append(row)
                for name, value in self._get_labels(row).items():
                    by_label[item_namespace, name, value].append(row)
            self._index.by_label = by_label
        label = selector.exact_label()
        return self._index.by_label.get((namespace, *(label or ())), [])

    def _get_labels(self, row: int) -> Mapping[str, str]:
        """Return the labels of a row of the usage: its own, or else its pod's; empty if they are unknown."""
        usage = self.usage()
        if usage.labels[row] >= 0:
            return usage.label_sets[int(usage.labels[row])]
        return self._get_pod_labels().get(usage.keys[row], {})

    def _get_pod_labels(self) -> Mapping[str, Mapping[str, str]]:
        """Return the labels of all added pods by key."""
        for pods in self._labels_pending:
            self._labels.update(pods.labels())
        self._labels_pending.clear()
        return self._labels

    def _iterate_external_values(self, query: GetMetric) -> Iterator[ExternalMetricValue]:
        """Yield the values that a server would return, including values without labels for any selector.

        If :meth:`add_external_answer` was called for the query, only the values passed there.
        """
        response = self._answered.get((query.namespace, query.metric, query.metric_selector))
        if response is not None:
            yield from response
            return
        series_key = (query.namespace, query.metric)
        index = self._index.external.get(series_key)
        if index is None:
            index = self._index.external[series_key] = defaultdict(list)
            numbered = enumerate(each for _, group in self._external.get(series_key, {}).values() for each in group)
            for entry in numbered:
                labels = entry[1].metric_labels
                for label in (None, "none") if labels is None else (None, *labels.items()):
                    index[label].append(entry)
        selector = _parse_selector_or_everything(query.metric_selector)
        exact = selector.exact_label()
        entries = index[None] if exact is None else sorted(index["none"] + index[exact], key=lambda entry: entry[0])
        for _, each in entries:
            if each.metric_labels is None or selector.matches(each.metric_labels):
                yield each

    def _find_custom_metric(self, query: GetMetric) -> MetricValueList | MetricValue | ApiError:
        """Return the value of a named object, the list for a selector of pods, or a NotFound error."""
        where = (query.namespace, query.metric, query.kind, query.metric_selector)
        if not query.name:
            selector = _parse_selector_or_everything(query.selector)
            values, labels = self._list_custom_values(*where), self._get_pod_labels()
            pods = [labels.get(f"{query.namespace}/{each.described_object.name}", {}) for each in values]
            return MetricValueList(
                items=[each for each, pod in zip(values, pods, strict=True) if selector.matches(pod)]
            )
        named = self._index.named.get(where)
        if named is None:
            named = self._index.named[where] = {}
            for each in self._list_custom_values(*where):
                named.setdefault(each.described_object.name, each)
        if query.name in named:
            return named[query.name]
        text = f"the server could not find the metric {query.metric} for {query.kind} {query.name}"
        return ApiError(text, code=404, reason=NOT_FOUND)

    def _list_custom_values(self, namespace: str, metric: str, kind: str, selector: str) -> list[MetricValue]:
        """Return the values that the custom metrics API would return for all objects of a kind in a namespace.

        ``selector``: metric label selector of the request. Without values for this selector, the values are returned
        that were recorded without a selector.
        """
        items = [each for each in self._custom.get((namespace, metric), {}).values() if _describes_kind(each, kind)]
        # Values with the requested selector take precedence over values without one.
        exact = [each for each in items if (_get_requested_selector(each) or "") == selector]
        return exact or [each for each in items if _get_requested_selector(each) is None]


class _LookupIndex:
    """Index of the lists, valid until they change."""

    __slots__ = ("by_label", "custom", "external", "named")

    def __init__(self) -> None:
        self.by_label: dict[tuple[str, ...], list[int]] | None = None
        self.custom: dict[tuple[str, str], PodUsage] = {}
        self.external: dict[tuple[str, str], dict[object, list[tuple[int, ExternalMetricValue]]]] = {}
        self.named: dict[tuple[str, ...], dict[str, MetricValue]] = {}


class MetricResponses(MetricLists):
    """Responses by request.

    A response of the resource metrics API may cover all pods of a namespace. Other requests get exactly their own
    response.
    """

    __slots__ = ("_refused", "by_request")

    def __init__(self, by_request: Mapping[GetMetric, Any]) -> None:
        lists = [each for each in by_request.values() if isinstance(each, PodUsage)]
        super().__init__(resource=any(query.api == "resource" for query in by_request))
        self.by_request = by_request
        """Items by request, in the order of arrival."""
        self._refused = {
            query.namespace: response
            for query, response in by_request.items()
            if query.api == "resource" and isinstance(response, ApiError)
        }
        if lists:
            self.replace_pod_metrics(PodUsage.concatenate(lists))

    def refusal(self, query: GetMetric) -> ApiError | None:
        """Return the error of the request of pod usage in the query's namespace, if it failed.

        None for a query of another API.
        """
        return self._refused.get(query.namespace) if query.api == "resource" else None

    def __call__(self, query: GetMetric) -> Any:
        """Return the response or the error of a request that was sent. Raises KeyError for any other request."""
        error = self.refusal(query)
        return self.by_request[query] if error is None else error

    def describe_failures(self) -> list[str]:
        """Return a message for each API with failed requests, with their number and the first error."""
        out = []
        for api in dict.fromkeys(query.api for query in self.by_request):
            responses = [response for query, response in self.by_request.items() if query.api == api]
            refused = [response.message for response in responses if isinstance(response, ApiError)]
            if refused:
                name = "metrics.k8s.io" if api == "resource" else f"{api}.metrics.k8s.io"
                out.append(f"{len(refused):,} of {len(responses):,} answers of {name}: {refused[0]}")
        return out


def has_built_in_targets(hpas: Iterable[HorizontalPodAutoscaler]) -> bool:
    """Check whether all scale targets are of built-in kinds, whose resources are known without discovery."""
    references = {(hpa.spec.scale_target_ref.api_version, hpa.spec.scale_target_ref.kind) for hpa in hpas}
    return all(_is_built_in_target(*each) for each in references)


def _is_built_in_target(api_version: str, kind: str) -> bool:
    """Check whether a kind is built in. True for an invalid version, which is an error on every server."""
    try:
        BUILT_IN_MAPPER.resources(parse_group_version(api_version)[0], kind)
    except RESTMappingError:
        return api_version.count("/") > 1  # an invalid version is an error on every server
    return True


def request_scales_steps(
    progress: Progress,
    hpas: Sequence[HorizontalPodAutoscaler],
    keys: Sequence[str],
    known: Mapping[str, Any],
    mapper: RESTMapper,
    at_most: int,
    within: int | None = None,
    took: dict[Any, int] | None = None,
) -> Steps[dict[str, Any]]:
    """Return the scale of every target, or its error, by ``keys`` of the HPAs.

    Scales in ``known`` are returned without a request. An HPA whose target's kind cannot be resolved has no entry. A
    request that timed out has an error for which :func:`is_late_response` is true.

    ``at_most``: how many requests run at a time. ``within``: timeout in nanoseconds (None for no timeout). ``took``
    receives the duration of the request for each HPA, by its key, in nanoseconds.
    """
    unknown = [row for row, key in enumerate(keys) if key not in known]
    if not unknown:
        return dict(known)
    resources = dict(
        zip(unknown, read_target_references([hpas[row] for row in unknown], mapper).resources, strict=True)
    )
    rows = [row for row in unknown if resources[row]]
    if not rows:
        return dict(known)
    machines = [partial(_request_scale_steps, hpas[row], resources[row]) for row in rows]
    responses = yield from _run_with_deadline_steps(progress, machines, at_most, within)
    if took is not None:
        took.update((keys[row], time) for row, (_, time) in zip(rows, responses, strict=True))
    return {**known, **{keys[row]: scale for row, (scale, _) in zip(rows, responses, strict=True)}}


def request_metrics_steps(
    progress: Progress,
    metric_requests: Sequence[GetMetric],
    at_most: int,
    within: int | None = None,
    took: dict[Any, int] | None = None,
) -> Steps[MetricResponses]:
    """Return the responses of the metrics APIs.

    ``at_most``: how many requests run at a time. ``within``: timeout in nanoseconds (None for no timeout); a request
    that timed out has an error for which :func:`is_late_response` is true. ``took`` receives the duration of each
    request in nanoseconds.
    """
    responses: list[tuple[Any, int]] = []
    if metric_requests:
        machines = [partial(_request_metric_steps, each) for each in metric_requests]
        responses = yield from _run_with_deadline_steps(progress, machines, at_most, within)
    if took is not None:
        took.update((query, time) for query, (_, time) in zip(metric_requests, responses, strict=True))
    return MetricResponses({query: response for query, (response, _) in zip(metric_requests, responses, strict=True)})


def is_late_response(response: Any) -> bool:
    """Check whether a response timed out."""
    return isinstance(response, ApiError) and response == DEADLINE_EXCEEDED


def _run_with_deadline_steps(
    progress: Progress, machines: Sequence[Machine], at_most: int, within: int | None
) -> Steps[list[tuple[Any, int]]]:
    """Run machines, at most ``at_most`` at a time, and return (response, duration in nanoseconds) of each.

    With ``within`` (nanoseconds), all machines share one timeout, as single timeouts would cost more than the requests.
    A machine that timed out after less than half of it, because it started late, runs again in a further round; other
    machines that timed out have a late response. The last round is the one after which no machine, or every machine of
    the round, would run again.
    """
    results: list[tuple[Any, int]] = [(None, 0)] * len(machines)
    remaining = list(range(len(machines)))
    while remaining:
        batch = [machines[number] for number in remaining]
        if within is None:
            responses = yield from progress.together(batch, at_most=at_most, brief=True)
        else:
            responses = yield from progress.within(within, partial(_run_together_steps, batch, at_most))
        retried = []
        for number, (response, took) in zip(remaining, responses, strict=True):
            results[number] = response, took
            if within is not None and 2 * took < within and is_late_response(response):
                retried.append(number)
        remaining = retried if len(retried) < len(remaining) else []
    return results


def _run_together_steps(machines: Sequence[Machine], at_most: int, now: Moment) -> Steps[list[Any]]:
    """Run step machines concurrently, at most ``at_most`` at a time, and return their results in order."""
    return (yield from Progress(now).together(machines, at_most=at_most, brief=True))


def _request_metric_steps(metric_request: GetMetric, now: Moment) -> Steps[Any]:
    """Return (response or error, duration in nanoseconds) of a request that begins at ``now``."""
    outcome = yield from Progress(now).act(metric_request)
    return (outcome.value if outcome.error is None else outcome.error), outcome.at - now


def _request_scale_steps(hpa: HorizontalPodAutoscaler, resources: tuple[str, ...], now: Moment) -> Steps[Any]:
    """Return (scale or error, duration in nanoseconds) of a target. ``resources``: group-resources to try in order."""
    progress = Progress(now)
    response = yield from request_scale(progress, hpa.metadata.namespace, hpa.spec.scale_target_ref.name, resources)
    return (response.scale if isinstance(response, TargetScale) else response), progress.now - now
