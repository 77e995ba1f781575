"""The lease by which the VPA's admission controller says that it lives (upstream: ``pkg/utils/status``).

A state machine without I/O: :func:`renew_steps` yields what to ask the API server and is sent its answers;
:func:`is_valid` is what the updater asks of the lease. Times are nanoseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import msgspec

__all__ = [
    "CreateLease",
    "GetLease",
    "LeaseAnswer",
    "LeaseRequest",
    "Pause",
    "StatusLease",
    "UpdateLease",
    "is_valid",
    "renew_steps",
]

NAME: Final = "vpa-admission-controller"
_TRIES: Final = 3
_FIRST_PAUSE: Final = 100 * 10**6
_PAUSE_GROWTH: Final = 3
_TRANSIENT: Final = frozenset({"InternalError", "Timeout", "ServerTimeout", "TooManyRequests", "Connection"})


class StatusLease(msgspec.Struct, kw_only=True, frozen=True):
    """``coordination.k8s.io/v1`` Lease, as far as it is used here."""

    name: str = NAME
    namespace: str = "kube-system"
    created: int | None = None
    renewed: int | None = None
    holder: str = ""


class GetLease(msgspec.Struct, frozen=True, tag=True):
    """Read the lease."""

    namespace: str
    name: str


class CreateLease(msgspec.Struct, frozen=True, tag=True):
    """Create the lease; it has no time of renewal yet."""

    lease: StatusLease


class UpdateLease(msgspec.Struct, frozen=True, tag=True):
    """Write the lease back."""

    lease: StatusLease


class Pause(msgspec.Struct, frozen=True, tag=True):
    """Wait this long (nanoseconds), then try again."""

    duration: int


LeaseRequest = GetLease | CreateLease | UpdateLease | Pause


class LeaseAnswer(msgspec.Struct, frozen=True):
    """What came back: a lease, or the reason of a refusal (``NotFound``, ``Conflict``, ``AlreadyExists``, ...).

    ``Connection`` stands for a connection that broke or timed out; ``retry_after`` for an answer that says so.
    """

    lease: StatusLease | None = None
    reason: str = ""
    message: str = ""
    retry_after: bool = False
    now: int = 0
    """The moment of the answer."""

    @property
    def is_transient(self) -> bool:
        """Whether another try may help."""
        return self.retry_after or self.reason in _TRANSIENT


def is_valid(lease: StatusLease, now: int, timeout: int = 60 * 10**9) -> bool:
    """Whether the lease was made or renewed less than ``timeout`` ago."""
    return any(moment is not None and moment + timeout > now for moment in (lease.created, lease.renewed))


def renew_steps(
    holder: str, *, name: str = NAME, namespace: str = "kube-system"
) -> Generator[LeaseRequest, LeaseAnswer, str]:
    """Renew the lease, or create it; an empty text, or why it did not work after three tries."""
    pause = _FIRST_PAUSE
    for last in (False,) * (_TRIES - 1) + (True,):
        answer = yield from _try(holder, name, namespace)
        if not answer.reason:
            return ""
        if last or not answer.is_transient:
            break
        yield Pause(pause)
        pause *= _PAUSE_GROWTH
    return answer.message or answer.reason


def _try(holder: str, name: str, namespace: str) -> Generator[LeaseRequest, LeaseAnswer, LeaseAnswer]:
    answer = yield GetLease(namespace, name)
    if answer.reason == "NotFound":
        made = yield CreateLease(StatusLease(name=name, namespace=namespace, holder=holder))
        return LeaseAnswer() if made.reason == "AlreadyExists" else made
    if answer.reason or answer.lease is None:
        return answer if answer.reason else LeaseAnswer(reason="NotFound", message="the answer holds no lease")
    renewed = msgspec.structs.replace(answer.lease, renewed=answer.now, holder=holder)
    written = yield UpdateLease(renewed)
    return LeaseAnswer() if written.reason == "Conflict" else written
