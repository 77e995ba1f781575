"""What pods use that no rule here looks at: listed in every result, never dropped silently."""

from __future__ import annotations

from kscale.scheduling.session import Session

__all__ = ["unmodelled_of"]


def unmodelled_of(session: Session) -> list[str]:
    """Short texts, each once, in order of appearance."""
    if not session.ctx.dra or not session.template_claims:
        return []
    return ["resource claims of the pods that come with a new node"]
