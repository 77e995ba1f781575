"""Layers are what dicts by row would be, and copies go their own way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kscale.snapshot.pods import table
from kscale.snapshot.pods.table import Layers

ROWS = range(6)
happenings = st.lists(st.tuples(st.sampled_from(["put", "pop", "copy"]), st.integers(0, 3), st.sampled_from(ROWS)))


@given(happenings, st.integers(0, 3))
def test_copies_of_layers_are_independent(what: list[tuple[str, int, int]], few: int) -> None:
    known, table._FEW = table._FEW, few
    try:
        created: list[Layers[int]] = [Layers({row: row for row in ROWS[:4]})]
        plain: list[dict[int, int]] = [{row: row for row in ROWS[:4]}]
        for number, (kind, which, row) in enumerate(what):
            of = which % len(created)
            match kind:
                case "put":
                    created[of][row] = plain[of][row] = number
                case "pop":
                    assert created[of].pop(row) == plain[of].pop(row, None)
                case _:
                    created.append(created[of].copy())
                    plain.append(dict(plain[of]))
        for mine, theirs in zip(created, plain, strict=True):
            assert dict(mine.items()) == theirs
            assert [mine.get(row) for row in ROWS] == [theirs.get(row) for row in ROWS]
            assert [row in mine for row in ROWS] == [row in theirs for row in ROWS]
            assert bool(mine) or not theirs
    finally:
        table._FEW = known
