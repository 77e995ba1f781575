"""The cyclic garbage collector, while very many objects are made."""

from __future__ import annotations

import gc
from weakref import ref

import pytest

import kscale
from kscale.snapshot.caches import GarbageCollectionPause, collector_relaxed

pytestmark = pytest.mark.usefixtures("own_collector")


def test_abandoned_scope_does_not_keep_the_collector_relaxed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the collector at ease until it is found in its cycle, which may be long after."""
    gc.set_threshold(700, 11)
    abandoned = collector_relaxed()
    abandoned.__enter__()
    assert gc.get_threshold()[0] == 200_000
    monkeypatch.setattr("kscale.snapshot.caches._PAUSE", GarbageCollectionPause())
    gc.set_threshold(700, 11)
    with collector_relaxed(500_000):
        abandoned.__exit__(None, None, None)
        assert gc.get_threshold()[:2] == (500_000, 11)
    assert gc.get_threshold()[:2] == (700, 11)


@pytest.mark.parametrize(("first", "meanwhile"), [(700, 200_000), (300_000, 300_000), (0, 0)])
def test_thresholds_are_raised_and_restored(first: int, meanwhile: int) -> None:
    gc.set_threshold(first, 11)
    before = gc.get_threshold()
    with collector_relaxed():
        assert gc.get_threshold() == (meanwhile, *before[1:])
    assert gc.get_threshold() == before


def test_the_last_of_several_puts_it_back() -> None:
    gc.set_threshold(700, 11)
    one, other = collector_relaxed(), collector_relaxed()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert gc.get_threshold()[0] == 200_000
    other.__exit__(None, None, None)
    assert gc.get_threshold()[:2] == (700, 11)


def test_nested_scope_may_raise_the_threshold() -> None:
    gc.set_threshold(700, 11)
    with collector_relaxed():
        with collector_relaxed(500_000):
            assert gc.get_threshold()[:2] == (500_000, 11)
        assert gc.get_threshold()[:2] == (500_000, 11)
    assert gc.get_threshold()[:2] == (700, 11)
    with collector_relaxed(50):
        assert gc.get_threshold()[:2] == (700, 11)
    assert gc.get_threshold()[:2] == (700, 11)


def test_nested_scope_keeps_thresholds_set_by_the_program() -> None:
    gc.set_threshold(700, 11)
    with collector_relaxed():
        gc.set_threshold(900, 12)
        with collector_relaxed(500_000):
            assert gc.get_threshold()[:2] == (900, 12)
    assert gc.get_threshold()[:2] == (900, 12)


def test_thresholds_set_by_the_program_are_kept() -> None:
    gc.set_threshold(700, 11)
    with collector_relaxed():
        gc.set_threshold(900, 12)
    assert gc.get_threshold()[:2] == (900, 12)


def test_cycles_that_are_made_between_loads_go() -> None:
    class Node:
        def __init__(self) -> None:
            self.itself = self

    gc.set_threshold(700, 10, 10)
    gc.collect()
    created: list[ref[Node]] = []
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": {"containers": []}}
    for _ in range(300):
        created += [ref(Node()) for _ in range(10)]
        kscale.load(pod)
    assert sum(each() is not None for each in created) < len(created) // 2
