"""The lease that shows that the admission controller is alive: renewed by it, checked by the updater (upstream:
``pkg/utils/status``).

The admission controller renews it (:func:`renew_status_steps`); the updater looks at it before it acts
(:func:`check_status_steps`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from kscale.effects import (
    SECOND,
    ApiError,
    Create,
    Get,
    Moment,
    Outcome,
    Patch,
    Progress,
    StepsOf,
    Wait,
    Within,
    from_text,
    moment,
)
from kscale.objects.api.coordination import Lease, LeaseSpec
from kscale.objects.api.meta import ObjectMeta
from kscale.objects.times import micro_time

__all__ = ["STATUS_LEASE_NAME", "STATUS_LEASE_NAMESPACE", "check_status_steps", "is_status_valid", "renew_status_steps"]

STATUS_LEASE_NAME: Final = "vpa-admission-controller"
STATUS_LEASE_NAMESPACE: Final = "kube-system"
_API_VERSION: Final = "coordination.k8s.io/v1"
_MAX_TRIES: Final = 3
_FIRST_PAUSE: Final = SECOND // 10
_PAUSE_GROWTH: Final = 3
_TRANSIENT_REASONS: Final = frozenset({"InternalError", "Timeout", "ServerTimeout", "TooManyRequests"})
_TIMEOUT_ERROR: Final = ApiError("timed out waiting for the condition")

_A = TypeVar("_A", Get, Get | Create | Patch)


def is_status_valid(lease: Lease, now: datetime | Moment, timeout: int) -> bool:
    """Whether the lease was made or renewed less than ``timeout`` nanoseconds ago.

    Raises ValueError for a time in the lease that is none.
    """
    now = moment(now)
    made, renewed = from_text(lease.metadata.creation_timestamp), lease.spec.renew_time
    return made + timeout > now or (renewed is not None and from_text(renewed) + timeout > now)


def check_status_steps(
    progress: Progress, *, name: str, namespace: str, timeout: int
) -> StepsOf[Get | Wait, bool | ApiError]:
    """Reads the lease (``IsStatusValid``): whether it is valid, or why it could not be read, after three tries."""

    def read() -> StepsOf[Get, Outcome]:
        return (yield from progress.act(_build_get(name, namespace)))

    found = yield from _retry_steps(progress, read)
    if found.error is not None:
        return found.error
    lease: Lease = found.value
    return is_status_valid(lease, progress.now, timeout)


def renew_status_steps(
    holder: str,
    *,
    now: Moment,
    interval: int = 10 * SECOND,
    name: str = STATUS_LEASE_NAME,
    namespace: str = STATUS_LEASE_NAMESPACE,
) -> StepsOf[Within, ApiError | None]:
    """Renews the lease, or creates it (``UpdateStatus``); why that did not work, after three tries.

    ``holder``: this host's name; ``interval``: nanoseconds between two renewals, which is also the time that each may
    take (:class:`~kscale.effects.Within`; inside it are ``Get``, ``Create``, ``Patch`` and ``Wait``). That another
    replica was faster is no error.
    """

    def machine(begun: Moment) -> StepsOf[Get | Create | Patch | Wait, ApiError | None]:
        progress = Progress(begun)

        def renew() -> StepsOf[Get | Create | Patch, Outcome]:
            return (yield from _renew_steps(progress, holder, name, namespace, interval))

        return (yield from _retry_steps(progress, renew)).error

    error: ApiError | None = yield from Progress(moment(now)).within(interval, machine)
    return error


def _renew_steps(
    progress: Progress, holder: str, name: str, namespace: str, interval: int
) -> StepsOf[Get | Create | Patch, Outcome]:
    read = yield from progress.act(_build_get(name, namespace))
    if read.error is not None and read.error.is_not_found:
        made = yield from progress.act(Create(_build_lease(holder, name, namespace, interval)))
        return _ignore_error_if(made, made.error is not None and made.error.is_already_exists)
    if read.error is not None:
        return read
    spec = {"renewTime": micro_time(progress.now), "holderIdentity": holder}
    written = yield from progress.act(
        Patch(
            kind="Lease",
            api_version=_API_VERSION,
            name=name,
            namespace=namespace,
            patch={"spec": spec},
            resource_version=read.value.metadata.resource_version,
        )
    )
    return _ignore_error_if(written, written.error is not None and written.error.is_conflict)


def _build_get(name: str, namespace: str) -> Get:
    return Get(kind="Lease", api_version=_API_VERSION, name=name, namespace=namespace)


def _build_lease(holder: str, name: str, namespace: str, interval: int) -> Lease:
    return Lease(
        api_version=_API_VERSION,
        kind="Lease",
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=LeaseSpec(holder_identity=holder, lease_duration_seconds=interval // SECOND),
    )


def _ignore_error_if(outcome: Outcome, excused: bool) -> Outcome:
    return msgspec.structs.replace(outcome, error=None) if excused else outcome


def _retry_steps(progress: Progress, attempt: Callable[[], StepsOf[_A, Outcome]]) -> StepsOf[_A | Wait, Outcome]:
    """The attempt, again where another try may help, with growing pauses."""
    pause = _FIRST_PAUSE
    for last in (False,) * (_MAX_TRIES - 1) + (True,):
        outcome = yield from attempt()
        if outcome.error is None or not _is_transient(outcome.error):
            return outcome
        if not last:
            cut = yield from progress.wait(pause)
            if cut.error is not None:
                return cut
            pause *= _PAUSE_GROWTH
    return Outcome(at=progress.now, error=_TIMEOUT_ERROR)


def _is_transient(error: ApiError) -> bool:
    """Whether another try may help; an error without code and reason is a connection that broke or timed out."""
    return error.retry_after is not None or error.reason in _TRANSIENT_REASONS or not (error.code or error.reason)
