"""Inputs and report of a whole loop, the errors that end it early, and its observations under upstream's metric names
(upstream: ``metrics/metrics.go``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Final

import msgspec

from kscale.ca.cluster_state import (
    ClusterAutoscalerStatus,
    ClusterStateRegistry,
    get_backoff_status,
    is_cluster_healthy,
    is_group_healthy,
)
from kscale.ca.errors import TRANSIENT_ERROR, AutoscalerError, ErrorRecord
from kscale.ca.gpu import get_dra_drivers_label, get_gpu_metric_labels
from kscale.ca.loop_state import LoopState, NodeLatency
from kscale.ca.metrics import build_observation
from kscale.ca.node_group_set import ScaleUpInfo
from kscale.ca.nodes import TO_BE_DELETED_TAINT, is_being_deleted
from kscale.ca.options import AutoscalingOptions
from kscale.ca.repair import Repair
from kscale.ca.scale_down.actuation.deletion_tracker import NodeDeleteResult, StartedDeletion
from kscale.ca.scale_down.plan import ScaleDownPlan
from kscale.ca.scale_down.unneeded import UnremovableNode
from kscale.ca.scale_up.plan import ScaleUpPlan
from kscale.ca.template_devices import MISMATCH_TYPES
from kscale.ca.templates import TaintConfig
from kscale.effects import SECOND, Action, Event, Moment, Observation
from kscale.errors import InputError
from kscale.objects.api.core import Node
from kscale.objects.argument_types import typed_methods
from kscale.objects.nodegroup import Groups, NodeTemplate
from kscale.objects.quantity import Quantity
from kscale.records import Result, Rows
from kscale.snapshot.caches import cached_by_identity
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "LoopEndedError",
    "LoopReport",
    "build_device_mismatch_observations",
    "build_failed_scale_up_observations",
    "build_group_health_observations",
    "build_group_observations",
    "build_inactive_observations",
    "build_latency_observations",
    "build_node_observations",
    "build_readiness_observations",
    "build_scale_up_observations",
    "build_skipped_scale_up_observations",
    "build_unremovable_observations",
]


class LoopEndedError(Exception):
    """The loop ends here: without an error (``reason``), or with the error that it returns."""

    def __init__(self, reason: str = "", error: ErrorRecord | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = error

    @classmethod
    def of(cls, error: AutoscalerError, default_type: str = "") -> LoopEndedError:
        """Build the end of a loop with an error; ``default_type`` is for an error without type."""
        return cls(error=ErrorRecord(type=error.type or default_type, message=error.message))


@typed_methods()
class LoopReport(Result, msgspec.Struct, kw_only=True, dict=True):
    """Result of one loop: decisions, actions and the state for the next loop.

    - ``state``: for the next loop; ``groups``: the current groups, with the targets that were requested.
    - ``error``: what upstream returns from its loop; ``ended``: why the loop ended early without an error (else empty).
    - ``repair``: what was repaired (None: not reached); ``scale_up``, ``scale_down``: the decisions (None: not reached,
      or scale-down is disabled); ``started``: deletions that began; ``removed_groups``: groups of auto-provisioning
      that were not needed anymore.
    - ``deletion_results``: how deletions ended since the previous loop, by node. Each is reported once.
    - ``status``: the status of the cluster; ``warnings``: what upstream only logs.
    - ``deletions_under_way``: whether nodes were being deleted when the loop looked.
    - ``snapshot_after``: the simulated cluster in which scale-down searched for places.
    - ``actions``, ``events``, ``observations``: of a loop that was run as if everything succeeded. Whoever runs the
      steps gets them as actions instead.
    """

    state: LoopState
    groups: Groups
    snapshot_after: Snapshot
    error: ErrorRecord | None = None
    ended: str = ""
    repair: Repair | None = None
    scale_up: ScaleUpPlan | None = None
    scale_down: ScaleDownPlan | None = None
    started: StartedDeletion | None = None
    removed_groups: list[str] = []
    deletion_results: dict[str, NodeDeleteResult] = {}
    status: ClusterAutoscalerStatus | None = None
    warnings: list[str] = []
    deletions_under_way: bool = False
    actions: Sequence[Action] = ()
    events: Sequence[Event] = ()
    observations: Sequence[Observation] = ()

    @property
    def successful(self) -> bool:
        """Return whether the loop ended without an error, or with a transient one only."""
        return self.error is None or self.error.type == TRANSIENT_ERROR

    def __repr__(self) -> str:
        up = self.scale_up
        grown = [str(info) for info in (*up.scale_ups, *up.min_sizes)] if up is not None else []
        parts = [
            f"error={self.error.message!r}" if self.error is not None else "",
            f"ended={self.ended!r}" if self.ended else "",
            f"scale_up={up.result}{' ' + ' '.join(grown) if grown else ''}" if up is not None else "",
            f"scale_down={self.scale_down_result}" if self.scale_down is not None else "",
            f"deleting={[item.node for item in self.started.nodes]}" if self.started and self.started.nodes else "",
        ]
        return f"<LoopReport: {', '.join(part for part in parts if part)}>"

    @property
    def pending(self) -> list[str]:
        """List the pods in question; empty if the loop ended before the scale-up.

        See :attr:`kscale.ScaleUpPlan.pending`.
        """
        return [] if self.scale_up is None else self.scale_up.pending

    @property
    def placed(self) -> dict[str, str]:
        """Map pods that fit without new nodes to their nodes; empty if the loop ended before the scale-up."""
        return {} if self.scale_up is None else self.scale_up.placed

    @property
    def unschedulable(self) -> list[str]:
        """List the pods that stay without a node; empty if the loop ended before the scale-up."""
        return [] if self.scale_up is None else self.scale_up.unschedulable

    @property
    def nodes(self) -> list[str]:
        """List the nodes whose deletion this loop starts."""
        return [item.node for item in self.started.nodes] if self.started is not None else []

    @property
    def cost(self) -> float | None:
        """Return the price of the new nodes per hour; None if a price is not known.

        0 if the loop ended before the scale-up.
        """
        return 0.0 if self.scale_up is None else self.scale_up.cost

    def explain(self, name: str) -> str:
        """Return what the loop does for a pod (``namespace/name``) or about a node, in one line.

        ``name``: of the pod or node. Raises InputError if the loop did not consider it.
        """
        part = self.scale_up if "/" in name else self.scale_down
        if part is None:
            raise InputError(f"this loop did not consider {name}: {self.ended or 'it ended before'}")
        return part.explain(name)

    def table_rows(self) -> Rows:
        """Return one row per node group that grows and per node whose deletion starts."""
        up = self.scale_up
        grown = [] if up is None else [*up.scale_ups, *up.min_sizes]
        rows = [
            *(("group", info.group, f"{info.current} -> {info.new}") for info in grown),
            *(("node", item.node, "deleted") for item in (self.started.nodes if self.started is not None else ())),
        ]
        return Rows({"kind": str, "name": str, "change": str}, rows)

    def _repr_html_(self) -> str:
        """Return an HTML representation for notebooks."""
        from kscale.html import markup

        parts = [plan._repr_html_() for plan in (self.scale_up, self.scale_down) if plan is not None]
        return markup.listing(repr(self), (), (), markup.origin()) + "".join(parts)

    @property
    def scale_down_result(self) -> str:
        """Return upstream's name of the scale-down result; ``ScaleDownNotTried`` if the loop ended before it."""
        if self.started is not None:
            return self.started.result
        return self.scale_down.result if self.scale_down is not None else "ScaleDownNotTried"


_SKIPPED_REASONS: Final = {"cpu": "CpuResourceLimit", "memory": "MemoryResourceLimit"}
_NODE_STATES: Final = ("ready", "unready", "notStarted", "suspended", "longUnregistered", "unregistered")


def build_node_observations(snapshot: Snapshot, now: Moment, taints: TaintConfig) -> list[Observation]:
    """Build the metrics of the nodes' total cores and memory, and of their taints by kind.

    Nodes that are being deleted count only for the taints.
    """

    def amounts(node: Node) -> tuple[int, int, list[str]]:
        """Return the cores, the bytes and the kinds of the taints of a node."""
        capacity = node.status.capacity or {}
        kinds = [*map(taints.kind_of, node.spec.taints)]
        return _get_amount(capacity.get("cpu")), _get_amount(capacity.get("memory")), kinds

    nodes = snapshot.columns.objects
    sizes = cached_by_identity(snapshot.interner.memo, ("sizes of nodes", taints), nodes, amounts)
    cores, memory, kinds = cached_by_identity(
        snapshot.interner.memo, ("sizes of all nodes", taints), [sizes], _sum_sizes
    )[0]
    if TO_BE_DELETED_TAINT in kinds:
        stay = [each for each, node in zip(sizes, nodes, strict=True) if not is_being_deleted(node, now)]
        cores, memory, _ = _sum_sizes(stay)
    return [
        build_observation("cluster_cpu_current_cores", cores),
        build_observation("cluster_memory_current_bytes", memory),
        *(build_observation("node_taints_count", count, type=kind) for kind, count in kinds.items()),
    ]


def _sum_sizes(sizes: Sequence[tuple[int, int, list[str]]]) -> tuple[int, int, Counter[str]]:
    """Return the total cores, the total bytes, and the number of taints by kind."""
    if not sizes:
        return 0, 0, Counter()
    cores, memory, kinds = zip(*sizes, strict=True)
    return sum(cores), sum(memory), Counter(chain.from_iterable(kinds))


def _get_amount(amount: Quantity | None) -> int:
    """Return the amount rounded up, at least 0; 0 for None."""
    return 0 if amount is None else max(0, amount.value())


def build_group_observations(groups: Groups, options: AutoscalingOptions) -> list[Observation]:
    """Build observations of the maximum number of nodes.

    With ``emit_per_nodegroup_metrics`` also of the minimum and maximum size of each existing group.
    """
    there = [group for group in groups if group.exists]
    max_nodes = sum(group.max_size for group in there)
    if options.max_nodes_total > 0:
        max_nodes = min(max_nodes, options.max_nodes_total)
    observations = [build_observation("max_nodes_count", max_nodes)]
    if options.emit_per_nodegroup_metrics:
        for group in there:
            observations.append(build_observation("node_group_min_count", group.min_size, node_group=group.id))
            observations.append(build_observation("node_group_max_count", group.max_size, node_group=group.id))
    return observations


def build_readiness_observations(
    state: ClusterStateRegistry, groups: Groups, options: AutoscalingOptions
) -> list[Observation]:
    """Build observations of the readiness after an update of the cluster state."""
    running = [group for group in groups if not group.upcoming]
    provisioned = sum(group.autoprovisioned for group in running)
    total = state.total
    lists = (
        total.ready, total.unready, total.not_started, total.suspended, total.long_unregistered, total.unregistered,
    )  # fmt: skip
    observations = [
        build_observation("node_groups_count", len(running) - provisioned, node_group_type="autoscaled"),
        build_observation("node_groups_count", provisioned, node_group_type="autoprovisioned"),
    ]
    if options.emit_per_nodegroup_metrics:
        observations += [
            build_observation("node_group_target_count", group.size, node_group=group.id) for group in running
        ]
    observations.append(build_observation("cluster_safe_to_autoscale", int(is_cluster_healthy(state, options))))
    observations += [
        build_observation("nodes_count", len(names), state=which)
        for which, names in zip(_NODE_STATES, lists, strict=True)
    ]
    return observations


def build_inactive_observations() -> list[Observation]:
    """Build the observations of a cluster that is not actionable."""
    observations = [build_observation("cluster_safe_to_autoscale", 0)]
    return observations + [build_observation("nodes_count", 0, state=which) for which in _NODE_STATES]


def build_scale_up_observations(
    resized: Iterable[tuple[ScaleUpInfo, Moment]],
    templates: Mapping[str, NodeTemplate],
    gpu_label: str,
    gpu_types: Collection[str],
) -> list[Observation]:
    """Build observations of the number of requested nodes.

    ``resized``: resizes with their times; ``templates``: by group id; ``gpu_types``: GPU types that the cloud provider
    lists.
    """
    observations = []
    for info, _ in resized:
        labels = _get_device_labels(templates.get(info.group), gpu_label, gpu_types)
        count = info.new - info.current
        observations.append(build_observation("scaled_up_nodes_total", count, **labels))
        del labels["dra_drivers"]
        if labels["gpu_name"]:
            observations.append(build_observation("scaled_up_gpu_nodes_total", count, **labels))
    return observations


def build_skipped_scale_up_observations(exceeded: Mapping[str, Iterable[str]]) -> list[Observation]:
    """Build an observation for each group and resource (cpu, memory) whose quota prevented the group's scale-up.

    ``exceeded``: exceeded resources by group id; resources other than cpu and memory are left out.
    """
    return [
        build_observation("skipped_scale_events_count", 1.0, direction="up", reason=_SKIPPED_REASONS[name])
        for names in exceeded.values()
        for name in names
        if name in _SKIPPED_REASONS
    ]


def build_failed_scale_up_observations(
    state: ClusterStateRegistry, templates: Mapping[str, NodeTemplate], gpu_label: str, gpu_types: Collection[str]
) -> list[Observation]:
    """Build observations that count the scale-ups that failed in this loop, and the nodes that they requested.

    ``templates``: by group id. ``gpu_types``: GPU types that the cloud provider lists.
    """
    observations = []
    for group, failures in state.failures.items():
        for failure in failures:
            reason = failure.error.code
            labels = _get_device_labels(templates.get(group), gpu_label, gpu_types)
            observations.append(build_observation("failed_scale_ups_total", 1.0, reason=reason, **labels))
            observations.append(build_observation("failed_node_creations_total", failure.delta, reason=reason))
            del labels["dra_drivers"]
            if labels["gpu_name"]:
                observations.append(build_observation("failed_gpu_scale_ups_total", 1.0, reason=reason, **labels))
    return observations


def _get_device_labels(template: NodeTemplate | None, gpu_label: str, gpu_types: Collection[str]) -> dict[str, str]:
    """Return the metric labels about GPUs and DRA drivers of a template; empty texts without a template."""
    if template is None:
        return {"gpu_resource_name": "", "gpu_name": "", "dra_drivers": ""}
    gpu = get_gpu_metric_labels(gpu_label, template.node, gpu_types)
    return {**gpu, "dra_drivers": get_dra_drivers_label(template.resource_slices)}


def build_latency_observations(latencies: Iterable[NodeLatency]) -> list[Observation]:
    """Build observations of how long nodes stayed past their unneeded-time threshold."""
    return [
        build_observation(
            "node_removal_latency_seconds",
            each.latency / SECOND,
            deleted="true" if each.deleted else "false",
            delay_reason=each.delay_reason,
        )
        for each in latencies
    ]


def build_device_mismatch_observations(mismatches: Mapping[str, Counter[str]]) -> list[Observation]:
    """Build observations of the device groups that differ from templates, by driver and mismatch type."""
    return [
        build_observation("dra_node_template_resources_mismatch", counts[type_], driver=driver, mismatch_type=type_)
        for driver, counts in mismatches.items()
        for type_ in MISMATCH_TYPES
    ]


def build_unremovable_observations(unremovable: Mapping[str, UnremovableNode]) -> list[Observation]:
    """Build observations of unremovable nodes by reason; reasons without nodes are left out."""
    counts = Counter(map(attrgetter("reason"), unremovable.values()))
    return [build_observation("unremovable_nodes_count", count, reason=reason) for reason, count in counts.items()]


def build_group_health_observations(
    state: ClusterStateRegistry, groups: Groups, now: Moment, options: AutoscalingOptions, templates: Collection[str]
) -> list[Observation]:
    """Build the observations of ``emit_per_nodegroup_metrics``: health and running back-off of every existing group.

    ``templates``: ids of groups that have a template; no back-off applies to other groups.
    """
    observations = []
    for group in groups:
        if group.upcoming or not group.exists:
            continue
        healthy = is_group_healthy(state, group.id, options)
        observations.append(build_observation("node_group_healthiness", int(healthy), node_group=group.id))
        backoff = get_backoff_status(state, group.id, now, has_template=group.id in templates)
        if backoff is not None:
            reason = backoff.error.code or "unknown"
            observations.append(build_observation("node_group_backoff_status", 1, node_group=group.id, reason=reason))
    return observations
