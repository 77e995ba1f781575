"""What the first loop of a process does with marks that an earlier one left (``core/static_autoscaler.go``)."""

from __future__ import annotations

from collections.abc import Iterable

from kscale.ca.event_subjects import node_event
from kscale.ca.nodes import DELETION_CANDIDATE_TAINT, TO_BE_DELETED_TAINT, deletion_candidate_since, has_taint
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.actuation.tainting import Writing, clean_deletion_candidate, clean_to_be_deleted
from kscale.effects import ApiError, Emit, Moment, Progress, StepsOf, duration
from kscale.objects.core import Node
from kscale.objects.nodegroup import ProviderError
from kscale.objects.nodegroups import Groups

__all__ = ["clean_up_taints"]


def clean_up_taints(
    nodes: Iterable[Node], groups: Groups, options: AutoscalingOptions, now: Moment
) -> StepsOf[Writing | Emit, list[str]]:
    """Frees the nodes of groups that were being deleted; gives the names of nodes that lost a taint.

    Where soft taints are off (a count of 0), all nodes lose theirs, but for those younger than
    ``--node-deletion-candidate-ttl`` if that is above 0. A taint without readable time is old.
    """
    p = Progress(now)
    cleaned: list[str] = []
    nodes = list(nodes)
    for node in nodes:
        if _in_group(node, groups) and has_taint(node, TO_BE_DELETED_TAINT):
            found = yield from clean_to_be_deleted(p, node, uncordon=options.cordon_node_before_terminating)
            yield from _tell(p, node, TO_BE_DELETED_TAINT, found, cleaned)
    if options.max_bulk_soft_taint_count == 0:
        ttl = duration(options.node_deletion_candidate_ttl)
        for node in nodes:
            if has_taint(node, DELETION_CANDIDATE_TAINT) and _is_old(node, ttl, p.now):
                found = yield from clean_deletion_candidate(p, node)
                yield from _tell(p, node, DELETION_CANDIDATE_TAINT, found, cleaned)
    return cleaned


def _in_group(node: Node, groups: Groups) -> bool:
    try:
        return groups.of_node(node.metadata.name) is not None
    except ProviderError:
        return False


def _is_old(node: Node, ttl: int, now: Moment) -> bool:
    since = deletion_candidate_since(node)
    return not ttl or since is None or now - since >= ttl


def _tell(
    p: Progress, node: Node, taint: str, found: tuple[ApiError | None, bool], cleaned: list[str]
) -> StepsOf[Emit, None]:
    error, changed = found
    name = node.metadata.name
    if error is not None:
        text = f"failed to clean {taint} on node {name}: {error.message}"
        yield from p.emit(node_event(node, "Warning", "ClusterAutoscalerCleanup", text))
    else:
        # Also where somebody else was faster: what counts is that it was there.
        if changed and name not in cleaned:
            cleaned.append(name)
        text = f"removed {taint} taint from node {name}"
        yield from p.emit(node_event(node, "Normal", "ClusterAutoscalerCleanup", text))
