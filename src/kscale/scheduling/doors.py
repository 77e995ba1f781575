"""What callers may hand in: structs, API data as dicts, and objects of Kubernetes client libraries alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kscale.errors import InputError
from kscale.objects.core import Node, Pod
from kscale.objects.kind_check import check_kind
from kscale.objects.meta import KubeObject
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.nodegroup_decoding import group_from_dict, template_from_dict
from kscale.objects.nodegroups import Groups
from kscale.scheduling.arguments import short
from kscale.snapshot.client_objects import is_client_object, to_plain
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.record import PodRecord, pod_record
from kscale.snapshot.snapshot import Snapshot

__all__ = ["SnapshotLike", "TemplateLike", "record_of", "snapshot_of", "template_of"]

SnapshotLike = Snapshot | Cluster
"""A snapshot, or a cluster as it is now."""

TemplateLike = Node | NodeTemplate | NodeGroup | dict[str, Any]
"""A node, a template with its pods and devices, a node group, any of them as a dict, or a client library's node."""

_PODS: Final = (Pod, PodRecord, dict, msgspec.Raw)


def snapshot_of(given: SnapshotLike) -> Snapshot:
    """The snapshot that a call is about. Raises InputError."""
    if isinstance(given, Snapshot):
        return given
    if isinstance(given, Cluster):
        return given.snapshot()
    raise InputError(f"snapshot is {short(given)}, not a snapshot or a cluster")


def record_of(pod: Any) -> PodRecord:
    """A pod that is no part of a snapshot. Raises InputError."""
    if isinstance(pod, _PODS):
        return pod_record(pod)
    if is_client_object(pod):
        return pod_record(to_plain(pod))
    if isinstance(pod, KubeObject):
        check_kind(pod, Pod)
    raise InputError(f"a pod is {short(pod)}, not a pod's name or a pod")


def template_of(template: TemplateLike, nodes: Sequence[Node] = ()) -> NodeTemplate:
    """A template of new nodes. A group's is what :meth:`~kscale.objects.nodegroups.Groups.of` makes of it: its own, or
    a copy of the one of ``nodes`` that it names. Raises InputError, also for a group that has neither: which of a
    group's nodes is a good example is the Cluster Autoscaler's to say.
    """
    if isinstance(template, NodeTemplate):
        return template
    given: Any = template
    if not isinstance(given, Node | NodeGroup | dict) and is_client_object(given):
        given = to_plain(given)
    if isinstance(given, dict):
        if "id" not in given or "metadata" in given:
            return template_from_dict(given)
        given = group_from_dict(given)
    if isinstance(given, NodeGroup):
        return _of_group(given, nodes)
    if not isinstance(given, Node):
        raise InputError(f"template is {short(template)}, not a node, a node template or a node group")
    return NodeTemplate(node=given)


def _of_group(group: NodeGroup, nodes: Sequence[Node]) -> NodeTemplate:
    (settled,) = Groups.of([group], nodes)
    if settled.template is None:
        raise InputError(settled.template_error or f"node group {group.id!r} has no template: give it one, or fromNode")
    return settled.template
