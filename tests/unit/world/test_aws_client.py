"""Calls to AWS through boto3, with responses that botocore's stubber checks against AWS's models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kscale.errors import InputError
from kscale.world.aws.api import Image, LaunchTemplateSpecification
from kscale.world.aws.client import (
    AwsClient,
    AwsCredentialsError,
    AwsError,
    ServiceOverride,
    find_region,
    read_cloud_config,
)

boto3 = pytest.importorskip("boto3", reason="the extra [aws] is not installed")
stub = pytest.importorskip("botocore.stub", reason="the extra [aws] is not installed")


@contextmanager
def environment(folder: Path) -> Iterator[pytest.MonkeyPatch]:
    """Set credentials and a region, without files and instance metadata of this machine."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"):
            patch.delenv(name, raising=False)
        for name, value in {
            "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
            "AWS_CONFIG_FILE": str(folder / "config"), "AWS_SHARED_CREDENTIALS_FILE": str(folder / "credentials"),
            "AWS_EC2_METADATA_DISABLED": "true",
        }.items():  # fmt: skip
            patch.setenv(name, value)
        yield patch


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path) -> Iterator[None]:
    with environment(tmp_path):
        yield


@pytest.fixture(scope="module")
def shared_client(tmp_path_factory: pytest.TempPathFactory) -> AwsClient:
    """Return one client for all tests: boto3 takes long to load the models of a service."""
    with environment(tmp_path_factory.mktemp("aws")):
        return AwsClient()


class Stubbed:
    """A client, with the responses of one service."""

    def __init__(self, client: AwsClient, service: str) -> None:
        self.client = client
        self.stubber = stub.Stubber(client._service(service))

    def answer(self, method: str, response: dict[str, Any], request: dict[str, Any] | None = None) -> None:
        self.stubber.add_response(method, response, request)


@pytest.fixture
def autoscaling(shared_client: AwsClient) -> Iterator[Stubbed]:
    stubbed = Stubbed(shared_client, "autoscaling")
    with stubbed.stubber:
        yield stubbed
        stubbed.stubber.assert_no_pending_responses()


@pytest.fixture
def ec2(shared_client: AwsClient) -> Iterator[Stubbed]:
    stubbed = Stubbed(shared_client, "ec2")
    with stubbed.stubber:
        yield stubbed
        stubbed.stubber.assert_no_pending_responses()


GROUP = {
    "MinSize": 1, "MaxSize": 5, "DesiredCapacity": 1, "DefaultCooldown": 300, "AvailabilityZones": ["us-east-1a"],
    "HealthCheckType": "EC2", "CreatedTime": "2026-01-01T00:00:00Z",
}  # fmt: skip


def group(name: str) -> dict[str, Any]:
    instance = {
        "InstanceId": f"i-{name}", "AvailabilityZone": "us-east-1a", "LifecycleState": "InService",
        "HealthStatus": "Healthy", "ProtectedFromScaleIn": False,
    }  # fmt: skip
    return GROUP | {"AutoScalingGroupName": name, "Instances": [instance]}


def test_more_than_100_names_are_described_in_batches(autoscaling: Stubbed) -> None:
    names = [f"asg-{number}" for number in range(101)]
    for batch, answered in ((names[:100], "asg-1"), (names[100:], "asg-100")):
        request = {"AutoScalingGroupNames": batch, "MaxRecords": 100}
        autoscaling.answer("describe_auto_scaling_groups", {"AutoScalingGroups": [group(answered)]}, request)
    result = autoscaling.client.groups_named(names)
    assert [each.name for each in result] == ["asg-1", "asg-100"]
    assert result[0].instances[0].provider_id == "aws:///us-east-1a/i-asg-1"


def test_groups_are_found_by_tags_page_by_page(autoscaling: Stubbed) -> None:
    request = {
        "Filters": [{"Name": "tag-key", "Values": ["a"]}, {"Name": "tag:b", "Values": ["1"]}], "MaxRecords": 100,
    }  # fmt: skip
    method = "describe_auto_scaling_groups"
    autoscaling.answer(method, {"AutoScalingGroups": [group("one")], "NextToken": "next"}, request)
    autoscaling.answer(method, {"AutoScalingGroups": [group("two")]}, request | {"NextToken": "next"})
    result = autoscaling.client.groups_tagged({"a": "", "b": "1"})
    assert [each.name for each in result] == ["one", "two"]
    assert autoscaling.client.groups_tagged({}) == []


def test_repeated_page_token_is_an_error(autoscaling: Stubbed) -> None:
    for _ in range(2):
        autoscaling.answer("describe_auto_scaling_groups", {"AutoScalingGroups": [], "NextToken": "next"})
    with pytest.raises(AwsError, match="DescribeAutoScalingGroups: the same page is announced again"):
        autoscaling.client.all_groups()


def test_groups_instances_and_pages_are_bounded(autoscaling: Stubbed, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, text in (("_MOST_GROUPS", "groups"), ("_MOST_INSTANCES", "instances"), ("_MOST_PAGES", "pages")):
        with monkeypatch.context() as patch:
            patch.setattr(f"kscale.world.aws.client.{limit}", 1)
            page = {"AutoScalingGroups": [group("one"), group("two")], "NextToken": "next"}
            autoscaling.answer("describe_auto_scaling_groups", page)
            with pytest.raises(AwsError, match=f"more than 1 {text}"):
                autoscaling.client.all_groups()


def test_launch_configurations_are_described_in_batches_of_50(autoscaling: Stubbed) -> None:
    names = [f"c-{number}" for number in range(51)]
    for batch in (names[:50], names[50:]):
        request = {"LaunchConfigurationNames": batch, "MaxRecords": 50}
        configuration = {
            "LaunchConfigurationName": batch[0], "InstanceType": "m5.large", "ImageId": "ami",
            "CreatedTime": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        autoscaling.answer("describe_launch_configurations", {"LaunchConfigurations": [configuration]}, request)
    assert [each.launch_configuration_name for each in autoscaling.client.launch_configurations(names)] == [
        "c-0",
        "c-50",
    ]


def test_sizes_are_set_without_a_cooldown_and_terminations_reduce_them(autoscaling: Stubbed) -> None:
    request = {"AutoScalingGroupName": "g", "DesiredCapacity": 3, "HonorCooldown": False}
    autoscaling.answer("set_desired_capacity", {}, request)
    autoscaling.client.set_desired_capacity("g", 3)
    activity = {
        "ActivityId": "1", "AutoScalingGroupName": "g", "Cause": "asked", "StartTime": "2026-01-01T00:00:00.5Z",
        "StatusCode": "InProgress", "Description": "Terminating EC2 instance: i-1",
    }  # fmt: skip
    request = {"InstanceId": "i-1", "ShouldDecrementDesiredCapacity": True}
    autoscaling.answer("terminate_instance_in_auto_scaling_group", {"Activity": activity}, request)
    assert autoscaling.client.terminate_instance("i-1") == "Terminating EC2 instance: i-1"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("Throttling", AwsError),
        ("ValidationError", AwsError),
        ("ScalingActivityInProgress", AwsError),
        ("AccessDenied", AwsError),
        ("ExpiredToken", AwsCredentialsError),
        ("InvalidClientTokenId", AwsCredentialsError),
        ("AuthFailure", AwsCredentialsError),
        ("SignatureDoesNotMatch", AwsCredentialsError),
    ],
)
def test_errors_of_aws_are_named(autoscaling: Stubbed, code: str, kind: type[AwsError]) -> None:
    autoscaling.stubber.add_client_error("set_desired_capacity", code, "long\n  " + "x" * 1_000)
    with pytest.raises(AwsError, match=f"^SetDesiredCapacity: {code}: long xxx") as error:
        autoscaling.client.set_desired_capacity("g", 1)
    assert type(error.value) is kind
    assert (error.value.type, error.value.code) == ("cloudProviderError", code)
    assert len(error.value.message) < 500


@pytest.mark.parametrize(
    ("page", "where"),
    [
        ({"AutoScalingGroups": [{"AutoScalingGroupName": 1}]}, "AutoScalingGroupName"),
        ({"AutoScalingGroups": [{}]}, "AutoScalingGroupName"),
        ({"AutoScalingGroups": "x"}, "AutoScalingGroups"),
        ({"AutoScalingGroups": [{"AutoScalingGroupName": "g", "DesiredCapacity": 2**31}]}, "DesiredCapacity"),
        ({"AutoScalingGroups": [{"AutoScalingGroupName": "g", "Instances": [{}]}]}, "InstanceId"),
    ],
)
def test_unexpected_response_shape_is_a_named_error(
    autoscaling: Stubbed, monkeypatch: pytest.MonkeyPatch, page: dict[str, Any], where: str
) -> None:
    monkeypatch.setattr(autoscaling.client, "_call", lambda *_, **__: page)
    with pytest.raises(AwsError, match=f"DescribeAutoScalingGroups: UnreadableResponse: .*{where}"):
        autoscaling.client.all_groups()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("invalid literal"), AwsError),
        (KeyError("Error"), AwsError),
        (RecursionError("deep"), AwsError),
        (__import__("botocore.exceptions").exceptions.NoCredentialsError(), AwsCredentialsError),
        (__import__("botocore.exceptions").exceptions.EndpointConnectionError(endpoint_url="http://x"), AwsError),
    ],
)
def test_errors_of_botocore_are_named(
    autoscaling: Stubbed, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[AwsError]
) -> None:
    def fail(**_: Any) -> None:
        raise error

    monkeypatch.setattr(autoscaling.client._service("autoscaling"), "set_desired_capacity", fail)
    with pytest.raises(AwsError, match=f"^SetDesiredCapacity: {type(error).__name__}: ") as result:
        autoscaling.client.set_desired_capacity("g", 1)
    assert type(result.value) is kind


LAUNCH = LaunchTemplateSpecification(launch_template_name="launch", version="1")


@pytest.mark.parametrize(
    ("versions", "why"),
    [
        ([], "unable to find template versions for launch template launch"),
        ([{"LaunchTemplateName": "launch"}], "no data found for launch template launch, version 1"),
        ([{"LaunchTemplateData": {"ImageId": "123"}}], None),
    ],
)
def test_versions_of_launch_templates(ec2: Stubbed, versions: list[dict[str, Any]], why: str | None) -> None:
    request = {"LaunchTemplateName": "launch", "Versions": ["1"]}
    ec2.answer("describe_launch_template_versions", {"LaunchTemplateVersions": versions}, request)
    if why is None:
        assert ec2.client.launch_template_data(LAUNCH).image_id == "123"
    else:
        with pytest.raises(AwsError, match=re.escape(why)):
            ec2.client.launch_template_data(LAUNCH)


def test_a_launch_template_without_a_name_is_described_by_its_id(ec2: Stubbed) -> None:
    versions = [{"LaunchTemplateData": {"InstanceType": "m5.large"}}]
    request = {"LaunchTemplateId": "lt-1", "Versions": ["$Default"]}
    ec2.answer("describe_launch_template_versions", {"LaunchTemplateVersions": versions}, request)
    data = ec2.client.launch_template_data(LaunchTemplateSpecification(launch_template_id="lt-1"))
    assert data.instance_type == "m5.large"


@pytest.mark.parametrize(
    ("pages", "expected"),
    [([["g4dn.xlarge", "other"]], "g4dn.xlarge"), ([[], ["g4dn.xlarge"]], "g4dn.xlarge"), ([[]], "")],
)
def test_the_first_type_that_meets_requirements(ec2: Stubbed, pages: list[list[str]], expected: str) -> None:
    requirements = {"VCpuCount": {"Min": 4, "Max": 8}, "MemoryMiB": {"Min": 4, "Max": 8}}
    request: dict[str, Any] = {
        "ArchitectureTypes": ["x86_64"], "VirtualizationTypes": ["hvm"], "InstanceRequirements": requirements,
    }  # fmt: skip
    for number, names in enumerate(pages):
        response: dict[str, Any] = {"InstanceTypes": [{"InstanceType": name} for name in names]}
        if number + 1 < len(pages):
            response["NextToken"] = str(number)
        ec2.answer("get_instance_types_from_instance_requirements", response, request)
        request = request | {"NextToken": str(number)}
    images = [Image(architecture="x86_64", virtualization_type="hvm")]
    assert ec2.client.first_type_for_requirements(images, requirements) == expected


def test_the_region_is_that_of_the_environment_or_the_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert find_region() == "us-east-1"
    monkeypatch.delenv("AWS_REGION")
    (tmp_path / "config").write_text("[default]\nregion = eu-west-1\n")
    assert find_region() == "eu-west-1"
    (tmp_path / "config").unlink()
    with pytest.raises(InputError, match="failed to determine AWS region: set AWS_REGION"):
        find_region()


OVERRIDE = """
[Global]
Zone = us-east-1a
[ServiceOverride "1"]
  Service = autoscaling
  Region = us-east-1
  URL = "http://127.0.0.1:5000"
  SigningRegion = us-west-2
"""


def test_endpoints_of_the_cloud_config_are_used_in_their_region(tmp_path: Path) -> None:
    path = tmp_path / "cloud.conf"
    path.write_text(OVERRIDE)
    overrides = read_cloud_config(str(path))
    assert overrides == [ServiceOverride("autoscaling", "us-east-1", "http://127.0.0.1:5000", "us-west-2")]
    metas = [
        AwsClient(region, overrides=overrides)._service("autoscaling").meta for region in ("us-east-1", "eu-west-1")
    ]
    assert (metas[0].endpoint_url, metas[0].region_name) == ("http://127.0.0.1:5000", "us-west-2")
    assert (metas[1].endpoint_url, metas[1].region_name) == (
        "https://autoscaling.eu-west-1.amazonaws.com", "eu-west-1",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("  Service = autoscaling\n", ""), 'service name is missing [Service is ""] in override 1'),
        (("  Region = us-east-1\n", "  Region = \n"), 'service region is missing [Region is ""] in override 1'),
        (('"http://127.0.0.1:5000"', '""'), 'url is missing [URL is ""] in override 1'),
        (("  SigningRegion = us-west-2\n", ""), 'signingRegion is missing [SigningRegion is ""] in override 1'),
        (("us-west-2\n", "us-west-2\n  SigningMethod = v2\n"), "signed by AWS's version 4 only"),
        (("us-west-2\n", "us-west-2\n  SigningName = other\n"), "signed with the service's own name"),
        (("us-west-2\n", "us-west-2\n  Port = 1\n"), "unknown setting"),
        (("[Global]", "[Other]"), "there is no such section"),
        (("[Global]", "no section"), "no section"),
        (
            ("us-west-2\n", 'us-west-2\n[ServiceOverride "2"]\n' + OVERRIDE.partition('"1"]\n')[2]),
            "duplicate entry found for service override [2] (autoscaling in us-east-1)",
        ),
    ],
)
def test_unusable_cloud_configs_are_refused(tmp_path: Path, change: tuple[str, str], why: str) -> None:
    path = tmp_path / "cloud.conf"
    path.write_text(OVERRIDE.replace(*change))
    with pytest.raises(InputError, match=re.escape(why)):
        read_cloud_config(str(path))
    with pytest.raises(InputError):
        read_cloud_config(str(tmp_path / "missing"))


def test_an_unusable_endpoint_of_another_service_is_a_failed_call() -> None:
    """Only the service of groups is set up at the start."""
    overrides = [ServiceOverride("ec2", "us-east-1", "no url", "us-east-1")]
    with pytest.raises(AwsError, match="DescribeImages: ValueError: Invalid endpoint"):
        AwsClient("us-east-1", overrides=overrides).image("ami-1")


def test_an_unusable_region_is_an_input_error() -> None:
    with pytest.raises(InputError, match="AWS"):
        AwsClient("not a region")
