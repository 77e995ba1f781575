"""Kind ``quota``: everything is compared."""

from __future__ import annotations

from typing import Any

import golden_ca
from kscale import ca
from kscale.ca import quota
from kscale.objects.api.cluster_autoscaler import CapacityQuota
from kscale.objects.api.core import Node
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import Groups, NodeGroup


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    if inputs.get("op") == "cap":
        capped = quota.cap_by_max_nodes_total(
            inputs["new_nodes"],
            inputs["current_nodes"],
            ca.AutoscalingOptions(max_nodes_total=inputs["max_nodes_total"]),
        )
        got = {
            "new_nodes": capped.new_nodes,
            "error": golden_ca.error_of(capped.error),
            "events": golden_ca.sorted_events(capped.events),
        }
        assert got == want
        return
    groups = Groups(
        [
            NodeGroup(
                id=group["id"],
                nodes=group.get("nodes") or [],
                template=golden_ca.template(group.get("template")),
                template_error=group.get("template_error"),
            )
            for group in inputs.get("groups") or []
        ],
        inputs.get("node_group_errors"),
    )
    try:
        tracker = _tracker(inputs, groups)
    except ca.AutoscalerError as error:
        assert {"error": error.message} == want
        return
    got = {"error": None, "limits_left": _limits_left(tracker)}
    got["steps"] = [_step(step, tracker, groups) for step in inputs.get("steps") or []]
    assert got == want


def _tracker(inputs: dict[str, Any], groups: Groups) -> quota.QuotaTracker:
    nodes = [from_dict(node, Node) for node in inputs.get("nodes") or []]
    limiter = ca.ResourceLimiter(min=inputs.get("min_limits") or {}, max=inputs.get("limits") or {})
    if inputs.get("tracker") == "min":
        return quota.QuotaTracker.minimum(
            [quota.build_cluster_minimum_quota(limiter)], nodes, groups, gpu_label=golden_ca.GPU_LABEL
        )
    objects = [from_dict(item, CapacityQuota) for item in inputs.get("capacity_quotas") or []]
    quotas, _ = quota.read_capacity_quotas(objects)
    return quota.QuotaTracker.maximum(
        [quota.build_cluster_maximum_quota(limiter), *quotas], nodes, groups, gpu_label=golden_ca.GPU_LABEL
    )


def _limits_left(tracker: quota.QuotaTracker) -> list[dict[str, Any]]:
    return [{"id": name, "left": dict(limits)} for name, limits in tracker.limits_left.items()]


def _step(step: dict[str, Any], tracker: quota.QuotaTracker, groups: Groups) -> dict[str, Any]:
    group = groups.get(step["group"]) if step.get("group") is not None else None
    ask = {"check": tracker.check, "consume": tracker.consume}[step["op"]]
    try:
        result = ask(group, from_dict(step["node"], Node), step["delta"])
    except ca.AutoscalerError as error:
        return {"error": error.message, "limits_left": _limits_left(tracker)}
    exceeded = [{"id": e.id, "resources": e.resources, "message": e.message} for e in result.exceeded]
    return {"error": None, "allowed": result.allowed, "exceeded": exceeded, "limits_left": _limits_left(tracker)}
