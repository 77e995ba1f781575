"""Node groups that Cluster API describes in a dump."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kscale.capacity.groups import machine_groups
from kscale.objects.api.core import Node
from kscale.objects.decode import from_dict
from kscale.objects.kinds import find_kind
from unit.cli.support import kscale as run

_G = "cluster.x-k8s.io"
_SIZE = f"{_G}/cluster-api-autoscaler-node-group"
_SIZES = {f"{_SIZE}-min-size": "1", f"{_SIZE}-max-size": "5"}
_CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
_SIZED = {f"{_CAPACITY}cpu": "4", f"{_CAPACITY}memory": "16Gi"}


def _data(
    name: str, notes: dict[str, str], replicas: int | None = 2, kind: str = "MachineDeployment"
) -> dict[str, Any]:
    return {
        "apiVersion": f"{_G}/v1beta1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "fleet", "uid": name, "annotations": notes},
        "spec": {"replicas": replicas, "template": {"spec": {"clusterName": "c"}}},
    }


def _machines(*items: dict[str, Any]) -> list[Any]:
    result = []
    for item in items:
        kind = find_kind(item["apiVersion"], item["kind"])
        assert kind is not None
        result.append(from_dict(item, kind))
    return result


def _node_data(name: str, owner: str, kind: str = "MachineSet") -> dict[str, Any]:
    notes = {f"{_G}/owner-kind": kind, f"{_G}/owner-name": owner, f"{_G}/cluster-namespace": "fleet"}
    amounts = {"cpu": "2", "memory": "8Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-05-01T00:00:00Z"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": notes},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [ready]},
    }


def test_a_deployment_its_set_and_its_nodes_are_one_group() -> None:
    owned = _data("md-abc", _SIZES, kind="MachineSet")
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": f"{_G}/v1beta1", "kind": "MachineDeployment", "name": "md", "uid": "md", "controller": True}
    ]
    nodes = [from_dict(_node_data(name, "md-abc"), Node) for name in ("n1", "n2")]
    result = machine_groups(_machines(_data("md", _SIZES, 3), owned, _data("plain", {})), nodes)
    assert result.warnings == []
    (group,) = result.groups
    assert (group.id, group.min_size, group.max_size, group.target_size) == ("MachineDeployment/fleet/md", 1, 5, 3)
    assert (group.nodes, group.template) == (["n1", "n2"], None)


def _set(name: str, revision: str | None, desired: int = 0, there: int = 0, of: str = "md") -> dict[str, Any]:
    """A set as Cluster API labels it; its deployment's revision is an annotation."""
    notes = {} if revision is None else {"machinedeployment.clusters.x-k8s.io/revision": revision}
    data = _data(name, notes, desired, "MachineSet")
    data["metadata"]["labels"] = {f"{_G}/deployment-name": of}
    data["metadata"]["ownerReferences"] = [
        {"apiVersion": f"{_G}/v1beta1", "kind": "MachineDeployment", "name": of, "uid": of, "controller": True}
    ]
    return {**data, "status": {"replicas": there}}


@pytest.mark.parametrize(
    ("sets", "rolling"),
    [
        ([], False),
        ([_set("new", "1", 3, 3)], False),
        ([_set("old", "1"), _set("new", "2", 3, 3)], False),
        ([_set("old", "1", 1, 1), _set("new", "2", 2, 2)], True),
        ([_set("old", "1", 0, 1), _set("new", "2", 3, 2)], True),
        ([_set("old", "1", 1, 0), _set("new", "2", 3, 2)], True),
        ([_set("old", "9", 1, 1), _set("new", "10", 3, 3)], True),
        ([_set("other", "1", 1, 1, of="neighbour"), _set("new", "2", 3, 3)], False),
        ([_set("unnumbered", None, 1, 1)], True),
        ([_set("unnumbered", None, 1, 1), _set("new", "1", 1, 1)], True),
        ([_set("unnumbered", None), _set("new", "1", 1, 1)], False),
        ([_set("other text", "01", 1, 1), _set("new", "1", 1, 1)], True),
        ([_set("below", "-1", 1, 1)], True),
    ],
)
def test_a_deployment_is_rolling_out_while_older_sets_have_machines(sets: list[dict[str, Any]], rolling: bool) -> None:
    result = machine_groups(_machines(_data("md", _SIZES, 3), *sets), [])
    assert [(group.rolling_out, group.rolling_out_error) for group in result.groups] == [(rolling, None)]
    assert result.warnings == []


def test_only_deployments_roll_out() -> None:
    single = _data("md", _SIZES, 3, "MachineSet")
    (group,) = machine_groups(_machines(single, _set("old", "1", 1, 1), _set("new", "2", 1, 1)), []).groups
    assert (group.id, group.rolling_out) == ("MachineSet/fleet/md", False)


def test_sets_count_that_may_be_no_groups_themselves() -> None:
    objects = _machines(_data("md", _SIZES, 3), _set("old", "1", 1, 1), _set("new", "2", 2, 2))
    (group,) = machine_groups(objects, [], include=lambda owner: owner.name == "md").groups
    assert group.rolling_out
    assert machine_groups(objects, [], include=lambda owner: owner.name != "md").groups == []


def test_invalid_revision_is_reported() -> None:
    result = machine_groups(_machines(_data("md", _SIZES, 3), _set("odd", "one", 1, 1), _set("new", "2", 2, 2)), [])
    (group,) = result.groups
    error = "failed to parse current revision on MachineSet fleet/odd: 'one' is no int64"
    assert (group.rolling_out, group.rolling_out_error) == (False, error)
    message = "Failed to determine rolling out status for MachineDeployment MachineDeployment/fleet/md"
    assert result.warnings == [f"{message}: {error}"]


def test_annotations_describe_the_new_node() -> None:
    notes = {
        **_SIZES,
        **_SIZED,
        f"{_CAPACITY}gpu-type": "nvidia.com/gpu",
        f"{_CAPACITY}gpu-count": "2",
        f"{_CAPACITY}ephemeral-disk": "100Gi",
        f"{_CAPACITY}maxPods": "200",
        f"{_CAPACITY}labels": "pool=gpu,kubernetes.io/arch=arm64",
        f"{_CAPACITY}taints": "gpu=yes:NoSchedule,spot:NoExecute",
        f"{_CAPACITY}csi-driver": "ebs=25",
        f"{_G}/autoscaling-options-scaledownunneededtime": "5m",
        f"{_G}/autoscaling-options-scaledownutilizationthreshold": "much",
    }
    result = machine_groups(_machines(_data("gpu", notes, 0, "MachinePool")), [])
    (group,) = result.groups
    assert group.template is not None
    node = group.template.node
    assert {name: str(amount) for name, amount in (node.status.allocatable or {}).items()} == {
        "cpu": "4",
        "memory": "16Gi",
        "ephemeral-storage": "100Gi",
        "nvidia.com/gpu": "2",
        "pods": "200",
    }
    assert node.metadata.labels == {"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64", "pool": "gpu"}
    assert [(taint.key, taint.value, taint.effect) for taint in node.spec.taints] == [
        ("gpu", "yes", "NoSchedule"),
        ("spot", "", "NoExecute"),
    ]
    assert group.options is not None
    assert (group.options.scale_down_unneeded_time, group.options.scale_down_utilization_threshold) == (300, None)
    option = f"{_G}/autoscaling-options-scaledownutilizationthreshold"
    assert result.warnings == [
        f"MachinePool/fleet/gpu: not looked at: {_CAPACITY}csi-driver",
        f"MachinePool/fleet/gpu: annotation {option}: 'much' cannot be read and does not count",
    ]


_LEAST, _MOST = _SIZES


@pytest.mark.parametrize(
    ("notes", "replicas", "message"),
    [
        ({_LEAST: "1"}, 1, "its maximum size 0 is below its minimum 1"),
        ({**_SIZES, _LEAST: "few"}, 1, "invalid min annotation"),
        ({**_SIZES, _MOST: "-1"}, 1, "invalid max annotation"),
        ({**_SIZES, _LEAST: "9"}, 1, "its maximum size 5 is below its minimum 9"),
        ({**_SIZES, f"{_G}/paused": ""}, 1, f"annotation {_G}/paused"),
        (_SIZES, 0, "no machines, and nothing says what one would be"),
        ({**_SIZES, **_SIZED, f"{_CAPACITY}cpu": "lots"}, 0, "'lots' is no amount"),
        ({**_SIZES, **_SIZED, f"{_CAPACITY}memory": "-1"}, 0, "'-1' is negative"),
        ({**_SIZES, **_SIZED, f"{_CAPACITY}maxPods": "2k"}, 0, "'2k' is no amount"),
        ({**_SIZES, **_SIZED, f"{_CAPACITY}cpu": "0"}, 0, "no machines, and nothing says what one would be"),
        ({_LEAST: "0", _MOST: "0"}, 1, ""),
        ({}, 1, ""),
    ],
)
def test_owners_that_cannot_be_scaled(notes: dict[str, str], replicas: int, message: str) -> None:
    result = machine_groups(_machines(_data("md", notes, replicas)), [])
    assert result.groups == []
    assert len(result.warnings) == bool(message)
    assert all(
        text.startswith("MachineDeployment/fleet/md cannot be scaled: ") and message in text for text in result.warnings
    )


def test_machine_labels_and_taints_propagate_to_nodes() -> None:
    """``TestGetManagedNodeLabelsFromLabels`` of upstream, among others."""
    data = _data(
        "md",
        {
            **_SIZES,
            **_SIZED,
            f"{_CAPACITY}labels": "node.cluster.x-k8s.io/size=big, pool=x,odd",
            f"{_CAPACITY}taints": "of=annotation:NoSchedule,alone,a=b=c:NoSchedule,x=y:z:NoSchedule, sp=a:NoSchedule",
        },
        0,
    )
    data["spec"]["template"]["spec"] |= {
        "metadata": {
            "labels": {
                "node-role.kubernetes.io/worker": "",
                "sub.node-role.kubernetes.io/worker": "",
                "node-restriction.kubernetes.io/zone": "a",
                "sub.node-restriction.kubernetes.io/zone": "b",
                "node.cluster.x-k8s.io/size": "small",
                "sub.node.cluster.x-k8s.io": "c",
                "pool": "machine",
            }
        },
        "taints": [
            {"key": "of", "value": "machine", "effect": "NoSchedule", "propagation": "Always"},
            {"key": "of", "value": "machine", "effect": "NoExecute", "propagation": "OnInitialization"},
        ],
    }
    result = machine_groups(_machines(data), [])
    node = result.groups[0].node_template.node
    assert node.metadata.labels == {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node-role.kubernetes.io/worker": "",
        "node-restriction.kubernetes.io/zone": "a",
        "sub.node-restriction.kubernetes.io/zone": "b",
        "node.cluster.x-k8s.io/size": "big",
        "sub.node.cluster.x-k8s.io": "c",
        " pool": "x",
    }
    assert [(taint.key, taint.value, taint.effect) for taint in node.spec.taints] == [
        ("of", "annotation", "NoSchedule"),
        ("of", "machine", "NoExecute"),
        ("alone", "", ""),
    ]
    annotations = [
        "labels: 'odd' is no label",
        *(f"taints: {text!r} is no taint" for text in ("a=b=c:NoSchedule", "x=y:z:NoSchedule", " sp=a:NoSchedule")),
    ]
    assert result.warnings == [
        f"MachineDeployment/fleet/md: annotation {_CAPACITY}{each} and does not count" for each in annotations
    ]


def test_missing_minimum_size_is_zero() -> None:
    (group,) = machine_groups(_machines(_data("md", {_MOST: "5"}, 1)), []).groups
    assert (group.min_size, group.max_size) == (0, 5)


def test_on_the_command_line_they_need_no_groups_file(tmp_path: Path) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "shop", "creationTimestamp": "2026-05-01T00:00:00Z"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]},
        "status": {"phase": "Pending", "conditions": [condition]},
    }
    items = [_node_data("n1", "small", "MachineDeployment"), pod]
    items += [_data("small", _SIZES, 1), _data("large", {**_SIZES, **_SIZED}, 0), _data("odd", {_LEAST: "5"})]
    (tmp_path / "dump.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    got = run("scale-up", "-f", tmp_path / "dump.json", "--now", "2026-05-04T12:00:00Z")
    assert got.stdout.startswith("Scale up MachineDeployment/fleet/large 0 -> 1 (1 node) for 1 of 1 pod.")
    assert "node groups of Cluster API in the input: 2" in got.stderr
    assert "MachineDeployment/fleet/odd cannot be scaled: its maximum size 0 is below its minimum 5" in got.stderr
    assert "is not known" not in got.stdout


@pytest.mark.parametrize("text", ["0.5 ", "٠.5", "1__0", "0x1"])
def test_an_option_that_gos_parser_refuses_does_not_count(text: str) -> None:
    key = f"{_G}/autoscaling-options-scaledownutilizationthreshold"
    notes = {**_SIZES, **_SIZED, key: text}
    result = machine_groups(_machines(_data("a", notes, 0, "MachinePool")), [])
    assert [group.options for group in result.groups] == [None]
    assert f"MachinePool/fleet/a: annotation {key}: {text!r} cannot be read and does not count" in result.warnings
