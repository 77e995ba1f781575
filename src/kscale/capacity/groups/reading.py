"""The groups file (``-g``), kscale's own: JSON or YAML, a list of entries; every mistake by name, all at once."""

from __future__ import annotations

import math
import os
from collections.abc import Container, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kscale.capacity.groups.entry import GroupEntry, GroupOptions, GroupTaint, GroupTemplate
from kscale.capacity.plain_files import read_plain_file
from kscale.errors import InputError, Problem
from kscale.objects.decode import escaped, from_dict
from kscale.objects.meta import ObjectMeta
from kscale.objects.names import go_quote, label_value_errors, qualified_name_errors
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.validation import check

if TYPE_CHECKING:
    from kscale.capacity.catalogue import Catalogue

__all__ = ["groups_from", "read_groups"]

_NO_GROUP = "no node group in it: a list of at least one is expected"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def read_groups(
    path: str | os.PathLike[str],
    *,
    node_names: Container[str] | None = None,
    catalogue: str | os.PathLike[str] | Catalogue | None = None,
) -> list[NodeGroup]:
    """The node groups of a file (JSON or YAML, ``.gz`` or not), in order.

    ``node_names``: the nodes of the cluster, so that ``fromNode`` and ``nodes`` can be checked (None = not checked).
    ``catalogue``: where ``instanceType`` is looked up in entries that name no catalogue themselves.
    Raises InputError with every mistake in the file.
    """
    data, folder = read_plain_file(path, "node group"), Path(path).parent
    return groups_from(data, source=str(path), folder=folder, node_names=node_names, catalogue=catalogue)


_OWN_FIELDS: Final[dict[str, type[msgspec.Struct]]] = {"": GroupEntry, "options": GroupOptions, "taints": GroupTaint}


def _with_known_fields(problem: Problem) -> Problem:
    """Where a field is not known: which are."""
    owner = _OWN_FIELDS.get(problem.field.partition("[")[0])
    if owner is None or "unknown field" not in problem.message:
        return problem
    known = ", ".join(each.encode_name for each in msgspec.structs.fields(owner))
    return replace(problem, message=f"{problem.message}; there are {known}")


def groups_from(
    data: Any,
    *,
    source: str = "",
    folder: str | os.PathLike[str] = ".",
    node_names: Container[str] | None = None,
    catalogue: str | os.PathLike[str] | Catalogue | None = None,
) -> list[NodeGroup]:
    """The node groups of plain data, a list of dicts; relative catalogue paths start at ``folder``.

    ``source``: what problems call the data. Otherwise as :func:`read_groups`. Raises InputError with every mistake.
    """
    if isinstance(data, dict) and set(data) == {"groups"}:
        data = data["groups"]
    if not isinstance(data, list):
        raise InputError(Problem(f"a list of node groups expected, got {type(data).__name__}", source))
    if not data:
        raise InputError(Problem(_NO_GROUP, source))
    problems: list[Problem] = []
    shelf = _Shelf(Path(folder), catalogue)
    groups: list[NodeGroup] = []
    first: dict[str, int] = {}
    owner: dict[str, int] = {}
    for index, item in enumerate(data):
        place = f"groups[{index}]"
        if isinstance(item, dict) and isinstance(item.get("id"), str):
            place = f"{place} ({escaped(item['id'])})"
        try:
            entry = from_dict(item, GroupEntry, source=source, object_path=place)
        except InputError as error:
            problems += map(_with_known_fields, error.problems)
            continue
        if entry.id in first:
            problems.append(Problem(f"the id is that of groups[{first[entry.id]}]", source, place, "id"))
        first.setdefault(entry.id, index)
        mistakes = [Problem(message, source, place, field) for field, message in _mistakes(entry, node_names)]
        if entry.template is not None:
            unknown = _unknown_fields(item["template"], msgspec.inspect.type_info(GroupTemplate), "template")
            mistakes += [Problem(message, source, place, field) for field, message in unknown]
        for position, name in enumerate(entry.nodes):
            if name in owner:
                text = f'node "{name}" is of groups[{owner[name]}] already'
                mistakes.append(Problem(text, source, place, f"nodes[{position}]"))
            owner.setdefault(name, index)
        try:
            template, price = shelf.template(entry) if not mistakes else (None, None)
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


def _mistakes(entry: GroupEntry, node_names: Container[str] | None) -> Iterator[tuple[str, str]]:
    """(field, what is wrong with it) of an entry that has the right shape."""
    if not entry.id:
        yield "id", "is empty"
    elif not entry.id.isprintable():
        yield "id", "has control characters"
    yield from _limits(entry)
    given = [
        name
        for name, value in (
            ("template", entry.template),
            ("fromNode", entry.from_node),
            ("instanceType", entry.instance_type),
        )
        if value is not None
    ]
    if len(given) > 1:
        yield given[1], f"{' and '.join(given)} exclude each other"
    if not given and not entry.nodes and not entry.node_selector:
        yield "", "no template: give template, fromNode, instanceType, nodes or nodeSelector"
    for field, value in (("catalogue", entry.catalogue), ("zone", entry.zone), ("region", entry.region)):
        if value and entry.instance_type is None:
            yield field, "is of use with instanceType only"
    if entry.pods and entry.template is None:
        yield "pods", "is of use with template only"
    if entry.template is not None and not (entry.template.status.allocatable or entry.template.status.capacity):
        yield "template.status.allocatable", "is empty: the node would have room for nothing"
    yield from _template(entry)
    if node_names is not None:
        if entry.from_node is not None and entry.from_node not in node_names:
            yield "fromNode", f'there is no node "{entry.from_node}"'
        for i, name in enumerate(entry.nodes):
            if name not in node_names:
                yield f"nodes[{i}]", f'there is no node "{name}"'
    yield from _additions(entry)


def _template(entry: GroupEntry) -> Iterator[tuple[str, str]]:
    """What no node can be, as the reading of a dump says it."""
    if entry.template is not None:
        node = entry.template.node
        named = msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, name="x"))
        for finding in check(named):
            yield f"template.{finding.field}", finding.message
        yield from _labels("template.metadata.labels", entry.template.metadata.labels)
        for position, each in enumerate(entry.template.resource_slices):
            spec, field = each.spec, f"template.resourceSlices[{position}].spec"
            for name, value in (("driver", spec.driver), ("pool.name", spec.pool.name)):
                if not value:
                    yield f"{field}.{name}", "is empty"
            for name, given in (
                ("nodeSelector", spec.node_selector is not None),
                ("allNodes", bool(spec.all_nodes)),
                ("perDeviceNodeSelection", bool(spec.per_device_node_selection)),
            ):
                if given:
                    yield f"{field}.{name}", "is not of one node: a template has its own devices only"
    for position, pod in enumerate(entry.pods):
        for finding in check(pod):
            if finding.fatal and finding.field != "metadata.name":
                yield f"pods[{position}].{finding.field}", finding.message


_ALSO_KNOWN: Final[dict[type, frozenset[str]]] = {ObjectMeta: frozenset({"managedFields", "selfLink"})}
"""Fields of the API that nothing here reads."""


def _unknown_fields(data: Any, type_: msgspec.inspect.Type, path: str) -> Iterator[tuple[str, str]]:
    """(path, what is wrong) of every field of plain data that the type of the API does not have."""
    match type_:
        case msgspec.inspect.UnionType():
            for each in type_.types:
                yield from _unknown_fields(data, each, path)
        case msgspec.inspect.ListType() if isinstance(data, list):
            for i, item in enumerate(data):
                yield from _unknown_fields(item, type_.item_type, f"{path}[{i}]")
        case msgspec.inspect.DictType() if isinstance(data, dict):
            for key, item in data.items():
                yield from _unknown_fields(item, type_.value_type, f"{path}[{key}]")
        case msgspec.inspect.StructType() if isinstance(data, dict):
            fields = {field.encode_name: field.type for field in type_.fields}
            for name, item in data.items():
                if name in fields:
                    yield from _unknown_fields(item, fields[name], f"{path}.{name}")
                elif name not in _ALSO_KNOWN.get(type_.cls, ()):
                    yield f"{path}.{name}", f"unknown field; there are {', '.join(fields)}"


def _labels(field: str, labels: dict[str, str] | None) -> Iterator[tuple[str, str]]:
    for key, value in (labels or {}).items():
        for error in qualified_name_errors(key):
            yield field, f"{go_quote(key)}: {error}"
        for error in label_value_errors(value):
            yield f"{field}[{key}]", f"{go_quote(value)}: {error}"


def _limits(entry: GroupEntry) -> Iterator[tuple[str, str]]:
    for field, size in (("min", entry.min), ("max", entry.max), ("target", entry.target)):
        if size is not None and size < 0:
            yield field, f"{size} is negative"
    if entry.min > entry.max >= 0:
        yield "min", f"min {entry.min} is more than max {entry.max}"


def _additions(entry: GroupEntry) -> Iterator[tuple[str, str]]:
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
        for field, value in msgspec.to_builtins(entry.options).items():
            if not isinstance(value, bool) and not (math.isfinite(value) and value >= 0):
                yield f"options.{field}", f"{value} is negative or not a number"


class _Shelf:
    """The catalogues of a file, each read once."""

    def __init__(self, folder: Path, default: str | os.PathLike[str] | Catalogue | None) -> None:
        self._folder = folder
        self._default = default
        self._read: dict[Path, Catalogue] = {}

    def template(self, entry: GroupEntry) -> tuple[NodeTemplate | None, float | None]:
        """What a new node is, if the entry itself says so, and what the catalogue asks for it."""
        if entry.template is not None:
            return entry.template.node_template(entry.pods), None
        if entry.instance_type is None:
            return None, None
        kind = self._catalogue(entry.catalogue)[entry.instance_type]
        return kind.template(zone=entry.zone, region=entry.region), kind.price(entry.region)

    def _catalogue(self, named: str | None) -> Catalogue:
        if named is not None:
            path = self._folder / named
        elif self._default is None:
            raise InputError("instanceType needs a catalogue")
        elif isinstance(self._default, str | os.PathLike):
            path = Path(self._default)
        else:
            return self._default
        if path not in self._read:
            from kscale.capacity.catalogue import read_catalogue  # most files name no instance types

            self._read[path] = read_catalogue(path)
        return self._read[path]
