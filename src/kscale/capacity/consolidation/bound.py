"""A lower bound of the cost of any nodes for the pods that run today."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from kscale._native import _engine
from kscale.capacity.consolidation.moves import Moves, Offered
from kscale.capacity.losses import is_lost_with_node
from kscale.capacity.mix import MixOptions, Offer, bound_cost_of_nodes
from kscale.objects.api.core import Node, Pod
from kscale.objects.node_selectors import HOSTNAME, REGION, ZONE
from kscale.objects.nodegroup import NodeTemplate
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = ["bound_cost", "list_misplaced_pods"]

_MOST_KINDS = 300
"""The bound is left out for more kinds of existing nodes."""


def list_misplaced_pods(moves: Moves) -> set[int]:
    """Return the positions of the pods that could not be scheduled to the node that they run on today.

    A node may have changed since, or be overcommitted. A lower bound of the cost must leave these pods out.
    """
    engine, misplaced = moves.engine, set()
    for node, pods in enumerate(moves.pods_on):
        for pod in pods:
            engine.unplace(moves.class_of[pod], node)
            if engine.check(moves.class_of[pod], node) != _engine.FITS:
                misplaced.add(pod)
            engine.place(moves.class_of[pod], node)
    return misplaced


def bound_cost(
    cluster: Cluster,
    snapshot: Snapshot,
    offers: Sequence[Offered],
    prices: Sequence[float | None],
    pods: Sequence[Pod],
    *,
    effort: int,
) -> tuple[float | None, str]:
    """Return (lower bound of the $/h of all nodes on which ``pods`` can run, ""), or (None, why there is none).

    The nodes may be new ones of the offers, and existing ones: as many of each kind as there are. Every path ends at
    such nodes. Constraints that keep pods and nodes where they are (budgets, drain rules, group sizes) only make a
    cluster more expensive, so the bound ignores them.

    ``prices``: $/h of each node of ``snapshot``. ``pods``: running pods of ``snapshot``, as they wait for a node.
    ``effort`` 0: no bound.
    """
    if not effort:
        return None, "not computed"
    if any(price is None for price in prices):
        return None, "some nodes have no known price"
    existing = _build_existing_offers(snapshot, [price or 0.0 for price in prices])
    if len(existing) > _MOST_KINDS:
        return None, f"there are {len(existing):,} kinds of nodes"
    new = [
        Offer(name=f"new {offer.group}", template=offer.template, price=offer.price, group=offer.group)
        for offer in offers
    ]
    anew = Cluster(item for item in cluster if not isinstance(item, (Node, Pod)))
    anew.apply_pods(pods)
    empty = anew.snapshot(dra=True)
    options = MixOptions(bound_effort=effort, existing=False)
    return bound_cost_of_nodes(empty, [*new, *existing], list(empty.pending), options), ""


def _build_existing_offers(snapshot: Snapshot, prices: Sequence[float]) -> list[Offer]:
    """Build one offer for each group of interchangeable nodes, with their number as the maximum.

    They are interchangeable if price, allocatable, taints, labels that pods use, and the classes of pods that end with
    the node are equal. The template is the first of them, not cordoned. ``prices``: $/h of each node of the snapshot.
    """
    keys = _list_label_keys(snapshot)
    own: dict[int, list[Pod]] = {}
    for position, node in enumerate(snapshot.placed_node.tolist()):
        pod = snapshot.placed[position].pod
        if is_lost_with_node(pod):
            own.setdefault(node, []).append(pod)
    kinds: dict[tuple[object, ...], list[int]] = {}
    for n, node in enumerate(snapshot.columns.objects):
        labels = node.metadata.labels or {}
        kind = (
            prices[n],
            tuple(sorted((name, str(amount)) for name, amount in (node.status.allocatable or {}).items())),
            tuple(sorted((key, value) for key, value in labels.items() if key in keys)),
            tuple(sorted((taint.key, taint.value, taint.effect) for taint in node.spec.taints)),
            tuple(sorted(snapshot.interner.classify(pod, placed=True).index for pod in own.get(n, ()))),
        )
        kinds.setdefault(kind, []).append(n)
    offers = []
    for number, nodes in enumerate(kinds.values()):
        node = snapshot.columns.objects[nodes[0]]
        name = f"existing-{number}"
        labels = {**(node.metadata.labels or {}), HOSTNAME: name}
        template = replace(
            node,
            metadata=replace(node.metadata, name=name, uid=name, labels=labels),
            spec=replace(node.spec, unschedulable=False),
        )
        pods = [
            replace(pod, metadata=replace(pod.metadata, name=f"{name}-{i}", uid=f"{name}-{i}"))
            for i, pod in enumerate(own.get(nodes[0], ()))
        ]
        offers.append(
            Offer(
                name=name,
                template=NodeTemplate(node=template, pods=pods),
                price=prices[nodes[0]],
                most=len(nodes),
            )
        )
    return offers


def _list_label_keys(snapshot: Snapshot) -> set[str]:
    """Return the node label keys that constraints of placed pods name, zone and region, without the host name."""
    keys: set[str] = set()
    for pod in snapshot.placed_classes:
        keys.update(pod.node_selector or ())
        if pod.node_affinity is not None:
            for term in pod.node_affinity.node_selector_terms:
                keys.update(requirement.key for requirement in term.match_expressions)
        keys.update(term.topology_key for term in (*pod.affinity, *pod.anti_affinity))
        keys.update(constraint.topology_key for constraint in pod.spread or ())
    keys.update((ZONE, REGION))
    return keys - {HOSTNAME}
