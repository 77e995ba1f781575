"""Rows of tables: the kernels against the slow way, and their doors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale._native import _projection, _rows
from kscale.errors import NativeError
from reference.table_rows import added, numbered, scattered

DTYPES = st.sampled_from((np.int8, np.int32, np.int64, np.bool_, np.uint16))
LARGE = st.integers(-(2**63), 2**63 - 1)
NONE = np.zeros(0, np.int64)


@given(st.integers(1, 6), st.lists(st.integers(0, 5), max_size=8), st.lists(DTYPES, max_size=4), st.randoms())
def test_scatter(size: int, rows: list[int], dtypes: list[Any], random: Any) -> None:
    rows = [row % size for row in rows]
    columns = [np.array([random.getrandbits(7) for _ in range(size)]).astype(dtype) for dtype in dtypes]
    values = [np.array([random.getrandbits(7) for _ in rows]).astype(dtype) for dtype in dtypes]
    expected = [scattered(column.tolist(), rows, value.tolist()) for column, value in zip(columns, values, strict=True)]
    _rows.scatter(np.array(rows, np.int64), columns, values)
    assert [column.tolist() for column in columns] == expected


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.sampled_from((1, -1))), max_size=10),
    st.lists(st.lists(LARGE, min_size=3, max_size=3) | st.none(), max_size=3),
)
def test_add_amounts(pods: list[tuple[int, int, int]], amounts: list[list[int] | None]) -> None:
    sums = [np.arange(4, dtype=np.int64) for _ in amounts]
    expected = [added(list(range(4)), of_kind, pods) for of_kind in amounts]
    at, kind = (np.array([pod[i] for pod in pods], np.int32) for i in range(2))
    sign = np.array([pod[2] for pod in pods], np.int8)
    columns = [None if of_kind is None else np.array(of_kind, np.int64) for of_kind in amounts]
    _rows.add_amounts(sums, columns, at, kind, sign)
    assert [column.tolist() for column in sums] == expected


@given(st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=3), st.integers(0, 2)), max_size=8))
def test_same_texts(pairs: list[tuple[bytes, bytes, int]]) -> None:
    held, data = [b"", b"#", b"##"], b"#"
    at, other = [], []
    for text, given_text, source in pairs:
        at.append(len(held[source]))
        other.append(len(data))
        held[source] += text
        data += given_text
    found = _rows.same_texts(
        [memoryview(each) for each in held],
        np.array([source for _, _, source in pairs], np.int32),
        np.array(at, np.int64),
        np.array([len(text) for text, _, _ in pairs], np.int64),
        data,
        np.array(other, np.int64),
        np.array([len(text) for _, text, _ in pairs], np.int64),
    )
    assert found.tolist() == [text == given_text for text, given_text, _ in pairs]


@given(st.lists(st.lists(st.none() | st.text("ab", max_size=8), max_size=60), max_size=4))
def test_string_numbers(batches: list[list[str | None]]) -> None:
    numbers = _projection.StringNumbers()
    seen: list[str] = []
    for batch in batches:
        data = "#".join(text or "" for text in batch).encode() or b"#"
        at = np.cumsum([0, *(len(text or "") + 1 for text in batch)])[:-1].astype(np.int64)
        length = np.array([-1 if text is None else len(text) for text in batch], np.int64)
        assert numbers.number(data, at, length).tolist() == numbered(seen, batch)
        assert numbers.strings == seen
        assert len(numbers) == len(seen)


def test_a_string_that_is_not_utf8() -> None:
    with pytest.raises(UnicodeDecodeError):
        _projection.StringNumbers().number(b"\xff", np.zeros(1, np.int64), np.ones(1, np.int64))


@pytest.mark.parametrize(
    ("rows", "columns", "values"),
    [
        ([2], [np.zeros(2)], [np.ones(1)]),
        ([-1], [np.zeros(2)], [np.ones(1)]),
        ([0], [np.zeros(2)], [np.ones(2)]),
        ([0], [np.zeros(2)], [np.ones(1, np.int8)]),
        ([0], [np.zeros((2, 2))], [np.ones(1)]),
        ([0], [np.zeros(2)], []),
        ([0], [np.zeros(4)[::2]], [np.ones(1)]),
        ([0], [b"12345678"], [np.ones(1)]),
    ],
)
def test_rows_that_are_not_there(rows: list[int], columns: list[Any], values: list[Any]) -> None:
    with pytest.raises((NativeError, ValueError, BufferError)):
        _rows.scatter(np.array(rows, np.int64), columns, values)


@pytest.mark.parametrize(
    ("at", "kind", "signs", "sizes"),
    [
        ([2], [0], [1], (2, 1)), ([0], [1], [1], (2, 1)), ([-1], [0], [1], (2, 1)), ([0], [-1], [1], (2, 1)),
        ([0, 0], [0], [1, 1], (2, 1)), ([0, 0], [0, 0], [1], (2, 1)),
    ],
)  # fmt: skip
def test_sums_that_are_not_there(at: list[int], kind: list[int], signs: list[int], sizes: tuple[int, int]) -> None:
    sums, amounts = [np.zeros(sizes[0], np.int64)], [np.zeros(sizes[1], np.int64)]
    with pytest.raises(NativeError):
        _rows.add_amounts(sums, amounts, np.array(at, np.int32), np.array(kind, np.int32), np.array(signs, np.int8))
    assert not sums[0].any()


@pytest.mark.parametrize(
    ("source", "at", "size", "other"),
    [(1, 0, 1, 0), (-1, 0, 1, 0), (0, 3, 1, 0), (0, -1, 1, 0), (0, 0, 1, 3), (0, 0, 4, 0)],
)
def test_texts_that_are_not_there(source: int, at: int, size: int, other: int) -> None:
    columns = [np.array([each], np.int64) for each in (at, size, other, size)]
    with pytest.raises(NativeError):
        _rows.same_texts(
            [memoryview(b"abc")], np.array([source], np.int32), columns[0], columns[1], b"abc", columns[2], columns[3]
        )
