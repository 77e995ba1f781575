"""Base of drivers: observe, decide, act. Run them in virtual time or as a dry run.

A driver has no loop, no clock and no client. Its caller reports changes (:meth:`~Driver.notice`), waits until the
driver is due, calls :meth:`~Driver.observe` in the thread of the stores, runs the :meth:`~Driver.steps` in any
thread, and performs their actions. The same driver runs live and in virtual time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

import msgspec

from kscale.effects import (
    LAST_TIME,
    LEGAL_OUTCOMES,
    ZERO_TIME,
    Action,
    Create,
    Delete,
    DeleteNodes,
    Discover,
    Emit,
    Moment,
    Observe,
    Outcome,
    Patch,
    Perform,
    Progress,
    ReadStores,
    Refresh,
    Steps,
    StepsOf,
    VirtualTime,
    Within,
    WriteStatus,
)
from kscale.effects.virtual_time import Running
from kscale.world.protocols import Change, Clock, InputSources, NotifyingStores, PerformLive, Stores, Watch

__all__ = ["Driver", "Repeating", "VirtualDrive", "changes_something", "discover_steps", "format_action", "pretending"]


_Observation = TypeVar("_Observation")


class Driver(Protocol[_Observation]):
    """One program that works in rounds. Single owner; a round begins after the previous one has ended."""

    @property
    def name(self) -> str:
        """Return the program's name in events, leases and user agents (such as ``cluster-autoscaler``)."""
        ...

    @property
    def watches(self) -> Sequence[Watch]:
        """Return the watches that the driver needs."""
        ...

    def notice(self, change: Change, now: Moment) -> None:
        """Handle a change of a watched object (``typed`` watches only).

        Called in the thread of the stores at any time, also while :meth:`steps` runs elsewhere. It must be fast and
        must not touch anything that the steps use.
        """
        ...

    def next_due(self) -> Moment | None:
        """Return when the next round is due; None to wait for the next change.

        Called after each change and each round.
        """
        ...

    def observe(self, stores: Stores, now: Moment) -> _Observation:
        """Return the inputs of the next round, for :meth:`steps`. It must be fast and must not modify the stores."""
        ...

    def steps(self, observation: _Observation, now: Moment) -> Steps[None]:
        """Run the round that begins at ``now``, with the inputs that :meth:`observe` returned.

        Yields actions, and stores the state for the next round in the driver.
        """
        ...


_log = logging.getLogger(__name__)
_LONGEST: Final = 500


def pretending(perform: PerformLive, clock: Clock) -> PerformLive:
    """Wrap ``perform`` for a dry run, which performs only reads, refreshes of the cloud provider and reports.

    Other actions are only logged; their outcomes are successful and have no value.
    """

    async def pretend(action: Action) -> Outcome:
        rule = LEGAL_OUTCOMES[type(action)]
        if rule.reads or not rule.refusable or isinstance(action, Refresh):
            return await perform(action)
        _log.info("dry run: %s", format_action(action))
        return Outcome(at=clock.now())

    return pretend


def format_action(action: Any) -> str:
    """Format an action as one line of at most about 500 characters: its name and its fields as JSON.

    Fields with empty values (also 0 and False) are left out. For deleted nodes, only the names are included.
    """
    fields = {name: getattr(action, name) for name in action.__struct_fields__}
    if isinstance(action, DeleteNodes):
        del fields["objects"]
    text = msgspec.json.encode({name: value for name, value in fields.items() if value}, enc_hook=repr).decode()
    return f"{type(action).__name__} {text if len(text) <= _LONGEST else text[:_LONGEST] + '...'}"


_CHANGING_NOTHING: Final = frozenset({Emit, Observe, Refresh, WriteStatus}).union(
    action for action, rule in LEGAL_OUTCOMES.items() if rule.reads
)
_BOOKKEEPING: Final = frozenset({"ConfigMap", "Lease", "VerticalPodAutoscaler", "VerticalPodAutoscalerCheckpoint"})


def changes_something(action: Action) -> bool:
    """Check whether an action changes the cluster or the cloud.

    Returns False for queries, refreshes of the cloud, reports, and objects that autoscalers write for themselves
    (statuses, leases, checkpoints).
    """
    if type(action) in _CHANGING_NOTHING:
        return False
    if isinstance(action, (Patch, Delete)):
        return action.kind not in _BOOKKEEPING
    return not isinstance(action, Create) or (action.object.kind or type(action.object).__name__) not in _BOOKKEEPING


@runtime_checkable
class Repeating(Protocol):
    """A driver that knows when a round would have the same result as the last one, so that it can be skipped."""

    @property
    def input_sources(self) -> InputSources:
        """Declare which sources, besides the watched objects, can change the result of a round (constant).

        A round may be skipped only while none of these sources has changed.
        """
        ...

    def repeats_until(self) -> Moment:
        """Return until when rounds have the same result as the last one, if the input sources do not change.

        Called after a round that changed nothing. The zero time means that the next round must run.
        """
        ...

    def repeat(self, now: Moment) -> Moment | None:
        """Record a round at ``now`` as a repetition of the last one. Returns when it ends; None if it must run."""
        ...


class VirtualDrive:
    """Runs a driver's rounds in virtual time, as :func:`kscale.drivers.live.drive` does live.

    ``stores`` report None after the changes of each moment: the next round is scheduled then. ``rank`` orders events at
    the same time: lower ranks first. ``perform`` performs the driver's actions. ``inputs``
    returns a value that changes whenever an input of the rounds changes (None: no rounds are skipped). While the value
    is unchanged, rounds of a :class:`Repeating` driver that would repeat the last one are skipped. ``rounds`` counts
    all rounds, ``skipped`` the skipped rounds.
    """

    def __init__(
        self,
        driver: Driver[Any],
        stores: NotifyingStores,
        time: VirtualTime,
        perform: Perform,
        *,
        rank: int = 0,
        inputs: Callable[[], Hashable] | None = None,
    ) -> None:
        self.driver = driver
        self._repeating = driver if isinstance(driver, Repeating) else None  # isinstance with a protocol is slow
        self._stores, self._time, self._rank = stores, time, rank
        self._performs, self._inputs = perform, inputs
        self._mine: Perform = self._perform  # one object, as it identifies this driver's machines
        self.rounds = self.skipped = 0
        self._last_inputs: Hashable = None
        self._until: Moment = ZERO_TIME
        self._acted = False
        self._under_way: Running | None = None
        self._due: tuple[Moment, Running] | None = None
        self._ended = False
        self._begun = False
        self._unsubscribe: Callable[[], None] = stores.subscribe(self._notice)
        self._begun = True
        self._plan()

    def stop(self) -> None:
        """Stop immediately, as when a process is killed: perform and log nothing more."""
        self._ended = True
        self._unsubscribe()
        if self._due is not None:
            self._due[1].cancel()
        self._time.cancel_all(self._mine)

    def _perform(self, action: Action, now: Moment) -> Outcome:
        """Perform an action, and record whether it changes the cluster or the cloud."""
        if type(action) is ReadStores:
            return Outcome(at=now, value=action.read(self._stores))
        if not self._acted:
            self._acted = changes_something(action)
        return self._performs(action, now)

    def _notice(self, change: Change | None) -> None:
        """Pass a change to the driver. None, after all changes of one moment: schedule the driver's next round."""
        if change is not None:
            self.driver.notice(change, self._time.now)
        elif self._under_way is None and self._begun:  # not during a round and the first list
            self._plan()

    def _plan(self) -> None:
        """Schedule the next round for when the driver is due."""
        if self._under_way is not None or self._ended:
            return
        due = self.driver.next_due()
        at = LAST_TIME if due is None else max(due, self._time.now)
        if self._due is not None:
            if self._due[0] == at:
                return
            self._due[1].cancel()
            self._due = None
        if due is not None:
            self._due = at, self._time.at(at, self._start_round, rank=self._rank)

    def _start_round(self) -> None:
        """Run the round that is due, or skip it.

        The round is skipped if all of these hold:

        - The value of ``inputs`` is the same as before the last round that ran.
        - The last round that ran changed nothing, and the driver has said that rounds repeat it until a later time than
          now (:meth:`Repeating.repeats_until`).
        - The driver can record this round as a repetition (:meth:`Repeating.repeat`).
        """
        self._due = None
        now = self._time.now
        self.rounds += 1
        if self._inputs is not None:
            inputs = self._inputs()
            if inputs == self._last_inputs and now < self._until and self._repeat(now):
                return
            self._last_inputs, self._acted = inputs, False
        sight = self.driver.observe(self._stores, now)
        self._under_way = self._time.start(
            lambda at: self.driver.steps(sight, at), self._finish_round, rank=self._rank, perform=self._mine
        )

    def _repeat(self, now: Moment) -> bool:
        """Skip a round if the driver can repeat the last one. Returns False if the round must run."""
        ended = None if self._repeating is None else self._repeating.repeat(now)
        if ended is None:
            return False
        self.skipped += 1
        self._under_way = self._time.at(ended, self._continue, rank=self._rank)
        return True

    def _finish_round(self, result: None, end: Moment) -> None:
        """Handle the end of a round: find out until when later rounds would only repeat it, and schedule the next one.

        Called by :class:`VirtualTime` with the result of the steps (always None) and the current time.
        """
        del result, end
        repeating = None if self._inputs is None or self._acted else self._repeating
        self._until = ZERO_TIME if repeating is None else repeating.repeats_until()
        self._continue()

    def _continue(self) -> None:
        """Schedule the next round after a round has ended or was skipped."""
        self._under_way = None
        self._plan()


def discover_steps(progress: Progress, longest: int) -> StepsOf[Within, Outcome]:
    """Discover the served kinds, and return the outcome of :class:`~kscale.effects.Discover`.

    Its value is the RESTMapper. It is an error if discovery fails or takes longer than ``longest`` nanoseconds.
    """

    def discover(now: Moment) -> StepsOf[Discover, Outcome]:
        return (yield from Progress(now).act(Discover()))

    outcome: Outcome = yield from progress.within(longest, discover)
    return outcome
