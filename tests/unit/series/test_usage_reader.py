"""Usage from files: the same batches whatever the form, the threads and the size of the slices."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kscale.errors import InputError
from kscale.series import usage_csv
from kscale.series.columns import SeriesKey
from kscale.series.usage_reader import UsageFiles, read_usage

HEADER = "time,namespace,pod,container,cpu_cores,memory_bytes\n"
Row = tuple[int, str, str, str, float, float]


def read(path: Path, threads: int = 2, **how: Any) -> list[Row]:
    """All rows of a file in order."""
    result: list[Row] = []
    for batch in read_usage(path, threads=threads, **how):
        assert batch.cpu is not None
        assert batch.memory is not None
        for series, time, cpu, memory in zip(batch.series, batch.time, batch.cpu, batch.memory, strict=True):
            result.append((int(time), *batch.keys[series], float(cpu), float(memory)))
    return result


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


@pytest.mark.parametrize(
    "header", [HEADER.replace("\n", "\r") + "1,shop,a,app,1,2\r", "x" * 200_000 + "\n"], ids=["returns", "long"]
)
def test_a_header_that_is_not_csv_is_named(tmp_path: Path, header: str) -> None:
    path = tmp_path / "old.csv"
    path.write_text(header)
    with pytest.raises(InputError, match=r"old\.csv: a header that is not CSV"):
        read(path)


def answered(path: Path, *series: tuple[dict[str, str], list[Any]]) -> Path:
    result = [{"metric": metric, "values": values} for metric, values in series]
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}))
    return path


@pytest.mark.parametrize("value", ["1", "+1"])
def test_the_farthest_time_is_read(tmp_path: Path, value: str) -> None:
    path = answered(tmp_path / "usage.json", ({"__name__": "cpu", "namespace": "n", "pod": "a"}, [[2**32 - 1, value]]))
    (batch,) = read_usage(path)
    assert batch.time.tolist() == [(2**32 - 1) * 10**9]


def test_a_restarted_container_has_several_series(tmp_path: Path) -> None:
    app = {"__name__": "cpu", "namespace": "shop", "pod": "a", "container": "app"}
    path = answered(
        tmp_path / "usage.json",
        ({**app, "pod": "b"}, [[1, "7"]]),
        ({**app, "id": "f"}, [[3, "3"], [5, "5"]]),
        ({**app, "id": "0"}, [[1, "1"], [4, "4"]]),
        ({**app, "pod": "b", "label_app": "web"}, [[2, "8"]]),
    )
    (batch,) = read_usage(path)
    assert [key.pod for key in batch.keys] == ["a", "b", "b"]
    assert [dict(labels) for labels in batch.labels] == [{}, {}, {"app": "web"}]
    assert batch.cpu is not None
    result = zip(batch.series.tolist(), (batch.time // 10**9).tolist(), batch.cpu.tolist(), strict=True)
    assert list(result) == [(0, 1, 1), (0, 3, 3), (0, 4, 4), (0, 5, 5), (1, 1, 7), (2, 2, 8)]


@pytest.mark.parametrize("time", [1767582000123, 2**32, -1e14])
@pytest.mark.parametrize("value", ["1", "+1"])
def test_times_that_are_no_seconds_are_refused(tmp_path: Path, time: float, value: str) -> None:
    path = answered(tmp_path / "usage.json", ({"pod": "a"}, [[time, value]]))
    with pytest.raises(InputError, match=r"data\.result\[0\]\.values: a time that is too far from 1970"):
        list(read_usage(path))


@pytest.mark.parametrize(
    "part", [b'{"pod":"\xff"}', b'{},"more":' + b"[" * 100_000 + b"]" * 100_000], ids=["bytes", "depth"]
)
def test_damaged_answers_are_named(tmp_path: Path, part: bytes) -> None:
    path = tmp_path / "usage.json"
    path.write_bytes(
        b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":%b,"values":[[1,"1"]]}]}}' % part
    )
    with pytest.raises(InputError, match=r"usage\.json: not a Prometheus answer"):
        list(read_usage(path))


def write_parquet(path: Path, rows: list[Row], groups: int) -> None:
    columns = list(zip(*rows, strict=True))
    names = HEADER.strip().split(",")
    pq.write_table(pa.table(dict(zip(names, map(list, columns), strict=True))), path, row_group_size=groups)


def test_names_of_other_types_are_texts_or_named(tmp_path: Path) -> None:
    path = tmp_path / "usage.parquet"
    fixed = {"time": [1], "namespace": ["shop"], "container": ["app"], "cpu_cores": [1.0], "memory_bytes": [2.0]}
    for pods, expected_pod in (([b"web"], "web"), ([7], "7"), ([None], "")):
        pq.write_table(pa.table({**fixed, "pod": pods}), path)
        assert read(path) == [(10**9, "shop", expected_pod, "app", 1.0, 2.0)]
    for odd in ([b"\xff"], [["web"]]):
        pq.write_table(pa.table({**fixed, "pod": odd}), path)
        with pytest.raises(InputError, match=r"usage\.parquet: names that are not texts"):
            read(path)


def test_row_groups_by_any_number_of_threads(tmp_path: Path) -> None:
    rows = some_rows(50)
    path = tmp_path / "usage.parquet"
    write_parquet(path, rows, 7)
    for threads in (1, 2, 5):
        assert read(path, threads) == expected(rows)


def test_unordered_row_groups_are_read_by_time(tmp_path: Path) -> None:
    rows = some_rows(49)
    path = tmp_path / "usage.parquet"
    write_parquet(path, rows[28:] + rows[:28], 7)
    assert read(path) == expected(rows)


def test_row_groups_that_overlap_stay_in_their_order(tmp_path: Path) -> None:
    """The first has young pods alone and the beginning of a series whose end is in the second."""
    times = [500, 560, 620, 680, 740, 800, 100, 160]
    pods = ["a", "a", "b", "b", "b", "b", "c", "c"]
    rows = [(time, "shop", pod, "app", 1.0, 2.0) for time, pod in zip(times, pods, strict=True)]
    path = tmp_path / "usage.parquet"
    write_parquet(path, rows, 4)
    assert read(path) == expected(rows)


def test_unordered_files_are_read_by_time(tmp_path: Path) -> None:
    rows = some_rows(49)
    early, late = tmp_path / "early.csv", tmp_path / "late.csv"
    early.write_text(as_csv(rows[:28]))
    late.write_text(as_csv(rows[28:]))
    files = UsageFiles([late, early])
    for _ in range(2):  # whenever asked for
        times = np.concatenate([batch.time for batch in files])
        assert times.tolist() == [row[0] * 10**9 for row in rows]
    both = UsageFiles([late, early, early])
    assert next(iter(both)).time[0] == rows[28][0] * 10**9


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


def test_a_column_whose_description_is_damaged_is_named(tmp_path: Path) -> None:
    path = tmp_path / "usage.parquet"
    write_parquet(path, some_rows(50), 10)
    optional, required = b"\x25\x02\x18\x04time", b"\x25\x00\x18\x04time"  # while its levels are counted as optional
    before, after = path.read_bytes().split(optional)
    path.write_bytes(before + required + after)
    with pytest.raises(InputError, match=r"usage\.parquet: not readable as Parquet"):
        read(path)


def test_reading_may_stop_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "usage.parquet"
    write_parquet(path, some_rows(50), 7)
    batches = read_usage(path, threads=3)
    assert len(next(batches)) == 7
    batches.close()


@pytest.mark.parametrize("size", [60, 300, 1 << 20])
@pytest.mark.parametrize(
    ("field", "message"),
    [
        ('"app\n"', r"line 24: quotes that the line does not close"),
        ('"app', r"line 24: quotes that the line does not close"),
        ('"a""p,p",1,1\n0x10,shop,web-0,app', 'row 24: time: "0x10" is not a time'),
        ('"a""p,p",1,1\n1_0,shop,web-0,app', 'row 24: time: "1_0" is not a time'),
    ],
)
def test_unreadable_cells_do_not_depend_on_slice_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, field: str, message: str
) -> None:
    monkeypatch.setattr(usage_csv, "_SLICE", size)
    text = as_csv(some_rows(40)).split("\n")
    text[23] = text[23].replace(",app,", f",{field},")
    for name, data in (("odd.csv", "\n".join(text).encode()), ("odd.csv.gz", gzip.compress("\n".join(text).encode()))):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(InputError, match=message) as result:
            read(path)
        assert str(path) in str(result.value)


def matrix(*labels: dict[str, str], start: int = 0) -> bytes:
    result = [{"metric": each, "values": [[start + 60 * i, "0.1"] for i in range(3)]} for each in labels]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def test_series_of_one_core_each_are_named_by_the_label_that_differs(tmp_path: Path) -> None:
    names = {"namespace": "shop", "pod": "web-0", "container": "app", "resource": "cpu"}
    (tmp_path / "cores.json").write_bytes(matrix({**names, "cpu": "cpu00"}, {**names, "cpu": "cpu01"}))
    (batch,) = read_usage(tmp_path / "cores.json")
    text = "a container has several series at the same time, which differ in cpu: add them up"
    assert batch.warnings == (f"{text} (sum by namespace, pod and container)",)


def test_labels_of_old_kubelets_are_read(tmp_path: Path) -> None:
    old = {"namespace": "shop", "pod_name": "web-0", "container_name": "app", "resource": "memory"}
    both = {**old, "pod": "web-1", "container": "app"}
    (tmp_path / "old.json").write_bytes(matrix(old, both))
    (batch,) = read_usage(tmp_path / "old.json")
    assert batch.keys == [SeriesKey("shop", "web-0", "app"), SeriesKey("shop", "web-1", "app")]
    assert batch.warnings == ()


def test_a_gzip_body_that_is_damaged(tmp_path: Path) -> None:
    complete = gzip.compress(as_csv(some_rows(4000)).encode(), mtime=0)
    for damaged in (complete[:10] + b"\x07" + bytes(99), complete[: len(complete) // 2] + bytes(99), complete[:-12]):
        path = tmp_path / "damaged.csv.gz"
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="not readable as CSV: ") as result:
            read(path)
        assert str(path) in str(result.value)


def test_a_name_that_is_too_long_is_named() -> None:
    with pytest.raises(InputError, match="too long"):
        list(read_usage(f"{'a' * 5000}.csv"))


def test_a_file_that_is_gone_when_its_quotes_are_looked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not readable as CSV"):
        usage_csv.check_quotes(b'1,"a\n', tmp_path / "gone.csv")


def test_warnings_of_a_response_without_samples_are_kept(tmp_path: Path) -> None:
    answer = {"status": "success", "data": {"resultType": "matrix", "result": []}, "warnings": ["partial response"]}
    (tmp_path / "none.json").write_text(json.dumps(answer))
    (batch,) = read_usage(tmp_path / "none.json")
    assert (len(batch), list(batch.keys), batch.warnings) == (0, [], ("partial response",))
    del answer["warnings"]
    (tmp_path / "none.json").write_text(json.dumps(answer))
    assert list(read_usage(tmp_path / "none.json")) == []
