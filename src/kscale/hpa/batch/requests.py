"""Responses of the metrics and scale APIs for a batch: from recorded lists, or from requests that several HPAs share.

Upstream asks servers; the lists are what ``kubectl get --raw`` prints of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from kscale.effects import DEADLINE_EXCEEDED, ApiError, GetMetric, Machine, Moment, Progress, Steps
from kscale.effects.outcomes import NOT_FOUND
from kscale.hpa.batch.hpas import read_target_references
from kscale.hpa.batch.pods import PodsLike, to_batch_pods
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
from kscale.objects.kinds import group_of
from kscale.objects.pod_metrics import PodUsage
from kscale.objects.rest_mapping import BUILT_IN_MAPPER, RESTMapper, RESTMappingError, parse_group_version
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
    """The metric's label selector that an item says it was asked for with; None: it says nothing."""
    told = item.metric.selector if item.metric is not None else item.selector
    if told is None:
        return None
    try:
        return format_metric_selector(told)
    except ValueError:
        return None


def _describes_kind(item: MetricValue, kind: str) -> bool:
    """Whether an item describes an object of ``Kind.group``; one that does not say its group may."""
    name, _, group = kind.partition(".")
    described = item.described_object
    return described.kind == name and (not described.api_version or group_of(described.api_version) == group)


def _parse_selector_or_everything(text: str) -> Selector:
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
        self._index = _LookupIndex()

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
        for key, labels in to_batch_pods(pods).labels():
            namespace, _, name = key.partition("/")
            self._labels[namespace, name] = labels
        self._index = _LookupIndex()

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
            key = (described.kind, described.name, group_of(described.api_version), _get_requested_selector(item) or "")
            if key in of:
                again.append(f"MetricValue {item.name} of {described.kind} {described.namespace}/{described.name}")
            of[key] = item
        self._index = _LookupIndex()
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
        self._index = _LookupIndex()
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
        self._index = _LookupIndex()

    def untold(self, namespace: str, metric: str, selector: str) -> bool:
        """Whether values of a custom metric do not say which labels they were asked for with, as ``selector`` does."""
        items = self._custom.get((namespace, metric), {}).values()
        return bool(selector) and any(_get_requested_selector(each) is None for each in items)

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
            selector, usage = _parse_selector_or_everything(query.selector), self.usage()
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
        selector = _parse_selector_or_everything(query.metric_selector)
        exact = selector.exact_label()
        entries = index[None] if exact is None else sorted(index["none"] + index[exact], key=lambda entry: entry[0])
        for _, each in entries:
            if each.metric_labels is None or selector.matches(each.metric_labels):
                yield each

    def _custom_metric(self, query: GetMetric) -> MetricValueList | MetricValue | ApiError:
        where = (query.namespace, query.metric, query.kind, query.metric_selector)
        if not query.name:
            selector = _parse_selector_or_everything(query.selector)
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
        items = [each for each in self._custom.get((namespace, metric), {}).values() if _describes_kind(each, kind)]
        # What says which labels it was asked for goes before what does not.
        exact = [each for each in items if (_get_requested_selector(each) or "") == selector]
        return exact or [each for each in items if _get_requested_selector(each) is None]


class _LookupIndex:
    """What was looked up by, until the lists change."""

    __slots__ = ("by_label", "custom", "external", "named")

    def __init__(self) -> None:
        self.by_label: dict[tuple[str, ...], list[int]] | None = None
        self.custom: dict[tuple[str, str], PodUsage] = {}
        self.external: dict[tuple[str, str], dict[object, list[tuple[int, ExternalMetricValue]]]] = {}
        self.named: dict[tuple[str, ...], dict[str, MetricValue]] = {}


class MetricResponses(MetricLists):
    """Answers by question. Those about resource metrics may be about all pods of a namespace; the rest is answered with
    what just this question was answered."""

    __slots__ = ("_refused", "answers")

    def __init__(self, answers: Mapping[GetMetric, Any]) -> None:
        lists = [each for each in answers.values() if isinstance(each, PodUsage)]
        super().__init__(resource=any(asked.api == "resource" for asked in answers))
        self.answers = answers
        """By question, as they came."""
        self._refused = {
            asked.namespace: found
            for asked, found in answers.items()
            if asked.api == "resource" and isinstance(found, ApiError)
        }
        if lists:
            self.replace_pod_metrics(PodUsage.joined(lists))

    def refusal(self, asked: GetMetric) -> ApiError | None:
        """Why a question about resource metrics has no answer."""
        return self._refused.get(asked.namespace) if asked.api == "resource" else None

    def __call__(self, query: GetMetric) -> Any:
        """The answer to one question that is not about resource metrics, or that was refused."""
        found = self.refusal(query)
        return self.answers[query] if found is None else found

    def unanswered(self) -> list[str]:
        """For each API that refused questions: how many, and the first reason."""
        out = []
        for api in dict.fromkeys(asked.api for asked in self.answers):
            answers = [found for asked, found in self.answers.items() if asked.api == api]
            refused = [found.message for found in answers if isinstance(found, ApiError)]
            if refused:
                name = "metrics.k8s.io" if api == "resource" else f"{api}.metrics.k8s.io"
                out.append(f"{len(refused):,} of {len(answers):,} answers of {name}: {refused[0]}")
        return out


def has_built_in_targets(hpas: Iterable[HorizontalPodAutoscaler]) -> bool:
    """Whether every server has the kinds that HPAs scale, so that nobody needs to be asked how they are served."""
    references = {(hpa.spec.scale_target_ref.api_version, hpa.spec.scale_target_ref.kind) for hpa in hpas}
    return all(_is_built_in_target(*each) for each in references)


def _is_built_in_target(api_version: str, kind: str) -> bool:
    try:
        BUILT_IN_MAPPER.resources(parse_group_version(api_version)[0], kind)
    except RESTMappingError:
        return api_version.count("/") > 1  # which no server could mend
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
    """The scale of every target, or why there is none, by ``keys`` of the HPAs: what is not ``known`` is asked for.
    ``within``: what takes so many nanoseconds is too late (None: nothing is); ``took`` is told how many each took."""
    resources = read_target_references(hpas, mapper).resources
    rows = [row for row, key in enumerate(keys) if key not in known and resources[row]]
    if not rows:
        return dict(known)
    machines = [partial(_request_scale_steps, hpas[row], resources[row]) for row in rows]
    found = yield from _run_with_deadline_steps(progress, machines, at_most, within)
    if took is not None:
        took.update((keys[row], time) for row, (_, time) in zip(rows, found, strict=True))
    return {**known, **{keys[row]: scale for row, (scale, _) in zip(rows, found, strict=True)}}


def request_metrics_steps(
    progress: Progress,
    questions: Sequence[GetMetric],
    at_most: int,
    within: int | None = None,
    took: dict[Any, int] | None = None,
) -> Steps[MetricResponses]:
    """What the metrics APIs answer. ``within``: what takes so many nanoseconds is too late (None: nothing is);
    ``took`` is told how many each took."""
    answers: list[tuple[Any, int]] = []
    if questions:
        machines = [partial(_request_metric_steps, each) for each in questions]
        answers = yield from _run_with_deadline_steps(progress, machines, at_most, within)
    if took is not None:
        took.update((asked, time) for asked, (_, time) in zip(questions, answers, strict=True))
    return MetricResponses({asked: answer for asked, (answer, _) in zip(questions, answers, strict=True)})


def is_late_response(found: Any) -> bool:
    """Whether an answer took too long."""
    return isinstance(found, ApiError) and found == DEADLINE_EXCEEDED


def _run_with_deadline_steps(
    progress: Progress, machines: Sequence[Machine], at_most: int, within: int | None
) -> Steps[list[tuple[Any, int]]]:
    """What machines return: (answer, nanoseconds that it took).

    All have the time of one, again and again: one by one they would cost more than what they do. Whose time was cut
    short, because it began late, begins anew; who had half of it or more is too late. So are all that are left once
    none of them finds anything: it is something else that gives them no time.
    """
    found: list[tuple[Any, int]] = [(None, 0)] * len(machines)
    left = list(range(len(machines)))
    while left:
        some = [machines[number] for number in left]
        if within is None:
            answers = yield from progress.together(some, at_most=at_most, brief=True)
        else:
            answers = yield from progress.within(within, partial(_run_together_steps, some, at_most))
        again = []
        for number, (answer, took) in zip(left, answers, strict=True):
            found[number] = answer, took
            if within is not None and 2 * took < within and is_late_response(answer):
                again.append(number)
        left = again if len(again) < len(left) else []
    return found


def _run_together_steps(machines: Sequence[Machine], at_most: int, now: Moment) -> Steps[list[Any]]:
    return (yield from Progress(now).together(machines, at_most=at_most, brief=True))


def _request_metric_steps(question: GetMetric, now: Moment) -> Steps[Any]:
    outcome = yield from Progress(now).act(question)
    return (outcome.value if outcome.error is None else outcome.error), outcome.at - now


def _request_scale_steps(hpa: HorizontalPodAutoscaler, resources: tuple[str, ...], now: Moment) -> Steps[Any]:
    """The scale of a target, or why there is none."""
    progress = Progress(now)
    found = yield from request_scale(progress, hpa.metadata.namespace, hpa.spec.scale_target_ref.name, resources)
    return (found.scale if isinstance(found, TargetScale) else found), progress.now - now
