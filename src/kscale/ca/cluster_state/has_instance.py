"""Whether a node still has its machine (``HasInstance``, ``getCloudProviderDeletedNodes``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kscale.ca.nodes import TO_BE_DELETED_TAINT, has_taint
from kscale.objects.core import Node

__all__ = ["without_instance"]


def without_instance(
    nodes: Sequence[Node], names: Sequence[str], odd: Collection[int], has_instance: Mapping[str, bool]
) -> set[int]:
    """Positions of the nodes whose machine is gone: as the provider says; of a node of which it says nothing, if it
    has the taint ``ToBeDeletedByClusterAutoscaler``.

    ``odd``: the positions of those that are not simply ready (:func:`kscale.ca.nodes.is_simply_ready`);
    ``has_instance``: the provider's answers by node name.
    """
    gone = {i for i in odd if names[i] not in has_instance and has_taint(nodes[i], TO_BE_DELETED_TAINT)}
    if not all(has_instance.values()):
        gone.update(i for i, name in enumerate(names) if not has_instance.get(name, True))
    return gone
