"""Kind ``scale-down``: everything is compared."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import kscale
from golden_support import world
from kscale import ca
from kscale.effects import SECOND, Moment, to_text
from kscale.objects.api.core import Node, Pod
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import Groups, NodeGroup, NodeGroupOptions, NodeTemplate
from kscale.objects.times import to_datetime

_GPU_LABEL = "TestGPULabel/accelerator"
_NAMES = {"blocking_system_pod_disruption_timeout": "blocking_system_pod_distruption_timeout"}


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    values = _durations(inputs.get("options") or {})
    limits = ca.ResourceLimiter(min=values.pop("min_resources", {}), max=values.pop("max_resources", {}))
    options = ca.AutoscalingOptions(**values)
    state = ca.LoopState()
    objects: list[dict[str, Any]] = []
    listed: list[dict[str, Any]] = []
    got = []
    for loop in inputs["loops"]:
        objects = _changed(objects, loop)
        if loop.get("groups") is not None:
            listed = loop["groups"]
        upcoming = loop.get("upcoming_nodes") or []
        late = [item for item in objects if item["kind"] == "Node" and item["metadata"]["name"] in upcoming]
        if loop.get("clean_up_unneeded"):
            state = ca.clear_unneeded_nodes(state)
        for event in loop.get("events") or []:
            state = ca.register_group_change(state, event["type"], event["group"], to_datetime(event["time"]))
        deletions = loop.get("deletions_in_progress") or {}
        plan = kscale.scale_down(
            world([item for item in objects if item not in late] + late, {}),
            Groups(
                [_group(each) for each in listed],
                dict.fromkeys(loop.get("node_group_errors") or [], "node group unavailable"),
            ),
            now=to_datetime(loop["now"]),
            options=options,
            state=ca.LoopState.from_json(state.to_json()),
            inputs=ca.ScaleDownInputs(
                limits=limits,
                deleting=[ca.NodeInGroup(**item) for item in deletions.get("empty") or []],
                draining=[ca.NodeInGroup(**item) for item in deletions.get("drained") or []],
                recent_evictions=[from_dict(pod, Pod) for pod in loop.get("recent_evictions") or []],
                upcoming=upcoming,
                disabled=bool(loop.get("in_cooldown")),
                gpu_label=_GPU_LABEL,
            ),
        )
        state = plan.state
        got.append(_answer(plan))
    for mine, theirs in zip(got, want["loops"], strict=True):
        assert mine == theirs


def _durations(inputs: dict[str, Any]) -> dict[str, Any]:
    result = {}
    for name, value in inputs.items():
        if value is None:
            continue
        if name.endswith("_s"):
            name, value = name.removesuffix("_s"), timedelta(seconds=value)
        result[_NAMES.get(name, name)] = value
    return result


def _changed(objects: list[dict[str, Any]], loop: dict[str, Any]) -> list[dict[str, Any]]:
    if loop.get("objects") is not None:
        return loop["objects"]
    result = {_identity(item["kind"], item["metadata"]): item for item in objects}
    for item in loop.get("delete") or []:
        result.pop(_identity(item["kind"], item), None)
    for item in loop.get("apply") or []:
        result[_identity(item["kind"], item["metadata"])] = item
    return list(result.values())


def _identity(kind: str, names: dict[str, Any]) -> tuple[str, str, str]:
    return kind, names.get("namespace") or "", names["name"]


def _group(inputs: dict[str, Any]) -> NodeGroup:
    own = inputs.get("options")
    template = inputs.get("template")
    nodes = inputs.get("nodes") or []
    return NodeGroup(
        id=inputs["id"],
        min_size=inputs["min"],
        max_size=inputs["max"],
        target_size=inputs["target"],
        target_size_error=inputs.get("target_error"),
        nodes=nodes,
        instances=nodes if inputs.get("instances") is None else inputs["instances"],
        template=None if template is None else NodeTemplate(node=from_dict(template, Node)),
        options=None if own is None else _own_options(own),
        options_error=inputs.get("options_error"),
    )


def _own_options(inputs: dict[str, Any]) -> NodeGroupOptions:
    """What differs for the group; durations are seconds here and there."""
    names = {"ignore_daemonsets_utilization": "ignore_daemon_sets_utilization"}
    fields = {name.removesuffix("_s"): value for name, value in inputs.items() if value is not None}
    return NodeGroupOptions(**{names.get(name, name): value for name, value in fields.items()})


def _answer(plan: ca.ScaleDownPlan) -> dict[str, Any]:
    used = {name: result.utilization for name, result in plan.eligibility.items() if result.utilization is not None}
    was_chosen = plan.chosen is not None
    return {
        "candidates": plan.candidates,
        "unneeded": [item.name for item in plan.unneeded],
        "unneeded_since": {name: _time(since) for name, since in plan.unneeded_since.items()},
        "removal_threshold_s": {item.name: item.threshold / SECOND for item in plan.unneeded},
        "unneeded_pods": {
            name: {
                "pods_to_reschedule": item.pods_to_reschedule,
                "daemonset_pods": item.daemon_set_pods,
                "on_completion_pods": item.on_completion_pods,
            }
            for name, item in plan.removable.items()
        },
        "risky": [item.name for item in plan.unneeded if item.risky],
        "utilization": {name: _number(result.utilization) for name, result in used.items()},
        "utilization_resource": {name: result.resource_name for name, result in used.items()},
        "unremovable_after_update": _unremovable(plan.unremovable_after_update),
        "unremovable": _unremovable(plan.unremovable),
        "nodes_to_delete": plan.chosen and {"empty": plan.chosen.empty, "drain": plan.chosen.drain},
        "buckets": {"empty": _buckets(plan.delete.empty), "drain": _buckets(plan.delete.drain)} if was_chosen else None,
        "empty_to_delete": plan.delete_empty,
        "drain_to_delete": [{"node": name, "pods": plan.removable[name].pods_to_reschedule} for name in plan.drain],
        "hints": plan.state.scale_down.hints,
        "last_index": plan.state.cursor,
        "remaining_pdbs": [{"pdb": pdb.key, "disruptions_allowed": pdb.disruptions_allowed} for pdb in plan.pdbs.pdbs],
    }


def _time(moment: Moment) -> str:
    text = (to_text(moment, fraction=True) or "").removesuffix("Z")
    return (text.rstrip("0") if "." in text else text) + "Z"


def _number(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else ("+Inf" if value > 0 else "-Inf")


def _unremovable(nodes: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "node": name,
            "reason": item.reason,
            "blocking_pod": item.blocking_pod and {"pod": item.blocking_pod.pod, "reason": item.blocking_pod.reason},
        }
        for name, item in nodes.items()
    ]


def _buckets(buckets: list[ca.GroupNodes]) -> list[dict[str, Any]]:
    return [{"group": each.group, "nodes": each.nodes, "batch_size": each.batch_size} for each in buckets]
