"""From unneeded nodes to nodes to delete."""

from __future__ import annotations

from typing import Any

from builders import GPU_LABEL, N0, group_options, node, span
from kscale import ca
from kscale.ca.scale_down.candidates import build_budget_groups
from kscale.ca.scale_down.plan import NodesToDelete, choose_nodes_to_delete
from kscale.ca.scale_down.unneeded import UnneededNode
from kscale.objects.api.core import Node
from kscale.objects.nodegroup import Groups, NodeGroup


def _unneeded(of_node: Node, **flags: Any) -> UnneededNode:
    return UnneededNode(
        **{"node": of_node, "drain": False, "since": N0 - span(hours=1), "threshold": span(minutes=1), **flags}
    )


def _decide(unneeded: list[UnneededNode], groups: Groups, nodes: list[Node], **more: Any) -> NodesToDelete:
    return choose_nodes_to_delete(
        unneeded, groups=groups, snapshot_nodes=nodes, options=ca.AutoscalingOptions(), now=N0, **more
    )


def test_order_and_reasons() -> None:
    names = ["risky", "drain", "empty", "waiting", "young", "atomic"]
    nodes = {name: node(name, 1000, 10, ready=True) for name in names}
    own = group_options(zero_or_max_node_scaling=True)
    groups = Groups([
        NodeGroup(id="g", target_size=9, nodes=names[:-1]),
        NodeGroup(id="a", target_size=2, nodes=["atomic", "other"], instances=["atomic", "other"], options=own),
    ])  # fmt: skip
    flags: dict[str, dict[str, Any]] = {
        "risky": {"drain": True, "risky": True},
        "drain": {"drain": True},
        "waiting": {"on_completion": True},
        "young": {"since": N0},
    }
    result = _decide(
        [_unneeded(created, **flags.get(name, {})) for name, created in nodes.items()],
        groups,
        [*nodes.values(), node("other", 1, 1)],
    )
    assert result == NodesToDelete(
        empty=["empty"],
        drain=["drain", "risky"],
        unremovable={
            "young": "NotUnneededLongEnough",
            "atomic": "AtomicScaleDownFailed",
            "waiting": "BlockedByOnCompletionPod",
        },
    )


def test_nothing_goes_when_usage_is_unknown() -> None:
    created = node("n", 1000, 10, ready=True)
    gpu = node("gpu", 1000, 10, labels={GPU_LABEL: "k80"})
    groups = Groups([NodeGroup(id="g", target_size=9, nodes=["n"])])
    result = _decide([_unneeded(created)], groups, [created, gpu], gpu_label=GPU_LABEL)
    assert (result.empty, result.unremovable) == ([], {})
    assert result.error is not None
    assert "not belonging to autoscaled node group" in result.error


def test_cluster_wide_minima() -> None:
    nodes = [node(f"n{i}", 2000, 10, ready=True) for i in range(3)]
    groups = Groups([NodeGroup(id="g", target_size=9, nodes=["n0", "n1", "n2"])])
    limits = ca.ResourceLimiter(min={"cpu": 4})
    result = _decide([_unneeded(created) for created in nodes], groups, nodes, limits=limits)
    assert result.empty == ["n0"]
    assert set(result.unremovable.values()) == {"MinimalResourceLimitExceeded"}


def test_budget_reads_sizes_and_options_of_groups() -> None:
    own = group_options(zero_or_max_node_scaling=True)
    upcoming = node("up", 1, 1, annotations={"cluster-autoscaler.k8s.io/upcoming-node": "true"})
    groups = Groups([
        NodeGroup(id="a", target_size=3, instances=["n", "up"], options=own),
        NodeGroup(id="b", options_error="down"),
    ])  # fmt: skip
    result = build_budget_groups(groups, ca.AutoscalingOptions(), [node("n", 1, 1), upcoming])
    assert result == [
        ca.BudgetGroup(id="a", atomic=True, target=3, registered=1),
        ca.BudgetGroup(id="b", options_error="down"),
    ]
