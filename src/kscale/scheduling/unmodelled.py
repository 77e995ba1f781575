"""What pods use that no rule here looks at: listed in every result, never dropped silently."""

from __future__ import annotations

from kscale.scheduling.devices.claims import ClaimError, wanted
from kscale.scheduling.session import Session

__all__ = ["unmodelled_of"]


def unmodelled_of(session: Session) -> list[str]:
    """Short texts, each once, in order of appearance."""
    ctx = session.ctx
    if not ctx.dra:
        return []
    found: dict[str, None] = {}
    for pod in session.pods:
        if not pod.claims:
            continue
        try:
            claims = wanted(pod, ctx).open
        except ClaimError:
            continue
        if claims and ctx.devices.shareable:
            found["resource claims: devices that several claims may share"] = None
        for request in (request for claim in claims for request in claim.spec.devices.requests):
            if any(each.capacity for each in (request.exactly, *request.first_available) if each is not None):
                found["resource claims: amounts of a device's capacity"] = None
    problems = session.devices.problems if session.devices is not None else []
    return [*found, *(f"resource claims while pods are placed: {problem}" for problem in problems)]
