"""Checkpoints: upstream's lossy form of what is known of a container (``pkg/recommender/checkpoint``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Final

from kscale.effects import ZERO_TIME, Moment, to_text
from kscale.errors import InputError, KscaleError, Problem
from kscale.objects.base import shortened
from kscale.objects.selectors import parse_int64
from kscale.objects.times import nanoseconds
from kscale.objects.vpa import (
    HistogramCheckpoint,
    VerticalPodAutoscalerCheckpoint,
    VerticalPodAutoscalerCheckpointStatus,
)
from kscale.vpa.histogram import Histogram, HistogramError, SavedHistogram
from kscale.vpa.model import Aggregate, AggregateKey, RecommenderState, Store

__all__ = ["VERSION", "CheckpointError", "checkpoint_status", "load", "load_all", "saved_histogram"]

VERSION: Final = "v3"
_YEAR_ONE: Final = nanoseconds("0001-01-01T00:00:00Z")


class CheckpointError(KscaleError, ValueError):
    """A checkpoint that cannot be used, with upstream's text."""


# -- reading ---------------------------------------------------------------------------------------------------


def _load_histogram(histogram: Histogram, saved: HistogramCheckpoint, field: str) -> None:
    weights = {}
    for name, weight in (saved.bucket_weights or {}).items():
        bucket = parse_int64(name)
        if bucket is None:
            raise InputError(Problem(f"{name!r} is no bucket", field=f"{field}.bucketWeights"))
        if type(weight) is not int or not 0 <= weight < 2**32:
            raise InputError(Problem(f"{_shown(weight)} is no uint32", field=f"{field}.bucketWeights[{bucket}]"))
        weights[bucket] = weight
    histogram.load(weights, saved.total_weight, _time(saved.reference_timestamp, f"{field}.referenceTimestamp"))


def _shown(weight: Any) -> str:
    return shortened(repr(weight), 40)


def _time(text: str | None, field: str) -> int:
    """Nanoseconds since 1970; :class:`InputError` for a text that is no time, or one that they cannot express."""
    if text is None:
        return ZERO_TIME
    try:
        time = nanoseconds(text)
    except ValueError as error:
        raise InputError(Problem(str(error), field=field)) from None
    if time == _YEAR_ONE:
        return ZERO_TIME
    if not ZERO_TIME <= time < 2**63:
        raise InputError(Problem(f'"{text}" is out of range: times go from 1677-09-22 to 2262-04-11', field=field))
    return time


def load(store: Store, row: int, status: VerticalPodAutoscalerCheckpointStatus) -> None:
    """``LoadFromCheckpoint`` into an aggregate; raises :class:`CheckpointError`.

    Weights that are none, and times that cannot be expressed, are :class:`InputError`.
    """
    if status.version != VERSION:
        raise CheckpointError(f"unsupported checkpoint version {status.version}")
    store.samples[row] = status.total_samples_count
    store.first[row] = _time(status.first_sample_start, "status.firstSampleStart")
    store.last[row] = _time(status.last_sample_start, "status.lastSampleStart")
    try:
        _load_histogram(store.memory.row(row), status.memory_histogram, "status.memoryHistogram")
        _load_histogram(store.cpu.row(row), status.cpu_histogram, "status.cpuHistogram")
    except HistogramError as error:
        raise CheckpointError(str(error)) from None


def load_all(
    state: RecommenderState,
    checkpoints: Iterable[VerticalPodAutoscalerCheckpoint],
    now: Moment,
    *,
    strict: bool = True,
) -> list[str]:
    """Load checkpoints into the VPAs that they belong to; texts of what could not be loaded come back.

    Of a checkpoint that cannot be loaded nothing is taken in. ``strict``: raises :class:`InputError`, naming the object
    and the field, for weights that are none and for times that cannot be expressed; those before it are loaded.
    """
    problems = []
    state.merging = []  # there may be more to merge
    for item in checkpoints:
        vpa = state.vpas.get((item.namespace, item.spec.vpa_object_name))
        if vpa is None:
            problems.append(
                f"cannot load checkpoint to missing VPA object {item.namespace}/{item.spec.vpa_object_name}"
            )
            continue
        row = state.store.take_row()
        container = item.spec.container_name
        try:
            load(state.store, row, item.status)
        except CheckpointError as error:
            state.store.give_row(row)
            problems.append(f"cannot load checkpoint for VPA {vpa.namespace}/{vpa.name}. Reason: {error}")
            continue
        except InputError as error:
            state.store.give_row(row)
            (problem,) = error.problems
            if not strict:
                problems.append(f"cannot load checkpoint for VPA {vpa.namespace}/{vpa.name}. Reason: {problem}")
                continue
            where = f"VerticalPodAutoscalerCheckpoint {item.key}"
            raise InputError(dataclasses.replace(problem, object=where)) from None
        old = vpa.initial_states.get(container)
        if old is not None:
            state.store.give_row(old.row)
        vpa.initial_states[container] = Aggregate(AggregateKey(vpa.namespace, container, ""), row, now)
    return problems


# -- writing ---------------------------------------------------------------------------------------------------


def checkpoint_status(
    samples: tuple[Moment, Moment, int], memory: SavedHistogram, cpu: SavedHistogram, now: Moment
) -> VerticalPodAutoscalerCheckpointStatus:
    """``SaveToCheckpoint``: the checkpoint of an aggregate whose histograms were saved. ``samples``: when the first and
    the last of them were, and how many there are."""
    first, last, count = samples
    return VerticalPodAutoscalerCheckpointStatus(
        last_update_time=to_text(now),
        version=VERSION,
        cpu_histogram=saved_histogram(cpu),
        memory_histogram=saved_histogram(memory),
        first_sample_start=to_text(first),
        last_sample_start=to_text(last),
        total_samples_count=count,
    )


def saved_histogram(histogram: SavedHistogram) -> HistogramCheckpoint:
    """A histogram as a checkpoint has it."""
    saved = HistogramCheckpoint(
        reference_timestamp=to_text(histogram.reference_time),
        bucket_weights={str(bucket): weight for bucket, weight in histogram.bucket_weights.items()} or None,
    )
    if histogram.total_weight:  # what stays the default is not written
        saved.total_weight = histogram.total_weight
    return saved
