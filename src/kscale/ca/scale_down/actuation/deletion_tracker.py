"""Deletions in progress and their results (upstream: ``core/scaledown/deletiontracker``, ``core/scaledown/status``)."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from kscale.ca.errors import ErrorRecord
from kscale.ca.loop_state import Deletions
from kscale.ca.scale_down.candidates import DeletionsInProgress, NodeInGroup
from kscale.ca.scale_down.utilization import Utilization
from kscale.effects import Moment
from kscale.objects.api.core import Pod

__all__ = [
    "NODE_DELETE_ERROR_FAILED_TO_DELETE",
    "NODE_DELETE_ERROR_FAILED_TO_EVICT_PODS",
    "NODE_DELETE_ERROR_INTERNAL",
    "NODE_DELETE_OK",
    "ActuationStatus",
    "NodeDeleteResult",
    "NodeDeletionTracker",
    "PodEvictionResult",
    "RegisteredDeletion",
    "ScaleDownNode",
    "StartedDeletion",
]


NODE_DELETE_OK: Final = "NodeDeleteOk"
NODE_DELETE_ERROR_FAILED_TO_EVICT_PODS: Final = "NodeDeleteErrorFailedToEvictPods"
NODE_DELETE_ERROR_FAILED_TO_DELETE: Final = "NodeDeleteErrorFailedToDelete"
NODE_DELETE_ERROR_INTERNAL: Final = "NodeDeleteErrorInternal"


class PodEvictionResult(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """Result of the eviction of one pod (``namespace/name``)."""

    pod: str
    timed_out: bool = False
    error: str | None = None

    @property
    def successful(self) -> bool:
        """Return whether the pod was evicted without an error and in time."""
        return self.error is None and not self.timed_out


class NodeDeleteResult(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """Result of the deletion of one node. ``evictions``: by pod name, if the drain failed."""

    result: str
    error: ErrorRecord | None = None
    evictions: dict[str, PodEvictionResult] = {}


class ScaleDownNode(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A node whose deletion has begun. ``evicted_pods`` (``namespace/name``): none of DaemonSets or of empty nodes."""

    node: str
    group: str
    utilization: Utilization
    evicted_pods: list[str] = []


class StartedDeletion(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Result of starting a deletion: ``ScaleDownNodeDeleteStarted``, ``ScaleDownNoNodeDeleted`` or ``ScaleDownError``;
    with an error there may still be started nodes.
    """

    result: str
    nodes: list[ScaleDownNode] = []
    error: ErrorRecord | None = None


class RegisteredDeletion(msgspec.Struct, kw_only=True, frozen=True):
    """Response of the cloud provider to a deletion: it accepted ``node``, or (without a node) rejected nodes of the
    group.
    """

    group: str
    time: Moment
    node: str | None = None


class ActuationStatus(msgspec.Struct, kw_only=True, frozen=True):
    """Copy of the state of a tracker at one moment, as an input of :func:`kscale.scale_down`.

    ``deletions`` counts by group; ``results``: by node, the last one of each.
    """

    deleting: list[NodeInGroup] = []
    draining: list[NodeInGroup] = []
    deletions: dict[str, int] = {}
    recent_evictions: list[Pod] = []
    results: dict[str, NodeDeleteResult] = {}


class NodeDeletionTracker:
    """Node deletions in progress, their results, and recent evictions of one actuator. Single owner.

    ``evictions_ttl``: for how many nanoseconds an eviction counts as recent; upstream's is 0, so none ever does.
    ``known``: deletions that are already in progress.
    """

    __slots__ = (
        "_deletions",
        "_drained",
        "_empty",
        "_evictions",
        "_evictions_ttl",
        "_registered",
        "_results",
        "_warnings",
    )

    def __init__(self, evictions_ttl: int = 0, known: Deletions | None = None) -> None:
        self._evictions_ttl = evictions_ttl
        self._empty: dict[str, str] = {}
        self._drained: dict[str, str] = {}
        self._deletions: Counter[str] = Counter()
        self._evictions: list[tuple[Moment, Pod]] = []
        self._results: list[tuple[Moment, str, NodeDeleteResult]] = []
        self._registered: list[RegisteredDeletion] = []
        self._warnings: list[str] = []
        if known is not None:
            for nodes, drain in ((known.empty, False), (known.drained, True)):
                for node, group in nodes.items():
                    self.start_deletion(group, node, drain=drain)

    def warn(self, text: str) -> None:
        """Store a warning for the next loop to log, as deletions run beside the loops."""
        self._warnings.append(text)

    def take_warnings(self) -> list[str]:
        """Return and clear the warnings since the last call."""
        taken, self._warnings = self._warnings, []
        return taken

    def start_deletion(self, group: str, node: str, *, drain: bool) -> None:
        """Register the start of a node's deletion, with or without drain."""
        self._deletions[group] += 1
        (self._drained if drain else self._empty)[node] = group

    def end_deletion(self, group: str, node: str, result: NodeDeleteResult, now: Moment) -> None:
        """Register the end of a node's deletion, with its result.

        The result is stored even if no deletion of the group is in progress.
        """
        self._results.append((now, node, result))
        if group not in self._deletions:
            return
        self._deletions[group] -= 1
        if self._deletions[group] <= 0:
            del self._deletions[group]
        self._empty.pop(node, None)
        self._drained.pop(node, None)

    def register_eviction(self, pod: Pod, now: Moment) -> None:
        """Register the eviction of a pod at ``now``."""
        self._evictions.append((now, pod))

    def register_scale_down(self, group: str, node: str, now: Moment) -> None:
        """Register a node deletion that the cloud provider accepted."""
        self._registered.append(RegisteredDeletion(group=group, node=node, time=now))

    def register_failed_scale_down(self, group: str, now: Moment) -> None:
        """Register a refusal of the cloud provider to delete nodes of a group."""
        self._registered.append(RegisteredDeletion(group=group, time=now))

    def take_registered(self) -> list[RegisteredDeletion]:
        """Return and clear the provider's responses to deletions since the last call, in order.

        The state of the next loop is updated from them (:func:`~.actuator.record_deletions`).
        """
        taken, self._registered = self._registered, []
        return taken

    def recent_evictions(self, now: Moment) -> list[Pod]:
        """Return the pods evicted within ``evictions_ttl`` before ``now``; older evictions are dropped."""
        self._evictions = [(time, pod) for time, pod in self._evictions if time > now - self._evictions_ttl]
        return [pod for _, pod in self._evictions]

    def in_progress(self) -> DeletionsInProgress:
        """Return the numbers of empty and drained nodes being deleted, for the budgets."""
        return DeletionsInProgress(empty=len(self._empty), drained=len(self._drained))

    def results(self, now: Moment) -> tuple[dict[str, NodeDeleteResult], Moment]:
        """Return the deletion results by node, and the time of the last one (``now`` if there is none)."""
        newest = self._results[-1][0] if self._results else now
        return {node: result for _, node, result in self._results}, newest

    def clear_results_not_newer_than(self, time: Moment) -> None:
        """Remove the results up to ``time``, which were already reported."""
        self._results = [item for item in self._results if item[0] > time]

    def deletions(self) -> Deletions:
        """Return the deletions in progress as plain data, each node with its group."""
        return Deletions(empty=dict(self._empty), drained=dict(self._drained))

    def status(self, now: Moment) -> ActuationStatus:
        """Return an independent copy of the current state at ``now``."""
        return ActuationStatus(
            deleting=[NodeInGroup(node=node, group=group) for node, group in self._empty.items()],
            draining=[NodeInGroup(node=node, group=group) for node, group in self._drained.items()],
            deletions=dict(self._deletions),
            recent_evictions=self.recent_evictions(now),
            results=self.results(now)[0],
        )
