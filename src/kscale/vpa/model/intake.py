"""Samples and OOMs on their way into the model (``AddSample``, ``RecordOOM`` of upstream's ``ClusterState``)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from kscale._native import _histogram
from kscale.effects import SECOND, ZERO_TIME
from kscale.vpa.model.aggregates import Aggregate
from kscale.vpa.model.samples import add_grid, compare
from kscale.vpa.model.usage import CPU_SAMPLE, OOM, ContainerName, Usage
from kscale.vpa.quality import Quality

if TYPE_CHECKING:
    from kscale.vpa.model.cluster import ClusterState, ContainerState

__all__ = ["UsageError", "add_usage", "slot_of"]


class UsageError(NamedTuple):
    """A sample or an OOM that was refused, and upstream's reason."""

    what: str
    namespace: str
    pod: str
    container: str
    resource: str
    time: int
    error: str

    @property
    def is_key_error(self) -> bool:
        """Of a pod or container that the model does not have: expected with ``memory_saver``, where nobody logs it."""
        return self.error.startswith("KeyError:")


def add_usage(state: ClusterState, usage: Usage, now: int, quality: Quality | None = None) -> list[UsageError]:
    """:meth:`kscale.vpa.model.ClusterState.add_usage`."""
    slots = np.full(len(usage.containers), -1, np.int32)
    refused: dict[int, tuple[str, str]] = {}
    dropped = np.zeros(len(usage.containers), bool)
    watched: dict[int, Aggregate] = {}
    for index, name in enumerate(usage.containers):
        found = _resolve(state, name, index, refused, dropped, now)
        if found is not None:
            slots[index] = found.slot
            if quality is not None:
                watched[index] = found.bound or state.find_or_create(state.pods[name[:2]], name[2], now)
    slot = np.empty(len(usage), np.int32)
    all_known = _histogram.look_up(slots, np.ascontiguousarray(usage.container), slot)
    if isinstance(usage.kind, int) and all_known:
        errors = _add(state, usage, slot, usage.kind, None, watched, quality)
        return [error for _, error in errors]
    known = slot >= 0
    kinds = usage.kind if not isinstance(usage.kind, int) else np.full(len(usage), usage.kind, np.uint8)
    problems = [
        (int(i), refused[int(usage.container[i])])
        for i in np.flatnonzero(~known)
        if not (dropped[usage.container[i]] and kinds[i] != OOM)
    ]
    errors = [(i, _error(usage, i, int(kinds[i]), texts[1] if kinds[i] == OOM else texts[0])) for i, texts in problems]
    for cpu in (True, False):
        wanted = np.flatnonzero(known & ((kinds == CPU_SAMPLE) == cpu))
        if len(wanted):
            errors += _add(state, usage, slot, kinds, wanted, watched, quality)
    return [error for _, error in sorted(errors, key=lambda pair: pair[0])]


def slot_of(state: ClusterState, name: ContainerName, now: int) -> int:
    """:meth:`kscale.vpa.model.ClusterState.slot_of`."""
    found = _resolve(state, name, 0, {}, np.zeros(1, bool), now)
    return -1 if found is None else found.slot


def _resolve(
    state: ClusterState,
    name: ContainerName,
    index: int,
    refused: dict[int, tuple[str, str]],
    dropped: npt.NDArray[np.bool_],
    now: int,
) -> ContainerState | None:
    """The container's state with its aggregate in place; else the texts for a sample and an OOM."""
    namespace, pod_name, container = name
    pod = state.pods.get((namespace, pod_name))
    if pod is None:
        text = f"KeyError: {{{namespace} {pod_name}}}"
        refused[index] = text, text
        return None
    found = pod.containers.get(container)
    if container in pod.init_containers:
        dropped[index] = True
    if found is None or dropped[index]:
        refused[index] = f"KeyError: {{{{{namespace} {pod_name}}} {container}}}", f"KeyError: {container}"
        return None
    aggregate = found.bound or state.find_or_create(pod, container, now)
    state.store.aggregate[found.slot] = aggregate.row
    return found


def _add(
    state: ClusterState,
    usage: Usage,
    slot: npt.NDArray[np.int32],
    kinds: npt.NDArray[np.uint8] | int,
    where: npt.NDArray[np.int64] | None,
    watched: Mapping[int, Aggregate],
    quality: Quality | None,
) -> list[tuple[int, UsageError]]:
    """Samples of CPU only, or of anything else only: those at ``where``, or all of them."""
    store = state.store
    container, time, value, kind = slot, usage.time, usage.value, kinds
    if where is not None:
        container, time, value = slot[where], usage.time[where], usage.value[where]
        kind = kinds if isinstance(kinds, int) else kinds[where]
    status = np.empty(len(container), np.uint8)
    time, value = np.ascontiguousarray(time), np.ascontiguousarray(value)
    cpu = (kind if isinstance(kind, int) else kind[0] if len(kind) else CPU_SAMPLE) == CPU_SAMPLE
    oom: npt.NDArray[np.uint8] | None = None
    taken = value
    if cpu:
        if not add_grid(store, container, time, value, status, state.threads):
            store.native.add_cpu(store.cpu.native, container, time, value, status, state.threads)
    else:
        if not isinstance(kind, int):
            oom = (kind == OOM).astype(np.uint8)
        elif kind == OOM:
            oom = np.ones(len(container), np.uint8)
        taken = value.copy() if oom is not None and quality is not None else value
        store.native.add_memory(
            store.memory.native,
            container,
            time,
            value,
            status,
            oom,
            state.threads,
            None if taken is value else taken,
        )
    if quality is not None:
        accepted = np.flatnonzero(status == 0)
        rows = accepted if where is None else where[accepted]
        killed = np.zeros(len(accepted), np.bool_) if oom is None else oom[accepted] != 0
        compare(usage.container[rows], taken[accepted], killed, cpu, watched, quality)
    errors = []
    for position in np.flatnonzero(status).tolist():
        i = position if where is None else int(where[position])
        number = kind if isinstance(kind, int) else int(kind[position])
        errors.append((i, _refusal(usage, i, number, int(status[position]))))
    return errors


def _refusal(usage: Usage, i: int, kind: int, status: int) -> UsageError:
    if kind != OOM:
        return _error(usage, i, kind, "sample discarded (invalid or out of order)")
    namespace, pod, container = usage.containers[int(usage.container[i])]
    reason = "adding OOM sample failed"
    if status == _histogram.TOO_OLD:
        reason = f"OOM event will be discarded - it is too old ({_go_text(int(usage.time[i]))})"
    text = f"error while recording OOM for {{{{{namespace} {pod}}} {container}}}, Reason: {reason}"
    return _error(usage, i, kind, text)


def _error(usage: Usage, i: int, kind: int, text: str) -> UsageError:
    what, resource = ("oom", "") if kind == OOM else ("sample", "cpu" if kind == CPU_SAMPLE else "memory")
    return UsageError(what, *usage.containers[int(usage.container[i])], resource, int(usage.time[i]), text)


def _go_text(time: int) -> str:
    """Go's ``%v`` of a time in UTC."""
    if time == ZERO_TIME:
        return "0001-01-01 00:00:00 +0000 UTC"
    whole, rest = divmod(time, SECOND)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"
