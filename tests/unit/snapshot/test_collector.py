"""The cyclic garbage collector, while very many objects are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kscale.snapshot.collector import collector_at_ease


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize(("first", "meanwhile"), [(700, 50_000), (60_000, 60_000), (0, 0)])
def test_it_waits_for_more_objects_and_is_then_as_it_was(first: int, meanwhile: int) -> None:
    gc.set_threshold(first, 11)
    before = gc.get_threshold()
    with collector_at_ease():
        assert gc.get_threshold() == (meanwhile, *before[1:])
    assert gc.get_threshold() == before
