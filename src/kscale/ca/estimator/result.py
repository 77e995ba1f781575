"""Options and result of an estimate, how many nodes it may add, and the grouped pods that it is computed from.

Upstream: ``estimator/threshold_based_limiter.go`` and its thresholds, ``core/scaleup/equivalence``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _engine
from kscale.errors import InputError
from kscale.objects.argument_types import typed_methods
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.pod_resources import CPU, MEMORY
from kscale.records import Result, Rows
from kscale.scheduling.coercion import PodsLike, pods_of, short
from kscale.scheduling.compile.resources import UNLIMITED_DEVICES
from kscale.scheduling.equivalent_pods import equivalence_groups, number_controllers_and_shapes
from kscale.scheduling.session import ClassValues, Session
from kscale.scheduling.status import Verdict
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.columns import starts_of_runs
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.pods.rows import PodRows
from kscale.snapshot.snapshot import Snapshot

if TYPE_CHECKING:
    from kscale.scheduling.bounds import Bound

__all__ = [
    "KNOWN_THRESHOLDS",
    "NO_NODES_ALLOWED",
    "NO_NODE_PERMITTED",
    "EstimateOptions",
    "EstimateResult",
    "GroupedPods",
    "NodeGroupSize",
    "coerce_estimate_options",
    "compute_node_limit",
    "describe_limit",
    "get_cluster_capacity",
    "get_sng_capacity",
    "get_stricter_limit",
    "group_pods",
]

KNOWN_THRESHOLDS = ("static", "sng", "cluster")
"""Known thresholds, in the order of upstream's production set-up."""
NO_NODES_ALLOWED = -1
"""A limit that allows no node."""


class NodeGroupSize(msgspec.Struct, frozen=True, kw_only=True):
    """Size of a node group (``id``) for the capacity threshold: ``target_size`` of ``max_size`` nodes.

    ``target_size_error``: the provider could not return the target size.
    """

    id: str = ""
    max_size: int = 0
    target_size: int = 0
    target_size_error: bool = False


class EstimateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Limits, and how to pack.

    ``max_nodes``: maximum number of new nodes (``--max-nodes-per-scaleup``; 0 = no limit). ``thresholds``: which limits
    hold, in upstream's order of evaluation; ``static`` is ``max_nodes``, ``sng`` the room left in ``node_group`` and
    ``similar_node_groups``, ``cluster`` what ``cluster_max_nodes`` leaves above ``current_node_count``.
    ``no_context``: the estimation context is missing, as in some of upstream's callers. ``fast_path``:
    ``--fastpath-binpacking-enabled``.
    """

    max_nodes: int = 0
    thresholds: tuple[str, ...] = ("static",)
    node_group: NodeGroupSize | None = None
    similar_node_groups: tuple[NodeGroupSize, ...] = ()
    cluster_max_nodes: int = 0
    current_node_count: int = 0
    no_context: bool = False
    fast_path: bool = False


def coerce_estimate_options(options: Any, count: int) -> list[EstimateOptions]:
    """Return the options of ``count`` estimates, one per template; None stands for the defaults.

    Raises InputError if ``options`` is no list of ``count`` entries, or if an entry or one of its fields has a wrong
    type.
    """
    if options is None:
        return [EstimateOptions()] * count
    if isinstance(options, (str, bytes)) or not isinstance(options, Sequence):
        raise InputError(f"options is {short(options)}, not a list, one entry a template")
    if len(options) != count:
        raise InputError(f"options has {len(options)} entries for {count} templates")
    return [_check_estimate_options(each) for each in options]


def _check_estimate_options(options: Any) -> EstimateOptions:
    """Return the options, or the defaults for None. Raises InputError for another type, also of a field."""
    if options is None:
        return EstimateOptions()
    if not isinstance(options, EstimateOptions):
        raise InputError(f"options is {short(options)}, not EstimateOptions")
    try:
        # Struct constructors do not check types; decoding does.
        msgspec.convert(msgspec.structs.asdict(options), EstimateOptions)
    except msgspec.ValidationError as problem:
        text, _, at = str(problem).partition(" - at `$.")
        field = at.rstrip("`") or "?"
        raise InputError(f"options.{field}: {text}") from None
    return options


def get_stricter_limit(base: int, target: int) -> int:
    """Return the stricter of two limits on the number of new nodes; 0 means no limit, negative that none is allowed."""
    if base < 0 or target < 0:
        return -1
    return target if target > 0 and (base == 0 or base > target) else base


def get_sng_capacity(options: EstimateOptions) -> int:
    """Return by how many nodes the group and its similar groups (SNG) can grow.

    The result is -1 if they cannot grow, and 0 (no limit) with ``options.no_context``. Groups of unknown size do not
    count.
    """
    if options.no_context:
        return 0
    groups: list[NodeGroupSize] = [*options.similar_node_groups]
    if options.node_group is not None:
        groups.append(options.node_group)
    room = sum(max(0, g.max_size - g.target_size) for g in groups if not g.target_size_error)
    return room if room > 0 else -1


def get_cluster_capacity(options: EstimateOptions) -> int:
    """Return how many nodes the cluster's maximum (``options.cluster_max_nodes``) still allows.

    The result is -1 if it allows none, and 0 (no limit) if the maximum is 0 or with ``options.no_context``.
    """
    if options.no_context or options.cluster_max_nodes == 0:
        return 0
    if options.cluster_max_nodes < 0 or options.cluster_max_nodes <= options.current_node_count:
        return -1
    return options.cluster_max_nodes - options.current_node_count


_THRESHOLD_LIMITS: dict[str, Callable[[EstimateOptions], int]] = {
    "static": lambda options: options.max_nodes,
    "sng": get_sng_capacity,
    "cluster": get_cluster_capacity,
}


def describe_limit(options: EstimateOptions) -> str:
    """Return a description of the threshold that sets the strictest limit of an estimate; empty if none does."""
    limit, description = 0, ""
    for name in options.thresholds:
        stricter_now = get_stricter_limit(limit, _THRESHOLD_LIMITS[name](options))
        if stricter_now != limit:
            limit, description = stricter_now, _THRESHOLD_TEXTS[name](options)
    return description


def _describe_sng_capacity(options: EstimateOptions) -> str:
    """Describe the limit of the group and its similar groups, for a message."""
    group = options.node_group
    if group is not None and not options.similar_node_groups:
        return f"the maximum size of {group.id} is {group.max_size:,}"
    return f"similar groups have room for {max(0, get_sng_capacity(options)):,} nodes"


_THRESHOLD_TEXTS: dict[str, Callable[[EstimateOptions], str]] = {
    "static": lambda options: f"--max-nodes-per-scaleup is {options.max_nodes:,}",
    "sng": _describe_sng_capacity,
    "cluster": lambda options: f"--max-nodes-total is {options.cluster_max_nodes:,}",
}


def compute_node_limit(options: EstimateOptions) -> int:
    """Compute the strictest limit of all thresholds; 0 means no limit, negative that nothing may be added.

    Raises InputError for an unknown threshold.
    """
    limit = 0
    for name in options.thresholds:
        if name not in _THRESHOLD_LIMITS:
            raise InputError(f"unknown threshold {name!r}: {', '.join(_THRESHOLD_LIMITS)}")
        limit = get_stricter_limit(limit, _THRESHOLD_LIMITS[name](options))
    return limit


class GroupedPods:
    """Pods of an estimate in equivalence groups; this part is independent of the template."""

    def __init__(self, snapshot: Snapshot, records: Sequence[PodRecord], groups: Sequence[int] | None) -> None:
        self.records = records
        if groups is None:
            self.members, self.starts = equivalence_groups(*number_controllers_and_shapes(records))
        else:
            self.members = np.arange(len(records), dtype=np.int32)
            self.starts = np.array(groups, dtype=np.int32)
        self.unique, of_pod = snapshot.distinct_classes(records)
        self.own_classes = self.unique
        """The classes of the pods; ``unique`` may have more (:meth:`in_session`)."""
        self.class_of = of_pod[self.members]
        """int32[n]: position in ``unique``, group after group."""
        self.asks = np.zeros(len(self.starts) - 1, dtype=np.intp)
        """int[groups]: requests of a group's first pod, as a row of ``requests``; an empty group requests nothing."""
        self.requests = np.zeros((1, 2))
        """float64[K, 2]: different amounts of cpu and memory."""
        self._sums: dict[bytes, tuple[int, int]] = {}
        self._values = ClassValues()
        """The last function of :meth:`get_values`, and its values; shared with pods that have the same ``unique``."""
        self.counted: NDArray[np.int64] | None = None
        """Cached result of ``class_counts``."""
        taken = [(pod.occupancy.get(CPU, 0), pod.occupancy.get(MEMORY, 0)) for pod in self.unique]
        some = np.flatnonzero(np.diff(self.starts) > 0)
        if len(some):
            rows: dict[tuple[int, int], int] = {(0, 0): 0}
            of_class = np.array([rows.setdefault(each, len(rows)) for each in taken], dtype=np.intp)
            self.requests = np.array(list(rows), dtype=np.float64)
            self.asks[some] = of_class[self.class_of[self.starts[some]]]

    def in_session(self, session: Session) -> GroupedPods:
        """Return a copy that uses the session's class numbers.

        ``unique`` of the copy has all classes that the session can check, also those of other pods.
        """
        part = copy(self)
        class_of, unique = session.classes_of(self.unique)[self.class_of], [*session.pods[: session.checked_count]]
        vars(part).update(class_of=class_of, unique=unique, counted=None, _sums={}, _values=session.class_values)
        return part

    def select_groups(self, groups: NDArray[np.int64]) -> GroupedPods:
        """Return a GroupedPods with only the groups at the positions ``groups``, in this order.

        Returns ``self`` if these are all groups in their order.
        """
        if len(groups) == len(self.starts) - 1 and (groups == np.arange(len(groups))).all():
            return self
        part = copy(self)
        part._values = self._values  # noqa: SLF001  (of this class)
        positions, part.starts = self.spread(groups)
        part.members = self.members[positions]
        part.class_of = self.class_of[positions]
        part.asks = self.asks[groups]
        part.counted = None
        return part

    def spread(self, groups: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return positions in ``members`` of the pods of some groups: (positions int64[n], starts int32[groups + 1]).

        The positions are group after group, in the order of ``groups``: the pods of ``groups[i]`` are at
        ``positions[starts[i]:starts[i + 1]]``.
        """
        begins = self.starts[groups]
        sizes = self.starts[groups + 1] - begins
        starts = np.zeros(len(groups) + 1, dtype=np.int32)
        sizes.cumsum(out=starts[1:])
        positions = (begins - starts[:-1]).repeat(sizes) + np.arange(starts[-1])
        return positions.astype(np.int64, copy=False), starts

    def exemplar(self, group: int) -> PodClass | None:
        """Return the class of a group's first pod; None for an empty group."""
        start = self.starts[group]
        return None if start == self.starts[group + 1] else self.unique[self.class_of[start]]

    @property
    def class_counts(self) -> NDArray[np.int64]:
        """Return the number of pods of each class: int64[classes]."""
        if self.counted is None:
            self.counted = np.bincount(self.class_of, minlength=len(self.unique))
        return self.counted

    def sum_requests(self, counts: NDArray[np.int64]) -> tuple[int, int]:
        """Return the total requests of ``counts`` pods of each class (int64[classes]). Results are cached.

        The result is (cpu, memory) in billionths of a core and of a byte.
        """
        key = counts.tobytes()
        total = self._sums.get(key)
        if total is None:
            cpu = memory = 0
            for number in np.flatnonzero(counts).tolist():
                pod_requests, count = self.unique[number].requested, int(counts[number])
                cpu, memory = cpu + pod_requests[0] * count, memory + pod_requests[1] * count
            total = self._sums[key] = cpu, memory
        return total

    def get_values(self, value_of: Callable[[Mapping[str, int]], float]) -> NDArray[np.float64]:
        """Return the value of a pod of each class: float64[classes].

        ``value_of`` computes it from the amounts that the pod occupies, by resource. The result of the last function
        is cached.
        """
        for function, values in self._values:
            if function == value_of:
                return values
        values = np.array([value_of(pod.occupancy) for pod in self.unique], dtype=np.float64)
        self._values[:] = [(value_of, values)]
        return values

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without cached values: their function may be one that cannot be pickled."""
        return {**vars(self), "_values": ClassValues()}

    def keys_of_group(self, group: int) -> list[str]:
        """Return the keys (``namespace/name``) of the pods of a group."""
        return self.keys_of(self.members[self.starts[group] : self.starts[group + 1]])

    def keys_of(self, numbers: NDArray[np.int32]) -> list[str]:
        """Return the keys (``namespace/name``) of pods by their numbers in ``records``."""
        records = self.records
        if isinstance(records, PodRows):
            return records.keys_at(numbers)
        return [records[i].key for i in numbers.tolist()]


def group_pods(snapshot: Snapshot, pods: PodsLike) -> GroupedPods:
    """Group the pods of a call by equivalence. Raises InputError if a pod cannot be read.

    None stands for the snapshot's pending pods; their groups are cached with the snapshot.
    """
    if pods is not None:
        return GroupedPods(snapshot, pods_of(snapshot, pods, waiting=True), None)
    return snapshot.memo.get(GroupedPods, lambda: GroupedPods(snapshot, snapshot.pending_records, None))


NO_NODE_PERMITTED: Final = "no further node was permitted"


@typed_methods()
class EstimateResult(Result):
    """Number of nodes needed, the placement of the pods, and the pods that remain unschedulable.

    Attributes
    ----------
    node_count : int
        Nodes that got pods, including existing nodes of the hostname retry, as upstream counts.
    nodes_added : int
        Nodes that were added to the simulated cluster, including empty ones.
    failed : bool
        The name of a new node existed already; the rest of the result is not valid then.
    stopped : bool
        A limit refused a node.
    cursor : int
        Where the scan over the nodes stands now.
    records : sequence of PodRecord
        The pods of the call.
    pod_of : ndarray of int32, shape (n,)
        The pods in the order in which they were tried, by number in ``records``.
    placement_numbers : ndarray of int32, shape (n,)
        The node of each entry of ``pod_of`` by number: existing nodes first, then new ones; -1 = none; from ``FAKE``
        on, nodes that the fast path only counts.
    order_numbers : ndarray of int32, shape (placed,)
        The entries of ``pod_of`` that were placed, in the order in which they were placed.

    The properties below contain names instead: ``placed`` is a dict from pod to node, ``unschedulable`` a list of pods.
    The names of new nodes in ``placed`` and ``nodes`` are ``<template>-e-<i>``.
    """

    def __init__(
        self,
        *,
        snapshot: Snapshot,
        session: Session,
        template: NodeTemplate,
        number: int,
        options: EstimateOptions,
        pods: GroupedPods,
        pod_of: NDArray[np.int32],
        class_of: NDArray[np.int32],
        placement: NDArray[np.int32],
        order: NDArray[np.int32],
        group_order: NDArray[np.int64],
        node_count: int,
        nodes_added: int,
        cursor: int,
        failed: bool,
        stopped: bool,
    ) -> None:
        self.snapshot = snapshot
        self.template = template
        self._number = number  # number of the template in the session
        self.options = options
        self.records = pods.records
        self.pod_of = pod_of
        self.placement_numbers = placement
        self.order_numbers = order
        self.node_count = node_count
        self.nodes_added = nodes_added
        self.cursor = cursor
        self.failed = failed
        self.stopped = stopped
        self._profile = session.profile
        self._cached_session: Session | None = session
        self._class_of = class_of
        self._pods = pods
        self._group_order = group_order

    def __repr__(self) -> str:
        out = len(self.placement_numbers) - len(self.order_numbers)
        stay = f", {out} unschedulable" if out else ""
        name = self.template.node.metadata.name
        return f"<EstimateResult: {self.node_count} nodes like {name} for {len(self.order_numbers)} pods{stay}>"

    def table_rows(self) -> Rows:
        """Return one row per pod: its name, its node, and why it has none."""
        placed = [(pod, node, None) for pod, node in self.placed.items()]
        pending = [(pod, None, reason) for pod, reason in self.reasons.items()]
        return Rows({"pod": str, "node": str, "reason": str}, [*placed, *pending])

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes to pickle, without the session, which is rebuilt on demand."""
        return {**vars(self), "_cached_session": None, "_number": 0}

    @property
    def _session(self) -> Session:
        """Return the session for explanations, built on first use."""
        if self._cached_session is None:
            self._cached_session = Session(self.snapshot, self._pods.unique, [self.template], self._profile)
        return self._cached_session

    # -- names -------------------------------------------------------------------------------------------------------

    def _node_name(self, node: int) -> str:
        """Return the name of a node by its number, which may be that of an existing, a new or a fake node."""
        existing = len(self.snapshot.nodes)
        if node >= _engine.FAKE:
            return f"{self.new_node_name(self.nodes_added - 1)}-fake-{node - _engine.FAKE}"
        return self.snapshot.nodes[node] if node < existing else self.new_node_name(node - existing)

    def new_node_name(self, copy: int) -> str:
        """Return upstream's name for the new node number ``copy`` (from 0) in the simulation."""
        return f"{self.template.node.metadata.name}-e-{copy}"

    def _keys(self, entries: NDArray[np.int32]) -> list[str]:
        """Return the keys (``namespace/name``) of the pods at these positions of ``pod_of``."""
        return self._pods.keys_of(self.pod_of[entries])

    @cached_property
    def placed_pods(self) -> list[str]:
        """List the pods that fit, in the order of their placement."""
        return self._keys(self.order_numbers)

    def sum_by_class(self, value_of: Callable[[Mapping[str, int]], float]) -> float:
        """Return the sum of a value of the pods that fit, added one by one in the order of their placement.

        ``value_of`` computes the value from what a pod occupies, by resource: cpu in milli-units, otherwise bytes or
        counts. It must depend on nothing else: it is called once for equal pods, and its values are cached for later
        estimates.
        """
        classes = self._class_of.take(self.order_numbers)
        if not len(classes):
            return 0.0
        values = self._pods.get_values(value_of).take(classes)
        return float(values.cumsum()[-1])  # cumsum adds in order; sum does not

    @cached_property
    def runs(self) -> list[tuple[int, int]]:
        """List the placed pods as runs of equivalent pods, in the order of their placement.

        Each run is (number of the first pod in ``records``, length).
        """
        classes = self._class_of[self.order_numbers]
        starts = starts_of_runs(classes)
        lengths = np.diff(np.append(starts, len(classes))).tolist()
        firsts = self.pod_of[self.order_numbers[starts]].tolist()
        return list(zip(firsts, lengths, strict=True))

    @cached_property
    def requested(self) -> tuple[int, int]:
        """Return the exact total requests of the pods that fit: (cpu, memory) in billionths of a core and of a byte."""
        pods = self._pods
        if len(self.order_numbers) == len(pods.members):
            return pods.sum_requests(pods.class_counts)
        return pods.sum_requests(np.bincount(self._class_of[self.order_numbers], minlength=len(pods.unique)))

    @cached_property
    def placed(self) -> dict[str, str]:
        """Map pods to nodes, in the order of their placement.

        New nodes are ``<template>-e-<i>``; nodes that the fast path only counts are ``<template>-e-<last>-fake-<i>``.
        """
        nodes = self.placement_numbers[self.order_numbers].tolist()
        return dict(zip(self.placed_pods, (self._node_name(node) for node in nodes), strict=True))

    @property
    def pending(self) -> list[str]:
        """List all pods of the call, in the order in which they were passed."""
        return [record.key for record in self.records]

    @cached_property
    def unschedulable(self) -> list[str]:
        """List the pods without a place, in the order in which they were tried."""
        return self._keys(np.flatnonzero(self.placement_numbers < 0).astype(np.int32))

    @cached_property
    def nodes(self) -> list[str]:
        """List the nodes that got pods, in the order of their first use."""
        used = self.placement_numbers[self.order_numbers]
        return [self._node_name(int(node)) for node in dict.fromkeys(used.tolist())]

    @cached_property
    def pod_groups(self) -> list[list[str]]:
        """List the pods of each equivalence group, in the order in which the groups were created."""
        keys = self._pods.keys_of(self._pods.members)
        return [keys[a:b] for a, b in pairwise(self._pods.starts.tolist())]

    @cached_property
    def order(self) -> list[str]:
        """List the first pod of each group in packing order; empty string for an empty group.

        The order is that before the fast path moves its group to the end.
        """
        groups = self.pod_groups
        return [groups[g][0] if groups[g] else "" for g in self._group_order.tolist()]

    # -- pods without a node -----------------------------------------------------------------------------------------

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """Map every pod without a place to the verdict on an empty new node.

        ``ok`` means that the pod would fit an empty node, but no further node was permitted, or that it does not fit
        beside the pods placed before it.
        """
        left = np.flatnonzero(self.placement_numbers < 0)
        numbers = self._class_of[left].tolist()
        by_class = self._verdicts_on_classes(dict.fromkeys(numbers))
        return {key: by_class[number] for key, number in zip(self._keys(left.astype(np.int32)), numbers, strict=True)}

    @property
    def rejections(self) -> list[tuple[Verdict, int, str]]:
        """List the verdict on each class of pods without a place, with the number of these pods and the first one.

        In the order of the first pods; the verdicts are those of :attr:`verdicts`.
        """
        left = np.flatnonzero(self.placement_numbers < 0)
        numbers, first, counts = np.unique(self._class_of[left], return_index=True, return_counts=True)
        order = np.argsort(first)
        classes, pods = numbers[order].tolist(), self._keys(left[first[order]].astype(np.int32))
        by_class = self._verdicts_on_classes(classes)
        verdicts = [by_class[number] for number in classes]
        return list(zip(verdicts, counts[order].tolist(), pods, strict=True))

    def _verdicts_on_classes(self, numbers: Iterable[int]) -> dict[int, Verdict]:
        """Return the verdict on an empty new node by class, for the classes ``numbers``."""
        return self._session.verdicts_on_copy(self._number, max(self.nodes_added, 0), numbers)

    @cached_property
    def reasons(self) -> dict[str, str]:
        """Map every pod without a place to the reason.

        The reason is the first failing plug-in on an empty new node, or that the nodes are full and no further node was
        permitted.
        """
        return {key: self._explain(verdict) for key, verdict in self.verdicts.items()}

    def explain(self, pod: str) -> str:
        """Return the node of a pod of the call, or why it has none, in one line.

        ``pod``: ``namespace/name``. Raises InputError if the pod is not part of this result.
        """
        if pod in self.placed:
            return f"placed on {self.placed[pod]}"
        if pod in self.reasons:
            return self.reasons[pod]
        raise InputError(f"pod {pod!r} is not part of this result")

    def _explain(self, verdict: Verdict) -> str:
        """Return why a pod with this verdict on an empty new node is unschedulable."""
        if not verdict.ok:
            return f"{verdict.plugin}: {', '.join(verdict.why)}"
        if self.failed:
            return "the name of a new node is taken"
        return NO_NODE_PERMITTED if self.stopped else "does not fit beside the pods placed before it"

    @cached_property
    def lower_bound(self) -> Bound:
        """Return a proven lower bound on the nodes for the pods on new nodes: a fast :meth:`bound` without effort."""
        return self.bound()

    def bound(self, *, effort: int = 0, threads: int = 1) -> Bound:
        """Return a proven lower bound on the number of nodes for the pods on new nodes.

        With ``effort`` the bound also uses column generation (extra ``[solver]``), for which ``effort`` limits the
        work, in units of about a microsecond, and ``threads`` threads. Affinity, spread and volumes do not count in a
        bound.

        Raises BoundError if the bound contradicts the result (a bug), and MissingExtraError if ``effort`` needs the
        solver and it is not installed.
        """
        from kscale.scheduling.bounds import Instance, best_bound_of, column_generation_of
        from kscale.scheduling.bounds.effort import Effort, checked_bound

        demand, count, capacity, max_per_node, patterns = self._packing
        instance = Instance.of(demand, count, capacity, max_per_node)
        upper = len(patterns)
        best = best_bound_of(instance, methods=("volume", "per_class", "l2"), upper=upper)
        checked_bound(best.value, upper, f"an estimate of nodes like {self.template.node.metadata.name}")
        if not effort or best.value >= upper:
            return best
        distinct = _drop_equal_rows(patterns)
        fitting = distinct[(distinct <= instance.limit).all(axis=1) & (distinct @ demand <= capacity).all(axis=1)]
        strong = column_generation_of(
            instance,
            lower=best.value,
            upper=upper,
            effort=Effort(effort),
            patterns=_select_fullest_patterns(fitting, demand, capacity),
            threads=threads,
        )
        checked_bound(strong.value, upper, f"an estimate of nodes like {self.template.node.metadata.name}")
        return strong if strong.value > best.value else best

    @cached_property
    def _packing(
        self,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the packing problem of the pods on new nodes, and the packing that was found.

        The result consists of:

        - what a pod of each class occupies: int64[classes, resources], the first resource is the number of pods
        - the number of pods of each class: int64[classes]
        - the template's room: int64[resources]
        - how many pods of each class a node takes at most (1 if they use host ports): int64[classes]
        - how many pods of each class each new node has: int64[nodes, classes]

        Resources that the template does not limit, and those of which a request overflows, are left out.
        """
        session = self._session
        on_new = self.placement_numbers >= len(self.snapshot.nodes)
        numbers, count = np.unique(self._class_of[on_new], return_counts=True)
        slots, roomy = session.template_room(self._number)
        chosen = [
            r
            for r, n in enumerate(roomy)
            if n < UNLIMITED_DEVICES // 2
            and not session.resources[r].startswith("\0")
            # A request that overflows 64 bits is negative and adds room, so this resource gives no bound.
            and all(session.pods[n].occupancy.get(session.resources[r], 0) >= 0 for n in numbers)
        ]
        resources = [session.resources[r] for r in chosen]
        demand = np.array(
            [[1, *(session.pods[n].occupancy.get(name, 0) for name in resources)] for n in numbers], dtype=np.int64
        ).reshape(len(numbers), len(resources) + 1)
        capacity = np.array([slots, *(roomy[r] for r in chosen)], dtype=np.int64)
        max_per_node = np.array([1 if session.pods[n].ports else 2**31 - 1 for n in numbers], dtype=np.int64)
        nodes, node_of = np.unique(self.placement_numbers[on_new], return_inverse=True)
        patterns = np.zeros((len(nodes), len(numbers)), dtype=np.int64)
        np.add.at(patterns, (node_of, np.searchsorted(numbers, self._class_of[on_new])), 1)
        return demand, count.astype(np.int64), np.maximum(capacity, 0), max_per_node, patterns

    @cached_property
    def unmodelled(self) -> list[str]:
        """List the features that pods use and that kscale does not model."""
        return self._session.list_unmodelled(self._pods.own_classes)


def _drop_equal_rows(patterns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Drop repeated rows; each distinct row stays at its first position."""
    # Equal rows have equal sums with these weights, and next to no others do.
    weights = np.array([pow(0x9E3779B97F4A7C15, k + 1, 2**63) for k in range(patterns.shape[1])], dtype=np.int64)
    distinct: NDArray[np.int64] = patterns[np.sort(np.unique(patterns @ weights, return_index=True)[1])]
    return distinct


def _select_fullest_patterns(
    patterns: NDArray[np.int64], demand: NDArray[np.int64], capacity: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the rows of ``patterns`` with the highest utilization, at most as many as there are pod classes (columns).

    The utilization is that of the node's fullest resource. ``demand``: int64[classes, resources] of one pod.
    A search starts better from few and good patterns.
    """
    full = (patterns @ demand / np.maximum(capacity, 1)).max(axis=1, initial=0.0)
    chosen: NDArray[np.int64] = patterns[np.argsort(-full, kind="stable")[: patterns.shape[1]]]
    return chosen
