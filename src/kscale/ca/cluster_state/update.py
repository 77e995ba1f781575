"""Register scale-ups, scale-downs and failed scale-ups of node groups, and fail scale-ups that are overdue (upstream:
``RegisterScaleUp``, ``RegisterScaleDown``, ``RegisterFailedScaleUp``, ``updateScaleRequests``).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from kscale.ca.cluster_state.health import (
    compute_acceptable_ranges,
    count_upcoming_nodes,
    find_incorrect_sizes,
    get_target_sizes,
    is_scaling_up,
)
from kscale.ca.cluster_state.state import (
    ClusterStateRegistry,
    ScaleDownRequest,
    ScaleUpError,
    ScaleUpFailure,
    ScaleUpRequest,
    classify_nodes,
    classify_unregistered_nodes,
    find_unregistered_nodes,
    record_failure,
    remove_stale_backoffs,
)
from kscale.ca.errors import AutoscalerError
from kscale.ca.events import build_status_events
from kscale.ca.nodes import RegisteredNodes
from kscale.ca.options import AutoscalingOptions, default_options
from kscale.effects import (
    SECOND,
    DecreaseTargetSize,
    Emit,
    Event,
    Moment,
    Progress,
    StepsOf,
    duration,
    later,
    moment,
    run_dry,
)
from kscale.effects.moments import ComparedDuration
from kscale.objects.api.core import Node
from kscale.objects.nodegroup import Groups, NodeGroup, ProviderError
from kscale.objects.times import format_duration

__all__ = [
    "ClusterUpdate",
    "ClusterUpdateAction",
    "clear_scale_up_failures",
    "get_scale_up_time",
    "register_failed_scale_up",
    "register_scale_down",
    "register_scale_up",
    "update_nodes",
    "update_nodes_steps",
    "update_scale_down_candidates",
]


SCALE_DOWN_TIMEOUT: Final[ComparedDuration] = 300 * SECOND
"""For how long a deletion that the cloud accepted is still expected to show."""


def register_scale_up(
    state: ClusterStateRegistry, group: NodeGroup, delta: int, now: datetime | Moment, options: AutoscalingOptions
) -> ClusterStateRegistry:
    """Return the state after the target size of a group changed by ``delta`` (negative: decreased).

    A pending request grows by ``delta``, and ends if nothing of it is left; a positive ``delta`` restarts its time.
    Without a request only a positive ``delta`` starts one. The state is returned unchanged if the group's options
    cannot be read. Raises InputError if ``now`` is not a time.
    """
    now = moment(now)
    try:
        provision = duration(group.options_or(options.node_group_defaults).max_node_provision_time)
    except ProviderError:
        return state
    requests = dict(state.scale_up_requests)
    old = requests.get(group.id)
    if old is None:
        if delta > 0:
            requests[group.id] = ScaleUpRequest(increase=delta, time=now, expected_add_time=later(now, provision))
    elif old.increase + delta <= 0:
        del requests[group.id]
    else:
        requests[group.id] = ScaleUpRequest(
            increase=old.increase + delta,
            time=now if delta > 0 else old.time,
            expected_add_time=later(now, provision) if delta > 0 else old.expected_add_time,
        )
    return replace(state, scale_up_requests=requests)


def register_scale_down(
    state: ClusterStateRegistry, group: str, node: str, now: datetime | Moment
) -> ClusterStateRegistry:
    """Return the state with a node deletion that the cloud provider accepted at ``now``.

    Raises InputError if ``now`` is not a time.
    """
    now = moment(now)
    request = ScaleDownRequest(group=group, node=node, time=now, expected_delete_time=later(now, SCALE_DOWN_TIMEOUT))
    return replace(state, scale_down_requests=[*state.scale_down_requests, request])


def get_scale_up_time(state: ClusterStateRegistry, group: NodeGroup | None) -> Moment:
    """Return the time at which the group's scale-up request last grew (``NodeGroupScaleUpTime``).

    Raises :class:`~kscale.ca.AutoscalerError` without a group or a request.
    """
    if group is None:
        raise AutoscalerError("", "failed to find scaleUpRequest for node group: unexpected node group passed")
    request = state.scale_up_requests.get(group.id)
    if request is None:
        raise AutoscalerError("", f"failed to find scaleUpRequest for node group: {group.id}")
    return request.time


def register_failed_scale_up(
    state: ClusterStateRegistry,
    group: str,
    error: ScaleUpError,
    delta: int,
    now: datetime | Moment,
    options: AutoscalingOptions,
    *,
    has_template: bool = True,
) -> ClusterStateRegistry:
    """Return the state after a scale-up of the group by ``delta`` nodes failed with ``error``.

    The group enters back-off or prolongs it. A group without template never enters back-off, as upstream. Raises
    InputError if ``now`` is not a time.
    """
    now = moment(now)
    failure = ScaleUpFailure(time=now, delta=delta, error=error)
    failures = {**state.failures, group: [*state.failures.get(group, []), failure]}
    backoffs = state.backoffs
    if has_template:
        backoffs = record_failure(
            backoffs,
            group,
            error,
            now,
            initial=duration(options.initial_node_group_backoff_duration),
            maximum=duration(options.max_node_group_backoff_duration),
        )
    return replace(state, failures=failures, backoffs=backoffs)


def update_scale_down_candidates(
    state: ClusterStateRegistry, unneeded: Iterable[str], groups: Groups, now: datetime | Moment
) -> ClusterStateRegistry:
    """Return the state with the unneeded nodes of the scale-down pass at ``now``, by group id.

    Nodes without a group, or whose group cannot be read, are left out. Raises InputError if ``now`` is not a time.
    """
    now = moment(now)
    candidates: dict[str, list[str]] = {}
    for name in unneeded:
        try:
            group = groups.id_of_node(name)
        except ProviderError:
            continue
        if group is not None:
            candidates.setdefault(group, []).append(name)
    return replace(state, candidates=candidates, last_scale_down_update=now)


def clear_scale_up_failures(state: ClusterStateRegistry) -> ClusterStateRegistry:
    """Return the state without the scale-up failures of the previous loop, which are already reported."""
    return replace(state, failures={}) if state.failures else state


ClusterUpdateAction = DecreaseTargetSize | Emit
"""Actions of an update of the cluster state."""


class ClusterUpdate(msgspec.Struct, kw_only=True):
    """The new state, and the groups with their current targets. The ranges of the state are based on the previous
    targets.

    ``events``: what upstream would have emitted, if it was run as if every action succeeded.
    """

    state: ClusterStateRegistry
    groups: Groups
    events: list[Event] = []


def update_nodes(
    state: ClusterStateRegistry,
    nodes: Iterable[Node] | RegisteredNodes,
    groups: Groups,
    *,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
    templates: Container[str] | None = None,
    has_instance: Mapping[str, bool] | None = None,
) -> ClusterUpdate:
    """Return the state after an observation of the nodes, as if every action succeeded.

    See :func:`update_nodes_steps` for the parameters. Raises AutoscalerError if a group's target size cannot be read.
    """
    steps = update_nodes_steps(
        state, nodes, groups, now=now, options=options, templates=templates, has_instance=has_instance
    )
    done = run_dry(steps, now=moment(now))
    return replace(done.value, events=list(done.events))


def update_nodes_steps(
    state: ClusterStateRegistry,
    nodes: Iterable[Node] | RegisteredNodes,
    groups: Groups,
    *,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
    templates: Container[str] | None = None,
    has_instance: Mapping[str, bool] | None = None,
) -> StepsOf[ClusterUpdateAction, ClusterUpdate]:
    """Classify the nodes, end fulfilled and overdue requests, and compute the acceptable sizes.

    Yields events about scale-up requests that timed out and, except for release 1.3, a
    :class:`~kscale.effects.DecreaseTargetSize` for each of them. The target decreases by the number of nodes that were
    requested, even if some of them exist. Groups with a failed scale-up or failed instances enter back-off.

    Parameters
    ----------
    state : ClusterStateRegistry
        State after the previous loop.
    nodes : iterable of Node, or RegisteredNodes
        All registered nodes.
    groups : Groups
        The provider's groups.
    now : datetime or Moment
        Time of the observation.
    options : AutoscalingOptions, optional
        Default: upstream's defaults.
    templates : container of str, optional
        Ids of groups that have a template (None: all have). Only these enter back-off.
    has_instance : mapping of str to bool, optional
        The provider's answers by node name. A node without answer is assumed to have an instance, unless it is tainted
        for deletion.

    Returns
    -------
    ClusterUpdate
        The new state, and the groups with decreased targets.

    Raises
    ------
    AutoscalerError
        If a group's target size cannot be read.
    """
    options = options or default_options()
    targets = get_target_sizes(groups)
    update = _ClusterStateUpdate(state, groups, targets, moment(now), options, templates)
    update.observe_nodes(RegisteredNodes.of(nodes), has_instance or {})
    update.set_ranges()
    yield from update.end_requests()
    if not options.legacy:  # Release 1.3 does not know instance creation errors.
        yield from update.check_creation_errors()
    update.set_ranges()
    update.state.incorrect_sizes = find_incorrect_sizes(update.state, groups, update.now)
    return ClusterUpdate(state=update.state, groups=groups.with_targets(update.lowered) if update.lowered else groups)


class _ClusterStateUpdate:
    """One update: a state under construction."""

    def __init__(
        self,
        state: ClusterStateRegistry,
        groups: Groups,
        targets: dict[str, int],
        now: Moment,
        options: AutoscalingOptions,
        templates: Container[str] | None,
    ) -> None:
        self.p = Progress(now)
        self.state = replace(state)
        self.groups = groups
        self.targets = targets
        self.now = now
        self.options = options
        self.templates = templates
        self.lowered: dict[str, int] = {}

    def warn(self, reason: str, message: str) -> StepsOf[Emit, None]:
        """Emit a warning event about the cluster, if the options have a status ConfigMap."""
        return self.p.emit(*build_status_events(self.options, "Warning", reason, message))

    def observe_nodes(self, nodes: RegisteredNodes, has_instance: Mapping[str, bool]) -> None:
        """Store in the state the time, the number and readiness of the nodes, and the instances without a node.

        Raises InputError if a node's time cannot be read.
        """
        state, defaults = self.state, self.options.node_group_defaults
        state.node_count, state.last_update = len(nodes), self.now
        state.readiness, state.total = classify_nodes(
            nodes, self.groups, now=self.now, options=self.options, has_instance=has_instance
        )
        state.unregistered = find_unregistered_nodes(state.unregistered, nodes, self.groups, self.now)
        classify_unregistered_nodes(state, self.groups, self.now, defaults)

    # -- requests ----------------------------------------------------------------------------------------------

    def set_ranges(self) -> None:
        """Recompute the acceptable ranges from the target sizes and the remaining requests."""
        self.state.ranges = compute_acceptable_ranges(self.state, self.groups, self.targets)

    def end_requests(self) -> StepsOf[ClusterUpdateAction, None]:
        """Remove stale back-offs, expired scale-down requests, and scale-up requests that have ended.

        A scale-up request ends if it is fulfilled or overdue, or if its group is gone; not while its group is being
        created. An overdue request is a failed scale-up, with an event. The nodes of an overdue request are subtracted
        from the group's target size (not in release 1.3). In release 1.3 the end of a fulfilled request also ends the
        group's back-off.
        """
        reset = duration(self.options.node_group_backoff_reset_timeout)
        self.state.backoffs = remove_stale_backoffs(self.state.backoffs, self.now, reset)
        # Upstream walks the requests in random order; this is the provider's.
        order = [group.id for group in self.groups]
        names = [name for name in order if name in self.state.scale_up_requests]
        names += [name for name in self.state.scale_up_requests if name not in self.groups]
        for name in names:
            request = self.state.scale_up_requests[name]
            group = self.groups.get(name)
            if group is not None and group.upcoming:
                continue
            if count_upcoming_nodes(self.state, name) <= 0 or group is None:
                self._drop_request(name)
                if self.options.legacy:  # a successful scale-up ends the back-off
                    self.state.backoffs = {key: each for key, each in self.state.backoffs.items() if key != name}
            elif self._is_overdue(request):
                took = format_duration(self.now - request.time)
                yield from self.warn("ScaleUpTimedOut", f"Nodes added to group {name} failed to register within {took}")
                message = f"Scale-up timed out for node group {name} after {took}"
                self._register_failure(
                    name, ScaleUpError(class_="Other", code="timeout", message=message), request.increase
                )
                if not self.options.legacy:  # release 1.3 keeps the target
                    yield from self._revert_target_size(group, request.increase)
                self._drop_request(name)
        self.state.scale_down_requests = [
            item for item in self.state.scale_down_requests if item.expected_delete_time > self.now
        ]

    def _is_overdue(self, request: ScaleUpRequest) -> bool:
        """Check whether a request timed out; in release 1.3 already at the very moment of its deadline."""
        if self.options.legacy:
            return request.expected_add_time <= self.now
        return request.expected_add_time < self.now

    def _revert_target_size(self, group: NodeGroup, increase: int) -> StepsOf[ClusterUpdateAction, None]:
        """Decrease the target size of a group by ``increase``, and store the new size in ``lowered``.

        Emits a warning event instead if the provider refuses.
        """
        error = (yield from self.p.act(DecreaseTargetSize(group=group.id, delta=-increase))).error
        if error is None:
            self.lowered[group.id] = group.size - increase
        else:
            text = f"Failed to decrease target size for group {group.id} after scale-up timeout: {error.message}"
            yield from self.warn("FailedToRevertScaleUp", text)

    def _drop_request(self, name: str) -> None:
        """Remove the scale-up request of a group."""
        requests = dict(self.state.scale_up_requests)
        del requests[name]
        self.state.scale_up_requests = requests

    def _register_failure(self, group: str, error: ScaleUpError, delta: int) -> None:
        """Register the failed scale-up of a group by ``delta`` nodes; a group with a template enters back-off."""
        has_template = self.templates is None or group in self.templates
        self.state = register_failed_scale_up(
            self.state, group, error, delta, self.now, self.options, has_template=has_template
        )

    # -- failed instances --------------------------------------------------------------------------------------

    def check_creation_errors(self) -> StepsOf[Emit, None]:
        """Register failed scale-ups for instances with creation errors that the previous loop had not seen.

        Only groups that are scaling up count. There is one failure for each group and error. Stores the instances with
        errors of all groups in the state.
        """
        previous = self.state.create_errors
        current: dict[str, list[str]] = {}
        for group in self.groups:
            if group.upcoming or not group.instance_status:
                continue
            failing: dict[tuple[str, str], list[str]] = {}
            for instance in group.instance_ids:
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
                    yield from self._register_creation_errors(group, code, class_, unseen)
        self.state.create_errors = current

    def _register_creation_errors(
        self, group: NodeGroup, code: str, class_: str, unseen: list[str]
    ) -> StepsOf[Emit, None]:
        """Register the failed scale-up of the instances ``unseen``, which all have the error (``code``, ``class_``).

        The group's scale-up request shrinks by their number; a warning event is emitted.
        """
        errors = [group.instance_status[name].error for name in unseen]
        texts = list(dict.fromkeys(error.message for error in errors if error is not None))
        message = ", ".join(texts) + (", ..." if len(texts) > 3 else "")
        yield from self.warn(
            "ScaleUpFailed",
            f"Failed adding {len(unseen)} nodes to group {group.id} due to {class_}.{code}; source errors: {message}",
        )
        self.state = register_scale_up(self.state, group, -len(unseen), self.now, self.options)
        self._register_failure(group.id, ScaleUpError(class_=class_, code=code, message=message), len(unseen))
