"""One entry of a groups file, and the published JSON Schema of the file. kscale's own."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import Any

import msgspec
from msgspec.structs import replace

from kscale.objects.base import ApiStruct, ResourceList
from kscale.objects.core import Node, Pod, Taint
from kscale.objects.nodegroup import NodeGroupOptions, NodeTemplate
from kscale.objects.quantity import Quantity
from kscale.objects.resource import ResourceSlice
from kscale.objects.storage import CSINode
from kscale.records import components_of

__all__ = ["GroupEntry", "GroupOptions", "GroupTaint", "GroupTemplate", "groups_schema", "groups_schema_text"]


class GroupOptions(NodeGroupOptions, forbid_unknown_fields=True):
    """What differs for this group from the autoscaler's own options. Durations are seconds."""


class GroupTemplate(Node):
    """A new node, as the API server would return it, and what drivers publish for it.

    ``resourceSlices``: its own devices (dynamic resource allocation). The name of the node is filled in; a pool without
    ``resourceSliceCount`` is taken to be complete. ``csiNode``: its CSI drivers and their attach limits.
    """

    resource_slices: list[ResourceSlice] = msgspec.field(default_factory=list)
    csi_node: CSINode | None = None

    @property
    def node(self) -> Node:
        """The node alone."""
        return Node(**{name: getattr(self, name) for name in Node.__struct_fields__})

    def node_template(self, pods: list[Pod]) -> NodeTemplate:
        """Return the template with these pods."""
        counts = Counter((each.spec.driver, each.spec.pool.name) for each in self.resource_slices)

        def complete(item: ResourceSlice) -> ResourceSlice:
            pool = item.spec.pool
            if pool.resource_slice_count:
                return item
            pool = replace(pool, resource_slice_count=counts[item.spec.driver, pool.name])
            return replace(item, spec=replace(item.spec, pool=pool))

        slices = [*map(complete, self.resource_slices)]
        return NodeTemplate(node=self.node, pods=pods, csi_node=self.csi_node, resource_slices=slices)


class GroupTaint(Taint, forbid_unknown_fields=True):
    """A taint of every new node; effects NoSchedule, PreferNoSchedule, NoExecute."""


class GroupEntry(ApiStruct, forbid_unknown_fields=True):
    """A node group: how many nodes it may have, and what a new one looks like.

    What a new node looks like comes from exactly one of ``template``, ``fromNode`` and ``instanceType``; without any,
    from the first good node among those that ``nodes`` or ``nodeSelector`` name. ``labels``, ``taints`` and
    ``capacity`` are put on top.
    """

    id: str
    """By which the cloud knows it."""
    min: int = 0
    """In nodes."""
    max: int = 1000
    """In nodes."""
    target: int | None = None
    """The size that the cloud was asked for, which may be outside of min and max; absent = as many nodes as the group
    has."""
    template: GroupTemplate | None = None
    """A node, as the API server would return it."""
    pods: list[Pod] = msgspec.field(default_factory=list)
    """With ``template``: the pods that every new node carries (DaemonSets)."""
    from_node: str | None = None
    """The name of a node of the cluster that new nodes are like."""
    instance_type: str | None = None
    """A machine size of the catalogue."""
    catalogue: str | None = None
    """The file with the machine sizes, or an imported catalogue; a relative path starts at the groups file."""
    zone: str = ""
    """With ``instanceType``: the zone of new nodes."""
    region: str = ""
    """With ``instanceType``: the region of new nodes and of the price."""
    nodes: list[str] = msgspec.field(default_factory=list)
    """The names of the nodes that belong to the group."""
    node_selector: dict[str, str] | None = None
    """Or the labels that all of them have."""
    labels: dict[str, str] | None = None
    taints: list[GroupTaint] = msgspec.field(default_factory=list)
    capacity: ResourceList | None = None
    price: float | None = None
    """Of one node for one hour."""
    options: GroupOptions | None = None
    exists: bool = True
    """False: the group would first have to be made (node auto-provisioning)."""
    autoprovisioned: bool = False
    """The group was made by the autoscaler."""


def _quantity_schema(type_: type) -> dict[str, Any]:
    if type_ is Quantity:
        return {"type": ["string", "number"], "description": "A quantity such as 500m, 2 or 16Gi."}
    raise NotImplementedError(type_)


def groups_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a groups file: what the reader checks, as far as a schema can say it."""
    name, definitions = components_of(GroupEntry, _quantity_schema)
    # What the objects of the API are, Kubernetes publishes.
    for kind in ("Pod", "ResourceSlice", "CSINode"):
        definitions[kind] = {"type": "object", "description": f"A {kind}, as the API server returns it."}
    _restrict_template(definitions["GroupTemplate"])
    _restrict(definitions)
    definitions["Groups"] = {"type": "array", "items": {"$ref": f"#/$defs/{name}"}, "minItems": 1}
    groups = {"$ref": "#/$defs/Groups"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "kscale groups file",
        "description": "The node groups that an estimate may add nodes to.",
        "oneOf": [
            groups,
            {
                "type": "object",
                "properties": {"groups": groups},
                "required": ["groups"],
                "additionalProperties": False,
            },
        ],
        "$defs": {"Groups": definitions["Groups"], **_reachable("GroupEntry", definitions)},
    }


_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABELS: dict[str, Any] = {
    "type": "object",
    "propertyNames": {"pattern": f"^([-a-z0-9.]+/)?{_NAME}$"},
    "additionalProperties": {"type": ["string", "null"], "pattern": f"^({_NAME})?$", "maxLength": 63},
}
_AMOUNTS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": {
        "type": ["string", "number", "null"],
        "pattern": "^[^-]",
        "minimum": 0,
        "description": "A quantity such as 500m, 2 or 16Gi.",
    },
}


def _restrict_template(template: dict[str, Any]) -> None:
    """No field but those of a node and what comes with it; of these, null is absent."""
    template["additionalProperties"] = False
    fields = template["properties"]
    fields |= {name: {} for name in ("apiVersion", "kind", "metadata", "spec", "status")}
    slices = fields["resourceSlices"]
    default = slices.pop("default")
    fields["resourceSlices"] = {"anyOf": [slices, {"type": "null"}], "default": default}


def _restrict(definitions: dict[str, Any]) -> None:
    """What the types do not say."""
    entry, taint, options = (definitions[name] for name in ("GroupEntry", "GroupTaint", "GroupOptions"))
    fields = entry["properties"]
    fields["id"] |= {"minLength": 1, "pattern": "^[^\\u0000-\\u001f\\u007f]*$"}
    for name in ("min", "max"):
        fields[name] |= {"minimum": 0}
    for name in ("target", "price"):
        fields[name]["anyOf"][0] |= {"minimum": 0}
    fields["nodes"] |= {"uniqueItems": True}
    for name, schema in (("labels", _LABELS), ("nodeSelector", _LABELS), ("capacity", _AMOUNTS)):
        fields[name]["anyOf"][0] = schema
    for schema in options["properties"].values():
        if schema["anyOf"][0] == {"type": "number"}:
            schema["anyOf"][0] = {"type": "number", "minimum": 0}
    taint["properties"]["key"] = {"type": "string", "minLength": 1, "pattern": f"^([-a-z0-9.]+/)?{_NAME}$"}
    taint["properties"]["effect"] = {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]}
    taint["required"] = ["key", "effect"]
    for struct in (entry, taint):
        for name, schema in struct["properties"].items():
            if name not in ("id", "key", "effect") and "anyOf" not in schema:  # the reader takes null for absent
                default = {"default": schema.pop("default")} if "default" in schema else {}
                struct["properties"][name] = {"anyOf": [schema, {"type": "null"}], **default}
    templates = ("template", "fromNode", "instanceType")
    entry["anyOf"] = [*map(_given, templates), _given("nodes", minItems=1), _given("nodeSelector", minProperties=1)]
    entry["allOf"] = [{"not": {"allOf": [_given(a), _given(b)]}} for a, b in itertools.combinations(templates, 2)]
    entry["allOf"] += [
        {"if": _given(name, **some), "then": _given(needed)}
        for name, some, needed in (
            ("catalogue", {"minLength": 1}, "instanceType"),
            ("zone", {"minLength": 1}, "instanceType"),
            ("region", {"minLength": 1}, "instanceType"),
            ("pods", {"minItems": 1}, "template"),
        )
    ]


def _given(name: str, **some: int) -> dict[str, Any]:
    """That a field is there, and not null."""
    return {"required": [name], "properties": {name: {"not": {"type": "null"}, **some}}}


def _reachable(root: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """The definitions that ``root`` refers to, itself included, by name."""
    found: dict[str, Any] = {}
    ahead = [root]
    while ahead:
        name = ahead.pop()
        if name in found:
            continue
        found[name] = definitions[name]
        ahead += re.findall(r'"#/\$defs/(\w+)"', msgspec.json.encode(definitions[name]).decode())
    return dict(sorted(found.items()))


def groups_schema_text() -> str:
    """The schema as it is published: indented JSON with a final line feed."""
    return msgspec.json.format(msgspec.json.encode(groups_schema()), indent=2).decode() + "\n"
