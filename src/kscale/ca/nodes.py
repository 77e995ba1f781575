"""Conditions, taints and life spans of nodes and pods (upstream: ``utils/kubernetes/ready.go``, ``utils/taints``,
``utils/drain``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from kscale.ca.go_math import wrap_int64
from kscale.effects import SECOND, ZERO_TIME
from kscale.effects.moments import ComparedDuration
from kscale.objects.api.core import Node, Pod
from kscale.objects.conditions import changed_at
from kscale.objects.nodegroups import instance_id_of
from kscale.objects.times import moment_in, nanoseconds

__all__ = [
    "DELETION_CANDIDATE_TAINT",
    "SCALE_DOWN_DISABLED_KEY",
    "TO_BE_DELETED_TAINT",
    "UPCOMING_NODE_ANNOTATION",
    "Readiness",
    "RegisteredNodes",
    "get_deletion_candidate_time",
    "get_readiness",
    "get_ready_and_suspended",
    "get_to_be_deleted_time",
    "has_taint",
    "is_being_deleted",
    "is_long_terminating",
    "is_ready",
    "is_ready_and_active",
    "is_suspended",
    "is_upcoming_node",
]


DEFAULT_TERMINATION_GRACE_PERIOD: Final[ComparedDuration] = 30 * SECOND
POD_LONG_TERMINATING_EXTRA_THRESHOLD: Final[ComparedDuration] = 30 * SECOND


def is_long_terminating(pod: Pod, now_ns: int) -> bool:
    """Check whether a pod is terminating since more than its grace period and 30 seconds.

    False for a pod without deletion timestamp.
    """
    deleted = pod.metadata.deletion_timestamp
    if deleted is None:
        return False
    grace = pod.spec.termination_grace_period_seconds
    grace_ns = wrap_int64(DEFAULT_TERMINATION_GRACE_PERIOD if grace is None else grace * SECOND)
    return nanoseconds(deleted) + grace_ns + POD_LONG_TERMINATING_EXTRA_THRESHOLD < now_ns


TO_BE_DELETED_TAINT: Final = "ToBeDeletedByClusterAutoscaler"
DELETION_CANDIDATE_TAINT: Final = "DeletionCandidateOfClusterAutoscaler"
SCALE_DOWN_DISABLED_KEY: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"

_NOT_READY_TAINTS: Final = frozenset(
    ("node.kubernetes.io/not-ready", "node.kubernetes.io/disk-pressure", "node.kubernetes.io/network-unavailable")
)
_NOT_TRUE_STATUSES: Final = ("False", "Unknown")
_TROUBLE_CONDITIONS: Final = ("DiskPressure", "NetworkUnavailable")
_INTEGER_PATTERN = re.compile(r"[+-]?[0-9]+\Z")
MAX_NODE_DELETION_TIME: Final[ComparedDuration] = 300 * SECOND


class Readiness(msgspec.Struct, frozen=True):
    """Whether a node is ready, since when (:data:`~kscale.effects.ZERO_TIME` if unknown), and the condition's reason.

    ``known`` is False for a node without Ready condition, which counts as not ready.
    """

    ready: bool
    last_transition: int = ZERO_TIME
    reason: str = ""
    known: bool = True


def get_readiness(node: Node) -> Readiness:
    """Return the readiness of a node, with the time of its last transition.

    A node is ready unless its Ready condition is missing, False or Unknown, or a disk or network condition or a
    not-ready taint contradicts. ``reason`` is that of the last Ready condition that is not True. Raises InputError for
    an invalid time.
    """
    conditions = node.status.conditions
    if not any(condition.type == "Ready" for condition in conditions):
        return Readiness(ready=False, known=False)
    ready, reason, last = True, "", ZERO_TIME
    for condition in conditions:
        if condition.type not in ("Ready", *_TROUBLE_CONDITIONS):
            continue
        last = max(last, changed_at(node, condition))
        bad = _NOT_TRUE_STATUSES if condition.type == "Ready" else ("True",)
        if condition.status in bad:
            ready = False
            if condition.type == "Ready":
                reason = condition.reason
    for number, taint in enumerate(node.spec.taints):
        if taint.key in _NOT_READY_TAINTS:
            ready = False
            if taint.time_added is not None:
                last = max(last, moment_in(node, taint.time_added, f"spec.taints[{number}].timeAdded"))
    return Readiness(ready=ready, last_transition=last, reason=reason)


def is_ready(node: Node) -> bool:
    """Check whether a node is ready, by the rules of :func:`get_readiness`, without reading times."""
    return get_ready_and_suspended(node)[0]


def get_ready_and_suspended(node: Node) -> tuple[bool, bool]:
    """Return whether the node is ready, and whether its first Suspended condition is True."""
    known, ready, suspended = False, True, None
    for condition in node.status.conditions:
        kind = condition.type
        if kind == "Ready":
            known = True
            ready = ready and condition.status not in _NOT_TRUE_STATUSES
        elif kind in _TROUBLE_CONDITIONS:
            ready = ready and condition.status != "True"
        elif kind == "Suspended" and suspended is None:
            suspended = condition.status == "True"
    ready = known and ready
    if ready and node.spec.taints:
        ready = not any(taint.key in _NOT_READY_TAINTS for taint in node.spec.taints)
    return ready, bool(suspended)


def is_ready_and_active(node: Node) -> bool:
    """Check whether a node is ready, not suspended and not tainted for deletion."""
    ready, suspended = get_ready_and_suspended(node)
    return ready and not suspended and not has_taint(node, TO_BE_DELETED_TAINT)


def has_taint(node: Node, key: str) -> bool:
    """Check whether the node has a taint with this key, whatever its value and effect."""
    taints = node.spec.taints
    return bool(taints) and any(taint.key == key for taint in taints)


def _get_taint_seconds(node: Node, key: str) -> int | None:
    for taint in node.spec.taints:
        if taint.key == key:
            number = int(taint.value) if _INTEGER_PATTERN.match(taint.value) else None
            return number if number is not None and -(2**63) <= number < 2**63 else None
    return None


def get_to_be_deleted_time(node: Node) -> int | None:
    """Return the time of the node's deletion taint in nanoseconds since 1970.

    None without the taint ``ToBeDeletedByClusterAutoscaler`` or if its value cannot be parsed.
    """
    seconds = _get_taint_seconds(node, TO_BE_DELETED_TAINT)
    return None if seconds is None else seconds * SECOND


def get_deletion_candidate_time(node: Node) -> int | None:
    """Return the time of the node's soft taint as a deletion candidate in nanoseconds since 1970.

    None without the taint or if its value cannot be parsed.
    """
    seconds = _get_taint_seconds(node, DELETION_CANDIDATE_TAINT)
    return None if seconds is None else seconds * SECOND


def is_being_deleted(node: Node, now_ns: int) -> bool:
    """Check whether the node was tainted for deletion less than five minutes ago (or in the future)."""
    since = get_to_be_deleted_time(node)
    return since is not None and now_ns - since < MAX_NODE_DELETION_TIME


def is_suspended(node: Node) -> bool:
    """Check whether the cloud has suspended the node's instance."""
    return get_ready_and_suspended(node)[1]


class RegisteredNodes:
    """Nodes in the given order, with facts that are read once for all loops. Do not modify it.

    ``names`` and ``instance_ids`` (:func:`kscale.objects.nodegroups.instance_id_of`) are in the order of the nodes.
    ``odd``: ascending positions of nodes for which :func:`kscale.ca.nodes.is_ready_and_active` is False.
    """

    __slots__ = ("instance_ids", "names", "nodes", "odd")

    def __init__(
        self, nodes: Sequence[Node], names: Sequence[str], instance_ids: Iterable[str], odd: Sequence[int]
    ) -> None:
        self.nodes = nodes
        self.names = names
        self.instance_ids = frozenset(instance_ids)
        self.odd = odd

    @classmethod
    def of(cls, nodes: Iterable[Node] | RegisteredNodes) -> RegisteredNodes:
        """Return the nodes as RegisteredNodes; the same object if they already are."""
        if isinstance(nodes, RegisteredNodes):
            return nodes
        every = [*nodes]
        odd = [i for i, node in enumerate(every) if not is_ready_and_active(node)]
        return cls(every, [node.metadata.name for node in every], map(instance_id_of, every), odd)

    def __len__(self) -> int:
        return len(self.nodes)


UPCOMING_NODE_ANNOTATION: Final = "cluster-autoscaler.k8s.io/upcoming-node"
_TRUE_TEXTS: Final = frozenset(("1", "t", "T", "true", "TRUE", "True"))


def is_upcoming_node(node: Node) -> bool:
    """Return whether the node is a simulated one that is expected but not there yet."""
    return (node.metadata.annotations or {}).get(UPCOMING_NODE_ANNOTATION) in _TRUE_TEXTS
