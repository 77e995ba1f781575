"""Inputs and state of a loop: nodes, groups, templates, the simulated cluster, and whether the cluster is actionable.

Upstream: ``core/static_autoscaler.go``, ``processors/actionablecluster``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace as replace_input
from datetime import timedelta
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace

from kscale.ca.cluster_state import get_upcoming_nodes, is_cluster_healthy
from kscale.ca.errors import INTERNAL_ERROR, AutoscalerError
from kscale.ca.events import build_status_events
from kscale.ca.expander.types import ExpanderInput, Rng
from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.group_inputs import resolve_groups
from kscale.ca.loop_state import LoopState, RememberedTemplate, clear_unneeded_nodes
from kscale.ca.node_group_set import Comparator
from kscale.ca.node_infos import LoopTemplateCaches, TemplateCache, build_node_templates
from kscale.ca.nodes import UPCOMING_NODE_ANNOTATION, build_snapshot_node_lists, is_upcoming_node
from kscale.ca.options import AutoscalingOptions, ResourceLimiter
from kscale.ca.pod_lists import ScaleUpEnforcer, drop_uncounted_pods
from kscale.ca.quota import Quota
from kscale.ca.scale_down.actuation.actuator import Actuator
from kscale.ca.template_devices import build_missing_devices_check
from kscale.ca.templates import TaintConfig, copy_template
from kscale.effects import SECOND, Emit, Moment, Progress, StepsOf, duration
from kscale.effects.moments import ComparedDuration
from kscale.objects.api.apps import DaemonSet
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.meta import KubeObject
from kscale.objects.api.resource import ResourceSlice
from kscale.objects.nodegroup import Groups, GroupsLike, NodeGroup, NodeTemplate
from kscale.objects.pod_owners import controller_of, is_daemonset_pod, is_mirror_pod
from kscale.scheduling.coercion import pods_of
from kscale.scheduling.compile.pod_classes import SharedPodClasses
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.caches import cached_by_identity
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.snapshot import BeforeLosses, Snapshot

__all__ = [
    "LoopContext",
    "LoopInputs",
    "NotActionable",
    "check_actionable",
    "check_csi_nodes",
    "coerce_loop_snapshot",
    "mark_upcoming",
]


def coerce_loop_snapshot(cluster: Cluster | Snapshot, options: AutoscalingOptions, now: Moment) -> Snapshot:
    """Return ``cluster`` if it is a snapshot, otherwise snapshot it at ``now``.

    The snapshot has devices and CSI nodes if the options require them.
    """
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


NODES_NOT_READY_AFTER_START_TIMEOUT: Final[ComparedDuration] = 600 * SECOND
"""For this time after the start of the process, no event reports that no node is ready."""


class NotActionable(msgspec.Struct, kw_only=True, frozen=True):
    """Reason for a loop to end before any decision. ``has_event``: whether an event is emitted."""

    message: str
    has_event: bool = True


def check_actionable(
    nodes: int, ready_nodes: int, options: AutoscalingOptions, process_age: timedelta | None = None
) -> NotActionable | None:
    """Return why the loop must end before any decision; None if it may continue.

    ``nodes``, ``ready_nodes``: numbers of nodes. With ``--scale-up-from-zero=false`` the loop ends if the cluster has
    no nodes, or no ready nodes. The second case emits no event if ``process_age`` is at most ten minutes (None: the
    process is older).
    """
    if options.scale_up_from_zero:
        return None
    if nodes == 0:
        return NotActionable(message="Cluster has no nodes.")
    if ready_nodes == 0:
        is_old = process_age is None or duration(process_age) > NODES_NOT_READY_AFTER_START_TIMEOUT
        return NotActionable(message="Cluster has no ready nodes.", has_event=is_old)
    return None


class LoopInputs(msgspec.Struct, kw_only=True, frozen=True):
    """Further inputs of a loop or of its scale-up; all are optional.

    - ``templates`` replace the computed templates of groups; others are built from real nodes, from the saved state, or
      from the group's own description, in this order.
    - ``gpu_label``: the node label that names the type of GPU (a cloud provider's; None: that of ``expander_input``).
      Nodes that have it and show no device are not ready yet, and limits by type (``gpu_total``) use it.
      ``gpu_types``: the types that the cloud lists (for metrics).
    - ``add_provider_resources``: templates from nodes get the resources that only the provider's template has, as on
      AWS.
    - ``process_age``: how long the autoscaler has been running (None: long enough).

    Scale-up:

    - ``expander_input``: without ``prices``, and if none are requested, ``price`` uses the prices of the groups
      (:func:`~kscale.ca.expander.price.build_group_prices`). ``rng`` breaks ties, else the first option wins.
    - ``quotas`` default to the limits in the options and, with ``capacity_quotas_enabled``, the cluster's CapacityQuota
      objects (an error: they could not be read); ``comparator`` to that of the options.
    - ``draining``: nodes whose pods are being moved, besides those that the loop itself drains.
    - ``pods``: names of pending pods; other pending pods are ignored. ``all_or_nothing``: all pods at once or none (as
      provisioning requests demand).
    - ``enforcer`` may force a scale-up that other rules prevent. ``max_looks`` replaces upstream's timeout on pending
      pods (``--pending-pods-batching-timeout``), which a pure function cannot have: with
      ``enable_graceful_degradation`` at most ``max_looks`` pods are checked (see :func:`kscale.place`), and the others
      wait for another loop.

    - ``pod_classes``: compiled classes that scale-ups of similar clusters share. Templates must not change then.

    Scale-down, which :func:`kscale.scale_up` ignores:

    - ``actuator``: continues deletions from loop to loop; a process has one. Without one the loop creates its own, for
      which the deletions of the state are in progress as long as their nodes exist.
    - ``limits``, ``max_simulations``, ``threads`` as in :class:`kscale.ca.ScaleDownInputs`.
    """

    templates: Mapping[str, NodeTemplate] = {}
    gpu_label: str | None = None
    gpu_types: Collection[str] = ()
    add_provider_resources: bool = False
    profile: SchedulerProfile | None = None
    process_age: timedelta | None = None
    # scale-up
    expander_input: ExpanderInput | None = None
    quotas: Sequence[Quota] | AutoscalerError | None = None
    comparator: Comparator | None = None
    rng: Rng | None = None
    draining: Sequence[str] = ()
    pods: Collection[str] | None = None
    all_or_nothing: bool = False
    enforcer: ScaleUpEnforcer | None = None
    max_looks: int | None = None
    pod_classes: SharedPodClasses | None = None
    # scale-down
    actuator: Actuator | None = None
    limits: ResourceLimiter | None = None
    max_simulations: int | None = None
    threads: int | None = None


_STAYING_PODS_KEY = "pods that may belong to their node"


def _can_belong_to_node(pod: Pod) -> bool:
    """Check whether the pod is a mirror pod or a DaemonSet pod, which a new node of the group may have, too."""
    owner = controller_of(pod.metadata)
    return is_mirror_pod(pod) or is_daemonset_pod(pod) or (owner is not None and owner.kind == "DaemonSet")


def _filter_daemon_sets(workloads: Sequence[KubeObject]) -> list[DaemonSet]:
    """Return the DaemonSets among the workloads."""
    return [each for each in workloads if isinstance(each, DaemonSet)]


class _ExamplesBeforeLosses(dict[str, tuple[Node, NodeTemplate]]):
    """The last example (:meth:`LoopContext._examples`) of each node by name, with the node that it was built from.

    Cached with a snapshot: after losses of other nodes, a node has the same pods as before.
    """


class LoopContext:
    """A loop in progress: its inputs, the cluster as its simulation changes it, and the state for the next loop.

    All phases of a loop share it. ``observed`` is the cluster as observed. ``snapshot`` is the current simulation: it
    begins without uncounted pods (:func:`~kscale.ca.pod_lists.drop_uncounted_pods`), and templates are built from
    it. ``groups`` are the provider's groups, ``candidates`` those that could be created. ``lists`` are the nodes by
    readiness and purpose. ``warnings`` are what upstream would log.

    The constructor raises InputError for invalid groups, and if the input ``pods`` names a pod that is not pending or
    names a pod twice.
    """

    def __init__(
        self,
        cluster: Cluster | Snapshot,
        groups: GroupsLike,
        now: Moment,
        options: AutoscalingOptions,
        state: LoopState | None,
        inputs: LoopInputs | None,
    ) -> None:
        self.p = Progress(now)
        self.now, self.options = now, options
        self.state = state = state or LoopState()
        self.inputs = inputs = inputs or LoopInputs()
        self.profile, expander = inputs.profile, inputs.expander_input
        own_label = DEFAULT_GPU_LABEL if expander is None else expander.gpu_label
        self.gpu_label = own_label if inputs.gpu_label is None else inputs.gpu_label
        self.observed = coerce_loop_snapshot(cluster, options, now)
        if inputs.pods is not None:
            pods_of(self.observed, inputs.pods, waiting=True)  # refuses names of no pending pod
        # Release 1.3 builds templates from all pods on a node; its loop drops uncounted pods later.
        self.snapshot = self.observed if options.legacy else drop_uncounted_pods(self.observed, options)
        self.adopt(groups)
        lacks = None
        if not options.legacy:  # release 1.3 has neither devices nor CSINodes
            lacks = build_missing_devices_check(
                self.groups, self.snapshot.informers, options, caller_templates=inputs.templates, known=state.templates
            )
        self.lists = build_snapshot_node_lists(self.observed, self.gpu_label, TaintConfig.from_options(options), lacks)
        workloads = self.observed.informers.workloads
        self.daemonsets: list[DaemonSet] = cached_by_identity(
            self.observed.interner.memo, ("DaemonSets",), [workloads], _filter_daemon_sets
        )[0]
        node_count = len(self.lists.all)
        if expander is None:
            self.expander_input = ExpanderInput(gpu_label=self.gpu_label, now=now, cluster_node_count=node_count)
        else:
            self.expander_input = replace_input(
                expander,
                gpu_label=self.gpu_label,
                now=expander.now or now,
                cluster_node_count=expander.cluster_node_count or node_count,
            )
        self.comparator = inputs.comparator or Comparator.from_options(options)
        self.warnings: list[str] = []

    def adopt(self, groups: GroupsLike) -> None:
        """Replace the current groups and candidates by ``groups``.

        Groups that neither exist nor are being created become the ``candidates``. Raises InputError for invalid groups.
        """
        every = resolve_groups(self.observed, groups)
        there = [group for group in every if group.exists or group.upcoming]
        self.groups = every if len(there) == len(every) else Groups(there, every.node_errors)
        self.candidates: list[NodeGroup] = [group for group in every if not group.exists and not group.upcoming]

    def update_state(self, **changes: Any) -> None:
        """Replace the fields of the state that ``changes`` names."""
        self.state = replace(self.state, **changes)

    @property
    def all_groups(self) -> Groups:
        """Return the groups with their current target sizes, and those that could still be created."""
        candidates = [group for group in self.candidates if group.id not in self.groups]
        return Groups([*self.groups, *candidates], self.groups.node_errors) if candidates else self.groups

    def records_by_node(self, names: Iterable[str]) -> dict[str, list[PodRecord]]:
        """Return the placed pods by node name, for each of these nodes that exists."""
        snapshot, index = self.snapshot, self.snapshot.columns.index
        return {
            name: [snapshot.placed[at] for at in np.flatnonzero(snapshot.placed_node == index[name]).tolist()]
            for name in names
            if name in index
        }

    def build_templates(self) -> tuple[dict[str, NodeTemplate], Callable[[], dict[str, RememberedTemplate]]]:
        """Return the templates of new nodes by group id, and a function that returns the templates to cache.

        Groups without a template are left out, with a warning. Raises :class:`kscale.ca.AutoscalerError` for a node
        that is not in the snapshot, and InputError for an unreadable template in the state.
        """
        own_templates, known = self.inputs.templates, self.state.templates
        every = [*self.groups, *self.candidates]
        others = self.groups
        if own_templates or self.candidates:
            others = Groups((group for group in every if group.id not in own_templates), self.groups.node_errors)

        caches = LoopTemplateCaches.of(self.observed)
        cache = caches.decode({group.id: known[group.id] for group in others if group.id in known})
        built = build_node_templates(
            self.lists.registered,
            partial(self._examples, caches.examples),
            self.daemonsets,
            others,
            now=self.now,
            options=self.options,
            cache=cache,
            example_cache=caches.templates,
            completed=caches.completed if self.inputs.add_provider_resources else None,
        )
        caches.tidy({group.id for group in others}, self.observed.columns.index)
        self.warnings += built.warnings
        all_templates = {**built.templates, **own_templates}
        self.warnings += [
            f"node group {group.id} has no template: it cannot grow" for group in every if group.id not in all_templates
        ]

        def to_remember() -> dict[str, RememberedTemplate]:
            fresh = caches.encode({name: item for name, item in built.cache.items() if item is not cache.get(name)})
            return {name: fresh[name] if name in fresh else known[name] for name in built.cache}

        return {group.id: all_templates[group.id] for group in every if group.id in all_templates}, to_remember

    def _examples(self, cache: TemplateCache, nodes: Sequence[Node]) -> list[NodeTemplate | None]:
        """Return each node as a template with the pods that may belong to the node itself, its CSINode and its devices.

        None for a node that is not in the snapshot. ``cache`` reuses what earlier loops built of the same objects.
        """
        if not nodes:
            return []
        snapshot, informers, index = self.snapshot, self.snapshot.informers, self.snapshot.columns.index
        losses = BeforeLosses.find(snapshot)
        known = {} if losses is None else losses.snapshot.memo.get(_ExamplesBeforeLosses, _ExamplesBeforeLosses)
        names = [node.metadata.name for node in nodes]
        if all(
            name in index and name in known and known[name][0] is node for name, node in zip(names, nodes, strict=True)
        ):
            return [known[name][1] for name in names]
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
            return cache.get(name, (node, memo, csi, *published), tuple(stamps[rows[here]].tolist()), make)

        examples = [example(node) if node.metadata.name in index else None for node in nodes]
        if losses is not None:
            items = zip(names, nodes, examples, strict=True)
            known.update((name, (node, built)) for name, node, built in items if built is not None)
        return examples

    def add_upcoming_nodes(self, templates: Mapping[str, NodeTemplate]) -> dict[str, int]:
        """Prepare the snapshot for placing pods on usable and upcoming nodes.

        Removes registered nodes that are still starting, adds upcoming nodes built from ``templates`` (by group id),
        and replaces nodes that are not usable yet by unready copies. Returns how many nodes of each group are upcoming.
        Groups without upcoming nodes and groups without template are left out.
        """
        coming = get_upcoming_nodes(self.state.cluster, self.groups, self.now, templates=templates)
        fresh = [
            mark_upcoming(copy_template(templates[name], f"upcoming-{number}"))
            for name, item in coming.items()
            if name in templates
            for number in range(item.count)
        ]
        registered = (name for item in coming.values() for name in item.registered)
        unstarted = [name for name in registered if name in self.snapshot.columns.index]
        every, index = self.lists.all, self.observed.columns.index
        unready = [every[index[name]] for name in self.lists.unready if name not in unstarted]
        if fresh or unstarted or unready:
            self.snapshot = self.snapshot.with_nodes(fresh, without=unstarted, replaced=unready)
        return {name: item.count for name, item in coming.items() if item.count and name in templates}

    def clear_unneeded_nodes(self) -> None:
        """Remove the unneeded nodes from the state.

        With the profile of release 1.3 a new process stays new, so its cooldowns start with a later scale-down plan.
        """
        if self.options.legacy:
            self.update_state(scale_down=replace(self.state.scale_down, unneeded_since={}))
        else:
            self.state = clear_unneeded_nodes(self.state)

    def is_cluster_healthy(self) -> StepsOf[Emit, bool]:
        """Return whether the cluster is healthy. If it is not, emit an event and clear the unneeded nodes."""
        if is_cluster_healthy(self.state.cluster, self.options):
            return True
        self.clear_unneeded_nodes()
        yield from self.p.emit(
            *build_status_events(self.options, "Warning", "ClusterUnhealthy", "Cluster is unhealthy")
        )
        return False


def mark_upcoming(fresh: NodeTemplate) -> NodeTemplate:
    """Return a copy of the template ``fresh`` whose node is annotated as an upcoming node."""
    metadata = fresh.node.metadata
    metadata = replace(metadata, annotations={**(metadata.annotations or {}), UPCOMING_NODE_ANNOTATION: "true"})
    return replace(fresh, node=replace(fresh.node, metadata=metadata))
