"""All node groups of a cloud at one moment, and the node group of each node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from kscale.errors import InputError, Problem
from kscale.objects.api.core import Node
from kscale.objects.nodegroup import NodeGroup, NodeTemplate, ProviderError, group_from_dict

__all__ = ["Groups", "GroupsLike", "have_equal_group_inputs", "instance_id_of"]


class Groups:
    """Node groups in the provider's order, with final sizes, nodes and templates.

    ``node_errors`` (node name -> text) has the nodes whose group the cloud cannot determine. Instances without a node
    have their ids as keys.
    """

    __slots__ = ("_asked", "_by_id", "_id_of", "_members", "node_errors")

    def __init__(self, groups: Iterable[NodeGroup] = (), node_errors: Mapping[str, str] | None = None) -> None:
        self._by_id = {group.id: group for group in groups}
        self.node_errors = dict(node_errors or {})
        self._asked: tuple[tuple[str, ...], list[str | None]] = (), []
        self._members: tuple[list[str | None], dict[str | None, list[str]]] = [], {}
        self._id_of: dict[str, str] = {}
        # The first group that names a node has it.
        for group in reversed(self._by_id.values()):
            self._id_of.update(dict.fromkeys(group.nodes, group.id))

    @classmethod
    def of(cls, groups: Groups | Iterable[NodeGroup | Mapping[str, Any]], nodes: Sequence[Node]) -> Groups:
        """Return node groups over the existing nodes; ``groups`` itself if it is a Groups object.

        A node belongs to the first group that lists it or whose ``node_selector`` matches its labels. Without a target
        size a group has as many nodes as belong to it.

        Parameters
        ----------
        groups : Groups, or iterable of NodeGroup or mapping
            Mappings have the fields of NodeGroup.
        nodes : sequence of Node

        Raises
        ------
        InputError
            If two groups have the same id, a minimum exceeds its maximum, or a ``from_node`` does not exist.
        """
        return groups if isinstance(groups, Groups) else cls(_resolve_groups(groups, nodes))

    def __repr__(self) -> str:
        sizes = ", ".join(f"{group.id}: {group.size}" for group in self)
        return f"Groups({{{sizes}}})"

    def __iter__(self) -> Iterator[NodeGroup]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._by_id

    def __getitem__(self, group_id: str) -> NodeGroup:
        return self._by_id[group_id]

    def get(self, group_id: str) -> NodeGroup | None:
        """Return a group by its id, or None."""
        return self._by_id.get(group_id)

    def with_targets(self, sizes: Mapping[str, int]) -> Groups:
        """Return the groups with other target sizes (group id -> size)."""
        result = Groups((), self.node_errors)
        result._id_of = self._id_of
        result._by_id = {
            name: replace(group, target_size=sizes[name]) if name in sizes else group
            for name, group in self._by_id.items()
        }
        return result

    def find_group_of_node(self, name: str) -> NodeGroup | None:
        """Return the group of a node; None without one. Raises :class:`ProviderError` if the cloud cannot tell."""
        group = self.id_of_node(name)
        return None if group is None else self._by_id[group]

    def ids_of_nodes(self, names: Sequence[str]) -> list[str | None]:
        """Return the group id of each node; None without a group or if the cloud cannot tell it.

        Repeated calls with the same names return the same list. Do not modify it.
        """
        names = tuple(names)
        last_names, group_ids = self._asked
        if names == last_names:
            return group_ids
        group_ids = [*map(self._id_of.get, names)]
        if self.node_errors:
            group_ids = [None if name in self.node_errors else of for name, of in zip(names, group_ids, strict=True)]
        if len(names) >= len(last_names):
            self._asked = names, group_ids
        return group_ids

    def members(self, names: Sequence[str]) -> dict[str | None, list[str]]:
        """Return the nodes by group id, as :meth:`ids_of_nodes` has it, in order.

        Do not modify the result.
        """
        group_of = self.ids_of_nodes(names)
        last_ids, by_group = self._members
        if group_of is not last_ids:
            by_group = {group: [] for group in group_of}
            for name, group in zip(names, group_of, strict=True):
                by_group[group].append(name)
            self._members = group_of, by_group
        return by_group

    def id_of_node(self, name: str) -> str | None:
        """Return the group id of a node; None without one. Raises :class:`ProviderError` if the cloud cannot tell."""
        if self.node_errors and name in self.node_errors:
            raise ProviderError(self.node_errors[name])
        return self._id_of.get(name)


def instance_id_of(node: Node) -> str:
    """Return the id of the instance behind a node: its provider id, else its name.

    Every comparison of nodes with a group's instances uses this id. A description of a group lists nodes by name, so a
    node without provider id is the instance of that name; it is registered. Upstream compares ``spec.providerID`` alone
    (``clusterstate.go``: getNotRegisteredNodes), for clouds whose instances have ids that are no node names.
    """
    return node.spec.provider_id or node.metadata.name


GroupsLike: TypeAlias = Groups | Iterable[NodeGroup | Mapping[str, Any]]
"""Node groups as a cloud tells them, or as a user describes them."""


def have_equal_group_inputs(groups: Iterable[NodeGroup], before: Sequence[Node], nodes: Sequence[Node]) -> bool:
    """Return whether :meth:`Groups.of` gives the same result for ``nodes`` as for the nodes ``before``.

    Compares names, provider ids and labels. Nodes that are the ``from_node`` of a group must be identical.
    """
    if len(before) != len(nodes):
        return False
    changed = [(old, new) for old, new in zip(before, nodes, strict=True) if old is not new]
    examples = {group.from_node for group in groups} if changed else set[str | None]()
    return all(
        old.metadata.name == new.metadata.name
        and old.spec.provider_id == new.spec.provider_id
        and old.metadata.labels == new.metadata.labels
        and new.metadata.name not in examples
        for old, new in changed
    )


def _resolve_groups(groups: Iterable[NodeGroup | Mapping[str, Any]], nodes: Sequence[Node]) -> Iterable[NodeGroup]:
    by_name = {node.metadata.name: node for node in nodes}
    labelled = _Labelled(nodes)
    assigned: set[str] = set()
    by_id: dict[str, NodeGroup] = {}
    problems: list[Problem] = []
    for number, description in enumerate(groups):
        item = _decode_group(description, number)
        where = f"NodeGroup {item.id}"
        if item.id in by_id:
            problems.append(Problem("two groups have this id", object=where, field="id"))
            continue
        if not 0 <= item.min_size <= item.max_size:
            text = f"minSize {item.min_size} and maxSize {item.max_size} exclude each other"
            problems.append(Problem(text, object=where, field="minSize"))
        if item.from_node is not None and item.from_node not in by_name:
            problems.append(Problem(f"there is no node {item.from_node}", object=where, field="fromNode"))
            continue
        members = _members(item, labelled)
        if not assigned.isdisjoint(members):
            members = [name for name in members if name not in assigned]
        assigned.update(members)
        instances = item.instances
        if instances is None:
            instance_ids = [instance_id_of(by_name[name]) for name in members if name in by_name]
            instances = [*instance_ids, *item.unregistered_instances]
        by_id[item.id] = replace(
            item,
            target_size=len(members) if item.target_size is None else item.target_size,
            nodes=members,
            node_selector=None,
            instances=instances,
            unregistered_instances=[],
            template=_template(item, by_name),
            from_node=None,
            labels=None,
            taints=[],
            capacity=None,
        )
    if problems:
        raise InputError(problems)
    return by_id.values()


def _decode_group(data: object, number: int) -> NodeGroup:
    if isinstance(data, NodeGroup):
        return data
    where = f"node group {number}"
    if not isinstance(data, Mapping):
        raise InputError(Problem(f"a NodeGroup is due, not {type(data).__name__}", object=where))
    return group_from_dict(data, where)


class _Labelled:
    """Nodes by label, for the label keys in selectors."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._by_key: dict[str, dict[str, dict[str, Mapping[str, str]]]] = {}
        """Key -> value -> node name -> its labels."""

    def with_labels(self, wanted: Mapping[str, str]) -> list[str]:
        """Return the names of the nodes that have all these labels, in order."""
        first = next(iter(wanted))
        by_value = self._by_key.get(first)
        if by_value is None:
            by_value = self._by_key[first] = {}
            for node in self._nodes:
                metadata = node.metadata
                labels = metadata.labels
                if labels and first in labels:
                    by_value.setdefault(labels[first], {})[metadata.name] = labels
        candidates = by_value.get(wanted[first], {})
        if len(wanted) == 1:
            return list(candidates)
        return [name for name, labels in candidates.items() if wanted.items() <= labels.items()]


def _members(item: NodeGroup, nodes: _Labelled) -> list[str]:
    if item.nodes:
        return item.nodes
    return nodes.with_labels(item.node_selector) if item.node_selector else []


def _template(item: NodeGroup, by_name: Mapping[str, Node]) -> NodeTemplate | None:
    """Return the described template with the group's labels, taints and capacity; None without one."""
    base = item.template
    if base is None and item.from_node is not None:
        base = NodeTemplate(node=by_name[item.from_node])
    if base is None or not (item.labels or item.taints or item.capacity):
        return base
    node = base.node
    metadata = replace(node.metadata, labels={**(node.metadata.labels or {}), **(item.labels or {})})
    own = {(taint.key, taint.effect) for taint in item.taints}
    other_taints = [taint for taint in node.spec.taints if (taint.key, taint.effect) not in own]
    status = replace(
        node.status,
        capacity={**(node.status.capacity or {}), **(item.capacity or {})},
        allocatable={**(node.status.allocatable or {}), **(item.capacity or {})},
    )
    spec = replace(node.spec, taints=[*other_taints, *item.taints])
    return replace(base, node=replace(node, metadata=metadata, spec=spec, status=status))
