"""Node groups, their templates and options as plain data, and all node groups of a cloud at one moment.

Upstream: ``cloudprovider/cloud_provider.go`` (``cloudprovider.NodeGroup``).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from copy import copy
from datetime import timedelta
from typing import Annotated, Any, Final, TypeAlias, get_args, get_type_hints

import msgspec
from msgspec.structs import replace

from kscale.errors import ArgumentError, InputError, KscaleError, Problem
from kscale.objects.api.core import Node, Pod, Taint
from kscale.objects.api.meta import ApiStruct, ResourceList
from kscale.objects.api.resource import ResourceSlice
from kscale.objects.api.storage import CSINode
from kscale.objects.argument_types import check_fields
from kscale.objects.decode import from_dict
from kscale.objects.kinds import check_kind

__all__ = [
    "DURATION_OPTIONS",
    "NOT_IMPLEMENTED",
    "Groups",
    "GroupsLike",
    "InstanceError",
    "InstanceStatus",
    "NodeGroup",
    "NodeGroupAutoscalingOptions",
    "NodeGroupOptions",
    "NodeTemplate",
    "ProviderError",
    "have_equal_group_inputs",
    "instance_id_of",
    "is_not_implemented",
]

NOT_IMPLEMENTED = "Not implemented"
"""The text of the cloud provider's special error ``ErrNotImplemented``."""


def is_not_implemented(error: str | None) -> bool:
    """Return whether a provider's error text says that the provider does not implement the request.

    False for None.
    """
    return error is not None and error.lower() == NOT_IMPLEMENTED.lower()


class ProviderError(KscaleError):
    """An error of a cloud provider about a group or a node.

    ``message`` is the provider's text; ``type`` is upstream's type of the error (``cloudProviderError`` etc.), or
    empty.
    """

    def __init__(self, message: str, type_: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.type = type_


class NodeTemplate(ApiStruct):
    """Template of a group's new nodes.

    It has the node, the pods that come with it, its CSI drivers (``csi_node``) and devices (``resource_slices``).
    """

    node: Node = msgspec.field(default_factory=Node)
    pods: list[Pod] = []
    csi_node: CSINode | None = None
    resource_slices: list[ResourceSlice] = []

    def __post_init__(self) -> None:
        check_fields(self)


class NodeGroupAutoscalingOptions(msgspec.Struct, kw_only=True, frozen=True):
    """Options for the nodes of one group: upstream's flags of the same names. Durations are ``timedelta``."""

    scale_down_utilization_threshold: float = 0.0
    scale_down_gpu_utilization_threshold: float = 0.0
    scale_down_unneeded_time: timedelta = timedelta()
    scale_down_unready_time: timedelta = timedelta()
    max_node_provision_time: timedelta = timedelta()
    max_node_startup_time: timedelta = timedelta()
    zero_or_max_node_scaling: bool = False
    allow_non_atomic_scale_up_to_max: bool = False
    ignore_daemonsets_utilization: bool = False


Seconds = Annotated[float, msgspec.Meta(extra={"time": "duration"})]
"""A duration of a group's options."""


class NodeGroupOptions(ApiStruct):
    """Options for the nodes of one group: upstream's flags of the same names, which they replace for these nodes.

    For an option that is None the autoscaler's flag applies. Durations (``max_node_startup_time``, ...) are seconds.
    Upstream's providers set either no option or all options; a zero of theirs is a zero.
    """

    scale_down_utilization_threshold: float | None = None
    scale_down_gpu_utilization_threshold: float | None = None
    scale_down_unneeded_time: Seconds | None = None
    scale_down_unready_time: Seconds | None = None
    max_node_provision_time: Seconds | None = None
    max_node_startup_time: Seconds | None = None
    zero_or_max_node_scaling: bool | None = None
    ignore_daemon_sets_utilization: bool | None = None
    allow_non_atomic_scale_up_to_max: bool | None = None

    def on_top_of(self, defaults: NodeGroupAutoscalingOptions) -> NodeGroupAutoscalingOptions:
        """Return ``defaults``, with the options that the group sets in place of the default ones."""
        own_options = {
            _OTHER_NAMES.get(name, name): timedelta(seconds=value) if name in DURATION_OPTIONS else value
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not None
        }
        return msgspec.structs.replace(defaults, **own_options)

    def problems(self, *, allow_negative: bool = False) -> Iterator[tuple[str, str]]:
        """Yield (name in the API, message) for each number that is negative, not finite, or too long a duration.

        ``allow_negative``: report only durations that are too long or not finite. Providers may send negative numbers.
        """
        for name, field in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True):
            value = getattr(self, name)
            if value is None or isinstance(value, bool):
                continue
            if not (allow_negative or (math.isfinite(value) and value >= 0)):
                yield field, f"{value} is negative or not a number"
            elif name in DURATION_OPTIONS and not abs(value) <= _LONGEST:
                yield field, f"{value} is longer than {_LONGEST} seconds"


_OTHER_NAMES = {"ignore_daemon_sets_utilization": "ignore_daemonsets_utilization"}
DURATION_OPTIONS = frozenset(
    name for name, type_ in get_type_hints(NodeGroupOptions, include_extras=True).items() if Seconds in get_args(type_)
)
"""The options of a group that are durations."""
_LONGEST: Final = 2**63 // 10**9
"""Seconds of the longest duration in Go."""


class InstanceError(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, rename="camel"):
    """Why the cloud could not create an instance: ``class_`` is ``OutOfResource`` or ``Other``."""

    class_: str = msgspec.field(name="class")
    code: str
    """The cloud's error code, which messages about a backoff contain."""
    message: str = ""
    """The cloud's error text."""


class InstanceStatus(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, rename="camel"):
    """State of an instance: ``running``, ``creating`` or ``deleting``."""

    state: str = "running"
    error: InstanceError | None = None
    """Why an instance that is ``creating`` could not be created; None without an error."""


class NodeGroup(ApiStruct):
    """A group of nodes of one kind that can grow and shrink.

    The fields ``target_size_error``, ``instances_error``, ``template_error``, ``options_error`` and
    ``rolling_out_error`` have the cloud's error text if the cloud could not provide the value.

    The template of new nodes is ``template``, otherwise a copy of the node ``from_node``, otherwise the first good node
    among ``nodes``. ``labels``, ``taints`` and ``capacity`` are added to it. Without a template and without
    ``template_error`` the cloud does not implement templates. ``nodes`` are names. If it is empty, the nodes with all
    labels of ``node_selector`` belong to the group. :meth:`~kscale.objects.nodegroup.Groups.of` resolves all of this.
    """

    id: str
    """The cloud's name of the group."""
    min_size: int = 0
    """Minimum number of nodes."""
    max_size: int = 1000
    """Maximum number of nodes."""
    target_size: int | None = None
    """None: as many as there are nodes of the group."""
    target_size_error: str | None = None
    nodes: list[str] = []
    node_selector: dict[str, str] | None = None
    instances: list[str] | None = None
    """Ids of the group's instances in the cloud (:func:`~kscale.objects.nodegroup.instance_id_of`). None: the ids of
    its nodes, and ``unregistered_instances``."""
    instances_error: str | None = None
    """If set, ``instances`` is an earlier list. Decisions that need the complete list do not use it."""
    gone_instances: list[str] = []
    """Entries of ``instances`` that belong to no group any more. They do not count. If one of them belongs to a group
    again, its age is measured from the time when it was first seen."""
    unregistered_instances: list[str] = []
    """Provider ids of instances that no node has registered for."""
    instance_status: dict[str, InstanceStatus] = {}
    """By provider id, of instances that are not simply running."""
    template: NodeTemplate | None = None
    template_error: str | None = None
    from_node: str | None = None
    labels: dict[str, str] | None = None
    taints: list[Taint] = []
    capacity: ResourceList | None = None
    price: float | None = None
    """Of one node for one hour, in any currency."""
    options: NodeGroupOptions | None = None
    """None: the autoscaler's flags apply."""
    options_error: str | None = None
    rolling_out: bool = False
    """Whether the cloud is replacing the machines by machines of another kind. Scale-down spares them meanwhile."""
    rolling_out_error: str | None = None
    exists: bool = True
    """False: a candidate of node auto-provisioning."""
    autoprovisioned: bool = False
    """Whether node auto-provisioning created the group, and may delete it."""
    upcoming: bool = False
    """The group is being created asynchronously."""
    upcoming_id: str = ""
    """The id that it had while it was being created, where that was another one."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def size(self) -> int:
        """Return the target size; 0 if it is unknown."""
        return self.target_size or 0

    @property
    def instance_ids(self) -> list[str]:
        """Return ``instances``; empty if the group does not list any."""
        return self.instances or []

    @property
    def node_template(self) -> NodeTemplate:
        """Return the template of a new node.

        Raises :class:`ProviderError` if the group has no template, or an error in place of it.
        """
        if self.template is None or self.template_error is not None:
            raise ProviderError(self.template_error if self.template_error is not None else NOT_IMPLEMENTED)
        return self.template

    def options_or(self, defaults: NodeGroupAutoscalingOptions) -> NodeGroupAutoscalingOptions:
        """Return the group's options, with ``defaults`` for those that the group leaves out.

        ``defaults`` are returned if the cloud does not implement options. Raises :class:`ProviderError` for any other
        error of the cloud.
        """
        if self.options_error is not None and not is_not_implemented(self.options_error):
            raise ProviderError(self.options_error)
        if self.options is None or self.options_error is not None:
            return defaults
        return self.options.on_top_of(defaults)


def group_from_dict(data: Mapping[str, Any], where: str = "node group") -> NodeGroup:
    """Decode a node group from plain data. Its ``template`` may be a bare node.

    Raises InputError, which names ``where``, if a field is invalid or unknown, or a target size or an option is
    negative.
    """
    fields = dict(data)
    problems = _find_unknown(fields, NodeGroup, where, "")
    if isinstance(fields.get("options"), Mapping):
        problems += _find_unknown(fields["options"], NodeGroupOptions, where, "options.")
    if isinstance(fields.get("template"), Mapping):
        fields["template"] = _with_node(fields["template"])
        problems += _find_unknown(fields["template"], NodeTemplate, where, "template.")
    if problems:
        raise InputError(problems)
    group = from_dict(fields, NodeGroup, object_path=where)
    if group.size < 0:
        problems.append(Problem(f"{group.size} is negative", object=where, field="targetSize"))
    if group.options is not None:
        problems += [Problem(text, object=where, field=f"options.{name}") for name, text in group.options.problems()]
    if problems:
        raise InputError(problems)
    return group


def template_from_dict(data: Mapping[str, Any], where: str = "template") -> NodeTemplate:
    """Decode a template from plain data: a node with its pods and devices, or a bare node.

    Raises InputError, which names ``where``, if a field is invalid or unknown.
    """
    fields = _with_node(data)
    problems = _find_unknown(fields, NodeTemplate, where, "")
    if problems:
        raise InputError(problems)
    return from_dict(fields, NodeTemplate, object_path=where)


def _with_node(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the template as plain data, with a bare node as its ``node``.

    Raises InputError if an object in it is of another kind.
    """
    fields = {"node": dict(data)} if "node" not in data and not data.keys().isdisjoint(_NODE) else dict(data)
    for member, type_ in (("node", Node), ("pods", Pod), ("csiNode", CSINode), ("resourceSlices", ResourceSlice)):
        value = fields.get(member)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Mapping):
                check_kind(item, type_, f"template.{member}")
    return fields


_NODE = ("metadata", "spec", "status")


def _find_unknown(data: Mapping[str, Any], type_: type[msgspec.Struct], where: str, prefix: str) -> list[Problem]:
    """Return a problem for each member that the struct does not have. ``prefix``: path of the data."""
    members = {field.encode_name for field in msgspec.structs.fields(type_)}
    return [
        Problem("there is no such member", object=where, field=f"{prefix}{name}")
        for name in data
        if name not in members
    ]


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
    def of(
        cls,
        groups: Groups | Iterable[NodeGroup | Mapping[str, Any]],
        nodes: Sequence[Node],
        *,
        checked: Container[int] = (),
    ) -> Groups:
        """Return node groups over the existing nodes; ``groups`` itself if it is a Groups object.

        A node belongs to the first group that lists it or whose ``node_selector`` matches its labels. Without a target
        size a group has as many nodes as belong to it.

        Parameters
        ----------
        groups : Groups, or iterable of NodeGroup or mapping
            Mappings have the fields of NodeGroup.
        nodes : sequence of Node
        checked : container of int
            Positions of the NodeGroups whose types need no check, as they are unchanged since an earlier call.

        Raises
        ------
        InputError
            If a mapping is no node group or has a negative target size or option, a field has a wrong type, two groups
            have the same id, a minimum exceeds its maximum, a duration is too long, or a ``from_node`` does not exist.
            Negative numbers in a NodeGroup are no error, because a provider may send them.
        """
        return groups if isinstance(groups, Groups) else cls(_resolve_groups(groups, nodes, checked))

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
        """Return the group with the id ``group_id``; None if there is none."""
        return self._by_id.get(group_id)

    def with_targets(self, sizes: Mapping[str, int]) -> Groups:
        """Return the groups with other target sizes (group id -> size). Groups without an entry keep theirs.

        Entries of unknown groups are ignored.
        """
        result = Groups((), self.node_errors)
        result._id_of = self._id_of
        result._by_id = {
            name: replace(group, target_size=sizes[name]) if name in sizes else group
            for name, group in self._by_id.items()
        }
        return result

    def without_nodes(self, names: Iterable[str], groups: Iterable[NodeGroup]) -> Groups:
        """Return a copy in which the nodes ``names`` belong to no group.

        ``groups``: all node groups without these nodes. They replace the groups of this object and are not checked.
        """
        result = Groups((), self.node_errors)
        result._by_id = {group.id: group for group in groups}
        result._id_of = self._id_of.copy()
        for name in names:
            result._id_of.pop(name, None)
        return result

    def find_group_of_node(self, name: str) -> NodeGroup | None:
        """Return the group of a node; None if there is none.

        Raises :class:`ProviderError` if the cloud cannot determine the group.
        """
        group = self.id_of_node(name)
        return None if group is None else self._by_id[group]

    def ids_of_nodes(self, names: Sequence[str]) -> list[str | None]:
        """Return the group id of each node; None without a group, or if the cloud cannot determine the group.

        The list is cached for further calls with the same names. Do not modify it.
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
        """Return node names by group id, in the order of ``names``; the key None has the nodes without a group.

        Do not modify the result, which is cached.
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
        """Return the group id of a node; None without a group.

        Raises :class:`ProviderError` if the cloud cannot determine the group.
        """
        if self.node_errors and name in self.node_errors:
            raise ProviderError(self.node_errors[name])
        return self._id_of.get(name)


def instance_id_of(node: Node) -> str:
    """Return the id of the instance behind a node: its provider id, else its name.

    Every comparison of nodes with a group's instances uses this id. Because a group may list its nodes by name, a node
    without a provider id is the registered instance of that name. Upstream compares ``spec.providerID`` alone
    (``clusterstate.go``: getNotRegisteredNodes): instance ids of its clouds are not node names.
    """
    return node.spec.provider_id or node.metadata.name


GroupsLike: TypeAlias = Groups | Iterable[NodeGroup | Mapping[str, Any]]
"""Node groups as a cloud tells them, or as a user describes them."""


def have_equal_group_inputs(groups: Iterable[NodeGroup], before: Sequence[Node], nodes: Sequence[Node]) -> bool:
    """Return whether :meth:`Groups.of` is known to give the same groups for ``nodes`` as for the nodes ``before``.

    Compares names, provider ids and labels, in order. The ``from_node`` of a group must be the same object.
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


def _resolve_groups(
    groups: Iterable[NodeGroup | Mapping[str, Any]], nodes: Sequence[Node], checked: Container[int]
) -> Iterable[NodeGroup]:
    """Return the groups with sizes, nodes, instances and templates. Raises InputError with all problems.

    A node belongs to the first group that names or selects it. ``checked``: positions of groups whose types need no
    check.
    """
    by_name = {node.metadata.name: node for node in nodes}
    labelled = _Labelled(nodes)
    assigned: set[str] = set()
    by_id: dict[str, NodeGroup] = {}
    problems: list[Problem] = []
    for number, description in enumerate(groups):
        item = _decode_group(description, number, is_checked=number in checked)
        where = f"NodeGroup {item.id}"
        if item.id in by_id:
            problems.append(Problem("two groups have this id", object=where, field="id"))
            continue
        if not 0 <= item.min_size <= item.max_size:
            text = f"minSize {item.min_size} and maxSize {item.max_size} exclude each other"
            problems.append(Problem(text, object=where, field="minSize"))
        if item.options is not None:
            wrong = item.options.problems(allow_negative=True)
            problems += [Problem(text, object=where, field=f"options.{name}") for name, text in wrong]
        if item.from_node is not None and item.from_node not in by_name:
            problems.append(Problem(f"there is no node {item.from_node}", object=where, field="fromNode"))
            continue
        members = _list_members(item, labelled)
        if not assigned.isdisjoint(members):
            members = [name for name in members if name not in assigned]
        assigned.update(members)
        instances = item.instances
        if instances is None:
            instance_ids = [instance_id_of(by_name[name]) for name in members if name in by_name]
            instances = [*instance_ids, *item.unregistered_instances]
        by_id[item.id] = resolved = copy(item)  # not replaced, as all its fields are checked already
        resolved.target_size = len(members) if item.target_size is None else item.target_size
        resolved.nodes, resolved.node_selector = members, None
        resolved.instances, resolved.unregistered_instances = instances, []
        resolved.template, resolved.from_node = _get_template(item, by_name), None
        resolved.labels, resolved.taints, resolved.capacity = None, [], None
    if problems:
        raise InputError(problems)
    return by_id.values()


def _decode_group(data: object, number: int, *, is_checked: bool) -> NodeGroup:
    """Return a node group from a struct or mapping. Raises InputError for anything else.

    A struct is checked unless ``is_checked``, as it may have been modified since it was created. ``number``: its
    position, for the error.
    """
    if isinstance(data, NodeGroup):
        if not is_checked:
            _check_group(data)
        return data
    where = f"node group {number}"
    if not isinstance(data, Mapping):
        raise InputError(Problem(f"a NodeGroup is expected, not {type(data).__name__}", object=where))
    return group_from_dict(data, where)


def _check_group(group: NodeGroup) -> None:
    """Raise ArgumentError for a field of a group, its options or its template that has a wrong type.

    Of the template's node, only the fields of its metadata, spec and status are checked.
    """
    try:
        check_fields(group)
        if group.options is not None:
            check_fields(group.options)
        if group.template is not None:
            check_fields(group.template)
            check_fields(node := group.template.node)
            for part in (node.metadata, node.spec, node.status):
                check_fields(part)
    except ArgumentError as error:
        where = f"NodeGroup {group.id}"
        error.args = (f"{where}: {error}",)
        error.problems = tuple(dataclasses.replace(problem, object=where) for problem in error.problems)
        raise


class _Labelled(msgspec.Struct, eq=False):
    """Nodes by label, for the label keys in selectors."""

    _nodes: Sequence[Node]
    _by_key: dict[str, dict[str, dict[str, Mapping[str, str]]]] = {}
    """Key -> value -> node name -> its labels."""

    def with_labels(self, wanted: Mapping[str, str]) -> list[str]:
        """Return the names of the nodes that have all labels of ``wanted``, which must not be empty, in order."""
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


def _list_members(item: NodeGroup, nodes: _Labelled) -> list[str]:
    """Return the names of the nodes that a group lists or, if it lists none, selects by its labels."""
    if item.nodes:
        return item.nodes
    return nodes.with_labels(item.node_selector) if item.node_selector else []


def _get_template(item: NodeGroup, by_name: Mapping[str, Node]) -> NodeTemplate | None:
    """Return a group's template with the group's labels, taints and capacity applied; None without a template.

    The template is ``template``, else the node ``from_node``.
    """
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
