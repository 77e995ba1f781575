"""Limits on the total size of a cluster or of a part of it, and the status of CapacityQuotas.

Upstream: ``resourcequotas``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from kscale.ca.errors import TRANSIENT_ERROR, AutoscalerError
from kscale.ca.events import build_status_events
from kscale.ca.gpu import DEFAULT_GPU_LABEL, get_target_gpus
from kscale.ca.options import AutoscalingOptions, ResourceLimiter
from kscale.effects import Event, Moment, Patch, to_text
from kscale.objects.api.cluster_autoscaler import CapacityQuota, CapacityQuotaStatus, CapacityQuotaUsage
from kscale.objects.api.core import Node
from kscale.objects.api.meta import Condition, ResourceList
from kscale.objects.conditions import with_condition
from kscale.objects.decode import to_dict
from kscale.objects.go_numbers import wrap_int64
from kscale.objects.names import go_quote
from kscale.objects.nodegroup import Groups, NodeGroup
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import EVERYTHING, Selector, SelectorError, compile_selector
from kscale.snapshot.caches import cached_by_identity
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "CLUSTER_WIDE_QUOTA_ID",
    "NODES_RESOURCE",
    "RECONCILED_CONDITION",
    "VALID_CONDITION",
    "CappedNodes",
    "CountedNodes",
    "ExceededQuota",
    "Quota",
    "QuotaCheck",
    "QuotaTracker",
    "build_cluster_maximum_quota",
    "build_cluster_minimum_quota",
    "build_quota_status",
    "build_quota_status_patch",
    "cap_by_max_nodes_total",
    "read_capacity_quotas",
]


CLUSTER_WIDE_QUOTA_ID = "cluster-wide"
NODES_RESOURCE = "nodes"
"""The resource that counts nodes."""

VALID_CONDITION = "cluster-autoscaler.kubernetes.io/valid"
"""The condition of a CapacityQuota without which it does not count."""
_ZERO_QUANTITY = Quantity.zero()


class Quota(msgspec.Struct, kw_only=True, frozen=True):
    """Limits (resource -> amount: cores, bytes, devices, nodes) on the nodes that it applies to."""

    id: str
    limits: dict[str, int]
    selector: Selector = EVERYTHING

    def applies_to(self, node: Node) -> bool:
        """Check whether the quota counts the node."""
        return self.selector.empty or self.selector.matches(node.metadata.labels)


class ExceededQuota(msgspec.Struct, kw_only=True, frozen=True):
    """A quota that would be exceeded, and the resources (sorted; upstream names them in random order)."""

    id: str
    resources: list[str]

    @property
    def message(self) -> str:
        """Return upstream's text that names the quota and the resources."""
        return f"exceeded quota: {go_quote(self.id)}, resources: {', '.join(self.resources)}"


class QuotaCheck(msgspec.Struct, kw_only=True, frozen=True):
    """Number of the requested nodes that the quotas allow, and the quotas that all of them would exceed."""

    allowed: int
    exceeded: list[ExceededQuota] = []


def build_cluster_maximum_quota(limiter: ResourceLimiter) -> Quota:
    """Build a quota from the cloud provider's maxima."""
    return Quota(id=CLUSTER_WIDE_QUOTA_ID, limits=dict(limiter.max))


def build_cluster_minimum_quota(limiter: ResourceLimiter) -> Quota:
    """Build a quota from the cloud provider's minima: 0 for every resource that only has a maximum."""
    names = [*limiter.min, *(name for name in limiter.max if name not in limiter.min)]
    return Quota(id=CLUSTER_WIDE_QUOTA_ID, limits={name: max(0, limiter.min.get(name, 0)) for name in names})


def read_capacity_quotas(objects: Iterable[CapacityQuota]) -> tuple[list[Quota], dict[str, str]]:
    """Read the quotas of CapacityQuota objects, and why others are left out (name -> reason).

    Only objects whose validity condition is True count; one with a broken selector is left out as well.
    """
    quotas: list[Quota] = []
    left_out: dict[str, str] = {}
    for item in objects:
        name = item.metadata.name
        if not any(c.type == VALID_CONDITION and c.status == "True" for c in item.status.conditions):
            left_out[name] = f"condition {VALID_CONDITION} is not True"
            continue
        try:
            selector = EVERYTHING if item.spec.selector is None else compile_selector(item.spec.selector)
        except SelectorError as error:
            left_out[name] = f"invalid label selector: {error}"
            continue
        limits = {resource: limit.value() for resource, limit in (item.spec.limits.resources or {}).items()}
        quotas.append(Quota(id=f"CapacityQuota/{name}", limits=limits, selector=selector))
    return quotas, left_out


def _is_counted_node(node: Node) -> bool:
    """Check whether a node counts as usage; all but virtual kubelets do."""
    labels = node.metadata.labels
    return not (labels and labels.get("type") == "virtual-kubelet")


class CountedNodes(NamedTuple):
    """Nodes that count as usage, and their names."""

    nodes: Sequence[Node]
    names: Sequence[str]

    @classmethod
    def among(cls, nodes: Iterable[Node]) -> CountedNodes:
        """Select the nodes that count as usage."""
        counted = [*filter(_is_counted_node, nodes)]
        return cls(counted, [node.metadata.name for node in counted])

    @classmethod
    def of(cls, snapshot: Snapshot) -> CountedNodes:
        """Return the counted nodes of a snapshot; the selection is cached between snapshots."""
        nodes, names = snapshot.columns.objects, snapshot.columns.names
        counts = cached_by_identity(snapshot.interner.memo, ("nodes that count",), nodes, _is_counted_node)
        return cls(nodes, names) if all(counts) else cls([*compress(nodes, counts)], [*compress(names, counts)])


def count_cores_and_memory(node: Node) -> dict[str, int]:
    """Return ``cpu`` (cores) and ``memory`` (bytes) of a node's capacity, rounded up and never negative."""
    capacity = node.status.capacity or {}
    return {name: max(0, capacity.get(name, _ZERO_QUANTITY).value()) for name in ("cpu", "memory")}


class NodeResources(msgspec.Struct, eq=False):
    """Computes the resources of single nodes. All nodes of a group count like the first of them that was passed."""

    gpu_label: str = DEFAULT_GPU_LABEL
    _of_group: dict[str, dict[str, int]] = {}

    def fork(self) -> NodeResources:
        """Return an independent copy."""
        copy = NodeResources(self.gpu_label)
        copy._of_group = dict(self._of_group)
        return copy

    def get(self, node: Node, group: NodeGroup | None) -> dict[str, int]:
        """Return the resources of one node: ``cpu`` (cores), ``memory`` (bytes), ``nodes`` (1), and its GPUs by type.

        Amounts of the capacity are rounded up and never negative. For a node of a group, these are the resources of the
        first node of that group that was passed. Raises :class:`AutoscalerError` if the GPUs cannot be counted.
        """
        if group is None:
            return self._count(node, None)
        resources = self._of_group.get(group.id)
        if resources is None:
            resources = self._of_group[group.id] = self._count(node, group)
        return resources

    def get_group(self, group: str) -> dict[str, int]:
        """Return the resources of a node of the group. Raises KeyError if :meth:`get` had no node of the group yet."""
        return self._of_group[group]

    def _count(self, node: Node, group: NodeGroup | None) -> dict[str, int]:
        """Count the resources of a node, without a cache.

        Raises :class:`AutoscalerError` if the GPUs cannot be counted.
        """
        resources = count_cores_and_memory(node)
        resources[NODES_RESOURCE] = 1
        template = group.template.node if group is not None and group.template is not None else None
        try:
            target = get_target_gpus(
                self.gpu_label,
                node,
                group=None if group is None else group.id,
                template=None if group is None or group.template_error is not None else template,
                template_error=None if group is None else group.template_error,
            )
        except AutoscalerError as error:
            raise error.with_prefix("failed to get custom resources: ") from None
        if target is not None and target[0] and target[1] > 0:
            resources[target[0]] = target[1]
        return resources


class QuotaTracker:
    """Remaining amounts of each quota. Created by :meth:`maximum` (scale-up) or :meth:`minimum` (scale-down).

    ``check`` changes nothing. ``consume`` subtracts the resources of the nodes if all of them are allowed. Not
    thread-safe; ``fork`` a tracker for what-if checks.
    """

    def __init__(self, quotas: Iterable[Quota], left: Iterable[dict[str, int]], resources: NodeResources) -> None:
        self.quotas = list(quotas)
        self.left = list(left)
        self.resources = resources

    @classmethod
    def maximum(
        cls,
        quotas: Iterable[Quota],
        nodes: Iterable[Node] | CountedNodes,
        groups: Groups,
        *,
        gpu_label: str = DEFAULT_GPU_LABEL,
    ) -> QuotaTracker:
        """Create a tracker of the resources that may still be added: limit minus usage, at least 0.

        Raises :class:`AutoscalerError` if the provider cannot say which group a counted node belongs to, or if the
        node's GPUs are unknown.
        """
        return cls._make(quotas, nodes, groups, gpu_label, lambda limit, usage: limit - usage)

    @classmethod
    def minimum(
        cls,
        quotas: Iterable[Quota],
        nodes: Iterable[Node] | CountedNodes,
        groups: Groups,
        *,
        gpu_label: str = DEFAULT_GPU_LABEL,
    ) -> QuotaTracker:
        """Create a tracker of the resources that may still be removed: usage minus limit, at least 0.

        Raises :class:`AutoscalerError` if the group or the GPUs of a counted node are unknown.
        """
        return cls._make(quotas, nodes, groups, gpu_label, lambda limit, usage: usage - limit)

    @classmethod
    def _make(
        cls,
        quotas: Iterable[Quota],
        nodes: Iterable[Node] | CountedNodes,
        groups: Groups,
        gpu_label: str,
        left_of: Callable[[int, int], int],
    ) -> QuotaTracker:
        """Create a tracker from the usage of the counted nodes; ``left_of(limit, usage)`` is the remaining amount.

        Raises AutoscalerError if the group or the GPUs of a node are unknown.
        """
        quotas = list(quotas)
        resources = NodeResources(gpu_label)
        usage: list[dict[str, int]] = [{} for _ in quotas]
        selective = [(quota, used) for quota, used in zip(quotas, usage, strict=True) if not quota.selector.empty]
        counts: list[tuple[dict[str, int], int]] = []
        nodes, names = nodes if isinstance(nodes, CountedNodes) else CountedNodes.among(nodes)
        group_of = groups.ids_of_nodes(names)
        members = groups.members(names)
        of_groups = {group: len(of_group) for group, of_group in members.items()}
        firsts = [names.index(of_group[0]) for of_group in members.values()]
        alone = [i for i, group in enumerate(group_of) if group is None] if of_groups.pop(None, 0) else []
        for i in sorted({*firsts, *alone}):
            group = group_of[i]
            if group is not None:
                resources.get(nodes[i], groups[group])
            elif names[i] in groups.node_errors:
                text = f'failed to get node group for node "{names[i]}": {groups.node_errors[names[i]]}'
                raise AutoscalerError("", text)
            else:
                counts.append((resources.get(nodes[i], None), 1))
        for quota, used in selective:
            for node, group in zip(nodes, group_of, strict=True):
                if quota.applies_to(node):
                    _add_usage(used, resources.get(node, None) if group is None else resources.get_group(group))
        counts += [(resources.get_group(name), times) for name, times in of_groups.items() if name is not None]
        for quota, used in zip(quotas, usage, strict=True):
            if quota.selector.empty:
                for counted, times in counts:
                    _add_usage(used, counted, times)
        left = [
            {name: max(0, wrap_int64(left_of(limit, used.get(name, 0)))) for name, limit in quota.limits.items()}
            for quota, used in zip(quotas, usage, strict=True)
        ]
        return cls(quotas, left, resources)

    def fork(self) -> QuotaTracker:
        """Return an independent copy."""
        return QuotaTracker(self.quotas, map(dict, self.left), self.resources.fork())

    @property
    def limits_left(self) -> Mapping[str, dict[str, int]]:
        """Map quota ids to the remaining amount of each resource."""
        return {quota.id: left for quota, left in zip(self.quotas, self.left, strict=True)}

    def check(self, group: NodeGroup | None, node: Node, delta: int) -> QuotaCheck:
        """Return how many of ``delta`` nodes like ``node`` are allowed.

        A product that overflows 64 bits wraps, as in upstream, and may then pass. Raises :class:`AutoscalerError` if
        ``delta`` is negative or the GPUs of the node cannot be counted.
        """
        return _check_quotas(self._applying(node), self._resources(group, node, delta), delta)

    def consume(self, group: NodeGroup | None, node: Node, delta: int) -> QuotaCheck:
        """Check ``delta`` nodes like ``node`` as :meth:`check` does.

        If all are allowed, subtract their resources from the remaining amounts; otherwise nothing changes.
        """
        resources, applying = self._resources(group, node, delta), self._applying(node)
        result = _check_quotas(applying, resources, delta)
        if result.allowed == delta:
            for _, left in applying:
                for name, amount in resources.items():
                    if name in left:
                        left[name] = max(0, wrap_int64(left[name] - wrap_int64(amount * delta)))
        return result

    def consume_together(self, wanted: Iterable[tuple[NodeGroup, Sequence[Node]]]) -> bool:
        """Consume the resources of all nodes if :meth:`consume` would allow each of them, in whatever order.

        ``wanted``: (group, its nodes), which all count like the first of them. Returns True if they were consumed.
        Returns False, and consumes nothing, if a node might be refused or a quota has a selector.
        """
        if not all(quota.selector.empty for quota in self.quotas):
            return False
        total: Counter[str] = Counter()
        for group, nodes in wanted:
            try:
                resources = self.resources.get(nodes[0], group)
            except AutoscalerError:
                return False
            for name, amount in resources.items():
                total[name] += amount * len(nodes)
        if any(amount > left.get(name, amount) for left in self.left for name, amount in total.items()):
            return False
        for left in self.left:
            for name in left.keys() & total.keys():
                left[name] -= total[name]
        return True

    def _resources(self, group: NodeGroup | None, node: Node, delta: int) -> dict[str, int]:
        """Return the resources of one node of the group, as :meth:`NodeResources.get` counts them.

        ``delta`` is the number of nodes in question; it is only checked. Raises AutoscalerError if it is negative, or
        if GPUs cannot be counted.
        """
        if delta < 0:
            raise AutoscalerError("", "negative nodeDelta received")
        return self.resources.get(node, group)

    def _applying(self, node: Node) -> list[tuple[Quota, dict[str, int]]]:
        """Return the quotas that apply to a node, each with its remaining amounts by resource."""
        return [each for each in zip(self.quotas, self.left, strict=True) if each[0].applies_to(node)]


def _check_quotas(
    applying: Iterable[tuple[Quota, dict[str, int]]], resources: dict[str, int], delta: int
) -> QuotaCheck:
    """Return how many of ``delta`` nodes with these resources the quotas allow, and the quotas that block the rest.

    ``applying``: each quota with its remaining amounts by resource; ``resources``: of one node.
    """
    allowed = delta
    exceeded = []
    for quota, left in applying:
        short = []
        for name, amount in resources.items():
            if amount > 0 and name in left and left[name] < wrap_int64(amount * delta):
                allowed = min(allowed, left[name] // amount)
                short.append(name)
        if short:
            exceeded.append(ExceededQuota(id=quota.id, resources=sorted(short)))
    return QuotaCheck(allowed=allowed, exceeded=exceeded)


def _add_usage(usage: dict[str, int], resources: Mapping[str, int], times: int = 1) -> None:
    """Add the resources of ``times`` nodes to ``usage`` in place; sums beyond 64 bits wrap."""
    for name, amount in resources.items():
        usage[name] = wrap_int64(usage.get(name, 0) + amount * times)


class CappedNodes(msgspec.Struct, kw_only=True, frozen=True):
    """Result of :func:`cap_by_max_nodes_total`.

    ``new_nodes``: number of nodes to add; 0 or negative if the cluster is full. ``events``: the MaxNodesTotalReached
    warning, if the number was reduced. ``error``: set if no node may be added; None otherwise.
    """

    new_nodes: int
    events: list[Event] = []
    error: AutoscalerError | None = None


def cap_by_max_nodes_total(new_nodes: int, current_nodes: int, options: AutoscalingOptions) -> CappedNodes:
    """Limit a scale-up of ``new_nodes`` nodes so that the cluster has at most ``--max-nodes-total`` nodes.

    A limit of 0 or less means no limit. ``current_nodes``: number of nodes of the cluster. If the number was reduced,
    the result has a warning event; if no node may be added, also an ``error``, and the number may be negative.
    """
    limit = options.max_nodes_total
    if limit <= 0 or new_nodes + current_nodes <= limit:
        return CappedNodes(new_nodes=new_nodes)
    room = limit - current_nodes
    events = build_status_events(
        options, "Warning", "MaxNodesTotalReached", f"Max total nodes in cluster reached: {limit}"
    )
    error = AutoscalerError(TRANSIENT_ERROR, "max node total count already reached") if room < 1 else None
    return CappedNodes(new_nodes=room, events=events, error=error)


RECONCILED_CONDITION = "Reconciled"


def build_quota_status(quota: CapacityQuota, nodes: Iterable[Node], now: Moment) -> CapacityQuotaStatus:
    """Build the status of a quota: whether it is valid, and how much of the limited resources the selected nodes have.

    If the selector is invalid, the usage stays as it was. Returns ``quota.status`` itself if nothing changes. Virtual
    kubelets do not count.
    """
    generation = quota.metadata.generation
    current = quota.status
    conditions = current.conditions

    def mark(type_: str, holds: bool, reason: str, message: str) -> None:
        nonlocal conditions
        new = Condition(
            type=type_,
            status=str(holds),
            reason=reason,
            message=message,
            last_transition_time=to_text(now),
            observed_generation=generation or None,
        )
        conditions = with_condition(conditions, new)

    try:
        selector = EVERYTHING if quota.spec.selector is None else compile_selector(quota.spec.selector)
    except SelectorError as error:
        shown = msgspec.json.encode(to_dict(quota.spec.selector)).decode()
        mark(VALID_CONDITION, False, "ValidationFailed", f"spec.selector: Invalid value: {shown}: {error}")
        mark(RECONCILED_CONDITION, False, "ReconciliationFailed", "Validation failed")
        used = current.used
    else:
        mark(VALID_CONDITION, True, "ValidationSucceeded", "CapacityQuota is valid")
        mark(RECONCILED_CONDITION, True, "ReconciliationSucceeded", "CapacityQuota successfully reconciled")
        used = CapacityQuotaUsage(resources=_compute_quota_usage(quota, selector, nodes))
    updated = replace(current, conditions=conditions, used=used, observed_generation=generation or None)
    return current if updated == current else updated


def _compute_quota_usage(quota: CapacityQuota, selector: Selector, nodes: Iterable[Node]) -> ResourceList:
    """Return how much of each limited resource the counted nodes have that the selector matches."""
    counted = [node for node in CountedNodes.among(nodes).nodes if selector.matches(node.metadata.labels)]
    return {name: _sum_resource(name, counted) for name in quota.spec.limits.resources or {}}


def _sum_resource(name: str, nodes: Sequence[Node]) -> Quantity:
    """Return the sum of the nodes' capacity of a resource; the number of nodes for ``nodes``."""
    if name == NODES_RESOURCE:
        return Quantity.from_int(len(nodes))
    return Quantity.sum(amount for node in nodes if (amount := (node.status.capacity or {}).get(name)) is not None)


def build_quota_status_patch(quota: CapacityQuota, status: CapacityQuotaStatus) -> Patch:
    """Build the patch of the status; resources that are not limited any more are removed from the usage."""
    data: dict[str, Any] = to_dict(status)
    before = quota.status.used.resources if quota.status.used is not None else {}
    after = status.used.resources if status.used is not None else {}
    for name in before.keys() - after.keys():
        data.setdefault("used", {}).setdefault("resources", {})[name] = None
    return Patch(
        kind="CapacityQuota",
        api_version=quota.api_version,
        name=quota.name,
        type="merge",
        subresource="status",
        resource_version=quota.metadata.resource_version,
        patch={"status": data},
    )
