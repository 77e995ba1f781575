"""Running the rules over a pod and over the pods of a node (``drainability/rules``, ``simulator/drain.go``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

import msgspec

from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.drainability.context import DrainContext, Listers, Rule
from kscale.ca.scale_down.drainability.rules import (
    daemon_set,
    local_storage,
    long_terminating,
    mirror,
    not_safe_to_evict,
    on_completion,
    pdb,
    replica_count,
    replicated,
    safe_to_evict,
    system,
    terminal,
)
from kscale.ca.scale_down.drainability.status import (
    BLOCK_DRAIN,
    DRAIN_OK,
    SKIP_DRAIN,
    UNDEFINED,
    WAIT_FOR_COMPLETION,
    BlockingPod,
    DrainStatus,
)
from kscale.ca.scale_down.pdb import RemainingPdbTracker
from kscale.effects import Moment, moment
from kscale.objects.core import Pod
from kscale.objects.owners import controller_of, is_daemonset_pod
from kscale.objects.pod_annotations import READ_ANNOTATIONS

__all__ = ["DrainJudge", "PodsToMove", "default_rules", "drain_status", "drainability", "pods_to_move"]


_UNDEFINED = DrainStatus()


class PodsToMove(msgspec.Struct, kw_only=True):
    """What draining a node means for its pods, in node order.

    ``pods`` find another place; ``daemon_set_pods`` go with the node; ``on_completion_pods`` are waited for. With
    ``blocking`` set the node cannot be drained; the lists hold what was gathered up to that pod.
    """

    pods: list[Pod] = []
    daemon_set_pods: list[Pod] = []
    on_completion_pods: list[Pod] = []
    blocking: BlockingPod | None = None
    status: DrainStatus | None = None
    """The verdict on the blocking pod."""

    @property
    def error(self) -> str | None:
        return None if self.status is None else self.status.error


def default_rules(options: AutoscalingOptions) -> list[Rule]:
    """The rules in registration order; three of them depend on options."""
    every = (
        (True, "Mirror", mirror.check),
        (True, "LongTerminating", long_terminating.check),
        (options.skip_nodes_with_custom_controller_pods, "ReplicaCount", replica_count.check),
        (True, "DaemonSet", daemon_set.check),
        (True, "SafeToEvict", safe_to_evict.check),
        (True, "Terminal", terminal.check),
        (True, "OnCompletion", on_completion.check),
        (True, "Replicated", replicated.check),
        (options.skip_nodes_with_system_pods, "System", system.check),
        (True, "NotSafeToEvict", not_safe_to_evict.check),
        (options.skip_nodes_with_local_storage, "LocalStorage", local_storage.check),
        (True, "PDB", pdb.check),
    )
    return [Rule(name, check) for present, name, check in every if present]


def drain_status(pod: Pod, context: DrainContext, rules: Sequence[Rule]) -> DrainStatus:
    """The first verdict of ``rules``, asked in their order about a pod in a ``context``, that is not undefined.

    A status with overrides decides nothing by itself: it is kept in mind, and when a later rule has one of those
    outcomes, the earliest such status is the answer.
    """
    remembered: list[DrainStatus] = []
    for rule in rules:
        status = rule.check(pod, context)
        if status.overrides:
            remembered.append(msgspec.structs.replace(status, rule=rule.name))
            continue
        for earlier in remembered:
            if status.outcome in earlier.overrides:
                return earlier
        if status.outcome != UNDEFINED:
            return msgspec.structs.replace(status, rule=rule.name)
    return _UNDEFINED


def pods_to_move(pods: Iterable[Pod], context: DrainContext, rules: Sequence[Rule] | None = None) -> PodsToMove:
    """Judges the pods of a node in order, up to the first that blocks (``GetPodsToMove``)."""
    if rules is None:
        return DrainJudge(context).pods_to_move(pods)
    return _gather(pods, lambda pod: drain_status(pod, context, rules))


def _gather(pods: Iterable[Pod], judge: Callable[[Pod], DrainStatus]) -> PodsToMove:
    result = PodsToMove()
    for pod in pods:
        status = judge(pod)
        if status.outcome in (UNDEFINED, DRAIN_OK):
            (result.daemon_set_pods if is_daemonset_pod(pod) else result.pods).append(pod)
        elif status.outcome == WAIT_FOR_COMPLETION:
            result.on_completion_pods.append(pod)
        elif status.outcome == BLOCK_DRAIN:
            result.blocking = BlockingPod(pod=pod.key, reason=status.blocking_reason)
            result.status = status
            break
        else:
            assert status.outcome == SKIP_DRAIN
    return result


class DrainJudge:
    """The default rules over many nodes, each distinct shape of pod judged once.

    What the rules read of most pods is the same for all pods of a controller; only disruption budgets change while
    nodes are removed, and they are asked anew. Verdicts are those of :func:`drain_status`.
    """

    __slots__ = ("_context", "_rules", "_seen", "_without_pdb")

    def __init__(self, context: DrainContext) -> None:
        self._context = context
        self._rules = default_rules(context.options)
        self._without_pdb = self._rules[:-1]
        self._seen: dict[tuple[object, ...], DrainStatus] = {}

    def status(self, pod: Pod) -> DrainStatus:
        """The verdict on one pod."""
        key = _kind(pod)
        if key is None:
            return drain_status(pod, self._context, self._rules)
        known = self._seen.get(key)
        if known is None:
            known = self._seen[key] = drain_status(pod, self._context, self._without_pdb)
        if known.outcome == BLOCK_DRAIN:
            return drain_status(pod, self._context, self._rules)  # its text names the pod
        if known.outcome != UNDEFINED:
            return known
        return drain_status(pod, self._context, self._rules[-1:]) if pdb.is_exhausted(pod, self._context) else known

    def pods_to_move(self, pods: Iterable[Pod]) -> PodsToMove:
        """``GetPodsToMove`` for one node."""
        return _gather(pods, self.status)


def _kind(pod: Pod) -> tuple[object, ...] | None:
    """Everything that the default rules but the last read of a pod; None where that includes a time."""
    metadata, spec = pod.metadata, pod.spec
    if metadata.deletion_timestamp is not None or metadata.namespace == "kube-system":
        return None
    annotations = metadata.annotations
    owner = controller_of(metadata) if metadata.owner_references else None
    return (
        metadata.namespace,
        None if owner is None else (owner.api_version, owner.kind, owner.name),
        tuple(map(annotations.get, READ_ANNOTATIONS)) if annotations else None,
        tuple(volume.name for volume in spec.volumes if local_storage.is_local(volume)) if spec.volumes else None,
        pod.status.phase,
        spec.restart_policy,
    )


def drainability(
    pods: Iterable[Pod],
    *,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
    listers: Listers | None = None,
    pdbs: RemainingPdbTracker | None = None,
) -> PodsToMove:
    """Whether a node with these pods can be drained, and what happens to each: the default rules of ``options``.

    Without ``listers`` controllers are not looked up; without ``pdbs`` there are no disruption budgets.
    """
    options = options or AutoscalingOptions()
    context = DrainContext(moment(now), options, listers, pdbs or RemainingPdbTracker())
    return pods_to_move(pods, context)
