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

DTYPES = st.sampled_from((np.int8, np.int32, np.int64, np.bool_))
LARGE = st.integers(-(2**63), 2**63 - 1)
PLACED = 0


@given(st.integers(1, 6), st.lists(st.integers(0, 5), max_size=8), st.lists(DTYPES, max_size=4), st.randoms())
def test_scatter(size: int, rows: list[int], dtypes: list[Any], random: Any) -> None:
    rows = [row % size for row in rows]
    columns = [np.array([random.getrandbits(7) for _ in range(size)]).astype(dtype) for dtype in dtypes]
    values = [[random.getrandbits(7) - 64 for _ in rows] for dtype in dtypes]
    values = [[int(each > 0) for each in row] if d is np.bool_ else row for row, d in zip(values, dtypes, strict=True)]
    expected = [scattered(column.tolist(), rows, value) for column, value in zip(columns, values, strict=True)]
    _names.scatter(np.array(rows, np.int64), columns, np.array(values, np.int64).reshape(len(dtypes), len(rows)))
    assert [column.tolist() for column in columns] == expected


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


@given(st.lists(st.tuples(st.integers(-2, 3), st.integers(0, 9), st.integers(0, 9)), max_size=8), st.randoms())
def test_release_texts(texts: list[tuple[int, int, int]], random: Any) -> None:
    used = [(source, size or uid_size) for source, size, uid_size in texts]
    live = [sum(size for source, size in used if source == buffer) + random.randint(0, 9) for buffer in range(4)]
    buffer_sizes = [size + random.randint(0, 20) for size in live]
    rows = random.sample(range(len(texts)), random.randint(0, len(texts)))
    columns = [np.array([text[i] for text in texts], np.int32) for i in range(3)]
    now = array("q", live)
    few = _names.release_texts(np.array(rows, np.int64), *columns, now, array("q", buffer_sizes))
    assert (now.tolist(), few) == released(live, buffer_sizes, [used[row] for row in rows])


@pytest.mark.parametrize(
    ("row", "source", "sizes", "live"), [(1, 0, 1, 1), (-1, 0, 1, 1), (0, 1, 1, 1), (0, 0, 2, 1), (0, 0, 1, 2)]
)
def test_texts_of_rows_that_are_not_there(row: int, source: int, sizes: int, live: int) -> None:
    column = np.zeros(sizes, np.int32)
    with pytest.raises(NativeError):
        _names.release_texts(
            np.array([row], np.int64),
            np.array([source], np.int32),
            column,
            column,
            array("q", [0] * live),
            array("q", [0]),
        )


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


@given(st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=3), st.integers(0, 2)), max_size=8))
def test_same_texts(pairs: list[tuple[bytes, bytes, int]]) -> None:
    sources, data = [b"", b"#", b"##"], b"#"
    at, other = [], []
    for text, given_text, source in pairs:
        at.append(len(sources[source]))
        other.append(len(data))
        sources[source] += text
        data += given_text
    result = _names.same_texts(
        [memoryview(each) for each in sources],
        np.array([source for _, _, source in pairs], np.int32),
        np.array(at, np.int64),
        np.array([len(text) for text, _, _ in pairs], np.int64),
        data,
        np.array(other, np.int64),
        np.array([len(text) for _, text, _ in pairs], np.int64),
    )
    assert result.tolist() == [text == given_text for text, given_text, _ in pairs]


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
    ("rows", "columns", "shape"),
    [
        ([2], [np.zeros(2, np.int64)], (1, 1)),
        ([-1], [np.zeros(2, np.int64)], (1, 1)),
        ([0], [np.zeros(2, np.int64)], (1, 2)),
        ([0], [np.zeros(2, np.int16)], (1, 1)),
        ([0], [np.zeros(2)], (1, 1)),
        ([0], [np.zeros(2, np.float32)], (1, 1)),
        ([0], [np.zeros(2, ">i8")], (1, 1)),
        ([0], [np.zeros((2, 2), np.int64)], (1, 1)),
        ([0], [np.zeros(2, np.int64)], (0, 1)),
        ([0], [np.zeros(4, np.int64)[::2]], (1, 1)),
        ([0], [b"12345678"], (1, 1)),
        ([0], [np.zeros(2, np.int64)] * 40, (40, 1)),
        ([1], [np.zeros(2, np.int64), np.zeros(1, np.int64)], (2, 1)),
        ([1], [np.zeros(2, np.int64), np.zeros(2)], (2, 1)),
    ],
)
def test_rows_that_are_not_there(rows: list[int], columns: list[Any], shape: tuple[int, int]) -> None:
    with pytest.raises((NativeError, ValueError, BufferError)):
        _names.scatter(np.array(rows, np.int64), columns, np.ones(shape, np.int64))
    assert not any(np.any(column) for column in columns if isinstance(column, np.ndarray))


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


@pytest.mark.parametrize(
    ("source", "at", "size", "other"),
    [(1, 0, 1, 0), (-1, 0, 1, 0), (0, 3, 1, 0), (0, -1, 1, 0), (0, 0, 1, 3), (0, 0, 4, 0)],
)
def test_texts_that_are_not_there(source: int, at: int, size: int, other: int) -> None:
    columns = [np.array([each], np.int64) for each in (at, size, other, size)]
    with pytest.raises(NativeError):
        _names.same_texts(
            [memoryview(b"abc")], np.array([source], np.int32), columns[0], columns[1], b"abc", columns[2], columns[3]
        )
