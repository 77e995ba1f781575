"""What the replica calculator said of the metrics of one HPA of a batch, out of the columns of all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kscale.effects import ZERO_TIME
from kscale.hpa.batch_pods import SelectedPods
from kscale.hpa.batch_samples import JoinedUsage
from kscale.hpa.batch_specs import Metric
from kscale.hpa.calculation import MODES, PATHS, Replicas
from kscale.hpa.columns import CalculatorColumns
from kscale.hpa.encode import Chosen, Encoded
from kscale.hpa.pod_groups import GROUPS, group_pods
from kscale.objects.autoscaling import PodsMetricSource

__all__ = ["calculated"]


def calculated(
    row: int, chosen: Chosen, given: Encoded, answers: CalculatorColumns, now: int
) -> tuple[Replicas, ...] | None:
    """Of an HPA whose metrics could all be computed; None: one of them is not of pods, or was asked for by itself."""
    selected, group = given.selected, int(given.group[row])
    metrics = chosen.specs.metric_lists[int(chosen.specs.metrics[row])]
    found = [_joined(each, given) for each in metrics]
    if selected is None or group < 0 or any(each is None for each in found):
        return None
    names = _names(chosen.observed.pods.keys, selected, group)
    begin = int(given.targets.metrics_begin[row])
    return tuple(
        [
            _of(begin + i, metric, joined, names, group, chosen, given, answers, now)
            for i, (metric, joined) in enumerate(zip(metrics, found, strict=True))
            if joined is not None
        ]
    )


def _joined(metric: Metric, given: Encoded) -> JoinedUsage | None:
    if metric.of_usage:
        return given.joined.get(("resource",))
    if isinstance(metric.source, PodsMetricSource):
        return given.joined.get(("custom", metric.source.metric.name, metric.selector))
    return None


def _names(keys: Sequence[str], selected: SelectedPods, group: int) -> list[str]:
    rows = selected.rows[int(selected.ends[group]) : int(selected.ends[group + 1])]
    return [keys[row].partition("/")[2] for row in rows.tolist()]


def _of(
    at: int,
    metric: Metric,
    joined: JoinedUsage,
    names: Sequence[str],
    group: int,
    chosen: Chosen,
    given: Encoded,
    answers: CalculatorColumns,
    now: int,
) -> Replicas:
    pods_at, samples_at = int(given.rows.pods_begin[at]), int(given.rows.samples[at])
    pods = given.pods.part(slice(pods_at, pods_at + len(names)))
    samples = given.samples.part(slice(samples_at, samples_at + len(names)))
    codes = group_pods(pods, samples, metric.resource, options=chosen.options, now=now)
    if codes.any():
        groups = {name: [names[i] for i in np.flatnonzero(codes == code).tolist()] for code, name in enumerate(GROUPS)}
    else:
        groups = {name: [] for name in GROUPS}
        groups[GROUPS[0]] = list(names)
    path, ratios = int(answers.path[at]), answers.ratios[at].tolist()
    return Replicas(
        replicas=int(answers.replicas[at]),
        utilization=int(answers.utilization[at]) if MODES[metric.mode] == "utilization" else None,
        usage=int(answers.usage[at]),
        timestamp=_first(joined, pods_at, len(names), group),
        path=tuple([name for bit, name in PATHS if path & bit]),
        ratio=ratios[0],
        second_ratio=ratios[1],
        groups=groups,
    )


def _first(joined: JoinedUsage, begin: int, count: int, group: int) -> int:
    """When the first item that the API answers was measured."""
    rows = [row for row in joined.item[begin : begin + count].tolist() if row >= 0]
    rows += joined.others.get(group, ())
    return int(joined.usage.time[min(rows)]) if rows else ZERO_TIME
