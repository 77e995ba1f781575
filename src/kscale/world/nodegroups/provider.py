"""What a cloud may leave out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from kscale.effects import GetPrices, Prices
from kscale.objects.core import Node
from kscale.objects.nodegroup import NOT_IMPLEMENTED, NodeGroup, ProviderError
from kscale.objects.nodegroups import Groups

__all__ = ["CLOUD_ERROR", "Nodes", "Provider"]

CLOUD_ERROR = "cloudProviderError"
"""The type of an error of a cloud."""

Nodes = Callable[[], Sequence[Node]]
"""The nodes of the cluster as they were when the loop began: what a provider sorts into its groups."""


class Provider:
    """A base for a cloud in Python: a subclass has ``name`` and the methods of
    :class:`kscale.world.protocols.NodeGroups` that it can answer; the others refuse, as upstream's do.

    ``group`` is the id of a group, ``delta`` a number of nodes (negative where the target falls). A method that cannot
    do what it is asked raises :class:`kscale.objects.nodegroup.ProviderError`; the loop backs off as upstream's does.
    """

    name = ""
    gpu_label = ""
    gpu_types: Collection[str] = ()
    """The types of GPU that the cloud has (upstream's ``GetAvailableGPUTypes``); metrics name no others."""

    def refresh(self) -> Groups | Sequence[NodeGroup]:
        """Looks at the cloud anew, and tells its groups as they are now."""
        raise NotImplementedError(f"{type(self).__name__} does not tell its groups")

    def has_instance(self, node: Node) -> bool:
        """Whether the machine of a node still runs."""
        raise ProviderError(NOT_IMPLEMENTED)

    def prices(self, question: GetPrices) -> Prices:
        """What nodes and pods cost in the time of a ``question``."""
        raise ProviderError(NOT_IMPLEMENTED)

    def increase_size(self, group: str, delta: int, *, atomic: bool = False) -> None:
        """Raises the target size of ``group`` by ``delta``; ``atomic``: all of it or nothing."""
        raise ProviderError(NOT_IMPLEMENTED)

    def decrease_target_size(self, group: str, delta: int) -> None:
        """Lowers the target size of ``group`` by ``delta`` (negative) without deleting nodes."""
        raise ProviderError(NOT_IMPLEMENTED)

    def delete_nodes(self, group: str, nodes: Sequence[Node], *, force: bool = False) -> None:
        """Deletes nodes of ``group`` and lowers the target size with them; ``force``: also below its minimum size and
        the like."""
        raise ProviderError(NOT_IMPLEMENTED)

    def create_group(self, group: str, *, asynchronous: bool = False) -> Sequence[NodeGroup]:
        """Makes a group; ``asynchronous``: it may come later. What was made: that group first."""
        raise ProviderError(NOT_IMPLEMENTED)

    def delete_group(self, group: str) -> None:
        """Removes a group (``group``)."""
        raise ProviderError(NOT_IMPLEMENTED)

    def close(self) -> None:
        """Lets go of connections."""
