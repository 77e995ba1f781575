"""What the autoscaler believes about its node groups: readiness, requests under way, back-off, sizes to expect.

Upstream: ``clusterstate/clusterstate.go``. The state is plain data: it goes in, the new one comes out, and it survives
JSON. Where upstream acts in the middle (giving up on nodes that never came) :func:`update_nodes_steps` is a step
machine; :func:`update_nodes` runs it as if every action succeeded.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterable, Mapping
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from kscale.ca.backoff import Backoff, ScaleUpError, backed_off, drop_stale, record_failure
from kscale.ca.clock import duration_ns, format_duration, moment_ns, text_ns
from kscale.ca.errors import AutoscalerError
from kscale.ca.events import Event
from kscale.ca.groups import Group, Groups, InstanceStatus
from kscale.ca.node_lists import RESOURCE_NOT_READY
from kscale.ca.nodes import TO_BE_DELETED_TAINT, has_taint, life_of, readiness
from kscale.ca.options import AutoscalingOptions, NodeGroupAutoscalingOptions
from kscale.objects.core import Node

__all__ = [
    "AcceptableRange",
    "ClusterState",
    "ClusterUpdate",
    "DecreaseTargetSize",
    "GroupReadiness",
    "IncorrectSize",
    "ScaleDownRequest",
    "ScaleUpFailure",
    "ScaleUpRequest",
    "UnregisteredNode",
    "UpcomingNodes",
    "autoscaled_nodes_count",
    "backoff_status",
    "is_cluster_healthy",
    "is_group_healthy",
    "is_safe_to_scale_up",
    "is_scaling_up",
    "recalculate",
    "register_failed_scale_up",
    "register_scale_down",
    "register_scale_up",
    "upcoming_count",
    "upcoming_nodes",
    "update_nodes",
    "update_nodes_steps",
]

SCALE_DOWN_TIMEOUT = timedelta(minutes=5)
"""For how long a deletion that the cloud accepted is still expected to show."""


# -- the state -------------------------------------------------------------------------------------------------


class ScaleUpRequest(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Nodes that were asked for and have not all come."""

    increase: int
    time: datetime
    expected_add_time: datetime


class ScaleDownRequest(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A node that is being deleted."""

    group: str
    node: str
    time: datetime
    expected_delete_time: datetime


class ScaleUpFailure(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A scale-up that failed in this loop."""

    time: datetime
    delta: int
    error: ScaleUpError


class UnregisteredNode(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """An instance without a node object, and since when it has been seen."""

    group: str
    since: datetime


class GroupReadiness(msgspec.Struct, kw_only=True, rename="camel"):
    """Names of nodes by what they are. ``registered`` has every node; the others share them out."""

    registered: list[str] = []
    ready: list[str] = []
    unready: list[str] = []
    not_started: list[str] = []
    suspended: list[str] = []
    deleted: list[str] = []
    unregistered: list[str] = []
    long_unregistered: list[str] = []
    resource_unready: list[str] = []


class AcceptableRange(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """How many nodes a group may have without anything being wrong."""

    min_nodes: int = 0
    max_nodes: int = 0
    current_target: int = 0


class IncorrectSize(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A group that has another number of nodes than its target says, and since when."""

    current: int
    expected: int
    first_observed: datetime


class ClusterState(msgspec.Struct, kw_only=True, rename="camel"):
    """Everything that is kept from loop to loop, by group id. Functions of this module return new states."""

    scale_up_requests: dict[str, ScaleUpRequest] = {}
    scale_down_requests: list[ScaleDownRequest] = []
    backoffs: dict[str, Backoff] = {}
    failures: dict[str, list[ScaleUpFailure]] = {}
    """Since the caller last emptied them; upstream does at the start of every loop."""
    unregistered: dict[str, UnregisteredNode] = {}
    create_errors: dict[str, list[str]] = {}
    """Instances that were seen failing, by group."""
    readiness: dict[str, GroupReadiness] = {}
    total: GroupReadiness = msgspec.field(default_factory=GroupReadiness)
    node_count: int = 0
    """How many nodes the last update was given."""
    ranges: dict[str, AcceptableRange] = {}
    incorrect_sizes: dict[str, IncorrectSize] = {}


class ClusterUpdate(msgspec.Struct, kw_only=True):
    """A new state and the events that upstream would have sent."""

    state: ClusterState
    events: list[Event] = []


class DecreaseTargetSize(msgspec.Struct, kw_only=True, frozen=True):
    """An action: lower a group's target size (``delta`` is negative). Its outcome is an error text or None."""

    group: str
    delta: int


class UpcomingNodes(msgspec.Struct, kw_only=True, frozen=True):
    """How many nodes of a group are still to come, and the names of those that are there but have not started."""

    count: int
    registered: list[str] = []


# -- registering -----------------------------------------------------------------------------------------------


def register_scale_up(
    state: ClusterState, group: Group, delta: int, now: datetime, options: AutoscalingOptions
) -> ClusterState:
    """After a group's size was raised by ``delta`` (or lowered: negative).

    A request grows by what is added; adding nodes starts its time anew. Ignored if the group's options cannot be read.
    """
    try:
        provision = group.options_or(options.node_group_defaults).max_node_provision_time
    except AutoscalerError:
        return state
    requests = dict(state.scale_up_requests)
    old = requests.get(group.id)
    if old is None:
        if delta > 0:
            requests[group.id] = ScaleUpRequest(increase=delta, time=now, expected_add_time=now + provision)
    elif old.increase + delta <= 0:
        del requests[group.id]
    else:
        requests[group.id] = ScaleUpRequest(
            increase=old.increase + delta,
            time=now if delta > 0 else old.time,
            expected_add_time=now + provision if delta > 0 else old.expected_add_time,
        )
    return replace(state, scale_up_requests=requests)


def register_scale_down(state: ClusterState, group: str, node: str, now: datetime) -> ClusterState:
    """After the cloud accepted the deletion of a node."""
    request = ScaleDownRequest(group=group, node=node, time=now, expected_delete_time=now + SCALE_DOWN_TIMEOUT)
    return replace(state, scale_down_requests=[*state.scale_down_requests, request])


def register_failed_scale_up(
    state: ClusterState,
    group: str,
    error: ScaleUpError,
    delta: int,
    now: datetime,
    options: AutoscalingOptions,
    *,
    has_template: bool = True,
) -> ClusterState:
    """After a scale-up failed. A group without template never enters back-off, as upstream has it."""
    failure = ScaleUpFailure(time=now, delta=delta, error=error)
    failures = {**state.failures, group: [*state.failures.get(group, []), failure]}
    backoffs = state.backoffs
    if has_template:
        backoffs = record_failure(
            backoffs,
            group,
            error,
            now,
            initial=options.initial_node_group_backoff_duration,
            maximum=options.max_node_group_backoff_duration,
        )
    return replace(state, failures=failures, backoffs=backoffs)


# -- updating --------------------------------------------------------------------------------------------------


def update_nodes(
    state: ClusterState,
    nodes: Iterable[Node],
    groups: Groups,
    *,
    now: datetime,
    options: AutoscalingOptions | None = None,
    templates: Container[str] | None = None,
    has_instance: Mapping[str, bool] | None = None,
) -> ClusterUpdate:
    """The state after a look at the nodes, as if every action succeeded; see :func:`update_nodes_steps`."""
    steps = update_nodes_steps(
        state, nodes, groups, now=now, options=options, templates=templates, has_instance=has_instance
    )
    try:
        next(steps)
        while True:
            steps.send(None)
    except StopIteration as stop:
        update: ClusterUpdate = stop.value
        return update


def update_nodes_steps(
    state: ClusterState,
    nodes: Iterable[Node],
    groups: Groups,
    *,
    now: datetime,
    options: AutoscalingOptions | None = None,
    templates: Container[str] | None = None,
    has_instance: Mapping[str, bool] | None = None,
) -> Generator[DecreaseTargetSize, str | None, ClusterUpdate]:
    """Classifies nodes, ends requests that are fulfilled or overdue, and works out what sizes to expect.

    - ``templates``: ids of groups that have a template (None: all have); only those enter back-off.
    - ``has_instance``: the provider's answers by node name; for a node without answer a machine is assumed unless the
      node is tainted for deletion.

    Yields a :class:`DecreaseTargetSize` for every request that timed out and is sent an error text or None. Raises
    :class:`AutoscalerError` if a group's target size cannot be read.
    """
    options = options or AutoscalingOptions()
    targets = _targets(groups)
    update = _Update(state, groups, targets, now, options, templates)
    update.classify(list(nodes), has_instance or {})
    update.set_ranges()
    yield from update.end_requests()
    update.creation_errors()
    update.set_ranges()
    update.set_incorrect_sizes()
    return ClusterUpdate(state=update.state, events=update.events)


def recalculate(state: ClusterState, groups: Groups) -> ClusterState:
    """The expected sizes anew from the provider's target sizes; all zero if one of those cannot be read."""
    try:
        targets = _targets(groups)
    except AutoscalerError:
        targets = {}
    return replace(state, ranges=_ranges(state, groups, targets))


def _targets(groups: Groups) -> dict[str, int]:
    for group in groups:
        if group.target_size_error is not None:
            raise AutoscalerError("", group.target_size_error)
    return {group.id: group.target_size for group in groups}


def _ranges(state: ClusterState, groups: Groups, targets: Mapping[str, int]) -> dict[str, AcceptableRange]:
    ranges: dict[str, AcceptableRange] = {}
    for group in groups:
        if not group.async_upcoming:
            size = targets.get(group.id, 0)
            known = state.readiness.get(group.id)
            missing = len(known.long_unregistered) if known is not None else 0
            ranges[group.id] = AcceptableRange(min_nodes=size - missing, max_nodes=size, current_target=size)
    for name, request in state.scale_up_requests.items():
        old = ranges.get(name, AcceptableRange())
        ranges[name] = replace(old, min_nodes=old.min_nodes - request.increase)
    for item in state.scale_down_requests:
        old = ranges.get(item.group, AcceptableRange())
        ranges[item.group] = replace(old, max_nodes=old.max_nodes + 1)
    return ranges


class _Update:
    """One update: a state under construction."""

    def __init__(
        self,
        state: ClusterState,
        groups: Groups,
        targets: dict[str, int],
        now: datetime,
        options: AutoscalingOptions,
        templates: Container[str] | None,
    ) -> None:
        self.state = replace(state)
        self.groups = groups
        self.targets = targets
        self.now = now
        self.options = options
        self.templates = templates
        self.events: list[Event] = []

    def warn(self, reason: str, message: str) -> None:
        where = f"ConfigMap/{self.options.namespace}/{self.options.status_config_map_name}"
        self.events.append(Event(object=where, type="Warning", reason=reason, message=message))

    # -- readiness ---------------------------------------------------------------------------------------------

    def classify(self, nodes: list[Node], has_instance: Mapping[str, bool]) -> None:
        self.state.readiness = {}
        self.state.total = GroupReadiness()
        self.state.node_count = len(nodes)
        now_ns = moment_ns(self.now)
        defaults = self.options.node_group_defaults
        # One variable for the whole pass: a node whose group says nothing inherits from the node before it.
        startup = duration_ns(self.options.max_node_startup_time)
        startup_of: dict[str, int | None] = {}
        total = self.state.total
        for node in nodes:
            name = node.metadata.name
            try:
                group = self.groups.of_node(name)
            except AutoscalerError:
                group = None
            targets: tuple[GroupReadiness, ...] = (total,)
            if group is not None:
                if group.id not in startup_of:
                    startup_of[group.id] = _startup(group, defaults)
                own = startup_of[group.id]
                startup = startup if own is None else own
                targets = total, self.state.readiness.setdefault(group.id, GroupReadiness())
            gone = not has_instance[name] if name in has_instance else has_taint(node, TO_BE_DELETED_TAINT)
            kinds = _kinds(node, gone, now_ns - startup)
            for target in targets:
                target.registered.append(name)
                for kind in kinds:
                    getattr(target, kind).append(name)
        self._find_unregistered(nodes)

    def _records(self, group: Group | None) -> list[GroupReadiness]:
        if group is None:
            return [self.state.total]
        return [self.state.total, self.state.readiness.setdefault(group.id, GroupReadiness())]

    def _find_unregistered(self, nodes: list[Node]) -> None:
        registered = {node.spec.provider_id for node in nodes}
        found: dict[str, UnregisteredNode] = {}
        for group in self.groups:
            if group.async_upcoming:
                continue
            for instance in group.instances:
                status = group.instance_status.get(instance, InstanceStatus())
                if instance in registered or status.state == "deleting" or status.error is not None:
                    continue
                old = self.state.unregistered.get(instance)
                found[instance] = UnregisteredNode(group=group.id, since=self.now if old is None else old.since)
        self.state.unregistered = found
        for name, item in found.items():
            owner = self.groups[item.group]
            try:
                provision = owner.options_or(self.options.node_group_defaults).max_node_provision_time
            except AutoscalerError:
                continue
            kind = "long_unregistered" if item.since + provision < self.now else "unregistered"
            for target in self._records(owner):
                getattr(target, kind).append(name)

    # -- requests ----------------------------------------------------------------------------------------------

    def set_ranges(self) -> None:
        self.state.ranges = _ranges(self.state, self.groups, self.targets)

    def end_requests(self) -> Generator[DecreaseTargetSize, str | None, None]:
        reset = self.options.node_group_backoff_reset_timeout
        self.state.backoffs = drop_stale(self.state.backoffs, self.now, reset)
        # Upstream walks the requests in random order; this is the provider's.
        order = [group.id for group in self.groups]
        names = [name for name in order if name in self.state.scale_up_requests]
        names += [name for name in self.state.scale_up_requests if name not in self.groups]
        for name in names:
            request = self.state.scale_up_requests[name]
            group = self.groups.get(name)
            if group is not None and group.async_upcoming:
                continue
            if upcoming_count(self.state, name) <= 0 or group is None:
                self._drop_request(name)
            elif request.expected_add_time < self.now:
                took = format_duration(self.now - request.time)
                self.warn("ScaleUpTimedOut", f"Nodes added to group {name} failed to register within {took}")
                message = f"Scale-up timed out for node group {name} after {took}"
                self._fail(name, ScaleUpError(class_="Other", code="timeout", message=message), request.increase)
                error = yield DecreaseTargetSize(group=name, delta=-request.increase)
                if error is not None:
                    text = f"Failed to decrease target size for group {name} after scale-up timeout: {error}"
                    self.warn("FailedToRevertScaleUp", text)
                self._drop_request(name)
        self.state.scale_down_requests = [
            item for item in self.state.scale_down_requests if item.expected_delete_time > self.now
        ]

    def _drop_request(self, name: str) -> None:
        requests = dict(self.state.scale_up_requests)
        del requests[name]
        self.state.scale_up_requests = requests

    def _fail(self, group: str, error: ScaleUpError, delta: int) -> None:
        has_template = self.templates is None or group in self.templates
        self.state = register_failed_scale_up(
            self.state, group, error, delta, self.now, self.options, has_template=has_template
        )

    # -- instances that could not be made ----------------------------------------------------------------------

    def creation_errors(self) -> None:
        previous = self.state.create_errors
        current: dict[str, list[str]] = {}
        for group in self.groups:
            if group.async_upcoming:
                continue
            failing: dict[tuple[str, str], list[str]] = {}
            for instance in group.instances:
                status = group.instance_status.get(instance)
                if status is not None and status.state == "creating" and status.error is not None:
                    failing.setdefault((status.error.code, status.error.class_), []).append(instance)
            names = [name for members in failing.values() for name in members]
            if names:
                current[group.id] = names
            seen = set(previous.get(group.id, ()))
            for (code, class_), members in failing.items():
                unseen = [name for name in members if name not in seen]
                if unseen and is_scaling_up(self.state, group.id):
                    self._creation_error(group, code, class_, unseen)
        self.state.create_errors = current

    def _creation_error(self, group: Group, code: str, class_: str, unseen: list[str]) -> None:
        errors = [group.instance_status[name].error for name in unseen]
        texts = list(dict.fromkeys(error.message for error in errors if error is not None))
        message = ", ".join(texts) + (", ..." if len(texts) > 3 else "")
        self.warn(
            "ScaleUpFailed",
            f"Failed adding {len(unseen)} nodes to group {group.id} due to {class_}.{code}; source errors: {message}",
        )
        self.state = register_scale_up(self.state, group, -len(unseen), self.now, self.options)
        self._fail(group.id, ScaleUpError(class_=class_, code=code, message=message), len(unseen))

    # -- sizes -------------------------------------------------------------------------------------------------

    def set_incorrect_sizes(self) -> None:
        found: dict[str, IncorrectSize] = {}
        for group in self.groups:
            known = self.state.readiness.get(group.id)
            expected = self.state.ranges.get(group.id)
            if group.async_upcoming or known is None or expected is None:
                continue
            target = expected.current_target
            registered = len(known.registered)
            waiting = len(known.unregistered) + len(known.long_unregistered)
            if registered > target or registered < target - waiting:
                old = self.state.incorrect_sizes.get(group.id)
                same = old is not None and (old.current, old.expected) == (registered, target)
                found[group.id] = (
                    old
                    if old is not None and same
                    else IncorrectSize(current=registered, expected=target, first_observed=self.now)
                )
        self.state.incorrect_sizes = found


def _startup(group: Group, defaults: NodeGroupAutoscalingOptions) -> int | None:
    """How long nodes of a group may take to start, in nanoseconds; None if its options cannot be read."""
    try:
        return duration_ns(group.options_or(defaults).max_node_startup_time)
    except AutoscalerError:
        return None


def _kinds(node: Node, gone: bool, young_since: int) -> tuple[str, ...]:
    """The lists that a node belongs to besides ``registered``; made after ``young_since`` it may still be starting."""
    if gone:
        return ("deleted",)
    ready, suspended = life_of(node)
    if suspended:
        return ("suspended",)
    if ready:
        return ("ready",)
    if text_ns(node.metadata.creation_timestamp) > young_since:
        return ("not_started",)
    return ("unready", "resource_unready") if readiness(node).reason == RESOURCE_NOT_READY else ("unready",)


# -- asking ----------------------------------------------------------------------------------------------------


def upcoming_count(state: ClusterState, group: str) -> int:
    """How many nodes the group should have and has not, whatever became of them; negative for too many."""
    expected = state.ranges.get(group)
    if expected is None:
        return 0
    known = state.readiness.get(group)
    if known is None:
        return expected.current_target
    return expected.current_target - (
        len(known.ready) + len(known.unready) + len(known.suspended) + len(known.long_unregistered)
    )


def is_scaling_up(state: ClusterState, group: str) -> bool:
    """Whether nodes were asked for and are still to come."""
    return group in state.scale_up_requests and upcoming_count(state, group) > 0


def backoff_status(state: ClusterState, group: str, now: datetime, *, has_template: bool = True) -> Backoff | None:
    """The back-off in force for a group; a group without template is never in back-off."""
    return backed_off(state.backoffs, group, now) if has_template else None


def upcoming_nodes(state: ClusterState, groups: Groups, now: datetime) -> dict[str, UpcomingNodes]:
    """By group, in the provider's order, the nodes that are expected: asked for, not there, not in back-off.

    A group that is still being created expects its whole target size (0 if that cannot be read).
    """
    found: dict[str, UpcomingNodes] = {}
    for group in groups:
        if group.async_upcoming:
            size = 0 if group.target_size_error is not None else group.target_size
            found[group.id] = UpcomingNodes(count=size)
        elif is_scaling_up(state, group.id) and backed_off(state.backoffs, group.id, now) is None:
            known = state.readiness.get(group.id)
            found[group.id] = UpcomingNodes(
                count=upcoming_count(state, group.id), registered=[] if known is None else list(known.not_started)
            )
    return found


def is_cluster_healthy(state: ClusterState, options: AutoscalingOptions) -> bool:
    """Healthy unless more nodes than ``ok_total_unready_count`` and than the percentage of all are unready."""
    unready = len(state.total.unready)
    share = options.max_total_unready_percentage / 100.0 * state.node_count
    return not (unready > options.ok_total_unready_count and unready > share)


def is_group_healthy(state: ClusterState, group: str, options: AutoscalingOptions) -> bool:
    """Healthy unless too many nodes are missing. A group of unknown size is not."""
    expected = state.ranges.get(group)
    if expected is None:
        return False
    known = state.readiness.get(group)
    if known is None:
        return expected.current_target == 0 or (expected.min_nodes == 0 and expected.current_target > 0)
    missing = max(0, expected.min_nodes - len(known.ready) - len(known.suspended))
    present = len(known.ready) + len(known.unready) + len(known.not_started) + len(known.suspended)
    share = options.max_total_unready_percentage / 100.0 * present
    return not (missing > options.ok_total_unready_count and missing > share)


def is_safe_to_scale_up(
    state: ClusterState, group: str, now: datetime, options: AutoscalingOptions, *, has_template: bool = True
) -> bool:
    """Healthy and not in back-off."""
    if not is_group_healthy(state, group, options):
        return False
    return backoff_status(state, group, now, has_template=has_template) is None


def autoscaled_nodes_count(state: ClusterState) -> tuple[int, int]:
    """(nodes of groups that have started, target sizes of the groups)."""
    current = sum(len(known.registered) - len(known.not_started) for known in state.readiness.values())
    return current, sum(item.current_target for item in state.ranges.values())
