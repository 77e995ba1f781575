"""Progress of a step machine: it performs one action after another, and each outcome must be legal. Not in upstream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from kscale.effects.actions import (
    Action,
    ApiError,
    Create,
    CreatedGroups,
    CreateGroup,
    DecreaseTargetSize,
    Delete,
    DeleteGroup,
    DeleteNodes,
    Discover,
    Emit,
    Event,
    Evict,
    Get,
    GetMetric,
    GetPrices,
    GetScale,
    GetUnstructured,
    HasInstances,
    InBackground,
    IncreaseSize,
    List,
    Machine,
    Observation,
    Observe,
    Outcome,
    Patch,
    Preview,
    Prices,
    PutScale,
    QueryPrometheus,
    Ranking,
    RankOptions,
    ReadStores,
    Refresh,
    Resize,
    Steps,
    StepsOf,
    Together,
    Wait,
    Within,
    WriteStatus,
)
from kscale.effects.moments import Moment
from kscale.errors import KscaleError
from kscale.objects.api.autoscaling import Scale
from kscale.objects.api.meta import KubeObject
from kscale.objects.api.metrics import ExternalMetricValueList, MetricValue, MetricValueList, PodMetricsList
from kscale.objects.kinds import KINDS, RESTMapper, find_kind
from kscale.objects.nodegroup import Groups, NodeGroup
from kscale.objects.pod_metrics import PodUsage
from kscale.objects.times import virtual_moment

__all__ = [
    "LEGAL_OUTCOMES",
    "IllegalOutcomeError",
    "MissingResponseError",
    "OutcomeRule",
    "Progress",
    "SingleAction",
    "check_outcome",
]

_A = TypeVar("_A", bound=Action)


class IllegalOutcomeError(KscaleError, TypeError):
    """A world returned an illegal outcome: ``outcome`` for ``action``."""

    def __init__(self, action: object, outcome: object, text: str) -> None:
        super().__init__(f"{type(action).__name__}: {text}")
        self.action = action
        self.outcome = outcome


class MissingResponseError(KscaleError, LookupError):
    """A machine requested data from the world, and the dry run has no source for it."""


class OutcomeRule(NamedTuple):
    """Legal outcomes of an action.

    - ``description``: description of the value. ``fits(action, value)``: whether a value is legal.
    - ``reads``: the action only reads, and the machine cannot continue without a value or an error.
    - ``refusable``: the outcome may be an error.
    """

    description: str
    fits: Callable[[Any, Any], bool]
    reads: bool = False
    refusable: bool = True


def _is_none(_action: object, value: object) -> bool:
    """Return whether the value is None; the outcome of an action without a result."""
    return value is None


@cache
def _structs(api_version: str, kind: str) -> tuple[type[KubeObject], ...]:
    """Return the struct classes of a kind; those of every API group if ``api_version`` is empty.

    Returns (KubeObject,) for a kind without a struct of its own.
    """
    versions = [api_version] if api_version else [group for group, name in KINDS if name == kind]
    structs = [struct for version in versions if (struct := find_kind(version, kind)) is not None]
    return tuple(structs) or (KubeObject,)


def _object(action: Get, value: object) -> bool:
    """Return whether the value is an object of the requested kind."""
    return isinstance(value, _structs(action.api_version, action.kind))


def _objects(action: List, value: object) -> bool:
    """Return whether the value is a list of objects of the requested kind."""
    structs = _structs(action.read_as or action.api_version, action.kind)
    return isinstance(value, list | tuple) and all(isinstance(item, structs) for item in value)


def _metric(action: GetMetric, value: object) -> bool:
    """Return whether the value is a response of the requested metrics API."""
    if action.api == "resource":
        return isinstance(value, PodUsage if action.columns else PodMetricsList)
    if action.api == "external":
        return isinstance(value, ExternalMetricValueList)
    return isinstance(value, MetricValueList) or (bool(action.name) and isinstance(value, MetricValue))


def _groups(_action: object, value: object) -> bool:
    """Return whether the value is None or node groups."""
    if value is None or isinstance(value, Groups):
        return True
    return isinstance(value, list | tuple) and all(isinstance(item, NodeGroup) for item in value)


def _machines(action: HasInstances, value: object) -> bool:
    """Return whether the value is a dict of booleans by node name, with no other nodes than the requested ones."""
    return isinstance(value, dict) and value.keys() <= set(action.nodes) and {*map(type, value.values())} <= {bool}


def _prices(action: GetPrices, value: object) -> bool:
    """Return whether the value has a price or an error for each requested node and pod."""
    if not isinstance(value, Prices) or (len(value.nodes), len(value.pods)) != (len(action.nodes), len(action.pods)):
        return False
    return all(isinstance(price, float | int | ApiError) for price in (*value.nodes, *value.pods))


def _values(action: Together, value: object) -> bool:
    """Return whether the value is a list with one result per machine."""
    return isinstance(value, list) and len(value) == len(action.machines)


_DATA: Final = OutcomeRule("an object as a dict", lambda _, value: isinstance(value, dict), reads=True)
_DONE: Final = OutcomeRule("None", _is_none)
_REPORTED: Final = OutcomeRule("None", _is_none, refusable=False)
_WRITTEN: Final = OutcomeRule(
    "the resource version after the write, or None", lambda _, value: value is None or isinstance(value, str)
)

LEGAL_OUTCOMES: Final[Mapping[type[Any], OutcomeRule]] = {
    Refresh: OutcomeRule("a list of NodeGroups or Groups, or None: as they were", _groups),
    HasInstances: OutcomeRule("a dict of booleans by the names of nodes", _machines, reads=True),
    GetPrices: OutcomeRule("Prices of each node and each pod", _prices, reads=True),
    IncreaseSize: _DONE,
    DecreaseTargetSize: _DONE,
    DeleteNodes: _DONE,
    CreateGroup: OutcomeRule(
        "CreatedGroups, or None: made as it was described",
        lambda _, value: value is None or isinstance(value, CreatedGroups),
    ),
    DeleteGroup: _DONE,
    Get: OutcomeRule("an object of the kind", _object, reads=True),
    GetUnstructured: _DATA,
    List: OutcomeRule("a list of objects of the kind", _objects, reads=True),
    Discover: OutcomeRule("a RESTMapper", lambda _, value: isinstance(value, RESTMapper), reads=True),
    Create: _WRITTEN,
    Preview: _DATA,
    Patch: _WRITTEN,
    Delete: _DONE,
    Evict: _DONE,
    Resize: _DONE,
    GetScale: OutcomeRule("a Scale", lambda _, value: isinstance(value, Scale), reads=True),
    PutScale: OutcomeRule("the Scale as written, or None", lambda _, value: value is None or isinstance(value, Scale)),
    WriteStatus: _WRITTEN,
    GetMetric: OutcomeRule(
        "a PodMetricsList (resource; as columns a PodUsage), a MetricValueList (custom; of one object its MetricValue "
        "does too), an ExternalMetricValueList (external)",
        _metric,
        reads=True,
    ),
    QueryPrometheus: OutcomeRule("the bytes of its answer", lambda _, value: isinstance(value, bytes), reads=True),
    RankOptions: OutcomeRule("a Ranking", lambda _, value: isinstance(value, Ranking), reads=True),
    Wait: _DONE,
    Together: OutcomeRule("the list of what the machines return", _values, refusable=False),
    Within: OutcomeRule("what the machine returns", lambda _action, _value: True, refusable=False),
    InBackground: _REPORTED,
    ReadStores: OutcomeRule("what was read, or None", lambda _action, _value: True, reads=True, refusable=False),
    Emit: _REPORTED,
    Observe: _REPORTED,
}
"""Action -> its legal outcomes. An outcome may have an error instead, unless ``refusable`` is False. A Wait that ends
with an error was cut short, because the process or its deadline ends."""


def check_outcome(action: Action, outcome: Outcome) -> Outcome:
    """Return the outcome if it is legal for the action.

    Raises :class:`IllegalOutcomeError` for an unknown action, and for an outcome that :data:`LEGAL_OUTCOMES` does not
    allow.
    """
    rule = LEGAL_OUTCOMES.get(type(action))
    if rule is None:
        raise IllegalOutcomeError(action, outcome, "no such action is known")
    if type(outcome) is not Outcome:
        raise IllegalOutcomeError(action, outcome, f"an Outcome is due, not {type(outcome).__name__}")
    if type(outcome.at) is not int:
        raise IllegalOutcomeError(
            action, outcome, f"a moment is an int of nanoseconds, not {type(outcome.at).__name__}"
        )
    if outcome.error is not None:
        if not isinstance(outcome.error, ApiError):
            raise IllegalOutcomeError(action, outcome, f"an error is an ApiError, not {type(outcome.error).__name__}")
        if not rule.refusable:
            raise IllegalOutcomeError(action, outcome, "it cannot be refused")
        if outcome.value is not None:
            raise IllegalOutcomeError(action, outcome, "an error comes without a value")
    elif not rule.fits(action, outcome.value):
        raise IllegalOutcomeError(action, outcome, f"{rule.description} is due, not {type(outcome.value).__name__}")
    return outcome


class Progress:
    """State of one running machine. ``now`` is the time of its last outcome; every outcome is checked."""

    __slots__ = ("now",)

    def __init__(self, now: datetime | Moment) -> None:
        """Start at ``now``. Raises InputError if ``now`` is not a time."""
        self.now: Moment = virtual_moment(now)

    def act(self, action: _A) -> StepsOf[_A, Outcome]:
        """Perform one action and return its outcome, whose time becomes ``now``.

        Raises :class:`~kscale.effects.IllegalOutcomeError` for an illegal outcome.
        """
        outcome = check_outcome(action, (yield action))
        self.now = outcome.at
        return outcome

    def wait(self, duration: int, *, jitter: float = 0.0) -> StepsOf[Wait, Outcome]:
        """Wait ``duration`` nanoseconds, plus a random time of at most ``jitter`` times ``duration``.

        An error in the outcome means that the wait was cut short.
        """
        return (yield from self.act(Wait(duration, jitter)))

    def clock(self) -> StepsOf[Wait, Moment]:
        """Return the current time, including the computation since the last outcome. Lets other machines run."""
        yield from self.act(Wait(0))
        return self.now

    def together(
        self, machines: Sequence[Machine], *, at_most: int | None = None, brief: bool = False
    ) -> StepsOf[Together, list[Any]]:
        """Run step machines concurrently and return their results in order.

        ``at_most`` machines run at a time (None: all). ``brief``: each of their steps takes well under a millisecond.
        """
        action = Together(machines=tuple(machines), at_most=at_most, brief=brief)
        results: list[Any] = (yield from self.act(action)).value
        return results

    def within(self, duration: int, machine: Machine) -> StepsOf[Within, Any]:
        """Run a step machine and return its result. The machine's actions fail after ``duration`` nanoseconds."""
        return (yield from self.act(Within(duration, machine))).value

    def emit(self, *events: Event) -> StepsOf[Emit, None]:
        """Record events. Without events nothing is yielded."""
        if events:
            yield from self.act(Emit(events))

    def observe(self, *observations: Observation) -> StepsOf[Observe, None]:
        """Record observations. Without observations nothing is yielded."""
        if observations:
            yield from self.act(Observe(observations))


class SingleAction:  # not an abstract class, with which isinstance takes six times as long
    """A machine that performs one action. Virtual time runs many of them at once, without a generator for each."""

    __slots__ = ()
    waits_to_end: ClassVar[bool] = False
    """Whether other machines with an outcome at the same moment continue before this one ends."""

    def build(self, now: Moment) -> Action | None:
        """Return the action to perform at ``now``; None if there is nothing to do."""
        raise NotImplementedError

    def finish(self, outcome: Outcome) -> Steps[None] | None:
        """Handle the outcome of the action.

        Returns further steps to run, or None if the machine has nothing left to do.
        """
        raise NotImplementedError

    def finish_steps(self, action: Action, outcome: Outcome) -> Steps[None]:
        """Check the outcome of the action and handle it, as a step machine.

        Raises IllegalOutcomeError if it is illegal.
        """
        more = self.finish(check_outcome(action, outcome))
        if more is not None:
            yield from more

    def perform_steps(self, action: Action) -> Steps[bool]:
        """Perform the action and handle its outcome.

        Returns ``waits_to_end``: True if other machines with an outcome at the same moment must continue before this
        one ends. Returns False if :meth:`finish` returned further steps, which are run. Raises IllegalOutcomeError for
        an illegal outcome.
        """
        more = self.finish(check_outcome(action, (yield action)))
        if more is None:
            return self.waits_to_end
        yield from more
        return False

    def __call__(self, now: Moment) -> Steps[None]:
        """Run the machine like any other one. Nothing is yielded if :meth:`build` returns None."""
        action = self.build(now)
        if action is not None:
            yield from self.perform_steps(action)
