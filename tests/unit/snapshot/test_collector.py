"""The cyclic garbage collector, while very many objects are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kscale.snapshot.collector import collector_at_ease, collector_paused


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


@pytest.mark.parametrize("frozen", [False, True])
def test_what_was_loaded_is_not_walked_at_once(frozen: bool) -> None:
    walked: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            walked.append(info["generation"])

    gc.collect()
    if frozen:
        gc.freeze()
    held = gc.get_freeze_count()
    gc.callbacks.append(note)
    try:
        with collector_paused(stays=True):
            made: list[list[int]] = [[] for _ in range(100_000)]
        last: list[int] = []  # the first that could set it off
        old = {id(each) for each in gc.get_objects(generation=2)}
        assert frozen or not walked
        assert frozen or all(id(each) in old for each in made)
        assert id(last) not in old
        assert gc.get_freeze_count() == held
        assert gc.isenabled()
    finally:
        gc.callbacks.remove(note)
        gc.unfreeze()
