"""Rows by key, where keys come and go, against a dict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale._native._names import RowIndex
from kscale.errors import NativeError


class Alike(str):
    """A key of which very many have the same hash."""

    __slots__ = ()

    def __hash__(self) -> int:
        return len(self) % 3

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True


KEYS = st.text("ab", max_size=3).map(Alike) | st.sampled_from(("x/a", "x/b", "ä/\ud800", "x/" + "long" * 30))


def rows(*numbers: int) -> Any:
    return np.array(numbers, dtype=np.int64)


def planned(
    known: dict[str, int],
    keys: list[str],
    version: list[int],
    stored_versions: list[int],
    deleted: list[bool] | None,
    anew: bool,
) -> list[list[int]]:
    """The slow, obvious way."""
    created: list[list[int]] = [[], [], [], [], []]
    for i, key in enumerate(keys):
        row = known.get(key, -1)
        created[0].append(row)
        if keys.count(key) > 1:
            created[4].append(i)
        elif deleted is not None and deleted[i]:
            created[3] += [i] * (row >= 0)
        elif row < 0:
            created[1].append(i)
        elif anew or version[i] < 0 or version[i] != stored_versions[row]:
            created[2].append(i)
    return created


@given(st.data())
def test_row_index_behaves_like_a_dict(data: st.DataObject) -> None:
    index, known = RowIndex(), dict[str, int]()
    names: list[str] = []
    for _ in range(data.draw(st.integers(0, 12))):
        what = data.draw(st.sampled_from(("add", "add", "remove", "close up", "copy")))
        if what == "add":
            fresh = [key for key in dict.fromkeys(data.draw(st.lists(KEYS, max_size=20))) if key not in known]
            index.add(fresh, np.arange(len(names), len(names) + len(fresh)))
            known |= {key: row for row, key in enumerate(fresh, len(names))}
            names += fresh
        elif what == "remove" and known:
            removed = data.draw(st.lists(st.sampled_from(sorted(known)), unique=True))
            index.remove(removed, rows(*(known.pop(key) for key in removed)))
        elif what == "close up" and known:
            first = data.draw(st.integers(0, len(names)))
            moved = sorted((row, key) for key, row in known.items() if row >= first)
            to = max([row for row in known.values() if row < first], default=-1) + 1
            index.move([key for _, key in moved], rows(*(row for row, _ in moved)), to)
            known |= {key: row for row, (_, key) in enumerate(moved, to)}
            names = names[:first] + [""] * (len(names) - first)
            for key, row in known.items():
                names[row] = key
        elif what == "copy":
            original, index = index, index.copy()
            original.remove(list(known), rows(*known.values()))
            assert not len(original)
        assert len(index) == len(known)
        requested = data.draw(st.lists(KEYS, max_size=12))
        assert [index.row(key, names) for key in requested] == [known.get(key, -1) for key in requested]
        version = data.draw(st.lists(st.integers(-2, 2), min_size=len(requested), max_size=len(requested)))
        stored_versions = data.draw(st.lists(st.integers(-2, 2), min_size=len(names), max_size=len(names)))
        deleted = data.draw(st.none() | st.lists(st.booleans(), min_size=len(requested), max_size=len(requested)))
        anew = data.draw(st.booleans())
        result = index.plan(
            requested,
            names,
            rows(*version),
            rows(*stored_versions),
            None if deleted is None else np.array(deleted, np.bool_),
            anew,
        )
        expected = planned(known, requested, version, stored_versions, deleted, anew)
        assert result[0].tolist() == expected[0]
        hash_counts = {hash(key): requested.count(key) for key in requested}
        if all(sum(hash(other) == hash(key) for other in requested) == hash_counts[hash(key)] for key in requested):
            assert [part.tolist() for part in result] == expected
        else:  # of one hash, too, for all it knows
            others = set(result[4].tolist())
            assert others >= set(expected[4])
            for part, expected_part in zip(result[1:4], expected[1:4], strict=True):
                assert part.tolist() == [i for i in expected_part if i not in others]


def test_inconsistent_arguments_are_refused() -> None:
    index, names = RowIndex(), ["x/a", "x/b"]
    index.add(names, rows(0, 1))
    none = rows()
    for call in (
        lambda: index.add(["x/c"], none),
        lambda: index.add(["x/c"], rows(-1)),
        lambda: index.add(["x/c"], rows(1 << 31)),
        lambda: index.remove(["x/b"], rows(0)),
        lambda: index.move(names, rows(0, 1), 1),
        lambda: index.move(names, rows(1, 0), 0),
        lambda: index.move(["x/a"], rows(1), 0),
        lambda: index.row("x/b", names[:1]),
        lambda: index.plan(["x/b"], names, none, rows(1, 2), None, False),
        lambda: index.plan(["x/b"], names, rows(1), rows(1), None, False),
        lambda: index.plan(["x/b"], names[:1], rows(1), rows(1, 1), None, False),
        lambda: index.plan(["x/b"], names, rows(1), rows(1, 1), np.zeros(2, np.bool_), False),
    ):
        with pytest.raises(NativeError):
            call()
    with pytest.raises(TypeError):
        index.row(5, names)
    assert [index.row(name, names) for name in names] == [0, 1]
