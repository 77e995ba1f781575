"""Checkpoints: upstream's lossy form of what is known of a container (``pkg/recommender/checkpoint``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Generator, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from kscale.effects import ZERO_TIME, to_text
from kscale.errors import InputError, KscaleError, Problem
from kscale.objects.decode import to_dict
from kscale.objects.times import nanoseconds
from kscale.objects.vpa import (
    HistogramCheckpoint,
    VerticalPodAutoscalerCheckpoint,
    VerticalPodAutoscalerCheckpointStatus,
)
from kscale.vpa.histogram import Histogram, HistogramError, SavedHistogram
from kscale.vpa.model.aggregates import Aggregate, AggregateKey, Store
from kscale.vpa.model.cluster import ClusterState
from kscale.vpa.model.vpa import FETCHING_HISTORY, Vpa

__all__ = [
    "VERSION",
    "CheckpointError",
    "CheckpointsWritten",
    "ContainerCheckpoint",
    "WriteCheckpoints",
    "checkpoint_steps",
    "histogram_data",
    "load",
    "load_all",
    "orphaned",
    "status_data",
    "store_all",
]

VERSION: Final = "v3"
_YEAR_ONE: Final = nanoseconds("0001-01-01T00:00:00Z")


class CheckpointError(KscaleError, ValueError):
    """A checkpoint that cannot be used, with upstream's text."""


class ContainerCheckpoint(NamedTuple):
    """The checkpoint of one container name of a VPA. The object is named ``<vpa>-<container>``."""

    namespace: str
    vpa: str
    container: str
    status: VerticalPodAutoscalerCheckpointStatus


# -- reading ---------------------------------------------------------------------------------------------------


def _load_histogram(histogram: Histogram, saved: HistogramCheckpoint, field: str) -> None:
    weights = {}
    for name, weight in (saved.bucket_weights or {}).items():
        try:
            bucket = int(name)
        except ValueError:
            raise InputError(Problem(f"{name!r} is no bucket", field=f"{field}.bucketWeights")) from None
        if not 0 <= weight < 2**32:
            raise InputError(Problem(f"{weight} is no uint32", field=f"{field}.bucketWeights[{bucket}]"))
        weights[bucket] = weight
    histogram.load(weights, saved.total_weight, _time(saved.reference_timestamp, f"{field}.referenceTimestamp"))


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

    Weights and times that no API server would hold, or that cannot be expressed, are :class:`InputError`.
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


def load_all(state: ClusterState, checkpoints: Iterable[VerticalPodAutoscalerCheckpoint], now: int) -> list[str]:
    """Load checkpoints into the VPAs that they belong to; texts of what could not be loaded come back.

    Of a checkpoint that cannot be loaded nothing is taken in. Raises :class:`InputError`, naming the object and the
    field, for weights and times that no API server would hold or that cannot be expressed; those before it are loaded.
    """
    problems = []
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
            where = f"VerticalPodAutoscalerCheckpoint {item.key}"
            raise InputError(dataclasses.replace(problem, object=where)) from None
        old = vpa.initial_states.get(container)
        if old is not None:
            state.store.give_row(old.row)
        vpa.initial_states[container] = Aggregate(AggregateKey(vpa.namespace, container, ""), row, now)
    return problems


# -- writing ---------------------------------------------------------------------------------------------------


def store_all(state: ClusterState, vpas: Sequence[Vpa], now: int) -> list[ContainerCheckpoint]:
    """The checkpoints of VPAs, the one written longest ago first; those still fetching history are left out.

    The memory window that is still open is taken out: its peak may yet be replaced.
    """
    ready = _in_order(vpas)
    merged = state.containers_of(ready)
    rows = {(vpa.key, name): row for row, (vpa, name) in enumerate(merged.names)}
    _take_out_open_windows(state, ready, merged.store, rows, now)
    every = np.arange(len(merged.names), dtype=np.int64)
    saved = zip(merged.names, merged.store.memory.save(every), merged.store.cpu.save(every), strict=True)
    result = [
        ContainerCheckpoint(
            vpa.namespace,
            vpa.name,
            name,
            VerticalPodAutoscalerCheckpointStatus(
                last_update_time=to_text(now),
                version=VERSION,
                cpu_histogram=_saved(cpu),
                memory_histogram=_saved(memory),
                first_sample_start=to_text(int(merged.store.first[row])),
                last_sample_start=to_text(int(merged.store.last[row])),
                total_samples_count=int(merged.store.samples[row]),
            ),
        )
        for row, ((vpa, name), memory, cpu) in enumerate(saved)
    ]
    for vpa in {id(vpa): vpa for vpa, _ in merged.names}.values():
        vpa.checkpoint_written = now
    return result


class WriteCheckpoints(NamedTuple):
    """Write these now: the checkpoints of as many VPAs as there are workers."""

    checkpoints: list[ContainerCheckpoint]


class CheckpointsWritten(NamedTuple):
    """How it went: which could not be written, as (namespace, VPA, container), and why to stop, if so."""

    failed: Collection[tuple[str, str, str]] = ()
    stop: str = ""
    """``context canceled`` or ``context deadline exceeded``, once the time for checkpoints is over."""


def checkpoint_steps(
    state: ClusterState, vpas: Sequence[Vpa], now: int, *, workers: int = 10
) -> Generator[WriteCheckpoints, CheckpointsWritten, list[str]]:
    """``StoreCheckpoints`` as a step machine; texts of what upstream logs come back.

    Each worker finishes a VPA before it looks at the clock, so the checkpoints of ``workers`` VPAs are written even
    when time is already over. A VPA none of whose checkpoints could be written is as old as before.
    """
    ready = _in_order(vpas)
    for i in range(0, len(ready), workers):
        batch = ready[i : i + workers]
        before = {vpa.key: vpa.checkpoint_written for vpa in batch}
        made = store_all(state, batch, now)
        outcome = yield WriteCheckpoints(made)
        written = {(c.namespace, c.vpa) for c in made if (c.namespace, c.vpa, c.container) not in outcome.failed}
        for vpa in batch:
            if vpa.key not in written:
                vpa.checkpoint_written = before[vpa.key]
        if outcome.stop:
            return [f"Failed to store all checkpoints within the configured `checkpoints-timeout`: {outcome.stop}"]
    return []


def orphaned(
    checkpoints: Iterable[VerticalPodAutoscalerCheckpoint],
    vpas: Iterable[tuple[str, str]],
    namespaces: Collection[str],
    ignored: Collection[str] = (),
) -> list[VerticalPodAutoscalerCheckpoint]:
    """Checkpoints to delete: those in live namespaces that are not ignored, and whose VPA does not exist.

    ``vpas``: (namespace, name) of all VPAs, whichever recommender they belong to.
    """
    existing = set(vpas)
    return [
        item
        for item in checkpoints
        if item.namespace in namespaces
        and item.namespace not in ignored
        and (item.namespace, item.spec.vpa_object_name) not in existing
    ]


def _in_order(vpas: Iterable[Vpa]) -> list[Vpa]:
    """Those whose history is complete, the one written longest ago first."""
    ready = [vpa for vpa in vpas if not vpa.condition_is_true(FETCHING_HISTORY)]
    return sorted(ready, key=lambda vpa: (vpa.checkpoint_written, vpa.key))


def histogram_data(histogram: SavedHistogram) -> dict[str, Any]:
    """A histogram as the API prints it: a time that was never set is null."""
    return _data(to_dict(_saved(histogram)), "referenceTimestamp")


def status_data(status: VerticalPodAutoscalerCheckpointStatus) -> dict[str, Any]:
    """The status of a checkpoint as the API prints it: times that were never set are null."""
    data = _data(to_dict(status), "firstSampleStart", "lastSampleStart", "lastUpdateTime")
    for name in ("cpuHistogram", "memoryHistogram"):
        data[name] = _data(data.get(name, {}), "referenceTimestamp")
    return data


def _data(given: dict[str, Any], *times: str) -> dict[str, Any]:
    """With all its times, and without what is 0 or empty."""
    return {**dict.fromkeys(times), **{name: value for name, value in given.items() if value}}


def _saved(histogram: SavedHistogram) -> HistogramCheckpoint:
    return HistogramCheckpoint(
        reference_timestamp=to_text(histogram.reference_time),
        bucket_weights={str(bucket): weight for bucket, weight in histogram.bucket_weights.items()} or None,
        total_weight=histogram.total_weight,
    )


def _take_out_open_windows(
    state: ClusterState, vpas: Sequence[Vpa], merged: Store, rows: dict[tuple[tuple[str, str], str], int], now: int
) -> None:
    users: dict[AggregateKey, list[Vpa]] = {}
    for vpa in vpas:
        for key in vpa.aggregates:
            users.setdefault(key, []).append(vpa)
    target: list[int] = []
    peak: list[float] = []
    time: list[int] = []
    store = state.store
    for _, pod in sorted(state.pods.items()):
        for name, container in sorted(pod.containers.items()):
            end = int(store.window_end[container.slot])
            if end == ZERO_TIME or now >= end:
                continue
            for vpa in users.get(AggregateKey(pod.namespace, name, pod.label_key), ()):
                target.append(rows[vpa.key, name])
                peak.append(float(max(store.memory_peak[container.slot], store.oom_peak[container.slot])))
                time.append(end)
    merged.memory.add_samples(target, peak, np.ones(len(target)), time, subtract=True)
