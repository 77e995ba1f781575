"""The cloud provider's node groups as one decision sees them: answers already given, errors included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from kscale.ca.errors import NOT_IMPLEMENTED, AutoscalerError, is_not_implemented
from kscale.ca.options import NodeGroupAutoscalingOptions
from kscale.errors import InputError, Problem
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeGroup, NodeGroupOptions, NodeTemplate

__all__ = ["Group", "Groups", "InstanceError", "InstanceStatus", "groups_of", "options_of"]

_Value = TypeVar("_Value", float, bool)


class InstanceError(msgspec.Struct, kw_only=True, frozen=True):
    """Why the cloud did not make an instance: ``class_`` is ``OutOfResource`` or ``Other``."""

    class_: str
    code: str
    message: str = ""


class InstanceStatus(msgspec.Struct, kw_only=True, frozen=True):
    """State of an instance: ``running``, ``creating`` or ``deleting``."""

    state: str = "running"
    error: InstanceError | None = None


class Group(msgspec.Struct, kw_only=True):
    """One node group. An ``..._error`` text says that the provider failed to answer that question.

    - ``nodes``: names of the nodes that belong to it; ``instances``: provider ids of what the cloud runs for it.
    - ``instance_status``: by provider id, for instances whose state is not simply running.
    - ``template``: what ``TemplateNodeInfo`` returns; with neither it nor an error the provider does not implement it.
    - ``options``: None = the group has none of its own; the defaults hold.
    - ``price``: of one node for one hour, if it is known.
    - ``exists``: False for a candidate of node auto-provisioning; ``async_upcoming``: being created.
    """

    id: str
    min_size: int = 0
    max_size: int = 0
    target_size: int = 0
    target_size_error: str | None = None
    nodes: list[str] = []
    instances: list[str] = []
    instance_status: dict[str, InstanceStatus] = {}
    template: NodeTemplate | None = None
    template_error: str | None = None
    options: NodeGroupAutoscalingOptions | None = None
    options_error: str | None = None
    exists: bool = True
    autoprovisioned: bool = False
    async_upcoming: bool = False
    price: float | None = None

    def options_or(self, defaults: NodeGroupAutoscalingOptions) -> NodeGroupAutoscalingOptions:
        """The group's options, or the defaults. Raises :class:`AutoscalerError` (of no type) if the look-up fails.

        An error that says ``Not implemented`` counts as having none.
        """
        if self.options_error is not None and not is_not_implemented(self.options_error):
            raise AutoscalerError("", self.options_error)
        return self.options if self.options is not None and self.options_error is None else defaults

    @property
    def node_template(self) -> NodeTemplate:
        """``TemplateNodeInfo()``. Raises :class:`AutoscalerError` (of no type) if there is none."""
        if self.template is None or self.template_error is not None:
            raise AutoscalerError("", self.template_error if self.template_error is not None else NOT_IMPLEMENTED)
        return self.template


def _seconds(value: float | None, default: timedelta) -> timedelta:
    return default if value is None else timedelta(seconds=value)


def options_of(given: NodeGroupOptions, defaults: NodeGroupAutoscalingOptions) -> NodeGroupAutoscalingOptions:
    """The options of a groups file, which name only what differs, on top of the defaults."""

    def pick(value: _Value | None, default: _Value) -> _Value:
        return default if value is None else value

    return NodeGroupAutoscalingOptions(
        scale_down_utilization_threshold=pick(
            given.scale_down_utilization_threshold, defaults.scale_down_utilization_threshold
        ),
        scale_down_gpu_utilization_threshold=pick(
            given.scale_down_gpu_utilization_threshold, defaults.scale_down_gpu_utilization_threshold
        ),
        scale_down_unneeded_time=_seconds(given.scale_down_unneeded_time, defaults.scale_down_unneeded_time),
        scale_down_unready_time=_seconds(given.scale_down_unready_time, defaults.scale_down_unready_time),
        max_node_provision_time=_seconds(given.max_node_provision_time, defaults.max_node_provision_time),
        max_node_startup_time=_seconds(given.max_node_startup_time, defaults.max_node_startup_time),
        zero_or_max_node_scaling=pick(given.zero_or_max_node_scaling, defaults.zero_or_max_node_scaling),
        allow_non_atomic_scale_up_to_max=pick(
            given.allow_non_atomic_scale_up_to_max, defaults.allow_non_atomic_scale_up_to_max
        ),
        ignore_daemonsets_utilization=pick(
            given.ignore_daemon_sets_utilization, defaults.ignore_daemonsets_utilization
        ),
    )


def groups_of(node_groups: Iterable[NodeGroup], nodes: Sequence[Node], defaults: NodeGroupAutoscalingOptions) -> Groups:
    """Node groups as the user describes them, over the nodes that exist.

    A node belongs to the first group that lists it, or whose ``node_selector`` it carries. Without a target size the
    group has as many nodes as belong to it. Raises :class:`InputError` for two groups of one id, bounds that exclude
    each other and a ``from_node`` that does not exist.
    """
    by_name = {node.metadata.name: node for node in nodes}
    provider_ids = {name: node.spec.provider_id or name for name, node in by_name.items()}
    labelled = _Labelled(nodes)
    taken: set[str] = set()
    found: dict[str, Group] = {}
    problems: list[Problem] = []
    for item in node_groups:
        where = f"NodeGroup {item.id}"
        if item.id in found:
            problems.append(Problem("two groups have this id", object=where, field="id"))
            continue
        if not 0 <= item.min_size <= item.max_size:
            text = f"minSize {item.min_size} and maxSize {item.max_size} exclude each other"
            problems.append(Problem(text, object=where, field="minSize"))
        if item.from_node is not None and item.from_node not in by_name:
            problems.append(Problem(f"there is no node {item.from_node}", object=where, field="fromNode"))
            continue
        members = _members(item, labelled)
        if not taken.isdisjoint(members):
            members = [name for name in members if name not in taken]
        taken.update(members)
        found[item.id] = Group(
            id=item.id,
            min_size=item.min_size,
            max_size=item.max_size,
            target_size=len(members) if item.target_size is None else item.target_size,
            nodes=members,
            instances=[
                *[provider_ids[name] for name in members if name in provider_ids],
                *item.unregistered_instances,
            ],
            template=_template(item, by_name),
            options=None if item.options is None else options_of(item.options, defaults),
            exists=item.exists,
            autoprovisioned=item.autoprovisioned,
            async_upcoming=item.upcoming,
            price=item.price,
        )
    if problems:
        raise InputError(problems)
    return Groups(found.values())


class _Labelled:
    """Nodes by label, for the keys that some selector names."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._by_key: dict[str, dict[str, dict[str, Mapping[str, str]]]] = {}
        """Key -> value -> node name -> its labels."""

    def with_labels(self, wanted: Mapping[str, str]) -> list[str]:
        """The nodes that carry all these labels, in their order."""
        first = next(iter(wanted))
        by_value = self._by_key.get(first)
        if by_value is None:
            by_value = self._by_key[first] = {}
            for node in self._nodes:
                metadata = node.metadata
                labels = metadata.labels
                if labels and first in labels:
                    by_value.setdefault(labels[first], {})[metadata.name] = labels
        found = by_value.get(wanted[first], {})
        if len(wanted) == 1:
            return list(found)
        return [name for name, labels in found.items() if wanted.items() <= labels.items()]


def _members(item: NodeGroup, nodes: _Labelled) -> list[str]:
    if item.nodes:
        return item.nodes
    return nodes.with_labels(item.node_selector) if item.node_selector else []


def _template(item: NodeGroup, by_name: Mapping[str, Node]) -> NodeTemplate | None:
    """The provider's template, if the description gives one, with what is to be put on top."""
    base = item.template
    if base is None and item.from_node is not None:
        base = NodeTemplate(node=by_name[item.from_node])
    if base is None:
        return None
    node = base.node
    metadata = replace(node.metadata, labels={**(node.metadata.labels or {}), **(item.labels or {})})
    own = {(taint.key, taint.effect) for taint in item.taints}
    kept = [taint for taint in node.spec.taints if (taint.key, taint.effect) not in own]
    status = replace(
        node.status,
        capacity={**(node.status.capacity or {}), **(item.capacity or {})},
        allocatable={**(node.status.allocatable or {}), **(item.capacity or {})},
    )
    spec = replace(node.spec, taints=[*kept, *item.taints])
    return replace(base, node=replace(node, metadata=metadata, spec=spec, status=status))


class Groups:
    """Node groups in the provider's order, and which node belongs to which.

    ``node_errors`` (node name -> text) are the nodes for which the provider fails to tell the group.
    """

    __slots__ = ("_by_id", "_id_of", "node_errors")

    def __init__(self, groups: Iterable[Group] = (), node_errors: Mapping[str, str] | None = None) -> None:
        self._by_id = {group.id: group for group in groups}
        self.node_errors = dict(node_errors or {})
        self._id_of: dict[str, str] = {}
        # The first group that names a node has it.
        for group in reversed(self._by_id.values()):
            self._id_of.update(dict.fromkeys(group.nodes, group.id))

    def __iter__(self) -> Iterator[Group]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._by_id

    def __getitem__(self, group_id: str) -> Group:
        return self._by_id[group_id]

    def get(self, group_id: str) -> Group | None:
        return self._by_id.get(group_id)

    def with_targets(self, sizes: Mapping[str, int]) -> Groups:
        """The same groups, some of another target size."""
        made = Groups((), self.node_errors)
        made._id_of = self._id_of
        made._by_id = {
            name: replace(group, target_size=sizes[name]) if name in sizes else group
            for name, group in self._by_id.items()
        }
        return made

    def of_node(self, name: str) -> Group | None:
        """The group of a node, None if it belongs to none. Raises :class:`AutoscalerError` if the provider fails."""
        if self.node_errors and name in self.node_errors:
            raise AutoscalerError("", self.node_errors[name])
        group = self._id_of.get(name)
        return None if group is None else self._by_id[group]

    def id_of_node(self, name: str) -> str | None:
        """The same group's id."""
        if self.node_errors and name in self.node_errors:
            raise AutoscalerError("", self.node_errors[name])
        return self._id_of.get(name)
