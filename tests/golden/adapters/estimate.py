"""`estimate`: kscale.place for what goes before, kscale.estimate one after the other. Nothing is left out."""

from __future__ import annotations

from typing import Any

import kscale
from golden_support import decoded, profile_of, world
from kscale.ca.estimator import NodeGroupSize
from kscale.objects.api.storage import CSINode
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import NodeTemplate


def expanded(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    pods = []
    for entry in entries:
        if "count" not in entry:
            pods.append(entry)
            continue
        meta = entry["pod"]["metadata"]
        for i in range(entry["count"]):
            named = {**meta, "name": f"{meta['name']}-{i}", "uid": f"{meta.get('uid', '')}-{i}"}
            pods.append({**entry["pod"], "metadata": named})
    return pods


def size_of(group: dict[str, Any] | None) -> NodeGroupSize | None:
    if group is None:
        return None
    return NodeGroupSize(
        id=group.get("id", ""),
        max_size=group.get("max_size", 0),
        target_size=group.get("target_size", 0),
        target_size_error=bool(group.get("target_size_error")),
    )


def options_of(inputs: dict[str, Any]) -> kscale.EstimateOptions:
    similar = [size_of(group) for group in inputs.get("similar_node_groups", [])]
    return kscale.EstimateOptions(
        max_nodes=inputs.get("max_nodes", 0),
        thresholds=tuple(inputs.get("thresholds", ())),
        node_group=size_of(inputs.get("node_group")),
        similar_node_groups=tuple(group for group in similar if group is not None),
        cluster_max_nodes=inputs.get("cluster_max_nodes", 0),
        current_node_count=inputs.get("current_node_count", 0),
        no_context=inputs.get("no_context", False),
        fast_path=inputs.get("fast_path", False),
    )


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    options = inputs.get("options", {})
    snapshot = world(inputs["objects"], options)
    cursor = options.get("cursor", 0)
    profile = profile_of(options)
    for step, expected in zip(inputs["estimates"], want["estimates"], strict=True):
        got: dict[str, Any] = {}
        if "schedule_before" in step:
            before = []
            for pod in expanded(step["schedule_before"]):
                placed = kscale.place(snapshot, [pod], state=kscale.PlaceState(cursor=cursor), profile=profile)
                cursor, snapshot = placed.state.cursor, placed.snapshot_after
                before.append([placed.records[0].key, placed.placed.get(placed.records[0].key)])
            got |= {"before_placement": before, "before_cursor": cursor}
        template = NodeTemplate(
            node=decoded(step["template"]["node"]),
            pods=[decoded(pod) for pod in step["template"].get("pods", [])],
            resource_slices=[decoded(entry) for entry in step["template"].get("resource_slices", [])],
            csi_node=from_dict(step["template"]["csi_node"], CSINode) if step["template"].get("csi_node") else None,
        )
        result = kscale.estimate(
            snapshot,
            expanded(step.get("pods", [])),
            groups=[expanded(group) for group in step["groups"]] if "groups" in step else None,
            template=template,
            options=options_of(step.get("options", {})),
            cursor=cursor,
            profile=profile,
        )
        cursor = result.cursor
        prefix = f"{template.node.metadata.name}-e-"

        def renamed(name: str, prefix: str = prefix, nodes: frozenset[str] = frozenset(snapshot.nodes)) -> str:
            return name if name in nodes else "new-" + name.removeprefix(prefix)

        got |= {
            "groups": result.pod_groups or None,
            "order": result.order or None,
            "node_count": result.node_count,
            "scheduled": result.placed_pods,
            "placement": {pod: renamed(node) for pod, node in result.placed.items()},
            "nodes_with_pods": sorted(renamed(node) for node in result.nodes) or None,
            "nodes_added": result.nodes_added,
            "cursor": cursor,
        }
        for key in sorted({*got, *expected}):
            assert got.get(key) == expected.get(key), key
