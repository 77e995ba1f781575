"""Rows of tables: the kernels against the slow reference, and the arguments they refuse."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale._native import _names, _projection
from kscale.errors import NativeError
from reference.table_rows import added, changed_columns, numbered, released, scattered

LARGE = st.integers(-(2**63), 2**63 - 1)
PLACED = 0


@given(
    st.integers(1, 6),
    st.lists(st.integers(0, 5), max_size=8),
    st.lists(st.sampled_from((np.int8, np.int32, np.int64)), max_size=4),
    st.integers(0, 2),
    st.randoms(),
)
def test_changes(size: int, rows: list[int], dtypes: list[Any], more: int, random: Any) -> None:
    rows = [row % size for row in rows]
    columns = [np.array([random.randint(-1, 1) for _ in range(size)], dtype) for dtype in dtypes]
    values = [[random.choice((-1, 0, 1, 1 << 40)) for _ in range(len(rows) + more)] for _ in dtypes]
    given_values = np.array(values, np.int64).reshape(len(dtypes), len(rows) + more)
    result = _names.changes(np.array(rows, np.int64), columns, given_values)
    expected = changed_columns([column.tolist() for column in columns], rows, values)
    assert result.tolist() == [sum(1 << number for number in each) for each in expected]


@pytest.mark.parametrize(
    ("rows", "columns", "shape"),
    [
        ([2], [np.zeros(2, np.int64)], (1, 1)), ([-1], [np.zeros(2, np.int64)], (1, 1)),
        ([0, 0], [np.zeros(2, np.int64)], (1, 1)), ([0], [np.zeros(2, np.int64)], (2, 1)),
        ([0], [np.zeros(2)], (1, 1)), ([0], [np.zeros(2, np.int64)] * 33, (33, 1)),
    ],
)  # fmt: skip
def test_changes_that_are_not_there(rows: list[int], columns: list[Any], shape: tuple[int, int]) -> None:
    with pytest.raises((NativeError, ValueError)):
        _names.changes(np.array(rows, np.int64), columns, np.ones(shape, np.int64))


GONE = 5
ROWS = st.fixed_dictionaries({
    "state": st.sampled_from((PLACED, 1)), "class_of": st.integers(0, 2), "at": st.integers(0, 3),
    "source": st.integers(-2, 3), "size": st.integers(0, 9), "uid_size": st.integers(0, 9), "other": LARGE,
    "flag": st.booleans(),
})  # fmt: skip
ROW_DTYPES = (np.int8, *(np.int32,) * 5, np.int64, np.bool_)


@given(
    st.lists(ROWS, max_size=8),
    st.lists(ROWS, max_size=4),
    st.lists(st.integers(0, 2), min_size=3, max_size=3),
    st.lists(st.tuples(st.booleans(), st.lists(st.just(0) | LARGE, min_size=3, max_size=3)), max_size=3),
    st.randoms(),
)
def test_put_rows(
    table: list[dict[str, int]],
    fresh: list[dict[str, int]],
    known: list[int],
    resources: list[tuple[bool, list[int]]],
    random: Any,
) -> None:
    chosen = random.sample(range(len(table)), random.randint(0, len(table)))
    end = random.randint(0, len(chosen))
    removed, replaced = chosen[:end], chosen[end:]
    rows = [*replaced, *range(len(table), len(table) + len(fresh))]
    pods = [{name: random.choice((value, random.choice(table)[name])) for name, value in table[row].items()}
            for row in replaced]  # fmt: skip
    pods += fresh
    names = [*_names.ROW_COLUMNS, "other", "flag"]
    before = [*table, *(dict.fromkeys(names, 0) for _ in fresh)]
    columns = [np.array([row[name] for row in before], dtype) for name, dtype in zip(names, ROW_DTYPES, strict=True)]
    values = [[int(pod[name]) for pod in pods] for name in names]
    used = [(row["source"], row["size"] or row["uid_size"]) for row in table]
    live = [sum(size for source, size in used if source == buffer) + random.randint(0, 9) for buffer in range(4)]
    buffer_sizes = [size + random.randint(0, 20) for size in live]
    live_now, count = array("q", live), np.arange(4, dtype=np.int64)
    sums = [np.arange(4, dtype=np.int64) if summed else None for summed, _ in resources]
    amounts = [np.array(of_class, np.int64) for _, of_class in resources]
    unchanged = [number for number, name in enumerate(names)
                 if all(table[row][name] == pod[name] for row, pod in zip(replaced, pods, strict=False))]  # fmt: skip
    unchanged = random.sample(unchanged, random.randint(0, len(unchanged)))
    result = _names.put_rows(
        np.array(removed, np.int64), np.array(rows, np.int64), len(replaced), columns,
        np.array(values, np.int64).reshape(len(names), len(rows)), sum(1 << number for number in unchanged),
        tuple(range(6)), GONE, PLACED, live_now, array("q", buffer_sizes), np.array(known, np.uint8), count, sums,
        amounts,
    )  # fmt: skip

    counted = [(table[row], pod) for row, pod in zip(replaced, pods, strict=False)
               if any(table[row][name] != pod[name] for name in names[:3])]  # fmt: skip
    going = [
        each for each in [*(table[row] for row in removed), *(old for old, _ in counted)] if each["state"] == PLACED
    ]
    coming = [each for each in [*(new for _, new in counted), *fresh] if each["state"] == PLACED]
    if not all(known[each["class_of"]] for each in (*going, *coming)) or any(
        not summed and of_class[each["class_of"]] for summed, of_class in resources for each in (*going, *coming)
    ):
        assert result is None
        assert live_now.tolist() == live
        assert count.tolist() == list(range(4))
        return
    assert result is not None
    few, more, reclassified = result
    assert (live_now.tolist(), few) == released(live, buffer_sizes, [used[row] for row in chosen])
    assert sorted(more) == sorted(
        (each["at"], each["class_of"], sign)
        for pods_of, sign in ((going, -1), (coming, 1))
        for each in pods_of
        if known[each["class_of"]] == 2
    )
    assert reclassified == any(old["class_of"] != new["class_of"] for old, new in counted)
    nodes = [[(each["at"], each["class_of"]) for each in pods_of] for pods_of in (going, coming)]
    for column, of_class in [(count, None), *((s, o) for s, (_, o) in zip(sums, resources, strict=True))]:
        if column is not None:
            assert column.tolist() == added(added([0, 1, 2, 3], of_class, nodes[0], -1), of_class, nodes[1], 1)
    for number, (name, column) in enumerate(zip(names, columns, strict=True)):
        expected = scattered([row[name] for row in before], rows, values[number])
        if name in ("state", "source"):
            expected = scattered(expected, removed, [GONE if name == "state" else -1] * len(removed))
        assert column.tolist() == expected


def _put_arguments() -> dict[str, Any]:
    columns = [np.zeros(2, dtype) for dtype in ROW_DTYPES[:6]]
    return {
        "removed": np.array([0]), "rows": np.array([1]), "existing": 1, "columns": columns,
        "values": np.ones((6, 1), np.int64), "unchanged": 0, "named": tuple(range(6)), "gone": GONE, "placed": PLACED,
        "live": array("q", [0, 0]), "whole": array("q", [0, 0]), "known": np.ones(2, np.uint8),
        "count": np.zeros(2, np.int64), "sums": [], "amounts": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"rows": np.array([2])}, {"rows": np.array([-1])}, {"removed": np.array([2])}, {"removed": np.array([-1])},
        {"existing": 2}, {"existing": -1}, {"values": np.ones((5, 1), np.int64)}, {"values": np.ones((6, 2), np.int64)},
        {"columns": [np.zeros(2, np.int16)] * 6}, {"columns": [np.zeros(2)] * 6}, {"named": (0, 1, 2, 3, 4)},
        {"named": (0, 1, 2, 3, 4, 6)}, {"named": (1, 0, 2, 3, 4, 5)}, {"placed": 128}, {"live": array("q", [0])},
        {"columns": [np.zeros(1, dtype) for dtype in ROW_DTYPES[:6]]}, {"known": np.ones(1, np.int8)},
        {"columns": [np.zeros((2, 2), np.int64)] * 6}, {"count": np.zeros(0, np.int64)}, {"sums": [None]},
        {"columns": [np.zeros(2, np.int8), *(np.full(2, 3, np.int32) for _ in range(5))]},
        {"columns": [np.zeros(4, dtype)[::2] for dtype in ROW_DTYPES[:6]]}, {"columns": [b"12345678"] * 6},
    ],
)  # fmt: skip
def test_rows_that_are_not_there(change: dict[str, Any]) -> None:
    arguments = _put_arguments() | change
    before = [bytes(column) for column in arguments["columns"] if isinstance(column, np.ndarray)]
    with pytest.raises((NativeError, ValueError, BufferError)):
        _names.put_rows(**arguments)
    assert [bytes(column) for column in arguments["columns"] if isinstance(column, np.ndarray)] == before
    assert _names.put_rows(**_put_arguments()) is not None


@given(
    st.lists(st.tuples(st.sampled_from((PLACED, 1)), st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=8),
    st.lists(st.integers(0, 7), max_size=10),
    st.sampled_from((1, -1)),
    st.lists(st.integers(0, 2), max_size=3),
    st.lists(st.tuples(st.booleans(), st.lists(st.just(0) | LARGE, min_size=3, max_size=3)), max_size=3),
)
def test_add_placed(
    pods: list[tuple[int, int, int]],
    rows: list[int],
    sign: int,
    known: list[int],
    resources: list[tuple[bool, list[int]]],
) -> None:
    rows = [row % len(pods) for row in rows]
    counted = [row for row in rows if pods[row][0] == PLACED]
    requested = [(pods[row][2], pods[row][1]) for row in counted]
    state, class_of, at = (np.array([pod[i] for pod in pods], t) for i, t in enumerate((np.int8, np.int32, np.int32)))
    count = np.arange(4, dtype=np.int64)
    sums = [np.arange(4, dtype=np.int64) if summed else None for summed, _ in resources]
    amounts = [np.array(of_class, np.int64) for _, of_class in resources]
    more = _names.add_placed(
        np.array(rows, np.int64), state, PLACED, class_of, at, sign, np.array(known, np.uint8), count, sums, amounts
    )
    all_known = all(kind < len(known) and known[kind] for _, kind in requested) and not any(
        not summed and of_class[kind] for summed, of_class in resources for _, kind in requested
    )
    before = list(range(4))
    assert more == ([row for row in counted if known[pods[row][1]] == 2] if all_known else None)
    assert count.tolist() == (added(before, None, requested, sign) if all_known else before)
    for column, (_, of_class) in zip(sums, resources, strict=True):
        if column is not None:
            assert column.tolist() == (added(before, of_class, requested, sign) if all_known else before)


@given(st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=3), st.integers(-1, 2)), max_size=8), st.randoms())
def test_have_uids(pods: list[tuple[bytes, bytes, int]], random: Any) -> None:
    sources, data = [b"", b"#", b"##"], b"#"
    begin, at = [], []
    for stored, uid, source in pods:
        begin.append(len(sources[source]))
        at.append(len(data))
        if source >= 0:
            sources[source] += stored
        data += uid
    rows = random.sample(range(len(pods)), len(pods))
    shift = [random.randint(0, each) for each in begin]
    result = _names.have_uids(
        np.array(rows, np.int64),
        [memoryview(each) for each in sources],
        np.array([source for _, _, source in pods], np.int32),
        np.array([each - by for each, by in zip(begin, shift, strict=True)], np.int64),
        np.array(shift, np.int32),
        np.array([len(stored) for stored, _, _ in pods], np.int32),
        data,
        np.array([at[row] for row in rows], np.int64),
        np.array([len(pods[row][1]) for row in rows], np.int64),
    )
    expected = []
    for row in rows:
        stored, uid, source = pods[row]
        expected.append(1 if not uid else 2 if source < 0 else int(not stored or stored == uid))
    assert result.tolist() == expected


@given(st.lists(st.lists(st.none() | st.text("ab", max_size=8), max_size=60), max_size=4))
def test_string_numbers(batches: list[list[str | None]]) -> None:
    numbers = _projection.StringNumbers()
    known_texts: list[str] = []
    for batch in batches:
        data = "#".join(text or "" for text in batch).encode() or b"#"
        at = np.cumsum([0, *(len(text or "") + 1 for text in batch)])[:-1].astype(np.int64)
        length = np.array([-1 if text is None else len(text) for text in batch], np.int64)
        assert numbers.number(data, at, length).tolist() == numbered(known_texts, batch)
        assert numbers.strings == known_texts
        assert len(numbers) == len(known_texts)


def test_a_string_that_is_not_utf8() -> None:
    with pytest.raises(UnicodeDecodeError):
        _projection.StringNumbers().number(b"\xff", np.zeros(1, np.int64), np.ones(1, np.int64))


@pytest.mark.parametrize(
    "change",
    [
        {"rows": np.array([2])}, {"rows": np.array([-1])}, {"class_of": np.array([0, -1], np.int32)},
        {"at": np.array([0, -1], np.int32)}, {"at": np.array([0, 2], np.int32)}, {"at": np.zeros(1, np.int32)},
        {"class_of": np.zeros(2, np.int64)}, {"sums": [np.zeros(1, np.int64)]}, {"sums": []},
        {"amounts": [np.zeros(0, np.int64)]}, {"state": np.zeros((2, 1), np.int8)},
        {"sums": [np.zeros(2)]}, {"amounts": [np.ones(1)]}, {"class_of": np.zeros(2, np.float32)},
        {"known": np.ones(1, np.int8)}, {"placed": 256}, {"placed": -129},
    ],
)  # fmt: skip
def test_sums_that_are_not_there(change: dict[str, Any]) -> None:
    count = np.zeros(2, np.int64)
    arguments = {
        "rows": np.array([1]), "state": np.zeros(2, np.int8), "placed": PLACED, "class_of": np.zeros(2, np.int32),
        "at": np.zeros(2, np.int32), "sign": 1, "known": np.ones(1, np.uint8), "count": count,
        "sums": [np.zeros(2, np.int64)], "amounts": [np.ones(1, np.int64)],
    }  # fmt: skip
    with pytest.raises((NativeError, ValueError)):
        _names.add_placed(**(arguments | change))
    assert not count.any()
    assert _names.add_placed(**arguments) == []
    assert count.tolist() == [1, 0]


@given(st.lists(st.one_of(st.integers(0, 20), st.integers(0, 2**31 - 1)), max_size=40))
def test_values_are_numbered_in_their_order(values: list[int]) -> None:
    number, first = _names.number_values(np.array(values, np.int32))
    known = list(dict.fromkeys(values))
    assert number.tolist() == [known.index(value) for value in values]
    assert first.tolist() == [values.index(value) for value in known]


def test_values_and_groups_that_are_not_there() -> None:
    with pytest.raises(NativeError):
        _names.number_values(np.array([0, -1], np.int32))
    for controller, shape in ([0], [1]), ([0], [-1]), ([1], [0]), ([0, 0], [0]):
        with pytest.raises(NativeError):
            _names.equivalence_groups(np.array(controller, np.int32), np.array(shape, np.int32), 10)


@pytest.mark.parametrize(
    ("row", "source", "at", "size", "other"),
    [(0, 1, 0, 1, 0), (0, 0, 3, 1, 0), (0, 0, -1, 1, 0), (0, 0, 0, 1, 3), (0, 0, 0, 4, 0), (1, 0, 0, 1, 0),
     (-1, 0, 0, 1, 0)],
)  # fmt: skip
def test_texts_that_are_not_there(row: int, source: int, at: int, size: int, other: int) -> None:
    places = [np.array([each], np.int64) for each in (other, size)]
    with pytest.raises(NativeError):
        _names.have_uids(
            np.array([row], np.int64), [memoryview(b"abc")], np.array([source], np.int32), np.array([at], np.int64),
            np.zeros(1, np.int32), np.array([size], np.int32), b"abc", *places,
        )  # fmt: skip
