"""Coercion of callers' arguments: snapshots, node templates, pod names, and pods as structs, dicts or client
objects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import index
from os import PathLike
from typing import Any, Final, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError, show_value
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.meta import KubeObject
from kscale.objects.kinds import check_kind
from kscale.objects.nodegroup import Groups, NodeGroup, NodeTemplate, group_from_dict, template_from_dict
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.manifests import apply_manifests
from kscale.snapshot.pods.record import PodRecord, pod_record
from kscale.snapshot.pods.rows import PodRows
from kscale.snapshot.snapshot import Snapshot
from kscale.snapshot.text.sources import is_client_object, to_plain

__all__ = [
    "MAX_COUNT",
    "PodLike",
    "PodsLike",
    "SnapshotLike",
    "TemplateLike",
    "inputs_of",
    "mask_of",
    "pods_of",
    "position_of",
    "priorities_of",
    "record_of",
    "short",
    "snapshot_of",
    "stand_in_groups",
    "template_of",
]


MAX_COUNT = 2**31 - 1
"""The highest position that kernels accept."""


def position_of(value: Any, what: str, maximum: int = MAX_COUNT) -> int:
    """Return ``value`` as an integer between 0 and ``maximum``.

    Raises InputError, in which ``what`` names the argument, if the value is no integer or out of range.
    """
    try:
        number = index(value)
    except TypeError:
        raise InputError(f"{what} is {short(value)}, not a whole number") from None
    if not 0 <= number <= maximum:
        raise InputError(f"{what} is {number}, not between 0 and {maximum}")
    return number


def mask_of(values: Any, what: str, length: int) -> NDArray[np.uint8]:
    """Return a mask with one entry per node, uint8[length], from ``values``: booleans or integers.

    Raises InputError, in which ``what`` names the argument, for any other dtype or shape.
    """
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.zeros(0, dtype=object)
    if array.shape != (length,) or (length and array.dtype.kind not in "biu"):
        raise InputError(f"{what} is not a column of {length} truth values, one a node")
    return np.ascontiguousarray(array != 0).view(np.uint8)


short = show_value


SnapshotLike = Snapshot | Cluster
"""A snapshot, or a cluster as it is now."""

TemplateLike = Node | NodeTemplate | NodeGroup | dict[str, Any]
"""A node, a template with its pods and devices, a node group, any of them as a dict, or a client library's node."""

_PODS: Final = (Pod, PodRecord, dict, msgspec.Raw)


def snapshot_of(value: SnapshotLike) -> Snapshot:
    """Return the snapshot of a Snapshot or Cluster. Raises InputError for any other type."""
    if isinstance(value, Snapshot):
        return value
    if isinstance(value, Cluster):
        return value.snapshot()
    raise InputError(f"snapshot is {short(value)}, not a snapshot or a cluster")


def record_of(pod: Any) -> PodRecord:
    """Return the record of a pod that is not part of a snapshot.

    The pod is a struct, a dict or a client library's object. Raises InputError for anything else.
    """
    if isinstance(pod, _PODS):
        return pod_record(pod)
    if is_client_object(pod):
        return pod_record(to_plain(pod))
    if isinstance(pod, KubeObject):
        check_kind(pod, Pod)
    raise InputError(f"a pod is {short(pod)}, not a pod's name or a pod")


def template_of(template: TemplateLike, nodes: Sequence[Node] = ()) -> NodeTemplate:
    """Convert a node, node template, node group, dict or client object to a template of new nodes.

    A group's template is what :meth:`~kscale.objects.nodegroup.Groups.of` returns: its own, or a copy of the one of
    ``nodes`` that it names. Raises InputError for another type, and for a group that has neither: choosing one of a
    group's nodes as an example is left to the Cluster Autoscaler.
    """
    if isinstance(template, NodeTemplate):
        return template
    value: Any = template
    if not isinstance(value, Node | NodeGroup | dict) and is_client_object(value):
        value = to_plain(value)
    if isinstance(value, dict):
        if "id" not in value or "metadata" in value:
            return template_from_dict(value)
        value = group_from_dict(value)
    if isinstance(value, NodeGroup):
        return _get_group_template(value, nodes)
    if not isinstance(value, Node):
        raise InputError(f"template is {short(template)}, not a node, a node template or a node group")
    return NodeTemplate(node=value)


def _get_group_template(group: NodeGroup, nodes: Sequence[Node]) -> NodeTemplate:
    """Return the group's own template or a copy of the one of ``nodes`` that it names.

    Raises InputError if there is neither.
    """
    (settled,) = Groups.of([group], nodes)
    if settled.template is None:
        raise InputError(settled.template_error or f"node group {group.id!r} has no template: give it one, or fromNode")
    return settled.template


PodLike = str | Pod | PodRecord | dict[str, Any]
"""The name of a pod of the snapshot, or a pod object."""

PodsLike = Iterable[PodLike | KubeObject | PathLike[str]] | dict[str, Any] | KubeObject | PathLike[str] | bytes | None
"""None = the pending pods of the snapshot; names = pods of the snapshot; anything else = pod objects.

With a Cluster also manifests: paths (not str), bytes, dicts and objects of Deployments and other workloads, and the
objects that come with them.
"""


def inputs_of(snapshot: SnapshotLike, pods: PodsLike) -> tuple[Snapshot, PodsLike]:
    """Return the snapshot, and the pods as :func:`pods_of` takes them.

    If ``pods`` contains manifests, these are applied to a copy of the cluster as :func:`kscale.apply_manifests` does;
    the result is the copy's snapshot and the names of the new pods. A Snapshot does not take manifests: they are
    returned as they are, and :func:`pods_of` says so. Raises InputError if ``snapshot`` is neither a Snapshot nor a
    Cluster, or manifests cannot be read.
    """
    if isinstance(pods, Iterator) and not isinstance(pods, PodRows):
        pods = [*pods]
    if not isinstance(snapshot, Cluster) or not _has_manifests(pods):
        return snapshot_of(snapshot), pods
    items = list(pods) if isinstance(pods, Sequence) and not isinstance(pods, bytes) else [pods]
    names = [item for item in items if isinstance(item, str)]
    applied = apply_manifests(snapshot, *(item for item in items if not isinstance(item, str)))
    return applied.cluster.snapshot(dra=True), [*names, *applied.pods]


def _has_manifests(pods: Any) -> bool:
    """Return whether a single object or file was passed, or a list with anything but names and pods."""
    if pods is None or isinstance(pods, PodRows | str):
        return False
    if isinstance(pods, bytes | PathLike | KubeObject) or is_client_object(pods):
        return True
    if isinstance(pods, dict):
        return "kind" in pods
    if not isinstance(pods, Sequence) or _NAMES_AND_PODS.issuperset(set(map(type, pods))):
        return False
    return any(_is_manifest(item) for item in pods if not isinstance(item, str | Pod | PodRecord | msgspec.Raw))


_NAMES_AND_PODS: Final = {str, Pod, PodRecord, msgspec.Raw}


def _is_manifest(item: Any) -> bool:
    """Return whether an item (no name, pod struct or record) is not a pod but a file, bytes or another object."""
    if isinstance(item, dict):
        return bool(item.get("kind", "Pod") != "Pod")
    if isinstance(item, bytes | PathLike | KubeObject):
        return True
    return is_client_object(item) and bool(to_plain(item).get("kind") != "Pod")


def pods_of(snapshot: Snapshot, pods: PodsLike, *, waiting: bool = False) -> Sequence[PodRecord]:
    """Return the records of the pods that a call names or passes; the snapshot's pending pods if ``pods`` is None.

    ``waiting``: named pods must be pending, as a running pod would be placed and counted twice. Raises InputError for

    - a name that the snapshot does not have or that occurs twice;
    - a pod that cannot be read;
    - anything but a list of names and pods;
    - with ``waiting``, a named pod that is on a node.
    """
    if pods is None:
        return snapshot.pending_records
    if isinstance(pods, PodRows):
        return pods
    if isinstance(pods, (str, bytes, dict)) or not isinstance(pods, Iterable):
        raise InputError(f"pods is {short(pods)}: give a list of pod names or objects")
    pods = [*pods]
    names = [pod for pod in pods if isinstance(pod, str)]
    if names:
        _check_names(snapshot, names, waiting)
    if all(isinstance(pod, str) for pod in pods):
        try:
            return snapshot.records(cast("list[str]", pods))
        except KeyError as problem:
            raise InputError(f"no pod {problem.args[0]!r} in the snapshot") from None
    records = []
    for pod in pods:
        if not isinstance(pod, str):
            records.append(record_of(pod))
            continue
        try:
            records.append(snapshot.record(pod))
        except KeyError:
            raise InputError(f"no pod {pod!r} in the snapshot") from None
    return records


def _check_names(snapshot: Snapshot, names: list[str], waiting: bool) -> None:
    """Raise InputError if a name occurs twice; if ``waiting``, also if a pod is unknown or on a node."""
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise InputError(f"pod {twice!r} is passed twice")
    if not waiting:
        return
    try:
        nodes = snapshot.nodes_of(names)
    except KeyError as problem:
        raise InputError(f"no pod {problem.args[0]!r} in the snapshot") from None
    for name, node in zip(names, nodes, strict=True):
        if node >= 0:
            raise InputError(
                f"pod {name!r} is on node {snapshot.nodes[node]!r} already: only pending pods can be placed"
            )


def priorities_of(pods: Sequence[PodRecord]) -> NDArray[np.int64]:
    """Return ``spec.priority`` of each pod, 0 if absent: int64[n]."""
    if isinstance(pods, PodRows):
        return pods.priorities
    return np.fromiter((pod.priority for pod in pods), dtype=np.int64, count=len(pods))


def stand_in_groups(pods: Sequence[PodRecord]) -> NDArray[np.bool_]:
    """Return a mask of the pods that upstream compares with other pods of the same controller: bool[n].

    False for pods of a DaemonSet and pods without a controller: none of these stands in for another pod.
    """
    if isinstance(pods, PodRows):
        owned: NDArray[np.bool_] = pods.controllers >= 0
        return owned
    return np.fromiter((pod.controller is not None for pod in pods), dtype=np.bool_, count=len(pods))
