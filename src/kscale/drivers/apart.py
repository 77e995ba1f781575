"""HPAs that wait long for what they ask: they are decided in the background, and hold up nobody else. kscale's own."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from kscale.drivers.horizontal import HorizontalController
from kscale.effects import InBackground, Moment, Progress, Steps
from kscale.hpa.batch import Refresh, reconcile_all
from kscale.objects.autoscaling import HorizontalPodAutoscaler, Scale
from kscale.objects.rest_mapping import RESTMapper
from kscale.snapshot.pod_index import PodIndex

__all__ = ["CANNOT_BE_RECONCILED", "Apart"]

_log = logging.getLogger(__name__)
CANNOT_BE_RECONCILED: Final = "HorizontalPodAutoscaler %s cannot be reconciled: %s"


class Apart:
    """Those of a ``controller`` that are slow: of which a question or a write took longer than a sync period.

    All that are due are decided together, one batch after the other, however long each waits for its answers. Who waits
    for none of them that long any more is slow no longer, whoever else is. ``refresh`` reads their objects again once
    they have their answers. Single owner, as the controller.
    """

    def __init__(self, controller: HorizontalController, refresh: Refresh | None = None) -> None:
        self._controller, self._refresh = controller, refresh
        self._slow: set[str] = set()
        self._clock_sets = 0
        self.looked_at: Moment | None = None
        """While a batch is under way: when it is to be looked at whether it has ended."""

    def clock_set(self, by: int) -> None:
        """The clock has been set by so many nanoseconds: what is left to wait stays."""
        self._clock_sets += 1
        if self.looked_at is not None:
            self.looked_at += by

    def forget(self, key: str) -> None:
        """An HPA is gone."""
        self._slow.discard(key)

    def look(self, now: Moment) -> None:
        """A round has come: whether a batch has ended is looked at again in a period."""
        if self.looked_at is not None:
            self.looked_at = now + self._controller.options.sync_period_ns

    def note_late(self, keys: Iterable[str], now: Moment) -> None:
        """What these asked was not answered in time: they are slow, and come up again."""
        for key in keys:
            self.note_slow([key])
            self._controller.left_alone(key, now=now)

    def note_slow(self, keys: Iterable[str]) -> None:
        """These took too long."""
        for key in keys:
            self._slow.add(key)
            text = "HorizontalPodAutoscaler %s is decided apart: the API server took over a sync period to answer"
            _log.warning(text, key)

    def without_slow(
        self,
        due: list[HorizontalPodAutoscaler],
        pods: PodIndex,
        scales: Mapping[str, Scale],
        mapper: RESTMapper,
        progress: Progress,
    ) -> Steps[list[HorizontalPodAutoscaler]]:
        """Those of the HPAs that are due that are not slow. The others are begun, or come up again while a batch of
        such is under way. ``pods``, ``scales``, ``mapper``: as :func:`~kscale.hpa.batch.reconcile_all` has them."""
        slow = [hpa for hpa in due if hpa.key in self._slow] if self._slow else []
        if not slow:
            return due
        if self.looked_at is not None:
            for hpa in slow:
                self._controller.left_alone(hpa.key, now=progress.now)
        else:
            self.looked_at = progress.now + self._controller.options.sync_period_ns
            known = {hpa.key: scales[hpa.key] for hpa in slow if hpa.key in scales}
            yield from progress.act(InBackground(partial(self._steps, slow, pods, known, mapper)))
        return [hpa for hpa in due if hpa.key not in self._slow]

    def _steps(
        self,
        hpas: Sequence[HorizontalPodAutoscaler],
        pods: PodIndex,
        scales: Mapping[str, Scale],
        mapper: RESTMapper,
        now: Moment,
    ) -> Steps[None]:
        progress, controller, clock_sets = Progress(now), self._controller, self._clock_sets
        found = yield from reconcile_all(
            hpas,
            controller.kept,
            pods,
            scales=scales,
            now=now,
            options=controller.options,
            selectors=controller.selectors,
            mapper=mapper,
            slow_after=controller.options.sync_period_ns,
            refresh=self._refresh,
        )
        ended = yield from progress.clock()
        self.looked_at = None
        keys = [hpa.key for hpa in hpas]
        self._slow.difference_update({*keys}.difference(found.slow))
        if clock_sets == self._clock_sets:
            controller.done_all(found, ended=ended)
            for key in found.gone:
                controller.left_alone(key, now=ended)
        else:  # what it would remember is of another time
            for key in keys:
                controller.left_alone(key, now=ended)
        for key, problem in found.problems.items():
            _log.error(CANNOT_BE_RECONCILED, key, problem)
