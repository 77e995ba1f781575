"""What nodes get for the images that they have (upstream: ``plugins/imagelocality``, image states of its cache)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kscale.objects.core import Pod
from kscale.snapshot.snapshot import Snapshot

__all__ = ["PulledImages"]

_MIB: Final = 1 << 20
_LEAST: Final = 23 * _MIB
_MOST_OF_AN_IMAGE: Final = 1000 * _MIB
_MOST_SCORE: Final = 100


class PulledImages:
    """Which nodes of a snapshot have which images. Kept with it.

    Of an image that nodes tell different sizes of, that of the first in list order counts (upstream: of the node that
    came first).
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._count = len(snapshot.columns)
        self._size: dict[str, int] = {}
        self._nodes: dict[str, set[int]] = {}
        for i, node in enumerate(snapshot.columns.objects):
            for image in node.status.images:
                for name in image.names:
                    self._size.setdefault(name, image.size_bytes)
                    self._nodes.setdefault(name, set()).add(i)

    def of(self, pod: Pod) -> tuple[str, ...]:
        """The images that a pod runs and mounts, sorted, one that comes twice twice; none where no node has any."""
        if not self._size:
            return ()
        spec = pod.spec
        names = [container.image for container in (*spec.init_containers, *spec.containers)]
        names += [str(volume.image.get("reference") or "") for volume in spec.volumes if volume.image is not None]
        found = sorted(map(_normalized, names))
        return tuple(found) if any(name in self._size for name in found) else ()

    def scores(self, names: Sequence[str]) -> NDArray[np.int64]:
        """What each node gets for those that it has of these images: int64[nodes], 0 to 100.

        An image counts by its size, less the fewer nodes have it: else all pods would go where the first one was.
        """
        sums = [0] * self._count
        for name in names:
            nodes = self._nodes.get(name, set())
            scaled = int(self._size.get(name, 0) * (len(nodes) / self._count))
            for node in nodes:
                sums[node] += scaled
        most = _MOST_OF_AN_IMAGE * len(names)
        return np.array(
            [_MOST_SCORE * (min(max(each, _LEAST), most) - _LEAST) // (most - _LEAST) for each in sums], dtype=np.int64
        )


def _normalized(name: str) -> str:
    """The name with its tag, as nodes have it."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"
