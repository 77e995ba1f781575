"""Edits of node groups, prices, flags and the scheduler's profile."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec

from kscale.ca.flag_parsing import parse_flags
from kscale.ca.options import AutoscalingOptions
from kscale.capacity.catalogue import read_catalogue
from kscale.capacity.groups import group_template, groups_from, members_of
from kscale.capacity.plain_files import read_plain
from kscale.capacity.whatif.grammar import GroupsEdit, PricesEdit, SetGroup
from kscale.capacity.whatif.texts import factor_in, group_names, text_of
from kscale.capacity.whatif.world import World
from kscale.errors import InputError
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.scheduling.scheduler_config import scheduler_profile

__all__ = ["change_flags", "change_groups", "change_prices", "change_scheduler"]

_TYPE = "node.kubernetes.io/instance-type"
_OF_MACHINE = ("kubernetes.io/", "beta.kubernetes.io/", _TYPE)


def change_groups(world: World, edit: GroupsEdit, folder: Path) -> World:
    groups = list(world.groups)
    templates, retired = dict(world.templates), list(world.retired)
    for pattern in edit.remove:
        gone = set(group_names(groups, pattern))
        retired += [group for group in groups if group.id in gone]
        groups = [group for group in groups if group.id not in gone]
    only_prices = not edit.remove and not edit.add
    for pattern, change in edit.set.items():
        only_prices &= all(getattr(change, name) is None for name in change.__struct_fields__ if name != "price")
        for name in group_names(groups, pattern):
            at = next(i for i, group in enumerate(groups) if group.id == name)
            groups[at] = _changed(groups[at], change, world, templates)
    if edit.add:
        added = groups_from(edit.add, folder=folder, node_names=world.place.snapshot.columns.index,
                            catalogue=world.catalogue)  # fmt: skip
        taken = {group.id for group in groups}
        for group in added:
            if group.id in taken:
                raise InputError(f'there is a node group "{group.id}" already')
            groups.append(group)
    why = "" if only_prices else text_of("groups", edit)
    return world.edited(why, groups=tuple(groups), templates=templates, retired=tuple(retired))


def _changed(group: NodeGroup, change: SetGroup, world: World, templates: dict[str, NodeTemplate]) -> NodeGroup:
    fields = {"min": "min_size", "max": "max_size", "target": "target_size", "price": "price"}
    values = {field: getattr(change, name) for name, field in fields.items() if getattr(change, name) is not None}
    if change.instance_type is not None:
        if world.catalogue is None:
            raise InputError("instanceType needs a catalogue")
        kind = world.catalogue[change.instance_type]
        known = templates.get(group.id) or group.template
        old = {} if known is None else known.node.metadata.labels or {}
        own = {key: value for key, value in old.items() if not key.startswith(_OF_MACHINE)}
        made = kind.node(labels={**own, **(group.labels or {})})
        if known is not None:
            spec = msgspec.structs.replace(made.spec, taints=known.node.spec.taints)
            made = msgspec.structs.replace(made, spec=spec)
        plain = msgspec.structs.replace(group, template=NodeTemplate(node=made), from_node=None)
        templates[group.id] = group_template(plain, daemonsets=list(world.place.cluster.all("DaemonSet")))
        values.setdefault("price", kind.price(own.get("topology.kubernetes.io/region", "")) or kind.price())
    new = msgspec.structs.replace(group, **values)
    if new.min_size < 0 or new.min_size > new.max_size:
        raise InputError(f"node group {group.id}: min {new.min_size} is more than max {new.max_size}, or negative")
    if new.price is not None and not (math.isfinite(new.price) and new.price >= 0):
        raise InputError(f"node group {group.id}: {new.price} is not a price")
    return new


def change_prices(world: World, edit: PricesEdit, folder: Path) -> World:
    groups = list(world.groups)
    catalogue = world.catalogue
    if edit.catalogue is not None:
        beside = folder / edit.catalogue
        catalogue = read_catalogue(beside if beside.exists() else edit.catalogue)
        catalogue.check_region(edit.region)
        for i, group in enumerate(groups):
            kind = _instance_type(world, group)
            price = catalogue[kind].price(edit.region) if kind in set(catalogue) else None
            if price is not None:
                groups[i] = msgspec.structs.replace(group, price=price)
    for pattern, text in edit.scale.items():
        factor = float(factor_in(text, f"prices.scale[{pattern}]"))
        for name in group_names(groups, pattern):
            at = next(i for i, group in enumerate(groups) if group.id == name)
            price = groups[at].price
            if price is None:
                raise InputError(f"node group {name} has no price to scale")
            groups[at] = msgspec.structs.replace(groups[at], price=price * factor)
    return world.edited("", groups=tuple(groups), catalogue=catalogue)


def _instance_type(world: World, group: NodeGroup) -> str:
    nodes: list[Node] = [] if group.template is None else [group.template.node]
    if group.id in world.templates:
        nodes.append(world.templates[group.id].node)
    nodes += members_of(group, world.place.snapshot.columns.objects)[:1]
    labels = (node.metadata.labels or {} for node in nodes)
    return next((each[_TYPE] for each in labels if _TYPE in each), "")


def change_flags(world: World, edit: dict[str, Any], _: Path) -> World:
    def text(value: Any) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    parsed = parse_flags([f"{name}={text(value)}" for name, value in edit.items()])
    if parsed.idle:
        name, why = next(iter(parsed.idle.items()))
        raise InputError(f"flag {name} has no effect: {why}")
    options: AutoscalingOptions = msgspec.structs.replace(world.options, **parsed.values)
    if problems := options.problems():
        raise InputError(problems)
    others = {name: value for name, value in parsed.values.items() if name != "expander"}
    return world.edited(
        text_of("flags", {name: str(value) for name, value in others.items()}) if others else "", options=options
    )


def change_scheduler(world: World, edit: str, folder: Path) -> World:
    path = folder / edit
    try:
        data = read_plain(path.read_bytes(), str(path), "a KubeSchedulerConfiguration")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    return world.edited(text_of("scheduler", edit), profile=scheduler_profile(data))
