"""HPAs, their targets, pods and samples as columns: what :mod:`kscale.hpa.decide` takes.

Pods are rows in groups, one group a (namespace, selector); samples lie in the order of the pods of their group, so that
only a change of pods asks for names again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kscale._native import _names, _replicas
from kscale.hpa.options import HPAOptions
from kscale.hpa.pod_groups import PodColumns, SampleColumns

__all__ = ["MetricRows", "SampleTable", "SampledPods", "TargetColumns"]


@dataclass(frozen=True, slots=True)
class TargetColumns:
    """One row an HPA. ``scale_error`` 0 none, 1 internal, 2 spec; ``selector_error`` 0 none, 1 required, 2 invalid,
    3 deleted, 4 pods could not be listed, 5 ambiguous; ``refused`` whether a scale that is written is refused for good;
    ``metrics_begin``/``metrics_end`` into the rows of
    :class:`MetricRows`; the rest as of the spec and the scale.
    """

    scale_error: NDArray[np.uint8]
    current: NDArray[np.int32]
    minimum: NDArray[np.int32]
    maximum: NDArray[np.int32]
    object_metric: NDArray[np.uint8]
    behavior: NDArray[np.uint8]
    selector_error: NDArray[np.uint8]
    refused: NDArray[np.uint8]
    fresh: NDArray[np.uint8]
    metrics_begin: NDArray[np.int64]
    metrics_end: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.current)


@dataclass(frozen=True, slots=True)
class MetricRows:
    """One row a metric of an HPA: what the replica calculator takes (``kscale._native._replicas.calculate``).

    ``mode`` indexes ``replica_calculator.MODES``; ``given`` 1: no metrics, 2: pods could not be listed; ``invalid`` is
    set where the HPA's own spec is at fault (error class ``spec``).
    """

    mode: NDArray[np.uint8]
    cpu: NDArray[np.uint8]
    given: NDArray[np.uint8]
    invalid: NDArray[np.uint8]
    current: NDArray[np.int32]
    target: NDArray[np.int64]
    down: NDArray[np.float64]
    up: NDArray[np.float64]
    pods_begin: NDArray[np.int64]
    pods_end: NDArray[np.int64]
    samples: NDArray[np.int64]
    requests: NDArray[np.int64]
    bad_request: NDArray[np.int32]
    extra_count: NDArray[np.int64]
    extra_sum: NDArray[np.int64]
    values_begin: NDArray[np.int64]
    values_end: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.mode)


@dataclass(frozen=True, slots=True)
class CalculatorColumns:
    """What the calculator says of every row: see ``kscale._native._replicas.calculate``."""

    replicas: NDArray[np.int32]
    utilization: NDArray[np.int32]
    usage: NDArray[np.int64]
    error: NDArray[np.uint8]
    path: NDArray[np.uint8]
    groups: NDArray[np.int32]
    ratios: NDArray[np.float64]


def calculate(
    rows: MetricRows,
    pods: PodColumns,
    samples: SampleColumns,
    requests: NDArray[np.int64],
    values: NDArray[np.int64],
    *,
    options: HPAOptions,
    now: int,
    threads: int = 1,
) -> CalculatorColumns:
    """The replica calculator over all rows."""
    return CalculatorColumns(
        *_replicas.calculate(
            rows.mode,
            rows.cpu,
            rows.given,
            rows.current,
            rows.target,
            rows.down,
            rows.up,
            rows.pods_begin,
            rows.pods_end,
            rows.samples,
            rows.requests,
            rows.bad_request,
            rows.extra_count,
            rows.extra_sum,
            rows.values_begin,
            rows.values_end,
            *pods.arrays,
            *samples.arrays,
            requests,
            values,
            *options.terms(now),
            threads,
        )
    )


class SampledPods:
    """Rows of pods by key (``namespace/name``), for joining samples by name."""

    __slots__ = ("_table", "keys")

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = keys
        self._table = _names.NameTable(keys)

    def __len__(self) -> int:
        return len(self._table)

    def rows(self, keys: Sequence[str]) -> NDArray[np.int64]:
        """The row of each key, -1 where there is none; cheapest where the keys come in the order of the rows."""
        return self._table.rows(keys)


class SampleTable:
    """The samples of all pods of a table, one row a pod. Single owner: not for use from several threads at once."""

    __slots__ = ("columns", "pods")

    def __init__(self, pods: SampledPods) -> None:
        n = len(pods)
        self.pods = pods
        self.columns = SampleColumns(
            np.zeros(n, np.uint8), np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
        )

    def update(
        self,
        keys: Sequence[str],
        value: NDArray[np.int64],
        time: NDArray[np.int64],
        window: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Put samples in place by pod key; of a key that comes twice the last counts. Costs what is given, not what is
        there. Returns the positions of the samples that belong to no pod of the table.
        """
        rows = self.pods.rows(keys)
        known = rows >= 0
        at = rows if known.all() else rows[known]
        columns = self.columns
        columns.present[at] = 1
        if at is rows:
            columns.value[at], columns.time[at], columns.window[at] = value, time, window
        else:
            columns.value[at], columns.time[at], columns.window[at] = value[known], time[known], window[known]
        return np.flatnonzero(~known)

    def remove(self, keys: Sequence[str]) -> None:
        """Forget the samples of pods."""
        rows = self.pods.rows(keys)
        self.columns.present[rows[rows >= 0]] = 0
