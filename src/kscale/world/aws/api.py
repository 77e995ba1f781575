"""Structs of the responses of EC2 Auto Scaling, EC2 and EKS: only the fields that kscale reads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import msgspec

from kscale.objects.api.meta import Int32, Int64

__all__ = [
    "Activity",
    "AutoScalingGroup",
    "GroupInstance",
    "Image",
    "InstanceTypeInfo",
    "LaunchConfiguration",
    "LaunchTemplateData",
    "LaunchTemplateSpecification",
    "MixedInstancesPolicy",
    "Nodegroup",
    "Tag",
]


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class AwsStruct(msgspec.Struct, kw_only=True, rename="pascal", frozen=True, gc=False):
    """Part of a response; unknown fields are ignored."""


class Tag(AwsStruct, frozen=True):
    """Tag of a group."""

    key: str = ""
    value: str = ""


class LaunchTemplateSpecification(AwsStruct, frozen=True):
    """Launch template of a group. No version means the default version."""

    launch_template_id: str = ""
    launch_template_name: str = ""
    version: str = "$Default"

    @property
    def label(self) -> str:
        """Return the template's name for messages, or its ID if the response has no name."""
        return self.launch_template_name or self.launch_template_id


class LaunchTemplateOverrides(AwsStruct, frozen=True):
    """One override of a mixed instances policy: a type, or requirements that types have to meet."""

    instance_type: str | None = None
    instance_requirements: dict[str, Any] | None = None


class PolicyLaunchTemplate(AwsStruct, frozen=True):
    """Launch template of a mixed instances policy with its overrides."""

    launch_template_specification: LaunchTemplateSpecification | None = None
    overrides: tuple[LaunchTemplateOverrides, ...] = ()


class MixedInstancesPolicy(AwsStruct, frozen=True):
    """Mixed instances policy of a group."""

    launch_template: PolicyLaunchTemplate = PolicyLaunchTemplate()

    @property
    def specification(self) -> LaunchTemplateSpecification | None:
        """Return the launch template that the policy names, or None."""
        return self.launch_template.launch_template_specification

    @property
    def instance_types(self) -> list[str]:
        """Return the instance types of the overrides; overrides with requirements are left out."""
        return [each.instance_type for each in self.launch_template.overrides if each.instance_type is not None]

    @property
    def requirements(self) -> dict[str, Any] | None:
        """Return the requirements of the only override; None with several overrides, as upstream."""
        overrides = self.launch_template.overrides
        return overrides[0].instance_requirements if len(overrides) == 1 else None


class GroupInstance(AwsStruct, frozen=True):
    """Instance of a group; a placeholder has an ID that begins with ``i-placeholder``."""

    instance_id: str
    availability_zone: str = ""
    lifecycle_state: str = ""
    health_status: str | None = None

    @property
    def provider_id(self) -> str:
        """Return the provider ID of the node: ``aws:///ZONE/ID``."""
        return f"aws:///{self.availability_zone}/{self.instance_id}"


class SuspendedProcess(AwsStruct, frozen=True):
    """Process of a group that somebody suspended."""

    process_name: str = ""


class AutoScalingGroup(AwsStruct, frozen=True):
    """An Auto Scaling group with its instances."""

    auto_scaling_group_name: str
    min_size: Int32 = 0
    max_size: Int32 = 0
    desired_capacity: Int32 = 0
    availability_zones: list[str] = []
    instances: list[GroupInstance] = []
    launch_configuration_name: str = ""
    launch_template: LaunchTemplateSpecification | None = None
    mixed_instances_policy: MixedInstancesPolicy | None = None
    tags: list[Tag] = []
    suspended_processes: list[SuspendedProcess] = []

    @property
    def name(self) -> str:
        """Return the group's name."""
        return self.auto_scaling_group_name


class Activity(AwsStruct, frozen=True):
    """Scaling activity of a group."""

    start_time: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    status_code: str = ""
    status_message: str = ""
    description: str = ""

    @property
    def started(self) -> int | None:
        """Return the start in nanoseconds since 1970; None if it is unknown."""
        if self.start_time is None:
            return None
        return (self.start_time - _EPOCH) // timedelta(microseconds=1) * 1000


class LaunchConfiguration(AwsStruct, frozen=True):
    """Launch configuration."""

    launch_configuration_name: str
    instance_type: str = ""


class LaunchTemplateData(AwsStruct, frozen=True):
    """Content of a version of a launch template."""

    instance_type: str = ""
    image_id: str | None = None
    instance_requirements: dict[str, Any] | None = None


class LaunchTemplateVersion(AwsStruct, frozen=True):
    """Version of a launch template."""

    launch_template_data: LaunchTemplateData | None = None


class Image(AwsStruct, frozen=True):
    """Machine image."""

    architecture: str = ""
    virtualization_type: str = ""


class VCpuInfo(AwsStruct, frozen=True):
    """Virtual processors of an instance type."""

    default_vcpus: Int32 = msgspec.field(name="DefaultVCpus", default=0)


class MemoryInfo(AwsStruct, frozen=True):
    """Memory of an instance type."""

    size_in_mib: Int64 = msgspec.field(name="SizeInMiB", default=0)


class GpuDeviceInfo(AwsStruct, frozen=True):
    """Kind of GPU of an instance type."""

    count: Int32 = 0


class GpuInfo(AwsStruct, frozen=True):
    """GPUs of an instance type."""

    gpus: list[GpuDeviceInfo] = []


class ProcessorInfo(AwsStruct, frozen=True):
    """Processor of an instance type."""

    supported_architectures: list[str] = []


class InstanceTypeInfo(AwsStruct, frozen=True):
    """Instance type of EC2."""

    instance_type: str
    v_cpu_info: VCpuInfo = VCpuInfo()
    memory_info: MemoryInfo = MemoryInfo()
    gpu_info: GpuInfo = GpuInfo()
    processor_info: ProcessorInfo = ProcessorInfo()


class NodegroupTaint(msgspec.Struct, kw_only=True, frozen=True):
    """Taint of a managed node group, with EKS's name of its effect."""

    key: str | None = None
    value: str | None = None
    effect: str = ""


class Nodegroup(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Managed node group of EKS."""

    nodegroup_name: str = ""
    version: str = ""
    disk_size: Int32 | None = None
    ami_type: str = ""
    capacity_type: str = ""
    labels: dict[str, str] = {}
    tags: dict[str, str] = {}
    taints: list[NodegroupTaint] = []
