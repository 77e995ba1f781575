"""What the kernels do with arguments that nobody should give: an error of ours or an answer, never a crash.

Run under sanitizers these are the tests that would see a read or a write out of bounds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale._native import _bin_pricing, _histogram, _hpa, _projection, _usage_text
from native.extremes import EXTREMES, REFUSED

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
    return _hpa.calculate_replicas(**columns, now=100, cpu_initialization=10, initial_readiness=5, threads=2)


def call_groups(columns: dict[str, np.ndarray]) -> Any:
    names = ("phase", "deleting", "ready", "started", "start", "transition", "sample_present", "sample_value",
             "sample_time", "sample_window")  # fmt: skip
    return _hpa.pod_groups(*(columns[name] for name in names), True, 100, 10, 5)


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
    return _hpa.normalize(
        *(c[name] for name in ("active", "behavior", "current", "proposal", "minimum", "maximum")),
        *parts(c, "up", "down", "past", "added", "removed"), 300, 1000, threads=2,
    )  # fmt: skip


def call_store(c: dict[str, np.ndarray]) -> Any:
    return _hpa.store_events(c["rescaled"], c["before"], c["after"], *parts(c, "up", "down", "added", "removed"), 1000)


def call_decide(c: dict[str, np.ndarray]) -> Any:
    return _hpa.decide(
        targets(c), c["replicas"], c["metric_error"], *parts(c, "up", "down", "past", "added", "removed"),
        c["status"], c["reason"], c["time"], 1000, 300, True, threads=2,
    )  # fmt: skip


def call_branches(c: dict[str, np.ndarray]) -> Any:
    return _hpa.branches(targets(c), c["status"], True)


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
    return _hpa.replay(
        4, metrics, c["recorded"], *parts(c, "up", "down"),
        tolerance_down=0.1, tolerance_up=0.1, cpu_initialization=0, initial_readiness=0, minimum=1, maximum=5,
        behavior=True, scale_to_zero=False, release=0, downscale_window=300, startup=0, lag=0, period=10**9,
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
        "value": np.array([3, 5]), "values": np.array([[3, 5]], np.int32), "units": np.array([1, 2], np.int32),
        "parts": np.array([1, 0], np.int32), "limit": np.array([4, 4]), "table": np.zeros((1, 4, 6), np.int32),
        "demand": np.array([[1, 2], [2, 1]]), "weight": np.ones((1, 2)), "limits": np.array([[4, 4]]),
        "capacity": np.array([[5, 5]]), "bin_units": np.array([5]), "bin_parts": np.array([1]),
        "at_least": np.array([0]), "worth": np.ones(1),
    }  # fmt: skip


def call_table(c: dict[str, np.ndarray]) -> Any:
    _bin_pricing.fill_tables(c["values"], c["units"], c["parts"], c["limit"], c["table"], all_parts=1, threads=2)
    return _bin_pricing.search(
        c["value"], c["units"], c["parts"], c["demand"], c["weight"], c["table"], c["worth"], all_parts=1,
        **{name: c[name] for name in ("capacity", "bin_units", "bin_parts", "at_least")}, limit=c["limits"],
        node_limit=1000, keep=2,
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
def test_valid_arguments_are_accepted(kernel: str) -> None:
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
        _projection.read_pod_metrics(text)
    for room in (0, 1, 5):
        assert -1 <= _usage_text.points(text, np.zeros(room, np.int64), np.zeros(room)) <= room
