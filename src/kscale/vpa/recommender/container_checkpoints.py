"""The checkpoints of the containers of VPAs (upstream: ``checkpoint/checkpoint_writer.go``), of many VPAs at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kscale.effects import Moment
from kscale.objects.vpa import VerticalPodAutoscalerCheckpointStatus
from kscale.vpa.checkpoint import checkpoint_status
from kscale.vpa.histogram import SavedHistogram
from kscale.vpa.model import RecommenderState, Store, Vpa
from kscale.vpa.model.merged import merge_containers

__all__ = ["ContainerCheckpoints"]

_NEVER: Final = np.iinfo(np.int64).max


class _Prepared(NamedTuple):
    """Of some VPAs row by row: when the first and the last of their ``samples`` were and how many there are, and their
    histograms as they were saved. ``until``: when the first of the open windows of one closes."""

    samples: list[tuple[Moment, Moment, int]]
    memory: list[SavedHistogram]
    cpu: list[SavedHistogram]
    rows: dict[str, int]
    until: Moment


class ContainerCheckpoints:
    """The checkpoints of VPAs: those of some prepared together, handed out one by one when their turn comes."""

    def __init__(self, state: RecommenderState) -> None:
        self._state = state
        self._prepared: dict[Vpa, _Prepared] = {}

    def __contains__(self, vpa: Vpa) -> bool:
        return vpa in self._prepared

    def prepare(self, vpas: Sequence[Vpa], now: Moment) -> None:
        """Merges what is known of some VPAs, and saves it.

        A memory window that is still open is taken out: its peak may yet be replaced.
        """
        names, store = merge_containers(self._state, vpas)
        rows: dict[Vpa, dict[str, int]] = {vpa: {} for vpa in vpas}
        for row, (vpa, name) in enumerate(names):
            rows[vpa][name] = row
        until = self._take_out_open_windows(store, rows, now)
        which = np.arange(len(names))
        memory, cpu = store.memory.save(which), store.cpu.save(which)
        columns = (each[which].tolist() for each in (store.first, store.last, store.samples))
        samples = list(zip(*columns, strict=True))
        for vpa, closes in zip(vpas, until.tolist(), strict=True):
            self._prepared[vpa] = _Prepared(samples, memory, cpu, rows[vpa], closes)

    def take(self, vpa: Vpa, now: Moment) -> list[tuple[str, VerticalPodAutoscalerCheckpointStatus]]:
        """(container, checkpoint) of a prepared VPA, by name. It is forgotten then."""
        if now >= self._prepared[vpa].until:
            self.prepare([vpa], now)
        samples, memory, cpu, rows, _ = self._prepared.pop(vpa)
        return [
            (name, checkpoint_status(samples[row], memory[row], cpu[row], now)) for name, row in sorted(rows.items())
        ]

    def _take_out_open_windows(
        self, merged: Store, rows: dict[Vpa, dict[str, int]], now: Moment
    ) -> npt.NDArray[np.int64]:
        """When the first of the windows of each VPA closes that were taken out."""
        store = self._state.store
        found = [self._state.slots_of(vpa) for vpa in rows]
        until = np.full(len(rows), _NEVER)
        if not found:
            return until
        which = np.concatenate([each.slot for each in found])
        end = store.window_end[which]
        is_open = end > now
        if is_open.any():
            # All names of all VPAs one after the other, so that one look finds the rows of all containers.
            row_of = np.array(
                [own[name] for each, own in zip(found, rows.values(), strict=True) for name in each.names], np.int64
            )
            begins = np.cumsum([0, *(len(each.names) for each in found)])[:-1]
            owner = np.repeat(np.arange(len(found)), [len(each.slot) for each in found])
            name = np.concatenate([each.name for each in found])
            if not is_open.all():
                which, end, owner, name = which[is_open], end[is_open], owner[is_open], name[is_open]
            peak = np.maximum(store.memory_peak[which], store.oom_peak[which]).astype(np.float64)
            merged.memory.add_samples(row_of[name + begins[owner]], peak, np.ones(len(which)), end, subtract=True)
            np.minimum.at(until, owner, end)
        return until
