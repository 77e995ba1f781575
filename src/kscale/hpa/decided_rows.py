"""HPAs of which columns said all in a batch: of one that is as that batch left it, of which they say the same again,
nothing new can come. kscale's own."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kscale.effects import Observation
from kscale.hpa.behavior import Normalized
from kscale.hpa.decided import Concluded
from kscale.hpa.scale_target import TargetScale
from kscale.objects.autoscaling import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus

__all__ = ["DecidedRow", "is_as_left"]


class DecidedRow(msgspec.Struct, frozen=True, gc=False):
    """What one HPA whose size stays was decided from, and what came of it.

    ``hpa``, ``target``; ``replicas``: what the calculator says of each metric (size, utilization, usage);
    ``normalized``: what became of the proposal; ``written``: the status that was written, None: none had to be;
    ``observations``: what is counted where nothing is written; ``concluded``: what else was said of it.
    """

    hpa: HorizontalPodAutoscaler
    target: TargetScale
    replicas: Sequence[tuple[int, int, int]]
    normalized: Normalized
    written: HorizontalPodAutoscalerStatus | None
    observations: Sequence[Observation]
    concluded: Concluded

    def concludes(
        self,
        hpa: HorizontalPodAutoscaler,
        target: TargetScale,
        replicas: Sequence[tuple[int, int, int]],
        normalized: Normalized,
    ) -> bool:
        """Whether the same is concluded as before, however much was measured: nothing is said of it that the status
        does not say already, but for that.

        What is concluded follows from these four. Of a status that already says it no condition changes; what is
        counted goes by the size that the status said before (``_labels`` of metrics)."""
        if hpa.spec is not self.hpa.spec:
            return False
        if target.scale is not self.target.scale or target.resource != self.target.resource:
            return False
        if normalized != self.normalized:
            return False
        for mine, theirs in zip(self.replicas, replicas, strict=True):
            if mine[0] != theirs[0]:
                return False
        if self.written is None:
            return hpa is self.hpa
        return hpa.status.current_replicas == self.hpa.status.current_replicas and is_as_left(
            hpa, self.hpa, self.written
        )

    def again(self, hpa: HorizontalPodAutoscaler) -> DecidedRow:
        """What comes of an HPA of which the same is concluded, and was measured: nothing has to be written."""
        return self if self.written is None else msgspec.structs.replace(self, hpa=hpa, written=None)


def is_as_left(
    hpa: HorizontalPodAutoscaler, before: HorizontalPodAutoscaler, written: HorizontalPodAutoscalerStatus
) -> bool:
    """Whether an HPA is what it was before, but for the status that was written of it."""
    if hpa.spec is not before.spec or (hpa.status is not written and hpa.status != written):
        return False
    metadata = msgspec.structs.replace(before.metadata, resource_version=hpa.metadata.resource_version)
    return metadata == hpa.metadata
