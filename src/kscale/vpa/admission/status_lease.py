"""The lease that shows that the admission controller is alive (upstream: ``pkg/utils/status``).

The admission controller renews it (:func:`renew_status_steps`); the updater checks it before it acts
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
    moment,
)
from kscale.objects.api.coordination import Lease, LeaseSpec
from kscale.objects.api.meta import ObjectMeta
from kscale.objects.times import micro_time, moment_in

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
    """Check whether the lease was created or renewed less than ``timeout`` nanoseconds ago.

    Raises InputError, which names the lease and the field, for an invalid time.
    """
    now = moment(now)
    created = moment_in(lease, lease.metadata.creation_timestamp, "metadata.creationTimestamp")
    renewed = lease.spec.renew_time
    return created + timeout > now or (
        renewed is not None and moment_in(lease, renewed, "spec.renewTime") + timeout > now
    )


def check_status_steps(
    progress: Progress, *, name: str, namespace: str, timeout: int
) -> StepsOf[Get | Wait, bool | ApiError]:
    """Read the lease and check its validity (``IsStatusValid``), with up to three attempts.

    Returns whether it is valid, or the error if it could not be read. ``timeout``: nanoseconds after its creation and
    its last renewal at which the lease is invalid. Raises InputError for an invalid time in the lease.
    """

    def read() -> StepsOf[Get, Outcome]:
        return (yield from progress.act(_build_get(name, namespace)))

    response = yield from _retry_steps(progress, read)
    if response.error is not None:
        return response.error
    lease: Lease = response.value
    return is_status_valid(lease, progress.now, timeout)


def renew_status_steps(
    holder: str,
    *,
    now: Moment,
    interval: int = 10 * SECOND,
    name: str = STATUS_LEASE_NAME,
    namespace: str = STATUS_LEASE_NAMESPACE,
) -> StepsOf[Within, ApiError | None]:
    """Update the lease, or create it (``UpdateStatus``), with up to three attempts. Returns the error, or None.

    ``holder``: this host's name. ``interval``: nanoseconds between two renewals, and the time limit of each renewal
    (:class:`~kscale.effects.Within` around ``Get``, ``Create``, ``Patch`` and ``Wait``). A concurrent update by another
    replica is no error.
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
    """Renew the lease, or create it, and return the outcome of the last request.

    ``holder``: this host's name. ``interval``: nanoseconds, the duration of a new lease. The outcome has no error if
    another replica was faster.
    """
    read = yield from progress.act(_build_get(name, namespace))
    if read.error is not None and read.error.is_not_found:
        creation = yield from progress.act(Create(_build_lease(holder, name, namespace, interval)))
        return _ignore_error_if(creation, creation.error is not None and creation.error.is_already_exists)
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
    """Build the request for a lease."""
    return Get(kind="Lease", api_version=_API_VERSION, name=name, namespace=namespace)


def _build_lease(holder: str, name: str, namespace: str, interval: int) -> Lease:
    """Build the lease. ``holder``: this host's name. ``interval``: nanoseconds, the lease's duration."""
    return Lease(
        api_version=_API_VERSION,
        kind="Lease",
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=LeaseSpec(holder_identity=holder, lease_duration_seconds=interval // SECOND),
    )


def _ignore_error_if(outcome: Outcome, excused: bool) -> Outcome:
    """Return the outcome, without its error if ``excused``."""
    return msgspec.structs.replace(outcome, error=None) if excused else outcome


def _retry_steps(progress: Progress, attempt: Callable[[], StepsOf[_A, Outcome]]) -> StepsOf[_A | Wait, Outcome]:
    """Run the attempt up to three times, with growing pauses, while its error is transient.

    Returns the first outcome that is a success or a permanent error. After three transient errors, returns an outcome
    with a timeout error. If a time limit of the caller ends a pause, returns an outcome with the limit's error.
    """
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
    """Check whether a retry may help.

    An error without code and reason is a broken or timed-out connection, which is transient.
    """
    return error.retry_after is not None or error.reason in _TRANSIENT_REASONS or not (error.code or error.reason)
