"""The result of an estimate, and the grouped pods that it is computed from.

Upstream: ``core/scaleup/equivalence``.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from kscale._native import _packing
from kscale.ca.estimator.limiter import EstimateOptions
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.pod_resources import CPU, MEMORY
from kscale.scheduling.coercion import PodsLike, pods_of
from kscale.scheduling.devices.ledger import PLENTY
from kscale.scheduling.equivalent_pods import equivalence_groups, shapes_of
from kscale.scheduling.session import Session
from kscale.scheduling.status import Verdict
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.pods.rows import PodRows
from kscale.snapshot.snapshot import Snapshot

if TYPE_CHECKING:
    from kscale.scheduling.bounds import Bound

__all__ = ["NO_NODE_PERMITTED", "EstimateResult", "GroupedPods", "group_pods"]


class GroupedPods:
    """Pods of an estimate, grouped: what does not depend on the template."""

    def __init__(self, snapshot: Snapshot, records: Sequence[PodRecord], groups: Sequence[int] | None) -> None:
        self.records = records
        if groups is None:
            self.members, self.starts = equivalence_groups(*shapes_of(records))
        else:
            self.members = np.arange(len(records), dtype=np.int32)
            self.starts = np.array(groups, dtype=np.int32)
        self.unique, of_pod = snapshot.distinct_classes(records)
        self.class_of = of_pod[self.members]
        """int32[n]: position in ``unique``, group after group."""
        self.asks = np.zeros(len(self.starts) - 1, dtype=np.intp)
        """int[groups]: what a group's first pod asks for, as a row of ``asked``; an empty group asks for nothing."""
        self.asked = np.zeros((1, 2))
        """float64[K, 2]: different amounts of cpu and memory."""
        self._sums: dict[bytes, tuple[int, int]] = {}
        self.counted: NDArray[np.int64] | None = None
        """``class_counts``, once somebody asked."""
        taken = [(pod.occupancy.get(CPU, 0), pod.occupancy.get(MEMORY, 0)) for pod in self.unique]
        some = np.flatnonzero(np.diff(self.starts) > 0)
        if len(some):
            rows: dict[tuple[int, int], int] = {(0, 0): 0}
            of_class = np.array([rows.setdefault(each, len(rows)) for each in taken], dtype=np.intp)
            self.asked = np.array(list(rows), dtype=np.float64)
            self.asks[some] = of_class[self.class_of[self.starts[some]]]

    def restricted(self, groups: NDArray[np.int64]) -> GroupedPods:
        """The same pods, some of the groups, in the order given."""
        if len(groups) == len(self.starts) - 1 and (groups == np.arange(len(groups))).all():
            return self
        part = copy(self)
        positions, part.starts = self.spread(groups)
        part.members = self.members[positions]
        part.class_of = self.class_of[positions]
        part.asks = self.asks[groups]
        part.counted = None
        return part

    def spread(self, groups: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """(positions of their pods, where each group starts there) of some groups, in the order given."""
        sizes = np.diff(self.starts)[groups]
        starts = np.append(0, np.cumsum(sizes)).astype(np.int32)
        positions = np.repeat(self.starts[:-1][groups] - starts[:-1], sizes) + np.arange(starts[-1])
        return positions.astype(np.int64), starts

    def exemplar(self, group: int) -> PodClass | None:
        """The class of a group's first pod; None for an empty group."""
        start = self.starts[group]
        return None if start == self.starts[group + 1] else self.unique[self.class_of[start]]

    @property
    def class_counts(self) -> NDArray[np.int64]:
        """How many pods there are of each class: int64[classes]."""
        if self.counted is None:
            self.counted = np.bincount(self.class_of, minlength=len(self.unique))
        return self.counted

    def requested(self, counts: NDArray[np.int64]) -> tuple[int, int]:
        """What so many pods of each class (int64[classes]) request together: (cpu, memory) in billionths."""
        key = counts.tobytes()
        found = self._sums.get(key)
        if found is None:
            cpu = memory = 0
            for number in np.flatnonzero(counts).tolist():
                one, count = self.unique[number].requested, int(counts[number])
                cpu, memory = cpu + one[0] * count, memory + one[1] * count
            found = self._sums[key] = cpu, memory
        return found

    def keys_of_group(self, group: int) -> list[str]:
        """The pods of a group, ``namespace/name``."""
        return self.keys_of(self.members[self.starts[group] : self.starts[group + 1]])

    def keys_of(self, numbers: NDArray[np.int32]) -> list[str]:
        """Pods by number in ``records``, ``namespace/name``."""
        records = self.records
        if isinstance(records, PodRows):
            return records.keys_at(numbers)
        return [records[i].key for i in numbers.tolist()]


def group_pods(snapshot: Snapshot, pods: PodsLike) -> GroupedPods:
    """The pods of a call in equivalence groups; the pending ones are grouped once for a snapshot."""
    if pods is not None:
        return GroupedPods(snapshot, pods_of(snapshot, pods, waiting=True), None)
    return snapshot.memo.of(GroupedPods, lambda: GroupedPods(snapshot, snapshot.pending_records, None))


NO_NODE_PERMITTED: Final = "no further node was permitted"


class EstimateResult:
    """How many nodes are needed, which pods go on them, and which pods stay out.

    Attributes
    ----------
    node_count : int
        Nodes that got pods, existing ones of the hostname retry included, as upstream counts.
    nodes_added : int
        Nodes that were put into the simulated cluster, empty ones included.
    failed : bool
        The name of a new node was taken; nothing counts then.
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
    order_numbers : ndarray of int32, shape (scheduled,)
        The entries of ``pod_of`` that were placed, in the order in which they were placed.

    The properties below have the same by name: ``placement`` is a dict from pod to node, ``order`` a list of pods.
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
        self._number = number  # of the template in the session
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
        self._kept_session: Session | None = session
        self._class_of = class_of
        self._pods = pods
        self._group_order = group_order

    def __repr__(self) -> str:
        out = len(self.placement_numbers) - len(self.order_numbers)
        stay = f", {out} stay out" if out else ""
        name = self.template.node.metadata.name
        return f"<EstimateResult: {self.node_count} nodes like {name} for {len(self.order_numbers)} pods{stay}>"

    def _repr_html_(self) -> str:
        """For a notebook."""
        from kscale.html import notebook

        rows = [*self.placement.items(), *self.unscheduled.items()]
        return notebook.listing(repr(self), ("pod", "node, or why not"), rows)

    def __getstate__(self) -> dict[str, Any]:
        """Without the session, which is made again where it is needed."""
        return {**vars(self), "_kept_session": None, "_number": 0}

    @property
    def _session(self) -> Session:
        if self._kept_session is None:
            self._kept_session = Session(self.snapshot, self._pods.unique, [self.template], self._profile)
        return self._kept_session

    # -- names -------------------------------------------------------------------------------------------------------

    def _node_name(self, node: int) -> str:
        existing = len(self.snapshot.nodes)
        if node >= _packing.FAKE:
            return f"{self.new_node_name(self.nodes_added - 1)}-fake-{node - _packing.FAKE}"
        return self.snapshot.nodes[node] if node < existing else self.new_node_name(node - existing)

    def new_node_name(self, copy: int) -> str:
        """What upstream calls the copy in the simulation."""
        return f"{self.template.node.metadata.name}-e-{copy}"

    def _keys(self, entries: NDArray[np.int32]) -> list[str]:
        return self._pods.keys_of(self.pod_of[entries])

    @cached_property
    def scheduled(self) -> list[str]:
        """Pods that fit, in the order they were placed."""
        return self._keys(self.order_numbers)

    @cached_property
    def runs(self) -> list[tuple[int, int]]:
        """(a pod by number in ``records``, how many in a row are alike): the pods that fit, in the order they were
        placed."""
        classes = self._class_of[self.order_numbers]
        starts = np.flatnonzero(np.r_[True, classes[1:] != classes[:-1]]) if len(classes) else np.zeros(0, np.int64)
        lengths = np.diff(np.append(starts, len(classes))).tolist()
        firsts = self.pod_of[self.order_numbers[starts]].tolist()
        return list(zip(firsts, lengths, strict=True))

    @cached_property
    def requested(self) -> tuple[int, int]:
        """What the pods that fit request together, exactly: (cpu, memory) in billionths of a core and of a byte."""
        pods = self._pods
        if len(self.order_numbers) == len(pods.members):
            return pods.requested(pods.class_counts)
        return pods.requested(np.bincount(self._class_of[self.order_numbers], minlength=len(pods.unique)))

    @cached_property
    def placement(self) -> dict[str, str]:
        """Pod -> node, in the order they were placed. New nodes are ``<template>-e-<i>``."""
        nodes = self.placement_numbers[self.order_numbers].tolist()
        return dict(zip(self.scheduled, (self._node_name(node) for node in nodes), strict=True))

    @cached_property
    def nodes_with_pods(self) -> list[str]:
        """Nodes that got pods, in the order they were first used."""
        used = self.placement_numbers[self.order_numbers]
        return [self._node_name(int(node)) for node in dict.fromkeys(used.tolist())]

    @cached_property
    def groups(self) -> list[list[str]]:
        """Pods per equivalence group, in the order the groups were made."""
        keys = self._pods.keys_of(self._pods.members)
        return [keys[a:b] for a, b in pairwise(self._pods.starts.tolist())]

    @cached_property
    def order(self) -> list[str]:
        """The first pod of each group in the order they are packed (before the fast path moves its group to the end);
        empty for an empty group."""
        groups = self.groups
        return [groups[g][0] if groups[g] else "" for g in self._group_order.tolist()]

    # -- what stays out ----------------------------------------------------------------------------------------------

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """Pod -> the verdict on an empty new node, for every pod without a place. ``ok`` there means that the pod would
        fit an empty node, but no further node was permitted, or not beside the pods placed before it."""
        left = np.flatnonzero(self.placement_numbers < 0)
        numbers = self._class_of[left].tolist()
        found = self._session.verdicts_on_copy(self._number, max(self.nodes_added, 0), dict.fromkeys(numbers))
        return {key: found[number] for key, number in zip(self._keys(left.astype(np.int32)), numbers, strict=True)}

    @cached_property
    def unscheduled(self) -> dict[str, str]:
        """Pod -> why it did not get a place: the first failing plug-in on an empty new node with its reasons, or that
        the nodes at hand are full and no further node was permitted."""
        return {key: self._why(verdict) for key, verdict in self.verdicts.items()}

    def _why(self, verdict: Verdict) -> str:
        if not verdict.ok:
            return f"{verdict.plugin}: {', '.join(verdict.why)}"
        if self.failed:
            return "the name of a new node is taken"
        return NO_NODE_PERMITTED if self.stopped else "does not fit beside the pods placed before it"

    @cached_property
    def lower_bound(self) -> Bound:
        """A proven least number of nodes for the pods that were given new nodes, found at once."""
        return self.bound()

    def bound(self, *, effort: int = 0, threads: int = 1) -> Bound:
        """A proven least number of nodes for the pods that were given new nodes.

        ``effort``: by column generation as well (extra ``[solver]``), with so much work at most: units of about a
        microsecond. What a bound does not see: affinity, spread, volumes.
        """
        from kscale.scheduling.bounds import Instance, best_bound_of, column_generation_of
        from kscale.scheduling.bounds.effort import Effort, checked_bound

        demand, count, capacity, most, patterns = self._packing
        instance = Instance.of(demand, count, capacity, most)
        upper = len(patterns)
        best = best_bound_of(instance, methods=("volume", "per_class", "l2"), upper=upper)
        checked_bound(best.value, upper, f"an estimate of nodes like {self.template.node.metadata.name}")
        if not effort or best.value >= upper:
            return best
        known = _drop_equal_rows(patterns)
        fitting = known[(known <= instance.limit).all(axis=1) & (known @ demand <= capacity).all(axis=1)]
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
        """(demand, count, capacity, most of a class on a node) of what was put on new nodes, and what each node got."""
        session = self._session
        on_new = self.placement_numbers >= len(self.snapshot.nodes)
        numbers, count = np.unique(self._class_of[on_new], return_counts=True)
        slots, roomy = session.template_room(self._number)
        chosen = [
            r
            for r, n in enumerate(roomy)
            if n < PLENTY // 2
            and not session.resources[r].startswith("\0")
            # What wraps around at 64 bits gives room to others: no bound follows from that resource.
            and all(session.pods[n].occupancy.get(session.resources[r], 0) >= 0 for n in numbers)
        ]
        resources = [session.resources[r] for r in chosen]
        demand = np.array(
            [[1, *(session.pods[n].occupancy.get(name, 0) for name in resources)] for n in numbers], dtype=np.int64
        ).reshape(len(numbers), len(resources) + 1)
        capacity = np.array([slots, *(roomy[r] for r in chosen)], dtype=np.int64)
        most = np.array([1 if session.pods[n].ports else 2**31 - 1 for n in numbers], dtype=np.int64)
        nodes, node_of = np.unique(self.placement_numbers[on_new], return_inverse=True)
        patterns = np.zeros((len(nodes), len(numbers)), dtype=np.int64)
        np.add.at(patterns, (node_of, np.searchsorted(numbers, self._class_of[on_new])), 1)
        return demand, count.astype(np.int64), np.maximum(capacity, 0), most, patterns

    @cached_property
    def unmodelled(self) -> list[str]:
        """What pods use that no rule here looks at."""
        return self._session.unmodelled


def _drop_equal_rows(patterns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Equal rows once, each where the first of them is."""
    # Equal rows have equal sums with these weights, and next to no others do.
    weights = np.array([pow(0x9E3779B97F4A7C15, k + 1, 2**63) for k in range(patterns.shape[1])], dtype=np.int64)
    found: NDArray[np.int64] = patterns[np.sort(np.unique(patterns @ weights, return_index=True)[1])]
    return found


def _select_fullest_patterns(
    patterns: NDArray[np.int64], demand: NDArray[np.int64], capacity: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The fullest nodes, one for each class of pods: a search starts better from few and good ones."""
    full = (patterns @ demand / np.maximum(capacity, 1)).max(axis=1, initial=0.0)
    chosen: NDArray[np.int64] = patterns[np.argsort(-full, kind="stable")[: patterns.shape[1]]]
    return chosen
