"""CPU and memory usage of containers over time, read in batches from Parquet, CSV and Prometheus JSON.

Columns: ``time``, ``namespace``, ``pod``, ``container``, ``cpu_cores`` and ``memory_bytes`` (one of the two may be
missing), and optionally ``workload``. Rows may come in any order.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError, Problem
from kscale.series.columns import Series, SeriesKey
from kscale.series.prometheus import read_prometheus
from kscale.series.reader import content_of, form_of
from kscale.series.usage_csv import CPU, MEMORY, CsvFile, Numbered, SeriesTable, check_quotes, column_names

if TYPE_CHECKING:
    from kscale.series.usage_tables import NamesOfTables

__all__ = ["METRICS", "UsageBatch", "UsageFiles", "read_usage", "resource_of", "usage_of"]


METRICS: Final = ("cpu", "memory")
"""Resources that may be named for series without an indication."""
_COUNTER: Final = "_seconds_total"
_SIGNS: Final = {
    "cpu": re.compile(r"cpu|(?<![a-z])cores?(?![a-z])"),
    "memory": re.compile(r"memory|(?<![a-z])(?:mem|rss)(?![a-z])"),
}


def resource_of(labels: Mapping[str, str], requested: str, file: str, place: str, source: str) -> str:
    """Return ``cpu`` or ``memory``, from the label ``resource``, the metric's name, ``requested`` or the file's name.

    The first of these that names one resource decides. A name with ``cpu`` or ``cores`` means CPU;
    ``container_memory_working_set_bytes``, ``container_mem_rss`` and similar names mean memory. Raises ``InputError``
    if nothing is conclusive, and for a counter of seconds without a rate, which is the CPU time of a container's whole
    life and not cores. ``place`` and ``source`` name the series in the message.
    """
    name = labels.get("__name__", "")
    if name.endswith(_COUNTER):
        text = f"{name} counts seconds since a container began, and says nothing of cores: ask for rate({name}[5m])"
        raise InputError(Problem(text, source, place))
    for hint in (labels.get("resource", ""), name, requested, file):
        matches = [name for name, sign in _SIGNS.items() if sign.search(hint.lower())]
        if len(matches) == 1:
            return matches[0]
    subject = f"the metric {name!r}" if name else "a series without a metric's name (__name__) or a label resource"
    raise InputError(Problem(f"{subject} may be of CPU or of memory: say which (--metric)", source, place))


_T = TypeVar("_T")
_MOST_WORKERS: Final = 4
"""Maximum number of threads; each needs up to about 70 MB."""
POD_LABEL_PREFIXES: Final = ("label_", "pod_label_")
"""Prefixes of pod labels in series: of kube-state-metrics, and upstream's default."""


@dataclass(frozen=True, slots=True)
class UsageBatch:
    """Usage of containers: ``keys[series[i]]`` used ``cpu[i]`` cores and ``memory[i]`` bytes at ``time[i]``.

    Times are in nanoseconds since 1970; NaN means no value.

    - ``cpu`` or ``memory`` is None if the source does not have it.
    - ``workloads[k]``: the workload that the source names for ``keys[k]``, or an empty text. Batches of one file may
      share ``keys`` and ``workloads``, which grow.
    - ``labels[k]``: labels of the pod in Prometheus' form (without ``label_`` or ``pod_label_``, characters other than
      letters and digits replaced by underscores); empty if there are none.
    - ``warnings``: warnings of the source, with the first batch of a file.
    """

    keys: Sequence[SeriesKey]
    workloads: Sequence[str]
    series: NDArray[np.int32]
    time: NDArray[np.int64]
    cpu: NDArray[np.float64] | None
    memory: NDArray[np.float64] | None
    labels: Sequence[Mapping[str, str]] = ()
    warnings: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.time)


def read_usage(
    path: Path | str,
    *,
    columns: Mapping[str, str] | None = None,
    unit: str = "s",
    threads: int = 2,
    metric: str = "",
) -> Iterator[UsageBatch]:
    """Yield the usage of containers in batches of rows from a file, whose suffix selects the format.

    Parameters
    ----------
    path : Path or str
        A ``.parquet``, ``.csv`` or ``.json`` (Prometheus) file; ``.csv`` and ``.json`` may be followed by ``.gz``.
    columns : mapping, optional
        The file's names for columns (Prometheus: labels), by their default names.
    unit : str
        Unit of numeric times: s, ms, us or ns.
    threads : int
        Threads that read ahead. The result does not depend on it.
    metric : str, optional
        ``cpu`` or ``memory``: the resource of Prometheus series that do not indicate it themselves.

    Yields
    ------
    UsageBatch
        Usage of containers.

    Raises
    ------
    InputError
        If the file cannot be read, a row is invalid, or ``metric`` is unknown. It is raised at the iteration.
    MissingExtraError
        If the file needs pyarrow, which is not installed.
    """
    if metric and metric not in METRICS:
        raise InputError(f"{metric!r} is not a metric: one of {', '.join(METRICS)}")
    path = Path(path)
    try:
        is_file = path.is_file()
    except OSError as error:  # such as a name that is too long
        raise InputError(Problem(error.strerror or str(error), str(path))) from None
    if not is_file:
        raise InputError(Problem("not a regular file" if path.exists() else "no such file", str(path)))
    form = form_of(path, (".parquet", ".csv", ".json"), "usage")
    if form == ".parquet":
        yield from _parquet(path, column_names(columns), unit, threads)
    elif form == ".csv":
        yield from _csv(path, column_names(columns), unit, threads)
    else:
        yield from _prometheus(path, columns, metric)


@dataclass(frozen=True, slots=True)
class UsageFiles:
    """Batches of several files, read on each iteration; arguments as in :func:`read_usage`.

    Parquet and CSV files whose first batches do not overlap in time are sorted by time, so that the parts of a history
    may be named in any order.
    """

    paths: Sequence[Path]
    columns: Mapping[str, str] | None = None
    unit: str = "s"
    threads: int = 2
    metric: str = ""

    def __iter__(self) -> Iterator[UsageBatch]:
        for path in self._sort_paths():
            yield from self._read(path)

    def _read(self, path: Path) -> Iterator[UsageBatch]:
        """Yield the batches of one file. Raises InputError if it cannot be read."""
        return read_usage(path, columns=self.columns, unit=self.unit, threads=self.threads, metric=self.metric)

    def _sort_paths(self) -> list[Path]:
        """Return the paths sorted by the times of their first batches.

        The order is unchanged if these times of two files overlap, or if a file is a Prometheus response.
        """
        if len(self.paths) < 2 or any(".json" in path.suffixes for path in self.paths):
            return list(self.paths)  # a Prometheus response would be read twice
        ranges = []
        for path in self.paths:
            first = next(self._read(path), None)
            ranges.append((0, 0) if first is None else (int(first.time.min()), int(first.time.max())))
        ordered = sorted(range(len(ranges)), key=ranges.__getitem__)
        if any(ranges[a][1] > ranges[b][0] for a, b in pairwise(ordered)):
            return list(self.paths)
        return [self.paths[i] for i in ordered]


def _ahead(parts: Iterator[Callable[[], _T]], threads: int) -> Iterator[_T]:
    """Call the functions in threads, some of them ahead of time, and yield their results in order."""
    workers = min(max(threads, 1), _MOST_WORKERS)
    with ThreadPoolExecutor(workers) as pool:
        coming: deque[Future[_T]] = deque()
        try:
            for part in parts:
                coming.append(pool.submit(part))
                if len(coming) > workers:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()
        finally:
            for future in coming:
                future.cancel()


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows whose series are numbered by the reader."""

    series: Numbered
    time: NDArray[np.int64]
    cpu: NDArray[np.float64] | None
    memory: NDArray[np.float64] | None

    def batch(self, table: SeriesTable) -> UsageBatch:
        """Return the rows as a batch whose series are indices into ``table``, to which new series are added."""
        series = table.take(self.series)
        return UsageBatch(table.keys, table.workloads, series, self.time, self.cpu, self.memory)


def _parquet(path: Path, names: Mapping[str, str], unit: str, threads: int) -> Iterator[UsageBatch]:
    """Yield the usage in a Parquet file. Raises InputError if it cannot be read.

    ``names``: column of each field; ``unit``: of numeric times.
    """
    from kscale.series import usage_tables as arrow

    own = threading.local()

    def rows(part: Callable[[], Any]) -> _Rows | None:
        if not hasattr(own, "names"):
            own.names = arrow.NamesOfTables()
        try:
            return _read_table(part(), own.names, names, unit, str(path))
        except (arrow.ArrowException, OSError) as error:
            raise arrow.unreadable(error, path) from None

    table_of_series = SeriesTable()
    for part_rows in _ahead((partial(rows, part) for part in arrow.parquet_parts(path, names)), threads):
        if part_rows is not None:
            yield part_rows.batch(table_of_series)


def _read_table(
    table: Any, numbering: NamesOfTables, names: Mapping[str, str], unit: str, source: str, before: int = 0
) -> _Rows | None:
    """Return the rows of an Arrow table; None if it is empty. ``before``: number of preceding rows of the file.

    ``names``: column of each field; ``numbering``: numbers of series, to which new ones are added. Raises InputError
    for invalid cells.
    """
    from kscale.series import usage_tables as arrow

    if table.num_rows == 0:
        return None
    return _Rows(
        numbering.number(table, names, source),
        arrow.times(table.column(names["time"]), unit, source, before),
        arrow.numbers(table, names[CPU], source),
        arrow.numbers(table, names[MEMORY], source),
    )


def _csv(path: Path, names: Mapping[str, str], unit: str, threads: int) -> Iterator[UsageBatch]:
    """Yield the usage in a CSV file. Raises InputError if it cannot be read.

    ``names``: column of each field; ``unit``: of numeric times.
    """
    file = CsvFile(path, names, unit)
    table_of_series = SeriesTable()
    numbering: NamesOfTables | None = None
    before = 0
    for part in _ahead(file.parts(), threads):
        rows: _Rows | None = None
        if part.series is not None:
            rows = _Rows(part.series, *part.columns)
        elif part.text:
            from kscale.series import usage_tables as arrow

            check_quotes(part.text, path)
            numbering = numbering or arrow.NamesOfTables()
            table = arrow.csv_table(part.text, file.header, file.required_columns, names, str(path), before)
            rows = _read_table(table, numbering, names, unit, str(path), before)
        if rows is not None and len(rows.time):
            before += len(rows.time)
            yield rows.batch(table_of_series)


# -- Prometheus ------------------------------------------------------------------------------------------------


def _prometheus(path: Path, columns: Mapping[str, str] | None, metric: str) -> Iterator[UsageBatch]:
    """Yield the usage in a Prometheus response, split by :func:`resource_of` into CPU (cores) and memory (bytes).

    ``metric``: the resource of series that do not indicate it. The first batch has the warnings of the response; if
    there are warnings but no samples, that batch is empty. Raises InputError if the response cannot be read.
    """
    series = read_prometheus(content_of(path), columns=columns, source=str(path), finite=False)
    is_memory = np.array(
        [
            resource_of(labels, metric, path.name, f"data.result[{i}].metric", str(path)) == "memory"
            for i, labels in enumerate(series.labels)
        ],
        bool,
    )
    warnings = series.warnings
    for batch in usage_of(series, is_memory, columns):
        yield replace(batch, warnings=(*warnings, *batch.warnings))
        warnings = ()
    if warnings:  # no samples
        nothing = np.empty(0, np.int64)
        yield UsageBatch([], [], nothing.astype(np.int32), nothing, nothing.astype(float), None, (), warnings)


def usage_of(
    series: Series, is_memory: NDArray[np.bool_], columns: Mapping[str, str] | None = None
) -> Iterator[UsageBatch]:
    """Yield the usage in Prometheus series: a batch of CPU, then one of memory.

    Series are sorted by (namespace, pod, container). If a container has several series, the rows of each container are
    sorted by time, as upstream does, and there is a warning if two of them have the same time. A batch without samples
    is left out. ``is_memory`` bool[series] marks memory (bytes); the others are CPU (cores). ``columns`` as in
    :func:`read_usage`.
    """
    bounds = np.searchsorted(series.series, np.arange(len(series.keys) + 1))
    for memory in (False, True):
        selected = sorted(np.flatnonzero(is_memory == memory).tolist(), key=series.keys.__getitem__)
        rows = [slice(int(bounds[i]), int(bounds[i + 1])) for i in selected]
        lengths = [part.stop - part.start for part in rows]
        if not sum(lengths):
            continue
        containers: dict[tuple[SeriesKey, str, tuple[tuple[str, str], ...]], int] = {}
        numbers = [
            containers.setdefault(_container_key(series.keys[i], series.labels[i], columns), len(containers))
            for i in selected
        ]
        of_row = np.repeat(np.array(numbers, np.int32), lengths)
        times = np.concatenate([series.time[part] for part in rows])
        values = np.concatenate([series.value[part] for part in rows])
        warnings: tuple[str, ...] = ()
        if len(containers) < len(
            selected
        ):  # a restarted container has several series: upstream sorts its samples by time
            order = np.lexsort((times, of_row))
            of_row, times, values = of_row[order], times[order], values[order]
            if ((np.diff(times) == 0) & (np.diff(of_row) == 0)).any():
                warnings = _warn_of_partial_series(selected, numbers, series)
        yield UsageBatch(
            [key for key, _, _ in containers],
            [workload for _, workload, _ in containers],
            of_row,
            times,
            None if memory else values,
            values if memory else None,
            [dict(labels) for _, _, labels in containers],
            warnings,
        )


def _warn_of_partial_series(selected: Sequence[int], numbers: Sequence[int], series: Series) -> tuple[str, ...]:
    """Return a warning that a container has several series, with the labels in which they differ.

    Each of these series is only a part of the container's usage, such as that of one core. ``selected``: indices of
    series; ``numbers``: number of the container to which each of these series belongs.
    """
    groups: dict[int, list[Mapping[str, str]]] = {}
    for i, number in zip(selected, numbers, strict=True):
        groups.setdefault(number, []).append(series.labels[i])
    differing = {
        name
        for group in groups.values()
        for name in {name for labels in group for name in labels}
        if len({labels.get(name) for labels in group}) > 1
    }
    if not differing:
        return ("a container has several series at the same time: add them up",)
    shown = ", ".join(sorted(differing))
    text = f"a container has several series at the same time, which differ in {shown}"
    return (f"{text}: add them up (sum by namespace, pod and container)",)


def _container_key(
    key: SeriesKey, labels: Mapping[str, str], columns: Mapping[str, str] | None
) -> tuple[SeriesKey, str, tuple[tuple[str, str], ...]]:
    """Return (key of the series, the workload that its labels name or empty, sorted labels of its pod)."""
    named = labels.get((columns or {}).get("workload", "workload"), "")
    return key, named, tuple(sorted(_pod_labels(labels).items()))


def _pod_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of the pod among the labels of a series, without their prefix."""
    return {
        name.removeprefix(prefix): value
        for name, value in labels.items()
        for prefix in POD_LABEL_PREFIXES
        if name.startswith(prefix)
    }
