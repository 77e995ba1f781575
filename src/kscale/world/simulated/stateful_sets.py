"""Controllers of StatefulSets and DaemonSets.

Upstream: ``pkg/controller/statefulset``, ``pkg/controller/daemon``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from msgspec.structs import replace

from kscale.effects import VirtualTime
from kscale.objects.api.apps import DaemonSet, DaemonSetStatus, StatefulSet, StatefulSetOrdinals, StatefulSetStatus
from kscale.objects.api.core import (
    Affinity,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodTemplateSpec,
)
from kscale.objects.api.meta import KubeObject, object_key
from kscale.objects.conditions import pod_ready
from kscale.objects.workloads import claims_of, daemonset_pod, pod_count, pods_of, revision_of, should_run
from kscale.world.simulated.api_server import ApiObjects, Changes, one_by_one
from kscale.world.simulated.controllers import Controller, OwnedPods, PodMaker
from kscale.world.simulated.pods import delete_pod, is_finished

__all__ = ["DaemonSets", "StatefulSets"]

_REVISION: Final = "controller-revision-hash"


class _Revision(NamedTuple):
    """Revision of a StatefulSet's ``template``.

    Pods of this revision have the label value ``name`` or one of ``aliases`` (the labels present when the set was first
    seen). ``before`` is the previous template until all pods have this one (``currentRevision``).
    """

    template: PodTemplateSpec
    name: str
    aliases: frozenset[str]
    before: PodTemplateSpec | None = None

    def has(self, pod: Pod) -> bool:
        """Return whether a pod belongs to this revision."""
        label = (pod.metadata.labels or {}).get(_REVISION, "")
        return label == self.name or label in self.aliases


class StatefulSets(Controller):
    """Controller that keeps one pod per ordinal, with claims that outlive the pod.

    With ``OrderedReady`` the next pod is created when the previous one is ready, and the highest ordinal is deleted
    first. Pods of an old template are replaced one after another, highest ordinal first.
    """

    kind: ClassVar[str] = "StatefulSet"

    def __init__(self, api: ApiObjects, time: VirtualTime, owned: OwnedPods, maker: PodMaker) -> None:
        super().__init__(api, time, owned, rank=1)
        self._maker = maker
        self._revisions: dict[str, _Revision] = {}
        self._first: dict[str, tuple[str, frozenset[str]]] = {}
        """UID of a set -> first revision, and revision labels of the pods present before."""
        self._taken: dict[str, str] = {}
        """Key of another owner's pod whose name a set needs -> key of the set."""
        api.listen(self.kind, one_by_one(self._forget_deleted))
        api.listen("Pod", self._pods)

    def _pods(self, changes: Changes[Pod]) -> None:
        """Schedule a sync of the sets that waited for the name of a deleted pod."""
        if not self._taken:
            return
        for key, _, new in changes:
            if new is None and key in self._taken:
                self.changed(self._taken.pop(key))

    def _forget_deleted(self, old: StatefulSet | None, new: StatefulSet | None) -> None:
        """Drop the state of a deleted set."""
        if old is not None and new is None:
            self._revisions.pop(old.metadata.uid, None)
            self._first.pop(old.metadata.uid, None)

    def sync(self, stateful_set: StatefulSet) -> None:
        """Create the first missing pod, delete the last surplus pod, or replace one of an old template.

        With the policy ``Parallel``, all missing pods are created and all surplus pods deleted.
        """
        pods = {
            pod.name: pod
            for pod in self._owned.get_pods(stateful_set.metadata.uid).values()
            if _ordinal(pod, stateful_set) >= 0
        }
        revision = self._revision(stateful_set, pods.values())
        begin = stateful_set.spec.ordinals.start if stateful_set.spec.ordinals else 0
        replicas = pod_count(stateful_set)
        parallel = stateful_set.spec.pod_management_policy == "Parallel"
        names = {f"{stateful_set.name}-{ordinal}": ordinal - begin for ordinal in range(begin, begin + replicas)}
        blocked = False
        for name, number in names.items():
            pod = pods.get(name)
            if pod is None:
                if self._api.find("Pod", key := object_key(stateful_set.metadata.namespace, name)) is not None:
                    self._taken[key] = stateful_set.key
                else:
                    self._create_pod(
                        stateful_set, begin + number, revision.before if number < _partition(stateful_set) else None
                    )
                blocked = True
            elif is_finished(pod):
                delete_pod(self._api, pod)
                blocked = True
            elif pod.metadata.deletion_timestamp is not None or not pod_ready(pod):
                blocked = True
            if blocked and not parallel:
                break
        if parallel or not blocked:
            others = [pod for name, pod in pods.items() if name not in names]
            surplus = sorted(others, key=lambda pod: _ordinal(pod, stateful_set), reverse=True)
            for pod in surplus if parallel else surplus[:1]:
                if pod.metadata.deletion_timestamp is None:
                    delete_pod(self._api, pod)
            if parallel or not surplus:
                self._update(stateful_set, [pods.get(name) for name in names], revision)
        self._write_status(stateful_set, revision)

    def _revision(self, stateful_set: StatefulSet, pods: Iterable[Pod]) -> _Revision:
        """Return the revision of the current template. Pods present at first count as up to date."""
        uid, template = stateful_set.metadata.uid, stateful_set.spec.template
        revision = self._revisions.get(uid)
        if revision is None:
            labels_before = frozenset((pod.metadata.labels or {}).get(_REVISION, "") for pod in pods)
            revision = self._revisions[uid] = _Revision(template, revision_of(stateful_set), labels_before)
            self._first[uid] = revision.name, labels_before
        elif revision.template is not template:
            name, (first, labels_before) = revision_of(stateful_set), self._first[uid]
            before = revision.before or (None if name == revision.name else revision.template)
            revision = _Revision(template, name, labels_before if name == first else frozenset(), before)
            self._revisions[uid] = revision
        return revision

    def _update(self, stateful_set: StatefulSet, pods: Sequence[Pod | None], revision: _Revision) -> None:
        """Delete the last pod of an old template, once all pods with a higher ordinal are ready.

        ``pods``: the pods by ordinal (None: missing).
        """
        if stateful_set.spec.update_strategy.type == "OnDelete":
            return
        for pod in reversed(pods[_partition(stateful_set) :]):
            if pod is None or pod.metadata.deletion_timestamp is not None:
                return
            if not revision.has(pod):
                delete_pod(self._api, pod)
                return
            if not pod_ready(pod):
                return

    def _create_pod(self, stateful_set: StatefulSet, ordinal: int, template: PodTemplateSpec | None) -> None:
        """Create the pod of an ordinal, and its missing claims. ``template`` (if any) replaces the set's template."""
        spec = replace(stateful_set.spec, ordinals=StatefulSetOrdinals(start=ordinal), replicas=1)
        only = replace(stateful_set, spec=spec if template is None else replace(spec, template=template))
        for claim in claims_of(only):
            if self._api.find(claim.kind, claim.key) is None:
                self._api.create(claim)
        (pattern,) = pods_of(only, classes=self._maker.classes)
        self._maker.make(pattern, name=pattern.name)

    def _write_status(self, stateful_set: StatefulSet, revision: _Revision) -> None:
        """Write the status from the set's pods, if it differs. A complete rollout ends the previous revision."""
        pods = [pod for pod in self._owned.get_pods(stateful_set.metadata.uid).values() if not is_finished(pod)]
        ready = sum(pod.metadata.deletion_timestamp is None and pod_ready(pod) for pod in pods)
        status = StatefulSetStatus(
            observed_generation=stateful_set.metadata.generation or 0,
            replicas=len(pods),
            ready_replicas=ready,
            current_replicas=len(pods),
            updated_replicas=sum(map(revision.has, pods)),
            available_replicas=ready,
        )
        replicas = pod_count(stateful_set)
        is_complete = (
            stateful_set.spec.update_strategy.type != "OnDelete" and status.updated_replicas == replicas == ready
        )
        if revision.before is not None and is_complete:
            self._revisions[stateful_set.metadata.uid] = revision._replace(before=None)
        if status != stateful_set.status:
            self._api.put(replace(stateful_set, status=status))


def _ordinal(pod: Pod, stateful_set: StatefulSet) -> int:
    """Return the ordinal of a pod, or -1 if its name has none (``getOrdinal``)."""
    name, _, number = pod.name.rpartition("-")
    return int(number) if name == stateful_set.name and number.isascii() and number.isdigit() else -1


def _partition(stateful_set: StatefulSet) -> int:
    """Return the ordinal offset below which pods keep the old template (``rollingUpdate.partition``)."""
    rolling = stateful_set.spec.update_strategy.rolling_update
    return (rolling.partition or 0) if rolling is not None else 0


class DaemonSets(Controller):
    """Controller that keeps one pod on each node that a DaemonSet selects."""

    kind: ClassVar[str] = "DaemonSet"

    def __init__(self, api: ApiObjects, time: VirtualTime, owned: OwnedPods, maker: PodMaker) -> None:
        super().__init__(api, time, owned, rank=1)
        self._maker = maker
        api.listen("Node", one_by_one(self._node))

    def _node(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """Schedule a sync of all DaemonSets if a node is added, removed, or has another spec or other labels."""
        before, after = ((node.spec, node.metadata.labels) if isinstance(node, Node) else None for node in (old, new))
        if before != after:
            for key in self._api.get_all(self.kind):
                self.changed(key)

    def sync(self, daemon_set: DaemonSet) -> None:
        """Create missing pods, and delete finished pods and pods of removed or unselected nodes."""
        pods = list(self._owned.get_pods(daemon_set.metadata.uid).values())
        pods_by_node: dict[str, Pod] = {}
        selected = {node.name for node in self._api.get_all("Node").values() if should_run(daemon_set, node)}
        for pod in pods:
            node = pod.spec.node_name or _target(pod)
            if node not in selected or is_finished(pod):
                if pod.metadata.deletion_timestamp is None:
                    delete_pod(self._api, pod)
            else:
                pods_by_node[node] = pod
        missing = [node for node in self._api.get_all("Node") if node in selected and node not in pods_by_node]
        if missing:
            pattern = daemonset_pod(daemon_set, classes=self._maker.classes)
            for node in missing:
                self._maker.make(_pin_to_node(pattern, node), generate_name=f"{daemon_set.name}-")
        self._write_status(daemon_set, selected)

    def _write_status(self, daemon_set: DaemonSet, wanted: set[str]) -> None:
        """Write the status, if it differs. ``wanted``: names of the selected nodes."""
        pods = list(self._owned.get_pods(daemon_set.metadata.uid).values())
        ready = sum(map(pod_ready, pods))
        status = DaemonSetStatus(
            current_number_scheduled=len(pods),
            desired_number_scheduled=len(wanted),
            number_available=ready,
            number_ready=ready,
            number_unavailable=max(len(wanted) - ready, 0),
            updated_number_scheduled=len(pods),
            observed_generation=daemon_set.metadata.generation or 0,
        )
        if status != daemon_set.status:
            self._api.put(replace(daemon_set, status=status))


def _pin_to_node(pod: Pod, node: str) -> Pod:
    """Return the pod with a node affinity to one node (``ReplaceDaemonSetPodNodeNameNodeAffinity``)."""
    term = NodeSelectorTerm(match_fields=[NodeSelectorRequirement(key="metadata.name", operator="In", values=[node])])
    affinity = pod.spec.affinity or Affinity()
    of_nodes = replace(affinity.node_affinity or NodeAffinity(), required=NodeSelector(node_selector_terms=[term]))
    return replace(pod, spec=replace(pod.spec, affinity=replace(affinity, node_affinity=of_nodes)))


def _target(pod: Pod) -> str:
    """Return the node that a DaemonSet pod is pinned to; empty if there is none."""
    affinity: Any = pod.spec.affinity and pod.spec.affinity.node_affinity
    for term in affinity.required.node_selector_terms if affinity and affinity.required else ():
        for expression in term.match_fields:
            if expression.key == "metadata.name" and expression.values:
                return str(expression.values[0])
    return ""
