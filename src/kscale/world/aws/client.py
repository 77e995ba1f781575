"""Calls to AWS through boto3, with bounded pages.

A failed call raises :class:`AwsError`. Responses are checked and returned as structs.

Upstream: ``cloudprovider/aws/aws_wrapper.go`` and ``aws_sdk_provider.go``.
"""

from __future__ import annotations

import configparser
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kscale.errors import InputError, Problem
from kscale.files import read_input
from kscale.imports import library
from kscale.objects.api.meta import shorten
from kscale.objects.nodegroup import ProviderError
from kscale.world.aws.api import (
    Activity,
    AutoScalingGroup,
    Image,
    InstanceTypeInfo,
    LaunchConfiguration,
    LaunchTemplateData,
    LaunchTemplateSpecification,
    LaunchTemplateVersion,
    Nodegroup,
)
from kscale.world.nodegroups.provider import CLOUD_ERROR
from kscale.world.server_data import UnreadableError, read_data

__all__ = ["AwsClient", "AwsCredentialsError", "AwsError", "ServiceOverride", "find_region", "read_cloud_config"]

_T = TypeVar("_T")
_FEATURE: Final = "AWS"
_CONNECT_SECONDS: Final = 5
_READ_SECONDS: Final = 60
_NAMES_PER_CALL: Final = 100
"""Maximum number of group names that one DescribeAutoScalingGroups accepts."""
_CONFIGURATIONS_PER_CALL: Final = 50
_TYPES_PER_CALL: Final = 100
_MOST_PAGES: Final = 1_000
"""Pages of one request: with 100 groups or types on a page, ten times as many as an account can have."""
_MOST_GROUPS: Final = 10_000
_MOST_INSTANCES: Final = 100_000
"""Instances of all groups. No cluster has as many nodes."""
_MESSAGE_LENGTH: Final = 400
_CREDENTIAL_CODES: Final = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidToken",
        "MissingAuthenticationToken",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
"""Error codes of requests whose credentials are missing, wrong or expired."""
_CREDENTIAL_ERRORS: Final = (
    "CredentialRetrievalError",
    "NoCredentialsError",
    "PartialCredentialsError",
    "SSOError",
    "TokenRetrievalError",
    "UnauthorizedSSOTokenError",
)
"""Names of botocore's exceptions for missing or invalid credentials."""


class AwsError(ProviderError):
    """A failed call to AWS. ``operation``: its name; ``code``: AWS's error code or botocore's exception name."""

    def __init__(self, operation: str, code: str, text: str) -> None:
        text = shorten(" ".join(text.split()), _MESSAGE_LENGTH)
        super().__init__(f"{operation}: {code}: {text}" if code else f"{operation}: {text}", CLOUD_ERROR)
        self.operation = operation
        self.code = code


class AwsCredentialsError(AwsError):
    """The credentials are missing, wrong or expired. The call changed nothing; later calls use renewed credentials."""


@dataclass(frozen=True, slots=True)
class ServiceOverride:
    """Endpoint of one service in one region (``[ServiceOverride "1"]`` in the file of ``--cloud-config``)."""

    service: str
    region: str
    url: str
    signing_region: str


_OVERRIDE_KEYS: Final = {"service", "region", "url", "signingregion", "signingmethod", "signingname"}


def read_cloud_config(path: str) -> list[ServiceOverride]:
    """Read the endpoints in the file of ``--cloud-config``.

    The section ``[Global]`` is for the cloud controller manager; the autoscaler reads nothing of it.

    Raises
    ------
    InputError
        If the file cannot be read, has an unknown section or setting, or an override is incomplete, repeated, or needs
        another signature than AWS's own. Messages are upstream's.
    """
    try:
        text = read_input(path).decode()
    except UnicodeDecodeError as error:
        raise InputError(Problem(f"not UTF-8 text: {error}", path)) from None
    parser = configparser.ConfigParser(
        interpolation=None, strict=True, delimiters=("=",), inline_comment_prefixes=(";", "#"), default_section=""
    )
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise InputError(Problem(" ".join(str(error).split()), path)) from None
    overrides: dict[tuple[str, str], ServiceOverride] = {}
    for section in parser.sections():
        kind, _, rest = section.partition(" ")
        if kind.lower() == "global":
            continue
        if kind.lower() != "serviceoverride":
            raise InputError(Problem("there is no such section; there are Global and ServiceOverride", path, section))
        number = rest.strip().strip('"')
        values = {key: value.strip().strip('"').strip() for key, value in parser[section].items()}
        if unknown := values.keys() - _OVERRIDE_KEYS:
            raise InputError([Problem("unknown setting", path, section, name) for name in sorted(unknown)])
        override = _read_override(values, number, path)
        if (override.service, override.region) in overrides:
            text = f"duplicate entry found for service override [{number}] ({override.service} in {override.region})"
            raise InputError(Problem(text, path))
        overrides[override.service, override.region] = override
    return list(overrides.values())


def _read_override(values: Mapping[str, str], number: str, path: str) -> ServiceOverride:
    """Build the override of a section. Raises InputError, which names ``number`` and ``path``, if it is incomplete."""
    for key, text in (
        ("service", f'service name is missing [Service is ""] in override {number}'),
        ("region", f'service region is missing [Region is ""] in override {number}'),
        ("url", f'url is missing [URL is ""] in override {number}'),
        ("signingregion", f'signingRegion is missing [SigningRegion is ""] in override {number}'),
    ):
        if not values.get(key):
            raise InputError(Problem(text, path))
    service = values["service"]
    if values.get("signingmethod") not in (None, "", "v4"):
        raise InputError(
            Problem("requests are signed by AWS's version 4 only", path, f"override {number}", "SigningMethod")
        )
    if values.get("signingname") not in (None, "", service):
        raise InputError(
            Problem("requests are signed with the service's own name", path, f"override {number}", "SigningName")
        )
    return ServiceOverride(service, values["region"], values["url"], values["signingregion"])


def find_region() -> str:
    """Return the region: of ``AWS_REGION``, else of boto3's configuration, else of the instance metadata service.

    The metadata service is queried once, with boto3's timeout (``AWS_METADATA_SERVICE_TIMEOUT``, by default a second).

    Raises
    ------
    InputError
        If no region is configured and there is no metadata service.
    MissingExtraError
        If boto3 is not installed.
    """
    if region := os.environ.get("AWS_REGION"):
        return region
    session = library("boto3", _FEATURE).session.Session()
    if session.region_name:
        return str(session.region_name)
    utils, errors = library("botocore.utils", _FEATURE), library("botocore.exceptions", _FEATURE)
    botocore = library("botocore.session", _FEATURE).get_session()
    try:
        region = utils.IMDSRegionProvider(botocore).provide()
    except (errors.BotoCoreError, ValueError):  # an invalid response
        region = None
    if not region:
        text = "failed to determine AWS region: set AWS_REGION (the instance metadata service gave none)"
        raise InputError(Problem(text, field="AWS_REGION"))
    return str(region)


class AwsClient:
    """Calls of one region, from any thread.

    Credentials come from boto3's chain: environment, shared files, web identity, container or instance metadata. The
    endpoint is boto3's own (``AWS_ENDPOINT_URL``), unless ``overrides`` has one. Throttled and failed requests are
    retried by botocore in its standard mode, at most ``AWS_MAX_ATTEMPTS`` times.

    Raises MissingExtraError without boto3, InputError without a region.
    """

    def __init__(self, region: str = "", *, overrides: Sequence[ServiceOverride] = ()) -> None:
        boto3 = library("boto3", _FEATURE)
        errors, parsers = library("botocore.exceptions", _FEATURE), library("botocore.parsers", _FEATURE)
        self._response_error: Any = errors.ClientError
        # botocore parses responses with Python's own conversions: an invalid response raises any of the last six.
        self._failures: tuple[Any, ...] = (
            errors.BotoCoreError, parsers.ResponseParserError,
            ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
        )  # fmt: skip
        self.region = region or find_region()
        self._session: Any = boto3.session.Session(region_name=self.region)
        self._overrides = {each.service: each for each in overrides if each.region == self.region}
        self._lock = threading.Lock()
        self._clients: dict[str, Any] = {}
        try:
            self._config: Any = library("botocore.config", _FEATURE).Config(
                connect_timeout=_CONNECT_SECONDS,
                read_timeout=_READ_SECONDS,
                retries={"mode": "standard"},
                user_agent_extra="kscale-cluster-autoscaler",
                max_pool_connections=20,
            )
            self._service("autoscaling")  # a wrong configuration is found at once; loading other services takes time
        except (errors.BotoCoreError, ValueError) as error:
            raise InputError(Problem(" ".join(str(error).split()), field="AWS")) from None

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            clients = list(self._clients.values())
        for client in clients:
            client.close()

    # -- EC2 Auto Scaling --------------------------------------------------------------------------------------------

    def groups_named(self, names: Sequence[str]) -> list[AutoScalingGroup]:
        """Describe the groups with these names, in batches of 100. Groups that do not exist are left out.

        Raises AwsError.
        """
        result: list[AutoScalingGroup] = []
        for start in range(0, len(names), _NAMES_PER_CALL):
            batch = list(names[start : start + _NAMES_PER_CALL])
            result += self._groups(AutoScalingGroupNames=batch)
        return result

    def groups_tagged(self, tags: Mapping[str, str]) -> list[AutoScalingGroup]:
        """Describe the groups that have all these tags; none without tags. An empty value matches every value.

        Raises AwsError.
        """
        filters = [
            {"Name": f"tag:{key}", "Values": [value]} if value else {"Name": "tag-key", "Values": [key]}
            for key, value in tags.items()
        ]
        return self._groups(Filters=filters) if filters else []

    def all_groups(self) -> list[AutoScalingGroup]:
        """Describe all groups of the account in this region. Raises AwsError."""
        return self._groups()

    def _groups(self, **parameters: Any) -> list[AutoScalingGroup]:
        """Describe groups of all pages. ``parameters``: those of the request, besides the page.

        Raises AwsError, also for more than 10,000 groups or 100,000 instances.
        """
        operation = "DescribeAutoScalingGroups"
        groups: list[AutoScalingGroup] = []
        instances = 0
        for page in self._pages("autoscaling", operation, MaxRecords=100, **parameters):
            described = self._read_list(operation, page, "AutoScalingGroups", AutoScalingGroup)
            groups += described
            instances += sum(len(group.instances) for group in described)
            if len(groups) > _MOST_GROUPS:
                raise AwsError(operation, "", f"more than {_MOST_GROUPS:,} groups")
            if instances > _MOST_INSTANCES:
                raise AwsError(operation, "", f"more than {_MOST_INSTANCES:,} instances")
        return groups

    def scaling_activities(self, group: str) -> list[Activity]:
        """Describe the last scaling activities of a group (the first page), the latest first. Raises AwsError."""
        operation = "DescribeScalingActivities"
        page = self._call("autoscaling", operation, AutoScalingGroupName=group)
        return self._read_list(operation, page, "Activities", Activity)

    def launch_configurations(self, names: Sequence[str]) -> list[LaunchConfiguration]:
        """Describe launch configurations, in batches of 50. Configurations that do not exist are left out.

        Raises AwsError.
        """
        operation = "DescribeLaunchConfigurations"
        result: list[LaunchConfiguration] = []
        for start in range(0, len(names), _CONFIGURATIONS_PER_CALL):
            batch = list(names[start : start + _CONFIGURATIONS_PER_CALL])
            page = self._call("autoscaling", operation, LaunchConfigurationNames=batch, MaxRecords=50)
            result += self._read_list(operation, page, "LaunchConfigurations", LaunchConfiguration)
        return result

    def set_desired_capacity(self, group: str, size: int) -> None:
        """Set the target size of a group, even during the group's cooldown. Raises AwsError if the call fails."""
        self._call(
            "autoscaling", "SetDesiredCapacity", AutoScalingGroupName=group, DesiredCapacity=size, HonorCooldown=False
        )

    def terminate_instance(self, instance: str) -> str:
        """Terminate an instance, and reduce the target size of its group.

        Returns AWS's description of the activity; empty if there is none. Raises AwsError.
        """
        operation = "TerminateInstanceInAutoScalingGroup"
        page = self._call("autoscaling", operation, InstanceId=instance, ShouldDecrementDesiredCapacity=True)
        return self._read(operation, page, "Activity", Activity).description if page.get("Activity") else ""

    # -- EC2 ---------------------------------------------------------------------------------------------------------

    def launch_template_data(self, template: LaunchTemplateSpecification) -> LaunchTemplateData:
        """Describe a version of a launch template.

        Raises AwsError also if the version does not exist or is empty.
        """
        operation = "DescribeLaunchTemplateVersions"
        key = "LaunchTemplateName" if template.launch_template_name else "LaunchTemplateId"
        page = self._call("ec2", operation, **{key: template.label}, Versions=[template.version])
        versions = self._read_list(operation, page, "LaunchTemplateVersions", LaunchTemplateVersion)
        if not versions:
            raise AwsError(operation, "", f"unable to find template versions for launch template {template.label}")
        data = versions[0].launch_template_data
        if data is None:
            text = f"no data found for launch template {template.label}, version {template.version}"
            raise AwsError(operation, "", text)
        return data

    def image(self, image: str) -> list[Image]:
        """Describe a machine image: a list of one, empty if it does not exist. Raises AwsError."""
        operation = "DescribeImages"
        return self._read_list(operation, self._call("ec2", operation, ImageIds=[image]), "Images", Image)

    def first_type_for_requirements(self, images: Sequence[Image], requirements: Mapping[str, Any]) -> str:
        """Return the first instance type that meets requirements and can run an image; empty if there is none.

        Raises AwsError.
        """
        operation = "GetInstanceTypesFromInstanceRequirements"
        pages = self._pages(
            "ec2",
            operation,
            ArchitectureTypes=[each.architecture for each in images],
            VirtualizationTypes=[each.virtualization_type for each in images],
            InstanceRequirements=dict(requirements),
        )
        for page in pages:
            for item in self._read_list(operation, page, "InstanceTypes", InstanceTypeInfo):
                return item.instance_type
        return ""

    def instance_types(self, names: Sequence[str]) -> list[InstanceTypeInfo]:
        """Describe instance types, in batches of 100. Types that EC2 does not know in this region are left out.

        Raises AwsError.
        """
        operation = "DescribeInstanceTypes"
        result: list[InstanceTypeInfo] = []
        for start in range(0, len(names), _TYPES_PER_CALL):
            filters = [{"Name": "instance-type", "Values": list(names[start : start + _TYPES_PER_CALL])}]
            for page in self._pages("ec2", operation, Filters=filters):
                result += self._read_list(operation, page, "InstanceTypes", InstanceTypeInfo)
        return result

    def all_instance_types(self) -> list[Any]:
        """Describe all instance types of the region, as plain data (``aws ec2 describe-instance-types``).

        Raises AwsError.
        """
        operation = "DescribeInstanceTypes"
        return [
            item
            for page in self._pages("ec2", operation, MaxResults=100)
            for item in self._read_list(operation, page, "InstanceTypes", dict[str, Any])
        ]

    # -- EKS ---------------------------------------------------------------------------------------------------------

    def nodegroup(self, cluster: str, name: str) -> Nodegroup:
        """Describe a managed node group of EKS. Raises AwsError."""
        operation = "DescribeNodegroup"
        page = self._call("eks", operation, clusterName=cluster, nodegroupName=name)
        return self._read(operation, page, "nodegroup", Nodegroup)

    # -- calls -------------------------------------------------------------------------------------------------------

    def _service(self, service: str) -> Any:
        """Return boto3's client of a service (``ec2``), created on first use."""
        with self._lock:
            if service not in self._clients:
                override = self._overrides.get(service)
                endpoint = (
                    {} if override is None else {"endpoint_url": override.url, "region_name": override.signing_region}
                )
                self._clients[service] = self._session.client(service, config=self._config, **endpoint)
            return self._clients[service]

    def _call(self, service: str, operation: str, **parameters: Any) -> Any:
        """Call an operation and return its response as plain data.

        Raises AwsError for every failure; as AwsCredentialsError if the credentials are missing, wrong or expired.
        """
        try:
            return getattr(self._service(service), _METHODS[operation])(**parameters)
        except self._response_error as error:
            details = error.response.get("Error", {})
            code, text = str(details.get("Code", "")), str(details.get("Message") or error)
            kind = AwsCredentialsError if code in _CREDENTIAL_CODES else AwsError
            raise kind(operation, code, text) from None
        except self._failures as error:
            name = type(error).__name__
            kind = AwsCredentialsError if name in _CREDENTIAL_ERRORS else AwsError
            raise kind(operation, name, str(error)) from None

    def _pages(self, service: str, operation: str, **parameters: Any) -> Iterator[Any]:
        """Yield the pages of an operation.

        Raises AwsError if a call fails, for more than 1,000 pages, and for a repeated token.
        """
        token: str | None = None
        for _ in range(_MOST_PAGES):
            page = self._call(service, operation, **parameters, **({"NextToken": token} if token else {}))
            yield page
            previous, token = token, page.get("NextToken")
            if not token:
                return
            if token == previous:
                raise AwsError(operation, "", "the same page is announced again")
        raise AwsError(operation, "", f"more than {_MOST_PAGES:,} pages")

    def _read(self, operation: str, page: Any, member: str, type_: type[_T]) -> _T:
        """Check a member of a response and return it as ``type_``; a missing member is read as ``{}``.

        Raises AwsError if the member does not match the type.
        """
        try:
            return read_data(page.get(member, {}), type_)
        except UnreadableError as error:
            raise AwsError(operation, "UnreadableResponse", f"{member}: {error}") from None

    def _read_list(self, operation: str, page: Any, member: str, type_: type[_T]) -> list[_T]:
        """Check a list in a response and return it; empty if it is missing.

        Raises AwsError for items of another type.
        """
        return self._read(operation, {member: page.get(member) or []}, member, list[type_])  # type: ignore[valid-type]  # built at run time


_METHODS: Final = {
    "DescribeAutoScalingGroups": "describe_auto_scaling_groups",
    "DescribeImages": "describe_images",
    "DescribeInstanceTypes": "describe_instance_types",
    "DescribeLaunchConfigurations": "describe_launch_configurations",
    "DescribeLaunchTemplateVersions": "describe_launch_template_versions",
    "DescribeNodegroup": "describe_nodegroup",
    "DescribeScalingActivities": "describe_scaling_activities",
    "GetInstanceTypesFromInstanceRequirements": "get_instance_types_from_instance_requirements",
    "SetDesiredCapacity": "set_desired_capacity",
    "TerminateInstanceInAutoScalingGroup": "terminate_instance_in_auto_scaling_group",
}
"""Operation -> the method of boto3's client. These are all the permissions that the provider needs."""
