"""Usage of the pods of a generated cluster: days of CPU and memory with a daily rhythm, from a seed."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kscale.errors import InputError
from kscale.files import replacing
from kscale.libraries import library
from kscale.objects.core import Pod

__all__ = ["UsageOfContainer", "usage_of", "write_usage"]

END: Final = 1767787200
"""2026-01-07T12:00:00Z: the last sample, in seconds; a generated cluster has no clock."""
_DAY: Final = 86400


class UsageOfContainer(NamedTuple):
    """``cpu`` (cores) and ``memory`` (bytes) of one container at the same times."""

    namespace: str
    pod: str
    container: str
    cpu: npt.NDArray[np.float64]
    memory: npt.NDArray[np.float64]


def usage_of(
    pods: Iterable[Pod], *, seed: int = 0, hours: float = 48.0, step: float = 300.0
) -> tuple[npt.NDArray[np.int64], Iterator[UsageOfContainer]]:
    """(times in seconds, usage of every container of the running pods).

    Containers of one workload use alike: between a twentieth and one and a half of what they request.
    """
    count = max(int(hours * 3600 // step), 1)
    times = END - (np.arange(count, dtype=np.int64)[::-1] * step).astype(np.int64)

    def each() -> Iterator[UsageOfContainer]:
        for pod in pods:
            if pod.status.phase != "Running":
                continue
            owner = next((o.name for o in pod.metadata.owner_references if o.controller), pod.name)
            for container in pod.spec.containers:
                requests = container.resources.requests or {}
                cores = requests["cpu"].approximate_float() if "cpu" in requests else 0.1
                size = requests["memory"].approximate_float() if "memory" in requests else 128.0 * 2**20
                alike = np.random.default_rng([seed, *f"{pod.namespace}/{owner}/{container.name}".encode()])
                own = np.random.default_rng([seed, *f"{pod.key}/{container.name}".encode()])
                level, swing, phase = alike.uniform(0.05, 0.9), alike.uniform(0.0, 0.6), alike.uniform(0, 2 * np.pi)
                rhythm = 1 + swing * np.sin(2 * np.pi * (times % _DAY) / _DAY + phase)
                cpu = cores * level * rhythm * own.lognormal(0.0, 0.25, count)
                base = alike.uniform(0.2, 0.95)
                drift = np.cumsum(own.normal(0.0, 0.004, count))
                memory = size * base * (1 + 0.2 * np.tanh(drift)) * (1 + 0.05 * swing * rhythm)
                yield UsageOfContainer(pod.namespace, pod.name, container.name, np.round(cpu, 6), np.floor(memory))

    return times, each()


def write_usage(path: Path, pods: Iterable[Pod], *, seed: int = 0, hours: float = 48.0, step: float = 300.0) -> int:
    """Write usage as ``.csv`` or ``.parquet`` with the columns that ``kscale recommend`` reads; the number of rows."""
    times, each = usage_of(pods, seed=seed, hours=hours, step=step)
    if path.suffix == ".csv":
        return _write_csv(path, times, each)
    if path.suffix == ".parquet":
        return _write_parquet(path, times, each)
    raise InputError(f"{path}: usage is written as .csv or .parquet")


def _write_csv(path: Path, times: npt.NDArray[np.int64], each: Iterable[UsageOfContainer]) -> int:
    rows = 0
    with replacing(path) as raw, io.TextIOWrapper(raw, encoding="utf-8", newline="") as file:
        file.write("time,namespace,pod,container,cpu_cores,memory_bytes\n")
        for one in each:
            middle = f",{one.namespace},{one.pod},{one.container},"
            columns = zip(times.tolist(), one.cpu.tolist(), one.memory.astype(np.int64).tolist(), strict=True)
            file.writelines(f"{time}{middle}{cpu:.6g},{memory}\n" for time, cpu, memory in columns)
            rows += len(times)
    return rows


def _write_parquet(path: Path, times: npt.NDArray[np.int64], each: Iterable[UsageOfContainer]) -> int:
    pa, pq = library("pyarrow", "writing Parquet"), library("pyarrow.parquet", "writing Parquet")
    text = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([
        ("time", pa.timestamp("ms", "UTC")), ("namespace", text), ("pod", text), ("container", text),
        ("cpu_cores", pa.float64()), ("memory_bytes", pa.float64()),
    ])  # fmt: skip
    rows = 0
    with replacing(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in _tables(pa, schema, times, each):
            writer.write_table(table)
            rows += table.num_rows
    return rows


def _tables(pa: Any, schema: Any, times: npt.NDArray[np.int64], each: Iterable[UsageOfContainer]) -> Iterator[Any]:
    """About a million rows at a time: one row group each."""
    together = max(1, 1_000_000 // len(times))
    waiting: list[UsageOfContainer] = []

    def table() -> Any:
        n = len(times)

        def named(texts: list[str]) -> Any:
            # Each text once: with one twice the writer gives up on dictionaries, and reading takes many times longer.
            numbers = {text: i for i, text in enumerate(dict.fromkeys(texts))}
            codes = np.repeat(np.array([numbers[text] for text in texts], np.int32), n)
            return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(numbers)))

        return pa.table(
            [
                pa.array(np.tile(times * 1000, len(waiting))).cast(pa.timestamp("ms", "UTC")),
                named([one.namespace for one in waiting]),
                named([one.pod for one in waiting]),
                named([one.container for one in waiting]),
                pa.array(np.concatenate([one.cpu for one in waiting])),
                pa.array(np.concatenate([one.memory for one in waiting])),
            ],
            schema=schema,
        )

    for one in each:
        waiting.append(one)
        if len(waiting) == together:
            yield table()
            waiting.clear()
    if waiting:
        yield table()
