"""What a loop of scale-up finds: nodes, groups, templates, and the simulated cluster made ready for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kscale.ca.cluster_state import upcoming_nodes
from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.node_infos import mixed_templates, recalled, remembered
from kscale.ca.node_lists import node_lists
from kscale.ca.options import AutoscalingOptions
from kscale.ca.pod_lists.expendable import expendable_placed
from kscale.ca.pod_lists.split import split
from kscale.ca.promised_resources import lacks_promised
from kscale.ca.scale_down.atomic import UPCOMING_NODE_ANNOTATION
from kscale.ca.state import LoopState, RememberedTemplate
from kscale.ca.templates import TaintConfig, fresh_copy
from kscale.effects import Moment
from kscale.errors import InputError
from kscale.objects.core import Node, Pod
from kscale.objects.meta import ObjectMeta
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.nodegroups import Groups
from kscale.objects.owners import controller_of, is_daemonset_pod, is_mirror_pod
from kscale.objects.resource import ResourceSlice
from kscale.scheduling.place import PlaceResult
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.informers import Informers
from kscale.snapshot.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["Scene", "bind", "hold_claims", "put"]

_RESOURCE_API = "resource.k8s.io/v1"
_STAYING = "pods that may belong to their node"


def _may_stay(pod: Pod) -> bool:
    owner = controller_of(pod.metadata)
    return is_mirror_pod(pod) or is_daemonset_pod(pod) or (owner is not None and owner.kind == "DaemonSet")


class Scene:
    """The cluster as a loop finds it, and changes it in its simulation.

    ``groups`` are those that the provider has, ``candidates`` those that could be made; ``lists`` the nodes by what
    they are good for; ``warnings`` what upstream would log.
    """

    def __init__(
        self,
        given: Cluster | Snapshot,
        groups: Groups | Iterable[NodeGroup],
        now: Moment,
        options: AutoscalingOptions,
        profile: SchedulerProfile | None,
        gpu_label: str = DEFAULT_GPU_LABEL,
        given_templates: Mapping[str, NodeTemplate] | None = None,
        known_templates: Mapping[str, RememberedTemplate] | None = None,
    ) -> None:
        self.cluster = given if isinstance(given, Cluster) else None
        dra, csi = options.enable_dynamic_resource_allocation, options.enable_csi_node_aware_scheduling
        self.snapshot = given.snapshot(dra=dra, csi=csi) if isinstance(given, Cluster) else given
        self.now, self.options, self.profile = now, options, profile
        nodes: list[Node] = self.snapshot.columns.objects
        every = Groups.of(groups, nodes)
        there = [group for group in every if group.exists or group.upcoming]
        self.groups = every if len(there) == len(every) else Groups(there, every.node_errors)
        self.candidates: list[NodeGroup] = [group for group in every if not group.exists and not group.upcoming]
        lacks = None
        if not options.legacy:  # release 1.3 knew neither devices nor CSINodes
            lacks = lacks_promised(
                self.groups, self.snapshot.informers, options, given=given_templates, known=known_templates
            )
        self.lists = node_lists(nodes, gpu_label=gpu_label, taints=TaintConfig.from_options(options), lacks=lacks)
        self.daemonsets = list(self.cluster.all("DaemonSet")) if self.cluster is not None else []
        self.warnings: list[str] = []
        self._dropped: list[str] = []

    def whole_cluster(self) -> Cluster:
        """The cluster. Raises InputError where only a snapshot was given."""
        if self.cluster is None:
            text = "coming nodes, a salvo, quota objects: they take the cluster, not a snapshot"
            raise InputError(text)
        return self.cluster

    def records_by_node(self, names: Iterable[str]) -> dict[str, list[PodRecord]]:
        """The pods of the nodes, as far as the nodes exist."""
        snapshot, index = self.snapshot, self.snapshot.columns.index
        return {
            name: [snapshot.placed_record(at) for at in np.flatnonzero(snapshot.placed_node == index[name]).tolist()]
            for name in names
            if name in index
        }

    def templates(
        self, given: Mapping[str, NodeTemplate], known: Mapping[str, RememberedTemplate]
    ) -> tuple[dict[str, NodeTemplate], Callable[[], dict[str, RememberedTemplate]]]:
        """What a new node of each group is, and what makes the examples to remember."""
        every = [*self.groups, *self.candidates]
        others = self.groups
        if given or self.candidates:
            others = Groups((group for group in every if group.id not in given), self.groups.node_errors)

        cache = {group.id: recalled(known[group.id], group.id) for group in others if group.id in known}
        found = mixed_templates(
            self.lists.all, self._examples, self.daemonsets, others, now=self.now, options=self.options, cache=cache
        )
        self.warnings += found.warnings
        made = {**found.templates, **given}
        self.warnings += [
            f"node group {group.id} has no template: it cannot grow" for group in every if group.id not in made
        ]

        def to_remember() -> dict[str, RememberedTemplate]:
            return {
                name: known[name] if item is cache.get(name) else remembered(item) for name, item in found.cache.items()
            }

        return {group.id: made[group.id] for group in every if group.id in made}, to_remember

    def _examples(self, nodes: Sequence[Node]) -> list[NodeTemplate | None]:
        """Nodes with what a template looks at: pods that may belong to the node itself, and its devices."""
        if not nodes:
            return []
        snapshot, informers, index = self.snapshot, self.snapshot.informers, self.snapshot.columns.index
        wanted = np.zeros(len(snapshot.nodes), dtype=np.bool_)
        wanted[[index[node.metadata.name] for node in nodes if node.metadata.name in index]] = True
        at = snapshot.placed_where(_STAYING, _may_stay, np.flatnonzero(wanted[snapshot.placed_node]))
        pods: dict[int, list[Pod]] = {}
        for i, where in zip(at.tolist(), snapshot.placed_node[at].tolist(), strict=True):
            pods.setdefault(where, []).append(snapshot.placed_record(i).pod)
        slices: dict[str | None, list[ResourceSlice]] = {}
        for each in informers.resource_slices:
            slices.setdefault(each.spec.node_name, []).append(each)
        return [
            NodeTemplate(
                node=node,
                pods=pods.get(index[node.metadata.name], []),
                csi_node=informers.csi_nodes.get(node.metadata.name),
                resource_slices=slices.get(node.metadata.name, []),
            )
            if node.metadata.name in index
            else None
            for node in nodes
        ]

    def prepare(self, templates: Mapping[str, NodeTemplate], state: LoopState) -> dict[str, int]:
        """Takes pods that do not count out of the cluster and puts coming nodes in; how many of each group come."""
        coming = upcoming_nodes(state.cluster, self.groups, self.now, templates=templates)
        self.drop_not_counted()
        if not any(item.count or item.registered for item in coming.values()):
            return {}
        changed = self._without_dropped()
        for name, item in coming.items():
            if name in templates:
                for number in range(item.count):
                    put(changed, fresh_copy(templates[name], f"upcoming-{number}"))
            for registered in item.registered:
                changed.remove(Node(metadata=replace(Node().metadata, name=registered)))
        self.cluster, self._dropped = changed, []
        self.snapshot = changed.snapshot(csi=self.snapshot.csi, dra=self.snapshot.dra)
        return {name: item.count for name, item in coming.items() if item.count and name in templates}

    def drop_not_counted(self) -> None:
        """Takes only the pods that do not count out of the snapshot."""
        gone = self._not_counted()
        if len(gone):
            self._dropped = [self.snapshot.placed_key(at) for at in gone.tolist()]
            keep = np.ones(len(self.snapshot.placed_node), dtype=np.bool_)
            keep[gone] = False
            self.snapshot = self.snapshot.keeping(keep)

    def _without_dropped(self) -> Cluster:
        """A copy of the cluster without the pods that do not count."""
        changed = self.whole_cluster().copy()
        for key in self._dropped:
            namespace, _, name = key.rpartition("/")
            changed.remove(Pod(metadata=ObjectMeta(name=name, namespace=namespace)))
        return changed

    def _not_counted(self) -> NDArray[np.int64]:
        """Placed pods that take no room in the simulation, by position."""
        options, snapshot = self.options, self.snapshot
        gone = expendable_placed(snapshot, options.expendable_pods_priority_cutoff)
        if not options.allowed_scheduler_names:
            return gone
        running = [snapshot.placed_record(at).pod for at in range(len(snapshot.placed_node))]
        excluded = {id(pod) for pod in split(running, allowed=options.allowed_scheduler_names).excluded}
        return np.union1d(gone, np.flatnonzero([id(pod) in excluded for pod in running]))

    def with_placed(self, placed: PlaceResult) -> Cluster:
        """Another cluster in which the pods that fit run where they fit."""
        changed = self._without_dropped()
        for record, node in placed.placed_records:
            bind(changed, record.pod, self.snapshot.nodes[node])
        hold_claims(changed, self.snapshot.informers, placed.snapshot_after.informers)
        return changed


def put(cluster: Cluster, fresh: NodeTemplate) -> Node:
    """Puts a copy of a template into a cluster as a node that is coming, its pods and devices with it; the node as it
    is there."""
    metadata = fresh.node.metadata
    metadata = replace(metadata, annotations={**(metadata.annotations or {}), UPCOMING_NODE_ANNOTATION: "true"})
    node = replace(fresh.node, metadata=metadata, api_version="v1", kind="Node")
    cluster.apply(node)
    for pod in fresh.pods:
        cluster.apply(replace(pod, api_version="v1", kind="Pod"))
    if fresh.csi_node is not None:
        cluster.apply(replace(fresh.csi_node, api_version="storage.k8s.io/v1", kind="CSINode"))
    for each in fresh.resource_slices:
        cluster.apply(replace(each, api_version=_RESOURCE_API, kind="ResourceSlice"))
    return node


def bind(cluster: Cluster, pod: Pod, node: str) -> None:
    """Lets a pod run on a node of the cluster."""
    cluster.apply(replace(pod, api_version="v1", kind="Pod", spec=replace(pod.spec, node_name=node)))


def hold_claims(cluster: Cluster, before: Informers, after: Informers) -> None:
    """Lets claims that were allocated meanwhile hold their devices in the cluster."""
    for key, claim in after.resource_claims.items():
        if claim is not before.resource_claims.get(key):
            cluster.apply(replace(claim, api_version=_RESOURCE_API, kind="ResourceClaim"))
