"""Node groups, their templates and options as plain data.

Upstream: ``cloudprovider/cloud_provider.go`` (``cloudprovider.NodeGroup``).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, get_args, get_type_hints

import msgspec

from kscale.errors import InputError, KscaleError, Problem
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
    "InstanceError",
    "InstanceStatus",
    "NodeGroup",
    "NodeGroupAutoscalingOptions",
    "NodeGroupOptions",
    "NodeTemplate",
    "ProviderError",
    "is_not_implemented",
]


NOT_IMPLEMENTED = "Not implemented"
"""The text of the cloud provider's special error ``ErrNotImplemented``."""


def is_not_implemented(error: str | None) -> bool:
    """Whether a provider's error text says that it does not implement the question."""
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
    """What a group says for itself, as upstream's flags of the same names; of what it leaves out (None) the
    autoscaler's own option holds. Durations (``max_node_startup_time``, ...) are seconds.

    Upstream's providers leave nothing out: one that answers at all answers everything, and its zeros are zeros.
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
        """Return the defaults with the group's options in their place."""
        own_options = {
            _OTHER_NAMES.get(name, name): timedelta(seconds=value) if name in DURATION_OPTIONS else value
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not None
        }
        return msgspec.structs.replace(defaults, **own_options)


_OTHER_NAMES = {"ignore_daemon_sets_utilization": "ignore_daemonsets_utilization"}
DURATION_OPTIONS = frozenset(
    name for name, type_ in get_type_hints(NodeGroupOptions, include_extras=True).items() if Seconds in get_args(type_)
)
"""The options of a group that are durations."""


class InstanceError(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, rename="camel"):
    """Why the cloud could not create an instance: ``class_`` is ``OutOfResource`` or ``Other``."""

    class_: str = msgspec.field(name="class")
    code: str
    """The cloud's own, as the backoff's texts have it."""
    message: str = ""
    """The cloud's words."""


class InstanceStatus(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, rename="camel"):
    """State of an instance: ``running``, ``creating`` or ``deleting``."""

    state: str = "running"
    error: InstanceError | None = None
    """Why one that is ``creating`` does not come."""


class NodeGroup(ApiStruct):
    """A group of like nodes that can grow and shrink. An ``..._error`` is what the cloud said instead of an answer
    (``target_size_error``, ``instances_error``, ``template_error``, ``options_error``, ``rolling_out_error``).

    Its template is ``template``, else (named by ``from_node``) a copy of a node of the cluster, else the first good
    node among ``nodes``; then ``labels``, ``taints``, ``capacity`` are put on top. ``nodes`` lists names; without it a
    node belongs to the group if it carries all of ``node_selector``. With neither a template nor an error in its place
    the cloud does not tell one. :meth:`~kscale.objects.nodegroups.Groups.of` works all that out.
    """

    id: str
    """By which the cloud knows it."""
    min_size: int = 0
    """In nodes."""
    max_size: int = 1000
    """In nodes."""
    target_size: int | None = None
    """None = as many as there are nodes of the group."""
    target_size_error: str | None = None
    nodes: list[str] = []
    node_selector: dict[str, str] | None = None
    instances: list[str] | None = None
    """Ids of what the cloud runs for it (:func:`~kscale.objects.nodegroups.instance_id_of`); None = those of its nodes,
    and ``unregistered_instances``."""
    instances_error: str | None = None
    """``instances`` are what it told before: nothing that takes all of them goes by that."""
    gone_instances: list[str] = []
    """Those of ``instances`` that are of no group any more: they count nowhere, and come back as old as they were."""
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
    """None = the group says nothing for itself."""
    options_error: str | None = None
    rolling_out: bool = False
    """The cloud is replacing its machines by those of another kind: scale-down leaves them alone meanwhile."""
    rolling_out_error: str | None = None
    exists: bool = True
    """False: a candidate of node auto-provisioning."""
    autoprovisioned: bool = False
    """Node auto-provisioning made it, and may delete it."""
    upcoming: bool = False
    """The group is being created asynchronously."""
    upcoming_id: str = ""
    """The id that it had while it was being created, where that was another one."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def size(self) -> int:
        """Return the target size, or 0 if it is unknown."""
        return self.target_size or 0

    @property
    def instance_ids(self) -> list[str]:
        """Return ``instances``; empty if the group does not have them."""
        return self.instances or []

    @property
    def node_template(self) -> NodeTemplate:
        """Return the template of a new node.

        Raises :class:`ProviderError` if the cloud reported an error instead or does not implement templates.
        """
        if self.template is None or self.template_error is not None:
            raise ProviderError(self.template_error if self.template_error is not None else NOT_IMPLEMENTED)
        return self.template

    def options_or(self, defaults: NodeGroupAutoscalingOptions) -> NodeGroupAutoscalingOptions:
        """Return the group's options, with ``defaults`` for what it leaves out.

        ``defaults`` are returned if the cloud does not implement options. Raises :class:`ProviderError` for any other
        error of the cloud.
        """
        if self.options_error is not None and not is_not_implemented(self.options_error):
            raise ProviderError(self.options_error)
        if self.options is None or self.options_error is not None:
            return defaults
        return self.options.on_top_of(defaults)


def group_from_dict(data: Mapping[str, Any], where: str = "node group") -> NodeGroup:
    """Decode a node group, whose ``template`` may be a bare node. Raises InputError, also for unknown fields."""
    fields = dict(data)
    problems = _unknown(fields, NodeGroup, where, "")
    if isinstance(fields.get("options"), Mapping):
        problems += _unknown(fields["options"], NodeGroupOptions, where, "options.")
    if isinstance(fields.get("template"), Mapping):
        fields["template"] = _with_node(fields["template"])
        problems += _unknown(fields["template"], NodeTemplate, where, "template.")
    if problems:
        raise InputError(problems)
    return from_dict(fields, NodeGroup, object_path=where)


def template_from_dict(data: Mapping[str, Any], where: str = "template") -> NodeTemplate:
    """Decode a template, which is a node with its pods and devices or a bare node.

    Raises InputError, also for unknown fields.
    """
    fields = _with_node(data)
    problems = _unknown(fields, NodeTemplate, where, "")
    if problems:
        raise InputError(problems)
    return from_dict(fields, NodeTemplate, object_path=where)


def _with_node(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template as plain data, with a bare node as its ``node``. Raises InputError for wrong kinds."""
    fields = {"node": dict(data)} if "node" not in data and not data.keys().isdisjoint(_NODE) else dict(data)
    for member, type_ in (("node", Node), ("pods", Pod), ("csiNode", CSINode), ("resourceSlices", ResourceSlice)):
        value = fields.get(member)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Mapping):
                check_kind(item, type_, f"template.{member}")
    return fields


_NODE = ("metadata", "spec", "status")


def _unknown(data: Mapping[str, Any], type_: type[msgspec.Struct], where: str, prefix: str) -> list[Problem]:
    """Return a problem for each member that the struct does not have."""
    members = {field.encode_name for field in msgspec.structs.fields(type_)}
    return [
        Problem("there is no such member", object=where, field=f"{prefix}{name}")
        for name in data
        if name not in members
    ]
