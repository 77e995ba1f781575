"""What the replica calculator said of the metrics of HPAs of a batch, out of the columns of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kscale.effects import ZERO_TIME
from kscale.hpa.batch_samples import JoinedUsage
from kscale.hpa.batch_specs import Metric
from kscale.hpa.calculation import MODES, PATHS, Replicas
from kscale.hpa.columns import CalculatorColumns
from kscale.hpa.encode import Chosen, Encoded
from kscale.hpa.pod_groups import GROUPS, group_pods
from kscale.objects.autoscaling import PodsMetricSource

__all__ = ["CalculatedRows"]


class CalculatedRows:
    """The answers of the calculator, row by row. Columns are taken as lists once: their rows are slow to look at."""

    def __init__(self, chosen: Chosen, given: Encoded, answers: CalculatorColumns, now: int) -> None:
        self._chosen, self._given, self._now = chosen, given, now
        self._keys = chosen.observed.pods.keys
        self._group = given.group.tolist()
        self._facet = chosen.specs.metrics.tolist()
        self._begin = given.targets.metrics_begin.tolist()
        self._pods_at, self._samples_at = given.rows.pods_begin.tolist(), given.rows.samples.tolist()
        self._replicas, self._utilization = answers.replicas.tolist(), answers.utilization.tolist()
        self._usage, self._ratios = answers.usage.tolist(), answers.ratios.tolist()
        self._paths = [_path(bits) for bits in range(256)]
        self._path = answers.path.tolist()
        self._all_ready: list[bool] = np.logical_not(answers.groups[:, 1:].any(axis=1)).tolist()
        self._measured: dict[int, tuple[list[int], list[int]]] = {}
        self._ends = [] if given.selected is None else given.selected.ends.tolist()

    def of(self, row: int) -> tuple[Replicas, ...] | None:
        """Of an HPA whose metrics could all be computed; None: one of them is not of pods, or was asked for alone."""
        group = self._group[row]
        metrics = self._chosen.specs.metric_lists[self._facet[row]]
        found = [self._joined(each) for each in metrics]
        if self._given.selected is None or group < 0 or None in found:
            return None
        names, begin = self._names(group), self._begin[row]
        return tuple(
            [
                self._of(begin + i, metric, joined, names, group)
                for i, (metric, joined) in enumerate(zip(metrics, found, strict=True))
                if joined is not None
            ]
        )

    def _joined(self, metric: Metric) -> JoinedUsage | None:
        if metric.of_usage:
            return self._given.joined.get(("resource",))
        if isinstance(metric.source, PodsMetricSource):
            return self._given.joined.get(("custom", metric.source.metric.name, metric.selector))
        return None

    def _names(self, group: int) -> list[str]:
        assert self._given.selected is not None
        rows = self._given.selected.rows[self._ends[group] : self._ends[group + 1]]
        keys = self._keys
        return [keys[row].partition("/")[2] for row in rows.tolist()]

    def _of(self, at: int, metric: Metric, joined: JoinedUsage, names: Sequence[str], group: int) -> Replicas:
        ratio, second_ratio = self._ratios[at]
        return Replicas(
            replicas=self._replicas[at],
            utilization=self._utilization[at] if MODES[metric.mode] == "utilization" else None,
            usage=self._usage[at],
            timestamp=self._first(joined, self._pods_at[at], len(names), group),
            path=self._paths[self._path[at]],
            ratio=ratio,
            second_ratio=second_ratio,
            groups=self._groups(at, metric, names),
        )

    def _groups(self, at: int, metric: Metric, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        if self._all_ready[at]:
            return {name: [] if number else list(names) for number, name in enumerate(GROUPS)}
        pods_at, samples_at = self._pods_at[at], self._samples_at[at]
        pods = self._given.pods.part(slice(pods_at, pods_at + len(names)))
        samples = self._given.samples.part(slice(samples_at, samples_at + len(names)))
        codes = group_pods(pods, samples, metric.resource, options=self._chosen.options, now=self._now)
        return {name: [names[i] for i in np.flatnonzero(codes == code).tolist()] for code, name in enumerate(GROUPS)}

    def _first(self, joined: JoinedUsage, begin: int, count: int, group: int) -> int:
        """When the first item that the API answers was measured."""
        known = self._measured.get(id(joined))
        if known is None:
            known = self._measured[id(joined)] = joined.item.tolist(), joined.usage.time.tolist()
        items, times = known
        rows = [row for row in items[begin : begin + count] if row >= 0]
        rows += joined.others.get(group, ())
        return times[min(rows)] if rows else ZERO_TIME


def _path(bits: int) -> tuple[str, ...]:
    return tuple([name for bit, name in PATHS if bits & bit])
