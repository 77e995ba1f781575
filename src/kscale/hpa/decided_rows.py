"""HPAs of which columns said all in a batch: of one that is as that batch left it, of which they say the same again,
nothing new can come. kscale's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from kscale.effects import Observation
from kscale.hpa.behavior import Normalized
from kscale.hpa.scale_target import TargetScale
from kscale.objects.autoscaling import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus

__all__ = ["DecidedRow", "is_as_left"]


class DecidedRow(NamedTuple):
    """What one HPA whose size stays was decided from, and what came of it.

    ``hpa``, ``target``; ``replicas``: what the calculator says of each metric (size, utilization, usage);
    ``normalized``: what became of the proposal; ``written``: the status that was written, None: none had to be;
    ``observations``: what is counted where nothing is written.
    """

    hpa: HorizontalPodAutoscaler
    target: TargetScale
    replicas: Sequence[tuple[int, int, int]]
    normalized: Normalized
    written: HorizontalPodAutoscalerStatus | None
    observations: Sequence[Observation]

    def again(
        self,
        hpa: HorizontalPodAutoscaler,
        target: TargetScale,
        replicas: Sequence[tuple[int, int, int]],
        normalized: Normalized,
    ) -> DecidedRow | None:
        """What comes of this now, if the same is decided as before, so that nothing has to be written; None: more may
        come of it.

        What is decided follows from these four. Of a status that already says it no condition changes; what is counted
        goes by the size that the status said before (``_labels`` of metrics)."""
        if target.scale is not self.target.scale or target.resource != self.target.resource:
            return None
        if replicas != self.replicas or normalized != self.normalized:
            return None
        if self.written is None:
            return self if hpa is self.hpa else None
        if hpa.status.current_replicas != self.hpa.status.current_replicas:
            return None
        if not is_as_left(hpa, self.hpa, self.written):
            return None
        return self._replace(hpa=hpa, written=None)


def is_as_left(
    hpa: HorizontalPodAutoscaler, before: HorizontalPodAutoscaler, written: HorizontalPodAutoscalerStatus
) -> bool:
    """Whether an HPA is what it was before, but for the status that was written of it."""
    if hpa.spec is not before.spec or (hpa.status is not written and hpa.status != written):
        return False
    metadata = msgspec.structs.replace(before.metadata, resource_version=hpa.metadata.resource_version)
    return metadata == hpa.metadata
