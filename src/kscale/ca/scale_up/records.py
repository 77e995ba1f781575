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

__all__ = ["ExpanderScore", "GroupRejection", "PodCounts", "ScaleUpChoice", "ScaleUpPlanRecord", "UnschedulablePods"]


class _RecordStruct(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Base of what the record consists of."""


class ExpanderScore(_RecordStruct, frozen=True):
    """Result of one expander of the chain for an option: its score (less is better), its note, whether it kept the
    option.

    A score that is not finite is no ``score``: ``notFinite`` contains it (``+Inf``, ``-Inf``, ``NaN``). ``parts``: the
    finite numbers that the score was computed from, by name.
    """

    expander: str
    kept: bool
    score: float | None = None
    not_finite: str = ""
    parts: dict[str, float] = {}
    note: str = ""


class ScaleUpChoice(_RecordStruct, frozen=True):
    """One node group as a way to scale up.

    ``nodes`` and ``pods`` are the new nodes and placed pods of the estimate, 0 if the group is no option: then
    ``skipped`` is the reason; if that is empty, the group takes no pod. ``bound`` is a proven lower bound of nodes for
    the same pods, ``boundMethod`` its proof. ``similar``: groups that would share the new nodes.
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


class UnschedulablePods(_RecordStruct, frozen=True):
    """Equivalent pods that stay pending after the scale-up, and why.

    ``rejected``: node groups that do not take them, on an empty new node without other pods; ``takenBy``:
    groups that would. ``why`` is the short reason. Skipped groups are the same for all pods: see ``skipped`` of the
    options.
    """

    pods: list[str]
    why: str
    rejected: dict[str, GroupRejection] = {}
    taken_by: list[str] = []


class PodCounts(_RecordStruct, frozen=True):
    """Number of pods that each step removed before the scale-up, in the order of the steps.

    ``ignored``: being deleted, gated, or not reported as unschedulable by the scheduler; ``expendable``: of a priority
    below the cut-off; ``drained``: added, because their nodes are being drained; ``onExisting``: fit on existing or
    upcoming nodes; ``outOfTime``: not checked; ``daemonSet``; ``consuming``: wait for a ProvisioningRequest; ``young``;
    ``asked``: what remained.
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
    - ``scaleUps``: the final plan, balanced over similar groups; ``options``: every group, with the chosen one marked
      (of a salvo: as the first scale-up saw them, with all chosen ones marked).
    - ``triggered``: pods that get a place, as upstream reports it; ``beyondLimits``: those of them for which quotas
      leave no node; ``remainUnschedulable``: pods that get none; ``placed``: pod -> node, for pods that fit
      without new nodes; ``young``: pods whose delay has not passed; ``notTried``: pods for which there was no time.
    - ``scaleDownDisabled``: more pods may follow soon, so the loop removes no node either.
    - ``upcoming``: nodes by group that were requested before and are assumed to arrive; ``createdGroups``: groups that
      would be created; ``minSizes``: groups that are scaled up to their minimum size afterwards.
    - ``notSimilar``: with balancing, the groups that take pods and do not share the new nodes, and what differs.
    - ``events`` are upstream's; ``warnings`` what it would log; ``state`` is for the next loop.
    """

    KIND = "ScaleUpPlan"
    ROWS = "scale_ups"
    result: str
    error: ErrorRecord | None = None
    chosen: str | None = None
    scale_ups: list[ScaleUpInfo] = []
    options: list[ScaleUpChoice] = []
    triggered: list[str] = []
    beyond_limits: list[str] = []
    remain_unschedulable: list[UnschedulablePods] = []
    placed: dict[str, str] = {}
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
