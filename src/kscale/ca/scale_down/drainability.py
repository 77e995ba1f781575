"""Whether a pod may be moved off its node: drain rules and their evaluation.

Upstream: ``simulator/drainability``, ``simulator/drain.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from kscale.ca import unremovable_reasons
from kscale.ca.nodes import is_long_terminating
from kscale.ca.options import AutoscalingOptions, default_options
from kscale.ca.scale_down.pdb import RemainingPdbTracker
from kscale.ca.unremovable_reasons import (
    BLOCK_DRAIN,
    DRAIN_OK,
    SKIP_DRAIN,
    UNDEFINED_OUTCOME,
    WAIT_FOR_COMPLETION,
    BlockingPod,
    DrainStatus,
    build_blocked_status,
)
from kscale.effects import Moment, duration, moment
from kscale.objects.api.apps import DaemonSet, Job, ReplicaSet, StatefulSet
from kscale.objects.api.core import Pod, ReplicationController
from kscale.objects.api.meta import KubeObject, OwnerReference
from kscale.objects.api.volumes import Volume
from kscale.objects.argument_types import typed, unchecked
from kscale.objects.pod_owners import (
    READ_ANNOTATIONS,
    SAFE_TO_EVICT,
    SAFE_TO_EVICT_LOCAL_VOLUMES,
    controller_of,
    is_daemonset_pod,
    is_mirror_pod,
    pod_annotation,
)
from kscale.objects.times import moment_in

__all__ = [
    "DrainContext",
    "DrainabilityChecker",
    "Listers",
    "PodsToMove",
    "Rule",
    "build_over_budget_status",
    "check_daemon_set",
    "check_drainability",
    "check_local_storage",
    "check_long_terminating",
    "check_mirror",
    "check_not_safe_to_evict",
    "check_on_completion",
    "check_pdb",
    "check_replica_count",
    "check_replicated",
    "check_safe_to_evict",
    "check_system",
    "check_terminal",
    "default_rules",
    "evaluate_rules",
    "get_default_rules",
    "get_drain_status",
    "get_pods_to_move",
    "is_local_volume",
    "is_old_system_pod",
    "is_pdb_exhausted",
]


_RESOURCE_NAMES: dict[type[KubeObject], str] = {
    ReplicationController: "replicationcontroller",
    ReplicaSet: "replicaset.apps",
    StatefulSet: "statefulset.apps",
    DaemonSet: "daemonset.apps",
    Job: "job.batch",
}
_ControllerType = TypeVar("_ControllerType", bound=KubeObject)


class Listers:
    """Existing controllers, by kind, namespace and name."""

    __slots__ = ("_objects", "_replica_shortages")

    def __init__(self, objects: Iterable[KubeObject] = ()) -> None:
        """Store the controllers among the objects; objects of other kinds are ignored."""
        self._objects: dict[tuple[type[KubeObject], str, str], Any] = {
            (type(item), item.metadata.namespace, item.metadata.name): item
            for item in objects
            if type(item) in _RESOURCE_NAMES
        }
        self._replica_shortages: tuple[int, dict[tuple[type[KubeObject], str, str], bool]] | None = None

    def get(self, kind: type[_ControllerType], namespace: str, name: str) -> _ControllerType | None:
        """Return the controller of this kind, namespace and name; None if it does not exist."""
        controller: _ControllerType | None = self._objects.get((kind, namespace, name))
        return controller

    def replica_shortages(self, minimum: int) -> dict[tuple[type[KubeObject], str, str], bool]:
        """Map (kind, namespace, name) of each existing controller to whether it wants fewer than ``minimum`` replicas.

        This is all that rules read of controllers. Do not modify the result.
        """
        if self._replica_shortages is None or self._replica_shortages[0] != minimum:
            self._replica_shortages = (
                minimum,
                {key: _has_too_few_replicas(item, minimum) for key, item in self._objects.items()},
            )
        return self._replica_shortages[1]

    @staticmethod
    def not_found(kind: type[KubeObject], name: str) -> str:
        """Format the lister's error message for a missing controller."""
        return f'{_RESOURCE_NAMES[kind]} "{name}" not found'


def _has_too_few_replicas(item: KubeObject, minimum: int) -> bool:
    """Check whether a ReplicationController or ReplicaSet wants fewer replicas than a minimum.

    False for other kinds.
    """
    if not isinstance(item, (ReplicationController, ReplicaSet)):
        return False
    return item.spec.replicas is not None and item.spec.replicas < minimum


@dataclass(frozen=True, slots=True)
class DrainContext:
    """Context of the drainability rules.

    ``listers`` None: controllers are not looked up. ``now``: an aware datetime or a moment, else InputError.
    ``pdbs``: the remaining disruption budgets; None: there are none.
    """

    now: Moment
    options: AutoscalingOptions
    listers: Listers | None = None
    pdbs: RemainingPdbTracker = field(default_factory=RemainingPdbTracker)

    def __post_init__(self) -> None:
        object.__setattr__(self, "now", moment(self.now))


class Rule(msgspec.Struct, frozen=True):
    """A drainability rule with its ``name``; ``check`` returns what draining the node means for a pod in a context."""

    name: str
    check: Callable[[Pod, DrainContext], DrainStatus]


_OK = DrainStatus(outcome=DRAIN_OK)
_UNDEFINED = DrainStatus()


def check_daemon_set(pod: Pod, context: DrainContext) -> DrainStatus:
    """Return DrainOk for DaemonSet pods; otherwise no decision."""
    del context
    return _OK if is_daemonset_pod(pod) else _UNDEFINED


def check_local_storage(pod: Pod, context: DrainContext) -> DrainStatus:
    """Return BlockDrain for a hostPath or on-disk emptyDir volume that no annotation declares as safe.

    Otherwise no decision.
    """
    del context
    safe = (pod_annotation(pod, SAFE_TO_EVICT_LOCAL_VOLUMES) or "").split(",")
    if not any(is_local_volume(volume) and volume.name not in safe for volume in pod.spec.volumes):
        return _UNDEFINED
    return build_blocked_status(
        unremovable_reasons.LOCAL_STORAGE_REQUESTED, f"pod with local storage present: {pod.metadata.name}"
    )


def is_local_volume(volume: Volume) -> bool:
    """Return whether the volume is on the node's own disk."""
    if volume.host_path is not None:
        return True
    return volume.empty_dir is not None and volume.empty_dir.get("medium") != "Memory"


_SKIP = DrainStatus(outcome=SKIP_DRAIN)


def check_long_terminating(pod: Pod, context: DrainContext) -> DrainStatus:
    """Return SkipDrain for pods that exceeded their grace period by 30 seconds; otherwise no decision."""
    return _SKIP if is_long_terminating(pod, context.now) else _UNDEFINED


def check_mirror(pod: Pod, context: DrainContext) -> DrainStatus:
    """Return SkipDrain for mirror pods; otherwise no decision."""
    del context
    return _SKIP if is_mirror_pod(pod) else _UNDEFINED


def check_not_safe_to_evict(pod: Pod, context: DrainContext) -> DrainStatus:
    """Return BlockDrain for pods whose safe-to-evict annotation is ``false``; otherwise no decision."""
    del context
    if pod_annotation(pod, SAFE_TO_EVICT) != "false":
        return _UNDEFINED
    error = f"pod annotated as not safe to evict present: {pod.metadata.name}"
    return build_blocked_status(unremovable_reasons.NOT_SAFE_TO_EVICT_ANNOTATION, error)


_WAIT = DrainStatus(outcome=WAIT_FOR_COMPLETION)


def check_on_completion(pod: Pod, context: DrainContext) -> DrainStatus:
    """Return WaitForCompletion for pods whose safe-to-evict annotation is ``on-completion``; otherwise no decision."""
    del context
    return _WAIT if pod_annotation(pod, SAFE_TO_EVICT) == "on-completion" else _UNDEFINED


def is_pdb_exhausted(pod: Pod, context: DrainContext) -> bool:
    """Check whether any budget that covers the pod allows no more disruption."""
    return any(pdb.disruptions_allowed < 1 for pdb in context.pdbs.matching(pod))


def build_over_budget_status(key: str) -> DrainStatus:
    """Build BlockDrain for the pod ``key`` (``namespace/name``): a budget that covers it allows no disruption."""
    return build_blocked_status(unremovable_reasons.NOT_ENOUGH_PDB, f"not enough pod disruption budget to move {key}")


def check_pdb(pod: Pod, context: DrainContext) -> DrainStatus:
    """Return BlockDrain if a budget that covers the pod allows no disruption; otherwise no decision."""
    return build_over_budget_status(pod.key) if is_pdb_exhausted(pod, context) else _UNDEFINED


_APPS_GROUP = "apps"


def check_replica_count(pod: Pod, context: DrainContext) -> DrainStatus:
    """Return BlockDrain for pods whose controller is missing or has too few replicas; otherwise no decision.

    The controller is looked up by name in the pod's own namespace. There is no decision without listers and for
    controllers of other kinds.
    """
    owner = controller_of(pod.metadata)
    if context.listers is None or owner is None or owner.api_version.count("/") > 1:
        return _UNDEFINED
    group = owner.api_version.rpartition("/")[0]
    if owner.kind == "ReplicationController":
        return _check_controller_replicas(pod, owner, context, context.listers, ReplicationController)
    if is_daemonset_pod(pod):
        if owner.kind == "DaemonSet" and group == _APPS_GROUP:
            return _check_controller_exists(
                pod, owner, context.listers, DaemonSet, "daemonset for {} is not present, err: {}"
            )
        return _UNDEFINED
    if owner.kind == "Job":
        return _check_controller_exists(pod, owner, context.listers, Job, "job for {} is not available: err: {}")
    if owner.kind == "ReplicaSet":
        return _check_controller_replicas(pod, owner, context, context.listers, ReplicaSet)
    if owner.kind == "StatefulSet" and group == _APPS_GROUP:
        return _check_controller_exists(
            pod, owner, context.listers, StatefulSet, "statefulset for {} is not available: err: {}"
        )
    return _UNDEFINED


def _check_controller_exists(
    pod: Pod, owner: OwnerReference, listers: Listers, kind: type[KubeObject], text: str
) -> DrainStatus:
    """Return BlockDrain if the pod's controller ``owner`` does not exist; otherwise no decision.

    ``text``: the error message, with places for the pod and the lister's error.
    """
    if listers.get(kind, pod.metadata.namespace, owner.name) is None:
        return build_blocked_status(
            unremovable_reasons.CONTROLLER_NOT_FOUND, text.format(pod.key, Listers.not_found(kind, owner.name))
        )
    return _UNDEFINED


def _check_controller_replicas(
    pod: Pod,
    owner: OwnerReference,
    context: DrainContext,
    listers: Listers,
    kind: type[ReplicationController | ReplicaSet],
) -> DrainStatus:
    """Return BlockDrain if the controller ``owner`` does not exist or wants too few replicas; otherwise no decision."""
    controller = listers.get(kind, pod.metadata.namespace, owner.name)
    text = f"replication controller for {pod.key} "
    if controller is None:
        error = f"{text}is not available, err: {Listers.not_found(kind, owner.name)}"
        return build_blocked_status(unremovable_reasons.CONTROLLER_NOT_FOUND, error)
    minimum = context.options.min_replica_count
    replicas = controller.spec.replicas
    if replicas is not None and replicas < minimum:
        # Upstream prints the address of the number instead of the number.
        return build_blocked_status(
            unremovable_reasons.MIN_REPLICAS_REACHED, f"{text}has too few replicas spec: <address> min: {minimum}"
        )
    return _UNDEFINED


_KNOWN_CONTROLLERS = frozenset(("ReplicationController", "Job", "ReplicaSet", "StatefulSet"))


def check_replicated(pod: Pod, context: DrainContext) -> DrainStatus:
    """Return BlockDrain for pods without controller; otherwise no decision.

    With ``skip_nodes_with_custom_controller_pods`` the controller must also be of a known kind.
    """
    owner = controller_of(pod.metadata)
    custom = context.options.skip_nodes_with_custom_controller_pods
    if owner is not None and (not custom or owner.kind in _KNOWN_CONTROLLERS):
        return _UNDEFINED
    return build_blocked_status(unremovable_reasons.NOT_REPLICATED, f"{pod.key} is not replicated")


def check_safe_to_evict(pod: Pod, context: DrainContext) -> DrainStatus:
    """Return DrainOk for pods whose safe-to-evict annotation is ``true``; otherwise no decision."""
    del context
    return _OK if pod_annotation(pod, SAFE_TO_EVICT) == "true" else _UNDEFINED


def is_old_system_pod(pod: Pod, context: DrainContext) -> bool:
    """Check whether a pod is older than ``blocking_system_pod_distruption_timeout``. False without a creation time."""
    created = pod.metadata.creation_timestamp
    timeout = duration(context.options.blocking_system_pod_distruption_timeout)
    return created is not None and context.now > moment_in(pod, created, "metadata.creationTimestamp") + timeout


def check_system(pod: Pod, context: DrainContext) -> DrainStatus:
    """Check kube-system pods without matching PDB; no decision on other pods.

    Returns DrainOk once they are older than ``blocking_system_pod_distruption_timeout``, BlockDrain before.
    """
    if pod.metadata.namespace != "kube-system" or context.pdbs.matching(pod):
        return _UNDEFINED
    if is_old_system_pod(pod, context):
        return _OK
    return build_blocked_status(
        unremovable_reasons.UNMOVABLE_KUBE_SYSTEM_POD,
        f"non-daemonset, non-mirrored, non-pdb-assigned kube-system pod present: {pod.metadata.name}",
    )


def check_terminal(pod: Pod, context: DrainContext) -> DrainStatus:
    """Return DrainOk for a failed pod and for a succeeded pod that is not restarted; otherwise no decision."""
    del context
    ended = pod.status.phase == "Failed" or (
        pod.status.phase == "Succeeded" and pod.spec.restart_policy in ("Never", "OnFailure")
    )
    return _OK if ended else _UNDEFINED


class PodsToMove(msgspec.Struct, kw_only=True):
    """Pods of a node by their fate in a drain, in node order.

    ``pods`` are moved; ``daemon_set_pods`` end with the node; ``on_completion_pods`` are waited for. With ``blocking``
    set the node cannot be drained; the lists then contain the pods before the blocking one.
    """

    pods: list[Pod] = []
    daemon_set_pods: list[Pod] = []
    on_completion_pods: list[Pod] = []
    blocking: BlockingPod | None = None
    status: DrainStatus | None = None
    """The verdict on the blocking pod."""

    @property
    def error(self) -> str | None:
        """Return why the blocking pod blocks; None if no pod does."""
        return None if self.status is None else self.status.error


@lru_cache(8)
def _build_rules(replica_count: bool, system: bool, local_storage: bool) -> tuple[Rule, ...]:
    """Return the rules in upstream's order. The arguments say whether the three optional rules are included."""
    every = (
        (True, "Mirror", check_mirror),
        (True, "LongTerminating", check_long_terminating),
        (replica_count, "ReplicaCount", check_replica_count),
        (True, "DaemonSet", check_daemon_set),
        (True, "SafeToEvict", check_safe_to_evict),
        (True, "Terminal", check_terminal),
        (True, "OnCompletion", check_on_completion),
        (True, "Replicated", check_replicated),
        (system, "System", check_system),
        (True, "NotSafeToEvict", check_not_safe_to_evict),
        (local_storage, "LocalStorage", check_local_storage),
        (True, "PDB", check_pdb),
    )
    return tuple(Rule(name, check) for present, name, check in every if present)


def default_rules(options: AutoscalingOptions) -> tuple[Rule, ...]:
    """Return the rules of :func:`get_default_rules` as a tuple, which is cached."""
    return _build_rules(
        options.skip_nodes_with_custom_controller_pods,
        options.skip_nodes_with_system_pods,
        options.skip_nodes_with_local_storage,
    )


@typed
def get_default_rules(options: AutoscalingOptions) -> list[Rule]:
    """Return the rules in upstream's order; whether three of them are included depends on options."""
    return [*default_rules(options)]


@typed
def get_drain_status(pod: Pod, context: DrainContext, rules: Sequence[Rule]) -> DrainStatus:
    """Return the first defined verdict of ``rules``, evaluated in order for a pod in a ``context``.

    If no rule decides, the outcome of the result is undefined. A status with overrides is not a verdict by itself. When
    a later rule returns one of the overridden outcomes, the earliest status that overrides it is the result.
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
        if status.outcome != UNDEFINED_OUTCOME:
            return msgspec.structs.replace(status, rule=rule.name)
    return _UNDEFINED


evaluate_rules = unchecked(get_drain_status)


def get_pods_to_move(pods: Iterable[Pod], context: DrainContext, rules: Sequence[Rule] | None = None) -> PodsToMove:
    """Divide the pods of a node into those that a drain moves and those that it need not move (``GetPodsToMove``).

    Ends at the first pod that blocks the drain; the result names it. Pods that a drain skips are in no list. ``rules``:
    default: those of the context's options.
    """
    if rules is None:
        return DrainabilityChecker(context).pods_to_move(pods)
    return _collect_pods(pods, lambda pod: evaluate_rules(pod, context, rules))


def _collect_pods(pods: Iterable[Pod], judge: Callable[[Pod], DrainStatus]) -> PodsToMove:
    """Sort the pods by the verdicts that ``judge`` returns, up to the first pod that blocks.

    Skipped pods are in no list.
    """
    result = PodsToMove()
    for pod in pods:
        status = judge(pod)
        if status.outcome in (UNDEFINED_OUTCOME, DRAIN_OK):
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


class DrainabilityChecker:
    """The default rules for many nodes; each distinct shape of pod is checked once.

    Most of what the rules read is the same for all pods of a controller. Only disruption budgets change while nodes are
    removed, so they are checked each time. Verdicts are those of :func:`get_drain_status`.
    """

    __slots__ = ("_context", "_rules", "_seen", "_without_pdb")

    def __init__(self, context: DrainContext) -> None:
        self._context = context
        self._rules = default_rules(context.options)
        self._without_pdb = self._rules[:-1]
        self._seen: dict[tuple[object, ...], DrainStatus] = {}

    def status(self, pod: Pod) -> DrainStatus:
        """Return the verdict of the default rules on one pod; no decision if no rule decides."""
        key = _get_pod_shape(pod)
        if key is None:
            return evaluate_rules(pod, self._context, self._rules)
        cached = self._seen.get(key)
        if cached is None:
            cached = self._seen[key] = evaluate_rules(pod, self._context, self._without_pdb)
        if cached.outcome == BLOCK_DRAIN:
            return evaluate_rules(pod, self._context, self._rules)  # its text names the pod
        if cached.outcome != UNDEFINED_OUTCOME:
            return cached
        return evaluate_rules(pod, self._context, self._rules[-1:]) if is_pdb_exhausted(pod, self._context) else cached

    def pods_to_move(self, pods: Iterable[Pod]) -> PodsToMove:
        """Sort the pods of one node as :func:`get_pods_to_move` does."""
        return _collect_pods(pods, self.status)


def _get_pod_shape(pod: Pod) -> tuple[object, ...] | None:
    """Return a key of all that the default rules read of a pod, except the last one (on disruption budgets).

    None for a pod whose verdict may depend on the time: it is terminating or in kube-system.
    """
    metadata, spec = pod.metadata, pod.spec
    if metadata.deletion_timestamp is not None or metadata.namespace == "kube-system":
        return None
    annotations = metadata.annotations
    owner = controller_of(metadata) if metadata.owner_references else None
    return (
        metadata.namespace,
        None if owner is None else (owner.api_version, owner.kind, owner.name),
        tuple(map(annotations.get, READ_ANNOTATIONS)) if annotations else None,
        tuple(volume.name for volume in spec.volumes if is_local_volume(volume)) if spec.volumes else None,
        pod.status.phase,
        spec.restart_policy,
    )


@typed
def check_drainability(
    pods: Iterable[Pod],
    *,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
    listers: Listers | None = None,
    pdbs: RemainingPdbTracker | None = None,
) -> PodsToMove:
    """Check whether a node with these pods can be drained, by the default rules of ``options``.

    Parameters
    ----------
    pods : iterable of Pod
        The pods of the node.
    now : datetime or Moment
        Time of the check.
    options : AutoscalingOptions, optional
        Default: upstream's defaults.
    listers : Listers, optional
        Controllers of pods. Without them controllers are not looked up.
    pdbs : RemainingPdbTracker, optional
        Disruption budgets. Default: none.

    Returns
    -------
    PodsToMove
        The pods to move, by what happens to them, up to the first pod that blocks the drain, and that pod. Pods that a
        drain skips are in no list.

    Raises
    ------
    InputError
        If ``now`` is not a time.
    """
    options = options or default_options()
    context = DrainContext(moment(now), options, listers, pdbs or RemainingPdbTracker())
    return get_pods_to_move(pods, context)
