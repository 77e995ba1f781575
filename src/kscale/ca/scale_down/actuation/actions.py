"""What carrying out a scale-down asks of the world, and what the world answers.

A machine is a function of a moment that gives a generator: it yields actions and is sent an :class:`Outcome` for each.
Upstream's goroutines are machines of their own, named by :class:`Together` and :class:`InBackground`. Machines of one
actuator share its state: a driver may perform actions side by side as it likes, but advances one machine at a time.
Time is what outcomes say it is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from kscale.ca.events import Event
from kscale.objects.core import Taint

__all__ = [
    "Action",
    "ApiError",
    "DeleteNodes",
    "DeletePod",
    "Emit",
    "EvictPod",
    "ForceDeleteNodes",
    "GetNode",
    "GetPod",
    "InBackground",
    "ListControllers",
    "ListPodDisruptionBudgets",
    "ListPods",
    "ListedNode",
    "Machine",
    "Observe",
    "Outcome",
    "Progress",
    "RegisterFailedScaleDown",
    "RegisterScaleDown",
    "Report",
    "Steps",
    "Together",
    "UpdateTaints",
    "Wait",
]

CONFLICT = "Conflict"
NOT_FOUND = "NotFound"


class ApiError(msgspec.Struct, frozen=True):
    """A refusal. ``reason`` is that of the API's status: ``Conflict`` and ``NotFound`` mean something here."""

    message: str
    reason: str = ""

    @property
    def is_conflict(self) -> bool:
        return self.reason == CONFLICT

    @property
    def is_not_found(self) -> bool:
        return self.reason == NOT_FOUND


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an action went and when it was over (in UTC: other zones may not add up): what it gives, or an error."""

    at: datetime
    value: Any = None
    error: ApiError | None = None


# -- nodes -----------------------------------------------------------------------------------------------------------


class GetNode(msgspec.Struct, frozen=True, kw_only=True):
    """Read a node from the API server. Gives a :class:`~kscale.objects.core.Node`."""

    name: str


class ListedNode(msgspec.Struct, frozen=True, kw_only=True):
    """Read a node from what the watch has brought so far. Gives a :class:`~kscale.objects.core.Node`."""

    name: str


class UpdateTaints(msgspec.Struct, frozen=True, kw_only=True):
    """Set a node's taints, and with ``unschedulable`` not None its cordon, if it is still at ``resource_version``.

    A node that has changed since is a ``Conflict``; an empty version stands for any.
    """

    node: str
    resource_version: str
    taints: list[Taint]
    unschedulable: bool | None = None


class DeleteNodes(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the cloud to delete these nodes of a group, in one call."""

    group: str
    nodes: list[str]


class ForceDeleteNodes(msgspec.Struct, frozen=True, kw_only=True):
    """The same without regard to minimum size and the like."""

    group: str
    nodes: list[str]


# -- pods ------------------------------------------------------------------------------------------------------------


class ListPods(msgspec.Struct, frozen=True, kw_only=True):
    """The pods that are assigned to these nodes now. Gives a list of pods; those that have ended are left out."""

    nodes: list[str]


class GetPod(msgspec.Struct, frozen=True, kw_only=True):
    """Read a pod from the API server. Gives a pod; one that is gone is ``NotFound``."""

    namespace: str
    name: str


class EvictPod(msgspec.Struct, frozen=True, kw_only=True):
    """Create an eviction. A refusal for a disruption budget is an error like any other; it is tried again."""

    namespace: str
    name: str
    grace_period_seconds: int


class DeletePod(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a pod without asking disruption budgets."""

    namespace: str
    name: str


class ListPodDisruptionBudgets(msgspec.Struct, frozen=True):
    """Gives the budgets as they are now, in the lister's order."""


class ListControllers(msgspec.Struct, frozen=True):
    """Gives the controllers that exist now: ReplicationControllers, ReplicaSets, StatefulSets, DaemonSets, Jobs."""


# -- time and company ------------------------------------------------------------------------------------------------


class Wait(msgspec.Struct, frozen=True):
    """Let time pass."""

    duration: timedelta


class Together(msgspec.Struct, frozen=True, kw_only=True):
    """Run machines side by side, ``at_most`` so many at a time (None: all), begun in their order.

    Gives the list of what they return, when the last has ended.
    """

    machines: list[Machine]
    at_most: int | None = None


class InBackground(msgspec.Struct, frozen=True):
    """Start a machine and go on. What it returns is of no interest."""

    machine: Machine


# -- reports: answered at once, with nothing -------------------------------------------------------------------------


class Emit(msgspec.Struct, frozen=True):
    """Record an event."""

    event: Event


class Observe(msgspec.Struct, frozen=True, kw_only=True):
    """Add to a counter or set a gauge of upstream's. What a cloud knows of GPU models is for the driver to add."""

    metric: str
    value: float = 1
    labels: dict[str, str] = {}


class RegisterScaleDown(msgspec.Struct, frozen=True, kw_only=True):
    """Remember that the cloud accepted the deletion of a node (:func:`~.remember.remember`)."""

    group: str
    node: str
    time: datetime


class RegisterFailedScaleDown(msgspec.Struct, frozen=True, kw_only=True):
    """Remember that the cloud refused to delete nodes of a group."""

    group: str
    reason: str
    time: datetime


Report = Emit | Observe | RegisterScaleDown | RegisterFailedScaleDown
Action = (
    GetNode
    | ListedNode
    | UpdateTaints
    | DeleteNodes
    | ForceDeleteNodes
    | ListPods
    | GetPod
    | EvictPod
    | DeletePod
    | ListPodDisruptionBudgets
    | ListControllers
    | Wait
    | Together
    | InBackground
    | Report
)

_T = TypeVar("_T")
Steps = Generator[Action, Outcome, _T]
Machine = Callable[[datetime], Steps[Any]]


class Progress:
    """One machine under way: ``now`` is the moment of its last outcome."""

    __slots__ = ("now",)

    def __init__(self, now: datetime) -> None:
        self.now = now

    def act(self, action: Action) -> Steps[Outcome]:
        """Does one thing."""
        outcome = yield action
        self.now = outcome.at
        return outcome

    def wait(self, duration: timedelta) -> Steps[None]:
        """Lets time pass."""
        yield from self.act(Wait(duration))

    def together(self, machines: list[Machine], *, at_most: int | None = None) -> Steps[list[Any]]:
        """What the machines return, in their order."""
        found: list[Any] = (yield from self.act(Together(machines=machines, at_most=at_most))).value
        return found

    def emit(self, kind: str, object_: str, reason: str, message: str) -> Steps[None]:
        """Records an event; ``kind`` is Normal or Warning."""
        yield from self.act(Emit(Event(object=object_, type=kind, reason=reason, message=message)))
