"""Kind ``scale-down-budget``: everything is compared."""

from __future__ import annotations

from typing import Any

from kscale import ca
from kscale.objects.api.core import Node, NodeSpec
from kscale.objects.api.meta import ObjectMeta


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    cropped = ca.crop_nodes(
        [ca.NodeInGroup(**item) for item in inputs["empty"]],
        [ca.NodeInGroup(**item) for item in inputs["drain"]],
        [_group(group, inputs) for group in inputs["groups"]],
        in_progress=ca.DeletionsInProgress(**inputs.get("in_progress") or {}),
        **inputs.get("options") or {},
    )
    got = {
        part: [{"group": b.group, "nodes": b.nodes, "batch_size": b.batch_size} for b in getattr(cropped, part)]
        for part in ("empty", "drain")
    }
    assert got == want


def _group(group: dict[str, Any], inputs: dict[str, Any]) -> ca.BudgetGroup:
    named = [item["node"] for part in ("empty", "drain") for item in inputs[part] if item["group"] == group["id"]]
    registered = named if group.get("registered") is None else group["registered"]
    upcoming = group.get("upcoming") or []
    instances = group.get("instances")
    if instances is None:
        instances = [*named, *registered, *upcoming]
    nodes = [_node(name) for name in registered] + [_node(name, upcoming=True) for name in upcoming]
    return ca.BudgetGroup(
        id=group["id"],
        atomic=bool(group.get("atomic")),
        target=group.get("target") or 0,
        target_error=group.get("target_error"),
        options_error=group.get("options_error"),
        registered=len(ca.filter_registered_nodes(nodes, instances)),
    )


def _node(name: str, *, upcoming: bool = False) -> Node:
    annotations = {"cluster-autoscaler.k8s.io/upcoming-node": "true"} if upcoming else None
    return Node(metadata=ObjectMeta(name=name, annotations=annotations), spec=NodeSpec(provider_id=name))
