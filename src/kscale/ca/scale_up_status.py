"""Results of a scale-up: its status and events, and the records of ``kscale scale-up``.

Upstream: ``processors/status`` (ScaleUpStatus, EventingScaleUpStatusProcessor).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec

from kscale.ca.errors import ErrorRecord
from kscale.ca.events import PodUidLookup, build_pod_events
from kscale.ca.loop_state import LoopState
from kscale.ca.node_group_set import ScaleUpInfo
from kscale.effects import Event
from kscale.objects.argument_types import typed
from kscale.records import Record

__all__ = [
    "ALL_OR_NOTHING_REASON",
    "EXECUTION_FAILED_REASON",
    "EXPANDER_FILTERED_REASON",
    "MAX_NODES_TOTAL_REASON",
    "SCALE_UP_ERROR",
    "SCALE_UP_IN_COOLDOWN",
    "SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL",
    "SCALE_UP_NOT_NEEDED",
    "SCALE_UP_NOT_TRIED",
    "SCALE_UP_NO_OPTIONS_AVAILABLE",
    "SCALE_UP_SUCCESSFUL",
    "ConsideredGroup",
    "CreatedGroupIds",
    "ExpanderScore",
    "GroupRejection",
    "NoScaleUpInfo",
    "PodCounts",
    "ScaleUpChoice",
    "ScaleUpPlanRecord",
    "ScaleUpStatus",
    "UnschedulablePods",
    "build_scale_up_events",
    "format_not_triggered_reasons",
]

SCALE_UP_SUCCESSFUL: Final = "ScaleUpSuccessful"
SCALE_UP_ERROR: Final = "ScaleUpError"
SCALE_UP_NO_OPTIONS_AVAILABLE: Final = "ScaleUpNoOptionsAvailable"
SCALE_UP_NOT_NEEDED: Final = "ScaleUpNotNeeded"
SCALE_UP_NOT_TRIED: Final = "ScaleUpNotTried"
SCALE_UP_IN_COOLDOWN: Final = "ScaleUpInCooldown"
SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL: Final = "ScaleUpLimitedByMaxNodesTotal"

MAX_NODES_TOTAL_REASON: Final = "max total nodes in cluster reached"
ALL_OR_NOTHING_REASON: Final = "not all pods would fit and scale-up is using all-or-nothing strategy"
EXPANDER_FILTERED_REASON: Final = "expansion options filtered out and no longer considered"
EXECUTION_FAILED_REASON: Final = "scale-up execution failed"


class NoScaleUpInfo(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A pod (``namespace/name``) that no option takes, and the reasons by group."""

    pod: str
    rejected_groups: dict[str, list[str]] = {}
    """Groups on whose nodes the pod does not fit, or that failed."""
    skipped_groups: dict[str, list[str]] = {}
    """Groups that were skipped."""


class ConsideredGroup(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A group that was considered; ``exists`` is False for a group that would have to be created first."""

    id: str
    exists: bool = True


class CreatedGroupIds(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Node groups that were created for a scale-up.

    Attributes
    ----------
    main : str
        Id of the group that was chosen.
    extra : list of str
        Ids of further groups that were created with it.
    """

    main: str
    extra: list[str] = []


class ScaleUpStatus(msgspec.Struct, kw_only=True, rename="camel"):
    """Result of a scale-up (upstream's ``ScaleUpStatus``). Pods are ``namespace/name``.

    - ``result``: upstream's ``ScaleUpResult``, e.g. ``ScaleUpSuccessful``.
    - ``error``: the error, or None. It comes with ``ScaleUpError``, and with ``ScaleUpSuccessful`` if there is room for
      a provisioning request and the status of one could not be written.
    - ``scale_ups``: the executed plan; empty unless the result is ``ScaleUpSuccessful``.
    - ``pods_triggered``: the pods of the chosen option, in placement order, also if its execution failed.
    - ``pods_await_evaluation``: after a success, pods that some group takes, but not the chosen one.
    - ``pods_remain_unschedulable``: pods that no group takes, and why; without reasons if no group was evaluated.
    - ``considered_groups``: all groups that were evaluated, including those that could be created; empty after an
      error.
    - ``created_groups``: groups that were created for it; those of a scale-up that failed afterwards are not reported.
    - ``failed_resize_groups``, ``failed_creation_groups``: ids of the groups that could not be resized, or created.
    """

    result: str
    error: ErrorRecord | None = None
    scale_ups: list[ScaleUpInfo] = []
    pods_triggered: Sequence[str] = []
    pods_await_evaluation: Sequence[str] = []
    pods_remain_unschedulable: Sequence[NoScaleUpInfo] = []
    considered_groups: list[ConsideredGroup] = []
    created_groups: list[CreatedGroupIds] = []
    failed_resize_groups: list[str] = []
    failed_creation_groups: list[str] = []


def format_not_triggered_reasons(pod: NoScaleUpInfo, existing: Collection[str]) -> list[str]:
    """Format ``<count> <reason>`` for the reasons of existing groups, sorted by text (upstream's order is random)."""
    counts: Counter[str] = Counter()
    for by_group in (pod.rejected_groups, pod.skipped_groups):
        for group, reasons in by_group.items():
            if group in existing:
                counts.update(reasons)
    return sorted(f"{count} {reason}" for reason, count in counts.items())


@typed
def build_scale_up_events(status: ScaleUpStatus, *, uid_of: PodUidLookup = lambda _: "") -> list[Event]:
    """Build an event for each pod that triggered the scale-up of ``status``.

    Unless the scale-up succeeded or failed, an event for each pod that stays unschedulable is built, too. ``uid_of``
    returns the UID of a pod by ``namespace/name``; empty if unknown.
    """
    events: list[Event] = []
    existing = {group.id for group in status.considered_groups if group.exists}
    if status.result not in (SCALE_UP_SUCCESSFUL, SCALE_UP_ERROR):
        for pod in status.pods_remain_unschedulable:
            if status.result == SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL:
                why = MAX_NODES_TOTAL_REASON
            else:
                why = ", ".join(format_not_triggered_reasons(pod, existing))
            text = f"pod didn't trigger scale-up: {why}"
            events += build_pod_events([pod.pod], "Normal", "NotTriggerScaleUp", text, uid_of=uid_of)
    if status.scale_ups:
        plan = " ".join(map(str, status.scale_ups))
        text = f"pod triggered scale-up: [{plan}]"
        events += build_pod_events(status.pods_triggered, "Normal", "TriggeredScaleUp", text, uid_of=uid_of)
    return events


class _RecordStruct(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Base of what the record consists of."""


class ExpanderScore(_RecordStruct, frozen=True):
    """Result of one expander of the chain for an option.

    Attributes
    ----------
    expander : str
        Name of the expander.
    kept : bool
        Whether the expander kept the option.
    score : float or None
        Score of the option; a lower score is better. None: there is no score, or it is not finite.
    not_finite : str
        The score if it is not finite: ``+Inf``, ``-Inf`` or ``NaN``. Empty: it is finite, or there is none.
    parts : dict of str to float
        The finite numbers from which the score was computed, by name.
    note : str
        Explanation of the result. Empty: none.
    """

    expander: str
    kept: bool
    score: float | None = None
    not_finite: str = ""
    parts: dict[str, float] = {}
    note: str = ""


class ScaleUpChoice(_RecordStruct, frozen=True):
    """One node group as an option to scale up.

    Attributes
    ----------
    group : str
        Id of the node group.
    nodes : int
        Number of new nodes of the estimate. 0: the group is no option.
    pods : int
        Number of pods that the new nodes take. 0: the group is no option.
    chosen : bool
        Whether the expander chose the group.
    scores : list of ExpanderScore
        Results of the expanders, in the order of the chain.
    similar : list of str
        Groups that would share the new nodes.
    skipped : list of str
        Why the group was skipped. Empty: it was not; without ``pods`` it takes no pod.
    bound : int or None
        Proven lower bound of the number of nodes for the same pods. None: not computed.
    bound_method : str
        Method that proved ``bound``. Empty without a bound.
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
    """Why a pod does not fit on an empty new node of a group.

    Attributes
    ----------
    plugin : str
        The first plug-in of the scheduler that rejects the pod.
    reasons : list of str
        Texts of the plug-in, as in kube-scheduler's events.
    numbers : list of dict of str to Any
        Values that the plug-in compared.
    """

    plugin: str
    reasons: list[str]
    numbers: list[dict[str, Any]] = []


class UnschedulablePods(_RecordStruct, frozen=True):
    """Equivalent pods that stay pending after the scale-up, and why.

    Skipped groups are the same for all pods: see ``skipped`` of the options.

    Attributes
    ----------
    pods : list of str
        The pods as ``namespace/name``.
    why : str
        The reason in short.
    rejected : dict of str to GroupRejection
        Node groups on whose empty new nodes the pods do not fit, and why.
    taken_by : list of str
        Node groups that would take the pods.
    """

    pods: list[str]
    why: str
    rejected: dict[str, GroupRejection] = {}
    taken_by: list[str] = []


class PodCounts(_RecordStruct, frozen=True):
    """Number of pods that each step before the scale-up removed from the pending pods, in the order of the steps.

    Attributes
    ----------
    waiting : int
        Pending pods at the beginning.
    ignored : int
        Pods that are being deleted, that are gated, or that the scheduler has not reported as unschedulable.
    expendable : int
        Pods with a priority below the cutoff.
    drained : int
        Pods that were added because their nodes are being drained.
    on_existing : int
        Pods that fit on existing or upcoming nodes.
    out_of_time : int
        Pods that were not checked for lack of time.
    daemon_set : int
        Pods of DaemonSets.
    consuming : int
        Pods that wait for a ProvisioningRequest.
    young : int
        Pods whose delay has not passed.
    asked : int
        Remaining pods, for which the scale-up looked for nodes.
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
    """One loop of scale-up of the Cluster Autoscaler, as if every action succeeded. If there were several scale-ups in
    one loop (a salvo), ``result`` is that of the last one. Pods are ``namespace/name``.

    Attributes
    ----------
    result : str
        Upstream's result, such as ``ScaleUpSuccessful``.
    error : ErrorRecord or None
        The error. None: there is none.
    chosen : str or None
        Id of the chosen node group. None: no group was chosen.
    scale_ups : list of ScaleUpInfo
        Node groups that grow, after balancing over similar groups.
    options : list of ScaleUpChoice
        Every node group as an option. Of a salvo: as the first scale-up saw them, with all chosen groups marked.
    triggered : list of str
        Pods that get a place on new nodes, as upstream reports it.
    beyond_limits : list of str
        Those of the triggered pods for which quotas leave no node.
    remain_unschedulable : list of UnschedulablePods
        Pods that get no place, and why.
    placed : dict of str to str
        Existing or upcoming node of each pod that fits without new nodes.
    young : list of str
        Pods whose delay (``--new-pod-scale-up-delay``) has not passed.
    lists : PodCounts
        Number of pods that each step before the scale-up removed.
    not_tried : list of str
        Pods for which there was no time.
    scale_down_disabled : bool
        Whether the loop removes no nodes because more pods may follow soon.
    upcoming : dict of str to int
        Number of nodes by node group that were requested before and are assumed to arrive.
    created_groups : list of CreatedGroupIds
        Node groups that would be created.
    min_sizes : list of ScaleUpInfo
        Node groups that grow to their minimum size afterwards.
    not_similar : dict of str to list of str
        With balancing: node groups that take pods but do not share the new nodes, and what differs.
    events : list of Event
        Events that upstream would emit.
    warnings : list of str
        Warnings that upstream would log.
    unmodelled : list of str
        Features of pods that are not evaluated.
    state : LoopState
        State for the next loop, to be passed on as it is.
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
    created_groups: list[CreatedGroupIds] = []
    min_sizes: list[ScaleUpInfo] = []
    not_similar: dict[str, list[str]] = {}
    events: list[Event] = []
    warnings: list[str] = []
    unmodelled: list[str] = []
    state: LoopState = msgspec.field(default_factory=LoopState)
