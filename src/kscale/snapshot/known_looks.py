"""Classes of pods that are made of the very same parts, without looking into the parts again."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

from kscale.objects.conditions import resize_infeasible
from kscale.objects.core import Pod, PodSpec
from kscale.objects.owners import controller_of
from kscale.snapshot.interner import Interner

__all__ = ["KnownLooks"]

_MOST: Final = 1 << 14
_SPEC: Final = attrgetter(*(name for name in PodSpec.__struct_fields__ if name != "node_name"))
_STATUS: Final = attrgetter(
    "container_statuses", "init_container_statuses", "resource_claim_statuses", "allocated_resources", "resources"
)
"""What classes read of a status, besides a refused resize."""


class KnownLooks:
    """The classes that one interner gave to pods that nobody writes to any more. A single owner at a time."""

    def __init__(self, interner: Interner) -> None:
        self.interner = interner
        self._known: dict[tuple[Any, ...], tuple[int, Pod]] = {}

    def class_of(self, pod: Pod, *, placed: bool) -> int:
        """The number of a pod's class, see :meth:`Interner.classify`; ``placed``: or finished, else it has no node."""
        key = _looks(pod, placed)
        known = self._known.get(key)
        if known is not None:
            return known[0]
        found = self.interner.classify(pod, placed=placed, held=True)
        if not (found.pod_name or found.pod_uid):
            if len(self._known) == _MOST:
                self._known.clear()
            self._known[key] = found.index, pod  # which keeps its parts: no other object gets their identity
        return found.index


def _looks(pod: Pod, placed: bool) -> tuple[Any, ...]:
    metadata = pod.metadata
    owner = controller_of(metadata)
    return (
        placed,
        metadata.namespace,
        metadata.deletion_timestamp is not None,
        None if metadata.labels is None else tuple(metadata.labels.items()),
        None if owner is None else (owner.api_version, owner.kind, owner.name),
        resize_infeasible(pod),
        *map(id, _SPEC(pod.spec)),
        *(id(part) if part else None for part in _STATUS(pod.status)),
    )
