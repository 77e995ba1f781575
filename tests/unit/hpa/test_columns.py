"""Joining samples by name."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kscale._native._names import NameTable
from kscale.hpa.columns import PodTable, SampleTable

names = st.lists(st.one_of(st.text(max_size=20), st.sampled_from(["ns/a", "ns/b", "ns/c"])), max_size=30)


@given(names, names)
def test_rows_are_those_of_a_dict(keys: list[str], asked: list[str]) -> None:
    rows = {key: row for row, key in enumerate(keys)}
    wanted = [*asked, *keys]
    assert NameTable(keys).rows(wanted).tolist() == [rows.get(key, -1) for key in wanted]


def test_samples_come_and_go() -> None:
    table = SampleTable(PodTable(["ns/a", "ns/b", "ns/c"]))

    def put(keys: list[str], values: list[int]) -> list[int]:
        times = np.arange(len(keys), dtype=np.int64)
        return table.update(keys, np.array(values, np.int64), times, times).tolist()

    assert put(["ns/b", "ns/x", "ns/a"], [5, 6, 7]) == [1]
    assert table.columns.present.tolist() == [1, 1, 0]
    assert table.columns.value.tolist() == [7, 5, 0]
    assert put(["ns/c", "ns/c"], [1, 2]) == []
    assert table.columns.value.tolist() == [7, 5, 2]
    table.remove(["ns/a", "ns/x"])
    assert table.columns.present.tolist() == [0, 1, 1]
    assert len(PodTable([])) == 0
