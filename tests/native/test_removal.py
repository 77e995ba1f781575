"""The removal kernel against its plain reference, and the arguments it refuses."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale._native import _engine
from kscale.errors import NativeError
from reference.removal import Node, Pod, World, lose, remove

FATES = {
    _engine.REMOVABLE: "removable",
    _engine.BLOCKED: "blocked",
    _engine.NO_PLACE: "no place",
    _engine.NOT_THERE: "not there",
}


@st.composite
def worlds(draw: st.DrawFn) -> World:
    count = draw(st.integers(1, 70))
    nodes = [
        Node(free=draw(st.integers(0, 8)), slots=draw(st.integers(0, 4)), cordoned=draw(st.integers(0, 9)) == 0)
        for _ in range(count)
    ]
    allowed = draw(st.lists(st.integers(0, 3), max_size=3))
    pods = [
        Pod(
            amount=draw(st.integers(0, 4)),
            priority=draw(st.sampled_from((0, 0, 0, 5, -1))),
            node=draw(st.integers(0, count - 1)),
            code=draw(st.sampled_from((0, 0, 1, 1, 1, 2, 3, 4, 5))),
            budgets=tuple(sorted(draw(st.sets(st.integers(0, len(allowed) - 1), max_size=2)))) if allowed else (),
            hint=draw(st.integers(-1, count - 1)),
        )
        for _ in range(draw(st.integers(0, 40)))
    ]
    return World(nodes, pods, allowed, cursor=draw(st.integers(0, 80)))


def engine_of(world: World) -> tuple[_engine.Engine, np.ndarray]:
    """An engine whose free room is what is left with the pods in place; every pod is of the class of its amount."""
    engine = _engine.Engine(1, 0, 0)
    engine.set_statics(np.zeros((1, 1), np.uint16))
    engine.append_nodes(
        np.array([[node.free for node in world.nodes]], np.int64),
        np.array([node.slots for node in world.nodes], np.int64),
        np.zeros(len(world.nodes), np.int32),
        np.array([node.cordoned for node in world.nodes], np.uint8),
    )
    amounts = np.arange(5, dtype=np.int64).reshape(5, 1)
    flags = np.zeros(5, np.uint8)
    engine.add_classes(amounts, amounts, np.zeros(5, np.int32), flags, flags, [None] * 5)
    engine.cursor = world.cursor
    return engine, np.array([pod.amount for pod in world.pods], np.int32)


def removals_of(world: World) -> tuple[_engine.Removals, tuple[np.ndarray, ...]]:
    engine, classes = engine_of(world)
    removals = _engine.Removals(
        engine,
        classes,
        classes,
        np.array([pod.priority for pod in world.pods], np.int64),
        np.array([pod.node for pod in world.pods], np.int32),
    )
    removals.set_hints(np.array([pod.hint for pod in world.pods], np.int32))
    codes = np.array([pod.code for pod in world.pods], np.uint8)
    of_pod = np.arange(len(world.pods), dtype=np.int32)
    start = np.cumsum([0, *(len(pod.budgets) for pod in world.pods)]).astype(np.int32)
    if not world.pods:
        start = np.zeros(2, np.int32)
    ids = np.array([budget for pod in world.pods for budget in pod.budgets], np.int32)
    return removals, (codes, of_pod, start, ids, np.array(world.allowed, np.int64))


def read_results(columns: tuple[np.ndarray, ...], codes: np.ndarray) -> list[Any]:
    fate, risky, pod, start, pods, to = columns
    answers = []
    for c in range(len(fate)):
        if fate[c] == _engine.NOT_LOOKED:
            break
        went = {
            int(p): int(n)
            for p, n in zip(pods[start[c] : start[c + 1]], to[start[c] : start[c + 1]], strict=True)
            if codes[p] <= 1
        }
        answers.append((FATES[int(fate[c])], int(pod[c]), bool(risky[c]), went))
    return answers


@given(worlds(), st.data())
def test_consecutive_removals_match_the_reference(world: World, data: st.DataObject) -> None:
    count = len(world.nodes)
    candidates = data.draw(st.lists(st.integers(0, count - 1), max_size=30))
    accepts = data.draw(st.lists(st.sampled_from((True, True, True, False)), min_size=count, max_size=count))
    limit = data.draw(st.none() | st.integers(0, 5))
    atomic = data.draw(st.lists(st.booleans(), min_size=len(candidates), max_size=len(candidates)))
    persist, charge = data.draw(st.booleans()), data.draw(st.booleans())
    removals, columns = removals_of(world)
    mask = np.array(accepts, np.uint8)
    result = removals.run(
        np.array(candidates, np.int32), mask, *columns, limit=limit, atomic=np.array(atomic, np.uint8),
        persist=persist, charge=charge,
    )  # fmt: skip
    want = remove(world, candidates, accepts, limit=limit, atomic=atomic, persist=persist, charge=charge)
    assert read_results(result, columns[0]) == want
    assert mask.astype(bool).tolist() == accepts
    assert columns[-1].tolist() == world.allowed
    assert removals.engine.cursor == world.cursor
    pods, nodes = removals.new_hints()
    for pod, node in zip(pods.tolist(), nodes.tolist(), strict=True):
        assert world.pods[pod].hint == node
    for n, node in enumerate(world.nodes):
        if node.there:
            assert removals.on(n).tolist() == node.pods
            assert removals.engine.free(n).tolist() == [node.free]
            assert removals.engine.slots(n) == node.slots


@given(worlds(), st.data())
def test_copies_are_independent(world: World, data: st.DataObject) -> None:
    count = len(world.nodes)
    candidates = data.draw(st.lists(st.integers(0, count - 1), max_size=30))
    first, columns = removals_of(world)
    before = first.engine.checksum(), first.engine.cursor
    copied = first.copy(first.engine.copy())
    assert (copied.engine.checksum(), copied.engine.cursor) == before
    want = remove(deepcopy(world), candidates, [True] * count)
    for removals in (copied, first):
        mutable_columns = [*columns[:-1], columns[-1].copy()]
        assert (first.engine.checksum(), first.engine.cursor) == before
        result = removals.run(np.array(candidates, np.int32), np.ones(count, np.uint8), *mutable_columns)
        assert read_results(result, columns[0]) == want


@given(worlds())
def test_independent_removals_match_for_any_thread_count(world: World) -> None:
    candidates = list(range(len(world.nodes)))
    want = []
    for n in candidates:
        want += remove(deepcopy(world), [n], [True] * len(candidates), persist=False, charge=False)
    for threads in (1, 2, 5):
        removals, columns = removals_of(world)
        before = removals.engine.checksum(), removals.engine.cursor
        mask = np.ones(len(candidates), np.uint8)
        result = removals.alone(np.array(candidates, np.int32), mask, *columns, threads=threads)
        assert read_results(result, columns[0]) == want
        assert (removals.engine.checksum(), removals.engine.cursor) == before
        assert columns[-1].tolist() == world.allowed
        assert len(removals.new_hints()[0]) == 0


@given(worlds(), st.data())
def test_losses_match_the_reference(world: World, data: st.DataObject) -> None:
    some = st.lists(st.integers(0, len(world.nodes) - 1), max_size=4, unique=True)
    parts = data.draw(st.lists(some, max_size=6))
    stays = data.draw(st.lists(st.booleans(), min_size=len(world.pods), max_size=len(world.pods)))
    engine, classes = engine_of(world)
    before = engine.checksum(), engine.cursor
    moving, homeless, first = _engine.losses(
        engine,
        classes,
        np.array([pod.priority for pod in world.pods], np.int64),
        np.array([pod.node for pod in world.pods], np.int32),
        np.array(stays, np.uint8),
        np.cumsum([0, *map(len, parts)]).astype(np.int32),
        np.array([n for part in parts for n in part], np.int32),
        n_first=2,
    )
    for i, part in enumerate(parts):
        count, without = lose(world, part, stays)
        assert (moving[i], homeless[i]) == (count, len(without))
        assert [p for p in first[i].tolist() if p >= 0] == without[:2]
    assert (engine.checksum(), engine.cursor) == before


def small() -> tuple[_engine.Removals, dict[str, Any]]:
    removals, (codes, of_pod, start, ids, allowed) = removals_of(
        World([Node(4, 4), Node(4, 4)], [Pod(1, node=0, budgets=(0,))], [1])
    )
    arguments = {"candidates": np.zeros(1, np.int32), "destinations": np.ones(2, np.uint8), "codes": codes,
             "set_of": of_pod, "set_start": start, "set_ids": ids, "allowed": allowed}  # fmt: skip
    return removals, arguments


@pytest.mark.parametrize(
    "spoilt",
    [
        {"candidates": np.array([2], np.int32)},
        {"candidates": np.array([-2], np.int32)},
        {"destinations": np.ones(3, np.uint8)},
        {"codes": np.zeros(2, np.uint8)},
        {"set_of": np.array([1], np.int32)},
        {"set_start": np.array([0, 2], np.int32)},
        {"set_start": np.array([1, 1], np.int32)},
        {"set_ids": np.array([1], np.int32)},
        {"allowed": np.zeros(0, np.int64)},
    ],
    ids=lambda spoilt: f"{next(iter(spoilt))}-{next(iter(spoilt.values())).tolist()}",
)
def test_invalid_arguments_are_refused(spoilt: dict[str, Any]) -> None:
    removals, arguments = small()
    for call in (removals.run, removals.alone):
        with pytest.raises(NativeError):
            call(**{**arguments, **spoilt})


def test_an_engine_that_changed() -> None:
    removals, arguments = small()
    removals.engine.fork()
    with pytest.raises(NativeError, match="forked"):
        removals.run(**arguments)
    with pytest.raises(NativeError, match="inside a fork"):
        removals.engine.copy()
    removals.engine.revert()
    other = removals.engine.copy()
    one = np.ones((1, 1), np.int64)
    flags = np.zeros(1, np.uint8)
    removals.engine.add_classes(one, one, np.zeros(1, np.int32), flags, flags, [None])
    with pytest.raises(NativeError, match="other classes"):
        removals.run(**arguments)
    with pytest.raises(NativeError, match="other classes"):
        removals.copy(other)
    with pytest.raises(NativeError, match="no copy"):
        small()[0].copy(removals.engine)


@pytest.mark.parametrize("nodes", [[0, 0], [5], [-1]])
def test_loss_of_unknown_nodes_is_refused(nodes: list[int]) -> None:
    engine, classes = engine_of(World([Node(1, 1)], [], []))
    none = np.zeros(0, np.int64)
    with pytest.raises(NativeError):
        _engine.losses(
            engine, classes, none, classes, none.astype(np.uint8), np.array([0, len(nodes)], np.int32),
            np.array(nodes, np.int32),
        )  # fmt: skip


def test_pods_put_on_nodes() -> None:
    removals, _ = small()
    removals.put(0, 1)
    assert removals.on(1).tolist() == [0]
    for pod, node in ((1, 0), (0, 2), (-1, 0)):
        with pytest.raises(NativeError):
            removals.put(pod, node)
    with pytest.raises(NativeError):
        removals.set_hints(np.array([2], np.int32))
    with pytest.raises(NativeError):
        _engine.more_of(removals.engine, 9, 5)
