"""Series and their readers."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kscale.errors import InputError
from kscale.series import Series, SeriesKey, bin_events, read, read_csv, read_parquet, read_prometheus

CSV = b"""namespace,pod,container,time,value,owner
shop,web-0,app,2026-01-01T00:00:00Z,0.5,web
shop,web-1,app,2026-01-01T00:00:00Z,1.5,web
shop,web-0,app,2026-01-01T00:00:15Z,2,web
"""
T0 = 1767225600 * 10**9
FAR = 'row 2: time: "{}" is not a time: nanoseconds since 1970 must fit 64 bits'


def test_csv_rows_become_columns() -> None:
    series = read_csv(CSV, labels=["owner"])
    assert series.keys == (SeriesKey("shop", "web-0", "app"), SeriesKey("shop", "web-1", "app"))
    assert series.series.tolist() == [0, 1, 0]
    assert series.time.tolist() == [T0, T0, T0 + 15 * 10**9]
    assert series.labels == ({"owner": "web"}, {"owner": "web"})
    (key, time, value), _ = series
    assert (key.pod, time.tolist(), value.tolist()) == ("web-0", [T0, T0 + 15 * 10**9], [0.5, 2.0])
    times, totals = series.total()
    assert (times.tolist(), totals.tolist()) == ([T0, T0 + 15 * 10**9], [2.0, 2.0])


def test_times_may_be_numbers_or_texts_without_zone() -> None:
    data = b"t,cpu\n1767225600,1\n1767225600.5,2\n2026-01-01 00:00:01.25,3\n"
    series = read_csv(data, time="t", value="cpu")
    assert (series.time - T0).tolist() == [0, 5 * 10**8, 125 * 10**7]
    assert read_csv(b"t,cpu\n1767225600000,1\n", time="t", value="cpu", unit="ms").time.tolist() == [T0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no header"),
        (b"time,cpu\n1,2\n", "no column 'value' (columns: time, cpu)"),
        (b"time,value\nsoon,1\n", 'x.csv: row 1: time: "soon" is not a time'),
        (b"time,value\n1,1\n4e4444444,1\n", FAR.format("4e4444444")),
        (b"time,value\n1,1\n-1e19,1\n", FAR.format("-1e19")),
        (b"time,value\n1,many\n", 'x.csv: row 1: value: "many" is not a number'),
        (b"time,value\n1,NaN\n", "x.csv: row 1 (the series): value: nan is not a number"),
        (b"pod,time,value\na,2,1\nb,1,1\na,1,1\n", "x.csv: row 3 (a): time: times must ascend within a series"),
        (b"time,value\n1,1,1\n", "x.csv: row 1: 3 fields, the header has 2"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_bad_csv_is_named(data: bytes, message: str) -> None:
    with pytest.raises(InputError) as error:
        read_csv(data, source="x.csv")
    assert message in str(error.value)


def test_an_unknown_unit_is_named() -> None:
    with pytest.raises(InputError, match="is not a unit of time"):
        read_csv(b"time,value\n1,1\n", unit="weeks")


def test_parquet_reads_as_csv_does() -> None:
    table = pa.table(
        {
            "namespace": ["shop", "shop", "shop"],
            "pod": ["web-0", "web-1", "web-0"],
            "container": ["app", "app", "app"],
            "time": pa.array([T0, T0, T0 + 15 * 10**9], pa.timestamp("ns", tz="UTC")),
            "value": [0.5, 1.5, 2.0],
            "owner": ["web", "web", "web"],
        }
    )
    out = io.BytesIO()
    pq.write_table(table, out)
    result, expected = read_parquet(out.getvalue(), labels=["owner"]), read_csv(CSV, labels=["owner"])
    assert (result.keys, result.labels) == (expected.keys, expected.labels)
    for name in ("series", "time", "value"):
        assert np.array_equal(getattr(result, name), getattr(expected, name))
    with pytest.raises(InputError, match="not a Parquet file"):
        read_parquet(b"nonsense")


def test_prometheus_matrix() -> None:
    answer = {
        "status": "success",
        "data": {
            "resultType": "matrix",
            "result": [
                {"metric": {"namespace": "shop", "pod": "web-0", "job": "x"}, "values": [[1767225600.015, "3"]]}
            ],
        },
    }
    series = read_prometheus(json.dumps(answer).encode())
    assert series.keys == (SeriesKey("shop", "web-0", ""),)
    assert series.labels[0]["job"] == "x"
    assert (series.time.tolist(), series.value.tolist()) == ([T0 + 15 * 10**6], [3.0])


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"status": "error", "error": "bad query"}, "Prometheus answered error: bad query"),
        ({"status": "success", "data": {"resultType": "vector", "result": []}}, "a vector, not the matrix"),
        ({"status": "success", "data": {"resultType": "matrix", "result": [{"metric": 1}]}}, "not a Prometheus answer"),
        (
            {
                "status": "success",
                "data": {"resultType": "matrix", "result": [{"metric": {}, "values": [[1, "NaN"]]}]},
            },
            "is not a number",
        ),
    ],
)
def test_bad_prometheus_answers_are_named(answer: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_prometheus(json.dumps(answer).encode())


def test_files_are_read_by_their_suffix(tmp_path: Path) -> None:
    path = tmp_path / "usage.csv.gz"
    path.write_bytes(gzip.compress(CSV, mtime=0))
    assert len(read(path)) == 3
    with pytest.raises(InputError, match="No such file"):
        read(tmp_path / "none.csv")
    (tmp_path / "usage.xls").write_bytes(b"")
    with pytest.raises(InputError, match=r"read from \.csv"):
        read(tmp_path / "usage.xls")
    for damaged in (b"no", gzip.compress(CSV, mtime=0)[:10] + b"\x07" + bytes(99), gzip.compress(CSV, mtime=0)[:-12]):
        (tmp_path / "broken.csv.gz").write_bytes(damaged)
        with pytest.raises(InputError, match="not gzip"):
            read(tmp_path / "broken.csv.gz")


def test_a_small_file_that_decompresses_to_a_large_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kscale.series.reader.MAX_FILE", len(CSV))
    path = tmp_path / "usage.csv.gz"
    path.write_bytes(gzip.compress(CSV, mtime=0))
    assert len(read(path)) == 3
    path.write_bytes(gzip.compress(CSV + b"\n", mtime=0))
    with pytest.raises(InputError, match=f"longer than the {len(CSV)} bytes that are read, when decompressed"):
        read(path)


def test_events_are_counted_or_summed_by_bin() -> None:
    times = np.array([0, 1, 16, 46], np.int64) * 10**9 + T0
    begin, rate = bin_events(times, 15 * 10**9)
    assert ((begin - T0) // 10**9).tolist() == [0, 15, 30, 45]
    assert (rate * 15).tolist() == [2.0, 1.0, 0.0, 1.0]
    _, amount = bin_events(times, 15 * 10**9, np.array([3.0, 4.0, 5.0, 6.0]))
    assert (amount * 15).tolist() == [7.0, 5.0, 0.0, 6.0]
    with pytest.raises(InputError, match="no events"):
        bin_events(np.empty(0, np.int64), 1)
    with pytest.raises(InputError, match="greater than zero"):
        bin_events(times, 0)


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="one length"):
        Series.of([SeriesKey()], np.zeros(1, np.int32), np.zeros(2, np.int64), np.zeros(1))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ('[[1767225600.123,"0.1"],[1767225660,"1e3"]]', [(1767225600.123, 0.1), (1767225660, 1000.0)]),
        ('[ [1767225600.123, "0.1"] , [1767225660, "1e3"] ]', [(1767225600.123, 0.1), (1767225660, 1000.0)]),
        ('[[1,"NaN"],[2,"+Inf"],[3,"-Inf"]]', [(1, float("nan")), (2, float("inf")), (3, float("-inf"))]),
        ('[[1,"\\u0030.5"]]', [(1, 0.5)]),
        ("[]", []),
    ],
)
def test_points_of_a_prometheus_series(values: str, expected: list[tuple[float, float]]) -> None:
    data = f'{{"status":"success","data":{{"resultType":"matrix","result":[{{"metric":{{}},"values":{values}}}]}}}}'
    series = read_prometheus(data.encode(), finite=False)
    assert series.time.tolist() == [round(time * 1000) * 10**6 for time, _ in expected]
    assert np.array_equal(series.value, [value for _, value in expected], equal_nan=True)


@pytest.mark.parametrize(
    "values", ['[[1,"many"]]', '[[1,"2","3"],[4]]', "[[1,2]]", '[[1,"2"],[3]]', '["1",2]', "{}", '[[1,""]]']
)
def test_invalid_points_are_input_errors(values: str) -> None:
    data = f'{{"status":"success","data":{{"resultType":"matrix","result":[{{"metric":{{}},"values":{values}}}]}}}}'
    with pytest.raises(InputError, match=r"data.result\[0\].values"):
        read_prometheus(data.encode(), source="x.json")


@pytest.mark.parametrize(
    ("columns", "wrong", "message"),
    [
        ({}, {}, "no column 'value' (columns: time, pod)"),
        ({"value": ["1", "2"]}, {"time": ["1", "soon"]}, 'row 2: time: "soon" is not a time'),
        ({"value": ["1", "nan"]}, {}, "row 2 (a): value: nan is not a number"),
        ({"value": ["1", "2"]}, {"time": ["2", "1"]}, "row 2 (a): time: times must ascend within a series"),
        ({"value": ["1", "2"], "owner": ["x", "y"]}, {}, "row 2 (a): owner: labels change from ('x',) to ('y',)"),
    ],
)
def test_tables_have_one_shape_of_errors(
    columns: dict[str, list[str]], wrong: dict[str, list[str]], message: str, tmp_path: Path
) -> None:
    table = {"time": ["1", "2"], "pod": ["a", "a"], **columns, **wrong}
    comma, parquet = tmp_path / "usage.csv", tmp_path / "usage.parquet"
    comma.write_text("\n".join(",".join(row) for row in [tuple(table), *zip(*table.values(), strict=True)]))
    pq.write_table(pa.table(table), parquet)
    for path in (comma, parquet):
        with pytest.raises(InputError) as error:
            read(path, labels=["owner"] if "owner" in table else [])
        assert str(error.value) == f"{path}: {message}"


@pytest.mark.parametrize(
    ("time", "value", "unit", "message"),
    [
        (pa.array(["1", "2"]), pa.array(["1", "x"]), "s", 'row 2: value: "x" is not a number'),
        (pa.array([1, 1_700_000_000_000]), pa.array([1, 2]), "s", FAR.format(1_700_000_000_000)),
        (pa.array([1, 2**63 + 5], pa.uint64()), pa.array([1, 2]), "s", FAR.format(2**63 + 5)),
        (pa.array([1, 2**63 + 5], pa.uint64()), pa.array([1, 2]), "ns", FAR.format(2**63 + 5)),
        (pa.array([1, -(2**63)]), pa.array([1, 2]), "ns", FAR.format(-(2**63))),
        (pa.array([1, 10**15], pa.timestamp("ms")), pa.array([1, 2]), "s", FAR.format(10**15)),
        (pa.array([1, 10**15], pa.timestamp("ms", "UTC")), pa.array([1, 2]), "ns", FAR.format(10**15)),
    ],
)
def test_typed_parquet_columns_equal_csv(
    time: pa.Array, value: pa.Array, unit: str, message: str, tmp_path: Path
) -> None:
    comma, parquet = tmp_path / "usage.csv", tmp_path / "usage.parquet"
    pq.write_table(pa.table({"time": time, "value": value}), parquet)
    moments = (time.cast(pa.int64()) if pa.types.is_timestamp(time.type) else time).to_pylist()
    comma.write_text("time,value\n" + "".join(f"{t},{v}\n" for t, v in zip(moments, value.to_pylist(), strict=True)))
    for path, count in ((comma, getattr(time.type, "unit", unit)), (parquet, unit)):
        with pytest.raises(InputError) as error:
            read(path, unit=count)
        assert str(error.value) == f"{path}: {message}"


def test_the_farthest_times_of_parquet_are_read() -> None:
    most = 2**63 - 1
    for times, unit in (([-most, most], "ns"), ([-(most // 10**9), most // 10**9], "s")):
        with io.BytesIO() as file:
            pq.write_table(pa.table({"time": times, "value": [1, 2]}), file)
            result = read_parquet(file.getvalue(), unit=unit)
        assert result.time.tolist() == [time * {"s": 10**9, "ns": 1}[unit] for time in times]


def test_whole_numbers_that_no_double_holds_are_rounded_as_of_csv() -> None:
    with io.BytesIO() as file:
        pq.write_table(pa.table({"time": [1, 2], "value": [2**53 + 1, 1]}), file)
        result = read_parquet(file.getvalue())
    assert result.value.tolist() == read_csv(f"time,value\n1,{2**53 + 1}\n2,1\n".encode()).value.tolist()


def test_numbers_of_rows_that_do_not_agree_are_refused() -> None:
    file = io.BytesIO()
    rows, more = b"\x16\xf2\xc0\x01", b"\x16\xf4\xc0\x01"  # 12,345 and 12,346 as 64-bit fields of Thrift
    pq.write_table(pa.table({"time": range(12345), "value": [1.0] * 12345}), file)
    data = file.getvalue()
    assert len(read_parquet(data).time) == 12345
    before, after = data.rsplit(rows, 1)
    with pytest.raises(InputError, match="its row groups have 12346 rows, itself 12345"):
        read_parquet(before + more + after)
    before, after = data.rsplit(rows, 4)[0], data.split(rows)[-4:]  # of the file, two columns, the row group
    with pytest.raises(InputError, match="its row groups have 12345 rows, itself 12346"):
        read_parquet(before + more + rows.join(after))


def test_a_damaged_column_of_parquet_is_refused() -> None:
    file = io.BytesIO()
    pq.write_table(pa.table({"time": range(60), "value": [1.0] * 60}), file)
    optional, required = b"\x25\x02\x18\x04time", b"\x25\x00\x18\x04time"  # while its levels are counted as optional
    before, after = file.getvalue().split(optional)
    with pytest.raises(InputError, match="not a Parquet file: Definition level histogram size mismatch"):
        read_parquet(before + required + after)


def test_texts_of_parquet_that_are_not_utf8_are_refused() -> None:
    broken = pa.array([b"\xff"]).view(pa.string())
    for time, value, column in ((broken, pa.array([1]), "time"), (pa.array(["1"]), broken, "value")):
        with io.BytesIO() as file:
            pq.write_table(pa.table({"time": time, "value": value}), file)
            with pytest.raises(InputError, match=f"{column}: not texts: "):
                read_parquet(file.getvalue())


def test_events_far_apart_and_weights_of_another_length() -> None:
    begin, rate = bin_events(np.array([9 * 10**18, -9 * 10**18]), 6 * 10**18)
    assert begin.tolist() == [each * 10**18 for each in (-9, -3, 3, 9)]
    assert (rate * 6e9).tolist() == pytest.approx([1, 0, 0, 1])
    with pytest.raises(InputError, match="value has 1 elements, time has 2"):
        bin_events(np.array([1, 2]), 1, np.array([1.0]))


def test_numbers_with_underscores_are_refused() -> None:
    with pytest.raises(InputError, match="is not a number"):
        read_csv(b"time,value\n1,1_000\n")
