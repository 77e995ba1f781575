"""The record of a mix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from kscale.capacity.architectures import arch_of
from kscale.capacity.mix.check import Checked, Planned
from kscale.capacity.mix.instance import MONEY, Instance
from kscale.capacity.mix.records import Bound, MixLine, MixPlan, PlannedNode, Repairs
from kscale.capacity.mix.solve import Solution
from kscale.objects.requests import CPU, MEMORY, PODS
from kscale.objects.selectors import SelectorError
from kscale.scheduling.bounds.validity import checked_bound
from kscale.scheduling.facts import HOSTNAME
from kscale.scheduling.plugins.pod_topology_spread import hard_constraints

__all__ = ["plan_of"]


def plan_of(
    instance: Instance, solution: Solution, planned: Planned, checked: Checked, *, placements: bool, comparable: bool
) -> MixPlan:
    """Everything that was found. ``comparable``: the proof is about the same pods."""
    existing = len(instance.snapshot.nodes)
    offers = instance.offers
    used = checked.node
    cost = sum(offers[node.offer].price for node in checked.nodes)
    before = sum(offers[offer].price for offer in planned.offer.tolist())
    bound = (solution.proof.value + instance.minimum_cost) / MONEY
    proven = comparable and not checked.left
    if proven:
        checked_bound(bound, cost, "mix")
    lost = [instance.asked[i].key for i in instance.nowhere.tolist()]
    lost += [instance.records[i].key for i in checked.left]
    lines = _lines(instance, checked)
    added = checked.nodes[len(planned.offer) :]
    return MixPlan(
        pods=len(instance.asked),
        on_existing=int(((used >= 0) & (used < existing)).sum()),
        on_new=int((used >= existing).sum()),
        nowhere=len(lost),
        nodes=len(checked.nodes),
        types=len({line.type for line in lines}),
        cost=_money(cost),
        planned=_money(before),
        bound=Bound(
            cost=_money(bound) if proven else None,
            method=solution.method,
            gap=_gap(cost, bound) if proven else None,
            relaxed=relaxed(instance),
        ),
        lines=lines,
        repairs=Repairs(
            moved=int(checked.moved),
            added=checked.added,
            cost=_money(sum(offers[node.offer].price for node in added)),
        ),
        curve=[],
        nowhere_pods=lost,
        limits_reached=_reached(instance, checked),
        unmodelled=checked.unmodelled,
        effort=list(solution.effort),
        stopped=list(solution.stopped),
        offers=_counted(offers[node.offer].name for node in checked.nodes),
        placement=_placement(instance, checked) if placements else None,
        existing=_on_existing(instance, checked) if placements else None,
    )


def _gap(cost: float, bound: float) -> float:
    return round(cost / bound - 1.0, 6) + 0.0 if bound > 0 else 0.0  # never a negative zero


def _money(amount: float) -> float:
    """Without the noise of adding up."""
    return round(amount, 9)


def _lines(instance: Instance, checked: Checked) -> list[MixLine]:
    existing = len(instance.snapshot.nodes)
    offers = instance.offers
    total = sum(offers[node.offer].price for node in checked.nodes)
    pods_on = np.bincount(checked.node[checked.node >= existing] - existing, minlength=len(checked.nodes))
    taken = _taken(instance, checked)
    groups: dict[tuple[str, str], list[int]] = {}
    for i, node in enumerate(checked.nodes):
        offer = offers[node.offer]
        groups.setdefault((offer.type, offer.capacity_type), []).append(i)
    lines = []
    for (type_, capacity_type), members in groups.items():
        cost = sum(offers[checked.nodes[i].offer].price for i in members)
        room = np.sum([_room(instance, checked.nodes[i].offer) for i in members], axis=0)
        use = taken[members].sum(axis=0)
        shares = {
            name: round(float(use[r] / room[r]), 4)
            for r, name in enumerate((CPU, MEMORY, PODS))
            if room[r] > 0 and use[r] > 0
        }
        lines.append(
            MixLine(
                type=type_,
                capacity_type=capacity_type,
                nodes=len(members),
                pods=int(pods_on[members].sum()),
                utilization=shares,
                price=_money(cost / len(members)),
                cost=_money(cost),
                share=round(cost / total, 6) if total else 0.0,
                zones=_counted(offers[checked.nodes[i].offer].zone for i in members),
                groups=_counted(offers[checked.nodes[i].offer].group for i in members),
                arch=arch_of(offers[checked.nodes[members[0]].offer].template.node),
            )
        )
    return sorted(lines, key=lambda line: (-line.cost, line.type, line.capacity_type))


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(name for name in names if name).items()))


def _taken(instance: Instance, checked: Checked) -> np.ndarray:
    """float64[new nodes, (cpu, memory, pods)] of the pods on them, those that come with the node included."""
    existing = len(instance.snapshot.nodes)
    amounts = np.array(
        [[pod.occupancy.get(CPU, 0), pod.occupancy.get(MEMORY, 0), 1] for pod in instance.classes], dtype=np.float64
    ).reshape(-1, 3)
    found = np.zeros((len(checked.nodes), 3))
    on_new = np.flatnonzero(checked.node >= existing)
    np.add.at(found, checked.node[on_new] - existing, amounts[instance.class_of[on_new]])
    for i, node in enumerate(checked.nodes):
        found[i] += _room(instance, node.offer) - instance.free_of_offer(node.offer)
    return found


def _room(instance: Instance, offer: int) -> np.ndarray:
    """float64[(cpu, memory, pods)] allocatable."""
    return instance.allocatable_of_offer(offer)


def _reached(instance: Instance, checked: Checked) -> list[str]:
    """Offers with a limit of which nothing is left, where that matters."""
    used = Counter(node.offer for node in checked.nodes)
    return [
        offer.name
        for i, offer in enumerate(instance.offers)
        if offer.most is not None and offer.most and used[i] >= offer.most
    ]


def relaxed(instance: Instance) -> list[str]:
    """What some pod asks for and the bound does not see, with the number of pods."""
    counts: Counter[str] = Counter()
    by_class = np.bincount(instance.class_of, minlength=len(instance.classes)).tolist()
    for pod, count in zip(instance.classes, by_class, strict=True):
        if not count:
            continue
        try:
            keys = {each.row.key for each in hard_constraints(pod, instance.ctx)}
        except SelectorError:
            keys = set()
        for key in sorted(keys):
            counts[f"spread over {_word(key)}"] += count
        for key in sorted({term.topology_key for term in pod.affinity}):
            counts[f"affinity within {_word(key)}"] += count
        for key in sorted({term.topology_key for term in pod.anti_affinity} - {HOSTNAME}):
            counts[f"anti-affinity within {_word(key)}"] += count
        if pod.has_claims:
            counts["volumes (limits of nodes, zones of unbound claims)"] += count
        if pod.claims:
            counts["devices (dynamic resource allocation)"] += count
    return [f"{what}: {count:,} pods" for what, count in counts.items()]


def _word(key: str) -> str:
    return {"topology.kubernetes.io/zone": "zone", "topology.kubernetes.io/region": "region", HOSTNAME: "node"}.get(
        key, key
    )


def _placement(instance: Instance, checked: Checked) -> list[PlannedNode]:
    existing = len(instance.snapshot.nodes)
    pods: list[list[str]] = [[] for _ in checked.nodes]
    for i, at in enumerate(checked.node.tolist()):
        if at >= existing:
            pods[at - existing].append(instance.records[i].key)
    return [
        PlannedNode(
            name=node.name,
            offer=instance.offers[node.offer].name,
            type=instance.offers[node.offer].type,
            zone=instance.offers[node.offer].zone,
            price=instance.offers[node.offer].price,
            pods=on,
        )
        for node, on in zip(checked.nodes, pods, strict=True)
    ]


def _on_existing(instance: Instance, checked: Checked) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    names = instance.snapshot.nodes
    for i, at in enumerate(checked.node.tolist()):
        if 0 <= at < len(names):
            found.setdefault(names[at], []).append(instance.records[i].key)
    return found
