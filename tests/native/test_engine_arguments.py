"""What the packing engine and its scorers do with arguments that nobody should give."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale._native import _engine, _histogram, _hpa
from kscale.errors import NativeError
from native.extremes import EXTREMES, HIGH, LOW, REFUSED


@given(
    st.lists(st.sampled_from(EXTREMES[np.dtype(np.int64)]), min_size=6, max_size=6),
    st.lists(st.sampled_from(EXTREMES[np.dtype(np.int64)]), min_size=4, max_size=4),
    st.integers(-1, 3),
)
def test_amounts_at_the_ends_of_int64_wrap(free: list[int], amounts: list[int], limit: int) -> None:
    engine = _engine.Engine(2, 0, 0)
    engine.set_statics(np.zeros((1, 1), np.uint16))
    room = np.array(free, np.int64).reshape(2, 3)
    engine.append_nodes(room, np.array([1, LOW, HIGH]), np.zeros(3, np.int32), np.zeros(3, np.uint8))
    size = np.array(amounts, np.int64).reshape(2, 2)
    engine.add_classes(size, size, np.zeros(2, np.int32), np.zeros(2, np.uint8), np.zeros(2, np.uint8), [None, None])
    template = _engine.Template(engine, node_class=0, unschedulable=False, slots=HIGH, free=free[:2], domain=[])
    before = engine.checksum()
    pods = np.array([0, 0, 1, 1], np.int32)
    _engine.estimate(engine, pods, np.array([0, 2, 4], np.int32), template, max_nodes=limit)
    engine.fork()
    for pod in (0, 1, 1, 0):
        engine.place(pod, pod)
        engine.unplace(pod, 2)
        engine.any_node(pod)
        engine.capacity(pod, 1)
    engine.revert()
    assert engine.checksum() == before
    for threads in (1, 2, 7):
        result = engine.verdicts(np.arange(2, dtype=np.int32), threads=threads)
        assert result.tolist() == [[engine.check(pod, node) for node in range(3)] for pod in range(2)]


def selecting() -> tuple[_engine.Engine, _engine.Scorer]:
    """Two nodes, one class, a column, a row and a static."""
    engine = _engine.Engine(1, 0, 0)
    engine.set_statics(np.zeros((1, 1), np.uint16))
    engine.append_nodes(np.full((1, 2), 9), np.full(2, 9), np.zeros(2, np.int32), np.zeros(2, np.uint8))
    one = np.ones((1, 1), np.int64)
    engine.add_classes(one, one, np.zeros(1, np.int32), np.zeros(1, np.uint8), np.zeros(1, np.uint8), [None])
    scorer = _engine.Scorer(2)
    scorer.add_column(np.full(2, 10), np.ones(2, np.int64), np.ones(2, np.int64))
    scorer.add_row(np.array([0, -1], np.int32), np.array([3]))
    scorer.add_static(np.array([0, 1]))
    return engine, scorer


def amounts(*values: int) -> dict[str, Any]:
    return dict.fromkeys(("non_zero", "requested", "takes_non_zero", "takes"), values)


@pytest.mark.parametrize(
    "wrong",
    [
        amounts(), amounts(1, 2), amounts(1) | {"taints": 1}, amounts(1) | {"affinity": -2},
        amounts(1) | {"spread": [(1, 1, False)]}, amounts(1) | {"terms": [(-1, 1)]}, amounts(1) | {"touch": [(1, 1)]},
        amounts(1) | {"touch": [(0, 2**63)]},
    ],
)  # fmt: skip
def test_classes_of_a_scorer(wrong: dict[str, Any]) -> None:
    with pytest.raises(REFUSED):
        selecting()[1].add_class(**wrong)


def test_rows_and_columns_of_a_scorer() -> None:
    _, scorer = selecting()
    for columns in ((3, 2, 2), (2, 3, 2), (2, 2, 1)):
        with pytest.raises(NativeError):
            scorer.add_column(*(np.zeros(n, np.int64) for n in columns))
    with pytest.raises(NativeError):
        scorer.add_row(np.array([0, 1], np.int32), np.array([3]))
    with pytest.raises(NativeError):
        scorer.add_row(np.array([0, 0], np.int32), np.array([3]), np.zeros(3, np.uint8))
    with pytest.raises(NativeError):
        scorer.add_static(np.zeros(3, np.int64))
    count = len(_engine.SCORE_PLUGINS)
    for weights in ([], [1] * (count - 1), [1] * (count + 1), [-1] * count):
        with pytest.raises(REFUSED):
            scorer.set_weights(weights)
    for fit in ((3, []), (0, [(1, 1)]), (0, [], [(3, 1), (3, 2)])):
        with pytest.raises(REFUSED):
            scorer.set_fit(*fit)
    with pytest.raises(NativeError):
        scorer.set_balanced([1])
    with pytest.raises(NativeError):
        scorer.add_user(SimpleNamespace(address=0, name="nothing"), [0], 1)
    with pytest.raises(NativeError):
        scorer.score(0, np.zeros(1, np.int32))


@given(st.lists(st.sampled_from([0, 1, -1, 2, 100, HIGH, LOW]), min_size=10, max_size=10), st.integers(0, 2))
def test_scores_of_amounts_at_the_ends_of_int64(numbers: list[int], strategy: int) -> None:
    engine, _ = selecting()
    scorer = _engine.Scorer(2)
    scorer.add_column(*(np.array(numbers[i : i + 2]) for i in (0, 2, 4)))
    scorer.add_row(np.array([0, -1], np.int32), np.array(numbers[6:7]))
    scorer.add_static(np.array([0, 1]))
    scorer.add_class(**amounts(numbers[7]), taints=0, affinity=0, images=0, volumes=0, spread=[(0, numbers[8], False)],
                     terms=[(0, numbers[9])], touch=[(0, numbers[9])])  # fmt: skip
    scorer.set_weights([1] * len(_engine.SCORE_PLUGINS))
    scorer.set_fit(strategy, [(0, numbers[8])], [(0, 1), (50, 100), (100, 3)])
    scorer.set_balanced([0])
    total, parts = scorer.score(0, np.array([0, 1], np.int32))
    assert total.tolist() == parts.sum(axis=0).tolist()
    pods = np.zeros(3, np.int32)
    chosen, *_ = _engine.select(engine, scorer, pods, pods, pods - 1, np.zeros(1, np.int32), np.zeros(0, np.int32))
    assert set(chosen.tolist()) <= {0, 1}


@pytest.mark.parametrize(
    "changes",
    [
        {"pod_class": [1]}, {"score_class": [1]}, {"pod_class": [0, 0]}, {"node_set": [0]}, {"set_start": [1]},
        {"set_nodes": [0]}, {"set_start": [0, 1], "set_nodes": [2]}, {"acceptable": [1]}, {"percentage": 101},
        {"start": -1},
    ],
)  # fmt: skip
def test_selecting(changes: dict[str, Any]) -> None:
    engine, scorer = selecting()
    scorer.add_class(**amounts(1))
    given_: dict[str, Any] = {"pod_class": [0], "score_class": [0], "node_set": [-1], "set_start": [0], "set_nodes": []}
    _engine.select(engine, scorer, **{k: np.array(v, np.int32) for k, v in given_.items()})
    created: dict[str, Any] = {}
    for name, value in (given_ | changes).items():
        dtype = np.uint8 if name == "acceptable" else np.int32
        created[name] = value if isinstance(value, int) else np.array(value, dtype)
    with pytest.raises(REFUSED):
        _engine.select(engine, scorer, **created)


def test_a_scorer_goes_with_an_engine_that_knows_its_nodes() -> None:
    engine, _ = selecting()
    none = np.zeros(0, np.int32)
    with pytest.raises(NativeError, match="other nodes"):
        _engine.select(engine, _engine.Scorer(3), none, none, none, np.zeros(1, np.int32), none)


@pytest.mark.parametrize(
    "shape", [((0, 2), (0, 2)), ((0, 2), (3, 2)), ((3, 2), (0, 2)), ((3, 0), (3, 0)), ((1, 2), (1, 3))]
)
def test_scorer_shapes(shape: tuple[tuple[int, int], tuple[int, int]]) -> None:
    nothing = SimpleNamespace(address=0, name="nothing")
    with pytest.raises(NativeError):
        _engine.score_all(np.zeros(shape[0], np.int64), np.zeros(shape[1], np.int64), nothing)


@pytest.mark.parametrize(
    "make", [_histogram.Buckets, _histogram.Bank, _histogram.Usage, _engine.Template, _engine.Extras]
)
def test_objects_that_were_never_initialised(make: Any) -> None:
    raw = make.__new__(make)
    for name in dir(raw):
        method = getattr(raw, name, None)
        if name.startswith("_") or not callable(method):
            continue
        for arguments in ((), (0,), (np.zeros(1), np.zeros(1, np.int64)), (0, 1.0), (np.zeros(1, np.int64), 0.5)):
            try:
                method(*arguments)
            except (*REFUSED, DeprecationWarning):  # NumPy 2.0 takes an array of one for a number, and warns
                continue
    with pytest.raises(REFUSED):
        _engine.Engine(1).add(_engine.Template.__new__(_engine.Template))


def test_conversions_at_the_ends() -> None:
    for x in EXTREMES[np.dtype(np.float64)]:
        assert LOW <= _hpa.to_int64(x) <= HIGH
        assert -(2**31) <= _hpa.to_int32(x) < 2**31
