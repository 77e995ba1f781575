"""Node groups and templates that are given as plain data: no member is lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kscale.errors import InputError, Problem
from kscale.objects.core import Node, Pod
from kscale.objects.decode import from_dict
from kscale.objects.kind_check import check_kind
from kscale.objects.nodegroup import NodeGroup, NodeGroupOptions, NodeTemplate
from kscale.objects.resource import ResourceSlice
from kscale.objects.storage import CSINode

__all__ = ["group_from_dict", "template_from_dict"]


def group_from_dict(given: Mapping[str, Any], where: str = "node group") -> NodeGroup:
    """A node group; its ``template`` may be a bare node. Raises InputError, also for members that there are not."""
    data = dict(given)
    problems = _unknown(data, NodeGroup, where, "")
    if isinstance(data.get("options"), Mapping):
        problems += _unknown(data["options"], NodeGroupOptions, where, "options.")
    if isinstance(data.get("template"), Mapping):
        data["template"] = _template(data["template"])
        problems += _unknown(data["template"], NodeTemplate, where, "template.")
    if problems:
        raise InputError(problems)
    return from_dict(data, NodeGroup, object_path=where)


def template_from_dict(given: Mapping[str, Any], where: str = "template") -> NodeTemplate:
    """A template: a node with its pods and devices, or a bare node. Raises InputError as above."""
    data = _template(given)
    problems = _unknown(data, NodeTemplate, where, "")
    if problems:
        raise InputError(problems)
    return from_dict(data, NodeTemplate, object_path=where)


def _template(given: Mapping[str, Any]) -> dict[str, Any]:
    """A bare node is the ``node`` of a template."""
    data = {"node": dict(given)} if "node" not in given and not given.keys().isdisjoint(_NODE) else dict(given)
    for member, type_ in (("node", Node), ("pods", Pod), ("csiNode", CSINode), ("resourceSlices", ResourceSlice)):
        value = data.get(member)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Mapping):
                check_kind(item, type_, f"template.{member}")
    return data


_NODE = ("metadata", "spec", "status")


def _unknown(given: Mapping[str, Any], type_: type[msgspec.Struct], where: str, prefix: str) -> list[Problem]:
    members = {field.encode_name for field in msgspec.structs.fields(type_)}
    return [
        Problem("there is no such member", object=where, field=f"{prefix}{name}")
        for name in given
        if name not in members
    ]
