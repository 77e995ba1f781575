"""What the kernels do with arguments that nobody should give: an error of ours or an answer, never a crash.

Run under sanitizers these are the tests that would see a read or a write out of bounds.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kscale._native
from kscale._native import (
    _bin_pricing,
    _build,
    _engine,
    _histogram,
    _names,
    _numeric,
    _packing,
    _pod_classes,
    _pod_metrics,
    _projection,
    _reconcile,
    _removals,
    _replay,
    _replicas,
    _rows,
    _scoring,
    _selecting,
    _usage_text,
)
from kscale.errors import NativeError

LOW, HIGH = -(2**63), 2**63 - 1
REFUSED = (NativeError, ValueError, TypeError, OverflowError)
EXTREMES = {
    np.dtype(np.uint8): [0, 1, 2, 7, 255],
    np.dtype(np.uint16): [0, 1, 65535],
    np.dtype(np.uint32): [0, 1, 10_000, 2**32 - 1],
    np.dtype(np.int32): [0, 1, -1, 5, 2**31 - 1, -(2**31)],
    np.dtype(np.int64): [0, 1, -1, 3, 100, HIGH, LOW],
    np.dtype(np.float64): [0.0, 1.0, -1.0, 0.1, 1e308, -1e308, float("inf"), float("-inf"), float("nan")],
}
MODULES = [
    _bin_pricing,
    _build,
    _engine,
    _histogram,
    _names,
    _numeric,
    _packing,
    _pod_classes,
    _pod_metrics,
    _projection,
    _reconcile,
    _removals,
    _replay,
    _replicas,
    _rows,
    _scoring,
    _selecting,
    _usage_text,
]


# -- every kernel with columns: the same attacks ----------------------------------------------------------------------


def replicas_columns() -> dict[str, np.ndarray]:
    """Two rows, three pods, three samples, requests and values of each."""
    per_row: dict[str, Any] = {
        "mode": ([0, 5], np.uint8), "cpu": ([1, 0], np.uint8), "given": ([0, 0], np.uint8),
        "current": ([3, 3], np.int32), "target": ([50, 100], np.int64), "down": ([0.1, 0.1], np.float64),
        "up": ([0.1, 0.1], np.float64), "pods_begin": ([0, 0], np.int64), "pods_end": ([3, 3], np.int64),
        "samples": ([0, 0], np.int64), "requests": ([0, 0], np.int64), "bad_request": ([-1, -1], np.int32),
        "extra_count": ([0, 0], np.int64), "extra_sum": ([0, 0], np.int64), "values_begin": ([0, 0], np.int64),
        "values_end": ([0, 1], np.int64),
    }  # fmt: skip
    per_pod: dict[str, Any] = {
        "phase": ([2, 2, 1], np.uint8), "deleting": ([0, 0, 0], np.uint8), "ready": ([1, 1, 2], np.uint8),
        "started": ([1, 1, 0], np.uint8), "start": ([0, 0, 0], np.int64), "transition": ([0, 0, 0], np.int64),
        "sample_present": ([1, 1, 0], np.uint8), "sample_value": ([10, 90, 0], np.int64),
        "sample_time": ([5, 5, 0], np.int64), "sample_window": ([1, 1, 0], np.int64),
        "request": ([100, 100, 100], np.int64), "value": ([7, 8, 9], np.int64),
    }  # fmt: skip
    return {name: np.array(values, dtype) for name, (values, dtype) in {**per_row, **per_pod}.items()}


def call_replicas(columns: dict[str, np.ndarray]) -> Any:
    return _replicas.calculate(**columns, now=100, cpu_initialization=10, initial_readiness=5, threads=2)


def call_groups(columns: dict[str, np.ndarray]) -> Any:
    names = ("phase", "deleting", "ready", "started", "start", "transition", "sample_present", "sample_value",
             "sample_time", "sample_window")  # fmt: skip
    return _replicas.groups(*(columns[name] for name in names), True, 100, 10, 5)


HISTORY = ("begin", "capacity", "size", "values", "times", "outdated")
RULES = ("select", "window", "begin", "end", "type", "value", "period")


def reconcile_columns() -> dict[str, np.ndarray]:
    columns: dict[str, Any] = {
        "active": ([1, 1], np.uint8), "current": ([3, 3], np.int32), "proposal": ([9, 1], np.int32),
        "scale_error": ([0, 0], np.uint8), "minimum": ([1, 1], np.int32), "maximum": ([5, 5], np.int32),
        "object_metric": ([0, 0], np.uint8), "behavior": ([1, 0], np.uint8), "selector_error": ([0, 0], np.uint8),
        "refused": ([1, 0], np.uint8),
        "fresh": ([0, 1], np.uint8), "metrics_begin": ([0, 1], np.int64), "metrics_end": ([1, 2], np.int64),
        "replicas": ([9, 1], np.int32), "metric_error": ([0, 0], np.uint8),
        "status": ([[1, 1, 1, 1]] * 2, np.uint8), "reason": ([[0, 0, 0, 0]] * 2, np.uint8),
        "time": ([[0, 0, 0, 0]] * 2, np.int64), "rescaled": ([1, 0], np.uint8), "before": ([1, 2], np.int32),
        "after": ([3, 2], np.int32),
    }  # fmt: skip
    for side in ("up", "down"):
        columns |= {
            f"{side}.select": ([0, 1], np.uint8), f"{side}.window": ([60, 0], np.int32),
            f"{side}.begin": ([0, 1], np.int64), f"{side}.end": ([1, 2], np.int64),
            f"{side}.type": ([0, 1], np.uint8), f"{side}.value": ([4, 100], np.int32),
            f"{side}.period": ([15, 60], np.int32),
        }  # fmt: skip
    for name in ("past", "added", "removed"):
        columns |= {
            f"{name}.begin": ([0, 4], np.int64), f"{name}.capacity": ([4, 4], np.int64),
            f"{name}.size": ([1, 2], np.int64), f"{name}.values": ([1] * 8, np.int32),
            f"{name}.times": ([0] * 8, np.int64), f"{name}.outdated": ([0] * 8, np.uint8),
        }  # fmt: skip
    return {name: np.array(values, dtype) for name, (values, dtype) in columns.items()}


def part(columns: dict[str, np.ndarray], prefix: str) -> SimpleNamespace:
    return SimpleNamespace(**{k.partition(".")[2]: v for k, v in columns.items() if k.startswith(f"{prefix}.")})


def targets(columns: dict[str, np.ndarray]) -> SimpleNamespace:
    return SimpleNamespace(**{name: value for name, value in columns.items() if "." not in name})


def parts(columns: dict[str, np.ndarray], *names: str) -> list[SimpleNamespace]:
    return [part(columns, name) for name in names]


def call_normalize(c: dict[str, np.ndarray]) -> Any:
    return _reconcile.normalize(
        *(c[name] for name in ("active", "behavior", "current", "proposal", "minimum", "maximum")),
        *parts(c, "up", "down", "past", "added", "removed"), 300, 1000, threads=2,
    )  # fmt: skip


def call_store(c: dict[str, np.ndarray]) -> Any:
    return _reconcile.store_events(
        c["rescaled"], c["before"], c["after"], *parts(c, "up", "down", "added", "removed"), 1000
    )


def call_decide(c: dict[str, np.ndarray]) -> Any:
    return _reconcile.decide(
        targets(c), c["replicas"], c["metric_error"], *parts(c, "up", "down", "past", "added", "removed"),
        c["status"], c["reason"], c["time"], 1000, 300, True, threads=2,
    )  # fmt: skip


def call_branches(c: dict[str, np.ndarray]) -> Any:
    return _reconcile.branches(targets(c), c["status"], True)


def replay_columns() -> dict[str, np.ndarray]:
    columns = {k: v[:1].copy() for k, v in reconcile_columns().items() if k.startswith(("up.", "down."))}
    return columns | {
        "times": np.array([0, 10**9, 2 * 10**9]),
        "load": np.array([1.0, 5.0, 2.0]),
        "recorded": np.array([1, 2, 3, 4], np.int32),
    }


def call_replay(c: dict[str, np.ndarray]) -> Any:
    shared = {"time": c["times"], "load": c["load"]}
    metrics = [
        SimpleNamespace(**shared, mode=0, cpu=True, target=50, request=100),
        SimpleNamespace(**shared, mode=5, cpu=False, target=1000, request=0),
    ]
    return _replay.replay(
        4, metrics, c["recorded"], *parts(c, "up", "down"),
        tolerance_down=0.1, tolerance_up=0.1, cpu_initialization=0, initial_readiness=0, minimum=1, maximum=5,
        behavior=True, scale_to_zero=False, legacy=False, downscale_window=300, startup=0, lag=0, period=10**9,
        window=10**9, begin=0, start=1,
    )  # fmt: skip


def bank_columns() -> dict[str, np.ndarray]:
    return {
        "weights": np.zeros((2, 11)), "total": np.zeros(2), "min_bucket": np.full(2, 10, np.int32),
        "max_bucket": np.zeros(2, np.int32), "reference": np.zeros(2, np.int64), "rows": np.array([0, 1, 0]),
        "values": np.array([1.0, 5.0, 99.0]), "loads": np.array([1.0, 2.0, 3.0]), "when": np.array([0, 10, 20]),
        "index": np.array([0, 3]), "saved": np.array([1, 10_000], np.uint32), "found": np.zeros(3, np.int64),
    }  # fmt: skip


def call_bank(c: dict[str, np.ndarray]) -> Any:
    buckets = _histogram.Buckets.linear(10.0, 1.0, 0.001)
    columns = ("weights", "total", "min_bucket", "max_bucket", "reference")
    bank = _histogram.Bank(buckets, 1000, *(c[name] for name in columns))
    buckets.find(c["values"], c["found"])
    buckets.find(c["values"], c["found"], exact=True)
    bank.add(c["rows"], c["values"], c["loads"], c["when"])
    bank.percentile(c["rows"], 0.9, np.zeros(len(c["rows"])))
    bank.merge(c["rows"], bank, c["rows"])
    bank.save(c["rows"], np.zeros((len(c["rows"]), 11), np.uint32))
    bank.load(1, c["index"], c["saved"], float(c["loads"].max(initial=0.0)))
    bank.percentile(c["rows"], 0.5, np.zeros(len(c["rows"])))
    return bank


def usage_columns() -> dict[str, np.ndarray]:
    columns: dict[str, np.ndarray] = {
        "aggregate": np.array([0, 1, 0], np.int32), "oom_ratio": np.array([1.2, 1.2]),
        "oom_min_bump": np.array([1e8, 1e8]), "interval": np.full(2, 10**9), "container": np.array([0, 1, 2], np.int32),
        "times": np.array([1, 5, 9]), "amounts": np.array([10, 20, 30]), "status": np.zeros(3, np.uint8),
        "is_oom": np.array([0, 1, 0], np.uint8), "series": np.array([0, 2, 1], np.int32),
        "slots": np.array([2, -1, -2], np.int32), "used": np.array([0.1, 5.0, 99.0]),
    }  # fmt: skip
    for name in ("last_cpu", "last_memory", "window_end", "memory_peak", "oom_peak"):
        columns[name] = np.full(3, _histogram.UNSET)
    for name in ("first_sample", "last_sample", "samples"):
        columns[name] = np.zeros(2, np.int64)
    return columns


def call_usage(c: dict[str, np.ndarray]) -> Any:
    buckets = _histogram.Buckets.exponential(1000.0, 0.01, 1.05, 0.001)
    bank = _histogram.Bank(
        buckets, 10**9, np.zeros((2, buckets.size)), np.zeros(2), np.full(2, buckets.size - 1, np.int32),
        np.zeros(2, np.int32), np.zeros(2, np.int64),
    )  # fmt: skip
    usage = _histogram.Usage(
        *(c[name] for name in ("aggregate", "last_cpu", "last_memory", "window_end", "memory_peak", "oom_peak",
                               "first_sample", "last_sample", "samples", "interval", "oom_ratio", "oom_min_bump"))
    )  # fmt: skip
    usage.add_cpu(bank, c["container"], c["times"], c["amounts"], c["status"], threads=2)
    usage.add_memory(bank, c["container"], c["times"], c["amounts"], c["status"], c["is_oom"], threads=2)
    for cpu in (True, False):
        usage.feed(
            bank, cpu, c["series"], c["times"], c["used"], c["slots"], np.zeros(len(c["slots"]), np.int64), 5, threads=2
        )
    n = len(c["first_sample"])
    _histogram.recommend(
        bank, bank, c["first_sample"], c["last_sample"], c["samples"], np.zeros((n, 2), np.int64), np.full((2, 3), 0.9),
        np.full(2, 10**9), 0.15, np.zeros((n, 2, 3), np.int64), threads=2,
    )  # fmt: skip


def pricing_columns() -> dict[str, np.ndarray]:
    return {
        "value": np.array([3.0, 5.0]), "demand": np.array([[1, 2], [2, 1]]), "most": np.array([[4, 4]], np.int32),
        "count": np.array([4, 4]), "capacity": np.array([[5, 5]]), "wanted": np.zeros(1),
        "kind": np.zeros(2, np.int32), "item": np.array([0, 1], np.int32), "whole": np.array([3, 5]),
        "weight": np.ones((1, 2)),
    }  # fmt: skip


def call_pricing(c: dict[str, np.ndarray]) -> Any:
    kinds = [c[name] for name in ("demand", "most", "count", "capacity")]
    _bin_pricing.price(c["value"], *kinds, c["wanted"], swaps=2, threads=2)
    _bin_pricing.fill_around(c["value"], *kinds, c["kind"], c["item"], swaps=2)
    return _bin_pricing.surrogate_bounds(c["whole"], *kinds, c["weight"])


def table_columns() -> dict[str, np.ndarray]:
    return {
        "value": np.array([3, 5]), "values": np.array([[3, 5]]), "units": np.array([1, 2], np.int32),
        "parts": np.array([1, 0], np.int32), "limit": np.array([4, 4]), "table": np.zeros((1, 3, 2, 6), np.int64),
        "demand": np.array([[1, 2], [2, 1]]), "weight": np.ones((1, 2)), "limits": np.array([[4, 4]]),
        "capacity": np.array([[5, 5]]), "bin_units": np.array([5]), "bin_parts": np.array([1]),
        "at_least": np.array([0]),
    }  # fmt: skip


def call_table(c: dict[str, np.ndarray]) -> Any:
    _bin_pricing.fill_tables(c["values"], c["units"], c["parts"], c["limit"], c["table"], threads=2)
    return _bin_pricing.search(
        c["value"], c["units"], c["parts"], c["demand"], c["weight"], c["table"], limit=c["limits"],
        **{name: c[name] for name in ("capacity", "bin_units", "bin_parts", "at_least")}, node_limit=1000, keep=2,
    )  # fmt: skip


def text_columns() -> dict[str, np.ndarray]:
    return {
        "milliseconds": np.zeros(3, np.int64), "values": np.zeros(3), "numbers": np.array([1, 2, 3]),
        "scaled": np.zeros(3, np.int64),
    }  # fmt: skip


def call_text(c: dict[str, np.ndarray]) -> Any:
    for text in (b'[[1,"2"],[3,"4"]]', b"[]", b""):
        _usage_text.points(text, c["milliseconds"], c["values"])
        _usage_text.points(text, c["milliseconds"], c["values"], 2)
    return _usage_text.scaled(c["numbers"], 1000, 2**62, c["scaled"])


KERNELS: dict[str, tuple[Callable[[], dict[str, np.ndarray]], Callable[[dict[str, np.ndarray]], Any]]] = {
    "replicas": (replicas_columns, call_replicas),
    "groups": (replicas_columns, call_groups),
    "normalize": (reconcile_columns, call_normalize),
    "store_events": (reconcile_columns, call_store),
    "decide": (reconcile_columns, call_decide),
    "branches": (reconcile_columns, call_branches),
    "replay": (replay_columns, call_replay),
    "bank": (bank_columns, call_bank),
    "usage": (usage_columns, call_usage),
    "pricing": (pricing_columns, call_pricing),
    "tables": (table_columns, call_table),
    "text": (text_columns, call_text),
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_good_arguments_are_taken(kernel: str) -> None:
    columns, call = KERNELS[kernel]
    call(columns())


@pytest.mark.parametrize("kernel", KERNELS)
def test_wrong_dtypes_and_dimensions_are_refused(kernel: str) -> None:
    columns, call = KERNELS[kernel]
    read = 0
    for name in columns():
        for spoil in (lambda a: a.astype(np.float32), lambda a: a[None], lambda a: None, lambda a: a[..., None]):
            spoilt = columns()
            spoilt[name] = spoil(spoilt[name])
            try:
                call(spoilt)
            except (*REFUSED, AttributeError):
                read += 1
    assert read


@pytest.mark.parametrize("kernel", KERNELS)
def test_other_lengths_never_crash(kernel: str) -> None:
    columns, call = KERNELS[kernel]
    for name in columns():
        for resize in (lambda a: a[:0].copy(), lambda a: a[:1].copy(), lambda a: np.concatenate([a, a])):
            spoilt = columns()
            spoilt[name] = resize(spoilt[name])
            try:
                call(spoilt)
            except REFUSED:
                continue
    empty = {name: column[:0].copy() for name, column in columns().items()}
    with contextlib.suppress(REFUSED):
        call(empty)


@pytest.mark.parametrize("kernel", KERNELS)
@given(data=st.data())
def test_any_number_anywhere_never_crashes(kernel: str, data: st.DataObject) -> None:
    columns, call = KERNELS[kernel]
    spoilt = columns()
    for _ in range(data.draw(st.integers(1, 4))):
        column = spoilt[data.draw(st.sampled_from(sorted(spoilt)))]
        where = data.draw(st.integers(0, column.size - 1))
        column.flat[where] = data.draw(st.sampled_from(EXTREMES[column.dtype]))
    with contextlib.suppress(REFUSED):
        call(spoilt)


ROLES = [_usage_text.TIME, _usage_text.NAME, _usage_text.NAME + 1, _usage_text.CPU, _usage_text.MEMORY]
fragments = st.sampled_from(
    [b"1767582000", b"-", b".", b"0.5", b"1e", b"+9", b"shop", b"\xff", b"\0", b'"', b",", b",", b",", b"\n", b"\r\n",
     b"[[", b"],[", b"]]", b"NaN", b"2026-01-05T00:00:00", b"Z", b"99999999999999999999", b" "]
)  # fmt: skip


@given(st.lists(fragments, max_size=40).map(b"".join))
def test_any_text_is_read_or_left_to_others(text: bytes) -> None:
    with contextlib.suppress(*REFUSED):  # UnicodeDecodeError is one
        _usage_text.csv_rows(text, ROLES, 10**9)
    with contextlib.suppress(*REFUSED):
        _pod_metrics.read(text)
    for room in (0, 1, 5):
        assert -1 <= _usage_text.points(text, np.zeros(room, np.int64), np.zeros(room)) <= room


# -- the packing engine and the plug-ins ------------------------------------------------------------------------------


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
    _packing.estimate(engine, pods, np.array([0, 2, 4], np.int32), template, max_nodes=limit)
    engine.fork()
    for pod in (0, 1, 1, 0):
        engine.place(pod, pod)
        engine.unplace(pod, 2)
        engine.any_node(pod)
        engine.capacity(pod, 1)
    engine.revert()
    assert engine.checksum() == before
    for threads in (1, 2, 7):
        found = engine.verdicts(np.arange(2, dtype=np.int32), threads=threads)
        assert found.tolist() == [[engine.check(pod, node) for node in range(3)] for pod in range(2)]


def selecting() -> tuple[_engine.Engine, _selecting.Scorer]:
    """Two nodes, one class, a column, a row and a static."""
    engine = _engine.Engine(1, 0, 0)
    engine.set_statics(np.zeros((1, 1), np.uint16))
    engine.append_nodes(np.full((1, 2), 9), np.full(2, 9), np.zeros(2, np.int32), np.zeros(2, np.uint8))
    one = np.ones((1, 1), np.int64)
    engine.add_classes(one, one, np.zeros(1, np.int32), np.zeros(1, np.uint8), np.zeros(1, np.uint8), [None])
    scorer = _selecting.Scorer(2)
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
    for weights in ([], [1] * 6, [1] * 8, [-1] * 7):
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
    scorer = _selecting.Scorer(2)
    scorer.add_column(*(np.array(numbers[i : i + 2]) for i in (0, 2, 4)))
    scorer.add_row(np.array([0, -1], np.int32), np.array(numbers[6:7]))
    scorer.add_static(np.array([0, 1]))
    scorer.add_class(**amounts(numbers[7]), taints=0, affinity=0, images=0, spread=[(0, numbers[8], False)],
                     terms=[(0, numbers[9])], touch=[(0, numbers[9])])  # fmt: skip
    scorer.set_weights([1] * 7)
    scorer.set_fit(strategy, [(0, numbers[8])], [(0, 1), (50, 100), (100, 3)])
    scorer.set_balanced([0])
    total, parts = scorer.score(0, np.array([0, 1], np.int32))
    assert total.tolist() == parts.sum(axis=0).tolist()
    pods = np.zeros(3, np.int32)
    chosen, *_ = _selecting.select(engine, scorer, pods, pods, pods - 1, np.zeros(1, np.int32), np.zeros(0, np.int32))
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
    _selecting.select(engine, scorer, **{k: np.array(v, np.int32) for k, v in given_.items()})
    made: dict[str, Any] = {}
    for name, value in (given_ | changes).items():
        dtype = np.uint8 if name == "acceptable" else np.int32
        made[name] = value if isinstance(value, int) else np.array(value, dtype)
    with pytest.raises(REFUSED):
        _selecting.select(engine, scorer, **made)


def test_a_scorer_goes_with_an_engine_that_knows_its_nodes() -> None:
    engine, _ = selecting()
    none = np.zeros(0, np.int32)
    with pytest.raises(NativeError, match="other nodes"):
        _selecting.select(engine, _selecting.Scorer(3), none, none, none, np.zeros(1, np.int32), none)


@pytest.mark.parametrize(
    "shape", [((0, 2), (0, 2)), ((0, 2), (3, 2)), ((3, 2), (0, 2)), ((3, 0), (3, 0)), ((1, 2), (1, 3))]
)
def test_scorer_shapes(shape: tuple[tuple[int, int], tuple[int, int]]) -> None:
    nothing = SimpleNamespace(address=0, name="nothing")
    with pytest.raises(NativeError):
        _scoring.score_all(np.zeros(shape[0], np.int64), np.zeros(shape[1], np.int64), nothing)


@pytest.mark.parametrize(
    "make", [_histogram.Buckets, _histogram.Bank, _histogram.Usage, _engine.Template, _pod_classes.Extras]
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
            except REFUSED:
                continue
    with pytest.raises(REFUSED):
        _engine.Engine(1).add(_engine.Template.__new__(_engine.Template))


def test_conversions_at_the_ends() -> None:
    for x in EXTREMES[np.dtype(np.float64)]:
        assert LOW <= _numeric.to_int64(x) <= HIGH
        assert -(2**31) <= _numeric.to_int32(x) < 2**31


# -- stubs ------------------------------------------------------------------------------------------------------------


def stub_names(path: Path) -> dict[str, set[str]]:
    """Public names of a stub: of the module under "", of each class under its name."""

    def names(body: list[ast.stmt]) -> set[str]:
        found = set()
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is None:
                found.add(node.target.id)
        return {name for name in found if not name.startswith("_")}

    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = {node.name: names(node.body) for node in tree.body if isinstance(node, ast.ClassDef)}
    shapes = {  # of arguments and answers; they exist for the type checker only
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(b, ast.Name) and b.id in ("Protocol", "TypedDict") for b in node.bases)
    }
    return {"": names(tree.body) - shapes, **{name: body for name, body in classes.items() if not name.startswith("_")}}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_stub_has_the_names_of_the_module(module: Any) -> None:
    here = Path(inspect.getfile(kscale._native)).parent
    stub = stub_names(here / f"{module.__name__.rpartition('.')[2]}.pyi")

    def own(value: Any) -> bool:
        return not inspect.ismodule(value) and getattr(value, "__module__", module.__name__) == module.__name__

    public = {name for name, value in vars(module).items() if not name.startswith("_") and own(value)}
    assert stub[""] == public
    for name in public:
        value = getattr(module, name)
        if inspect.isclass(value):
            assert stub[name] == {member for member in vars(value) if not member.startswith("_")}, name


def test_every_compiled_module_is_here() -> None:
    here = Path(inspect.getfile(kscale._native)).parent
    stubs = {path.stem for path in here.glob("*.pyi") if path.stem != "__init__"}
    assert {module.__name__.rpartition(".")[2] for module in MODULES} == stubs
    doors = [line.split()[0] for line in (kscale._native.__doc__ or "").splitlines() if line.startswith("_")]
    assert sorted(doors) == sorted(stubs)
