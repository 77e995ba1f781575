"""Usage from files: the same batches whatever the form, the threads and the size of the slices."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kscale.errors import InputError
from kscale.series import usage_csv
from kscale.series.usage_reader import read_usage

HEADER = "time,namespace,pod,container,cpu_cores,memory_bytes\n"
Row = tuple[int, str, str, str, float, float]


def read(path: Path, threads: int = 2, **how: Any) -> list[Row]:
    """All rows of a file in order."""
    found: list[Row] = []
    for batch in read_usage(path, threads=threads, **how):
        assert batch.cpu is not None
        assert batch.memory is not None
        for series, time, cpu, memory in zip(batch.series, batch.time, batch.cpu, batch.memory, strict=True):
            found.append((int(time), *batch.keys[series], float(cpu), float(memory)))
    return found


def some_rows(count: int) -> list[Row]:
    rng = np.random.default_rng(3)
    return [
        (
            1767582000 + i // 7 * 60,
            "shop",
            f"web-{i % 7}",
            "app",
            float(rng.uniform(0, 2)),
            float(rng.integers(1, 10**9)),
        )
        for i in range(count)
    ]


def as_csv(rows: list[Row]) -> str:
    return HEADER + "".join(f"{t},{n},{p},{c},{cpu!r},{memory:.0f}\n" for t, n, p, c, cpu, memory in rows)


def expected(rows: list[Row]) -> list[Row]:
    return [(row[0] * 10**9, *row[1:]) for row in rows]


@pytest.mark.parametrize("size", [1, 60, 200, 1 << 20])
def test_slices_of_any_size_are_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    rows = some_rows(50)
    monkeypatch.setattr(usage_csv, "_SLICE", size)
    for name, data in (
        ("a.csv", as_csv(rows).encode()),
        ("b.csv", as_csv(rows).rstrip("\n").encode()),
        ("c.csv", as_csv(rows).replace("\n", "\r\n").encode()),
        ("d.csv.gz", gzip.compress(as_csv(rows).encode())),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        for threads in (1, 3):
            assert read(path, threads) == expected(rows)


def test_a_line_longer_than_a_slice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(1, "shop", "p" * 200_000, "app", 1.0, 2.0), (2, "shop", "q", "app", 1.0, 2.0)]
    monkeypatch.setattr(usage_csv, "_SLICE", 1000)
    path = tmp_path / "long.csv"
    path.write_text(as_csv(rows))
    assert read(path) == expected(rows)


def test_quotes_and_other_spellings_are_read_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = some_rows(40)
    text = as_csv(rows).split("\n")
    text[7] = text[7].replace(",shop,", ',"shop",')
    monkeypatch.setattr(usage_csv, "_SLICE", 300)
    path = tmp_path / "quoted.csv"
    path.write_text("\n".join(text))
    assert read(path) == expected(rows)


def test_the_row_of_a_mistake_is_named_in_any_slice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = as_csv(some_rows(40)).split("\n")
    text[33] += ",more"
    monkeypatch.setattr(usage_csv, "_SLICE", 300)
    path = tmp_path / "bad.csv"
    path.write_text("\n".join(text))
    with pytest.raises(InputError, match="row 33"):
        read(path)


def test_a_column_that_comes_twice_is_named(tmp_path: Path) -> None:
    path = tmp_path / "twice.csv"
    path.write_text("time,namespace,pod,container,cpu_cores,memory_bytes,pod\n1,shop,a,app,1,2,b\n")
    with pytest.raises(InputError, match=r"twice\.csv: the column 'pod' comes twice"):
        read(path)


def write_parquet(path: Path, rows: list[Row], groups: int) -> None:
    columns = list(zip(*rows, strict=True))
    names = HEADER.strip().split(",")
    pq.write_table(pa.table(dict(zip(names, map(list, columns), strict=True))), path, row_group_size=groups)


def test_row_groups_by_any_number_of_threads(tmp_path: Path) -> None:
    rows = some_rows(50)
    path = tmp_path / "usage.parquet"
    write_parquet(path, rows, 7)
    for threads in (1, 2, 5):
        assert read(path, threads) == expected(rows)


def test_row_groups_come_by_their_first_times(tmp_path: Path) -> None:
    rows = some_rows(49)
    path = tmp_path / "usage.parquet"
    write_parquet(path, rows[28:] + rows[:28], 7)
    assert read(path) == expected(rows)


def test_large_row_groups_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kscale.series import usage_tables

    monkeypatch.setattr(usage_tables, "_MOST_ROWS", 10)
    rows = some_rows(50)
    path = tmp_path / "usage.parquet"
    write_parquet(path, rows, 35)
    assert read(path) == expected(rows)


@pytest.mark.parametrize("keep", [0.2, 0.9, 0.999])
def test_a_truncated_parquet_file_is_named(tmp_path: Path, keep: float) -> None:
    path = tmp_path / "usage.parquet"
    write_parquet(path, some_rows(500), 50)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(InputError, match=r"usage\.parquet: not readable as Parquet"):
        read(path)


def test_a_damaged_row_group_is_named(tmp_path: Path) -> None:
    path = tmp_path / "usage.parquet"
    write_parquet(path, some_rows(5000), 1000)
    data = bytearray(path.read_bytes())
    data[4:40] = bytes(36)
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"usage\.parquet: not readable as Parquet"):
        read(path)


def test_reading_may_stop_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "usage.parquet"
    write_parquet(path, some_rows(50), 7)
    batches = read_usage(path, threads=3)
    assert len(next(batches)) == 7
    batches.close()  # type: ignore[attr-defined]  # a generator
