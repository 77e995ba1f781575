"""Cloud provider whose node groups are EC2 Auto Scaling groups.

Upstream: ``cloudprovider/aws/aws_cloud_provider.go`` and ``aws_manager.go``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kscale.imports import lazy_pattern
from kscale.objects.api.core import Node
from kscale.objects.nodegroup import NOT_IMPLEMENTED, InstanceError, InstanceStatus, NodeGroup, ProviderError
from kscale.world.aws.auto_scaling_groups import PLACEHOLDER, UNFULFILLABLE, AutoScalingGroups, RegisteredGroup
from kscale.world.aws.templates import GPU_LABEL, GPU_TYPES
from kscale.world.nodegroups.provider import CLOUD_ERROR, Nodes, Provider

__all__ = ["AwsGroups"]

_NOT_AUTOSCALED: Final = "k8s.io/cluster-autoscaler-enabled"
_PROVIDER_ID: Final = lazy_pattern(rf"aws:///[-0-9a-z]*/[-0-9a-z]*(/[-0-9a-z.]*)?|.*aws:///[-0-9a-z]*/{PLACEHOLDER}.*")
_NO_CAPACITY: Final = InstanceStatus(
    state="creating",
    error=InstanceError(
        class_="OutOfResource",
        code=UNFULFILLABLE,
        message="AWS cannot provision any more instances for this node group",
    ),
)


class AwsGroups(Provider):
    """Auto Scaling groups of an account in one region.

    ``nodes`` returns the nodes of the cluster, which are assigned to groups by their provider IDs.
    """

    name = "aws"
    gpu_label = GPU_LABEL
    gpu_types = GPU_TYPES

    def __init__(self, groups: AutoScalingGroups, nodes: Nodes) -> None:
        self._groups = groups
        self._nodes = nodes
        self._built: dict[str, tuple[tuple[Any, ...], NodeGroup]] = {}

    def refresh(self) -> Sequence[NodeGroup]:
        """Return the groups. AWS is read at most once a minute, and after a deletion. Raises ProviderError."""
        registered = self._groups.refresh()
        members: dict[str, list[str]] = {}
        for node in self._nodes():
            group = self._groups.group_of_instance(node.spec.provider_id or "")
            if group is not None:
                members.setdefault(group.name, []).append(node.name)
        self._built = {group.name: self._build(group, members.get(group.name, [])) for group in registered}
        return [group for _, group in self._built.values()]

    def _build(self, group: RegisteredGroup, members: list[str]) -> tuple[tuple[Any, ...], NodeGroup]:
        """Return (inputs, NodeGroup) of a group: the tuple of the previous refresh if the inputs are the same.

        ``members``: names of the group's nodes.
        """
        inputs = (
            group.minimum, group.maximum, group.size, group.instances, members,
            group.template, group.template_error, group.options,
        )  # fmt: skip
        previous = self._built.get(group.name)
        return previous if previous is not None and previous[0] == inputs else (inputs, _build_group(group, members))

    def has_instance(self, node: Node) -> bool:
        """Return True if the instance of a node exists; placeholders count.

        Returns False for a node with the annotation ``k8s.io/cluster-autoscaler-enabled: false``. Raises ProviderError
        if it is not known whether the instance exists: for a Fargate node, a provider ID that is not AWS's, and an
        instance without a health status or of no known group.
        """
        if node.name.startswith("fargate"):
            raise ProviderError(NOT_IMPLEMENTED)
        if (node.metadata.annotations or {}).get(_NOT_AUTOSCALED) == "false":
            return False
        id_ = _check_provider_id(node)
        instance = self._groups.instance(id_)
        if instance is None or instance.health_status is None:
            raise ProviderError(f"node is not present in aws: could not find instance {id_}", CLOUD_ERROR)
        return True

    def increase_size(self, group: str, delta: int, *, atomic: bool = False) -> None:
        """Increase the target size by ``delta``.

        Raises ProviderError if the group is unknown, ``delta`` is not positive, the maximum size would be exceeded, AWS
        refuses, or ``atomic`` is set.
        """
        if atomic:
            raise ProviderError(NOT_IMPLEMENTED)
        self._groups.increase_size(group, delta)

    def decrease_target_size(self, group: str, delta: int) -> None:
        """Reduce the target size by ``delta`` (negative).

        Raises ProviderError if the group is unknown here or at AWS, ``delta`` is not negative, there are more instances
        and placeholders than the new size, or AWS refuses.
        """
        self._groups.decrease_size(group, delta)

    def delete_nodes(self, group: str, nodes: Sequence[Node], *, force: bool = False) -> None:
        """Terminate the instances of nodes, and reduce the target size.

        If there are placeholders among them, the target size first becomes the number of instances that AWS reports.
        Instances that terminate already are left alone. Raises ProviderError for an unknown group, at the minimum size,
        for a node of another group or with a provider ID that is not AWS's, if AWS refuses, or if ``force`` is set.
        """
        if force:
            raise ProviderError(NOT_IMPLEMENTED)
        self._groups.delete_instances(group, [(node.name, _check_provider_id(node)) for node in nodes])


def _check_provider_id(node: Node) -> str:
    """Return the provider ID of a node. Raises ProviderError if it does not have AWS's form."""
    id_ = node.spec.provider_id or ""
    if not _PROVIDER_ID.fullmatch(id_):
        raise ProviderError(f"wrong id: expected format aws:///<zone>/<name>, got {id_}", CLOUD_ERROR)
    return id_


def _build_group(group: RegisteredGroup, members: list[str]) -> NodeGroup:
    """Build the NodeGroup. ``members``: names of its nodes.

    Placeholders for instances that AWS could not create have an error of missing capacity.
    """
    return NodeGroup(
        id=group.name,
        min_size=group.minimum,
        max_size=group.maximum,
        target_size=group.size,
        nodes=members,
        instances=list(group.instances),
        instance_status={
            id_: _NO_CAPACITY for id_, each in group.instances.items() if each.health_status == UNFULFILLABLE
        },
        template=group.template,
        template_error=group.template_error,
        options=group.options,
    )
