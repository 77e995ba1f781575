"""The groups file (``-g``): its entries, JSON Schema and reader. Every mistake is reported with its field.

Not in upstream.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import replace as dataclasses_replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from kscale.errors import InputError, Problem
from kscale.files import read_input
from kscale.objects.api.core import Node, Pod, Taint
from kscale.objects.api.meta import ApiStruct, ResourceList
from kscale.objects.api.resource import ResourceSlice
from kscale.objects.api.storage import CSINode
from kscale.objects.argument_types import typed
from kscale.objects.decode import escape, from_dict, syntax_problem
from kscale.objects.names import go_quote, label_value_errors, qualified_name_errors
from kscale.objects.nodegroup import NodeGroup, NodeGroupOptions, NodeTemplate
from kscale.objects.quantity import Quantity
from kscale.objects.validation import check, find_unknown_fields, refuse_repeated_keys
from kscale.records import components_of
from kscale.snapshot.text.files import decompress

if TYPE_CHECKING:
    from kscale.capacity.catalogue import Catalogue

__all__ = [
    "GroupEntry",
    "GroupOptions",
    "GroupTaint",
    "GroupTemplate",
    "groups_from",
    "groups_schema",
    "groups_schema_text",
    "read_groups",
    "read_plain",
    "read_plain_file",
]


_NUMBER: Final = "a list of at least one"


def read_plain_file(path: str | os.PathLike[str], what: str, number: str = _NUMBER) -> Any:
    """Read and decode a file as :func:`read_plain` does. Raises InputError, also if the file cannot be read.

    ``what`` and ``number`` name the expected content and how many, for the message about an empty file.
    """
    return read_plain(read_input(path), str(path), what, number)


def read_plain(raw: bytes, source: str, what: str, number: str = _NUMBER) -> Any:
    """Decode a file's bytes (JSON or YAML, compressed or not) to plain data.

    ``what`` and ``number`` name the expected content and how many, for the message about an empty file. Raises
    InputError, with ``source`` and the position, if the bytes cannot be decoded, are empty, repeat a key, or hold more
    than one document.
    """
    unpacked_text = decompress(raw, source)
    if isinstance(unpacked_text, Problem):
        raise InputError(unpacked_text)
    text = bytes(unpacked_text)
    name = source.removesuffix(".gz").removesuffix(".zst")
    if text.lstrip()[:1] in (b"[", b"{") and not name.endswith((".yaml", ".yml")):
        try:
            data = msgspec.json.decode(text)
            refuse_repeated_keys(text)
            return data
        except InputError as error:
            raise InputError([dataclasses_replace(problem, source=source) for problem in error.problems]) from None
        except RecursionError:
            raise InputError(Problem("nested too deeply to be read", source)) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InputError(syntax_problem(error, text, source)) from None
    from kscale.snapshot.text.documents import only_document

    document = only_document(text, source)
    if document is None:
        raise InputError(Problem(f"no {what} in it: {number} is expected", source))
    return document


class GroupOptions(NodeGroupOptions, forbid_unknown_fields=True):
    """Options of the Cluster Autoscaler that differ for this group. An option that is null has the value of the
    autoscaler's flag.

    Attributes
    ----------
    scale_down_utilization_threshold
        Nodes of the group are candidates for scale-down if their utilization (0 to 1) is at most this value.
    scale_down_gpu_utilization_threshold
        The same threshold for nodes with GPUs, for their GPU utilization.
    scale_down_unneeded_time
        Seconds that a node must be unneeded before it is removed.
    scale_down_unready_time
        Seconds that a node that is not ready must be unneeded before it is removed.
    max_node_provision_time
        Seconds within which a new node must register.
    max_node_startup_time
        Seconds within which a registered node must become ready.
    zero_or_max_node_scaling
        Whether the group may only have no nodes or its maximum.
    ignore_daemon_sets_utilization
        Whether pods of DaemonSets do not count for the utilization.
    allow_non_atomic_scale_up_to_max
        With ``zero_or_max_node_scaling``: whether a scale-up may also add only a part of the nodes.
    """


class GroupTemplate(Node):
    """A new node as the API server would return it, and the objects that drivers publish for it. The node's name is
    filled in.

    Attributes
    ----------
    resource_slices : list of ResourceSlice
        Devices of the new node (dynamic resource allocation). A pool without ``resourceSliceCount`` counts as complete.
    csi_node : CSINode or None
        CSI drivers of the new node, with their attach limits. None: no CSINode object.
    """

    resource_slices: list[ResourceSlice] = msgspec.field(default_factory=list)
    csi_node: CSINode | None = None

    @property
    def node(self) -> Node:
        """Return the template as a plain Node."""
        return Node(**{name: getattr(self, name) for name in Node.__struct_fields__})

    def node_template(self, pods: list[Pod]) -> NodeTemplate:
        """Build the node template of this entry, with ``pods`` on it.

        Pools of devices get their number of slices if the file does not state it.
        """
        counts = Counter((item.spec.driver, item.spec.pool.name) for item in self.resource_slices)

        def complete(item: ResourceSlice) -> ResourceSlice:
            """Return the slice; its pool gets the number of its slices if the file does not state it."""
            pool = item.spec.pool
            if pool.resource_slice_count:
                return item
            pool = replace(pool, resource_slice_count=counts[item.spec.driver, pool.name])
            return replace(item, spec=replace(item.spec, pool=pool))

        slices = [*map(complete, self.resource_slices)]
        return NodeTemplate(node=self.node, pods=pods, csi_node=self.csi_node, resource_slices=slices)


class GroupTaint(Taint, forbid_unknown_fields=True):
    """A taint of every new node of a group.

    Attributes
    ----------
    key
        Key of the taint.
    value
        Value of the taint.
    effect
        Effect of the taint.
    time_added
        Time at which the taint was added (RFC 3339).
    """


class GroupEntry(ApiStruct, forbid_unknown_fields=True):
    """A node group: its limits, and the template of its new nodes.

    The template comes from exactly one of ``template``, ``from_node`` and ``instance_type``. Without any of them, it is
    a copy of the first good node among those that ``nodes`` or ``node_selector`` select. ``labels``, ``taints`` and
    ``capacity`` then change the template.

    Attributes
    ----------
    id : str
        Unique id of the group, as the cloud knows it.
    min : int
        Minimum number of nodes.
    max : int
        Maximum number of nodes.
    target : int or None
        Number of nodes that was requested from the cloud; may be outside of ``min`` and ``max``. None: the number of
        nodes that the group has.
    template : GroupTemplate or None
        A new node, as the API server would return it.
    pods : list of Pod
        With ``template``: the pods that every new node runs, such as those of DaemonSets.
    from_node : str or None
        Name of a node of the cluster to copy as the template.
    instance_type : str or None
        Instance type of new nodes, by its name in the ``catalogue``.
    catalogue : str or None
        Catalogue of instance types: the name of an imported catalogue, or a file. A relative path starts at the folder
        of the groups file.
    zone : str
        With ``instance_type``: zone of new nodes. Empty: none.
    region : str
        With ``instance_type``: region of new nodes and of their price. Empty: no region label, and the price of the
        first region of the type.
    nodes : list of str
        Names of the nodes that belong to the group.
    node_selector : dict of str to str or None
        Labels of the nodes that belong to the group. Only without ``nodes``. None: no labels select nodes.
    labels : dict of str to str or None
        Additional labels of new nodes. None: no additional labels.
    taints : list of GroupTaint
        Additional taints of new nodes.
    capacity : ResourceList or None
        Amounts of new nodes by resource, as quantities. They replace the capacity and the allocatable amount of the
        template, or are added to it. None: unchanged.
    price : float or None
        Price of one node per hour. None: with ``instance_type``, the price in the catalogue; otherwise unknown.
    options : GroupOptions or None
        Options of the Cluster Autoscaler for this group. None: as its flags say.
    exists : bool
        Whether the group exists. False: the Cluster Autoscaler would have to create it first (node auto-provisioning).
    autoprovisioned : bool
        Whether the Cluster Autoscaler created the group.
    """

    id: str
    min: int = 0
    max: int = 1000
    target: int | None = None
    template: GroupTemplate | None = None
    pods: list[Pod] = msgspec.field(default_factory=list)
    from_node: str | None = None
    instance_type: str | None = None
    catalogue: str | None = None
    zone: str = ""
    region: str = ""
    nodes: list[str] = msgspec.field(default_factory=list)
    node_selector: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    taints: list[GroupTaint] = msgspec.field(default_factory=list)
    capacity: ResourceList | None = None
    price: float | None = None
    options: GroupOptions | None = None
    exists: bool = True
    autoprovisioned: bool = False


def _quantity_schema(type_: type) -> dict[str, Any]:
    """Return the JSON Schema of the type Quantity. Raises NotImplementedError for any other type."""
    if type_ is Quantity:
        return {"type": ["string", "number"], "description": "A quantity such as 500m, 2 or 16Gi."}
    raise NotImplementedError(type_)


def groups_schema() -> dict[str, Any]:
    """Build the JSON Schema (2020-12) of a groups file.

    It contains the checks of the reader as far as a schema can express them.
    """
    name, definitions = components_of(GroupEntry, _quantity_schema)
    # Kubernetes publishes the schemas of API objects.
    for kind in ("Pod", "ResourceSlice", "CSINode"):
        definitions[kind] = {"type": "object", "description": f"A {kind}, as the API server returns it."}
    _restrict_template(definitions["GroupTemplate"])
    _add_constraints(definitions)
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
        "$defs": {"Groups": definitions["Groups"], **_collect_referenced_definitions("GroupEntry", definitions)},
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
    """Forbid fields other than those of a node, its resource slices and its CSI node, in place.

    For ``resourceSlices``, null is allowed and means absent.
    """
    template["additionalProperties"] = False
    fields = template["properties"]
    fields |= {name: {} for name in ("apiVersion", "kind", "metadata", "spec", "status")}
    slices = fields["resourceSlices"]
    outer = {key: slices.pop(key) for key in ("default", "description")}
    fields["resourceSlices"] = {"anyOf": [slices, {"type": "null"}], **outer}


def _add_constraints(definitions: dict[str, Any]) -> None:
    """Add the constraints that the types do not express to the schema's definitions, in place."""
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
    key, effect = taint["properties"]["key"], taint["properties"]["effect"]
    key |= {"minLength": 1, "pattern": f"^([-a-z0-9.]+/)?{_NAME}$"}
    effect |= {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]}
    for schema in (key, effect):
        schema.pop("default", None)
    effect.pop("type")
    taint["required"] = ["key", "effect"]
    for struct in (entry, taint):
        for name, schema in struct["properties"].items():
            if name not in ("id", "key", "effect") and "anyOf" not in schema:  # the reader treats null as absent
                outer = {key: schema.pop(key) for key in ("default", "description") if key in schema}
                struct["properties"][name] = {"anyOf": [schema, {"type": "null"}], **outer}
    templates = ("template", "fromNode", "instanceType")
    entry["anyOf"] = [
        *map(_require_field, templates),
        _require_field("nodes", minItems=1),
        _require_field("nodeSelector", minProperties=1),
    ]
    entry["allOf"] = [
        {"not": {"allOf": [_require_field(a), _require_field(b)]}} for a, b in itertools.combinations(templates, 2)
    ]
    entry["allOf"] += [
        {"if": _require_field(name, **limits), "then": _require_field(needed)}
        for name, limits, needed in (
            ("catalogue", {"minLength": 1}, "instanceType"),
            ("zone", {"minLength": 1}, "instanceType"),
            ("region", {"minLength": 1}, "instanceType"),
            ("pods", {"minItems": 1}, "template"),
        )
    ]


def _require_field(name: str, **some: int) -> dict[str, Any]:
    """Return a JSON Schema that requires the field ``name`` with a value other than null.

    ``some``: more constraints on the value.
    """
    return {"required": [name], "properties": {name: {"not": {"type": "null"}, **some}}}


def _collect_referenced_definitions(root: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the definition ``root`` and those that it refers to, directly or not, sorted by name."""
    result: dict[str, Any] = {}
    queue = [root]
    while queue:
        name = queue.pop()
        if name in result:
            continue
        result[name] = definitions[name]
        queue += re.findall(r'"#/\$defs/(\w+)"', msgspec.json.encode(definitions[name]).decode())
    return dict(sorted(result.items()))


def groups_schema_text() -> str:
    """Return the JSON Schema of a groups file as published: indented, with a final line feed."""
    return msgspec.json.format(msgspec.json.encode(groups_schema()), indent=2).decode() + "\n"


_NO_GROUP = "no node group in it: a list of at least one is expected"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@typed
def read_groups(
    path: str | os.PathLike[str],
    *,
    node_names: Container[str] | None = None,
    catalogue: str | os.PathLike[str] | Catalogue | None = None,
) -> list[NodeGroup]:
    """Read the node groups of a file.

    Parameters
    ----------
    path : path
        JSON or YAML, compressed (``.gz``, ``.zst``) or not.
    node_names : container of str, optional
        Names of the cluster's nodes, to check ``fromNode`` and ``nodes``. None: not checked.
    catalogue : path or Catalogue, optional
        Where ``instanceType`` is looked up for entries that name no catalogue themselves.

    Returns
    -------
    list of NodeGroup
        The groups in the order of the file.

    Raises
    ------
    InputError
        With every mistake in the file; also if it cannot be read or has no entry.
    """
    data, folder = read_plain_file(path, "node group"), Path(path).parent
    return groups_from(data, source=str(path), folder=folder, node_names=node_names, catalogue=catalogue)


_OWN_FIELDS: Final[dict[str, type[msgspec.Struct]]] = {"": GroupEntry, "options": GroupOptions, "taints": GroupTaint}


def _with_known_fields(problem: Problem) -> Problem:
    """Return the problem; if it is an unknown field, its message also lists the known fields."""
    owner = _OWN_FIELDS.get(problem.field.partition("[")[0])
    if owner is None or "unknown field" not in problem.message:
        return problem
    names = ", ".join(field.encode_name for field in msgspec.structs.fields(owner))
    return dataclasses_replace(problem, message=f"{problem.message}; there are {names}")


@typed
def groups_from(
    data: Any,
    *,
    source: str = "",
    folder: str | os.PathLike[str] = ".",
    node_names: Container[str] | None = None,
    catalogue: str | os.PathLike[str] | Catalogue | None = None,
) -> list[NodeGroup]:
    """Decode node groups from plain data.

    Parameters
    ----------
    data : list of dict
        Entries of a groups file, or a dict with only ``groups``.
    source : str
        Name of the data in problems.
    folder : path
        Where relative catalogue paths start.
    node_names, catalogue
        As for :func:`read_groups`.

    Returns
    -------
    list of NodeGroup
        One for each entry, in order.

    Raises
    ------
    InputError
        With every mistake; also if there is no entry. The instance type of an entry is looked up only if the entry has
        no other mistake.
    """
    if isinstance(data, dict) and set(data) == {"groups"}:
        data = data["groups"]
    if not isinstance(data, list):
        raise InputError(Problem(f"a list of node groups expected, got {type(data).__name__}", source))
    if not data:
        raise InputError(Problem(_NO_GROUP, source))
    problems: list[Problem] = []
    catalogues = _CatalogueCache(Path(folder), catalogue)
    groups: list[NodeGroup] = []
    first: dict[str, int] = {}
    owner: dict[str, int] = {}
    for index, item in enumerate(data):
        place = f"groups[{index}]"
        if isinstance(item, dict) and isinstance(item.get("id"), str):
            place = f"{place} ({escape(item['id'])})"
        try:
            entry = from_dict(item, GroupEntry, source=source, object_path=place)
        except InputError as error:
            problems += map(_with_known_fields, error.problems)
            continue
        if entry.id in first:
            problems.append(Problem(f"the id is that of groups[{first[entry.id]}]", source, place, "id"))
        first.setdefault(entry.id, index)
        mistakes = [Problem(message, source, place, field) for field, message in _find_errors(entry, node_names)]
        if entry.template is not None:
            for field, names in find_unknown_fields(item["template"], GroupTemplate, "template"):
                mistakes.append(Problem(f"unknown field; there are {', '.join(names)}", source, place, field))
        for position, name in enumerate(entry.nodes):
            if name in owner:
                text = f'node "{name}" is of groups[{owner[name]}] already'
                mistakes.append(Problem(text, source, place, f"nodes[{position}]"))
            owner.setdefault(name, index)
        try:
            template, price = catalogues.template(entry) if not mistakes else (None, None)
        except InputError as error:
            field = "instanceType" if isinstance(error, KeyError) else "catalogue"
            mistakes += [Problem(str(problem), source, place, field) for problem in error.problems]
        problems += mistakes
        if not mistakes:
            groups.append(_group(entry, template, price))
    if problems:
        raise InputError(problems, total=len(data))
    return groups


def _group(entry: GroupEntry, template: NodeTemplate | None, price: float | None) -> NodeGroup:
    """Build the node group of an entry. ``price`` is used if the entry has no price of its own."""
    return NodeGroup(
        id=entry.id,
        min_size=entry.min,
        max_size=entry.max,
        target_size=entry.target,
        nodes=entry.nodes,
        node_selector=entry.node_selector,
        template=template,
        from_node=entry.from_node,
        labels=entry.labels,
        taints=list(entry.taints),
        capacity=entry.capacity,
        price=price if entry.price is None else entry.price,
        options=entry.options,
        exists=entry.exists,
        autoprovisioned=entry.autoprovisioned,
    )


def _find_errors(entry: GroupEntry, node_names: Container[str] | None) -> Iterator[tuple[str, str]]:
    """Yield (field, message) for each mistake of an entry whose fields have the right types.

    ``node_names``: names of the cluster's nodes; None: references to nodes are not checked.
    """
    if not entry.id:
        yield "id", "is empty"
    elif not entry.id.isprintable():
        yield "id", "has control characters"
    yield from _find_size_errors(entry)
    sources = [
        name
        for name, value in (
            ("template", entry.template),
            ("fromNode", entry.from_node),
            ("instanceType", entry.instance_type),
        )
        if value is not None
    ]
    if len(sources) > 1:
        yield sources[1], f"{' and '.join(sources)} exclude each other"
    if not sources and not entry.nodes and not entry.node_selector:
        yield "", "no template: give template, fromNode, instanceType, nodes or nodeSelector"
    for field, value in (("catalogue", entry.catalogue), ("zone", entry.zone), ("region", entry.region)):
        if value and entry.instance_type is None:
            yield field, "has an effect only with instanceType"
    if entry.pods and entry.template is None:
        yield "pods", "has an effect only with template"
    if entry.template is not None and not (entry.template.status.allocatable or entry.template.status.capacity):
        yield "template.status.allocatable", "is empty: the node would have room for nothing"
    yield from _find_template_errors(entry)
    if node_names is not None:
        if entry.from_node is not None and entry.from_node not in node_names:
            yield "fromNode", f'there is no node "{entry.from_node}"'
        for i, name in enumerate(entry.nodes):
            if name not in node_names:
                yield f"nodes[{i}]", f'there is no node "{name}"'
    yield from _find_addition_errors(entry)


def _find_template_errors(entry: GroupEntry) -> Iterator[tuple[str, str]]:
    """Yield (field, message) for each mistake in an entry's template and pods, by the checks of dumps.

    Of pods only fatal mistakes count, and names may be missing.
    """
    if entry.template is not None:
        node = entry.template.node
        named = msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, name="x"))
        for finding in check(named):
            yield f"template.{finding.field}", finding.message
        yield from _labels("template.metadata.labels", entry.template.metadata.labels)
        for position, resource_slice in enumerate(entry.template.resource_slices):
            spec, field = resource_slice.spec, f"template.resourceSlices[{position}].spec"
            for name, value in (("driver", spec.driver), ("pool.name", spec.pool.name)):
                if not value:
                    yield f"{field}.{name}", "is empty"
            for name, is_set in (
                ("nodeSelector", spec.node_selector is not None),
                ("allNodes", bool(spec.all_nodes)),
                ("perDeviceNodeSelection", bool(spec.per_device_node_selection)),
            ):
                if is_set:
                    yield f"{field}.{name}", "is not of one node: a template has its own devices only"
    for position, pod in enumerate(entry.pods):
        for finding in check(pod):
            if finding.fatal and finding.field != "metadata.name":
                yield f"pods[{position}].{finding.field}", finding.message


def _labels(field: str, labels: dict[str, str] | None) -> Iterator[tuple[str, str]]:
    """Yield (field, message) for each invalid key or value of labels. ``field``: where the labels are."""
    for key, value in (labels or {}).items():
        for error in qualified_name_errors(key):
            yield field, f"{go_quote(key)}: {error}"
        for error in label_value_errors(value):
            yield f"{field}[{key}]", f"{go_quote(value)}: {error}"


def _find_size_errors(entry: GroupEntry) -> Iterator[tuple[str, str]]:
    """Yield (field, message) for each negative size, and if ``min`` is more than ``max``."""
    for field, size in (("min", entry.min), ("max", entry.max), ("target", entry.target)):
        if size is not None and size < 0:
            yield field, f"{size} is negative"
    if entry.min > entry.max >= 0:
        yield "min", f"min {entry.min} is more than max {entry.max}"


def _find_addition_errors(entry: GroupEntry) -> Iterator[tuple[str, str]]:
    """Yield (field, message) for each mistake in labels, selector, taints, capacity, price and options."""
    yield from _labels("labels", entry.labels)
    yield from _labels("nodeSelector", entry.node_selector)
    for i, taint in enumerate(entry.taints):
        if not taint.key:
            yield f"taints[{i}].key", "is empty"
        else:
            yield from _labels(f"taints[{i}]", {taint.key: taint.value})
        if taint.effect not in _EFFECTS:
            yield f"taints[{i}].effect", f'"{taint.effect}" is not one of {", ".join(_EFFECTS)}'
    for name, amount in (entry.capacity or {}).items():
        if amount.sign < 0:
            yield f"capacity[{name}]", f"{amount} is negative"
    if entry.price is not None and not (math.isfinite(entry.price) and entry.price >= 0):
        yield "price", f"{entry.price} is not a price"
    if entry.options is not None:
        for field, message in NodeGroupOptions.problems(entry.options):
            yield f"options.{field}", message


class _CatalogueCache(msgspec.Struct, eq=False):
    """Cache of the catalogues that a file names; each is read once."""

    _folder: Path
    _default: str | os.PathLike[str] | Catalogue | None
    _read: dict[Path, Catalogue] = {}

    def template(self, entry: GroupEntry) -> tuple[NodeTemplate | None, float | None]:
        """Return (template, price in $/h) of an entry with ``template`` or ``instanceType``.

        (None, None) for other entries. The price is None for a ``template``, and if the catalogue has none. Raises
        InputError if the catalogue cannot be read or lacks the type.
        """
        if entry.template is not None:
            return entry.template.node_template(entry.pods), None
        if entry.instance_type is None:
            return None, None
        kind = self._catalogue(entry.catalogue)[entry.instance_type]
        return kind.template(zone=entry.zone, region=entry.region), kind.price(entry.region)

    def _catalogue(self, named: str | None) -> Catalogue:
        """Return the catalogue in the file ``named`` (relative to the folder), or without a name the default one.

        Each is read once. Raises InputError if there is neither a name nor a default, or if the file cannot be read.
        """
        if named is not None:
            path = self._folder / named
        elif self._default is None:
            raise InputError("instanceType needs a catalogue")
        elif isinstance(self._default, str | os.PathLike):
            path = Path(self._default)
        else:
            return self._default
        if path not in self._read:
            from kscale.capacity.catalogue import read_catalogue  # read lazily: most files name no instance types

            self._read[path] = read_catalogue(path)
        return self._read[path]
