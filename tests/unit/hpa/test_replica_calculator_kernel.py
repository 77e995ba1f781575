"""The native replica calculator against its reference."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from kscale._native import _hpa
from kscale.effects import ZERO_TIME
from reference import go
from reference.hpa_replicas import Answer, Pod, Query, Sample, calculate

MODES = ("utilization", "usage", "object_value", "object_per_pod", "external_value", "external_per_pod")
ERRORS = ("", "no_metrics", "pods_unlisted", "no_pods", "no_samples_left", "bad_request", "nothing_known")
PHASES = {"Pending": 1, "Running": 2, "Failed": 3}
READY = {None: 0, "True": 1, "False": 2, "Unknown": 3}
MAX = 2**63 - 1
RELEASES = ("", "1.20", "1.19", "1.18")

amounts = st.one_of(st.integers(-5, 3000), st.integers(-(2**63), MAX), st.sampled_from([0, MAX, -MAX - 1]))
moments = st.one_of(st.integers(-10, 100), st.just(ZERO_TIME))
pod_states = st.builds(
    Pod,
    name=st.just(""),
    phase=st.sampled_from(["Running", "Running", "Running", "Pending", "Failed", "Succeeded"]),
    deleting=st.sampled_from([False, False, False, True]),
    ready=st.sampled_from(["True", "True", "False", "Unknown", None]),
    start=st.one_of(moments, st.none()),
    transition=moments,
    request=st.one_of(st.integers(0, 3000), amounts, st.none()),
)
samples = st.builds(Sample, value=amounts, time=moments, window=st.integers(0, 60))


@st.composite
def queries(draw: st.DrawFn) -> Query:
    pods = draw(st.lists(pod_states, max_size=6))
    for i, pod in enumerate(pods):
        pod.name = f"p{i}"
    names = [pod.name for pod in pods if draw(st.integers(0, 4))] + draw(st.sampled_from([[], [], ["x"], ["x", "y"]]))
    mode = draw(st.sampled_from(MODES))
    target = st.integers(1, 300) if mode == "utilization" else st.one_of(st.integers(-5, 3000), amounts)
    values = [draw(amounts)] if mode.startswith("object") else draw(st.lists(amounts, max_size=4))
    return Query(
        mode=mode,
        current=draw(st.one_of(st.integers(0, 20), st.integers(-(2**31), 2**31 - 1))),
        target=draw(target),
        down=draw(st.sampled_from([0.0, 0.1, 0.5])),
        up=draw(st.sampled_from([0.0, 0.1, 0.57])),
        cpu=draw(st.booleans()),
        pods=pods,
        samples={name: draw(samples) for name in names},
        values=values,
        now=50,
        cpu_initialization=draw(st.integers(0, 60)),
        initial_readiness=draw(st.integers(0, 60)),
        no_metrics=draw(st.integers(0, 19)) == 0,
        pods_unlisted=draw(st.integers(0, 19)) == 0,
    )


def kernel(rows: list[Query], threads: int) -> list[Answer]:
    """All queries in one call."""
    pods = [pod for query in rows for pod in query.pods]
    column: dict[str, list[int | float]] = {}

    def put(name: str, value: float) -> None:
        column.setdefault(name, []).append(value)

    at, values = 0, 0
    for query in rows:
        names = [pod.name for pod in query.pods]
        extra = [sample.value for name, sample in query.samples.items() if name not in names]
        bad = [i for i, pod in enumerate(query.pods) if pod.request is None]
        put("mode", MODES.index(query.mode))
        put("cpu", query.cpu)
        put("given", 1 if query.no_metrics else 2 if query.pods_unlisted else 0)
        put("current", query.current)
        put("target", query.target)
        put("down", query.down)
        put("up", query.up)
        for name in ("begin", "samples", "requests"):
            put(name, at)
        at += len(names)
        put("end", at)
        put("bad", bad[0] if bad else -1)
        put("extra_count", len(extra))
        put("extra_sum", go.i64(sum(extra)))
        put("values_begin", values)
        values += len(query.values)
        put("values_end", values)
    result = [query.samples.get(pod.name) for query in rows for pod in query.pods]

    def array(name: str, dtype: type) -> np.ndarray:
        return np.array(column.get(name, []), dtype)

    first = rows[0]
    replicas, utilization, usage, error, _, _, _ = _hpa.calculate_replicas(
        array("mode", np.uint8),
        array("cpu", np.uint8),
        array("given", np.uint8),
        array("current", np.int32),
        array("target", np.int64),
        array("down", np.float64),
        array("up", np.float64),
        array("begin", np.int64),
        array("end", np.int64),
        array("samples", np.int64),
        array("requests", np.int64),
        array("bad", np.int32),
        array("extra_count", np.int64),
        array("extra_sum", np.int64),
        array("values_begin", np.int64),
        array("values_end", np.int64),
        np.array([PHASES.get(pod.phase, 0) for pod in pods], np.uint8),
        np.array([pod.deleting for pod in pods], np.uint8),
        np.array([READY[pod.ready] for pod in pods], np.uint8),
        np.array([pod.start is not None for pod in pods], np.uint8),
        np.array([pod.start or 0 for pod in pods], np.int64),
        np.array([pod.transition for pod in pods], np.int64),
        np.array([sample is not None for sample in result], np.uint8),
        np.array([sample.value if sample else 0 for sample in result], np.int64),
        np.array([sample.time if sample else 0 for sample in result], np.int64),
        np.array([sample.window if sample else 0 for sample in result], np.int64),
        np.array([pod.request or 0 for pod in pods], np.int64),
        np.array([value for query in rows for value in query.values], np.int64),
        first.now,
        first.cpu_initialization,
        first.initial_readiness,
        RELEASES.index(first.release),
        threads,
    )
    return [
        Answer(int(n), int(percent), int(amount), ERRORS[code])
        for n, percent, amount, code in zip(replicas, utilization, usage, error, strict=True)
    ]


@settings(max_examples=examples(5), deadline=None)
@given(st.lists(queries(), min_size=1, max_size=4), st.sampled_from([1, 2, 5]), st.sampled_from(RELEASES))
def test_kernel_matches_the_reference(rows: list[Query], threads: int, release: str) -> None:
    for query in rows:
        query.cpu_initialization = rows[0].cpu_initialization
        query.initial_readiness = rows[0].initial_readiness
        query.release = release
    assert kernel(rows, threads) == [calculate(query) for query in rows]


@given(st.floats())
def test_conversions(number: float) -> None:
    assert _hpa.to_int64(number) == go.to_int64(number)
    assert _hpa.to_int32(number) == go.to_int32(number)
