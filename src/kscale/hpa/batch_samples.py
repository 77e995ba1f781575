"""The samples of a batch of HPAs: what a list of pod metrics says of the pods of each selection."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kscale.effects import SECOND, GetMetric
from kscale.hpa.batch_pods import BatchPods, SelectedPods, ranges
from kscale.hpa.calculation import wrap
from kscale.hpa.placed_usage import PlacedUsage
from kscale.hpa.pod_groups import SampleColumns
from kscale.objects.core import ObjectReference
from kscale.objects.durations import parse_duration
from kscale.objects.metrics import ContainerMetrics, MetricValue, MetricValueList, PodMetricsList
from kscale.objects.pod_metrics import PodUsage
from kscale.objects.selector_text import parse_selector

__all__ = ["JoinedUsage", "UsageOfGroups", "join_usage", "source_of_query"]


@dataclass(frozen=True, slots=True)
class UsageOfGroups:
    """Samples of one resource (of one container) for some selections.

    ``offset`` int64[g]: where those of each begin in ``samples``; ``extra_count``, ``extra_sum`` int64[g]: of pods that
    are not listed.
    """

    samples: SampleColumns
    offset: NDArray[np.int64]
    extra_count: NDArray[np.int64]
    extra_sum: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class JoinedUsage:
    """Which row of a :class:`PodUsage` belongs to which pod of the selections.

    ``item`` int64[k]: the row of each selected pod, -1: none; ``answered`` bool[m]: whether the API answers anything at
    all for a selection; ``others``: rows that it answers besides, of pods that are not listed; ``selected``: what it
    was joined for; ``placed``: the pod of each row, where that is plain.
    """

    usage: PodUsage
    item: NDArray[np.int64]
    answered: NDArray[np.bool_]
    others: dict[int, list[int]] = field(default_factory=dict)
    selected: SelectedPods | None = None
    placed: PlacedUsage | None = None

    def again(self, usage: PodUsage, selected: SelectedPods) -> JoinedUsage | None:
        """The same for another list of the same pods, for the same selections; None: it has to be joined anew."""
        mine = self.selected
        if mine is None or mine.key is None or mine.key is not selected.key or not usage.same_pods(self.usage):
            return None
        return replace(self, usage=usage, selected=selected)

    def of(self, pods: SelectedPods, groups: NDArray[np.int64], resource: str, container: str) -> UsageOfGroups:
        """The samples of some selections, ascending, none twice."""
        begin, end = pods.ends[groups], pods.ends[groups + 1]
        item = self.item if len(groups) == len(pods.ends) - 1 else self.item[ranges(begin, end)]
        samples = SampleColumns(*self.usage.samples(resource, item, container))
        count = end - begin
        extra_count, extra_sum = np.zeros(len(groups), np.int64), np.zeros(len(groups), np.int64)
        if self.others:
            for i, group in enumerate(groups.tolist()):
                if group in self.others:
                    rows = np.array(self.others[group], np.int64)
                    counted, found, _, _ = self.usage.samples(resource, rows, container)
                    extra_count[i] = counted.sum()
                    extra_sum[i] = wrap(sum(found[counted != 0].tolist()))
        return UsageOfGroups(samples, np.cumsum(count) - count, extra_count, extra_sum)

    def answer(self, pods: SelectedPods, group: int, asked: GetMetric) -> PodMetricsList | MetricValueList:
        """What the API answers for one selection, as objects."""
        item = self.item[pods.ends[group] : pods.ends[group + 1]]
        rows = sorted([*item[item >= 0].tolist(), *self.others.get(group, ())])
        items = [self.usage.item(row) for row in rows]
        if asked.api == "resource":
            return PodMetricsList(items=items)
        values = []
        for each in items:
            of = ObjectReference(kind="Pod", namespace=each.metadata.namespace, name=each.metadata.name)
            amount = (each.containers or [ContainerMetrics()])[0].usage[asked.metric]
            seconds = parse_duration(each.window) // SECOND
            value = MetricValue(described_object=of, timestamp=each.timestamp, window_seconds=seconds, value=amount)
            values.append(value)
        return MetricValueList(items=values)


def source_of_query(asked: GetMetric) -> tuple[object, ...] | None:
    """Which usage answers a query; None: none of pods."""
    if asked.api == "resource":
        return ("resource",)
    if asked.api == "custom" and asked.kind == "Pod" and not asked.name:
        return "custom", asked.metric, asked.metric_selector
    return None


def join_usage(
    usage: PodUsage,
    pods: BatchPods,
    selected: SelectedPods,
    wanted: Sequence[tuple[str, str]],
    before: JoinedUsage | None = None,
) -> JoinedUsage:
    """Finds what a metrics API would answer for each (namespace, selector), by the labels of its items or, where they
    tell none, of their pods. Of a pod that comes twice the last counts. ``before``: what was joined last, of which is
    taken whatever still holds."""
    placed = None if before is None or before.placed is None else before.placed.again(usage, pods)
    if placed is not None:
        of_pod = np.full(len(pods.keys), -1, np.int64)
        of_pod[placed.rows] = np.arange(len(usage))
        item = of_pod[selected.rows]
        return JoinedUsage(usage, item, _answered(item, selected, len(wanted)), {}, selected, placed)
    keys, live = pods.keys, pods.rows
    if len(live) == len(keys):
        of_pod = usage.rows(keys)  # the item of every pod of the source
    else:
        of_pod = np.full(len(keys), -1, np.int64)
        of_pod[live] = usage.rows(list(map(keys.__getitem__, live.tolist())))
    item = of_pod[selected.rows]
    # An item that has its pod's labels is answered where the pod is selected.
    found = np.flatnonzero(of_pod >= 0)
    same = pods.have_labels(found, usage.labels[of_pod[found]], usage.label_sets)
    odd = found[~same]
    if len(odd):
        item[np.isin(selected.rows, odd)] = -1
    answered = _answered(item, selected, len(wanted))
    without = np.ones(len(usage), np.bool_)
    without[of_pod[found]] = False
    stray = np.flatnonzero(without)
    if not len(odd) and not len(stray):
        rows = np.empty(len(usage), np.int64)
        rows[of_pod[found]] = found
        return JoinedUsage(usage, item, answered, {}, selected, PlacedUsage.of(usage, pods, rows))
    last = usage.rows([usage.keys[row] for row in stray.tolist()])
    stray = stray[last == stray]  # of one that comes twice the last counts
    others: dict[int, list[int]] = {}
    if len(odd) or len(stray):
        others = _others(usage, selected, wanted, odd, of_pod, stray, item, answered)
    return JoinedUsage(usage, item, answered, others, selected)


def _answered(item: NDArray[np.int64], selected: SelectedPods, count: int) -> NDArray[np.bool_]:
    """Which of so many selections have a pod with an item."""
    answered = np.zeros(count, np.bool_)
    some = np.flatnonzero(np.diff(selected.ends))
    if len(some):
        answered[some] = np.add.reduceat((item >= 0).astype(np.int64), selected.ends[:-1][some]) > 0
    return answered


def _others(
    usage: PodUsage,
    selected: SelectedPods,
    wanted: Sequence[tuple[str, str]],
    odd: NDArray[np.int64],
    of_pod: NDArray[np.int64],
    stray: NDArray[np.int64],
    item: NDArray[np.int64],
    answered: NDArray[np.bool_],
) -> dict[int, list[int]]:
    """Items that do not go by their pod: without one, or with other labels. Those of selected pods go into ``item``."""
    pod_of = {int(of_pod[row]): int(row) for row in odd.tolist()}
    by_namespace: dict[str, list[int]] = defaultdict(list)
    by_label: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    labels = {}
    for row in (*stray.tolist(), *pod_of):
        namespace = usage.namespaces[usage.namespace[row]]
        labels[row] = usage.label_sets[usage.labels[row]] if usage.labels[row] >= 0 else {}
        by_namespace[namespace].append(row)
        for key, value in labels[row].items():
            by_label[namespace, key, value].append(row)
    out: dict[int, list[int]] = {}
    for group, (namespace, text) in enumerate(wanted):
        if namespace not in by_namespace:
            continue
        selector = parse_selector(text)
        exact = selector.exact_label()
        candidates = by_namespace[namespace] if exact is None else by_label.get((namespace, *exact), [])
        for row in candidates:
            if not selector.matches(labels[row]):
                continue
            answered[group] = True
            begin, end = int(selected.ends[group]), int(selected.ends[group + 1])
            at = np.flatnonzero(selected.rows[begin:end] == pod_of.get(row, -1)).tolist()
            if at:
                item[begin + at[0]] = row
            else:
                out.setdefault(group, []).append(row)
    return out
