"""New nodes of Auto Scaling groups: tags, instance types, managed node groups and requirements.

The tables are those of upstream's aws_manager_test.go and aws_wrapper_test.go, as data.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kscale.objects.api.core import Taint
from kscale.objects.nodegroup import NodeGroupAutoscalingOptions, NodeGroupOptions
from kscale.world.aws.api import InstanceTypeInfo, Nodegroup
from kscale.world.aws.templates import (
    GPU_LABEL,
    LABEL_TAG,
    OPTIONS_TAG,
    RESOURCES_TAG,
    TAINT_TAG,
    MachineType,
    ManagedNodegroup,
    build_template,
    labels_from_tags,
    machine_type_from,
    managed_nodegroup_from,
    managed_nodegroup_name,
    node_group_options,
    options_from_tags,
    requirements_request,
    resources_from_tags,
    taints_from_tags,
)
from kscale.world.server_data import read_data

C5 = MachineType("c5.xlarge", vcpus=4, memory_mib=8192)


def amounts(resources: Any) -> dict[str, str]:
    return {name: str(amount) for name, amount in resources.items()}


def node_of(tags: dict[str, str], machine: MachineType = C5, **more: Any) -> Any:
    return build_template("test-auto-scaling-group", "us-east-1c", machine, tags, **more).node


def test_labels_come_from_label_tags_and_from_tags_of_eks() -> None:
    tags = {f"{LABEL_TAG}foo": "bar", "eks:nodegroup-name": "bar2", "eks:cluster-name": "bar4", "bar": "baz"}
    assert labels_from_tags(tags) == {"foo": "bar", "nodegroup-name": "bar2", "cluster-name": "bar4"}


@pytest.mark.parametrize(
    ("key", "label"),
    [
        (f"{LABEL_TAG}a/b", "a/b"),
        (LABEL_TAG, None),  # no name
        (f"x{LABEL_TAG}a", "a"),  # upstream splits at the prefix, wherever it stands
        (f"{LABEL_TAG}a{LABEL_TAG}b", "a"),
        ("eks:", None),
        (f"eks:{LABEL_TAG}a", "a"),  # the prefix of labels wins
    ],
)
def test_label_name_is_the_tag_without_its_prefix(key: str, label: str | None) -> None:
    assert labels_from_tags({key: "v"}) == ({} if label is None else {label: "v"})


def test_resources_come_from_tags_whose_values_are_quantities() -> None:
    texts = {
        "cpu": "100m",
        "memory": "100M",
        "ephemeral-storage": "20G",
        "custom-resource": "5",
        "error-resource": "GG",
    }
    result = resources_from_tags({RESOURCES_TAG + name: text for name, text in texts.items()})
    assert amounts(result) == {"cpu": "100m", "memory": "100M", "ephemeral-storage": "20G", "custom-resource": "5"}


def test_taints_come_from_tags_with_an_effect() -> None:
    values = {
        "dedicated": "foo:NoSchedule", "group": "bar:NoExecute", "app": "fizz:PreferNoSchedule",
        "blank": "", "nosplit": "some_value",
    }  # fmt: skip
    tags = {"bar": "baz"} | {TAINT_TAG + key: value for key, value in values.items()}
    assert taints_from_tags(tags) == [
        Taint(key="dedicated", value="foo", effect="NoSchedule"),
        Taint(key="group", value="bar", effect="NoExecute"),
        Taint(key="app", value="fizz", effect="PreferNoSchedule"),
    ]


def test_a_taint_with_more_than_one_colon_is_split_at_the_first() -> None:
    assert taints_from_tags({f"{TAINT_TAG}a": "b:c:NoSchedule"}) == [Taint(key="a", value="b", effect="c:NoSchedule")]


DEFAULTS = NodeGroupAutoscalingOptions(
    scale_down_utilization_threshold=0.1,
    scale_down_gpu_utilization_threshold=0.2,
    scale_down_unneeded_time=timedelta(seconds=1),
    scale_down_unready_time=timedelta(minutes=1),
)
UTILIZATION, GPU, UNNEEDED, UNREADY, DAEMONSETS = (
    "scaledownutilizationthreshold", "scaledowngpuutilizationthreshold", "scaledownunneededtime",
    "scaledownunreadytime", "ignoredaemonsetsutilization",
)  # fmt: skip


@pytest.mark.parametrize(
    ("tags", "expected", "warned"),
    [
        ({}, None, 0),
        (
            {
                UTILIZATION: "not-a-float",
                UNNEEDED: "not-a-duration",
                "ScaleDownUnreadyTime": "",
                DAEMONSETS: "not-a-bool",
            },
            None,
            3,
        ),
        (
            {UTILIZATION: "0.42", UNNEEDED: "1h", DAEMONSETS: "true"},
            NodeGroupOptions(
                scale_down_utilization_threshold=0.42,
                scale_down_unneeded_time=3600.0,
                ignore_daemon_sets_utilization=True,
            ),
            0,
        ),
        (
            {UTILIZATION: "0.42", UNNEEDED: "1h", GPU: "0.7", UNREADY: "25m", DAEMONSETS: "true"},
            NodeGroupOptions(
                scale_down_utilization_threshold=0.42,
                scale_down_gpu_utilization_threshold=0.7,
                scale_down_unneeded_time=3600.0,
                scale_down_unready_time=1500.0,
                ignore_daemon_sets_utilization=True,
            ),
            0,
        ),
        (
            {UTILIZATION: "0.6", GPU: "0.7", UNNEEDED: "1m", UNREADY: "1h", "notyetspecified": "42"},
            NodeGroupOptions(
                scale_down_utilization_threshold=0.6,
                scale_down_gpu_utilization_threshold=0.7,
                scale_down_unneeded_time=60.0,
                scale_down_unready_time=3600.0,
            ),
            0,
        ),
    ],
)
def test_options_of_a_group_come_from_its_tags(
    tags: dict[str, str], expected: NodeGroupOptions | None, warned: int
) -> None:
    warnings: list[str] = []
    options = options_from_tags({OPTIONS_TAG + key: value for key, value in tags.items()})
    result = node_group_options(options, "g", warnings)
    assert result == expected
    assert len(warnings) == warned
    if result is not None:  # what no tag sets is as the flags say
        merged = result.on_top_of(DEFAULTS)
        assert UNREADY in tags or merged.scale_down_unready_time == timedelta(minutes=1)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1e-1", 0.1),
        (".5", 0.5),
        ("+1.", 1.0),
        ("0_1", 1.0),
        ("0__1", None),
        ("1e999", None),
        (" 1", None),
        ("", None),
        ("٣", None),
    ],
)
def test_numbers_in_tags_are_read_as_go_reads_them(text: str, number: float | None) -> None:
    result = node_group_options({UTILIZATION: text}, "g", [])
    assert (None if result is None else result.scale_down_utilization_threshold) == number


@pytest.mark.parametrize("key", [OPTIONS_TAG, f"x{OPTIONS_TAG}a", f"{OPTIONS_TAG}a{OPTIONS_TAG}b"])
def test_other_tags_are_no_options(key: str) -> None:
    assert options_from_tags({key: "1"}) == {}


def test_a_template_has_the_type_s_capacity_and_the_labels_of_the_zone() -> None:
    template = build_template("g", "us-east-1c", MachineType("c4.large", 2, 3840), {})
    node = template.node
    assert node.metadata.labels == {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "c4.large",
        "topology.kubernetes.io/region": "us-east-1",
        "topology.kubernetes.io/zone": "us-east-1c",
        "topology.ebs.csi.aws.com/zone": "us-east-1c",
        "kubernetes.io/hostname": node.name,
    }
    assert amounts(node.status.capacity) == {"pods": "110", "cpu": "2", "nvidia.com/gpu": "0", "memory": "4026531840"}
    assert node.status.allocatable == node.status.capacity
    assert [pod.name for pod in template.pods] == ["kube-proxy-g"]


def test_tags_add_resources_labels_and_taints() -> None:
    node = node_of({
        f"{RESOURCES_TAG}ephemeral-storage": "20",
        f"{RESOURCES_TAG}custom-resource": "5",
        f"{LABEL_TAG}{GPU_LABEL}": "nvidia-tesla-v100",
        f"{TAINT_TAG}nvidia.com/gpu": "present:NoSchedule",
    })  # fmt: skip
    assert amounts(node.status.allocatable) == {
        "pods": "110", "cpu": "4", "nvidia.com/gpu": "0", "memory": str(8192 << 20), "ephemeral-storage": "20",
        "custom-resource": "5",
    }  # fmt: skip
    assert node.metadata.labels[GPU_LABEL] == "nvidia-tesla-v100"
    assert node.spec.taints == [Taint(key="nvidia.com/gpu", value="present", effect="NoSchedule")]


RANGES = {
    "VCpuCount": {"Min": 4, "Max": 8},
    "MemoryMiB": {"Min": 4, "Max": 8},
    "AcceleratorTypes": ["gpu"],
    "AcceleratorManufacturers": ["nvidia"],
    "AcceleratorCount": {"Min": 4, "Max": 8},
}


@pytest.mark.parametrize(
    ("change", "cpu", "memory", "gpus"),
    [
        ({}, "4", str(4 << 20), "4"),
        ({"AcceleratorManufacturers": ["amd"]}, "4", str(4 << 20), "0"),
        ({"AcceleratorTypes": ["fpga"]}, "4", str(4 << 20), "0"),
        ({"AcceleratorCount": None}, "4", str(4 << 20), "0"),
        ({"VCpuCount": {"Max": 2}, "MemoryMiB": None}, "4", str(8192 << 20), "4"),
        ({"MemoryMiB": {"Min": 4096}}, "4", str(4096 << 20), "4"),  # upstream's int32 would be 0
    ],
)
def test_minima_of_requirements_replace_the_type_s_capacity(
    change: dict[str, Any], cpu: str, memory: str, gpus: str
) -> None:
    capacity = amounts(node_of({}, requirements=RANGES | change).status.capacity)
    assert (capacity["cpu"], capacity["memory"], capacity["nvidia.com/gpu"]) == (cpu, memory, gpus)


def test_tags_win_over_requirements() -> None:
    node = node_of({f"{RESOURCES_TAG}cpu": "7"}, requirements=RANGES)
    assert amounts(node.status.capacity)["cpu"] == "7"


def test_only_the_members_that_upstream_knows_are_requested() -> None:
    requirements = RANGES | {"BareMetal": "", "AllowedInstanceTypes": ["m5*"], "InstanceGenerations": ["current"]}
    assert requirements_request(requirements) == RANGES | {"InstanceGenerations": ["current"]}


# -- managed node groups of EKS ----------------------------------------------------------------------------------------

EKS_TAGS = {"eks:nodegroup-name": "nodegroup-1", "eks:cluster-name": "cluster-1"}


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (EKS_TAGS, ("cluster-1", "nodegroup-1")),
        ({"eks:nodegroup-name": "nodegroup-1"}, None),
        ({"eks:nodegroup-name": "nodegroup-1", "eks:cluster-name": ""}, None),
        ({f"{LABEL_TAG}nodegroup-name": "n", f"{LABEL_TAG}cluster-name": "c"}, ("c", "n")),
    ],
)
def test_a_managed_node_group_is_one_with_both_names(tags: dict[str, str], expected: tuple[str, str] | None) -> None:
    assert managed_nodegroup_name(tags) == expected


def test_eks_values_take_precedence_over_group_tags() -> None:
    managed = ManagedNodegroup(
        labels={"labelKey 1": "testValue 1", "labelKey 2": "testValue 2"},
        taints=(Taint(key="key 1", value="v 1", effect="e 1"), Taint(key="key 2", value="v 2", effect="e 2")),
        tags={f"{RESOURCES_TAG}ephemeral-storage": "80Gi"},
    )
    tags = EKS_TAGS | {f"{LABEL_TAG}labelKey 2": "testValue 3", f"{RESOURCES_TAG}ephemeral-storage": "1Gi"}
    node = node_of(tags, managed=managed)
    assert amounts(node.status.capacity)["ephemeral-storage"] == "80Gi"
    assert amounts(node.status.allocatable)["ephemeral-storage"] == "80Gi"
    labels = node.metadata.labels
    assert (labels["nodegroup-name"], labels["cluster-name"]) == ("nodegroup-1", "cluster-1")
    assert (labels["labelKey 1"], labels["labelKey 2"]) == ("testValue 1", "testValue 2")
    assert node.spec.taints == list(managed.taints)


@pytest.mark.parametrize(
    ("members", "labels"),
    [
        (
            {"diskSize": 100, "labels": {"a": "1", "b": "2"}},
            {"diskSize": "100", "a": "1", "b": "2"},
        ),
        ({"labels": None, "taints": None, "tags": None}, {}),
        ({"labels": {}, "taints": [], "tags": {}}, {}),
        ({"labels": {"amiType": "own"}}, {"amiType": "own"}),
    ],
)
def test_labels_of_a_managed_node_group(members: dict[str, Any], labels: dict[str, str]) -> None:
    always = {
        "amiType": "testAmiType", "eks.amazonaws.com/capacityType": "testCapacityType", "k8sVersion": "1.19",
        "eks.amazonaws.com/nodegroup": "testNodegroup",
    }  # fmt: skip
    sent = {
        "nodegroupName": "testNodegroup", "amiType": "testAmiType", "capacityType": "testCapacityType",
        "version": "1.19", **members,
    }  # fmt: skip
    assert managed_nodegroup_from(read_data(sent, Nodegroup)).labels == always | labels


def test_effects_of_taints_of_a_managed_node_group_are_translated() -> None:
    taints = [
        {"key": "a", "value": "1", "effect": "NO_SCHEDULE"},
        {"key": "b", "value": "", "effect": "NO_EXECUTE"},
        {"key": "c", "value": "3", "effect": "PREFER_NO_SCHEDULE"},
        {"key": "without value", "effect": "NO_SCHEDULE"},
    ]
    assert managed_nodegroup_from(read_data({"taints": taints}, Nodegroup)).taints == (
        Taint(key="a", value="1", effect="NoSchedule"),
        Taint(key="b", value="", effect="NoExecute"),
        Taint(key="c", value="3", effect="PreferNoSchedule"),
    )
    with pytest.raises(ValueError, match="couldn't translate EKS DescribeNodegroup response taint LATER"):
        managed_nodegroup_from(read_data({"taints": [{"key": "a", "value": "1", "effect": "LATER"}]}, Nodegroup))


@pytest.mark.parametrize(
    ("architectures", "expected"),
    [
        (["arm64"], "arm64"),
        (["i386", "x86_64"], "amd64"),
        (["x86_64_mac"], "amd64"),
        (["anything"], "amd64"),
        (["x86_64", "arm64"], "amd64"),
        ([], ""),
    ],
)
def test_the_first_architecture_of_a_type_counts(architectures: list[str], expected: str) -> None:
    info = {
        "InstanceType": "p3.16xlarge",
        "VCpuInfo": {"DefaultVCpus": 64},
        "MemoryInfo": {"SizeInMiB": 499712},
        "GpuInfo": {"Gpus": [{"Count": 4}, {"Count": 4, "Name": "V100"}, {}]},
        "ProcessorInfo": {"SupportedArchitectures": architectures},
    }
    machine = machine_type_from(read_data(info, InstanceTypeInfo))
    assert machine == MachineType("p3.16xlarge", 64, 499712, 8, expected)
