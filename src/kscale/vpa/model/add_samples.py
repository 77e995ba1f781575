"""Add usage samples and out-of-memory kills to the state.

Upstream: ``AddSample``, ``RecordOOM`` of ``ClusterState``. This module finds the container and aggregate of each sample
and reports rejected samples. The kernels are ``src/usage.cpp`` (memory peaks, OOMs) and ``src/usage_cpu.cpp``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from kscale._native import _histogram
from kscale.effects import SECOND, ZERO_TIME, Moment
from kscale.objects.api.meta import ResourceList
from kscale.vpa.metrics import ObservationTally, QualityObserver
from kscale.vpa.model.aggregates import Aggregate, AggregateStore
from kscale.vpa.model.cluster_state import RecommenderState
from kscale.vpa.model.usage import CPU_SAMPLE, MEMORY_SAMPLE, OOM, ContainerName, Usage
from kscale.vpa.resources import CPU, MEMORY

__all__ = [
    "AggregateRecommendation",
    "ContainerUsage",
    "LastRecommendations",
    "UsageError",
    "add_container_usage",
    "add_cpu_grid",
    "add_usage",
    "find_slot",
    "get_aggregate_recommendations",
    "observe_sample_quality",
]


MIN_GRID_LENGTH: Final = 32
"""Minimum number of samples of each container. With fewer it is not worth to check whether times are equal."""


def add_cpu_grid(
    store: AggregateStore,
    container: npt.NDArray[np.int32],
    time: npt.NDArray[np.int64],
    value: npt.NDArray[np.int64],
    status: npt.NDArray[np.uint8],
    threads: int,
) -> bool:
    """Add CPU samples if they form a grid: many containers, one after the other, with samples at the same times.

    Sample *i* is of the container in the slot ``container[i]`` of the store, at ``time[i]`` (nanoseconds) with
    ``value[i]`` (millicores). Returns False, and adds nothing, if they form no grid of at least 32 samples per
    container, if containers share an aggregate, if a value is 2^31 or more, or if a sample would be rejected.
    Otherwise returns True and sets ``status`` to 0: results are equal bit for bit to adding samples one by one.
    """
    rows = 1 + int(np.count_nonzero(container[1:] != container[:-1]))
    length, rest = divmod(len(container), rows)
    if rest or length < MIN_GRID_LENGTH:
        return False
    table, slots = time.reshape(rows, length), container[::length]
    times = table[0]
    if not (
        bool((container.reshape(rows, length) == slots[:, None]).all())
        and bool((times[1:] > times[:-1]).all())
        and bool((table == times).all())
        and 0 <= int(value.min()) <= int(value.max()) < 2**31
        and int(store.last_cpu[slots].max()) < int(times[0])
        and len(np.unique(store.aggregate[slots])) == rows
    ):
        return False
    store.native.add_cpu_grid(
        store.cpu.native,
        np.arange(rows + 1),
        np.ascontiguousarray(slots),
        np.ascontiguousarray(times),
        value.astype(np.int32).reshape(rows, length),
        np.zeros(rows, np.int64),
        threads,
    )
    status[:] = 0
    return True


class LastRecommendations(NamedTuple):
    """Last recommendations of aggregates.

    ``amount`` float64[n] in cores or bytes (0 for none). ``mode`` int64[n]: the update mode in ``modes``, or -1 if the
    aggregate needs no recommendation.
    """

    modes: list[str]
    mode: npt.NDArray[np.int64]
    amount: npt.NDArray[np.float64]

    @classmethod
    def from_recommendations(cls, known: Sequence[AggregateRecommendation], cpu: bool) -> LastRecommendations:
        """Build the arrays from the aggregates' recommendations of CPU (``cpu``) or of memory."""
        resource = CPU if cpu else MEMORY
        modes: dict[str, int] = {}
        mode = [-1] * len(known)
        amount = [0.0] * len(known)
        for i, recommendation in enumerate(known):
            if recommendation is not None:
                mode[i] = modes.setdefault(recommendation[0] or "", len(modes))
                last = (recommendation[1] or {}).get(resource)
                if last is not None:
                    amount[i] = last.milli_value() / 1000.0 if cpu else float(last.value())
        return cls(list(modes), np.array(mode, np.int64), np.array(amount, np.float64))


AggregateRecommendation = tuple[str | None, ResourceList | None] | None
"""The update mode and the last recommendation of an aggregate; None: it needs no recommendation."""


def get_aggregate_recommendations(known: Sequence[Aggregate]) -> list[AggregateRecommendation]:
    """Return (update mode, last recommendation) of aggregates; None for those that need no recommendation."""
    return [(each.update_mode, each.last_recommendation) if each.needs_recommendation else None for each in known]


def observe_sample_quality(
    aggregates: npt.NDArray[np.int32],
    amounts: npt.NDArray[np.int64],
    is_oom: npt.NDArray[np.bool_],
    cpu: bool,
    recommended: LastRecommendations,
    quality: QualityObserver,
) -> None:
    """Observe in ``quality`` how accepted samples compare with recommendations (``observeQualityMetrics``).

    Samples are of CPU (``cpu``) or of memory; sample *i* is ``amounts[i]`` (millicores or bytes), and
    ``aggregates[i]`` is the index of its aggregate in ``recommended``. Samples whose aggregate needs no recommendation
    are left out.
    """
    if (recommended.mode < 0).any():
        needed = recommended.mode[aggregates] >= 0
        aggregates, amounts, is_oom = aggregates[needed], amounts[needed], is_oom[needed]
    usage = amounts / 1000.0 if cpu else amounts.astype(np.float64)
    mode, amount = recommended.mode[aggregates], recommended.amount[aggregates]
    quality.samples(CPU if cpu else MEMORY, recommended.modes, mode, usage, amount, is_oom)


_MAX_TIME_DISTANCE: Final = 1 << 62
"""Maximum distance from 1970 in nanoseconds that the kernels accept."""
_SlotArray = npt.NDArray[np.int32]
_Int64Array = npt.NDArray[np.int64]
_Uint8Array = npt.NDArray[np.uint8]
_RowSelection = _Int64Array | slice


class UsageError(NamedTuple):
    """A rejected sample or OOM, and upstream's reason."""

    what: str
    namespace: str
    pod: str
    container: str
    resource: str
    time: int
    error: str

    @property
    def is_key_error(self) -> bool:
        """Return whether the pod or container is unknown: with ``memory_saver`` this is expected, and not logged."""
        return self.error.startswith("KeyError:")


def add_usage(
    state: RecommenderState, usage: Usage, now: Moment, quality: QualityObserver | None = None
) -> list[UsageError]:
    """Add samples and OOMs in order, and return the rejected ones in order.

    Samples of init containers are dropped without an error, as upstream does. ``quality`` observes how usage and
    recommendations compare. Samples more than 146 years from 1970, including the zero time, are rejected as out of
    order; upstream has no such bounds.
    """
    resolved = _resolve_containers(state, usage.containers, now)
    slot = np.empty(len(usage), np.int32)
    all_known = _histogram.look_up(resolved.slots, np.ascontiguousarray(usage.container), slot)
    adder = _SampleAdder(state, usage, slot, resolved, quality)
    near = _find_representable_times(usage.time)
    if isinstance(usage.kind, int) and all_known and near is None:
        return [error for _, error in adder.add(usage.kind, None)]
    if all_known and near is None and (turns := _split_alternating_kinds(usage.kind)):
        errors = [error for kind, where in turns for error in adder.add(kind, where)]
        return [error for _, error in sorted(errors, key=itemgetter(0))]
    known = slot >= 0
    kinds = usage.kind if not isinstance(usage.kind, int) else np.full(len(usage), usage.kind, np.uint8)
    refused, dropped = resolved.refused, resolved.dropped
    problems = [
        (int(i), refused[int(usage.container[i])])
        for i in np.flatnonzero(~known)
        if not (dropped[usage.container[i]] and kinds[i] != OOM)
    ]
    errors = [
        (i, _build_error(usage, i, int(kinds[i]), texts[1] if kinds[i] == OOM else texts[0])) for i, texts in problems
    ]
    if near is not None:
        for i in np.flatnonzero(known & ~near).tolist():
            late = _histogram.TOO_OLD if usage.time[i] < 0 else 0
            errors.append((i, _build_refusal(usage, i, int(kinds[i]), late)))
        known &= near
    for cpu in (True, False):
        wanted = np.flatnonzero(known & ((kinds == CPU_SAMPLE) == cpu))
        if len(wanted):
            errors += adder.add(kinds, wanted)
    return [error for _, error in sorted(errors, key=itemgetter(0))]


class ContainerUsage(NamedTuple):
    """One CPU sample (``cpu``, millicores) and one memory sample (``memory``, bytes) of each container, int64[n] each.

    ``time`` int64[n]: nanoseconds since 1970.
    """

    containers: Sequence[ContainerName]
    time: _Int64Array
    cpu: _Int64Array
    memory: _Int64Array

    def to_usage(self) -> Usage:
        """Return the samples container by container, CPU first."""
        count = len(self.time)
        return Usage(
            self.containers,
            np.repeat(np.arange(count, dtype=np.int32), 2),
            np.repeat(self.time, 2),
            np.stack([self.cpu, self.memory], axis=1).ravel(),
            np.tile(np.array([CPU_SAMPLE, MEMORY_SAMPLE], np.uint8), count),
        )


def add_container_usage(
    state: RecommenderState, usage: ContainerUsage, now: Moment, quality: QualityObserver | None = None
) -> list[UsageError]:
    """Add samples of containers like :func:`add_usage` adds ``usage.to_usage()``."""
    resolved = _resolve_containers(state, usage.containers, now)
    if (resolved.slots < 0).any() or _find_representable_times(usage.time) is not None:
        return add_usage(state, usage.to_usage(), now, quality)
    numbers = np.arange(len(usage.time), dtype=np.int32)
    errors: list[tuple[int, UsageError]] = []
    known: list[AggregateRecommendation] | None = None
    for kind, value in ((CPU_SAMPLE, usage.cpu), (MEMORY_SAMPLE, usage.memory)):
        samples = Usage(usage.containers, numbers, usage.time, value, kind)
        adder = _SampleAdder(state, samples, resolved.slots, resolved, quality, known)
        errors += [(2 * i + kind, error) for i, error in adder.add(kind, None)]
        known = adder.recommendations
    return [error for _, error in sorted(errors, key=itemgetter(0))]


def _split_alternating_kinds(kinds: _Uint8Array | int) -> Sequence[tuple[int, slice]]:
    """Return (kind, slice of the samples) of CPU and of memory if they alternate, CPU first; else empty."""
    if (
        isinstance(kinds, int)
        or len(kinds) % 2
        or (kinds[::2] != CPU_SAMPLE).any()
        or (kinds[1::2] != MEMORY_SAMPLE).any()
    ):
        return ()
    return (CPU_SAMPLE, slice(0, len(kinds), 2)), (MEMORY_SAMPLE, slice(1, len(kinds), 2))


def _find_representable_times(time: _Int64Array) -> npt.NDArray[np.bool_] | None:
    """Return a mask of the times within the supported range; None if all are within it."""
    if not len(time) or (time.min() >= -_MAX_TIME_DISTANCE and time.max() <= _MAX_TIME_DISTANCE):
        return None
    return (time >= -_MAX_TIME_DISTANCE) & (time <= _MAX_TIME_DISTANCE)


def find_slot(state: RecommenderState, name: ContainerName, now: Moment) -> int:
    """Return the store's slot of a container, and link the slot to its aggregate, which is created if there is none.

    -1 if the container is unknown or an init container.
    """
    return int(_ResolvedContainers(state, [name], now).slots[0])


def _resolve_containers(state: RecommenderState, names: Sequence[ContainerName], now: Moment) -> _ResolvedContainers:
    """Resolve containers to slots.

    The result of the last call is reused for the same list object, unless a container was added, removed or bound to
    another aggregate since.
    """
    known: _ResolvedContainers | None = state.resolved_containers
    if known is not None and known.names is names and known.placement_version == state.placement_version:
        return known
    resolved = state.resolved_containers = _ResolvedContainers(state, names, now)
    return resolved


class _ResolvedContainers:
    """Slots and aggregates of the containers of some usage, and why others have none."""

    def __init__(self, state: RecommenderState, names: Sequence[ContainerName], now: Moment) -> None:
        self.names = names
        self.slots, self.aggregate = state.container_slots.look_up(names)
        self.refused: dict[int, tuple[str, str]] = {}
        """Why samples are rejected: index of the container -> (text for a sample, text for an OOM)."""
        self.dropped = np.zeros(len(names), bool)
        for index in np.flatnonzero(self.slots < 0).tolist():
            self._resolve(state, names[index], index, now)
        self.aggregates: Sequence[Aggregate] = state.container_slots.aggregates
        """Aggregates by the numbers in ``aggregate``."""
        self.placement_version = state.placement_version

    def _resolve(self, state: RecommenderState, name: ContainerName, index: int, now: Moment) -> None:
        """Set slot and aggregate of the container ``name`` at ``index``, or why its samples are rejected or dropped.

        A known container without an aggregate gets a new one, created at ``now``.
        """
        namespace, pod_name, container = name
        pod = state.pods.get((namespace, pod_name))
        if pod is None:
            text = f"KeyError: {{{namespace} {pod_name}}}"
            self.refused[index] = text, text
            return
        state_container = pod.containers.get(container)
        if pod.init_containers and container in pod.init_containers:
            self.dropped[index] = True
            state_container = None
        if state_container is None:
            text = f"KeyError: {{{{{namespace} {pod_name}}} {container}}}"
            self.refused[index] = text, f"KeyError: {container}"
            return
        aggregate = state_container.bound or state.find_or_create(pod, container, now)
        state.store.aggregate[state_container.slot] = aggregate.row
        self.slots[index] = state_container.slot
        self.aggregate[index] = state.container_slots.insert(name, state_container.slot, aggregate)


class _SampleAdder(msgspec.Struct, eq=False):
    """Adder of usage columns to the store, CPU and memory separately."""

    _state: RecommenderState
    _usage: Usage
    _slot: npt.NDArray[np.int32]
    _resolved: _ResolvedContainers
    _quality: QualityObserver | None
    recommendations: list[AggregateRecommendation] | None = None
    """Last recommendation of each aggregate; None until they are read. Adding samples does not change them."""

    def add(self, kinds: npt.NDArray[np.uint8] | int, where: _RowSelection | None) -> list[tuple[int, UsageError]]:
        """Add the samples in the rows ``where`` (None: all), which are either all of CPU or none of CPU.

        ``kinds``: the kind of each row, or one kind for all. Returns the rejected ones as (row, error).
        """
        usage = self._usage
        container, time, value, kind = self._slot, usage.time, usage.value, kinds
        if where is not None:
            container, time, value = np.ascontiguousarray(self._slot[where]), usage.time[where], usage.value[where]
            kind = kinds if isinstance(kinds, int) else kinds[where]
        status = np.empty(len(container), np.uint8)
        time, value = np.ascontiguousarray(time), np.ascontiguousarray(value)
        if (kind if isinstance(kind, int) else kind[0] if len(kind) else CPU_SAMPLE) == CPU_SAMPLE:
            self._add_cpu(container, time, value, status)
            self._observe_quality(where, status, value, None, True)
        else:
            self._add_memory(container, time, value, status, kind, where)
        errors = []
        for position in np.flatnonzero(status).tolist():
            i = position if where is None else int(_to_rows(where)[position])
            number = kind if isinstance(kind, int) else int(kind[position])
            errors.append((i, _build_refusal(usage, i, number, int(status[position]))))
        return errors

    def _add_cpu(self, container: _SlotArray, time: _Int64Array, value: _Int64Array, status: _Uint8Array) -> None:
        """Add CPU samples; ``status`` receives the result of each: 0 if it was accepted."""
        store, threads = self._state.store, self._state.threads
        if not add_cpu_grid(store, container, time, value, status, threads):
            store.native.add_cpu(store.cpu.native, container, time, value, status, threads)

    def _add_memory(
        self,
        container: _SlotArray,
        time: _Int64Array,
        value: _Int64Array,
        status: _Uint8Array,
        kind: _Uint8Array | int,
        where: Any,
    ) -> None:
        """Add memory samples and OOMs, and schedule their comparison with recommendations.

        ``status`` receives the result of each: 0 if it was accepted.
        """
        store, threads = self._state.store, self._state.threads
        oom: _Uint8Array | None = None
        if not isinstance(kind, int):
            oom = (kind == OOM).astype(np.uint8)
        elif kind == OOM:
            oom = np.ones(len(container), np.uint8)
        taken = value.copy() if oom is not None and self._quality is not None else value
        store.native.add_memory(
            store.memory.native,
            container,
            time,
            value,
            status,
            oom,
            threads,
            None if taken is value else taken,
        )
        self._observe_quality(where, status, taken, oom, False)

    def _observe_quality(
        self, where: _RowSelection | None, status: _Uint8Array, taken: _Int64Array, oom: _Uint8Array | None, cpu: bool
    ) -> None:
        """Schedule the comparison of accepted samples with the recommendations at the time of this call.

        ``taken``: the amounts that were added. ``oom``: 1 for each OOM; None: there are none. ``cpu``: the samples are
        of CPU, else of memory.
        """
        if self._quality is None:
            return
        if self.recommendations is None:  # adding samples does not change recommendations
            self.recommendations = get_aggregate_recommendations(self._resolved.aggregates)
        recommendations = self.recommendations
        if not any(recommendations):
            return
        aggregate, container = self._resolved.aggregate, self._usage.container

        def tell(into: ObservationTally) -> None:
            accepted: _Int64Array | slice = slice(None)
            if status.any():
                accepted = np.flatnonzero(status == 0)
            rows = np.arange(len(status))[accepted] if where is None else _to_rows(where)[accepted]
            killed = np.zeros(len(rows), np.bool_) if oom is None else oom[accepted] != 0
            recommended = LastRecommendations.from_recommendations(recommendations, cpu)
            observe_sample_quality(
                aggregate[container[rows]], taken[accepted], killed, cpu, recommended, QualityObserver(into)
            )

        self._quality.into.later(tell)


def _to_rows(where: _RowSelection) -> _Int64Array:
    """Return the row numbers of a selection."""
    return np.arange(where.start, where.stop, where.step) if isinstance(where, slice) else where


def _build_refusal(usage: Usage, i: int, kind: int, status: int) -> UsageError:
    """Build the error of sample ``i`` that the kernel rejected with ``status``."""
    if kind != OOM:
        return _build_error(usage, i, kind, "sample discarded (invalid or out of order)")
    namespace, pod, container = usage.containers[int(usage.container[i])]
    reason = "adding OOM sample failed"
    if status == _histogram.TOO_OLD:
        reason = f"OOM event will be discarded - it is too old ({_format_go_time(int(usage.time[i]))})"
    text = f"error while recording OOM for {{{{{namespace} {pod}}} {container}}}, Reason: {reason}"
    return _build_error(usage, i, kind, text)


def _build_error(usage: Usage, i: int, kind: int, text: str) -> UsageError:
    """Build the error of sample ``i``."""
    what, resource = ("oom", "") if kind == OOM else ("sample", "cpu" if kind == CPU_SAMPLE else "memory")
    return UsageError(what, *usage.containers[int(usage.container[i])], resource, int(usage.time[i]), text)


def _format_go_time(time: int) -> str:
    """Format nanoseconds since 1970 in UTC as Go's ``%v`` does."""
    if time == ZERO_TIME:
        return "0001-01-01 00:00:00 +0000 UTC"
    seconds, rest = divmod(time, SECOND)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"
