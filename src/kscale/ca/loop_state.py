"""State that a loop passes to the next, as one JSON document.

Upstream keeps this state in the fields of its objects, mainly ``core/static_autoscaler.go``; the trackers are those of
``core/scaledown/latencytracker``, ``nodeevaltracker`` and, for release 1.3, ``simulator/tracker.go``. Go compares its
own times by the monotonic clock, so moments are shifted when the wall clock is set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Final, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from kscale.ca import unremovable_reasons
from kscale.ca.cluster_state import ClusterStateRegistry
from kscale.ca.node_group_set import ScaleUpInfo
from kscale.effects import ZERO_TIME, Moment, moment
from kscale.effects.moments import Count, Nanoseconds
from kscale.errors import InputError, StateError, show_value
from kscale.imports import lazy_pattern
from kscale.objects.argument_types import typed

__all__ = [
    "MAX_USAGE_RECORDED",
    "AsyncInitializer",
    "Deletions",
    "GroupChanges",
    "LoopState",
    "MaxNodeSkipEvalTime",
    "NodeLatency",
    "NodeLatencyTracker",
    "ProvisioningState",
    "RememberedTarget",
    "RememberedTemplate",
    "RetryTimes",
    "ScaleDownState",
    "ScaleUpState",
    "TrackedNode",
    "UsageRecord",
    "UsageTracker",
    "clear_unneeded_nodes",
    "register_group_change",
    "reset_for_new_process",
    "shift_moments",
    "update_group_changes",
    "update_initializers",
]


class MaxNodeSkipEvalTime(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """For how long nodes have not been evaluated for scale-down. Times are nanoseconds since 1970.

    Attributes
    ----------
    last : Moment
        Time of the previous pass.
    since : dict of str to Moment
        Time of the last evaluation of each node that was skipped.
    """

    last: Moment
    since: dict[str, Moment] = {}

    def update(self, skipped: Iterable[str], now: Moment) -> tuple[MaxNodeSkipEvalTime, int]:
        """Return the record after a pass that skipped these nodes, and the longest skip time in nanoseconds."""
        since = {name: self.since.get(name, self.last) for name in skipped}
        return MaxNodeSkipEvalTime(last=now, since=since), now - min([now, *since.values()])


_WAITING_REASONS: Final = frozenset(
    (
        unremovable_reasons.NO_REASON,
        unremovable_reasons.NOT_UNNEEDED_LONG_ENOUGH,
        unremovable_reasons.NOT_UNREADY_LONG_ENOUGH,
    )
)


class TrackedNode(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """An unneeded node.

    Attributes
    ----------
    since : Moment
        Since when it is unneeded, in nanoseconds since 1970.
    threshold : Nanoseconds
        How long it must be unneeded before it is removed, in nanoseconds.
    delay_reason : str
        The last other reason that delayed its removal. Empty: none.
    """

    since: Moment
    threshold: Nanoseconds
    delay_reason: str = ""


class NodeLatency(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """One observation of ``node_removal_latency_seconds``: the node was deleted or is needed again."""

    node: str
    deleted: bool
    delay_reason: str
    latency: int
    """Nanoseconds."""


class _Unneeded(Protocol):
    """An unneeded node, as the planner lists it."""

    @property
    def name(self) -> str:
        """Return the node's name."""
        ...

    @property
    def threshold(self) -> int:
        """Return how long the node must be unneeded before it is deleted, in nanoseconds."""
        ...


class NodeLatencyTracker(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Unneeded nodes whose removal is tracked.

    Attributes
    ----------
    nodes : dict of str to TrackedNode
        The nodes by name.
    """

    nodes: dict[str, TrackedNode] = {}

    def update(self, unneeded: Iterable[_Unneeded], now: Moment) -> tuple[NodeLatencyTracker, list[NodeLatency]]:
        """Return the tracker after a scale-down pass, and the latencies of nodes that are not unneeded any more.

        New nodes in ``unneeded`` count from ``now``; nodes that are needed again are removed. Nodes that were not
        unneeded for longer than their threshold have no latency.
        """
        nodes = {}
        for item in unneeded:
            known = self.nodes.get(item.name, TrackedNode(since=now, threshold=item.threshold))
            nodes[item.name] = msgspec.structs.replace(known, threshold=item.threshold)
        ended = [name for name in self.nodes if name not in nodes]
        return NodeLatencyTracker(nodes=nodes), self._observe(ended, now, deleted=False)

    def process(
        self, unremovable: Mapping[str, str], started: Iterable[str], now: Moment
    ) -> tuple[NodeLatencyTracker, list[NodeLatency]]:
        """Return the tracker after a loop, and the latencies of nodes whose deletion started.

        ``unremovable`` (node -> reason) sets the delay reason of nodes, unless the reason only means that the node
        waits. Nodes that were not unneeded for longer than their threshold have no latency.
        """
        nodes = dict(self.nodes)
        for name, reason in unremovable.items():
            if name in nodes and reason not in _WAITING_REASONS:
                nodes[name] = msgspec.structs.replace(nodes[name], delay_reason=reason)
        marked = NodeLatencyTracker(nodes=nodes)
        deleting = [name for name in dict.fromkeys(started) if name in nodes]
        left = {name: item for name, item in nodes.items() if name not in deleting}
        return NodeLatencyTracker(nodes=left), marked._observe(deleting, now, deleted=True)

    def _observe(self, names: Iterable[str], now: Moment, *, deleted: bool) -> list[NodeLatency]:
        """Return the latencies of the nodes that were unneeded for longer than their threshold; others are left out.

        ``deleted``: whether the deletion of these nodes has started.
        """
        latencies = []
        for name in names:
            item = self.nodes[name]
            latency = now - item.since - item.threshold
            if latency > 0:
                reason = item.delay_reason or "none"
                latencies.append(NodeLatency(node=name, deleted=deleted, delay_reason=reason, latency=latency))
        return latencies


MAX_USAGE_RECORDED: Final = 50


class UsageRecord(msgspec.Struct, rename="camel", omit_defaults=True):
    """Relations of one node to others, with the last time of each in nanoseconds since 1970.

    At most :data:`MAX_USAGE_RECORDED` (50) of either kind are stored; beyond that only the fact that there are too
    many.

    Attributes
    ----------
    using : dict of str to Moment
        Nodes to which its pods would move.
    used_by : dict of str to Moment
        Nodes whose pods would move to it.
    using_too_many : bool
        Whether there are too many nodes to which its pods would move.
    used_by_too_many : bool
        Whether there are too many nodes whose pods would move to it.
    """

    using: dict[str, Moment] = {}
    used_by: dict[str, Moment] = {}
    using_too_many: bool = False
    used_by_too_many: bool = False


class UsageTracker(msgspec.Struct, rename="camel", omit_defaults=True):
    """Relations between nodes: to which nodes pods would move.

    Attributes
    ----------
    records : dict of str to UsageRecord
        Relations of each node, by its name.
    """

    records: dict[str, UsageRecord] = {}

    def copy(self) -> UsageTracker:
        """Return an independent copy."""
        replace = msgspec.structs.replace
        return UsageTracker(
            {
                node: replace(record, using=dict(record.using), used_by=dict(record.used_by))
                for node, record in self.records.items()
            }
        )

    def register(self, node: str, destination: str, time: Moment) -> None:
        """Register that a pod of ``node`` would move to ``destination``, as found at ``time``.

        A full record only stores that there are too many relations.
        """
        record = self.records.setdefault(node, UsageRecord())
        if len(record.using) >= MAX_USAGE_RECORDED:
            record.using_too_many = True
        else:
            record.using[destination] = time
        record = self.records.setdefault(destination, UsageRecord())
        if len(record.used_by) >= MAX_USAGE_RECORDED:
            record.used_by_too_many = True
        else:
            record.used_by[node] = time

    def clean_up(self, cutoff: Moment) -> None:
        """Remove relations older than ``cutoff``, except those of nodes that had too many relations to record."""
        for node, record in list(self.records.items()):
            if not record.using_too_many:
                record.using = {name: time for name, time in record.using.items() if time >= cutoff}
            if not record.used_by_too_many:
                record.used_by = {name: time for name, time in record.used_by.items() if time >= cutoff}
            if not (record.using or record.used_by or record.using_too_many or record.used_by_too_many):
                del self.records[node]

    def remove(self, node: str, unneeded: Collection[str]) -> set[str]:
        """Remove the relations of a removed node, and return the unneeded nodes whose unneeded time restarts.

        These are the node itself, and every node that relied on one of its destinations, where there is less room now.
        If a record has too many relations to be complete, these are all unneeded nodes.
        """
        names = {node}
        record = self.records.pop(node, UsageRecord())
        destination_records = [self.records.get(name, UsageRecord()) for name in record.using]
        if record.using_too_many or any(each.used_by_too_many for each in destination_records):
            names.update(unneeded)
        else:
            names.update(name for each in destination_records for name in each.used_by)
        for each in self.records.values():
            each.using.pop(node, None)
            each.used_by.pop(node, None)
        return names & set(unneeded)


class AsyncInitializer(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """Node groups that are being created in the background together, by their temporary id.

    Attributes
    ----------
    groups : list of str
        Ids of the groups.
    pods : list of str
        Pods that triggered the first scale-up, as ``namespace/name``.
    atomic : bool
        Whether all nodes of a size are needed or none.
    target_sizes : dict of str to Count
        Size of each group once it exists.
    processed_sizes : dict of str to Count
        Size of each group that was requested from the provider so far.
    """

    groups: list[str] = []
    pods: list[str] = []
    atomic: bool = False
    target_sizes: dict[str, Count] = {}
    processed_sizes: dict[str, Count] = {}

    def target_size(self, group: str) -> int:
        """Return the target size of a group; 0 if none is set."""
        return self.target_sizes.get(group, 0)

    def with_target_size(self, group: str, size: int) -> AsyncInitializer:
        """Return a copy with this target size of a group."""
        return replace(self, target_sizes={**self.target_sizes, group: size})

    def with_changed_target_size(self, group: str, delta: int) -> AsyncInitializer:
        """Return a copy with a group's target size changed by ``delta``, never below 0."""
        return self.with_target_size(group, max(0, self.target_size(group) + delta))


def update_initializers(
    initializers: Mapping[str, AsyncInitializer], resized: Iterable[ScaleUpInfo]
) -> dict[str, AsyncInitializer]:
    """Return the initializers after groups were resized; the target sizes of groups that are being created change.

    ``initializers`` are by the id of the group that is being created. Other groups in ``resized`` are ignored.
    """
    after = dict(initializers)
    for info in resized:
        for name, item in after.items():
            if info.group in item.groups:
                after[name] = item.with_changed_target_size(info.group, info.new - info.current)
    return after


RetryTimes = dict[str, Nanoseconds]
"""Backoff of a request after its next failure (nanoseconds, by UID); the entry used last is the last one."""


class _State(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A part of the state that a loop saves; only fields that differ from their default are saved."""


class ProvisioningState(_State, kw_only=True, frozen=True):
    """State of provisioning requests.

    Attributes
    ----------
    retries : RetryTimes
        Back-off of each request after its next failure, in nanoseconds, by UID of the request. The last entry is the
        one that was used last.
    requests_next : bool
        Whether the next scale-up is for a request if pods wait as well (upstream's ``ProvisioningRequestScaleUpMode``).
    hints : dict of str to str
        Node to which each pod of a request would go according to the capacity checks, by UID of the pod.
    booking_hints : dict of str to str
        Node for which each pod of a request was booked, by UID of the pod.
    last_processed : Moment or None
        When a request was last accepted, given up or processed, in nanoseconds since 1970. None: never.
    """

    retries: RetryTimes = {}
    requests_next: bool = False
    hints: dict[str, str] = {}
    booking_hints: dict[str, str] = {}
    last_processed: Moment | None = None


_T = TypeVar("_T", bound=msgspec.Struct)
_MOMENT_PATTERN: Final = lazy_pattern(r"\bMoment\b")


def shift_moments(state: _T, by: int) -> _T:
    """Return a copy with every moment later by ``by`` nanoseconds, also in nested structs, dicts and lists.

    Moments are fields whose annotation names :data:`Moment`. :data:`ZERO_TIME`, which means no moment, stays. Returns
    ``state`` itself if it has no moments.
    """
    changes = {}
    for name in state.__struct_fields__:
        old = getattr(state, name)
        new = _shift_value(old, by) if name in _find_moment_fields(type(state)) else _shift_nested(old, by)
        if new is not old:
            changes[name] = new
    return msgspec.structs.replace(state, **changes) if changes else state


@cache
def _find_moment_fields(of: type) -> frozenset[str]:
    """Return the names of the fields of the type ``of`` that are moments, or dicts of moments."""
    annotations = {
        name: str(text) for base in of.__mro__ for name, text in getattr(base, "__annotations__", {}).items()
    }
    return frozenset(name for name, text in annotations.items() if _MOMENT_PATTERN.search(text))


def _shift_value(value: Any, by: int) -> Any:
    """Return a moment, or a dict of moments, later by ``by`` nanoseconds. None and ZERO_TIME stay."""
    if isinstance(value, dict):
        return {key: _shift_value(each, by) for key, each in value.items()} if value else value
    if value is None or value == ZERO_TIME:
        return value
    moment: Moment = value + by
    return moment


def _shift_nested(value: Any, by: int) -> Any:
    """Return a value with the moments of the structs in it later by ``by`` nanoseconds; itself without moments."""
    if isinstance(value, msgspec.Struct):
        return shift_moments(value, by)
    if isinstance(value, dict):
        shifted = {key: _shift_nested(each, by) for key, each in value.items()}
        return shifted if any(shifted[key] is not value[key] for key in value) else value
    if isinstance(value, list):
        items = [_shift_nested(each, by) for each in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


_STATE_KIND: Final = "LoopState"
_STATE_VERSION: Final = 2


class GroupChanges(msgspec.Struct, kw_only=True, rename="camel"):
    """Times of the last changes of each group, by group id. Times are nanoseconds since 1970. Carried from loop to
    loop.

    Attributes
    ----------
    scale_up : dict of str to Moment
        Last time at which the group grew.
    scale_down : dict of str to Moment
        Last time at which the group lost a node.
    scale_down_failure : dict of str to Moment
        Last time at which a node of the group could not be deleted.
    """

    scale_up: dict[str, Moment] = {}
    scale_down: dict[str, Moment] = {}
    scale_down_failure: dict[str, Moment] = {}


def update_group_changes(changes: GroupChanges, kind: str, group: str, time: Moment) -> GroupChanges:
    """Return a copy of ``changes`` in which the last change of this ``kind`` of the group was at ``time``.

    ``kind`` is the name of a field of :class:`GroupChanges`. Raises InputError for any other ``kind``.
    """
    if kind not in GroupChanges.__struct_fields__:
        raise InputError(f"kind is {show_value(kind)}: one of {', '.join(GroupChanges.__struct_fields__)}")
    return msgspec.structs.replace(changes, **{kind: {**getattr(changes, kind), group: time}})


class Deletions(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """Deletions of nodes that have begun and not ended: id of the node group by name of the node.

    Attributes
    ----------
    empty : dict of str to str
        Nodes that were empty.
    drained : dict of str to str
        Nodes that are drained.
    """

    empty: dict[str, str] = {}
    drained: dict[str, str] = {}


class ScaleDownState(_State, kw_only=True, frozen=True):
    """State of scale-down. Times are nanoseconds since 1970; null or absent: never.

    Scale-ups set their times; deletions are recorded by :func:`kscale.ca.run_once`, or by the executor of a plan.

    Attributes
    ----------
    unneeded_since : dict of str to Moment
        Since when each unneeded node is unneeded.
    unremovable_until : dict of str to Moment
        Until when each node that could not be removed is not checked again.
    previous_candidates : list of str
        Nodes that were unneeded in the last loop.
    hints : dict of str to str
        Node to which each pod of removed nodes would go, by UID of the pod (profile ``legacy``: by ``namespace/name``).
    injected_hints : dict of str to str
        Node to which each recently evicted pod would go, by UID of the pod (profile ``legacy``: by ``namespace/name``).
    update_interval : Annotated[Nanoseconds, msgspec.Meta(ge=0)] or None
        Shortest time between two loops so far, in nanoseconds. None: unknown.
    last_update : Moment or None
        Time of the last loop.
    changes : GroupChanges
        When each group last changed.
    last_scale_up : Moment or None
        When any group last grew.
    last_scale_down : Moment or None
        When a node was last deleted.
    last_failure : Moment or None
        When a deletion last failed.
    started : bool
        Whether the taints of an earlier process have been read.
    usage : UsageTracker
        Only of the profile ``legacy``: nodes to which pods of other nodes would move.
    """

    unneeded_since: dict[str, Moment] = {}
    unremovable_until: dict[str, Moment] = {}
    previous_candidates: list[str] = []
    hints: dict[str, str] = {}
    injected_hints: dict[str, str] = {}
    update_interval: Annotated[Nanoseconds, msgspec.Meta(ge=0)] | None = None
    last_update: Moment | None = None
    changes: GroupChanges = msgspec.field(default_factory=GroupChanges)
    last_scale_up: Moment | None = None
    last_scale_down: Moment | None = None
    last_failure: Moment | None = None
    started: bool = False
    usage: UsageTracker = msgspec.field(default_factory=UsageTracker)


class ScaleUpState(_State, kw_only=True, frozen=True):
    """State of scale-up.

    Attributes
    ----------
    hints, old_hints : dict of str to str
        Existing node to which each pod would go, by UID of the pod, in two generations.
    degraded_loops : Count
        Number of consecutive loops without time for every pod (graceful degradation). 0: there was time.
    """

    hints: dict[str, str] = {}
    old_hints: dict[str, str] = {}
    degraded_loops: Count = 0


class RememberedTemplate(_State, kw_only=True, frozen=True):
    """A template of a node group that was built from a real node.

    Attributes
    ----------
    template : dict of str to Any
        The template as JSON data, without fields that may be secret.
    added : Moment
        Time at which it was built, in nanoseconds since 1970.
    """

    template: dict[str, Any]
    added: Moment


class RememberedTarget(_State, kw_only=True, frozen=True):
    """Target size of a node group at the end of a loop.

    Attributes
    ----------
    target : Count
        The target size.
    described : Count or None
        Target size in the description of the group at that time. None: it had none.
    """

    target: Count
    described: Count | None = None


class LoopState(_State, kw_only=True, frozen=True):
    """State that one loop of the Cluster Autoscaler passes to the next.

    Attributes
    ----------
    cursor : Annotated[Count, msgspec.Meta(ge=0, lt=1 << 62)]
        Position of the scan over nodes; scale-up and scale-down of one loop share it.
    cluster : ClusterStateRegistry
        Readiness, pending requests and back-off of the node groups.
    scale_up : ScaleUpState
        State of scale-up.
    scale_down : ScaleDownState
        State of scale-down.
    templates : dict of str to RememberedTemplate
        Template of each group, from when it had a good node.
    initializers : dict of str to AsyncInitializer
        Requested sizes of groups that are still being created, by their temporary id.
    deletions : Deletions
        Nodes that are being deleted.
    taints_cleaned : bool
        Whether taints that an earlier process left on nodes have been removed.
    latencies : NodeLatencyTracker
        For how long unneeded nodes wait for their deletion, if that is tracked.
    skipped : MaxNodeSkipEvalTime or None
        For how long nodes have not been evaluated. None: that is not tracked.
    provisioning : ProvisioningState
        State of provisioning requests.
    differing_drivers : list of str
        Drivers whose devices differed from the templates at the last comparison.
    targets : dict of str to RememberedTarget
        Target size of each group whose new nodes have not all registered. Until then it counts for a caller who
        describes the group as before.
    """

    cursor: Annotated[Count, msgspec.Meta(ge=0, lt=1 << 62)] = 0
    cluster: ClusterStateRegistry = msgspec.field(default_factory=ClusterStateRegistry)
    scale_up: ScaleUpState = msgspec.field(default_factory=ScaleUpState)
    scale_down: ScaleDownState = msgspec.field(default_factory=ScaleDownState)
    templates: dict[str, RememberedTemplate] = {}
    initializers: dict[str, AsyncInitializer] = {}
    deletions: Deletions = Deletions()
    taints_cleaned: bool = False
    latencies: NodeLatencyTracker = NodeLatencyTracker()
    skipped: MaxNodeSkipEvalTime | None = None
    provisioning: ProvisioningState = ProvisioningState()
    differing_drivers: list[str] = []
    targets: dict[str, RememberedTarget] = {}

    def to_json(self) -> bytes:
        """Encode the state as JSON."""
        return msgspec.json.encode({"kind": _STATE_KIND, "version": _STATE_VERSION, **msgspec.to_builtins(self)})

    @staticmethod
    def from_json(text: bytes | str) -> LoopState:
        """Decode the state from JSON (``text``).

        Raises StateError if it is damaged, has unknown fields, or is of another kind or version than :meth:`to_json`
        writes.
        """
        try:
            data = msgspec.json.decode(text, type=dict)
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, TypeError) as problem:
            raise StateError(f"not a saved loop state: {problem}") from None
        except RecursionError:
            raise StateError("not a saved loop state: nested too deeply") from None
        kind, version = data.pop("kind", None), data.pop("version", None)
        if kind != _STATE_KIND:
            raise StateError(f"not a saved loop state: its kind is {kind!r}")
        if type(version) is not int or version != _STATE_VERSION:
            raise StateError(f"a loop state of version {version!r}; this is version {_STATE_VERSION}")
        try:
            state: LoopState = msgspec.convert(data, LoopState)
        except (msgspec.ValidationError, ValueError) as problem:
            raise StateError(f"not a saved loop state: {problem}") from None
        return state


@typed
def clear_unneeded_nodes(state: LoopState) -> LoopState:
    """Return the state without unneeded nodes, as after a loop over an unhealthy cluster.

    The times in deletion candidate taints of an earlier process are not read any more.
    """
    memory = msgspec.structs.replace(state.scale_down, unneeded_since={}, started=True)
    return msgspec.structs.replace(state, scale_down=memory)


@typed
def reset_for_new_process(state: LoopState) -> LoopState:
    """Return the state that a new process can continue with.

    Deletions of the earlier process are dropped, and its taints on nodes will be removed.
    """
    return msgspec.structs.replace(state, deletions=Deletions(), taints_cleaned=False)


@typed
def register_group_change(state: LoopState, kind: str, group: str, time: datetime | Moment) -> LoopState:
    """Return the state in which the last change of this ``kind`` of a group was at ``time``.

    Scale-down waits after these changes with ``--scale-down-delay-type-local``.
    ``kind`` is ``scale_up``, ``scale_down`` or ``scale_down_failure``. Raises InputError for any other ``kind``, and if
    ``time`` is not a time.
    """
    memory = state.scale_down
    changes = update_group_changes(memory.changes, kind, group, moment(time, "time"))
    return msgspec.structs.replace(state, scale_down=msgspec.structs.replace(memory, changes=changes))
