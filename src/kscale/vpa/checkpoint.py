"""Checkpoints: upstream's lossy form of what is known of a container (``pkg/recommender/checkpoint``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from kscale.errors import KscaleError
from kscale.objects.vpa import (
    HistogramCheckpoint,
    VerticalPodAutoscalerCheckpoint,
    VerticalPodAutoscalerCheckpointStatus,
)
from kscale.vpa.clock import UNSET, from_text, to_text
from kscale.vpa.histogram import Histogram, HistogramError, SavedHistogram
from kscale.vpa.model.aggregates import Aggregate, AggregateKey, Store
from kscale.vpa.model.cluster import ClusterState
from kscale.vpa.model.vpa import FETCHING_HISTORY, Vpa

__all__ = ["VERSION", "CheckpointError", "ContainerCheckpoint", "load", "load_all", "store_all"]

VERSION: Final = "v3"


class CheckpointError(KscaleError, ValueError):
    """A checkpoint that cannot be used, with upstream's text."""


class ContainerCheckpoint(NamedTuple):
    """The checkpoint of one container name of a VPA. The object is named ``<vpa>-<container>``."""

    namespace: str
    vpa: str
    container: str
    status: VerticalPodAutoscalerCheckpointStatus


# -- reading ---------------------------------------------------------------------------------------------------


def _load_histogram(histogram: Histogram, saved: HistogramCheckpoint) -> None:
    weights = {int(bucket): weight for bucket, weight in (saved.bucket_weights or {}).items()}
    histogram.load(weights, saved.total_weight, from_text(saved.reference_timestamp))


def load(store: Store, row: int, status: VerticalPodAutoscalerCheckpointStatus) -> None:
    """``LoadFromCheckpoint`` into an aggregate; raises :class:`CheckpointError`."""
    if status.version != VERSION:
        raise CheckpointError(f"unsupported checkpoint version {status.version}")
    store.samples[row] = status.total_samples_count
    store.first[row] = from_text(status.first_sample_start)
    store.last[row] = from_text(status.last_sample_start)
    try:
        _load_histogram(store.memory.row(row), status.memory_histogram)
        _load_histogram(store.cpu.row(row), status.cpu_histogram)
    except HistogramError as error:
        raise CheckpointError(str(error)) from None


def load_all(state: ClusterState, checkpoints: Iterable[VerticalPodAutoscalerCheckpoint], now: int) -> list[str]:
    """Load checkpoints into the VPAs that they belong to; texts of what could not be loaded come back.

    A bad checkpoint loads up to where it is bad, as upstream does.
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
    ready = [vpa for vpa in vpas if not vpa.condition_is_true(FETCHING_HISTORY)]
    ready.sort(key=lambda vpa: (vpa.checkpoint_written, vpa.key))
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


def _saved(histogram: SavedHistogram) -> HistogramCheckpoint:
    return HistogramCheckpoint(
        reference_timestamp=to_text(histogram.reference_time),
        bucket_weights={str(bucket): weight for bucket, weight in histogram.bucket_weights.items()},
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
            if end == UNSET or now >= end:
                continue
            for vpa in users.get(AggregateKey(pod.namespace, name, pod.label_key), ()):
                target.append(rows[vpa.key, name])
                peak.append(float(max(store.memory_peak[container.slot], store.oom_peak[container.slot])))
                time.append(end)
    merged.memory.add_samples(target, peak, np.ones(len(target)), time, subtract=True)
