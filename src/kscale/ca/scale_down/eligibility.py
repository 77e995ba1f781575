"""Which nodes are worth simulating (upstream: ``core/scaledown/eligibility``)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.ca import unremovable_reasons
from kscale.ca.errors import AutoscalerError
from kscale.ca.gpu import GpuConfig, get_gpu_config
from kscale.ca.nodes import SCALE_DOWN_DISABLED_KEY, get_to_be_deleted_time, is_being_deleted, is_ready
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.inputs import ScaleDownContext
from kscale.ca.scale_down.removal import RemovalSimulator
from kscale.ca.scale_down.utilization import (
    Usage,
    UsageColumns,
    Utilization,
    calculate_utilization,
    calculate_utilization_from_usage,
    get_pod_claims,
    group_local_slices,
)
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.resource import ResourceClaim, ResourceSlice
from kscale.objects.nodegroup import Groups, NodeGroup, NodeGroupAutoscalingOptions, ProviderError
from kscale.objects.pod_resources import CPU, MEMORY

__all__ = ["Eligibility", "EligibilityChecker", "check_eligibility"]


class Eligibility(msgspec.Struct, kw_only=True, frozen=True):
    """Verdict on one node; eligible without ``reason``.

    ``utilization`` is set for nodes whose utilization was compared; ``error`` is the cause of ``UnexpectedError``.
    """

    reason: str | None = None
    utilization: Utilization | None = None
    threshold: float | None = None
    error: str | None = None

    @property
    def eligible(self) -> bool:
        """Return whether nothing excludes the node from removal."""
        return self.reason is None


def check_eligibility(
    node: Node | None,
    pods: Iterable[Pod],
    *,
    groups: Groups,
    options: AutoscalingOptions,
    now_ns: int,
    gpu: GpuConfig | None = None,
    recently_unremovable: bool = False,
    dra_slices: Iterable[ResourceSlice] = (),
    dra_claims: Iterable[ResourceClaim] = (),
    sums: Callable[[NodeGroupAutoscalingOptions], Usage | None] | None = None,
) -> Eligibility:
    """Return the eligibility of one node; its ``reason`` is that of the first check that excludes the node.

    ``node`` is None if the candidate is not in the snapshot. ``gpu`` is the provider's GPU configuration of the node
    (:func:`kscale.ca.gpu.get_gpu_config`). ``sums`` returns the requests of the node's pods for the options of its
    group; without it, or if it returns None, the requests of ``pods`` are summed. ``recently_unremovable``: an earlier
    loop found that the node stays for now. ``pods``, ``now_ns``, ``dra_slices`` (ignored without dynamic resource
    allocation) and ``dra_claims`` are those of :func:`kscale.ca.scale_down.utilization.calculate_utilization`.
    """
    if node is None:
        return Eligibility(reason=unremovable_reasons.UNEXPECTED_ERROR, error="node not found")
    if recently_unremovable:
        return Eligibility(reason=unremovable_reasons.RECENTLY_UNREMOVABLE)
    if is_being_deleted(node, now_ns):
        return Eligibility(reason=unremovable_reasons.CURRENTLY_BEING_DELETED)
    if (node.metadata.annotations or {}).get(SCALE_DOWN_DISABLED_KEY) == "true":
        return Eligibility(reason=unremovable_reasons.SCALE_DOWN_DISABLED_ANNOTATION)
    try:
        group = groups.find_group_of_node(node.metadata.name)
        if group is None:
            return Eligibility(reason=unremovable_reasons.NOT_AUTOSCALED)
        group_options = group.options_or(options.node_group_defaults)
        slices = list(dra_slices) if options.enable_dynamic_resource_allocation else []
        known = None if sums is None else sums(group_options)
        if known is not None:
            used = calculate_utilization_from_usage(node, known, gpu=gpu, dra_slices=slices, dra_claims=dra_claims)
        else:
            used = calculate_utilization(
                node,
                pods,
                now_ns=now_ns,
                skip_daemon_set_pods=group_options.ignore_daemonsets_utilization,
                skip_mirror_pods=options.ignore_mirror_pods_utilization,
                gpu=gpu,
                dra_slices=slices,
                dra_claims=dra_claims,
            )
    except (AutoscalerError, ProviderError) as error:
        return Eligibility(reason=unremovable_reasons.UNEXPECTED_ERROR, error=error.message)
    if not options.scale_down_unready_enabled and not is_ready(node):
        return Eligibility(reason=unremovable_reasons.SCALE_DOWN_UNREADY_DISABLED)
    if gpu is not None:
        threshold = group_options.scale_down_gpu_utilization_threshold
    else:
        threshold = group_options.scale_down_utilization_threshold
    # NaN is not above any threshold.
    reason = unremovable_reasons.NOT_UNDERUTILIZED if used.utilization > threshold else None
    return Eligibility(reason=reason, utilization=used, threshold=threshold)


class EligibilityChecker:
    """Verdicts of :func:`check_eligibility` on nodes as they are when the checker is created.

    ``changed`` are nodes with other pods than in the snapshot; these are summed pod by pod. Verdicts that do not depend
    on the time are cached between snapshots while their inputs are unchanged.
    """

    __slots__ = ("_changed", "_columns", "_context", "_gpu_label", "_index", "_known", "_simulator", "_slices")

    def __init__(
        self, context: ScaleDownContext, simulator: RemovalSimulator, changed: Collection[str], gpu_label: str
    ) -> None:
        self._context = context
        self._simulator = simulator
        self._changed = changed
        self._gpu_label = gpu_label
        self._index = context.snapshot.columns.index
        self._columns = UsageColumns.of(simulator.pods, len(context.nodes), context.now)
        self._slices: dict[str, list[ResourceSlice]] = {}
        if context.options.enable_dynamic_resource_allocation:
            self._slices = group_local_slices(context.snapshot)
        self._known = _get_cached_verdicts(context, self._columns, gpu_label)

    def judge(self, names: Sequence[str], recently_unremovable: Collection[str]) -> list[Eligibility]:
        """Return the eligibility of each named node of the snapshot, in the order of ``names``.

        Nodes in ``recently_unremovable`` are not eligible, without further checks.
        """
        index, verdicts = self._index, self._known.verdicts
        uncacheable = {*recently_unremovable, *self._changed, *self._slices}
        known = [*map(verdicts.__getitem__, map(index.__getitem__, names))]
        return [
            self._judge_uncached(name, uncacheable, recently_unremovable)
            if verdict is None or name in uncacheable
            else verdict
            for name, verdict in zip(names, known, strict=True)
        ]

    def _judge_uncached(
        self, name: str, uncacheable: Container[str], recently_unremovable: Container[str]
    ) -> Eligibility:
        """Check a node without looking in the cache, and return the verdict.

        Stores the verdict in the cache if the cache can hold it (:meth:`_CachedVerdicts.is_cacheable`) and the name is
        not in ``uncacheable``.
        """
        n = self._index[name]
        verdict = self._judge(n, name in recently_unremovable)
        if name not in uncacheable and self._known.is_cacheable(n):
            self._known.verdicts[n] = verdict
        return verdict

    def _judge(self, n: int, recently_unremovable: bool) -> Eligibility:
        """Return the eligibility of node ``n`` (position), by its own state and utilization.

        ``recently_unremovable``: as in :func:`check_eligibility`.
        """
        planner_input, columns, node = self._context, self._columns, self._context.nodes[n]
        name = node.metadata.name
        slices = self._slices.get(name, ())
        gpu = get_gpu_config(self._gpu_label, node)
        summed = name not in self._changed and columns.exact[n]
        pods: Sequence[Pod] = () if summed and not slices else self._simulator.pods_on(name)
        resources = (CPU, MEMORY) if gpu is None or gpu.dra_driver else (gpu.resource_name,)

        def sums(own: NodeGroupAutoscalingOptions) -> Usage | None:
            return columns.usage(
                n,
                resources,
                skip_daemon_set_pods=own.ignore_daemonsets_utilization,
                skip_mirror_pods=planner_input.options.ignore_mirror_pods_utilization,
            )

        return check_eligibility(
            node,
            pods,
            groups=planner_input.groups,
            options=planner_input.options,
            now_ns=planner_input.now,
            gpu=gpu,
            recently_unremovable=recently_unremovable,
            dra_slices=slices,
            dra_claims=get_pod_claims(pods, planner_input.snapshot) if slices else (),
            sums=sums if summed else None,
        )


@dataclass(slots=True, eq=False)
class _CachedVerdicts:
    """Verdicts by node (None = unknown), and the inputs that they depend on."""

    nodes: Sequence[Node]
    names: Sequence[str]
    index: Mapping[str, int]
    columns: UsageColumns
    group_of: list[str | None]
    own: dict[str, NodeGroupAutoscalingOptions | str]
    errors: Mapping[str, str]
    options: AutoscalingOptions
    gpu_label: str
    verdicts: list[Eligibility | None] = field(default_factory=list)

    def is_cacheable(self, n: int) -> bool:
        """Check whether the verdict on node ``n`` (position) depends on nothing but the fields of this record."""
        return (
            bool(self.columns.exact[n])
            and self.names[n] not in self.errors
            and get_to_be_deleted_time(self.nodes[n]) is None
        )

    def reuse(self, last: _CachedVerdicts | None) -> None:
        """Set ``verdicts``: those in ``last`` for nodes whose inputs are unchanged, None for other nodes."""
        if last is None or last.gpu_label != self.gpu_label or last.options != self.options:
            self.verdicts = [None] * len(self.nodes)
            return
        other = {name for name, own in self.own.items() if last.own.get(name) != own}
        same_groups = not other and last.group_of == self.group_of and last.errors == self.errors
        if last.nodes is self.nodes and last.columns is self.columns and same_groups:
            self.verdicts = last.verdicts
            return
        if last.nodes is self.nodes and last.index is self.index and same_groups:  # then only pods can have changed
            self.verdicts = [*last.verdicts]
            others = np.flatnonzero(~self._has_equal_requests(last, np.arange(len(self.nodes)))).tolist()
            for n in (*others, *(self.index[name] for name in self.errors if name in self.index)):
                self.verdicts[n] = None
            return
        rows: Sequence[int] = range(len(self.nodes))
        if last.index is not self.index:
            rows = [last.index.get(name, -1) for name in self.names]
        same = self._has_equal_requests(last, np.array(rows, dtype=np.int64)).tolist()
        self.verdicts = [
            last.verdicts[row]
            if is_same and last.nodes[row] is node and last.group_of[row] == group and group not in other
            else None
            for row, is_same, node, group in zip(rows, same, self.nodes, self.group_of, strict=True)
        ]
        for name in self.errors:
            if name in self.index:
                self.verdicts[self.index[name]] = None

    def _has_equal_requests(self, last: _CachedVerdicts, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return for which nodes the pods request the same sums as in ``last``: bool[nodes].

        False for nodes that are not in ``last``, and if a sum is not exact. ``rows``: the position of each node in
        ``last``, -1 = none.
        """
        same: NDArray[np.bool_] = rows >= 0
        if not len(last.nodes):
            return same
        same &= self.columns.exact & last.columns.exact[rows]
        mine, theirs = self.columns.sums, last.columns.sums
        nothing = np.zeros(1, dtype=np.int64)
        for key in mine.keys() | theirs.keys():
            before = theirs.get(key)
            same &= mine.get(key, nothing) == (nothing if before is None else before[rows])
        return same


class _LastVerdicts(msgspec.Struct, eq=False):
    """The last verdicts, cached with the interner that the snapshots of a cluster share."""

    known: _CachedVerdicts | None = None


def _get_cached_verdicts(planner_input: ScaleDownContext, columns: UsageColumns, gpu_label: str) -> _CachedVerdicts:
    """Return a record of these inputs with the cached verdicts that are still valid for them.

    The record is stored as the cache of the next loop.
    """
    last = planner_input.snapshot.interner.memo.get(_LastVerdicts, _LastVerdicts)
    groups, of_nodes = planner_input.groups, planner_input.snapshot.columns
    verdicts = _CachedVerdicts(
        nodes=planner_input.nodes,
        names=of_nodes.names,
        index=of_nodes.index,
        columns=columns,
        group_of=groups.ids_of_nodes(of_nodes.names),
        own={group.id: _get_group_options(group, planner_input.options.node_group_defaults) for group in groups},
        errors=groups.node_errors,
        options=planner_input.options,
        gpu_label=gpu_label,
    )
    verdicts.reuse(last.known)
    last.known = verdicts
    return verdicts


def _get_group_options(group: NodeGroup, defaults: NodeGroupAutoscalingOptions) -> NodeGroupAutoscalingOptions | str:
    """Return the options of a group, ``defaults`` where it has none; the error message if they cannot be read."""
    try:
        return group.options_or(defaults)
    except ProviderError as error:
        return error.message
