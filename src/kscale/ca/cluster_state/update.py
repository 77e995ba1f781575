"""Update the cluster state from the nodes of a loop (upstream: ``UpdateNodes``)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from datetime import datetime

import msgspec
from msgspec.structs import replace

from kscale.ca.cluster_state.health import (
    compute_acceptable_ranges,
    count_upcoming_nodes,
    find_incorrect_sizes,
    get_target_sizes,
    is_scaling_up,
)
from kscale.ca.cluster_state.readiness import classify_nodes, classify_unregistered_nodes, find_unregistered_nodes
from kscale.ca.cluster_state.register import register_failed_scale_up, register_scale_up
from kscale.ca.cluster_state.state import ClusterStateRegistry, ScaleUpError, ScaleUpRequest, remove_stale_backoffs
from kscale.ca.events import build_status_events
from kscale.ca.nodes import RegisteredNodes
from kscale.ca.options import AutoscalingOptions
from kscale.effects import (
    DecreaseTargetSize,
    Emit,
    Event,
    Moment,
    Progress,
    StepsOf,
    duration,
    moment,
    run_dry,
)
from kscale.objects.api.core import Node
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.nodegroups import Groups
from kscale.objects.times import format_duration

__all__ = ["ClusterUpdate", "ClusterUpdateAction", "update_nodes", "update_nodes_steps"]

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

    See :func:`update_nodes_steps` for the parameters.
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
    """Classify the nodes, end fulfilled and overdue requests, and compute the expected sizes.

    Yields a :class:`~kscale.effects.DecreaseTargetSize` for every scale-up request that timed out, by the total size
    that was requested, even if some of the nodes exist.

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
    options = options or AutoscalingOptions()
    targets = get_target_sizes(groups)
    update = _ClusterStateUpdate(state, groups, targets, moment(now), options, templates)
    update.look_at(RegisteredNodes.of(nodes), has_instance or {})
    update.set_ranges()
    yield from update.end_requests()
    if not options.legacy:  # Release 1.3 does not know instance creation errors.
        yield from update.creation_errors()
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
        return self.p.emit(*build_status_events(self.options, "Warning", reason, message))

    def look_at(self, nodes: RegisteredNodes, has_instance: Mapping[str, bool]) -> None:
        state, defaults = self.state, self.options.node_group_defaults
        state.node_count, state.last_update = len(nodes), self.now
        state.readiness, state.total = classify_nodes(
            nodes, self.groups, now=self.now, options=self.options, has_instance=has_instance
        )
        state.unregistered = find_unregistered_nodes(state.unregistered, nodes, self.groups, self.now)
        classify_unregistered_nodes(state, self.groups, self.now, defaults)

    # -- requests ----------------------------------------------------------------------------------------------

    def set_ranges(self) -> None:
        self.state.ranges = compute_acceptable_ranges(self.state, self.groups, self.targets)

    def end_requests(self) -> StepsOf[ClusterUpdateAction, None]:
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
                self._fail(name, ScaleUpError(class_="Other", code="timeout", message=message), request.increase)
                if not self.options.legacy:  # release 1.3 keeps the target
                    yield from self._revert(group, request.increase)
                self._drop_request(name)
        self.state.scale_down_requests = [
            item for item in self.state.scale_down_requests if item.expected_delete_time > self.now
        ]

    def _is_overdue(self, request: ScaleUpRequest) -> bool:
        """Check whether a request timed out; in release 1.3 already at the very moment of its deadline."""
        if self.options.legacy:
            return request.expected_add_time <= self.now
        return request.expected_add_time < self.now

    def _revert(self, group: NodeGroup, increase: int) -> StepsOf[ClusterUpdateAction, None]:
        error = (yield from self.p.act(DecreaseTargetSize(group=group.id, delta=-increase))).error
        if error is None:
            self.lowered[group.id] = group.size - increase
        else:
            text = f"Failed to decrease target size for group {group.id} after scale-up timeout: {error.message}"
            yield from self.warn("FailedToRevertScaleUp", text)

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

    def creation_errors(self) -> StepsOf[Emit, None]:
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
                    yield from self._creation_error(group, code, class_, unseen)
        self.state.create_errors = current

    def _creation_error(self, group: NodeGroup, code: str, class_: str, unseen: list[str]) -> StepsOf[Emit, None]:
        errors = [group.instance_status[name].error for name in unseen]
        texts = list(dict.fromkeys(error.message for error in errors if error is not None))
        message = ", ".join(texts) + (", ..." if len(texts) > 3 else "")
        yield from self.warn(
            "ScaleUpFailed",
            f"Failed adding {len(unseen)} nodes to group {group.id} due to {class_}.{code}; source errors: {message}",
        )
        self.state = register_scale_up(self.state, group, -len(unseen), self.now, self.options)
        self._fail(group.id, ScaleUpError(class_=class_, code=code, message=message), len(unseen))
