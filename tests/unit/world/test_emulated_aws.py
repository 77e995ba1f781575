"""The emulated AWS account shows the SDK what a real account would: the end-to-end tests rely on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

boto3 = pytest.importorskip("boto3", reason="the extra [aws] is not installed")
pytest.importorskip("moto", reason="moto is not installed")

from botocore.config import Config  # noqa: E402  # after the checks for optional libraries
from botocore.exceptions import ClientError  # noqa: E402  # as above

from emulated_aws import ENABLED, REGION, TYPES, EmulatedAws  # noqa: E402  # as above

ONCE = Config(retries={"total_max_attempts": 1, "mode": "standard"})


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedAws]:
    with EmulatedAws(tmp_path_factory.mktemp("aws")) as account:
        yield account


@pytest.fixture
def aws(account: EmulatedAws) -> EmulatedAws:
    account.reset()
    return account


def client(aws: EmulatedAws, service: str = "autoscaling", config: Config = ONCE) -> Any:
    """An SDK client that goes through the layer."""
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    return boto3.client(service, endpoint_url=aws.url, region_name=REGION, config=config, **keys)


def described(autoscaling: Any, name: str) -> Any:
    (group,) = autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
    return group


def test_a_group_grows_and_shrinks(aws: EmulatedAws) -> None:
    aws.create_group("web", zones=[f"{REGION}b"], maximum=3)
    autoscaling = client(aws)
    autoscaling.set_desired_capacity(AutoScalingGroupName="web", DesiredCapacity=2, HonorCooldown=False)
    group = described(autoscaling, "web")
    assert (group["DesiredCapacity"], len(group["Instances"])) == (2, 2)
    assert all(id_.startswith(f"aws:///{REGION}b/i-") for id_ in aws.instances("web"))
    instance = group["Instances"][0]["InstanceId"]
    autoscaling.terminate_instance_in_auto_scaling_group(InstanceId=instance, ShouldDecrementDesiredCapacity=True)
    group = described(autoscaling, "web")
    assert (group["DesiredCapacity"], len(group["Instances"])) == (1, 1)
    assert [call.action for call in aws.actions("SetDesiredCapacity", "TerminateInstanceInAutoScalingGroup")] == [
        "SetDesiredCapacity",
        "TerminateInstanceInAutoScalingGroup",
    ]


def test_capacity_that_does_not_come_until_it_is_released(aws: EmulatedAws) -> None:
    aws.create_group("web")
    aws.hold("web")
    autoscaling = client(aws)
    autoscaling.set_desired_capacity(AutoScalingGroupName="web", DesiredCapacity=3)
    group = described(autoscaling, "web")
    assert (group["DesiredCapacity"], group["Instances"]) == (3, [])
    assert aws.desired("web") == 3
    assert autoscaling.describe_scaling_activities(AutoScalingGroupName="web")["Activities"] == []
    aws.release("web")
    assert len(described(autoscaling, "web")["Instances"]) == 3


def test_a_failed_activity_names_why_capacity_does_not_come(aws: EmulatedAws) -> None:
    aws.create_group("web")
    aws.create_group("other")
    aws.hold("web", "InsufficientInstanceCapacity: no m5.large in us-east-1a")
    autoscaling = client(aws)
    autoscaling.set_desired_capacity(AutoScalingGroupName="web", DesiredCapacity=1)
    (activity,) = autoscaling.describe_scaling_activities(AutoScalingGroupName="web")["Activities"]
    assert activity["StatusCode"] == "Failed"
    assert activity["StatusMessage"].startswith("InsufficientInstanceCapacity")
    assert activity["StartTime"].tzinfo is not None
    assert autoscaling.describe_scaling_activities(AutoScalingGroupName="other")["Activities"] == []
    autoscaling.set_desired_capacity(AutoScalingGroupName="web", DesiredCapacity=0)
    assert described(autoscaling, "web")["DesiredCapacity"] == 0


def test_a_group_that_may_not_launch_does_not_grow(aws: EmulatedAws) -> None:
    aws.create_group("web", desired=1)
    aws.suspend("web", "Launch")
    autoscaling = client(aws)
    autoscaling.set_desired_capacity(AutoScalingGroupName="web", DesiredCapacity=2)
    group = described(autoscaling, "web")
    assert [process["ProcessName"] for process in group["SuspendedProcesses"]] == ["Launch"]
    assert (group["DesiredCapacity"], len(group["Instances"])) == (2, 1)
    instance = group["Instances"][0]["InstanceId"]
    autoscaling.terminate_instance_in_auto_scaling_group(InstanceId=instance, ShouldDecrementDesiredCapacity=True)
    assert (described(autoscaling, "web")["DesiredCapacity"], aws.instances("web")) == (1, [])


@pytest.mark.parametrize("service", ["autoscaling", "ec2"])
def test_throttled_requests_pass_when_they_are_retried(aws: EmulatedAws, service: str) -> None:
    action, call = {
        "autoscaling": ("DescribeAutoScalingGroups", "describe_auto_scaling_groups"),
        "ec2": ("DescribeInstanceTypes", "describe_instance_types"),
    }[service]
    aws.throttle(action, 1)
    with pytest.raises(ClientError) as refused:
        getattr(client(aws, service), call)()
    assert refused.value.response["Error"]["Code"] in ("Throttling", "RequestLimitExceeded")
    aws.throttle(action, 1)
    retries = Config(retries={"total_max_attempts": 3, "mode": "standard"})
    getattr(client(aws, service, retries), call)()
    assert [each.action for each in aws.calls] == [action] * 3


def test_credentials_expire_and_are_renewed(aws: EmulatedAws) -> None:
    aws.create_group("web")
    expired = aws.expire_credentials()
    for service, call in (("autoscaling", "describe_auto_scaling_groups"), ("ec2", "describe_instance_types")):
        with pytest.raises(ClientError) as refused:
            getattr(client(aws, service), call)()
        assert refused.value.response["Error"]["Code"] == "ExpiredToken"
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    aws.accept(expired)
    assert described(client(aws), "web")["AutoScalingGroupName"] == "web"


def test_groups_come_in_short_pages_and_by_tag(aws: EmulatedAws) -> None:
    for i in range(5):
        aws.create_group(f"web-{i}", tags={"team": "a" if i % 2 else "b"})
    aws.page_size = 2
    pages = client(aws).get_paginator("describe_auto_scaling_groups")
    filters = [{"Name": "tag-key", "Values": [ENABLED]}]
    assert [len(page["AutoScalingGroups"]) for page in pages.paginate(Filters=filters)] == [2, 2, 1]
    filters = [{"Name": "tag:team", "Values": ["a"]}]
    names = [
        group["AutoScalingGroupName"] for page in pages.paginate(Filters=filters) for group in page["AutoScalingGroups"]
    ]
    assert names == ["web-1", "web-3"]


def test_the_account_has_few_instance_types(aws: EmulatedAws) -> None:
    types = client(aws, "ec2").describe_instance_types()["InstanceTypes"]
    assert {each["InstanceType"] for each in types} == {*TYPES}
