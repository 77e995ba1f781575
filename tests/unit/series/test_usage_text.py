"""Plain text of usage in native code: what it reads is what the slow ways read, and it never guesses."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale._native import _usage_text as native
from kscale.errors import NativeError
from kscale.series.columns import parse_time

ROLES = [native.TIME, native.NAME, native.NAME + 1, native.NAME + 2, native.CPU, native.MEMORY]
SECOND = 10**9


def rows(text: bytes, roles: list[int] = ROLES, unit: int = SECOND) -> Any:
    result = native.csv_rows(text, roles, unit)
    if result is None:
        return None
    time, cpu, memory, series, names = result
    assert cpu is not None
    assert memory is not None
    return list(zip(time.tolist(), [names[i][:3] for i in series.tolist()], cpu.tolist(), memory.tolist(), strict=True))


numbers = (
    st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.floats(1e-9, 1e12).map(repr)
    | st.tuples(st.integers(0, 10**19), st.integers(-40, 40)).map(lambda p: f"{p[0]}e{p[1]:+}")
    | st.tuples(st.integers(0, 10**6), st.text("0123456789", min_size=1, max_size=30)).map(lambda p: f"{p[0]}.{p[1]}")
)


@given(numbers, st.sampled_from(["", "-"]))
def test_a_number_is_the_nearest_double_or_left_to_others(text: str, sign: str) -> None:
    text = sign + text.removeprefix("-")
    result = rows(f"0,a,b,c,{text},1\n".encode())
    if result is None:
        digits = text.lower().partition("e")[0].replace(".", "").lstrip("-0")
        assert len(digits) > 19 or not 1e-8 <= abs(float(text)) <= 1e15
    else:
        value = result[0][2]
        assert value == float(text)
        assert math.copysign(1, value) == math.copysign(1, float(text))


@given(st.integers(0, 10**19 - 1), st.integers(1, 27))
def test_long_divisions_are_rounded_once(digits: int, power: int) -> None:
    assert rows(f"0,a,b,c,{digits}e-{power},1\n".encode())[0][2] == float(f"{digits}e-{power}")


@pytest.mark.parametrize(
    "text", ["nan", "inf", "+1", ".5", "5.", "1e", "0x1", " 1", "1 ", "1_0", "--1", "1e9999", '"1', "NA"]
)
def test_other_numbers_are_left_to_others(text: str) -> None:
    assert rows(f"0,a,b,c,{text},1\n".encode()) is None


moments = st.datetimes(datetime(1900, 1, 1), datetime(2100, 12, 31))  # noqa: DTZ001  # the zone is part of the text


@given(moments, st.sampled_from("T "), st.booleans(), st.booleans())
def test_times_are_those_of_the_slow_way(moment: datetime, mark: str, zone: bool, fraction: bool) -> None:
    text = moment.replace(microsecond=moment.microsecond if fraction else 0).isoformat(mark) + ("Z" if zone else "")
    assert rows(f"{text},a,b,c,1,1\n".encode())[0][0] == parse_time(text.replace(" ", "T"), SECOND)


def test_times_that_are_numbers() -> None:
    assert rows(b"1767582000,a,b,c,1,1\n-5,a,b,c,1,1\n")[0][0] == 1767582000 * SECOND
    assert rows(b"1767582000123,a,b,c,1,1\n", unit=10**6)[0][0] == 1767582000123 * 10**6
    assert rows(b"1767582000123456789,a,b,c,1,1\n", unit=1)[0][0] == 1767582000123456789
    assert rows(b"9999999999999999999,a,b,c,1,1\n", unit=1) is None
    for text in (
        "9999999999999",
        "1.",
        ".5",
        "1.0123456789",
        "",
        "2026-02-29T00:00:00Z",
        "2026-01-01",
        "2026-01-01T00:00:60Z",
        "soon",
    ):
        assert rows(f"{text},a,b,c,1,1\n".encode()) is None
    assert rows(b"2026-01-05T00:00:00+01:00,a,b,c,1,1\n") == rows(b"2026-01-04T23:00:00Z,a,b,c,1,1\n")
    assert rows(b"2026-01-05T00:00:00-00:30,a,b,c,1,1\n") == rows(b"2026-01-05T00:30:00Z,a,b,c,1,1\n")
    for text in ("+1:00", "+01", "+24:00", "+01:60", "+0100"):
        assert rows(f"2026-01-05T00:00:00{text},a,b,c,1,1\n".encode()) is None


@given(st.integers(-(10**9), 10**9), st.text("0123456789", min_size=1, max_size=9), st.sampled_from([1, 10**3, 10**9]))
def test_times_that_are_fractions(integer: int, fraction: str, unit: int) -> None:
    text = f"{integer}.{fraction}"
    assert rows(f"{text},a,b,c,1,1\n".encode(), unit=unit)[0][0] == parse_time(text, unit)


def test_quotes_around_fields() -> None:
    plain = rows(b"1,a,b,c,1,2\n1,a,,d,,3\n2,a,b,c,1,2\n3,a,b,c,1,2\n")
    quoted = b'"1","a","b","c","1","2"\n1,"a","","d","","3"\r\n2,"a","b","c",1,2\n3,a,"b",c,1,"2"\n'
    assert repr(rows(quoted)) == repr(plain)
    for text in (b'"a""b"', b'"a,b"', b'"a\nb"', b'"a', b'a"', b'"a"b', b'"a" '):
        assert rows(b"1,%b,b,c,1,1\n" % text) is None
        assert rows(b"1,a,b,c,1,1\n1,%b,b,c,1,1\n" % text) is None


def test_days_of_all_years() -> None:
    for year in range(1900, 2101):
        for month, day in ((1, 1), (2, 28), (3, 1), (12, 31)):
            text = f"{year}-{month:02}-{day:02}T00:00:00Z"
            expected = int((datetime(year, month, day, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
            assert rows(f"{text},a,b,c,1,1\n".encode())[0][0] == expected * SECOND


texts = st.text(st.characters(codec="utf-8", exclude_characters='",\r\n\0', exclude_categories=["Cs"]), max_size=4)


@given(
    st.lists(
        st.tuples(st.integers(0, 9), texts, texts, texts, st.none() | st.floats(0.001, 100), st.integers(0, 10**12))
    ),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_rows_come_back(given_rows: list[Any], end: str, ended: bool) -> None:
    lines = [f"{t},{n},{p},{c},{'' if cpu is None else repr(cpu)},{m}" for t, n, p, c, cpu, m in given_rows]
    text = (end.join(lines) + (end if ended and lines else "")).encode()
    result = rows(text)
    if not lines:
        assert result is None
        return
    assert [(t, *names) for t, names, _, _ in result] == [(row[0] * SECOND, *row[1:4]) for row in given_rows]
    assert [m for _, _, _, m in result] == [row[5] for row in given_rows]
    for (_, _, cpu, _), row in zip(result, given_rows, strict=True):
        assert math.isnan(cpu) if row[4] is None else cpu == row[4]


def test_columns_in_any_order_and_others_between() -> None:
    roles = [native.NAME + 2, native.SKIPPED, native.MEMORY, native.NAME, native.TIME, native.NAME + 3]
    result = native.csv_rows(b"app,?,5,shop,1,web\n\napp,,6,shop,2,web\nside,x,7,shop,2,web", roles, SECOND)
    assert result is not None
    time, cpu, memory, series, names = result
    assert cpu is None
    assert memory is not None
    assert (time.tolist(), memory.tolist(), series.tolist()) == ([SECOND, 2 * SECOND, 2 * SECOND], [5, 6, 7], [0, 0, 1])
    assert names == [("shop", "", "app", "web"), ("shop", "", "side", "web")]


@pytest.mark.parametrize(
    "text",
    [b"1,a,b,c,1\n", b"1,a,b,c,1,1,1\n", b"1,a\r,b,c,1,1\n", b"1,a,b,c,1,1\n1", b"1,a\0,b,c,1,1\n"],
)
def test_other_rows_are_left_to_others(text: bytes) -> None:
    assert rows(text) is None


def test_names_that_are_not_utf8() -> None:
    with pytest.raises(UnicodeDecodeError):
        rows(b"1,\xff\xfe,b,c,1,1\n")


@given(
    st.lists(st.tuples(st.integers(0, 2 * 10**12), st.floats(allow_subnormal=False))),
    st.sampled_from([None, (",", ":")]),
)
def test_points_are_those_of_json(given_points: list[tuple[int, float]], separators: tuple[str, str] | None) -> None:
    words = {math.inf: "+Inf", -math.inf: "-Inf"}
    listed = [
        [t / 1000 if t % 1000 else t // 1000, "NaN" if math.isnan(v) else words.get(v) or repr(v)]
        for t, v in given_points
    ]
    times, values = np.zeros(len(listed) + 1, np.int64), np.zeros(len(listed) + 1)
    text = json.dumps(listed, separators=separators).encode()
    result = native.points(text, times, values)
    if result < 0:  # a number that is left to others
        assert any(v and not 1e-8 <= abs(v) <= 1e15 for _, v in given_points)
        return
    assert result == len(listed)
    assert times[:result].tolist() == [t for t, _ in given_points]
    assert np.array_equal(values[:result], [v for _, v in given_points], equal_nan=True)


@pytest.mark.parametrize(
    "text",
    [b"", b"[", b"[[1,2]]", b'[[1,"2"]', b'[[1,"2"],]', b'[["1","2"]]', b'[[1,"2",3]]', b'[[01,"2"]]', b'[[1,"2"]]x',
     b'[[1,"two"]]', b'[[1,"2 "]]', b'[[1e300,"2"]]', b'[[5000000000,"2"]]'],
)  # fmt: skip
def test_other_points_are_left_to_others(text: bytes) -> None:
    assert native.points(text, np.zeros(4, np.int64), np.zeros(4)) == -1


@given(st.lists(st.integers(-(2**62), 2**62)), st.sampled_from([1, 1000, SECOND]))
def test_scaled(given_numbers: list[int], unit: int) -> None:
    out = np.zeros(len(given_numbers), np.int64)
    far = native.scaled(np.array(given_numbers, np.int64), unit, 2**62, out)
    most = max(given_numbers, key=lambda n: (abs(n) * unit >= 2**62, n > 0, abs(n)), default=0)
    if abs(most) * unit < 2**62:
        assert far is None
        assert out.tolist() == [n * unit for n in given_numbers]
    else:
        assert far is not None
        assert abs(far) * unit >= 2**62


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(NativeError, match="one column of times"):
        native.csv_rows(b"1\n", [native.CPU], SECOND)
    with pytest.raises(NativeError, match="two columns of one role"):
        native.csv_rows(b"1,2,3\n", [native.TIME, native.CPU, native.CPU], SECOND)
    with pytest.raises(NativeError, match="role 8"):
        native.csv_rows(b"1,2\n", [native.TIME, 8], SECOND)
    with pytest.raises(NativeError, match="points from 5 on"):
        native.points(b"[]", np.zeros(4, np.int64), np.zeros(4), 5)
    with pytest.raises(NativeError, match="2 values into 1 places"):
        native.scaled(np.zeros(2, np.int64), 1, 1, np.zeros(1, np.int64))


@given(st.lists(st.lists(st.tuples(*[st.integers(0, 2)] * 4), max_size=30), max_size=4), st.booleans())
def test_series_are_numbered_by_first_appearance(tables: list[list[tuple[int, ...]]], has_workload: bool) -> None:
    numbers = native.SeriesNumbers()
    known: dict[tuple[int, ...], int] = {}
    number_of = [np.array(of, np.int32) for of in ([5, 0, 7], [1, 1, 2], [0, 1, 2], [9, 8, 9])]
    for table in tables:
        codes = np.array(table, np.int32).reshape(-1, 4)
        columns: list[Any] = [(np.ascontiguousarray(codes[:, k]), number_of[k]) for k in range(4)]
        if not has_workload:
            columns[3] = None
        before = len(known)
        keys = [tuple(int(number_of[k][c]) if columns[k] else 0 for k, c in enumerate(row)) for row in table]
        expected = [known.setdefault(key, len(known)) for key in keys]
        out = np.empty(len(table), np.int32)
        assert numbers.number(columns, out) == list(known)[before:]
        assert out.tolist() == expected


def test_invalid_series_number_arguments_are_refused() -> None:
    column = (np.array([0, 1], np.int32), np.array([0], np.int32))
    numbers = native.SeriesNumbers()
    with pytest.raises(NativeError, match="2 columns"):
        numbers.number([None, None], np.empty(2, np.int32))
    with pytest.raises(NativeError, match="2 codes for 3 rows"):
        numbers.number([column, None, None, None], np.empty(3, np.int32))
    with pytest.raises(NativeError, match="out of range"):
        numbers.number([column, None, None, None], np.empty(2, np.int32))
    with pytest.raises(NativeError, match="out of range"):
        numbers.number([(column[0] - 1, column[1]), None, None, None], np.empty(2, np.int32))
    with pytest.raises(NativeError, match="nothing"):
        numbers.number([(column[0], np.empty(0, np.int32)), None, None, None], np.empty(2, np.int32))


def test_unusual_rows_leave_the_reader_unchanged() -> None:
    reader = native.CsvRows(ROLES, SECOND)
    plain = reader.read(b"0,a,b,c,1,1\n0,a,b,d,1,1\n")
    assert plain is not None
    assert [names[2] for names in plain[4]] == ["c", "d"]
    assert reader.read(b"0,a,b,e,1,1\n0,a,b,d,1,1\n0,a,b,f,one,1\n") is None
    with pytest.raises(UnicodeDecodeError):
        reader.read(b"0,a,b,\xff,1,1\n")
    again = reader.read(b"0,a,b,d,1,1\n0,a,b,f,1,1\n0,a,b,c,1,1\n")
    assert again is not None
    assert again[3].tolist() == [1, 2, 0]
    assert [names[2] for names in again[4]] == ["f"]


@pytest.mark.parametrize("text", ["2026-03-01 00:00:00.-5", "2026-03-01 00:00:00.1_0", "2026-03-01 00:00:00. 5"])
def test_fractions_that_are_no_digits_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_time(text, SECOND)
