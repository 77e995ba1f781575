"""Columns of numbers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import copy, deepcopy

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kscale.snapshot.columns import GrowingColumns, distinct, median


@given(st.lists(st.integers(-3, 9)))
def test_distinct_numbers(numbers: list[int]) -> None:
    column = np.array(numbers, dtype=np.int32)
    result = distinct(column)
    assert result.tolist() == sorted(set(numbers))
    assert result.dtype == column.dtype
    assert column.tolist() == numbers


@given(st.lists(st.floats(-1e9, 1e9), min_size=1))
def test_the_middle_of_numbers(numbers: list[float]) -> None:
    assert median(np.array(numbers)) == np.median(np.array(numbers))


@given(st.lists(st.integers(-40, 40)), st.sampled_from((lambda each: pickle.loads(pickle.dumps(each)), deepcopy, copy)))
def test_growing_columns_are_lists_of_one_length(
    steps: list[int], another: Callable[[GrowingColumns], GrowingColumns]
) -> None:
    """As lists that are filled with zeros, also after they came from elsewhere."""
    columns, expected, added = GrowingColumns({"first": np.int64}), list[int](), False
    for step in steps:
        if step < 0:
            columns.extend_to(len(expected) - step)
            expected += [0] * -step
        elif step % 4 == 0:
            if not added:
                columns.add("second", np.int32)[:] = expected
            added = True
        elif step % 4 == 1:
            size = min(step, len(expected))
            columns.truncate(size)
            del expected[size:]
        elif step % 4 == 2:
            before, values = columns.view(), list(expected)
            columns.own(columns.arrays)
            for column in columns.arrays.values():
                column[:1] = step
            expected[:1] = [step] * len(expected[:1])
            assert all(column.tolist() == values for column in before.arrays.values())
        else:
            columns = another(columns)
        for column in columns.arrays.values():
            column[-1:] = step
        expected[-1:] = [step] * len(expected[-1:])
        assert columns.size == len(expected)
        assert {name: column.tolist() for name, column in columns.arrays.items()} == dict.fromkeys(
            ["first", "second"][: 1 + added], expected
        )
