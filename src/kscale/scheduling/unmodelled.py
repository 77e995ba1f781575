"""What pods use that no rule here looks at: listed in every result, never dropped silently."""

from __future__ import annotations

from collections.abc import Iterable

from kscale.snapshot.interner import PodClass
from kscale.snapshot.snapshot import Snapshot

__all__ = ["unmodelled_of"]


def unmodelled_of(classes: Iterable[PodClass], snapshot: Snapshot) -> list[str]:
    """Short texts, each once, in order of appearance."""
    found: dict[str, None] = {}
    for pod in classes:
        if pod.claims and snapshot.dra:
            found["resource claims (dynamic resource allocation)"] = None
    return list(found)
