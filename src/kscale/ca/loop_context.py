"""Inputs of a loop: nodes, groups, templates and the simulated cluster, and whether the cluster is actionable.

Upstream: ``core/static_autoscaler.go``, ``processors/actionablecluster``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from kscale.ca.cluster_state import get_upcoming_nodes
from kscale.ca.errors import INTERNAL_ERROR, AutoscalerError
from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.group_inputs import resolve_groups
from kscale.ca.identity_cache import cached_by_identity
from kscale.ca.node_infos import LoopTemplateCaches, TemplateCache, build_node_templates
from kscale.ca.node_lists import build_snapshot_node_lists
from kscale.ca.nodes import UPCOMING_NODE_ANNOTATION, is_upcoming_node
from kscale.ca.options import AutoscalingOptions
from kscale.ca.pod_lists.lists import find_excluded_placed_pods, find_expendable_placed_pods
from kscale.ca.state.loop_state import LoopState, RememberedTemplate
from kscale.ca.template_devices import build_missing_devices_check
from kscale.ca.templates import TaintConfig, copy_template
from kscale.effects import SECOND, Moment, duration
from kscale.effects.moments import ComparedDuration
from kscale.objects.api.apps import DaemonSet
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.meta import KubeObject
from kscale.objects.api.resource import ResourceSlice
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.nodegroups import Groups, GroupsLike
from kscale.objects.pod_owners import controller_of, is_daemonset_pod, is_mirror_pod
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "LoopContext",
    "NotActionable",
    "check_actionable",
    "check_csi_nodes",
    "coerce_loop_snapshot",
    "drop_uncounted_pods",
    "mark_upcoming",
]


def coerce_loop_snapshot(cluster: Cluster | Snapshot, options: AutoscalingOptions, now: Moment) -> Snapshot:
    """Return the given snapshot, or snapshot the cluster now, with devices and CSI nodes as the options require."""
    if isinstance(cluster, Snapshot):
        return cluster
    dra, csi = options.enable_dynamic_resource_allocation, options.enable_csi_node_aware_scheduling
    return cluster.snapshot(dra=dra, csi=csi, now=now)


def check_csi_nodes(snapshot: Snapshot) -> None:
    """Verify that every node of a CSI-node-aware snapshot has a CSINode.

    Otherwise upstream's loop ends (``predicate_snapshot.go``: SetClusterState). Upcoming nodes need none.

    Raises
    ------
    AutoscalerError
        For the first node without CSINode.
    """
    if not snapshot.csi:
        return
    known = snapshot.informers.csi_nodes
    for name, node in zip(snapshot.nodes, snapshot.columns.objects, strict=True):
        if name not in known and not is_upcoming_node(node):
            text = f"failed to initialize ClusterSnapshot: couldn't obtain csi node: csi nodes {name} not found"
            raise AutoscalerError(INTERNAL_ERROR, text)


def drop_uncounted_pods(snapshot: Snapshot, options: AutoscalingOptions) -> Snapshot:
    """Return the snapshot without the placed pods that take no room in upstream's simulation.

    These are expendable pods (a priority below ``expendable_pods_priority_cutoff``) and, if schedulers are allowed by
    name, pods of all other schedulers. Upstream leaves them out of its snapshot before it makes node templates
    (``core/static_autoscaler.go``: RunOnce), so a template from a node has none of them either.
    """
    uncounted = find_expendable_placed_pods(snapshot, options.expendable_pods_priority_cutoff)
    if options.allowed_scheduler_names:
        uncounted = np.union1d(uncounted, find_excluded_placed_pods(snapshot, options.allowed_scheduler_names))
    return snapshot.without_placed(uncounted)


NODES_NOT_READY_AFTER_START_TIMEOUT: Final[ComparedDuration] = 600 * SECOND
"""For so long after the process began nobody is told that no node is ready."""


class NotActionable(msgspec.Struct, kw_only=True, frozen=True):
    """Why a loop ends before it decides anything; ``tell``: whether an event is emitted."""

    message: str
    tell: bool = True


def check_actionable(
    nodes: int, ready_nodes: int, options: AutoscalingOptions, process_age: timedelta | None = None
) -> NotActionable | None:
    """Check whether the loop can act; None if it can.

    With ``--scale-up-from-zero=false`` a cluster without (ready) nodes is left alone. ``process_age``: how long the
    autoscaler has been running (None: long enough).
    """
    if options.scale_up_from_zero:
        return None
    if nodes == 0:
        return NotActionable(message="Cluster has no nodes.")
    if ready_nodes == 0:
        is_old = process_age is None or duration(process_age) > NODES_NOT_READY_AFTER_START_TIMEOUT
        return NotActionable(message="Cluster has no ready nodes.", tell=is_old)
    return None


_STAYING_PODS_KEY = "pods that may belong to their node"


def _can_belong_to_node(pod: Pod) -> bool:
    owner = controller_of(pod.metadata)
    return is_mirror_pod(pod) or is_daemonset_pod(pod) or (owner is not None and owner.kind == "DaemonSet")


def _filter_daemon_sets(workloads: Sequence[KubeObject]) -> list[DaemonSet]:
    return [each for each in workloads if isinstance(each, DaemonSet)]


class LoopContext:
    """The cluster as a loop observes it and as its simulation changes it.

    ``found`` is the cluster as observed. ``snapshot`` is the current simulation: it begins without uncounted pods
    (:func:`~kscale.ca.loop_context.drop_uncounted_pods`), and templates are built from it. ``groups`` are the
    provider's groups, ``candidates`` those that could be created. ``lists`` are the nodes by readiness and purpose.
    ``warnings`` are what upstream would log.
    """

    def __init__(
        self,
        given: Cluster | Snapshot,
        groups: GroupsLike,
        now: Moment,
        options: AutoscalingOptions,
        profile: SchedulerProfile | None,
        gpu_label: str = DEFAULT_GPU_LABEL,
        given_templates: Mapping[str, NodeTemplate] | None = None,
        known_templates: Mapping[str, RememberedTemplate] | None = None,
        *,
        add_provider_resources: bool = False,
    ) -> None:
        self.found = coerce_loop_snapshot(given, options, now)
        # Release 1.3 builds templates from all pods on a node; its loop drops uncounted pods later.
        self.snapshot = self.found if options.legacy else drop_uncounted_pods(self.found, options)
        self.now, self.options, self.profile = now, options, profile
        self._add_provider_resources = add_provider_resources
        self.adopt(groups)
        lacks = None
        if not options.legacy:  # release 1.3 has neither devices nor CSINodes
            lacks = build_missing_devices_check(
                self.groups, self.snapshot.informers, options, given=given_templates, known=known_templates
            )
        self.lists = build_snapshot_node_lists(self.found, gpu_label, TaintConfig.from_options(options), lacks)
        workloads = self.found.informers.workloads
        self.daemonsets: list[DaemonSet] = cached_by_identity(
            self.found, ("DaemonSets",), [workloads], _filter_daemon_sets
        )[0]
        self.warnings: list[str] = []
        self.not_started: list[str] = []

    def adopt(self, groups: GroupsLike) -> None:
        """Set the current groups. Raises InputError for invalid groups."""
        every = resolve_groups(self.found, groups)
        there = [group for group in every if group.exists or group.upcoming]
        self.groups = every if len(there) == len(every) else Groups(there, every.node_errors)
        self.candidates: list[NodeGroup] = [group for group in every if not group.exists and not group.upcoming]

    @property
    def all_groups(self) -> Groups:
        """Return the groups with their current target sizes, and those that could still be created."""
        candidates = [group for group in self.candidates if group.id not in self.groups]
        return Groups([*self.groups, *candidates], self.groups.node_errors) if candidates else self.groups

    def records_by_node(self, names: Iterable[str]) -> dict[str, list[PodRecord]]:
        """Return the pods of each of these nodes that exists."""
        snapshot, index = self.snapshot, self.snapshot.columns.index
        return {
            name: [snapshot.placed[at] for at in np.flatnonzero(snapshot.placed_node == index[name]).tolist()]
            for name in names
            if name in index
        }

    def templates(
        self, given: Mapping[str, NodeTemplate], known: Mapping[str, RememberedTemplate]
    ) -> tuple[dict[str, NodeTemplate], Callable[[], dict[str, RememberedTemplate]]]:
        """Build the template of each group's new nodes, and a function that returns the examples to cache."""
        every = [*self.groups, *self.candidates]
        others = self.groups
        if given or self.candidates:
            others = Groups((group for group in every if group.id not in given), self.groups.node_errors)

        caches = LoopTemplateCaches.of(self.found)
        cache = caches.decode({group.id: known[group.id] for group in others if group.id in known})
        built = build_node_templates(
            self.lists.registered,
            partial(self._examples, caches.examples),
            self.daemonsets,
            others,
            now=self.now,
            options=self.options,
            cache=cache,
            kept=caches.templates,
            completed=caches.completed if self._add_provider_resources else None,
        )
        caches.tidy({group.id for group in others}, self.found.columns.index)
        self.warnings += built.warnings
        all_templates = {**built.templates, **given}
        self.warnings += [
            f"node group {group.id} has no template: it cannot grow" for group in every if group.id not in all_templates
        ]

        def to_remember() -> dict[str, RememberedTemplate]:
            fresh = caches.encode({name: item for name, item in built.cache.items() if item is not cache.get(name)})
            return {name: fresh[name] if name in fresh else known[name] for name in built.cache}

        return {group.id: all_templates[group.id] for group in every if group.id in all_templates}, to_remember

    def _examples(self, kept: TemplateCache, nodes: Sequence[Node]) -> list[NodeTemplate | None]:
        """Return nodes with what a template needs: pods that may belong to the node itself, and its devices."""
        if not nodes:
            return []
        snapshot, informers, index = self.snapshot, self.snapshot.informers, self.snapshot.columns.index
        wanted = np.zeros(len(snapshot.nodes), dtype=np.bool_)
        wanted[[index[node.metadata.name] for node in nodes if node.metadata.name in index]] = True
        at = snapshot.placed.where(_STAYING_PODS_KEY, _can_belong_to_node, np.flatnonzero(wanted[snapshot.placed_node]))
        pods: dict[int, list[int]] = {}
        for i, where in zip(at.tolist(), snapshot.placed_node[at].tolist(), strict=True):
            pods.setdefault(where, []).append(i)
        slices: dict[str | None, list[ResourceSlice]] = {}
        for each in informers.resource_slices:
            slices.setdefault(each.spec.node_name, []).append(each)
        rows, added = snapshot.placed.rows, snapshot.placed.added
        stamps, memo = snapshot.table.columns["stamp"], snapshot.table.memo

        def example(node: Node) -> NodeTemplate:
            name = node.metadata.name
            here, published, csi = pods.get(index[name], []), slices.get(name, []), informers.csi_nodes.get(name)

            def make() -> NodeTemplate:
                pods_here = [snapshot.placed[i].pod for i in here]
                return NodeTemplate(node=node, pods=pods_here, csi_node=csi, resource_slices=published)

            if added:
                return make()
            return kept.get(name, (node, memo, csi, *published), tuple(stamps[rows[here]].tolist()), make)

        return [example(node) if node.metadata.name in index else None for node in nodes]

    def prepare(self, templates: Mapping[str, NodeTemplate], state: LoopState) -> dict[str, int]:
        """Remove nodes that have not started from the snapshot and add upcoming ones.

        Return how many nodes of each group are upcoming.
        """
        coming = get_upcoming_nodes(state.cluster, self.groups, self.now, templates=templates)
        fresh = [
            mark_upcoming(copy_template(templates[name], f"upcoming-{number}"))
            for name, item in coming.items()
            if name in templates
            for number in range(item.count)
        ]
        self.not_started = [name for item in coming.values() for name in item.registered]
        unstarted = [name for name in self.not_started if name in self.snapshot.columns.index]
        every, index = self.lists.all, self.found.columns.index
        unready = [every[index[name]] for name in self.lists.unready if name not in unstarted]
        if fresh or unstarted or unready:
            self.snapshot = self.snapshot.with_nodes(fresh, without=unstarted, replaced=unready)
        return {name: item.count for name, item in coming.items() if item.count and name in templates}

    def drop_uncounted_pods(self) -> None:
        """Take only the pods that do not count out of the snapshot."""
        self.snapshot = drop_uncounted_pods(self.snapshot, self.options)


def mark_upcoming(fresh: NodeTemplate) -> NodeTemplate:
    """Mark a copy of a template as an upcoming node."""
    metadata = fresh.node.metadata
    metadata = replace(metadata, annotations={**(metadata.annotations or {}), UPCOMING_NODE_ANNOTATION: "true"})
    return replace(fresh, node=replace(fresh.node, metadata=metadata))
