"""Containers, what they ask for and what became of them."""

# Annotations are values here: msgspec makes decoders of them, and a text would have to be compiled first.

from typing import Any

import msgspec

from kscale.objects.base import ApiStruct, Int32, ResourceList

__all__ = [
    "Container",
    "ContainerPort",
    "ContainerResizePolicy",
    "ContainerRestartRule",
    "ContainerState",
    "ContainerStateTerminated",
    "ContainerStatus",
    "EnvVar",
    "ResourceClaimRef",
    "ResourceRequirements",
    "VolumeMount",
]


class ResourceClaimRef(ApiStruct):
    """A container's use of one of the pod's resource claims."""

    name: str = ""
    request: str = ""


class ResourceRequirements(ApiStruct):
    """Requests and limits; an absent map and an empty one differ in statuses."""

    requests: ResourceList | None = None
    limits: ResourceList | None = None
    claims: list[ResourceClaimRef] = []


class ContainerPort(ApiStruct):
    """A port of a container; ``host_port`` 0 = none."""

    name: str = ""
    container_port: Int32 = 0
    host_port: Int32 = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""


class VolumeMount(ApiStruct):
    """Where a volume appears in a container."""

    name: str = ""
    mount_path: str = ""
    read_only: bool = False
    sub_path: str = ""
    bind_mount_options: list[str] = []


class ContainerResizePolicy(ApiStruct):
    """What resizing a resource in place does to the container."""

    resource_name: str = ""
    restart_policy: str = ""


class ContainerRestartRule(ApiStruct):
    """What to do when the container exits in a certain way."""

    action: str = ""
    exit_codes: dict[str, Any] | None = None


class EnvVar(ApiStruct):
    """An environment variable. Values may be secrets: never print them."""

    name: str = ""
    value: str = ""
    value_from: dict[str, Any] | None = None


class Container(ApiStruct):
    """A container; an init container with restart policy ``Always`` is a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = msgspec.field(default_factory=ResourceRequirements)
    ports: list[ContainerPort] = []
    env: list[EnvVar] = []
    volume_mounts: list[VolumeMount] = []
    resize_policy: list[ContainerResizePolicy] = []
    restart_policy: str | None = None
    restart_policy_rules: list[ContainerRestartRule] = []


class ContainerStateTerminated(ApiStruct):
    """How a container ended."""

    exit_code: Int32 = 0
    signal: Int32 = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(ApiStruct):
    """The state of a container: one of the three."""

    waiting: dict[str, Any] | None = None
    running: dict[str, Any] | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(ApiStruct):
    """What the kubelet says about a container; ``resources`` and ``allocated_resources`` serve in-place resize."""

    name: str = ""
    image: str = ""
    ready: bool = False
    started: bool | None = None
    restart_count: Int32 = 0
    state: ContainerState = msgspec.field(default_factory=ContainerState)
    last_state: ContainerState = msgspec.field(default_factory=ContainerState)
    allocated_resources: ResourceList | None = None
    resources: ResourceRequirements | None = None
