"""What is worked out of single objects is worked out once, wherever the objects stand the next time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kscale
from kscale.snapshot.caches import IdentityCache, cached_by_identity


class Thing:
    """Equal to nothing but itself."""


POOL = [Thing() for _ in range(12)]


@given(st.lists(st.lists(st.sampled_from(POOL), unique=True), min_size=1, max_size=6))
def test_objects_of_the_last_call_are_cached(questions: list[list[Thing]]) -> None:
    values: IdentityCache[Thing, tuple[Thing, int]] = IdentityCache()
    before: dict[Thing, tuple[Thing, int]] = {}
    for number, objects in enumerate(questions):
        result = values.get(objects, lambda each, number=number: (each, number))
        assert result == [before.get(each, (each, number)) for each in objects]
        before = dict(zip(objects, result, strict=True))


def test_the_same_objects_have_the_very_same_list() -> None:
    values: IdentityCache[Thing, int] = IdentityCache()
    result = values.get(POOL, id)
    assert values.get([*POOL], id) is result


@pytest.mark.parametrize("size", [10, 200])
def test_purposes_share_how_sequences_match_and_nothing_else(size: int) -> None:
    snapshot = kscale.Cluster([]).snapshot()
    things = [Thing() for _ in range(size)]
    later = [Thing(), *things[1:-1]]
    created: list[tuple[str, Any]] = []
    for objects in (things, later):
        for purpose in ("one", "two"):

            def make(each: Thing, purpose: str = purpose) -> tuple[str, Thing]:
                created.append((purpose, each))
                return purpose, each

            assert cached_by_identity(snapshot.interner.memo, (purpose,), objects, make) == [
                (purpose, each) for each in objects
            ]
    assert created[2 * size :] == [("one", later[0]), ("two", later[0])]
