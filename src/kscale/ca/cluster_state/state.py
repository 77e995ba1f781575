"""State of the cluster as the autoscaler tracks it: registered and upcoming nodes, requests, failures, back-off, and
the readiness of every node.

Upstream: ``clusterstate/clusterstate.go`` (also ``updateReadinessStats`` and ``getNotRegisteredNodes``),
``utils/backoff``.
Whether one node is Ready is read in :mod:`kscale.ca.nodes`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from kscale.ca.nodes import (
    RESOURCE_NOT_READY_REASON,
    TO_BE_DELETED_TAINT,
    RegisteredNodes,
    get_readiness,
    get_ready_and_suspended,
    has_taint,
)
from kscale.ca.options import AutoscalingOptions
from kscale.effects import SECOND, Moment, duration, later
from kscale.effects.moments import ComparedDuration, Count, Nanoseconds
from kscale.objects.api.core import Node
from kscale.objects.conditions import changed_at
from kscale.objects.nodegroup import Groups, InstanceStatus, NodeGroup, NodeGroupAutoscalingOptions, ProviderError
from kscale.objects.times import created_at

__all__ = [
    "LEGACY_NODE_STARTUP_TIME",
    "LEGACY_STATUS_SETTING_DELAY",
    "AcceptableRange",
    "Backoff",
    "BackoffInfo",
    "ClusterAutoscalerStatus",
    "ClusterHealth",
    "ClusterScaleUp",
    "ClusterStateRegistry",
    "ClusterWideStatus",
    "GroupHealth",
    "GroupReadiness",
    "GroupScaleUp",
    "IncorrectSize",
    "NodeCounts",
    "NodeGroupStatus",
    "RegisteredCount",
    "ScaleDownCandidates",
    "ScaleDownRequest",
    "ScaleUpError",
    "ScaleUpFailure",
    "ScaleUpRequest",
    "StatusCondition",
    "UnreadyCount",
    "UnregisteredNode",
    "build_initializing_status",
    "classify_nodes",
    "classify_unregistered_nodes",
    "find_nodes_without_instance",
    "find_unregistered_nodes",
    "get_active_backoff",
    "record_failure",
    "remove_stale_backoffs",
]


class ScaleUpError(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Reason of a failed scale-up.

    Attributes
    ----------
    class_ : str
        ``OutOfResource`` or ``Other``.
    code : str
        Code of the cloud, or type of the error.
    message : str
        Text of the error.
    """

    class_: str = msgspec.field(name="class")
    code: str
    message: str


class Backoff(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Back-off of a group after a failed scale-up. Times are nanoseconds since 1970.

    Attributes
    ----------
    duration : Nanoseconds
        Length of this back-off, in nanoseconds.
    until : Moment
        Time until which the group is not scaled up, inclusive.
    last_failed : Moment
        Time of the last failure.
    error : ScaleUpError
        Why the last scale-up failed.
    """

    duration: Nanoseconds
    until: Moment
    last_failed: Moment
    error: ScaleUpError


def record_failure(
    backoffs: Mapping[str, Backoff], group: str, error: ScaleUpError, now: Moment, *, initial: int, maximum: int
) -> dict[str, Backoff]:
    """Return a copy of the back-offs after one more failure of a group, with ``error`` as its reason.

    - First failure: the period is ``initial`` (nanoseconds).
    - Failure within the last period: a period of the same length starts again.
    - Failure after the last period: the period is twice as long, at most ``maximum`` (nanoseconds).

    Old back-offs are forgotten by :func:`remove_stale_backoffs`. A successful scale-up does not end a back-off (except
    in the profile of release 1.3, where the caller removes it).
    """
    last = backoffs.get(group)
    if last is None:
        duration = initial
    elif last.until < now:
        duration = min(2 * last.duration, maximum)
    else:
        duration = last.duration
    entry = Backoff(duration=duration, until=later(now, duration), last_failed=now, error=error)
    return {**backoffs, group: entry}


def get_active_backoff(backoffs: Mapping[str, Backoff], group: str, now: Moment) -> Backoff | None:
    """Return the back-off of a group if it has not ended at ``now``, otherwise None."""
    entry = backoffs.get(group)
    return None if entry is None or entry.until < now else entry


def remove_stale_backoffs(backoffs: Mapping[str, Backoff], now: Moment, reset: int) -> dict[str, Backoff]:
    """Return the back-offs of the groups whose last failure is at most ``reset`` nanoseconds ago."""
    return {group: entry for group, entry in backoffs.items() if not now - entry.last_failed > reset}


AUTOSCALER_RUNNING: Final = "Running"
AUTOSCALER_INITIALIZING: Final = "Initializing"


class _StatusStruct(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Base of status structs, with upstream's member names. UNSET is left out; an unknown time is null."""


class UnreadyCount(_StatusStruct, kw_only=True, frozen=True):
    """Number of nodes that are not ready.

    Attributes
    ----------
    total : int
        Number of all these nodes.
    resource_unready : int
        Number of these nodes that only lack devices, such as GPUs.
    """

    total: int = 0
    resource_unready: int = 0


class RegisteredCount(_StatusStruct, kw_only=True, frozen=True):
    """Number of nodes with a node object, by readiness.

    Attributes
    ----------
    total : int
        Number of all these nodes.
    ready : int
        Number of ready nodes.
    not_started : int
        Number of nodes that may still be starting.
    suspended : int
        Number of suspended nodes.
    being_deleted : int or UnsetType
        Number of nodes whose instance does not exist anymore. Absent: none.
    unready : UnreadyCount
        Nodes that are not ready.
    """

    total: int = 0
    ready: int = 0
    not_started: int = 0
    suspended: int = 0
    being_deleted: int | UnsetType = UNSET
    unready: UnreadyCount = UnreadyCount()


class NodeCounts(_StatusStruct, kw_only=True, frozen=True):
    """Number of machines.

    Attributes
    ----------
    registered : RegisteredCount
        Machines with a node object.
    long_unregistered : int
        Number of machines without a node object that should have registered by now.
    unregistered : int
        Number of other machines without a node object.
    """

    registered: RegisteredCount = RegisteredCount()
    long_unregistered: int = 0
    unregistered: int = 0


class StatusCondition(_StatusStruct, kw_only=True, frozen=True):
    """Fields of all conditions.

    Attributes
    ----------
    status : str or UnsetType
        The condition. Absent: unknown.
    last_probe_time : str or None
        Time of the last check (RFC 3339). None: unknown.
    last_transition_time : str or None
        Time of the last change of ``status`` (RFC 3339). None: unknown.
    """

    status: str | UnsetType = UNSET
    last_probe_time: str | None = None
    last_transition_time: str | None = None


class ClusterHealth(StatusCondition, kw_only=True, frozen=True):
    """Health of the cluster.

    Attributes
    ----------
    status
        ``Healthy`` or ``Unhealthy``. Absent: unknown.
    last_probe_time
        Time of the last check (RFC 3339). None: unknown.
    last_transition_time
        Time of the last change of ``status`` (RFC 3339). None: unknown.
    node_counts : NodeCounts
        Number of machines.
    """

    node_counts: NodeCounts = NodeCounts()


class GroupHealth(StatusCondition, kw_only=True, frozen=True):
    """Health and sizes of a node group.

    Attributes
    ----------
    status
        ``Healthy`` or ``Unhealthy``. Absent: unknown.
    last_probe_time
        Time of the last check (RFC 3339). None: unknown.
    last_transition_time
        Time of the last change of ``status`` (RFC 3339). None: unknown.
    node_counts : NodeCounts
        Number of machines.
    cloud_provider_target : int
        Target size.
    min_size : int
        Minimum size.
    max_size : int
        Maximum size.
    """

    node_counts: NodeCounts = NodeCounts()
    cloud_provider_target: int = 0
    min_size: int = 0
    max_size: int = 0


class ClusterScaleUp(StatusCondition, kw_only=True, frozen=True):
    """Scale-up status of the cluster.

    Attributes
    ----------
    status
        ``InProgress`` or ``NoActivity``. Absent: unknown.
    last_probe_time
        Time of the last check (RFC 3339). None: unknown.
    last_transition_time
        Time of the last change of ``status`` (RFC 3339). None: unknown.
    """


class BackoffInfo(_StatusStruct, kw_only=True, frozen=True):
    """Reason of the back-off of a node group. Absent fields: the group is not in back-off.

    Attributes
    ----------
    error_code : str or UnsetType
        Code of the error.
    error_message : str or UnsetType
        Text of the error.
    """

    error_code: str | UnsetType = UNSET
    error_message: str | UnsetType = UNSET


class GroupScaleUp(StatusCondition, kw_only=True, frozen=True):
    """Scale-up status of a node group.

    Attributes
    ----------
    status
        ``InProgress``, ``Unhealthy``, ``Backoff`` or ``NoActivity``. Absent: unknown.
    last_probe_time
        Time of the last check (RFC 3339). None: unknown.
    last_transition_time
        Time of the last change of ``status`` (RFC 3339). None: unknown.
    backoff_info : BackoffInfo
        Reason of the back-off.
    """

    backoff_info: BackoffInfo = BackoffInfo()


class ScaleDownCandidates(StatusCondition, kw_only=True, frozen=True):
    """Scale-down status.

    Attributes
    ----------
    status
        ``CandidatesPresent`` or ``NoCandidates``. Absent: unknown.
    last_probe_time
        Time of the last check (RFC 3339). None: unknown.
    last_transition_time
        Time of the last change of ``status`` (RFC 3339). None: unknown.
    candidates : int or UnsetType
        Number of unneeded nodes. Absent: none.
    """

    candidates: int | UnsetType = UNSET


class ClusterWideStatus(_StatusStruct, kw_only=True, frozen=True):
    """Status of the whole cluster.

    Attributes
    ----------
    health : ClusterHealth
        Health of the cluster.
    scale_up : ClusterScaleUp
        Scale-up status.
    scale_down : ScaleDownCandidates
        Scale-down status.
    """

    health: ClusterHealth = ClusterHealth()
    scale_up: ClusterScaleUp = ClusterScaleUp()
    scale_down: ScaleDownCandidates = ScaleDownCandidates()


class NodeGroupStatus(_StatusStruct, kw_only=True, frozen=True):
    """Status of one node group.

    Attributes
    ----------
    name : str or UnsetType
        Id of the group.
    health : GroupHealth
        Health and sizes of the group.
    scale_up : GroupScaleUp
        Scale-up status.
    scale_down : ScaleDownCandidates
        Scale-down status.
    """

    name: str | UnsetType = UNSET
    health: GroupHealth = GroupHealth()
    scale_up: GroupScaleUp = GroupScaleUp()
    scale_down: ScaleDownCandidates = ScaleDownCandidates()


class ClusterAutoscalerStatus(_StatusStruct, kw_only=True, frozen=True):
    """The complete status document of the Cluster Autoscaler, except for ``time``, which is added when it is written.

    Attributes
    ----------
    autoscaler_status : str
        ``Running`` or ``Initializing``.
    message : str or UnsetType
        Explanation of the status. Absent: none.
    cluster_wide : ClusterWideStatus
        Status of the whole cluster.
    node_groups : list of NodeGroupStatus or UnsetType
        Status of each node group. Absent: there was no complete loop yet.
    """

    autoscaler_status: str = AUTOSCALER_RUNNING
    message: str | UnsetType = UNSET
    cluster_wide: ClusterWideStatus = ClusterWideStatus()
    node_groups: list[NodeGroupStatus] | UnsetType = UNSET


def build_initializing_status(message: str = "") -> ClusterAutoscalerStatus:
    """Build the status that is shown before the first complete loop, with an optional ``message``."""
    return ClusterAutoscalerStatus(autoscaler_status=AUTOSCALER_INITIALIZING, message=message or UNSET)


class ScaleUpRequest(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Requested nodes of a group that have not all registered yet. Times are nanoseconds since 1970.

    Attributes
    ----------
    increase : Count
        Number of requested nodes.
    time : Moment
        Time of the last increase.
    expected_add_time : Moment
        Time by which the nodes must have registered.
    """

    increase: Count
    time: Moment
    expected_add_time: Moment


class ScaleDownRequest(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A node that is being deleted. Times are nanoseconds since 1970.

    Attributes
    ----------
    group : str
        Id of its node group.
    node : str
        Name of the node.
    time : Moment
        Time of the deletion.
    expected_delete_time : Moment
        Time until which the deletion is expected to take.
    """

    group: str
    node: str
    time: Moment
    expected_delete_time: Moment


class ScaleUpFailure(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A scale-up that failed in this loop.

    Attributes
    ----------
    time : Moment
        Time of the failure, in nanoseconds since 1970.
    delta : Count
        Number of nodes by which the group should have grown.
    error : ScaleUpError
        Why it failed.
    """

    time: Moment
    delta: Count
    error: ScaleUpError


class UnregisteredNode(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """An instance without a node object.

    Attributes
    ----------
    group : str
        Id of its node group.
    since : Moment
        Time at which it was first seen, in nanoseconds since 1970.
    """

    group: str
    since: Moment


class GroupReadiness(msgspec.Struct, kw_only=True, rename="camel"):
    """Names of the nodes of a group, or of the cluster, by readiness. Every node of ``registered`` is in another list
    as well.

    Attributes
    ----------
    registered : list of str
        Nodes with a node object.
    ready : list of str
        Nodes that are ready.
    unready : list of str
        Nodes that are not ready.
    not_started : list of str
        Nodes that may still be starting.
    suspended : list of str
        Nodes that are suspended.
    deleted : list of str
        Nodes whose instance does not exist anymore.
    unregistered : list of str
        Instances without a node object that may still register.
    long_unregistered : list of str
        Instances without a node object that should have registered by now.
    resource_unready : list of str
        Nodes that only lack devices, such as GPUs. They are in ``unready``, too.
    long_not_started : list of str
        Unready nodes that take too long to start. Only release 1.3 reports them separately.
    """

    registered: list[str] = []
    ready: list[str] = []
    unready: list[str] = []
    not_started: list[str] = []
    suspended: list[str] = []
    deleted: list[str] = []
    unregistered: list[str] = []
    long_unregistered: list[str] = []
    resource_unready: list[str] = []
    long_not_started: list[str] = []


class AcceptableRange(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Numbers of nodes of a group that are acceptable while requests are pending.

    Attributes
    ----------
    min_nodes : Count
        Lowest acceptable number of nodes.
    max_nodes : Count
        Highest acceptable number of nodes.
    current_target : Count
        Target size.
    """

    min_nodes: Count = 0
    max_nodes: Count = 0
    current_target: Count = 0


class IncorrectSize(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A difference between the number of nodes of a group and its target size.

    Attributes
    ----------
    current : Count
        Number of nodes.
    expected : Count
        Target size.
    first_observed : Moment
        Time at which the difference was first seen, in nanoseconds since 1970.
    """

    current: Count
    expected: Count
    first_observed: Moment


class ClusterStateRegistry(msgspec.Struct, kw_only=True, rename="camel"):
    """State of the node groups between loops, by group id. Times are nanoseconds since 1970.

    Attributes
    ----------
    scale_up_requests : dict of str to ScaleUpRequest
        Pending scale-up of each group that has one.
    scale_down_requests : list of ScaleDownRequest
        Nodes that are being deleted.
    backoffs : dict of str to Backoff
        Back-off of each group that has one.
    failures : dict of str to list of ScaleUpFailure
        Failed scale-ups of this loop, by group.
    unregistered : dict of str to UnregisteredNode
        Instances without a node object, by instance ID.
    create_errors : dict of str to list of str
        Instances that the cloud failed to create, as of the last loop, by group.
    readiness : dict of str to GroupReadiness
        Nodes by readiness, for each group.
    total : GroupReadiness
        Nodes by readiness, for the cluster.
    node_count : Count
        Number of nodes at the last update.
    last_update : Moment or None
        Time of the last update. None: there was none.
    ranges : dict of str to AcceptableRange
        Acceptable numbers of nodes of each group.
    incorrect_sizes : dict of str to IncorrectSize
        Groups whose number of nodes is not acceptable.
    candidates : dict of str to list of str
        Unneeded nodes by group, as of ``last_scale_down_update``.
    last_scale_down_update : Moment or None
        Time of the last update of ``candidates``. None: there was none.
    last_status : ClusterAutoscalerStatus or None
        Status of the last loop. None: there was none.
    """

    scale_up_requests: dict[str, ScaleUpRequest] = {}
    scale_down_requests: list[ScaleDownRequest] = []
    backoffs: dict[str, Backoff] = {}
    failures: dict[str, list[ScaleUpFailure]] = {}
    unregistered: dict[str, UnregisteredNode] = {}
    create_errors: dict[str, list[str]] = {}
    readiness: dict[str, GroupReadiness] = {}
    total: GroupReadiness = msgspec.field(default_factory=GroupReadiness)
    node_count: Count = 0
    last_update: Moment | None = None
    ranges: dict[str, AcceptableRange] = {}
    incorrect_sizes: dict[str, IncorrectSize] = {}
    candidates: dict[str, list[str]] = {}
    last_scale_down_update: Moment | None = None
    last_status: ClusterAutoscalerStatus | None = None


def find_nodes_without_instance(
    nodes: Sequence[Node], names: Sequence[str], odd: Collection[int], has_instance: Mapping[str, bool]
) -> set[int]:
    """Return the positions of nodes whose instance does not exist anymore.

    ``has_instance``: whether the provider has the instance, by node name. A node that it does not list is included if
    it has the taint ``ToBeDeletedByClusterAutoscaler``. Such a node is looked for only at the positions ``odd``: those
    for which :func:`kscale.ca.nodes.is_ready_and_active` is False.
    """
    missing = {i for i in odd if names[i] not in has_instance and has_taint(nodes[i], TO_BE_DELETED_TAINT)}
    if not all(has_instance.values()):
        missing.update(i for i, name in enumerate(names) if not has_instance.get(name, True))
    return missing


_LEGACY_NOT_STARTED_CONDITIONS: Final = {("Ready", "False"), ("OutOfDisk", "True"), ("NetworkUnavailable", "True")}
LEGACY_STATUS_SETTING_DELAY: Final[ComparedDuration] = 120 * SECOND
LEGACY_NODE_STARTUP_TIME: Final[ComparedDuration] = 900 * SECOND


def classify_nodes(
    registered: RegisteredNodes,
    groups: Groups,
    *,
    now: Moment,
    options: AutoscalingOptions,
    has_instance: Mapping[str, bool],
) -> tuple[dict[str, GroupReadiness], GroupReadiness]:
    """Return the readiness lists of each group that has nodes, by group id, and those of the cluster.

    A node may be in several lists; a node without a group is only in those of the cluster. The lists of unregistered
    instances stay empty (:func:`classify_unregistered_nodes`). Raises InputError if a node's time cannot be read.
    ``has_instance``: see :func:`find_nodes_without_instance`.
    """
    nodes, names, odd = registered.nodes, registered.names, registered.odd
    group_of = groups.ids_of_nodes(names)
    missing = find_nodes_without_instance(nodes, names, odd, has_instance)
    if missing:
        odd = sorted({*odd, *missing})
    not_ready: dict[int, tuple[bool, bool]] = {}
    """Index of a node -> (whether its instance was deleted, whether it is suspended)."""
    for i in odd:
        ready, suspended = get_ready_and_suspended(nodes[i])
        is_gone = i in missing
        if not ready or suspended or is_gone:
            not_ready[i] = is_gone, suspended
    members = groups.members(names)
    by_group = {
        group: GroupReadiness(registered=[*node_names]) for group, node_names in members.items() if group is not None
    }
    total = GroupReadiness(registered=[*names], ready=_exclude_names(names, {names[i] for i in not_ready}))
    elsewhere: dict[str | None, set[str]] = {}
    for i in not_ready:
        elsewhere.setdefault(group_of[i], set()).add(names[i])
    for name, record in by_group.items():
        record.ready = _exclude_names(record.registered, elsewhere.get(name, set()))
    nobody = GroupReadiness()
    for i, (is_gone, suspended) in not_ready.items():
        group = group_of[i]
        if options.legacy:
            kinds = _get_legacy_readiness_lists(nodes[i], is_gone, now)
        else:
            kinds = _get_readiness_lists(
                nodes[i], is_gone, suspended, now - _get_node_startup_time(i, group_of, groups, options)
            )
        for kind in kinds:
            getattr(nobody if group is None else by_group[group], kind).append(names[i])
            getattr(total, kind).append(names[i])
    return by_group, total


def _exclude_names(names: Sequence[str], others: Collection[str]) -> list[str]:
    """Return the names that are not among ``others``, in order."""
    return [name for name in names if name not in others] if others else [*names]


def _get_node_startup_time(i: int, group_of: Sequence[str | None], groups: Groups, options: AutoscalingOptions) -> int:
    """Return how long node ``i`` may take to start, in nanoseconds. ``group_of``: group id of each node.

    Upstream has one variable for all nodes: a node whose group has no value inherits that of the node before it.
    """
    for group in reversed(group_of[: i + 1]):
        own = None if group is None else _get_group_startup_time(groups[group], options.node_group_defaults)
        if own is not None:
            return own
    return duration(options.max_node_startup_time)


def _get_group_startup_time(group: NodeGroup, defaults: NodeGroupAutoscalingOptions) -> int | None:
    """Return how long nodes of a group may take to start, in nanoseconds; None if its options cannot be read."""
    try:
        return duration(group.options_or(defaults).max_node_startup_time)
    except ProviderError:
        return None


def _get_readiness_lists(node: Node, deleted: bool, suspended: bool, young_since: int) -> tuple[str, ...]:
    """Return the :class:`GroupReadiness` lists, by name, to which a node belongs that is not ready and active.

    ``registered`` is left out. ``deleted``: its instance no longer exists; ``suspended``: its instance is suspended. A
    node created after ``young_since`` is starting.

    Raises InputError if the creation time cannot be read.
    """
    if deleted:
        return ("deleted",)
    if suspended:
        return ("suspended",)
    if created_at(node) > young_since:
        return ("not_started",)
    return ("unready", "resource_unready") if get_readiness(node).reason == RESOURCE_NOT_READY_REASON else ("unready",)


def _get_legacy_readiness_lists(node: Node, deleted: bool, now: Moment) -> tuple[str, ...]:
    """Return the lists of a node as :func:`_get_readiness_lists` does, but by the rules of release 1.3.

    A node is starting if a condition that keeps it from being ready changed less than two minutes after the node was
    created. A node that has been starting for more than 15 minutes (``LongNotStarted``) counts as unready everywhere.
    Raises InputError if a time cannot be read.
    """
    if deleted:
        return ("deleted",)
    created = created_at(node)
    starting = any(
        (each.type, each.status) in _LEGACY_NOT_STARTED_CONDITIONS
        and changed_at(node, each) - created < LEGACY_STATUS_SETTING_DELAY
        for each in node.status.conditions
    )
    if not starting:
        return ("unready",)
    return ("not_started",) if later(created, LEGACY_NODE_STARTUP_TIME) >= now else ("unready", "long_not_started")


def find_unregistered_nodes(
    before: Mapping[str, UnregisteredNode], registered: RegisteredNodes, groups: Groups, now: Moment
) -> dict[str, UnregisteredNode]:
    """Return the instances without a node object among the ``registered`` nodes, by instance id.

    Instances that are being deleted or have failed, and groups that are still being created, are left out. ``before``:
    result of the previous loop, whose times are kept.
    """
    known = registered.instance_ids
    unregistered: dict[str, UnregisteredNode] = {}
    for group in groups:
        if group.upcoming:
            continue
        if known.issuperset(group.instance_ids):
            continue
        for instance in [each for each in group.instance_ids if each not in known]:
            status = group.instance_status.get(instance, InstanceStatus())
            if status.state == "deleting" or status.error is not None:
                continue
            old = before.get(instance)
            unregistered[instance] = UnregisteredNode(group=group.id, since=now if old is None else old.since)
    return unregistered


def classify_unregistered_nodes(
    state: ClusterStateRegistry, groups: Groups, now: Moment, defaults: NodeGroupAutoscalingOptions
) -> None:
    """Add each unregistered instance to ``unregistered`` or, after its provision time, to ``long_unregistered``.

    Changes these lists of ``state``: of the instance's group and of the cluster. Leaves out instances whose group is
    unknown, has no readable options, or does not own the instance any more.
    """
    for name, item in state.unregistered.items():
        if name in groups.node_errors:
            continue
        owner = groups[item.group]
        if name in owner.gone_instances:
            continue
        try:
            provision = duration(owner.options_or(defaults).max_node_provision_time)
        except ProviderError:
            continue
        kind = "long_unregistered" if item.since + provision < now else "unregistered"
        for record in (state.total, state.readiness.setdefault(owner.id, GroupReadiness())):
            getattr(record, kind).append(name)
