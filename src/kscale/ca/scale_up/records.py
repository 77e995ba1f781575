"""Result records of ``kscale scale-up``."""

from __future__ import annotations

from typing import Any

import msgspec

from kscale.ca.errors import ErrorRecord
from kscale.ca.node_group_set import ScaleUpInfo
from kscale.ca.scale_up_status import MadeGroups
from kscale.ca.state.loop_state import LoopState
from kscale.effects import Event
from kscale.records import Record

__all__ = ["ExpanderScore", "GroupRejection", "PendingPods", "PodCounts", "ScaleUpChoice", "ScaleUpPlanRecord"]


class _RecordStruct(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Base of what the record consists of."""


class ExpanderScore(_RecordStruct, frozen=True):
    """What one expander of the chain made of an option: its score (less is better), its note, whether it kept it.

    A score that is no finite number is no ``score``: ``notFinite`` says which (``+Inf``, ``-Inf``, ``NaN``). ``parts``:
    the finite numbers that the score was made of, by name.
    """

    expander: str
    kept: bool
    score: float | None = None
    not_finite: str = ""
    parts: dict[str, float] = {}
    note: str = ""


class ScaleUpChoice(_RecordStruct, frozen=True):
    """One node group as a way to scale up.

    ``nodes`` and ``pods`` are what the estimate asks for and helps, 0 if the group is no option: then ``skipped`` says
    why it was not asked; if that is empty, it was asked and takes none. ``bound`` is a proven least number of nodes for
    the same pods, ``boundMethod`` what proved it. ``similar``: groups that would share the new nodes.
    """

    group: str
    nodes: int = 0
    pods: int = 0
    chosen: bool = False
    scores: list[ExpanderScore] = []
    similar: list[str] = []
    skipped: list[str] = []
    bound: int | None = None
    bound_method: str = ""


class GroupRejection(_RecordStruct, frozen=True):
    """The first predicate that fails on an empty new node of a group, its reasons, and what it compared."""

    plugin: str
    reasons: list[str]
    numbers: list[dict[str, Any]] = []


class PendingPods(_RecordStruct, frozen=True):
    """Like pods that stay without a place after the scale-up, and why.

    ``rejected``: node groups that do not take them, on an empty new node and with no other pod beside; ``takenBy``:
    groups that would. ``why`` is the short answer. Groups that were not asked are the same for all pods: see
    ``skipped`` of the options.
    """

    pods: list[str]
    why: str
    rejected: dict[str, GroupRejection] = {}
    taken_by: list[str] = []


class PodCounts(_RecordStruct, frozen=True):
    """How many pods each step took out before the scale-up, in the order of the steps.

    ``ignored``: being deleted, gated, or the scheduler has not said that they are unschedulable; ``expendable``: of a
    priority below the cut-off; ``drained``: added, because their nodes are being drained; ``onExisting``: fit on nodes
    that exist or are coming; ``outOfTime``: not looked at; ``daemonSet``; ``consuming``: wait for a
    ProvisioningRequest; ``young``; ``asked``: what remained.
    """

    waiting: int = 0
    ignored: int = 0
    expendable: int = 0
    drained: int = 0
    on_existing: int = 0
    out_of_time: int = 0
    daemon_set: int = 0
    consuming: int = 0
    young: int = 0
    asked: int = 0


class ScaleUpPlanRecord(Record, frozen=True):
    """One loop of scale-up as if everything succeeded.

    - ``result``: upstream's, e.g. ``ScaleUpSuccessful``; ``error`` comes with ``ScaleUpError``. Of several scale-ups in
      one loop (a salvo) it is the last one's.
    - ``scaleUps``: the final plan, balanced over similar groups; ``options``: every group, the chosen one marked (of a
      salvo: as the first scale-up saw them, all that were chosen marked).
    - ``triggered``: pods that are helped, as upstream says it; ``beyondLimits``: those of them for which quotas leave
      no node; ``pending``: those that are not; ``existing``: pod -> node, for pods that fit without new nodes;
      ``young``: pods that are given some more time; ``notTried``: pods that nobody had time for.
    - ``scaleDownDisabled``: more pods may be on their way, so the loop removes no node either.
    - ``upcoming``: nodes by group that were asked for before and were taken for granted; ``createdGroups``: groups that
      would be made; ``minSizes``: groups that are raised to their minimum size afterwards.
    - ``notSimilar``: with balancing, the groups that take pods and do not share the new nodes, and what differs.
    - ``events`` are upstream's; ``warnings`` what it would log; ``state`` is for the next loop.
    """

    KIND = "ScaleUpPlan"
    result: str
    error: ErrorRecord | None = None
    chosen: str | None = None
    scale_ups: list[ScaleUpInfo] = []
    options: list[ScaleUpChoice] = []
    triggered: list[str] = []
    beyond_limits: list[str] = []
    pending: list[PendingPods] = []
    existing: dict[str, str] = {}
    young: list[str] = []
    lists: PodCounts = PodCounts()
    not_tried: list[str] = []
    scale_down_disabled: bool = False
    upcoming: dict[str, int] = {}
    created_groups: list[MadeGroups] = []
    min_sizes: list[ScaleUpInfo] = []
    not_similar: dict[str, list[str]] = {}
    events: list[Event] = []
    warnings: list[str] = []
    unmodelled: list[str] = []
    state: LoopState = msgspec.field(default_factory=LoopState)
