"""What actions ask of a cloud, whichever the world is (:class:`~kscale.world.protocols.NodeGroups`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from kscale.effects import (
    Action,
    CreatedGroups,
    CreateGroup,
    DecreaseTargetSize,
    DeleteGroup,
    DeleteNodes,
    GetPrices,
    HasInstances,
    IncreaseSize,
    Refresh,
)
from kscale.objects.core import Node, NodeSpec
from kscale.objects.meta import KubeObject, ObjectMeta
from kscale.objects.nodegroup import ProviderError
from kscale.objects.nodegroups import Groups
from kscale.world.protocols import NodeGroups

__all__ = ["ask_cloud", "nodes_named"]


def ask_cloud(groups: NodeGroups, action: Action, nodes: Sequence[Node] = ()) -> Any:
    """The value of the action's outcome. ``nodes``: those that it names, where it names any (:func:`nodes_named`).

    Raises :class:`~kscale.objects.nodegroup.ProviderError` for what the cloud refuses, and TypeError for an action that
    asks nothing of a cloud.
    """
    match action:
        case Refresh():
            told = groups.refresh()
            return told if isinstance(told, Groups) else list(told)
        case HasInstances():
            found = {}
            for node in nodes:
                with suppress(ProviderError):  # where the cloud fails to tell it says nothing
                    found[node.name] = groups.has_instance(node)
            return found
        case GetPrices():
            return groups.prices(action)
        case IncreaseSize(group=group, delta=delta, atomic=atomic):
            return groups.increase_size(group, delta, atomic=atomic)
        case DecreaseTargetSize(group=group, delta=delta):
            return groups.decrease_target_size(group, delta)
        case DeleteNodes(group=group, force=force):
            return groups.delete_nodes(group, nodes, force=force)
        case CreateGroup(group=group, asynchronous=asynchronous):
            main, *extra = groups.create_group(group, asynchronous=asynchronous)
            return CreatedGroups(main=main, extra=tuple(extra))
        case DeleteGroup(group=group):
            return groups.delete_group(group)
    raise TypeError(f"this world cannot carry out {type(action).__name__}")


def nodes_named(action: HasInstances | DeleteNodes, known: Mapping[str, KubeObject]) -> list[Node]:
    """The nodes that an action names: as it holds them, else as they are ``known`` now; of an instance that is none,
    what is known: its id."""
    held = {node.name: node for node in action.objects} if isinstance(action, DeleteNodes) else {}
    found = []
    for name in action.nodes:
        node = held.get(name) or known.get(name)
        if not isinstance(node, Node):
            node = Node(metadata=ObjectMeta(name=name), spec=NodeSpec(provider_id=name))
        found.append(node)
    return found
