"""Placement constraints of a mix as arrays: zones and similar cells, exclusion rules, pod shapes.

Nodes that agree in every topology label by which some constraint counts form one *cell*. Each cell gets one unlimited
node in a simulated cluster. The exact predicates then decide which cells a pod may use; of these, the pod gets the
cell with the fewest similar pods, then the one with the least load. Within a cell, only nodes separate pods.

Constraints between pods on one node become knapsack rows. Host ports and required anti-affinity are exact (a *rule*
that every plan obeys, so that a bound may use it). Spread over nodes becomes a sufficient condition (``strict``: a plan
uses it, a bound does not).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.objects.api.core import Node, NodeStatus, Pod, PodAffinity
from kscale.objects.api.meta import ObjectMeta
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import SelectorError
from kscale.scheduling.bounds.instance import BinKinds
from kscale.scheduling.fork import fork
from kscale.scheduling.plugins import PROFILE
from kscale.scheduling.plugins.inter_pod_affinity import Term, carried_terms
from kscale.scheduling.plugins.pod_topology_spread import hard_constraints
from kscale.scheduling.profile import HOSTNAME, Context, SchedulerProfile
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "FREE",
    "Cells",
    "Conflict",
    "Limits",
    "Rule",
    "Shapes",
    "assign_to_cells",
    "cells_of",
    "conflicts_of",
    "rank_of",
    "rules_of",
    "shapes_of",
    "topology_keys",
]


FREE = -1
_MOST_CELLS = 16
_CELL_PLUGINS = ("PodTopologySpread", "InterPodAffinity")
_ROOM = {"cpu": "1T", "memory": "1Ei", "ephemeral-storage": "1Ei", "pods": "1G"}


def topology_keys(classes: Sequence[PodClass], ctx: Context) -> list[str]:
    """Return the topology keys of the classes' required affinity terms and hard spread constraints, without host names.

    Classes with an invalid selector contribute no spread constraint.
    """
    keys: dict[str, None] = {}
    for pod in classes:
        keys.update(dict.fromkeys(term.topology_key for term in (*pod.affinity, *pod.anti_affinity)))
        try:
            keys.update(dict.fromkeys(constraint.row.key for constraint in hard_constraints(pod, ctx)))
        except SelectorError:
            continue
    keys.pop(HOSTNAME, None)
    return list(keys)


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of a mix.

    - ``keys``: labels that form cells; ``labels`` of each cell
    - ``of_offer`` int64[T], ``of_node`` int64[N] of existing nodes: cell numbers (:data:`FREE` = in no cell)
    - ``left_out``: keys with too many values for cells to help
    """

    keys: tuple[str, ...]
    labels: list[dict[str, str]]
    of_offer: NDArray[np.int64]
    of_node: NDArray[np.int64]
    left_out: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)


def cells_of(keys: Sequence[str], offers: Sequence[dict[str, str]], nodes: Sequence[dict[str, str]]) -> Cells:
    """Group offers and nodes into cells by their labels ``keys``; a single cell if no key distinguishes offers.

    ``offers``, ``nodes``: labels of each. Keys with too many values are left out, and the last keys if there are too
    many combinations. Without offers there is no cell.
    """
    used, left_out = [], []
    for key in keys:
        values = {labels.get(key) for labels in offers}
        if 1 < len(values) <= _MOST_CELLS:
            used.append(key)
        elif len(values) > _MOST_CELLS:
            left_out.append(key)
    while True:
        seen = dict.fromkeys(tuple(labels.get(key) for key in used) for labels in offers)
        if len(seen) <= _MOST_CELLS:
            break
        left_out.append(used.pop())
    number = {values: i for i, values in enumerate(seen)}

    def of(labels: dict[str, str]) -> int:
        """Return the index of the cell with these labels; :data:`FREE` if there is none."""
        return number.get(tuple(labels.get(key) for key in used), FREE)

    return Cells(
        tuple(used),
        [{key: value for key, value in zip(used, values, strict=True) if value is not None} for values in number],
        np.array([of(labels) for labels in offers], dtype=np.int64),
        np.array([of(labels) for labels in nodes], dtype=np.int64),
        tuple(left_out),
    )


def rank_of(pod: PodClass, ctx: Context) -> int:
    """Return the rank of a pod class in the order of placing, from 0 (first) to 4.

    First classes with hard spread constraints over host names, then over other keys, then those with affinity, with
    anti-affinity, and the others last.
    """
    try:
        keys = {constraint.row.key for constraint in hard_constraints(pod, ctx)}
    except SelectorError:
        keys = set()
    if keys:
        return 0 if HOSTNAME in keys else 1
    if pod.affinity:
        return 2
    return 3 if pod.anti_affinity else 4


def assign_to_cells(
    snapshot: Snapshot,
    classes: Sequence[PodClass],
    exemplars: Sequence[Pod],
    class_of: NDArray[np.int64],
    cells: Cells,
    can_hold: NDArray[np.bool_],
    load: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Assign each pod to a cell, one after another: int64[n], :data:`FREE` for a pod that no offer can hold.

    - ``exemplars``: one pod of each class; ``class_of`` int64[n]: class of each pod
    - ``can_hold`` bool[C, cells]: whether an offer of the cell can hold a pod of the class
    - ``load`` float64[C, R]: share of one pod in the total request of each resource

    Each pod goes to the allowed cell whose load of the pod's resources is lowest; a pod with anti-affinity or spread
    constraints first of all to the one with the fewest similar pods. All cells then get a similar mixture of pods, and
    nodes are filled best by pods with different requests. If affinity and spread rules allow no cell, the load alone
    decides; the exact check finds out later whether such a pod can be placed.
    """
    cell_templates = [NodeTemplate(node=_build_cell_node(i, labels)) for i, labels in enumerate(cells.labels)]
    disabled = frozenset(plugin.name for plugin in PROFILE) - set(_CELL_PLUGINS)
    restricted_pods = [_restrict_rules(pod, cells.keys, c) for c, pod in enumerate(exemplars)]
    world = fork(
        snapshot, restricted_pods, templates=cell_templates, profile=SchedulerProfile(disabled_filters=disabled)
    )
    nodes = [world.add(i) for i in range(len(cell_templates))]
    number = [world.pod(pod.key) for pod in restricted_pods]
    labels = [(pod.namespace, tuple(sorted((pod.labels or {}).items()))) for pod in classes]
    separates = np.array([bool(pod.anti_affinity or pod.spread) for pod in classes])
    counts_by_labels: dict[object, NDArray[np.int64]] = {}
    total = np.zeros((len(cells), load.shape[1]))
    result = np.full(len(class_of), FREE, dtype=np.int64)
    for i, c in enumerate(class_of.tolist()):
        similar = counts_by_labels.setdefault(labels[c], np.zeros(len(cells), dtype=np.int64))
        load_of_cells = total @ load[c]
        order = np.lexsort((load_of_cells, similar)) if separates[c] else np.argsort(load_of_cells, kind="stable")
        for cell in order.tolist():
            if can_hold[c, cell] and world.schedule(number[c], nodes[cell]):
                result[i] = cell
                total[cell] += load[c]
                if separates[c]:
                    similar[cell] += 1
                break
        else:
            allowed = np.flatnonzero(can_hold[c])
            if allowed.size:
                result[i] = allowed[np.argmin(load_of_cells[allowed])]
                total[result[i]] += load[c]
    return result


def _build_cell_node(number: int, labels: dict[str, str]) -> Node:
    """Build an empty node with practically unlimited room, which stands for a cell."""
    name = f"kscale-cell-{number}"
    room = {resource: Quantity(amount) for resource, amount in _ROOM.items()}
    return Node(
        metadata=ObjectMeta(name=name, labels={**labels, HOSTNAME: name}),
        status=NodeStatus(capacity=room, allocatable=room),
    )


def _restrict_rules(pod: Pod, keys: Sequence[str], number: int) -> Pod:
    """Return the pod under a new name, with only the required pod affinity and the spread rules over ``keys``.

    ``number``: makes the name and UID unique.
    """
    replace = msgspec.structs.replace
    spec = pod.spec
    spread = spec.topology_spread_constraints
    if spread is not None:
        spread = [constraint for constraint in spread if constraint.topology_key in keys]
    affinity = spec.affinity
    if affinity is not None:
        affinity = replace(
            affinity,
            pod_affinity=_terms(affinity.pod_affinity, keys),
            pod_anti_affinity=_terms(affinity.pod_anti_affinity, keys),
        )
    return replace(
        pod,
        metadata=replace(pod.metadata, name=f"kscale-{number}-{pod.metadata.name}", uid=f"kscale-{number}"),
        spec=replace(spec, node_name="", affinity=affinity, topology_spread_constraints=spread),
    )


def _terms(affinity: PodAffinity | None, keys: Sequence[str]) -> PodAffinity | None:
    """Return the affinity with only its required terms over the topology keys ``keys``; None without affinity."""
    if affinity is None:
        return None
    required = [term for term in affinity.required if term.topology_key in keys]
    return msgspec.structs.replace(affinity, required=required, preferred=[])


_ANY = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule for one node: the sum of ``weights`` (class -> weight of one pod) is at most ``most``."""

    weights: dict[int, int]
    most: int
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Conflict:
    """No node holds pods of classes of both sets.

    No resource can express this. Bounds and large plans do not consider it; the exact check moves pods.
    """

    first: frozenset[int]
    second: frozenset[int]


def rules_of(classes: Sequence[PodClass], counts: Sequence[int], ctx: Context) -> list[Rule]:
    """Return the rules that limit which pods share a node: host ports, anti-affinity and spread over host names.

    ``counts``: number of pods of each class.
    """
    rules = [*_get_port_rules(classes), *_get_anti_affinity_rules(classes, ctx)]
    separate_pods = max((sum(counts[c] for c in rule.weights) for rule in rules if rule.most == 1), default=0)
    return rules + _get_spread_rules(classes, counts, ctx, separate_pods)


def _get_port_rules(classes: Sequence[PodClass]) -> list[Rule]:
    """Return one rule per protocol, host port and address: a node has at most one pod that uses it.

    A pod that uses the port on every address counts for each address.
    """
    users: dict[tuple[str, int], dict[str, list[int]]] = {}
    for c, pod in enumerate(classes):
        for ip, protocol, port in pod.ports:
            users.setdefault((protocol, port), {}).setdefault(ip, []).append(c)
    rules = []
    for by_address in users.values():
        everywhere = by_address.pop(_ANY, [])
        rules += [Rule(dict.fromkeys([*everywhere, *members], 1), 1) for members in by_address.values() or [[]]]
    return rules


def _get_anti_affinity_rules(classes: Sequence[PodClass], ctx: Context) -> list[Rule]:
    """Return one rule per host name anti-affinity term that also matches some of the pods that have the term."""
    carriers: dict[Term, list[int]] = {}
    for c, pod in enumerate(classes):
        for term in carried_terms(pod):
            if term.key == HOSTNAME:
                carriers.setdefault(term, []).append(c)
    rules = []
    for term, carrier_classes in carriers.items():
        matched = {c for c, pod in enumerate(classes) if term.matches(pod, ctx.namespace_labels(pod.namespace))}
        matched_carriers = [c for c in carrier_classes if c in matched]
        if not matched_carriers:
            continue
        others = matched - set(carrier_classes)
        # One carrier takes the full capacity; each other pod takes so little that a node never holds too many.
        capacity = 1 << 20 if others else 1
        rules.append(Rule({**dict.fromkeys(matched_carriers, capacity), **dict.fromkeys(sorted(others), 1)}, capacity))
    return rules


def conflicts_of(classes: Sequence[PodClass], counts: Sequence[int], ctx: Context) -> list[Conflict]:
    """Return one conflict per host name anti-affinity term that matches only pods that do not have the term.

    ``counts``: number of pods of each class.
    """
    carriers: dict[Term, list[int]] = {}
    for c, pod in enumerate(classes):
        for term in carried_terms(pod) if counts[c] else ():
            if term.key == HOSTNAME:
                carriers.setdefault(term, []).append(c)
    conflicts = []
    for term, carrier_classes in carriers.items():
        matched = {
            c for c, pod in enumerate(classes) if counts[c] and term.matches(pod, ctx.namespace_labels(pod.namespace))
        }
        if matched and matched.isdisjoint(carrier_classes):
            conflicts.append(Conflict(frozenset(carrier_classes), frozenset(matched)))
    return conflicts


def _get_spread_rules(classes: Sequence[PodClass], counts: Sequence[int], ctx: Context, apart: int) -> list[Rule]:
    """Return rules for hard spread constraints over host names: a node has at most ``maxSkew`` pods of a constraint.

    This is sufficient as long as these pods are placed before others, and some node has none of them. ``apart``: number
    of pods that cannot share nodes anyway. If there are several constraints, and no more pods than that have them, a
    single rule suffices: at most one such pod per node.
    """
    rows: dict[object, tuple[int, list[int]]] = {}
    carriers: list[int] = []
    for c, pod in enumerate(classes):
        try:
            constraints = hard_constraints(pod, ctx)
        except SelectorError:
            continue
        over_nodes = [constraint for constraint in constraints if constraint.row.key == HOSTNAME]
        if over_nodes:
            carriers.append(c)
        for constraint in over_nodes:
            skew, _ = rows.get(constraint.row, (constraint.max_skew, []))
            rows[constraint.row] = min(skew, constraint.max_skew), []
    if not carriers:
        return []
    if len(rows) > 1 and sum(counts[c] for c in carriers) <= apart:
        return [Rule(dict.fromkeys(carriers, 1), 1, strict=True)]
    rules = []
    for row, (skew, _) in rows.items():
        members = [c for c in carriers if row.counts(classes[c])]  # type: ignore[attr-defined]  # each row here is a SpreadRow
        if members:
            rules.append(Rule(dict.fromkeys(members, 1), skew, strict=True))
    return rules


_MOST_RESOURCES = 14  # columns of an instance; further rules apply to each class alone


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on numbers of bins, as in :class:`~kscale.scheduling.bounds.instance.BinKinds`."""

    available: NDArray[np.int64]
    rows: NDArray[np.int64]
    high: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shapes:
    """Shapes of pods: classes that are equal for a mix.

    - ``demand`` int64[S, R]: resources, then a column for each rule that is modelled
    - ``limit``: pods per node, for a bound; ``strict_limit``: for a plan
    - ``allowed`` bool[S, T]; ``of_class`` int64[C]: shape of each class; ``count`` int64[S]
    - ``rule_most`` int64: a node's capacity of each rule; ``strict`` bool[R]: columns that a bound omits
    """

    demand: NDArray[np.int64]
    count: NDArray[np.int64]
    limit: NDArray[np.int64]
    strict_limit: NDArray[np.int64]
    allowed: NDArray[np.bool_]
    of_class: NDArray[np.int64]
    rule_most: NDArray[np.int64]
    strict: NDArray[np.bool_]

    @property
    def differs(self) -> bool:
        """Check whether a plan has to obey more constraints than a bound."""
        return bool(self.strict.any() or (self.strict_limit < np.minimum(self.limit, self.count)).any())

    def kinds(self, capacity: NDArray[np.int64], cost: NDArray[np.int64], limits: Limits, *, strict: bool) -> BinKinds:
        """Build the bin-packing instance of a plan (``strict``) or of a bound.

        ``capacity`` int64[T, resources] of each kind of bins, without columns for rules; ``cost`` int64[T].
        """
        rules = np.repeat(self.rule_most[None], len(capacity), axis=0)
        room = np.hstack([capacity, rules])
        columns = np.ones(room.shape[1], dtype=bool) if strict else ~self.strict
        return BinKinds.of(
            np.ascontiguousarray(self.demand[:, columns]),
            self.count,
            np.ascontiguousarray(room[:, columns]),
            cost,
            allowed=self.allowed,
            max_per_bin=self.strict_limit if strict else self.limit,
            available=limits.available,
            rows=limits.rows,
            high=limits.high,
        )


def shapes_of(
    demand: NDArray[np.int64],
    counts: NDArray[np.int64],
    allowed: NDArray[np.bool_],
    rules: Sequence[Rule],
    conflicts: Sequence[Conflict] = (),
) -> Shapes:
    """Merge classes into shapes: classes with equal demand, allowed types, rules and conflicts become one shape.

    ``demand`` int64[C, R], ``counts`` int64[C] and ``allowed`` bool[C, T] are those of the classes, to which the rules
    refer. A rule that covers several shapes takes a column beside the resources; rules beyond ``_MOST_RESOURCES``
    columns limit each shape on its own.
    """
    part: list[list[tuple[int, int]]] = [[] for _ in counts]
    for number, rule in enumerate(rules):
        for c, weight in rule.weights.items():
            part[c].append((number, weight))
    for number, conflict in enumerate(conflicts, len(rules)):
        for side, classes in enumerate((conflict.first, conflict.second)):
            for c in classes:
                part[c].append((number, side))
    numbers: dict[tuple[bytes, bytes, tuple[tuple[int, int], ...]], int] = {}
    of_class = np.empty(len(counts), dtype=np.int64)
    first: list[int] = []
    for c in range(len(counts)):
        key = demand[c].tobytes(), allowed[c].tobytes(), tuple(part[c])
        of_class[c] = numbers.setdefault(key, len(numbers))
        if of_class[c] == len(first):
            first.append(c)
    count = np.bincount(of_class, weights=counts, minlength=len(first)).astype(np.int64)
    limit = np.full(len(first), np.iinfo(np.int32).max, dtype=np.int64)
    strict_limit = limit.copy()
    columns: list[tuple[int, int, dict[int, int], bool]] = []  # (pods, most, shape -> weight, strict)
    for rule in rules:
        members = {int(of_class[c]): weight for c, weight in rule.weights.items()}
        for s, weight in members.items():
            strict_limit[s] = min(strict_limit[s], rule.most // weight)
            if not rule.strict:
                limit[s] = min(limit[s], rule.most // weight)
        if len(members) > 1:
            columns.append((int(count[list(members)].sum()), rule.most, members, rule.strict))
    columns.sort(key=lambda column: -column[0])
    columns = columns[: max(0, _MOST_RESOURCES - demand.shape[1])]
    extra = np.zeros((len(first), len(columns)), dtype=np.int64)
    for r, (_, _, members, _) in enumerate(columns):
        for s, weight in members.items():
            extra[s, r] = weight
    return Shapes(
        demand=np.hstack([demand[first], extra]),
        count=count,
        limit=limit,
        strict_limit=strict_limit,
        allowed=allowed[first],
        of_class=of_class,
        rule_most=np.array([maximum for _, maximum, _, _ in columns], dtype=np.int64),
        strict=np.array([False] * demand.shape[1] + [strict for *_, strict in columns], dtype=bool),
    )
