"""What a batch of HPAs asks the metrics APIs, each question once, and who needs which answer."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec

from kscale.effects import GetMetric
from kscale.hpa.batch_metrics import MetricTargets
from kscale.hpa.batch_specs import Metric, SpecColumns
from kscale.hpa.metrics_client import object_query
from kscale.objects.autoscaling import ObjectMetricSource, PodsMetricSource

__all__ = ["questions", "rows_that_ask", "rows_without_answer"]


def questions(targets: MetricTargets, specs: SpecColumns, wanted: Sequence[tuple[str, str]]) -> list[GetMetric]:
    """What has to be asked for the metrics of all targets, each question once. The resource metrics of a namespace are
    asked for all at once where more than one selection needs them."""
    asked: dict[GetMetric, None] = {}
    of_usage: dict[str, set[str]] = {}
    pairs = dict.fromkeys(zip(targets.group.tolist(), specs.metrics[targets.row].tolist(), strict=True))
    for group, facet in pairs:
        namespace, selector = wanted[group]
        for metric in specs.metric_lists[facet]:
            question = _question(metric, namespace, selector)
            if question is None:
                continue
            if metric.of_usage:
                of_usage.setdefault(namespace, set()).add(selector)
            else:
                asked[question] = None
    usage = [
        GetMetric(
            api="resource",
            namespace=namespace,
            kind="Pod",
            selector=next(iter(selectors)) if len(selectors) == 1 else "",
            columns=True,
        )
        for namespace, selectors in of_usage.items()
    ]
    return [*usage, *asked]


def rows_that_ask(
    targets: MetricTargets, specs: SpecColumns, wanted: Sequence[tuple[str, str]], some: Collection[GetMetric]
) -> Iterator[int]:
    """The rows, among all HPAs, of targets that need the answer to one of some questions (of :func:`questions`)."""
    asked, namespaces = set(some), {each.namespace for each in some if each.api == "resource"}
    pairs = zip(targets.row.tolist(), targets.group.tolist(), specs.metrics[targets.row].tolist(), strict=True)
    for row, group, facet in pairs:
        namespace, selector = wanted[group]
        for metric in specs.metric_lists[facet]:
            question = _question(metric, namespace, selector)
            if question is not None and (question in asked or (metric.of_usage and namespace in namespaces)):
                yield row
                break


def rows_without_answer(
    targets: MetricTargets, specs: SpecColumns, wanted: Sequence[tuple[str, str]], answered: Collection[GetMetric]
) -> Iterator[int]:
    """Return the rows of targets that need a question (of :func:`questions`) which was not asked. What was asked about
    all pods of a namespace answers for each selector."""
    pairs = zip(targets.row.tolist(), targets.group.tolist(), specs.metrics[targets.row].tolist(), strict=True)
    known: dict[tuple[int, int], bool] = {}
    for row, group, facet in pairs:
        found = known.get((group, facet))
        if found is None:
            asked = (_question(metric, *wanted[group]) for metric in specs.metric_lists[facet])
            found = known[group, facet] = all(each is None or _is_answered(each, answered) for each in asked)
        if not found:
            yield row


def _is_answered(question: GetMetric, answered: Collection[GetMetric]) -> bool:
    if question in answered:
        return True
    return question.api == "resource" and msgspec.structs.replace(question, selector="") in answered


def _question(metric: Metric, namespace: str, selector: str) -> GetMetric | None:
    """What a metric asks by itself; None: it cannot be asked for."""
    source = metric.source
    if source is None or metric.target is None or metric.selector is None:
        return None
    if metric.of_usage:
        return GetMetric(api="resource", namespace=namespace, kind="Pod", selector=selector, columns=True)
    name = source.metric.name
    if isinstance(source, PodsMetricSource):
        return GetMetric(
            api="custom",
            namespace=namespace,
            kind="Pod",
            metric=name,
            selector=selector,
            metric_selector=metric.selector,
        )
    if isinstance(source, ObjectMetricSource):
        return object_query(name, namespace, source.described_object, metric.selector)
    return GetMetric(api="external", namespace=namespace, metric=name, metric_selector=metric.selector)
