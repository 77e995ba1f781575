"""Lookup of names in the native table that joins pods and samples."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from kscale._native._names import NameTable

names = st.lists(st.one_of(st.text(max_size=20), st.sampled_from(["ns/a", "ns/b", "ns/c"])), max_size=30)


@given(names, names)
def test_rows_are_those_of_a_dict(keys: list[str], requested: list[str]) -> None:
    rows = {key: row for row, key in enumerate(keys)}
    looked_up = [*requested, *keys]
    assert NameTable(keys).rows(looked_up).tolist() == [rows.get(key, -1) for key in looked_up]


@given(st.integers(0, 400), st.integers(0, 400), st.randoms(use_true_random=False))
def test_rows_of_many_names_in_any_order(count: int, doubled: int, random: Random) -> None:
    keys = [f"ns-{i % 7}/{'x' * (i % 19)}{i}" for i in range(count)]
    keys += [f"ns-{i % 7}/{'x' * (i % 19)}{i}" for i in range(min(doubled, count))]
    rows = {key: row for row, key in enumerate(keys)}
    table = NameTable(keys)
    names = [*keys, *(f"ns-1/{i}" for i in range(50))]
    assert table.rows(names).tolist() == [rows.get(key, -1) for key in names]
    random.shuffle(names)
    assert table.rows(names).tolist() == [rows.get(key, -1) for key in names]
