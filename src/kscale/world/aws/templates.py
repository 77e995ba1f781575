"""Rules for new nodes of an Auto Scaling group: labels, taints, resources and options from tags, and the node template.

Everything here is a pure function of data that AWS returned.

Upstream: ``cloudprovider/aws/aws_manager.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kscale.imports import lazy_pattern
from kscale.objects.api.core import Node, NodeSpec, NodeStatus, Taint
from kscale.objects.api.meta import Condition, ObjectMeta, ResourceList
from kscale.objects.go_numbers import parse_bool, parse_float
from kscale.objects.nodegroup import NodeGroupOptions, NodeTemplate
from kscale.objects.quantity import Quantity, QuantityError
from kscale.objects.times import parse_duration
from kscale.world.aws.api import InstanceTypeInfo, Nodegroup
from kscale.world.nodegroups.provider import kube_proxy

__all__ = [
    "GPU_LABEL",
    "GPU_TYPES",
    "LABEL_TAG",
    "OPTIONS_TAG",
    "RESOURCES_TAG",
    "TAINT_TAG",
    "MachineType",
    "ManagedNodegroup",
    "build_template",
    "labels_from_tags",
    "machine_type_from",
    "managed_nodegroup_from",
    "managed_nodegroup_name",
    "node_group_options",
    "options_from_tags",
    "requirements_request",
    "resources_from_tags",
    "taints_from_tags",
]

GPU_LABEL: Final = "k8s.amazonaws.com/accelerator"
GPU_TYPES: Final = (
    "nvidia-tesla-k80", "nvidia-tesla-p100", "nvidia-tesla-v100", "nvidia-tesla-t4", "nvidia-tesla-a100",
    "nvidia-a10g", "nvidia-l4", "nvidia-l40s",
)  # fmt: skip
_TAGS: Final = "k8s.io/cluster-autoscaler/node-template/"
LABEL_TAG: Final = f"{_TAGS}label/"
TAINT_TAG: Final = f"{_TAGS}taint/"
RESOURCES_TAG: Final = f"{_TAGS}resources/"
OPTIONS_TAG: Final = f"{_TAGS}autoscaling-options/"
_EKS_TAG: Final = "eks:"
_GPU_RESOURCE: Final = "nvidia.com/gpu"
_PODS: Final = 110
_MIB: Final = 1 << 20
_ZONE_LABEL: Final = "topology.ebs.csi.aws.com/zone"
_TAINT_VALUE: Final = lazy_pattern("(.*):(?:NoSchedule|NoExecute|PreferNoSchedule)")


@dataclass(frozen=True, slots=True)
class MachineType:
    """Instance type as upstream's templates use it: cores, MiB, GPUs and the Kubernetes architecture."""

    name: str
    vcpus: int
    memory_mib: int
    gpus: int = 0
    architecture: str = "amd64"


def machine_type_from(info: InstanceTypeInfo) -> MachineType:
    """Convert EC2's description of an instance type. GPUs of all kinds are added up.

    The architecture is ``arm64`` if the first one is, ``amd64`` for any other, and empty if there is none.
    """
    architectures = info.processor_info.supported_architectures
    return MachineType(
        name=info.instance_type,
        vcpus=info.v_cpu_info.default_vcpus,
        memory_mib=info.memory_info.size_in_mib,
        gpus=sum(gpu.count for gpu in info.gpu_info.gpus),
        # Without any architecture upstream's label is empty.
        architecture="" if not architectures else "arm64" if architectures[0] == "arm64" else "amd64",
    )


# -- tags --------------------------------------------------------------------------------------------------------------

Tags = Mapping[str, str]


def _name_in(key: str, prefix: str) -> str:
    """Return the part of a tag's key between the first and the second ``prefix``; empty if there is none."""
    parts = key.split(prefix)
    return parts[1] if len(parts) > 1 else ""


def labels_from_tags(tags: Tags) -> dict[str, str]:
    """Return the labels of new nodes: from label tags, and from EKS's own tags (``eks:NAME``)."""
    labels: dict[str, str] = {}
    for key, value in tags.items():
        if label := _name_in(key, LABEL_TAG if LABEL_TAG in key else _EKS_TAG):
            labels[label] = value
    return labels


def resources_from_tags(tags: Tags) -> ResourceList:
    """Return the resources of new nodes from resource tags. A value that is not a quantity is ignored."""
    resources: ResourceList = {}
    for key, value in tags.items():
        if name := _name_in(key, RESOURCES_TAG):
            try:
                resources[name] = Quantity(value)
            except QuantityError:
                continue
    return resources


def taints_from_tags(tags: Tags) -> list[Taint]:
    """Return the taints of new nodes from taint tags, whose values are ``VALUE:EFFECT``. Other values are ignored.

    The value ends at the first colon, and the effect is all that follows.
    """
    taints = []
    for key, value in tags.items():
        parts = key.split(TAINT_TAG)
        if len(parts) > 1 and _TAINT_VALUE.search(value):
            taint_value, _, effect = value.partition(":")
            taints.append(Taint(key=parts[1], value=taint_value, effect=effect))
    return taints


def options_from_tags(tags: Tags) -> dict[str, str]:
    """Return the group's own options as texts by option name (``scaledownunneededtime``)."""
    options: dict[str, str] = {}
    for key, value in tags.items():
        parts = key.split(OPTIONS_TAG)
        if key.startswith(OPTIONS_TAG) and len(parts) == 2 and parts[1]:
            options[parts[1]] = value
    return options


def _read_seconds(text: str) -> float:
    """Parse a duration (``10m``) into seconds. Raises ValueError."""
    return parse_duration(text) / 1e9


_OPTION_FIELDS: Final[dict[str, tuple[str, str, Callable[[str], Any]]]] = {
    "scaledownutilizationthreshold": ("scale_down_utilization_threshold", "float", parse_float),
    "scaledowngpuutilizationthreshold": ("scale_down_gpu_utilization_threshold", "float", parse_float),
    "scaledownunneededtime": ("scale_down_unneeded_time", "duration", _read_seconds),
    "scaledownunreadytime": ("scale_down_unready_time", "duration", _read_seconds),
    "ignoredaemonsetsutilization": ("ignore_daemon_sets_utilization", "bool", parse_bool),
}
"""Options that upstream reads from tags. All other names are ignored."""


def node_group_options(options: Mapping[str, str], group: str, warnings: list[str]) -> NodeGroupOptions | None:
    """Return the group's options; None if no tag sets one. Unknown option names are ignored.

    A value that cannot be read is ignored, too, and a message about it is appended to ``warnings``.
    """
    values: dict[str, Any] = {}
    for key, (field, kind, read) in _OPTION_FIELDS.items():
        if (text := options.get(key)) is None:
            continue
        try:
            values[field] = read(text)
        except ValueError as error:
            warnings.append(f"failed to convert asg {group} {key} tag to {kind}: {error}")
    return NodeGroupOptions(**values) if values else None


# -- managed node groups -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ManagedNodegroup:
    """Labels, taints and tags that EKS gives the nodes of a managed node group."""

    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    tags: Mapping[str, str]


_EFFECTS: Final = {
    "NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule",
}  # fmt: skip


def managed_nodegroup_from(nodegroup: Nodegroup) -> ManagedNodegroup:
    """Convert EKS's description of a managed node group. Taints without key or value are left out.

    The labels are those of the group, and labels for its name, version, disk size, image type and capacity type.

    Raises ValueError if a taint has an unknown effect.
    """
    labels = {
        "diskSize": "" if nodegroup.disk_size is None else str(nodegroup.disk_size),
        "amiType": nodegroup.ami_type,
        "eks.amazonaws.com/capacityType": nodegroup.capacity_type,
        "k8sVersion": nodegroup.version,
        "eks.amazonaws.com/nodegroup": nodegroup.nodegroup_name,
    }
    labels = {label: value for label, value in labels.items() if value}
    taints = []
    for taint in nodegroup.taints:
        if taint.key is None or taint.value is None:
            continue
        if taint.effect not in _EFFECTS:
            text = f"couldn't translate EKS DescribeNodegroup response taint {taint.effect} into Kubernetes format"
            raise ValueError(text)
        taints.append(Taint(key=taint.key, value=taint.value, effect=_EFFECTS[taint.effect]))
    return ManagedNodegroup({**labels, **nodegroup.labels}, tuple(taints), nodegroup.tags)


def managed_nodegroup_name(tags: Tags) -> tuple[str, str] | None:
    """Return the (cluster, name) of the managed node group behind a group; None if it is not one."""
    labels = labels_from_tags(tags)
    cluster, name = labels.get("cluster-name", ""), labels.get("nodegroup-name", "")
    return (cluster, name) if cluster and name else None


# -- node templates ----------------------------------------------------------------------------------------------------


def build_template(
    group: str,
    zone: str,
    machine: MachineType,
    tags: Tags,
    *,
    requirements: Mapping[str, Any] | None = None,
    managed: ManagedNodegroup | None = None,
) -> NodeTemplate:
    """Build the template of new nodes of a group that has no node to copy.

    The template has a ready node, and kube-proxy as its only pod.

    Parameters
    ----------
    group : str
        Name of the group.
    zone : str
        First availability zone of the group. The region is the zone without its last letter.
    machine : MachineType
        Instance type.
    tags : mapping
        Tags of the group.
    requirements : mapping, optional
        InstanceRequirements of a mixed instances policy without instance types. Their minimum CPU, memory and GPUs
        replace those of ``machine``.
    managed : ManagedNodegroup, optional
        The EKS managed node group. Its labels and capacity override those from ``tags``; its taints are added.

    Notes
    -----
    Differences from upstream: the node name ends in 0, not in a random number, and a minimum memory of 2 GiB or more
    does not overflow (upstream multiplies it as an int32).
    """
    name = f"{group}-asg-0"
    capacity: ResourceList = {
        "pods": Quantity.from_int(_PODS),
        "cpu": Quantity.from_int(machine.vcpus),
        _GPU_RESOURCE: Quantity.from_int(machine.gpus),
        "memory": Quantity.from_int(machine.memory_mib * _MIB),
    }
    capacity |= _required_minima(requirements or {})
    capacity |= resources_from_tags(tags)
    labels = {
        "kubernetes.io/arch": machine.architecture,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": machine.name,
        "topology.kubernetes.io/region": zone[:-1],
        "topology.kubernetes.io/zone": zone,
        _ZONE_LABEL: zone,
        "kubernetes.io/hostname": name,
    }
    labels |= labels_from_tags(tags)
    taints = taints_from_tags(tags)
    if managed is not None:
        labels |= managed.labels
        taints += managed.taints
        capacity |= resources_from_tags(managed.tags)
    node = Node(
        metadata=ObjectMeta(name=name, labels=labels),
        spec=NodeSpec(taints=taints),
        status=NodeStatus(
            capacity=capacity, allocatable=dict(capacity), conditions=[Condition(type="Ready", status="True")]
        ),
    )
    return NodeTemplate(node=node, pods=[kube_proxy(group)])


def _required_minima(requirements: Mapping[str, Any]) -> ResourceList:
    """Return the minima of CPU, memory and NVIDIA GPUs that instance requirements contain."""
    minima: ResourceList = {}
    for member, resource, unit in (("VCpuCount", "cpu", 1), ("MemoryMiB", "memory", _MIB)):
        if (amount := _minimum(requirements, member)) is not None:
            minima[resource] = Quantity.from_int(amount * unit)
    makers, kinds = (requirements.get(key) or () for key in ("AcceleratorManufacturers", "AcceleratorTypes"))
    if "nvidia" in makers and "gpu" in kinds and (amount := _minimum(requirements, "AcceleratorCount")) is not None:
        minima[_GPU_RESOURCE] = Quantity.from_int(amount)
    return minima


def _minimum(requirements: Mapping[str, Any], member: str) -> int | None:
    """Return the minimum of a range in requirements; None if it is absent or no integer (upstream panics)."""
    limits = requirements.get(member)
    amount = limits.get("Min") if isinstance(limits, Mapping) else None
    return amount if isinstance(amount, int) and not isinstance(amount, bool) else None


_REQUEST_MEMBERS: Final = (
    "MemoryMiB", "VCpuCount", "AcceleratorCount", "AcceleratorManufacturers", "AcceleratorNames",
    "AcceleratorTotalMemoryMiB", "AcceleratorTypes", "BareMetal", "BaselineEbsBandwidthMbps", "BurstablePerformance",
    "CpuManufacturers", "ExcludedInstanceTypes", "InstanceGenerations", "LocalStorage", "LocalStorageTypes",
    "MemoryGiBPerVCpu", "NetworkInterfaceCount", "OnDemandMaxPricePercentageOverLowestPrice", "RequireHibernateSupport",
    "SpotMaxPricePercentageOverLowestPrice", "TotalLocalStorageGB",
)  # fmt: skip


def requirements_request(requirements: Mapping[str, Any]) -> dict[str, Any]:
    """Return the instance requirements to send to EC2: only the members that upstream sends.

    Members that are None or an empty string are left out.
    """
    return {name: requirements[name] for name in _REQUEST_MEMBERS if requirements.get(name) not in (None, "")}
