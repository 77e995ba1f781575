"""CPU and memory of containers over time, read in batches: Parquet by row group, CSV by block, Prometheus JSON whole.

Columns: ``time``, ``namespace``, ``pod``, ``container``, ``cpu_cores`` and ``memory_bytes`` (one of the two may be
missing), and optionally ``workload``. Rows may come in any order.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError, Problem
from kscale.series.columns import KEY_COLUMNS, SeriesKey
from kscale.series.prometheus_reader import read_prometheus

__all__ = ["UsageBatch", "read_usage"]

CPU: Final = "cpu_cores"
MEMORY: Final = "memory_bytes"
POD_LABEL_PREFIXES: Final = ("label_", "pod_label_")
"""Of labels of a pod on its series: kube-state-metrics, and upstream's default."""


@dataclass(frozen=True, slots=True)
class UsageBatch:
    """``keys[series[i]]`` used ``cpu[i]`` cores and ``memory[i]`` bytes at ``time[i]`` (ns since 1970); NaN: no value.

    ``cpu`` or ``memory`` is None where the source does not have it. ``workloads[k]`` is the workload that the source
    names for ``keys[k]``, or an empty text. ``labels[k]``: the labels of the pod as Prometheus has them (without
    ``label_`` or ``pod_label_``, every other character than letters and digits an underscore); empty = none are told.
    """

    keys: Sequence[SeriesKey]
    workloads: Sequence[str]
    series: NDArray[np.int32]
    time: NDArray[np.int64]
    cpu: NDArray[np.float64] | None
    memory: NDArray[np.float64] | None
    labels: Sequence[Mapping[str, str]] = ()

    def __len__(self) -> int:
        return len(self.time)


def read_usage(path: Path | str, *, columns: Mapping[str, str] | None = None, unit: str = "s") -> Iterator[UsageBatch]:
    """The batches of a file, by its suffix: ``.parquet``, ``.csv`` (``.gz`` too), ``.json``.

    ``columns`` renames columns (Prometheus: labels). Raises ``InputError`` when the file cannot be read.
    """
    path = Path(path)
    name = path.name.lower().removesuffix(".gz")
    names = {key: (columns or {}).get(key, key) for key in ("time", *KEY_COLUMNS, CPU, MEMORY, "workload")}
    if not path.is_file():
        raise InputError(Problem("no such file", str(path)))
    if name.endswith((".parquet", ".csv")):
        from kscale.series import usage_tables as arrow

        tables = arrow.parquet_tables if name.endswith(".parquet") else arrow.csv_tables
        for table in _ahead(tables(path, names)):
            if table.num_rows == 0:
                continue
            keys, workloads, series = arrow.keys(table, names, str(path))
            yield UsageBatch(
                keys,
                workloads,
                series,
                arrow.times(table.column(names["time"]), unit, str(path)),
                arrow.numbers(table, names[CPU], str(path)),
                arrow.numbers(table, names[MEMORY], str(path)),
            )
    elif name.endswith(".json"):
        yield _prometheus(path, columns)
    else:
        raise InputError(Problem("usage is read from .parquet, .csv or .json (a Prometheus range answer)", str(path)))


def _ahead(items: Iterable[Any]) -> Iterator[Any]:
    """The items, each being made in another thread while the one before is looked at."""
    source = iter(items)
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, source, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, source, None)
            yield item


# -- Prometheus ------------------------------------------------------------------------------------------------


def _prometheus(path: Path, columns: Mapping[str, str] | None) -> UsageBatch:
    """One matrix; its metric's name, or the label ``resource``, says whether it is CPU (cores) or memory (bytes)."""
    try:
        series = read_prometheus(_content(path), columns=columns, source=str(path), finite=False)
    except OSError as error:
        raise InputError(Problem(error.strerror or str(error), str(path))) from None
    is_memory = np.array(
        ["memory" in f"{labels.get('__name__', '')} {labels.get('resource', '')}" for labels in series.labels], bool
    )
    if not any("__name__" in labels or "resource" in labels for labels in series.labels):
        is_memory[:] = "mem" in path.name.lower()
    rows = is_memory[series.series] if len(series) else np.zeros(0, bool)
    nothing = np.float64("nan")
    return UsageBatch(
        series.keys,
        [labels.get((columns or {}).get("workload", "workload"), "") for labels in series.labels],
        series.series,
        series.time,
        np.where(rows, nothing, series.value) if not rows.all() else None,
        np.where(rows, series.value, nothing) if rows.any() else None,
        [_pod_labels(labels) for labels in series.labels],
    )


def _pod_labels(labels: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(prefix): value
        for name, value in labels.items()
        for prefix in POD_LABEL_PREFIXES
        if name.startswith(prefix)
    }


def _content(path: Path) -> bytes:
    if path.suffix.lower() != ".gz":
        return path.read_bytes()
    try:
        return gzip.decompress(path.read_bytes())
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(Problem(f"not gzip: {error}", str(path))) from None
