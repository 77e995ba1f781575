"""Auto Scaling groups as a cloud, with a stand-in for the calls to AWS.

The cases are those of upstream's auto_scaling_groups_test.go, aws_cloud_provider_test.go, aws_wrapper_test.go and
managed_nodegroup_cache_test.go, and further ones.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from kscale.errors import InputError
from kscale.objects.api.core import Node, NodeSpec
from kscale.objects.api.meta import ObjectMeta
from kscale.objects.nodegroup import InstanceError, InstanceStatus, NodeGroup, NodeGroupOptions, ProviderError
from kscale.world.aws.api import (
    Activity,
    AutoScalingGroup,
    Image,
    InstanceTypeInfo,
    LaunchConfiguration,
    LaunchTemplateData,
    LaunchTemplateSpecification,
    Nodegroup,
)
from kscale.world.aws.auto_scaling_groups import (
    AutoScalingGroups,
    GroupSpec,
    read_auto_discovery,
    read_group_spec,
)
from kscale.world.aws.client import AwsCredentialsError, AwsError
from kscale.world.aws.provider import AwsGroups
from kscale.world.aws.templates import MachineType
from kscale.world.server_data import read_data

SECOND = 10**9
LAUNCH = {"LaunchTemplateName": "launch", "Version": "1"}
M5 = {"InstanceType": "m5.large", "VCpuInfo": {"DefaultVCpus": 2}, "MemoryInfo": {"SizeInMiB": 8192},
      "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]}}  # fmt: skip


def described(name: str, desired: int, *ids: str, state: str = "InService", **more: Any) -> dict[str, Any]:
    instances = [
        {"InstanceId": id_, "AvailabilityZone": "us-east-1a", "LifecycleState": state, "HealthStatus": "Healthy"}
        for id_ in ids
    ]
    return {
        "AutoScalingGroupName": name, "DesiredCapacity": desired, "MinSize": 1, "MaxSize": 5, "Instances": instances,
        "AvailabilityZones": ["us-east-1a"], "LaunchTemplate": LAUNCH, **more,
    }  # fmt: skip


class Aws:
    """AWS as the cache calls it: data as boto3 returns them, a count of calls, and errors by operation."""

    def __init__(self, *groups: dict[str, Any]) -> None:
        self.groups = {group["AutoScalingGroupName"]: group for group in groups}
        self.activities: list[dict[str, Any]] = []
        self.configurations: dict[str, str] = {}
        self.templates: dict[str, dict[str, Any]] = {"launch": {"InstanceType": "m5.large"}}
        self.types: dict[str, dict[str, Any]] = {"m5.large": M5}
        self.nodegroups: dict[tuple[str, str], dict[str, Any]] = {}
        self.matching: list[str] = []
        self.errors: dict[str, AwsError] = {}
        self.calls: Counter[str] = Counter()
        self.written: list[tuple[Any, ...]] = []
        self.requested: list[Any] = []

    def called(self, operation: str, *request: Any) -> None:
        self.calls[operation] += 1
        self.requested.append((operation, *request))
        if operation in self.errors:
            raise self.errors[operation]

    def groups_named(self, names: Sequence[str]) -> list[AutoScalingGroup]:
        self.called("DescribeAutoScalingGroups", tuple(names))
        return read_data([self.groups[name] for name in names if name in self.groups], list[AutoScalingGroup])

    def groups_tagged(self, tags: Mapping[str, str]) -> list[AutoScalingGroup]:
        self.called("DescribeAutoScalingGroups", dict(tags))
        return read_data(list(self.groups.values()), list[AutoScalingGroup])

    def all_groups(self) -> list[AutoScalingGroup]:
        return self.groups_tagged({})

    def scaling_activities(self, group: str) -> list[Activity]:
        self.called("DescribeScalingActivities", group)
        return read_data(self.activities, list[Activity])

    def launch_configurations(self, names: Sequence[str]) -> list[LaunchConfiguration]:
        self.called("DescribeLaunchConfigurations", tuple(names))
        return [
            LaunchConfiguration(launch_configuration_name=name, instance_type=self.configurations[name])
            for name in names
            if name in self.configurations
        ]

    def launch_template_data(self, template: LaunchTemplateSpecification) -> LaunchTemplateData:
        self.called("DescribeLaunchTemplateVersions", template.label, template.version)
        return read_data(self.templates[template.label], LaunchTemplateData)

    def image(self, image: str) -> list[Image]:
        self.called("DescribeImages", image)
        return [Image(architecture="x86_64", virtualization_type="xen")]

    def first_type_for_requirements(self, images: Sequence[Image], requirements: Mapping[str, Any]) -> str:
        self.called("GetInstanceTypesFromInstanceRequirements", list(images), dict(requirements))
        return self.matching[0] if self.matching else ""

    def instance_types(self, names: Sequence[str]) -> list[InstanceTypeInfo]:
        self.called("DescribeInstanceTypes", tuple(names))
        return [read_data(self.types[name], InstanceTypeInfo) for name in names if name in self.types]

    def nodegroup(self, cluster: str, name: str) -> Nodegroup:
        self.called("DescribeNodegroup", cluster, name)
        return read_data(self.nodegroups[cluster, name], Nodegroup)

    def set_desired_capacity(self, group: str, size: int) -> None:
        self.called("SetDesiredCapacity", group, size)
        self.written.append((group, size))

    def terminate_instance(self, instance: str) -> str:
        self.called("TerminateInstanceInAutoScalingGroup", instance)
        self.written.append((instance,))
        return "Deleted instance"


class World:
    """The provider over a stand-in of AWS, with a clock of its own (in seconds)."""

    def __init__(self, aws: Aws, *specs: str, tags: str = "", **more: Any) -> None:
        self.aws = aws
        self.time = 1_790_000_000
        self.nodes: list[Node] = []
        self.groups = AutoScalingGroups(
            aws,
            specs=[read_group_spec(text) for text in specs],
            tags=read_auto_discovery(f"asg:tag={tags}") if tags else {},
            now=lambda: self.time * SECOND,
            monotonic=lambda: self.time * SECOND,
            rng=random.Random(1),
            **more,
        )
        self.provider = AwsGroups(self.groups, lambda: self.nodes)

    def refresh(self, after: int = 0) -> dict[str, NodeGroup]:
        self.time += after
        return {group.id: group for group in self.provider.refresh()}

    def group(self, after: int = 0) -> NodeGroup:
        (group,) = self.refresh(after).values()
        return group


def node(id_: str, name: str = "n", **annotations: str) -> Node:
    id_ = id_ if ":" in id_ or not id_ else f"aws:///us-east-1a/{id_}"
    return Node(metadata=ObjectMeta(name=name, annotations=annotations or None), spec=NodeSpec(provider_id=id_))


def failed(text: str = "broken", code: str = "InternalFailure") -> AwsError:
    return AwsError("Operation", code, text)


# -- specifications ----------------------------------------------------------------------------------------------------


def test_a_group_of_nodes_has_limits_and_a_name() -> None:
    assert read_group_spec("1:5:test-asg") == GroupSpec(1, 5, "test-asg")
    assert read_group_spec("0:0:a:b") == GroupSpec(0, 0, "a:b")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a", "wrong nodes configuration: a"),
        ("1:", "wrong nodes configuration: 1:"),
        ("a:b:c", "failed to set min size: a, expected integer"),
        ("1:b:c", "failed to set max size: b, expected integer"),
        ("1:2:", "invalid node group spec: name must not be blank"),
        ("-1:2:c", "invalid node group spec: min size must be >= 0"),
        ("3:2:c", "invalid node group spec: max size must be greater or equal to min size"),
        (f"{2**63}:2:c", "expected integer"),
    ],
)
def test_unusable_groups_of_nodes_are_refused(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as error:
        read_group_spec(text)
    assert error.value.problems[0].field == "--nodes"


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("asg:tag=tag,anothertag", {"tag": "", "anothertag": ""}),
        ("asg:tag=cooltag,anothertag", {"cooltag": "", "anothertag": ""}),
        ("asg:tag=label=value,anothertag", {"label": "value", "anothertag": ""}),
        ("asg:tag=my:label=value,my:otherlabel=othervalue", {"my:label": "value", "my:otherlabel": "othervalue"}),
        ("asg:tag=a=b=c", {"a": "b=c"}),
    ],
)
def test_discovery_is_by_tags(text: str, tags: dict[str, str]) -> None:
    assert read_auto_discovery(text) == tags


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tag=tag,anothertag", "invalid node group auto discovery spec"),
        ("mig:tag=tag,anothertag", "unsupported discoverer specified: mig"),
        ("asg:tag=", "tag value not supplied"),
        ("asg:=tag", 'unsupported parameter key "" is specified for discoverer "asg"'),
        ("asg:tag", "invalid key=value pair"),
    ],
)
def test_other_discovery_is_refused(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        read_auto_discovery(text)


# -- groups ------------------------------------------------------------------------------------------------------------


def test_groups_by_name_have_their_own_limits() -> None:
    # The same group twice is one group with the limits that were named first.
    world = World(Aws(described("coolasg", 1, "i-1", MaxSize=100)), "1:10:coolasg", "1:9:coolasg")
    group = world.group()
    assert (group.id, group.min_size, group.max_size, group.target_size) == ("coolasg", 1, 10, 1)


def test_discovered_groups_have_the_limits_of_aws_and_are_dropped_with_their_tags() -> None:
    world = World(Aws(described("auto", 1, "i-1")), tags="tag,anothertag")
    group = world.group()
    assert (group.id, group.min_size, group.max_size) == ("auto", 1, 5)
    assert world.aws.requested[0] == ("DescribeAutoScalingGroups", {"tag": "", "anothertag": ""})
    world.aws.groups["auto"] |= {"MinSize": 0, "MaxSize": 7}
    assert world.group(after=60).max_size == 7
    del world.aws.groups["auto"]
    assert world.refresh(after=60) == {}


def test_a_group_by_name_stays_although_aws_does_not_have_it(caplog: pytest.LogCaptureFixture) -> None:
    group = World(Aws(), "1:5:gone").group()
    assert (group.target_size, group.instances) == (0, [])
    assert group.template_error == 'unable to get first AvailabilityZone for ASG "gone"'
    assert "AWS has no such group" in caplog.text


def test_a_group_that_is_named_and_discovered_is_one() -> None:
    world = World(Aws(described("g", 2, "i-1")), "1:3:g", tags="t")
    group = world.group()
    assert (group.max_size, len(group.instances or [])) == (3, 2)
    assert world.aws.calls["DescribeScalingActivities"] == 1


def test_nodes_belong_to_groups_by_their_provider_ids() -> None:
    world = World(Aws(described("g", 1, "test-instance-id")), "1:5:g")
    world.nodes = [
        node("test-instance-id", "member"),
        node("test-instance-id-not-in-group", "other"),
        node("", "without"),
        node("eks-hybrid:///us-west-2/my-cluster/my-node-1", "hybrid"),
        node("aws:///us-east-1b/test-instance-id", "another zone"),
    ]
    group = world.group()
    assert group.nodes == ["member"]
    assert group.instances == ["aws:///us-east-1a/test-instance-id"]
    assert group.instance_status == {}
    assert world.aws.calls["DescribeAutoScalingGroups"] == 1


def test_groups_are_read_once_a_minute() -> None:
    world = World(Aws(described("g", 1, "i-1")), "1:5:g")
    for after, calls in ((0, 1), (59, 1), (1, 2), (30, 2), (30, 3)):
        world.refresh(after)
        assert world.aws.calls["DescribeAutoScalingGroups"] == calls


def test_a_failed_refresh_changes_nothing_and_is_tried_again_at_once() -> None:
    world = World(Aws(described("g", 1, "i-1")), "1:5:g")
    before = world.group()
    error = AwsCredentialsError("DescribeAutoScalingGroups", "ExpiredToken", "The security token is expired")
    world.aws.errors["DescribeAutoScalingGroups"] = error
    for _ in range(2):
        with pytest.raises(ProviderError, match=r"DescribeAutoScalingGroups: ExpiredToken: .* expired"):
            world.refresh(after=60)
    del world.aws.errors["DescribeAutoScalingGroups"]
    assert world.group() == before


def test_instances_of_a_warm_pool_are_not_counted() -> None:
    warm = [{"InstanceId": f"i-{n}", "AvailabilityZone": "us-east-1a", "LifecycleState": state}
            for n, state in enumerate(("Warmed:Stopped", "Warmed:Running", "Warmed:Pending:Wait"))]  # fmt: skip
    group = described("g", 2, "i-running")
    group["Instances"] = [*warm, *group["Instances"]]
    world = World(Aws(group), "1:5:g")
    assert world.group().instances == ["aws:///us-east-1a/i-running", "aws:///us-east-1a/i-placeholder-g-1"]


def test_suspended_processes_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    suspended = [{"ProcessName": "AZRebalance"}, {"ProcessName": "Launch"}]
    world = World(Aws(described("g", 1, "i-1", SuspendedProcesses=suspended)), "1:5:g")
    for _ in range(3):
        world.refresh(after=60)
    assert [each.message for each in caplog.records] == [
        "the process Launch of group g is suspended: sizes have no effect"
    ]


# -- placeholders ------------------------------------------------------------------------------------------------------


def activity(second: int, code: str = "Failed") -> dict[str, Any]:
    return {"StatusCode": code, "StartTime": datetime.fromtimestamp(second, UTC), "Description": "Launching"}


NO_CAPACITY = InstanceStatus(
    state="creating",
    error=InstanceError(
        class_="OutOfResource",
        code="placeholder-cannot-be-fulfilled",
        message="AWS cannot provision any more instances for this node group",
    ),
)
START = 1_790_000_000


@pytest.mark.parametrize(
    ("desired", "activities", "error", "unfulfillable"),
    [
        (10, [], None, False),
        (0, [], None, False),
        (1, [], failed("timeout"), False),
        (1, [activity(START + 1)], None, True),  # failed after the size was set
        (1, [activity(START)], None, True),
        (1, [activity(START - 1)], None, False),  # failed before
        (1, [activity(START + 2, "Successful"), activity(START + 1)], None, True),
        (1, [activity(START + 2, "Successful"), activity(START - 1), activity(START - 2)], None, False),
        (1, [{"StatusCode": "Failed"}], None, True),
    ],
)
def test_missing_instances_are_placeholders(
    desired: int, activities: list[dict[str, Any]], error: AwsError | None, unfulfillable: bool
) -> None:
    aws = Aws(described("g", 0))
    world = World(aws, "0:100:g")
    world.refresh()
    world.provider.increase_size("g", 1)
    aws.groups["g"]["DesiredCapacity"] = desired
    aws.activities = activities
    if error is not None:
        aws.errors["DescribeScalingActivities"] = error
    group = world.group(after=60)
    ids = [f"aws:///us-east-1a/i-placeholder-g-{number}" for number in range(desired)]
    assert group.instances == ids
    assert group.instance_status == (dict.fromkeys(ids, NO_CAPACITY) if unfulfillable else {})
    assert aws.calls["DescribeScalingActivities"] == bool(desired)


def test_a_group_that_was_just_discovered_has_no_failed_activity() -> None:
    aws = Aws(described("new", 2))
    aws.activities = [activity(START + 10)]
    world = World(aws, tags="t")
    assert world.group().instance_status == {}
    assert len(world.group(after=60).instance_status) == 2


def test_instances_that_came_up_replace_placeholders() -> None:
    world = World(Aws(described("g", 2, "i-1")), "1:5:g")
    assert world.group().instances == ["aws:///us-east-1a/i-1", "aws:///us-east-1a/i-placeholder-g-1"]
    world.aws.groups["g"] = described("g", 2, "i-1", "i-2")
    assert world.group(after=60).instances == ["aws:///us-east-1a/i-1", "aws:///us-east-1a/i-2"]


# -- sizes -------------------------------------------------------------------------------------------------------------


def test_the_target_size_can_be_increased_up_to_the_maximum() -> None:
    world = World(Aws(described("g", 2, "i-1", "i-2")), "1:5:g")
    assert world.group().target_size == 2
    world.provider.increase_size("g", 1)
    assert world.group().target_size == 3
    for delta, why in ((3, "size increase too large - desired:6 max:5"), (0, "size increase must be positive")):
        with pytest.raises(ProviderError, match=why):
            world.provider.increase_size("g", delta)
    with pytest.raises(ProviderError, match=r"^Not implemented$"):
        world.provider.increase_size("g", 1, atomic=True)
    assert world.aws.written == [("g", 3)]
    assert world.aws.calls["DescribeAutoScalingGroups"] == 1


def test_a_refused_size_is_not_assumed() -> None:
    world = World(Aws(described("g", 2, "i-1", "i-2")), "1:5:g")
    world.refresh()
    world.aws.errors["SetDesiredCapacity"] = AwsCredentialsError("SetDesiredCapacity", "ExpiredToken", "expired")
    with pytest.raises(AwsCredentialsError):
        world.provider.increase_size("g", 1)
    assert world.group().target_size == 2
    del world.aws.errors["SetDesiredCapacity"]
    world.provider.increase_size("g", 1)
    assert world.aws.written == [("g", 3)]


@pytest.mark.parametrize(
    ("delta", "why"),
    [
        (0, "size decrease size must be negative"),
        (1, "size decrease size must be negative"),
        (-1, "attempt to delete existing nodes targetSize:2 delta:-1 existingNodes: 2"),
    ],
)
def test_the_target_size_is_not_reduced_below_instances_and_placeholders(delta: int, why: str) -> None:
    world = World(Aws(described("g", 2, "i-1")), "1:5:g")
    world.refresh()
    with pytest.raises(ProviderError, match=why):
        world.provider.decrease_target_size("g", delta)
    assert world.aws.written == []


def test_the_target_size_can_be_reduced_again_before_placeholders_are_known() -> None:
    world = World(Aws(described("g", 1, "i-1")), "1:5:g")
    world.refresh()
    world.provider.increase_size("g", 3)
    world.provider.decrease_target_size("g", -2)
    assert world.aws.written == [("g", 4), ("g", 2)]
    missing = World(Aws(), "0:5:gone")
    missing.refresh()
    with pytest.raises(ProviderError, match="error while looking for instances of ASG"):
        missing.provider.decrease_target_size("gone", -1)


# -- deletions ---------------------------------------------------------------------------------------------------------


def test_deletion_terminates_and_reduces_the_size() -> None:
    world = World(Aws(described("g", 2, "i-1", "i-2")), "1:5:g")
    world.refresh()
    world.provider.delete_nodes("g", [node("i-1")])
    assert world.aws.written == [("i-1",)]
    assert world.aws.calls["DescribeAutoScalingGroups"] == 1
    assert next(iter(world.groups._groups.values())).size == 1
    world.refresh()  # reads AWS although no minute has passed
    assert world.aws.calls["DescribeAutoScalingGroups"] == 2


@pytest.mark.parametrize("state", ["Terminating", "Terminating:Wait", "Terminating:Proceed", "Terminated"])
def test_instances_that_terminate_already_are_left_alone(state: str) -> None:
    world = World(Aws(described("g", 2, "i-1", "i-2", state=state)), "1:5:g")
    world.refresh()
    world.provider.delete_nodes("g", [node("i-1")])
    assert world.aws.written == []
    assert world.group().target_size == 2


def test_deleting_a_placeholder_sets_the_size_to_the_number_of_instances() -> None:
    world = World(Aws(described("g", 2, "i-1")), "1:5:g")
    world.refresh()
    world.provider.delete_nodes("g", [node("i-placeholder-g-1")])
    assert world.aws.written == [("g", 1)]
    assert world.aws.calls["DescribeAutoScalingGroups"] == 2


def test_deleting_placeholders_counts_instances_that_came_up_meanwhile() -> None:
    world = World(Aws(described("g", 10, "i-0", "i-1", "i-2")), "1:10:g")
    world.refresh()
    world.aws.groups["g"] = described("g", 10, *(f"i-{number}" for number in range(6)))
    nodes = [node(f"i-placeholder-g-{number}") for number in range(3, 10)] + [node("i-0"), node("i-1")]
    world.provider.delete_nodes("g", nodes)
    assert world.aws.written == [("g", 6), ("i-0",), ("i-1",)]
    assert world.aws.calls["DescribeAutoScalingGroups"] == 2


@pytest.mark.parametrize(
    ("id_", "why"),
    [
        ("i-unknown", "n doesn't belong to a known asg"),
        ("i-other", "n belongs to a different asg than g"),
        ("gce://x", "wrong id: expected format aws:///<zone>/<name>, got gce://x"),
    ],
)
def test_only_nodes_of_the_group_are_deleted(id_: str, why: str) -> None:
    world = World(Aws(described("g", 2, "i-1", "i-2"), described("other", 2, "i-other")), "1:5:g", "1:5:other")
    world.refresh()
    with pytest.raises(ProviderError, match=why):
        world.provider.delete_nodes("g", [node("i-1"), node(id_)])
    assert world.aws.written == []


def test_nothing_is_deleted_at_the_minimum_size_or_by_force() -> None:
    world = World(Aws(described("g", 1, "i-1")), "1:5:g")
    world.refresh()
    with pytest.raises(ProviderError, match="min size reached, nodes will not be deleted"):
        world.provider.delete_nodes("g", [node("i-1")])
    with pytest.raises(ProviderError, match=r"^Not implemented$"):
        world.provider.delete_nodes("g", [node("i-1")], force=True)


def test_a_termination_that_fails_leaves_the_earlier_ones_counted() -> None:
    world = World(Aws(described("g", 3, "i-1", "i-2", "i-3")), "0:5:g")
    world.refresh()
    original = world.aws.terminate_instance

    def terminate(instance: str) -> str:
        if instance == "i-2":
            raise failed("throttled", "Throttling")
        return original(instance)

    world.aws.terminate_instance = terminate
    with pytest.raises(AwsError, match="Throttling"):
        world.provider.delete_nodes("g", [node("i-1"), node("i-2"), node("i-3")])
    assert world.aws.written == [("i-1",)]
    assert world.group().target_size == 2


# -- instances ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("each", "expected"),
    [
        (node("test-instance-id"), True),
        (node("test-instance-id", "fargate-1"), "^Not implemented$"),
        (node("test-instance-id-2"), "node is not present in aws"),
        (node("test-instance-id-2", **{"k8s.io/cluster-autoscaler-enabled": "false"}), False),
        (node("aws:///us-east-1a/i-placeholder-g-1"), True),
        (node("aws:123"), "wrong id"),
        (node("gce:///a/b"), "wrong id: expected format aws:///<zone>/<name>, got gce:///a/b"),
        (node("aws://test-az/test-instance-id"), "wrong id"),
        (node("aws:///eu-central-1c/i-placeholder-K3-EKS-spotr5xlasgsubnet02af-14"), "node is not present in aws"),
        (node("aws:///us-east-1a/i-placeholder-some.arbitrary.cluster.local"), "node is not present in aws"),
    ],
)
def test_whether_a_node_has_an_instance(each: Node, expected: bool | str) -> None:
    world = World(Aws(described("g", 2, "test-instance-id")), "1:5:g")
    world.refresh()
    if isinstance(expected, bool):
        assert world.provider.has_instance(each) is expected
    else:
        with pytest.raises(ProviderError, match=expected):
            world.provider.has_instance(each)


# -- templates ---------------------------------------------------------------------------------------------------------


def labels_of(group: NodeGroup) -> dict[str, str]:
    assert group.template is not None
    return group.template.node.metadata.labels or {}


def policy(*overrides: dict[str, Any], template: dict[str, str] | None = LAUNCH) -> dict[str, Any]:
    specification = {} if template is None else {"LaunchTemplateSpecification": template}
    return {
        "LaunchTemplate": None,
        "MixedInstancesPolicy": {"LaunchTemplate": specification | {"Overrides": overrides}},
    }


REQUIREMENTS = {"VCpuCount": {"Min": 4, "Max": 8}, "MemoryMiB": {"Min": 4096, "Max": 8192}}


@pytest.mark.parametrize(
    ("group", "calls"),
    [
        ({"LaunchTemplate": None, "LaunchConfigurationName": "config"}, {"DescribeLaunchConfigurations": 1}),
        ({}, {"DescribeLaunchTemplateVersions": 1}),
        (policy({"InstanceType": "m5.large"}, {"InstanceType": "other"}), {}),
        (policy(), {"DescribeLaunchTemplateVersions": 1}),
        (
            policy({"InstanceRequirements": REQUIREMENTS}, template={**LAUNCH, "LaunchTemplateName": "image"}),
            {"DescribeLaunchTemplateVersions": 1, "DescribeImages": 1, "GetInstanceTypesFromInstanceRequirements": 1},
        ),
        (
            policy(template={**LAUNCH, "LaunchTemplateName": "requirements"}),
            {"DescribeLaunchTemplateVersions": 1, "DescribeImages": 1, "GetInstanceTypesFromInstanceRequirements": 1},
        ),
    ],
)
def test_the_instance_type_of_a_group(group: dict[str, Any], calls: dict[str, int]) -> None:
    aws = Aws({key: value for key, value in (described("g", 1, "i-1") | group).items() if value is not None})
    aws.configurations = {"config": "m5.large"}
    aws.templates |= {
        "image": {"ImageId": "123"},
        "requirements": {"ImageId": "123", "InstanceRequirements": REQUIREMENTS},
    }
    aws.matching = ["m5.large", "m5.xlarge"]
    result = World(aws, "1:5:g").group()
    assert result.template_error is None
    assert result.template is not None
    node = result.template.node
    assert labels_of(result)["node.kubernetes.io/instance-type"] == "m5.large"
    required = "GetInstanceTypesFromInstanceRequirements" in calls
    assert str((node.status.capacity or {})["cpu"]) == ("4" if required else "2")
    shared = {"DescribeAutoScalingGroups": 1, "DescribeInstanceTypes": 1}
    assert aws.calls == Counter(shared | calls)
    if required:
        request = ("GetInstanceTypesFromInstanceRequirements",
                   [Image(architecture="x86_64", virtualization_type="xen")], REQUIREMENTS)  # fmt: skip
        assert request in aws.requested


@pytest.mark.parametrize(
    ("specification", "version"),
    [
        ({"LaunchTemplateName": "launch", "Version": "1"}, "1"),
        ({"LaunchTemplateName": "launch", "Version": "$Latest"}, "$Latest"),
        ({"LaunchTemplateName": "launch", "Version": "$Default"}, "$Default"),
        ({"LaunchTemplateName": "launch"}, "$Default"),
    ],
)
def test_the_version_of_a_launch_template_is_the_default_unless_it_is_set(
    specification: dict[str, str], version: str
) -> None:
    aws = Aws(described("g", 1, "i-1", LaunchTemplate=specification))
    World(aws, "1:5:g").refresh()
    assert ("DescribeLaunchTemplateVersions", "launch", version) in aws.requested


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"AvailabilityZones": []}, 'unable to get first AvailabilityZone for ASG "g"'),
        ({"AvailabilityZones": ["us-east-1a", "us-west-1b"]}, None),
        ({"LaunchTemplate": {"LaunchTemplateName": "unknown"}},
         'ASG "g" uses the unknown EC2 instance type "nonexistent.xlarge"'),
        ({"LaunchTemplate": {"LaunchTemplateName": "empty"}},
         "could not get instance type for g: unable to find instance type using launch template"),
        ({"LaunchTemplate": {"LaunchTemplateName": "requirements"}},
         "could not get instance type for g: no instance types found for requirements"),
        ({"LaunchTemplate": None}, "could not find instance type for g"),
        ({"LaunchTemplate": None, "LaunchConfigurationName": "x"},
         'could not get instance type for g: could not fetch "x" launch configuration'),
    ],
)  # fmt: skip
def test_groups_without_a_template_say_why(change: dict[str, Any], why: str | None) -> None:
    aws = Aws({key: value for key, value in (described("g", 1, "i-1") | change).items() if value is not None})
    aws.templates |= {
        "unknown": {"InstanceType": "nonexistent.xlarge"}, "empty": {},
        "requirements": {"ImageId": "123", "InstanceRequirements": REQUIREMENTS},
    }  # fmt: skip
    group = World(aws, "1:5:g").group()
    assert group.template_error == why
    assert (group.template is None) == (why is not None)


def test_an_override_with_a_type_and_requirements_is_refused() -> None:
    aws = Aws(described("g", 1, "i-1") | policy({"InstanceType": "m5.large", "InstanceRequirements": REQUIREMENTS}))
    with pytest.raises(ProviderError, match="g: invalid setup of both instance type and instance requirements"):
        World(aws, "1:5:g").refresh()


def test_types_that_ec2_does_not_describe_are_looked_up_in_the_catalogue() -> None:
    aws = Aws(described("g", 1, "i-1"))
    aws.errors["DescribeInstanceTypes"] = failed("not authorized", "UnauthorizedOperation")
    world = World(aws, "1:5:g", machines={"m5.large": MachineType("m5.large", 2, 8000)})
    for after, calls in ((0, 1), (60, 1), (540, 2)):  # asked again after ten minutes
        group = world.group(after)
        assert group.template is not None
        assert (group.template.node.status.capacity or {})["memory"].value() == 8000 << 20
        assert aws.calls["DescribeInstanceTypes"] == calls


def test_static_instance_list_avoids_ec2_requests() -> None:
    aws = Aws(described("g", 1, "i-1"))
    machines = {"m5.large": MachineType("m5.large", 2, 8000)}
    world = World(aws, "1:5:g", machines=machines, describe_machines=False)
    assert world.group().template is not None
    assert aws.calls["DescribeInstanceTypes"] == 0


def test_the_type_of_a_group_is_looked_up_again_after_ten_to_eighteen_minutes() -> None:
    aws = Aws(*(described(f"g{number}", 0) for number in range(30)))
    world = World(aws, tags="t")
    world.refresh()
    aws.calls.clear()
    by_minute = []
    for _ in range(18):
        before = aws.calls["DescribeLaunchTemplateVersions"]
        world.refresh(after=60)
        by_minute.append(aws.calls["DescribeLaunchTemplateVersions"] - before)
    assert sum(by_minute[:9]) == 0
    assert any(by_minute[9:])
    # Each lookup of this refresh is of the same launch template, which is described once.
    assert set(by_minute) <= {0, 1}


def test_a_type_is_used_for_twenty_minutes_while_it_cannot_be_looked_up() -> None:
    world = World(Aws(described("g", 1, "i-1")), "1:5:g")
    template = world.group().template
    assert template is not None
    world.aws.errors["DescribeLaunchTemplateVersions"] = failed()
    assert world.group(after=1_199).template is template
    assert (
        world.group(after=60).template_error == "could not get instance type for g: Operation: InternalFailure: broken"
    )


def test_managed_node_groups_are_requested_every_six_minutes_even_after_eks_errors() -> None:
    tags = [{"Key": "eks:nodegroup-name", "Value": "n"}, {"Key": "eks:cluster-name", "Value": "c"}]
    world = World(Aws(described("g", 1, "i-1", Tags=tags)), "1:5:g")
    world.aws.errors["DescribeNodegroup"] = failed("denied", "AccessDeniedException")
    assert "amiType" not in labels_of(world.group())
    assert "amiType" not in labels_of(world.group(after=60))
    assert world.aws.calls["DescribeNodegroup"] == 1
    del world.aws.errors["DescribeNodegroup"]
    world.aws.nodegroups["c", "n"] = {"amiType": "AL2023"}
    assert "amiType" not in labels_of(world.group(after=240))
    assert labels_of(world.group(after=60))["amiType"] == "AL2023"
    assert world.aws.calls["DescribeNodegroup"] == 2


def test_templates_are_built_again_only_if_their_inputs_changed() -> None:
    world = World(Aws(described("g", 1, "i-1")), "1:5:g")
    first = world.group().template
    assert world.group(after=60).template is first
    world.aws.groups["g"]["Tags"] = [{"Key": "k8s.io/cluster-autoscaler/node-template/label/a", "Value": "b"}]
    assert labels_of(world.group(after=60))["a"] == "b"


def test_options_of_a_group_come_from_its_tags(caplog: pytest.LogCaptureFixture) -> None:
    prefix = "k8s.io/cluster-autoscaler/node-template/autoscaling-options"
    tags = [{"Key": f"{prefix}/scaledownunneededtime", "Value": "1h"},
            {"Key": f"{prefix}/ignoredaemonsetsutilization", "Value": "maybe"}]  # fmt: skip
    with caplog.at_level(logging.WARNING):
        group = World(Aws(described("g", 1, "i-1", Tags=tags)), "1:5:g").group()
    assert group.options == NodeGroupOptions(scale_down_unneeded_time=3600.0)
    assert "failed to convert asg g ignoredaemonsetsutilization tag to bool" in caplog.text


def test_a_refresh_of_many_groups_makes_no_more_calls_than_upstream_s() -> None:
    # 300 groups with 5,000 instances: upstream describes the groups and asks once for each launch template.
    aws = Aws(*(
        described(f"g{number}", 17, *(f"i-{number}-{each}" for each in range(17)),
                  LaunchTemplate={"LaunchTemplateName": f"launch-{number}"})
        for number in range(300)
    ))  # fmt: skip
    aws.templates = {f"launch-{number}": {"InstanceType": "m5.large"} for number in range(300)}
    world = World(aws, tags="t")
    assert sum(len(group.instances or []) for group in world.refresh().values()) == 5_100
    first = {"DescribeAutoScalingGroups": 1, "DescribeLaunchTemplateVersions": 300, "DescribeInstanceTypes": 1}
    assert aws.calls == Counter(first)
    aws.calls.clear()
    world.refresh(after=59)
    assert aws.calls == Counter()
    world.refresh(after=1)
    assert aws.calls == Counter({"DescribeAutoScalingGroups": 1})
