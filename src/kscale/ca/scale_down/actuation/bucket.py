"""One last look at the nodes of a bucket before they go (``actuation/actuator.go``, deleteNodesAsync)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from kscale.ca.errors import INTERNAL_ERROR, ErrorRecord
from kscale.ca.options import AutoscalingOptions
from kscale.ca.pod_lists.expendable import is_expendable
from kscale.ca.scale_down.actuation.clean_up import EndingActions
from kscale.ca.scale_down.actuation.group_deletion_scheduler import GroupDeletionScheduler
from kscale.ca.scale_down.actuation.results import NODE_DELETE_ERROR_INTERNAL, NodeDeleteResult
from kscale.ca.scale_down.drainability.context import DrainContext, Listers
from kscale.ca.scale_down.drainability.engine import pods_to_move
from kscale.ca.scale_down.pdb import RemainingPdbTracker, readable
from kscale.effects import ApiError, InBackground, List, Moment, Progress, StepsOf
from kscale.objects.core import Node, Pod
from kscale.objects.meta import KubeObject
from kscale.objects.names import go_quote
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.nodegroups import Groups

__all__ = ["Bucket", "delete_bucket"]

_CONTROLLERS = ("ReplicationController", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")


class Bucket(msgspec.Struct, kw_only=True, frozen=True):
    """Nodes of one group that are deleted together, empty ones or such to drain; ``batch_size`` 0: all of them."""

    group: NodeGroup
    nodes: list[Node]
    batch_size: int = 0
    drain: bool = False


def delete_bucket(
    bucket: Bucket,
    scheduler: GroupDeletionScheduler,
    groups: Groups,
    options: AutoscalingOptions,
    delay: int,
    now: Moment,
    *,
    force: bool = False,
) -> StepsOf[EndingActions | List | InBackground, None]:
    """After ``delay`` nanoseconds looks at what now runs on the nodes, and schedules the deletion of those that may go.

    What one node takes of disruption budgets does not count for the next. ``force`` skips no check.
    """
    p = Progress(now)
    if delay > 0:
        yield from p.wait(delay)
    names = [node.metadata.name for node in bucket.nodes]
    outcome = yield from p.act(List(kind="Pod", nodes=tuple(names)))
    if outcome.error is not None:
        yield from _abort_all(p, bucket, scheduler, f"createSnapshot returned error {outcome.error.message}")
        return
    on_node = _by_node(outcome.value, names, options.expendable_pods_priority_cutoff)
    listers, budgets = None, RemainingPdbTracker()
    if bucket.drain:
        outcome = yield from p.act(List(kind="PodDisruptionBudget"))
        if outcome.error is not None:
            text = f"podDisruptionBudgetLister.List returned error {outcome.error.message}"
            yield from _abort_all(p, bucket, scheduler, text)
            return
        budgets = RemainingPdbTracker(readable(outcome.value))
        controllers, error = yield from _controllers(p)
        if error is not None:
            yield from _abort_all(p, bucket, scheduler, f"controllers cannot be listed: {error.message}")
            return
        listers = Listers(controllers)
    for node in bucket.nodes:
        pods = on_node[node.metadata.name]
        problem = _problem(node, pods, DrainContext(p.now, options, listers, budgets), bucket.drain)
        if problem is not None:
            yield from scheduler.abort(p, node, bucket.group.id, bucket.drain, _internal(problem))
            continue
        deletion = partial(
            scheduler.schedule_deletion,
            node,
            pods,
            bucket.group,
            bucket.batch_size or len(bucket.nodes),
            drain=bucket.drain,
            groups=groups,
            force=force,
        )
        yield from p.act(InBackground(deletion))


def _problem(node: Node, pods: Sequence[Pod], context: DrainContext, drain: bool) -> str | None:
    """Why the node may not go after all."""
    found = pods_to_move(pods, context)
    name = go_quote(node.metadata.name)
    if found.error is not None:
        return f"GetPodsToMove for {name} returned error: {found.error}"
    if not drain and found.pods:
        return f"failed to delete empty node {name}, new pods scheduled"
    if not drain and found.on_completion_pods:
        return f"failed to delete empty node {name}, active on-completion pods present"
    return None


def _by_node(pods: Sequence[Pod], names: Sequence[str], cutoff: int) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = {name: [] for name in names}
    for pod in pods:
        if pod.spec.node_name in found and not is_expendable(pod, cutoff):
            found[pod.spec.node_name].append(pod)
    return found


def _controllers(p: Progress) -> StepsOf[List, tuple[list[KubeObject], ApiError | None]]:
    """The controllers that exist now."""
    found: list[KubeObject] = []
    for kind in _CONTROLLERS:
        outcome = yield from p.act(List(kind=kind))
        if outcome.error is not None:
            return [], outcome.error
        found += outcome.value
    return found, None


def _abort_all(
    p: Progress, bucket: Bucket, scheduler: GroupDeletionScheduler, problem: str
) -> StepsOf[EndingActions, None]:
    for node in bucket.nodes:
        yield from scheduler.abort(p, node, bucket.group.id, bucket.drain, _internal(problem))


def _internal(message: str) -> NodeDeleteResult:
    error = ErrorRecord(type=INTERNAL_ERROR, message=message)
    return NodeDeleteResult(result=NODE_DELETE_ERROR_INTERNAL, error=error)
