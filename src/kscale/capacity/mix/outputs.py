"""A plan in the words of autoscalers: entries of a groups file, and a NodePool of Karpenter. kscale's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from kscale.capacity.mix.offers import Offer, offers_of
from kscale.capacity.mix.records import MixPlan
from kscale.errors import InputError
from kscale.objects.base import enc_hook
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.quantity import Quantity
from kscale.objects.requests import CPU, MEMORY
from kscale.scheduling.facts import HOSTNAME

__all__ = ["groups_entries", "node_pool"]

NODE_CLASS = ("karpenter.k8s.aws", "EC2NodeClass", "default")


def groups_entries(plan: MixPlan, offers: Iterable[Offer | NodeGroup]) -> list[dict[str, Any]]:
    """A groups file: for every offer of which the plan has nodes a group without nodes that may grow to so many.
    ``offers``: those that the plan was made of.

    The template says all that is known of a node, its labels and taints and room; pods that come with a node are those
    of DaemonSets, which an autoscaler finds by itself.
    """
    chosen = {offer.name: offer for offer in offers_of(offers)}
    entries = []
    for name, count in _counted(plan, chosen).items():
        offer = chosen[name]
        node: dict[str, Any] = msgspec.to_builtins(offer.template.node, enc_hook=enc_hook)
        metadata, spec, status = node.get("metadata", {}), node.get("spec", {}), node.get("status", {})
        template: dict[str, Any] = {
            "metadata": {
                "labels": {key: value for key, value in (metadata.get("labels") or {}).items() if key != HOSTNAME}
            },
            "status": {key: status[key] for key in ("capacity", "allocatable") if status.get(key)},
        }
        if spec.get("taints"):
            template["spec"] = {"taints": spec["taints"]}
        entries.append({"id": name, "min": 0, "max": count, "target": 0, "price": offer.price, "template": template})
    return entries


def node_pool(
    plan: MixPlan,
    offers: Iterable[Offer | NodeGroup],
    *,
    name: str = "mix",
    node_class: tuple[str, str, str] = NODE_CLASS,
) -> dict[str, Any]:
    """A NodePool (``karpenter.sh/v1``) that allows the plan's types, zones and capacity types, and no more cpu and
    memory than the plan has. ``offers``: those that the plan was made of. ``node_class``: API group, kind and name.
    Raises InputError for a plan without nodes."""
    chosen = {offer.name: offer for offer in offers_of(offers)}
    counts = _counted(plan, chosen)
    if not counts:
        raise InputError("the plan has no new nodes: there is nothing that a NodePool could allow")
    used = [chosen[offer] for offer in counts]
    requirements = [
        ("node.kubernetes.io/instance-type", {offer.type for offer in used}),
        ("karpenter.sh/capacity-type", {offer.capacity_type for offer in used}),
        ("topology.kubernetes.io/zone", {offer.zone for offer in used if offer.zone}),
    ]
    total: dict[str, Quantity] = {}
    for offer, count in zip(used, counts.values(), strict=True):
        amounts = offer.template.node.status.capacity or {}
        for resource in (CPU, MEMORY):
            for _ in range(count if resource in amounts else 0):
                total[resource] = total[resource] + amounts[resource] if resource in total else amounts[resource]
    group, kind, called = node_class
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {
                "spec": {
                    "nodeClassRef": {"group": group, "kind": kind, "name": called},
                    "requirements": [
                        {"key": key, "operator": "In", "values": sorted(values)}
                        for key, values in requirements
                        if values
                    ],
                }
            },
            "limits": {resource: str(amount) for resource, amount in total.items()},
        },
    }


def _counted(plan: MixPlan, offers: dict[str, Offer]) -> Counter[str]:
    """New nodes of each offer. Raises InputError for offers that are not those of the plan."""
    unknown = [name for name in plan.offers if name not in offers]
    if unknown:
        raise InputError(f"the plan has nodes of {unknown[0]}, which is not among the offers")
    return Counter(plan.offers)
