"""Node groups that stand in a file: for a dry run in front of a cloud that kscale does not speak to."""

from __future__ import annotations

from collections.abc import Sequence

from kscale.objects.nodegroup import NodeGroup
from kscale.objects.nodegroups import Groups
from kscale.world.nodegroups.provider import Nodes, Provider

__all__ = ["StaticGroups"]


class StaticGroups(Provider):
    """Groups as a user describes them, over the nodes that there are; they cannot be changed (``Not implemented``).

    ``refresh`` raises :class:`~kscale.InputError` for groups that exclude each other.
    """

    name = "static"

    def __init__(self, groups: Sequence[NodeGroup], nodes: Nodes, *, gpu_label: str = "") -> None:
        self._groups = groups
        self._nodes = nodes
        self.gpu_label = gpu_label

    def refresh(self) -> Sequence[NodeGroup]:
        """The groups, sorted out over the nodes that there are now."""
        return list(Groups.of(self._groups, self._nodes()))
