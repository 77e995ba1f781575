"""Node groups recognised by labels and annotations."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kscale.capacity.groups import recognise_groups
from kscale.effects import SECOND
from kscale.objects.api.core import Node
from kscale.objects.decode import from_dict

EXAMPLE = Path(__file__).parents[3] / "examples" / "cluster.json.gz"
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
NOW = 1767225600  # 2026-01-01T00:00:00Z


def node(name: str, labels=None, annotations=None, *, spec=None, conditions=(READY,)) -> Node:
    return from_dict(
        {
            "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
            "spec": spec or {},
            "status": {"conditions": list(conditions)},
        },
        Node,
    )


@pytest.mark.parametrize(
    ("labels", "annotations", "provider", "group_id"),
    [
        ({"eks.amazonaws.com/nodegroup": "a"}, {}, "EKS", "a"),
        ({"eks.amazonaws.com/nodegroup": "a", "alpha.eksctl.io/nodegroup-name": "b"}, {}, "EKS", "a"),
        ({"alpha.eksctl.io/nodegroup-name": "b"}, {}, "eksctl", "b"),
        ({"cloud.google.com/gke-nodepool": "a"}, {}, "GKE", "a"),
        ({"cloud.google.com/gke-nodepool": "a", "topology.kubernetes.io/zone": "z"}, {}, "GKE", "a/z"),
        ({"kubernetes.azure.com/agentpool": "a", "agentpool": "a"}, {}, "AKS", "a"),
        ({"agentpool": "a"}, {}, "AKS", "a"),
        ({"karpenter.sh/nodepool": "a"}, {}, "Karpenter", "a"),
        ({"karpenter.sh/nodepool": "a", "node.kubernetes.io/instance-type": "m5.large"}, {}, "Karpenter", "a/m5.large"),
        ({"kops.k8s.io/instancegroup": "nodes-a"}, {}, "kOps", "nodes-a"),
        ({"cluster.x-k8s.io/deployment-name": "md-0"}, {}, "Cluster API", "md-0"),
        (
            {},
            {
                "cluster.x-k8s.io/owner-kind": "MachineSet",
                "cluster.x-k8s.io/owner-name": "md-0-abc",
                "cluster.x-k8s.io/cluster-namespace": "prod",
            },
            "Cluster API",
            "MachineSet/prod/md-0-abc",
        ),
        (
            {},
            {"machine.openshift.io/machine": "openshift-machine-api/worker-us-east-1a-x7k2p"},
            "OpenShift",
            "MachineSet/openshift-machine-api/worker-us-east-1a",
        ),
    ],
)
def test_labels_and_annotations_identify_the_provider(labels, annotations, provider: str, group_id: str) -> None:
    result = recognise_groups([node("n1", labels, annotations), node("other")])
    (group,) = result.groups
    assert (group.provider, group.group.id, group.group.nodes, group.group.target_size) == (
        provider,
        group_id,
        ["n1"],
        1,
    )
    assert group.key in {**labels, **annotations}
    assert not group.limits_known
    assert result.others == ["other"]


def test_a_control_plane_is_no_group() -> None:
    plane = {"cluster.x-k8s.io/owner-kind": "KubeadmControlPlane", "cluster.x-k8s.io/owner-name": "cp"}
    assert recognise_groups([node("n1", None, plane)]).others == ["n1"]


def test_one_name_from_two_provisioners_is_two_groups() -> None:
    result = recognise_groups(
        [node("a", {"eks.amazonaws.com/nodegroup": "x"}), node("b", {"karpenter.sh/nodepool": "x"})]
    )
    assert [group.group.id for group in result.groups] == ["EKS/x", "Karpenter/x"]


POOL = {"eks.amazonaws.com/nodegroup": "x"}


@pytest.mark.parametrize(
    "bad",
    [
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}},
        {"spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}},
        {"conditions": []},
        {"conditions": [{"type": "Ready", "status": "Unknown"}]},
        {"conditions": [READY, {"type": "DiskPressure", "status": "True"}]},
        {"conditions": [{**READY, "lastTransitionTime": "2026-01-01T00:59:00Z"}]},
    ],
)
def test_a_good_node_is_the_model(bad) -> None:
    nodes = [node("first", POOL, **bad), node("good", POOL), node("later", POOL)]
    (group,) = recognise_groups(nodes, now=(NOW + 3600) * SECOND).groups
    assert group.group.from_node == "good"
    assert group.group.nodes == ["first", "good", "later"]
    (group,) = recognise_groups(nodes[:1], now=(NOW + 3600) * SECOND).groups
    assert group.group.from_node == "first", "a bad node is better than none"


def test_a_minute_has_to_have_passed() -> None:
    fresh = {**READY, "lastTransitionTime": "2026-01-01T01:00:00Z"}
    nodes = [node("fresh", POOL, conditions=[fresh]), node("old", POOL)]
    for passed, model in ((60, "old"), (61, "fresh")):
        (group,) = recognise_groups(nodes, now=(NOW + 3600 + passed) * SECOND).groups
        assert group.group.from_node == model
    (group,) = recognise_groups(nodes).groups
    assert group.group.from_node == "fresh"


def test_the_bundled_example() -> None:
    items = json.loads(gzip.decompress(EXAMPLE.read_bytes()))["items"]
    nodes = [from_dict(item, Node) for item in items if item["kind"] == "Node"]
    result = recognise_groups(nodes)
    assert not result.others
    sizes = {group.group.id: group.group.target_size for group in result.groups}
    general = {f"general-{zone}": 8 for zone in "abc"}
    assert sizes == {**general, "memory": 5, "spot": 5, "compute": 3, "system": 2, "gpu": 1}
