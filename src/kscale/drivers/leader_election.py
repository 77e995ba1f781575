"""Leader election with a lease (upstream: ``client-go/tools/leaderelection``), and work that only a leader does.

The machines of an elector use the times of their outcomes and no time of the lease, because clocks of candidates may
differ. Run them with a clock that is never set (:class:`kscale.world.clock.SteadyClock`); otherwise a step of the
wall clock looks like an expired lease.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Final, TypeVar

import msgspec

from kscale.drivers.live import Live, Scope
from kscale.effects import (
    SECOND,
    ZERO_TIME,
    ApiError,
    Create,
    Emit,
    Event,
    Get,
    Moment,
    Observation,
    Observe,
    Patch,
    Progress,
    StepsOf,
    Wait,
    Within,
    duration,
)
from kscale.effects.actions import Metric
from kscale.errors import InputError, KscaleError, Problem
from kscale.objects.api.coordination import Lease, LeaseSpec
from kscale.objects.api.core import ObjectReference
from kscale.objects.api.meta import ObjectMeta
from kscale.objects.times import micro_time

__all__ = ["LEADER_METRICS", "LeaderElectionOptions", "LeaderElector", "LostLeadershipError", "lead"]

_log = logging.getLogger(__name__)
_API_VERSION: Final = "coordination.k8s.io/v1"
_JITTER: Final = 1.2
_MASTER_STATUS: Final = "leader_election_master_status"
_SLOWPATH: Final = "leader_election_slowpath_total"

_NAMED: Final = "'name' is the string used to identify the lease. Please make sure to group by name."
LEADER_METRICS: Final = (
    Metric(
        _MASTER_STATUS,
        "gauge",
        ("name",),
        help="[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, "
        f"1 indicates master. {_NAMED}",
    ),
    Metric(
        _SLOWPATH,
        "counter",
        ("name",),
        help=f"[ALPHA] Total number of slow path exercised in renewing leader leases. {_NAMED}",
    ),
)

_Action = Get | Create | Patch | Emit | Observe


class LeaderElectionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a candidate, named like upstream's flags (``--leader-elect-lease-duration``, ...).

    ``identity`` is the holder in the lease (upstream: the host's name). :meth:`problems` reports invalid options.
    """

    identity: str
    resource_name: str
    resource_namespace: str
    lease_duration: timedelta = timedelta(seconds=15)
    renew_deadline: timedelta = timedelta(seconds=10)
    retry_period: timedelta = timedelta(seconds=2)

    def problems(self) -> list[Problem]:
        """Return a list with the first problem, in upstream's words; empty if the options are valid."""
        lease, renew, retry = map(duration, (self.lease_duration, self.renew_deadline, self.retry_period))
        for wrong, field, text in (
            (lease <= renew, "lease_duration", "leaseDuration must be greater than renewDeadline"),
            (
                renew <= int(_JITTER * retry),
                "renew_deadline",
                "renewDeadline must be greater than retryPeriod*JitterFactor",
            ),
            (lease < 1, "lease_duration", "leaseDuration must be greater than zero"),
            (renew < 1, "renew_deadline", "renewDeadline must be greater than zero"),
            (retry < 1, "retry_period", "retryPeriod must be greater than zero"),
            (not self.identity, "identity", "Lock identity is empty"),
        ):
            if wrong:
                return [Problem(text, field=field)]
        return []


class LeaderElector:
    """One candidate of a leader election.

    Run :meth:`acquire`. When it returns True, start to lead and run :meth:`renew`; when :meth:`renew` ends, stop
    leading. Single owner. State changes of the lease, and each failed attempt, are logged as client-go does. Raises
    :class:`~kscale.InputError` for options that upstream rejects.
    """

    __slots__ = (
        "_lease",
        "_lease_seconds",
        "_lock",
        "_observed_at",
        "_raw",
        "_renewing",
        "_reported",
        "observed",
        "options",
    )

    def __init__(self, options: LeaderElectionOptions) -> None:
        problems = options.problems()
        if problems:
            raise InputError(problems)
        self.options = options
        self.observed = LeaseSpec()
        """Spec of the lease as it was last written or read."""
        self._observed_at: Moment = ZERO_TIME
        self._raw: LeaseSpec | None = None  # the last version that was read, to detect changes
        self._lease: Lease | None = None
        self._renewing = LeaseSpec()  # what the last renewal writes
        self._lease_seconds = duration(options.lease_duration) // SECOND
        self._lock = {"lock": f"{options.resource_namespace}/{options.resource_name}"}
        self._reported = ""

    @property
    def leader(self) -> str:
        """Return the observed leader; empty if there is none."""
        return self.observed.holder_identity or ""

    @property
    def lease(self) -> Get:
        """Return the request that reads the lease."""
        options = self.options
        return Get(
            kind="Lease", api_version=_API_VERSION, name=options.resource_name, namespace=options.resource_namespace
        )

    @property
    def leads(self) -> bool:
        """Return whether this candidate leads."""
        return self.leader == self.options.identity

    def check(self, now: Moment, *, tolerance: timedelta = timedelta(seconds=20)) -> str:
        """Return why this candidate is unhealthy (``HealthzAdaptor``); empty if it is healthy.

        It is unhealthy if it leads and has not renewed the lease until ``tolerance`` after the lease expired.
        """
        late = now - self._observed_at > duration(self.options.lease_duration) + duration(tolerance)
        if self.leads and late:
            return f"failed election to renew leadership on lease {self.options.resource_name}"
        return ""

    # -- machines ----------------------------------------------------------------------------------------------------

    def acquire(self, now: Moment) -> StepsOf[_Action | Wait, bool]:
        """Try to acquire the lease until this candidate leads, and return True.

        Returns False if a wait is cut short.
        """
        progress = Progress(now)
        yield from self._report(progress, leads=False)
        _log.info("Attempting to acquire leader lease...", extra=self._lock)
        while not (yield from self._try(progress)):
            _log.debug("Failed to acquire lease", extra=self._lock)
            if (yield from progress.wait(duration(self.options.retry_period), jitter=_JITTER)).error is not None:
                return False
        yield from self._emit_event(progress, "became leader")
        yield from self._report(progress, leads=True)
        _log.info("Successfully acquired lease", extra=self._lock)
        return True

    def renew(
        self, now: Moment, *, failed: Moment | None = None, once: bool = False
    ) -> StepsOf[_Action | Wait | Within, bool]:
        """Renew the lease every ``retry_period``. Returns False, after reporting the end of leadership, on failure.

        It fails if a renewal has not succeeded within ``renew_deadline``, or if a wait is cut short. ``failed``: begin
        of a renewal that has failed (:meth:`finish_renewal`), which is continued first. ``once``: return True after one
        renewal and the wait for the next one.
        """
        progress, limit = Progress(now), duration(self.options.renew_deadline)
        left = limit if failed is None else limit - (now - failed)
        while renewed := (yield from progress.within(left, partial(self._round, failed=failed))):
            left, failed = limit, None
            if (yield from progress.wait(duration(self.options.retry_period))).error is not None:
                break
            if once:
                return True
        if not renewed:
            _log.info("Failed to renew lease", extra=self._lock)
        yield from self.stop_leading(progress.now)
        return False

    def stop_leading(self, now: Moment) -> StepsOf[_Action, None]:
        """Report, with the gauge and an event, that this candidate does not lead any more."""
        progress = Progress(now)
        yield from self._report(progress, leads=False)
        yield from self._emit_event(progress, "stopped leading")

    def build_renewal(self, now: Moment) -> bytes | None:
        """Build the merge patch (JSON) that renews the lease without reading the lease first.

        Returns None if :meth:`renew` must renew the lease: this candidate does not lead, or the lease has expired, so
        that another candidate may have written it. Pass the outcome of the patch to :meth:`finish_renewal`.
        """
        lease = self._lease
        if lease is None or not (self.leads and self._is_valid(now)):
            return None
        self._renewing = self._keep_acquire_time(self._own_spec(now), self.observed)
        return _PATCH.encode(
            {
                "spec": _build_patch(lease, self._renewing),
                "metadata": {"resourceVersion": lease.metadata.resource_version},
            }
        )

    def finish_renewal(self, result: str | ApiError, at: Moment) -> bool:
        """Record the outcome of a renewal: the new resource version, or an error. Returns whether it succeeded.

        After an error, :meth:`renew` must continue the renewal.
        """
        lease = self._lease
        assert lease is not None
        if isinstance(result, ApiError):
            self._log_fallback(result)
            return False
        self._written(msgspec.structs.replace(lease, spec=self._renewing), result, at)
        return True

    def release(self, now: Moment) -> StepsOf[_Action | Within, bool]:
        """Release the lease, if this candidate holds it, so that the next leader need not wait.

        Returns False if that fails; conflicts are retried for ``renew_deadline``. Call it only after the leader's work
        has ended.
        """
        given_up: bool = yield from Progress(now).within(duration(self.options.renew_deadline), self._release)
        return given_up

    def _round(self, now: Moment, *, failed: Moment | None = None) -> StepsOf[_Action | Wait, bool]:
        """Try at every tick of the retry period until the lease is renewed (True) or a wait is cut short (False).

        If several ticks pass during a try, only one more try follows at once. ``failed``: as for :meth:`renew`.
        """
        progress, period, ticks = Progress(now), duration(self.options.retry_period), 0
        begun = now if failed is None else failed
        while not (yield from self._try(progress, failed=failed)):
            failed = None
            passed = (progress.now - begun) // period
            if passed > ticks:
                ticks = passed
                pause = 0
            else:
                ticks += 1
                pause = begun + ticks * period - progress.now
            if (yield from progress.wait(pause)).error is not None:
                return False
        return True

    def _try(self, progress: Progress, *, failed: Moment | None = None) -> StepsOf[_Action, bool]:
        """Try once, and log a change of the leader. Returns whether this candidate leads.

        ``failed``: as for :meth:`renew`.
        """
        succeeded = yield from self.try_acquire_or_renew(progress, failed=failed)
        if self.leader != self._reported:
            self._reported = self.leader
            _log.info("New leader elected", extra={**self._lock, "leader": self.leader})
        return succeeded

    def try_acquire_or_renew(self, progress: Progress, *, failed: Moment | None = None) -> StepsOf[_Action, bool]:
        """Try once to acquire or renew the lease (``tryAcquireOrRenew``); return whether this candidate holds it now.

        ``failed``: None for a new try. Otherwise the try began at ``failed`` with a write without a read, which failed;
        the lease is read first then.
        """
        now = progress.now if failed is None else failed
        new_spec = self._own_spec(now)
        if (
            failed is None and self.leads and self._is_valid(now)
        ):  # no other candidate can have written, so skip the read
            spec = self._keep_acquire_time(new_spec, self.observed)
            refused = yield from self._update(progress, spec)
            if refused is None:
                return True
            self._log_fallback(refused)
        response = yield from progress.act(self.lease)
        if response.error is not None:
            if response.error.is_not_found:
                return (yield from self._create(progress, new_spec))
            self._log_error("Error retrieving lease lock", response.error)
            return False
        lease: Lease = response.value
        self._lease, old = lease, lease.spec
        if old != self._raw:
            self._record_observed(old, progress.now)
            self._raw = old
        if old.holder_identity and self._is_valid(now) and not self.leads:
            _log.debug("Lease is held by and has not yet expired", extra={**self._lock, "holder": old.holder_identity})
            return False
        if self.leads:
            new_spec = self._keep_acquire_time(new_spec, old)
            yield from progress.observe(Observation(name=_SLOWPATH, labels={"name": self.options.resource_name}))
        else:
            new_spec.lease_transitions = (old.lease_transitions or 0) + 1
        refused = yield from self._update(progress, new_spec)
        if refused is not None:
            self._log_error("Failed to update lease", refused)
        return refused is None

    def _release(self, now: Moment) -> StepsOf[_Action, bool]:
        """Release the lease, and retry after conflicts.

        Returns True if it is released, or if this process does not hold it; False if a request fails for another
        reason.
        """
        progress = Progress(now)
        while True:
            current = yield from progress.act(self.lease)
            if current.error is not None:
                self._log_error("error retrieving resource lock", current.error)
                return False
            self._lease = current.value
            if not self.leads:
                return True
            at = micro_time(progress.now)
            spec = LeaseSpec(
                holder_identity="",
                lease_duration_seconds=1,
                acquire_time=at,
                renew_time=at,
                lease_transitions=current.value.spec.lease_transitions or 0,
            )
            refused = yield from self._update(progress, spec)
            if refused is None:
                return True
            if not refused.is_conflict:
                self._log_error("Failed to release lease", refused)
                return False

    # -- the lease ---------------------------------------------------------------------------------------------------

    def _own_spec(self, now: Moment) -> LeaseSpec:
        """Build the spec of a lease that this candidate acquires at ``now``."""
        at = micro_time(now)
        return LeaseSpec(
            holder_identity=self.options.identity,
            lease_duration_seconds=self._lease_seconds,
            acquire_time=at,
            renew_time=at,
            lease_transitions=0,
        )

    def _keep_acquire_time(self, new_spec: LeaseSpec, old: LeaseSpec) -> LeaseSpec:
        """Return the renewed spec with the acquire time and transitions of the old one."""
        unchanged = {"acquire_time": old.acquire_time, "lease_transitions": old.lease_transitions or 0}
        return msgspec.structs.replace(new_spec, **unchanged)

    def _is_valid(self, now: Moment) -> bool:
        """Check whether the observed lease has not expired, counted from when it was observed."""
        return self._observed_at + (self.observed.lease_duration_seconds or 0) * SECOND > now

    def _record_observed(self, spec: LeaseSpec, at: Moment) -> None:
        """Set the observed spec of the lease, and when it was observed."""
        self.observed, self._observed_at = spec, at

    def _create(self, progress: Progress, spec: LeaseSpec) -> StepsOf[Create, bool]:
        """Create the lease, and return whether that succeeded."""
        metadata = ObjectMeta(name=self.options.resource_name, namespace=self.options.resource_namespace)
        lease = Lease(api_version=_API_VERSION, kind="Lease", metadata=metadata, spec=spec)
        creation = yield from progress.act(Create(lease))
        if creation.error is not None:
            self._log_error("Error initially creating lease lock", creation.error)
            return False
        self._written(lease, creation.value, progress.now)
        return True

    def _update(self, progress: Progress, spec: LeaseSpec) -> StepsOf[Patch, ApiError | None]:
        """Write the lease, based on its last observed version. Returns the error, or None."""
        lease = self._lease
        if lease is None:
            return ApiError("lease not initialized, call get or create first")
        written = yield from progress.act(
            Patch(
                kind="Lease",
                api_version=_API_VERSION,
                name=lease.name,
                namespace=lease.namespace,
                patch={"spec": _build_patch(lease, spec)},
                resource_version=lease.metadata.resource_version,
            )
        )
        if written.error is not None:
            return written.error
        self._written(msgspec.structs.replace(lease, spec=spec), written.value, progress.now)
        return None

    def _written(self, lease: Lease, version: str | None, at: Moment) -> None:
        """Record a lease that was written at the time ``at`` with this resource version (None: unknown)."""
        # Without its version the lease must be read again: no write of it is ever without one.
        metadata = msgspec.structs.replace(lease.metadata, resource_version=version or "")
        self._lease = msgspec.structs.replace(lease, metadata=metadata) if version else None
        self._record_observed(lease.spec, at)

    # -- reports -----------------------------------------------------------------------------------------------------

    def _log_error(self, text: str, error: ApiError) -> None:
        """Log ``text`` as an error, with the lease's name and the API's error message as fields."""
        _log.error(text, extra={**self._lock, "err": error.message})

    def _log_fallback(self, error: ApiError) -> None:
        """Log that the lease could not be written without reading it first."""
        text = "Failed to update lease optimistically, falling back to slow path"
        _log.debug(text, extra={**self._lock, "err": error.message})

    def _emit_event(self, progress: Progress, what: str) -> StepsOf[Emit, None]:
        """Emit an event about the lease, with the message ``IDENTITY WHAT`` (such as ``host became leader``)."""
        regarding = ObjectReference(
            api_version=_API_VERSION,
            kind="Lease",
            namespace=self.options.resource_namespace,
            name=self.options.resource_name,
            uid="" if self._lease is None else self._lease.metadata.uid,
        )
        message = f"{self.options.identity} {what}"
        yield from progress.emit(Event(regarding=regarding, type="Normal", reason="LeaderElection", message=message))

    def _report(self, progress: Progress, *, leads: bool) -> StepsOf[Observe, None]:
        """Observe the gauge that says whether this candidate leads."""
        labels = {"name": self.options.resource_name}
        yield from progress.observe(Observation(name=_MASTER_STATUS, value=float(leads), labels=labels))


_PATCH: Final = msgspec.json.Encoder()


def _build_patch(lease: Lease, spec: LeaseSpec) -> dict[str, str | int | None]:
    """Return the merge patch from ``lease`` to ``spec``, by JSON name of the field; None removes a field."""
    patch: dict[str, str | int | None] = {
        "holderIdentity": spec.holder_identity,
        "leaseDurationSeconds": spec.lease_duration_seconds,
        "acquireTime": spec.acquire_time,
        "renewTime": spec.renew_time,
        "leaseTransitions": spec.lease_transitions,
    }
    if lease.spec.strategy is not None or lease.spec.preferred_holder is not None:
        patch |= {"strategy": None, "preferredHolder": None}  # fields of coordinated leader election
    return patch


class LostLeadershipError(KscaleError, RuntimeError):
    """Another process may lead now: this one must not act."""


_T = TypeVar("_T")


async def lead(
    elector: LeaderElector,
    live: Live,
    work: Callable[[], Awaitable[_T]],
    *,
    lost: Callable[[], None] = lambda: None,
    release: bool = False,
    send: Callable[[bytes], Awaitable[str | ApiError]] | None = None,
) -> _T | None:
    """Run ``work`` while this process is the leader, and return its result.

    Parameters
    ----------
    elector : LeaderElector
        Acquires, renews and releases the lease.
    live : Live
        Runs the elector. Its clock must be unaffected by changes of the system time.
    work : callable
        Starts the work; called after the lease is acquired.
    lost : callable
        Called as soon as the lease is lost, before the work is cancelled.
    release : bool
        Release the lease after the work has ended. An :class:`~kscale.InputError` of the work always releases the
        lease, as the process that reports it starts anew.
    send : callable
        Sends a merge patch (JSON) of the lease, and returns the new resource version or the error. The usual renewals
        are sent with it. Default: all requests are actions, which take more time.

    Returns
    -------
    object or None
        The result of the work; None if ``live.scope`` ended before this process became the leader.

    Raises
    ------
    LostLeadershipError
        If the lease is lost. The work is cancelled by then.
    Exception
        What the work or the renewal of the lease raises.
    """
    if not await live.run(elector.acquire):
        return None
    renewal = live.scope.within()
    renewing = asyncio.create_task(_renew(elector, live, renewal, send))
    working = asyncio.ensure_future(work())
    try:
        await asyncio.wait([working, renewing], return_when=asyncio.FIRST_COMPLETED)
        if not working.done() and live.scope.error is None:
            lost()
            renewing.result()
            raise LostLeadershipError("lost master")
        return await working
    except InputError:
        release = True
        raise
    finally:
        renewal.cancel()
        working.cancel()
        await asyncio.wait([working, renewing])
        for task in (working, renewing):
            if not task.cancelled():
                task.exception()  # retrieve it; the first exception is already being raised
        live.scope.leave(renewal)
        if release:
            await live.run(elector.release, Scope())


async def _renew(
    elector: LeaderElector, live: Live, scope: Scope, send: Callable[[bytes], Awaitable[str | ApiError]] | None
) -> None:
    """Renew the lease until that has failed for ``renew_deadline`` or the scope ends; report the end of leadership.

    ``send``: sends the patch of a usual renewal and returns the new resource version or an error; None: every renewal
    is done by the elector's step machine, which also takes over after an error.
    """
    deadline, period = (each.total_seconds() for each in (elector.options.renew_deadline, elector.options.retry_period))
    while True:
        begun = live.now()
        failed: Moment | None = None
        if send is not None and (patch := elector.build_renewal(begun)) is not None:
            part = scope.within(deadline)
            try:
                result = await part.limit(send(patch))
            finally:
                scope.leave(part)
            if elector.finish_renewal(result, live.now()):
                if await scope.sleep(period) is None:
                    continue
                await live.run(elector.stop_leading, scope)
                return
            failed = begun
        if not await live.run(partial(elector.renew, failed=failed, once=send is not None), scope):
            return
