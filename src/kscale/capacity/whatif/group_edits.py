"""Edits of node groups, prices, flags and the scheduler's profile."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from kscale.ca.errors import AutoscalerError
from kscale.ca.expander.registry import EXPANDER_NAMES
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_up.one_loop import check_options
from kscale.capacity.catalogue import read_catalogue
from kscale.capacity.groups import group_template, groups_from, members_of
from kscale.capacity.plain_files import read_plain_file
from kscale.capacity.whatif.grammar import GroupsEdit, PricesEdit, Question, SetGroup
from kscale.capacity.whatif.question_flags import options_in
from kscale.capacity.whatif.texts import factor_in, group_names
from kscale.capacity.whatif.world import World, zones_of
from kscale.errors import InputError, Problem
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.scheduling.scheduler_config import scheduler_profile

__all__ = ["change_flags", "change_groups", "change_prices", "change_scheduler"]

_CHOOSING = frozenset({"estimator", "expander", "legacy"})  # flags that a scale-up refuses once it begins
_TYPE = "node.kubernetes.io/instance-type"
_OF_MACHINE = ("kubernetes.io/", "beta.kubernetes.io/", _TYPE)


def change_groups(world: World, edit: GroupsEdit, folder: Path) -> World:
    if not (edit.add or edit.remove or edit.set):
        raise InputError("add, remove or set something")
    groups = list(world.groups)
    templates, retired, standing = dict(world.templates), list(world.retired), dict(world.standing)
    notes = list(world.notes)
    for pattern in edit.remove:
        lost = [group for group in world.retired if group.id in world.lost_groups]  # removing these changes nothing
        gone = set(group_names((*groups, *lost), pattern, retired))
        for group in groups:
            if group.id in gone:
                retired.append(group)
                standing.setdefault(group.id, group.price)
        groups = [group for group in groups if group.id not in gone]
    for pattern, change in edit.set.items():
        if not change.given:
            raise InputError(f"set.{pattern}: name min, max, target, price or instanceType")
        for name in group_names(groups, pattern, retired):
            at = next(i for i, group in enumerate(groups) if group.id == name)
            old = groups[at]
            groups[at] = _changed(old, change, world, templates)
            if change.instance_type is not None:
                standing.setdefault(name, old.price)  # only new nodes are of that type
                if count := len(members_of(old, world.place.snapshot.columns.objects)):
                    nodes = "1 node that runs keeps its" if count == 1 else f"{count:,} nodes that run keep their"
                    notes.append(f"{name}: {nodes} type and price, only new ones are {change.instance_type}")
    if edit.add:
        added = groups_from(edit.add, folder=folder, node_names=world.place.snapshot.columns.index,
                            catalogue=world.catalogue)  # fmt: skip
        taken = {group.id for group in groups}
        for group in added:
            if group.id in taken:
                raise InputError(f'there is a node group "{group.id}" already')
            if zones := zones_of(group, world, ()) & world.lost_zones:
                raise InputError(
                    f'node group {group.id}: zone "{min(zones)}" is lost (lose: {{rebuy: true}} buys there)'
                )
            groups.append(group)
    return replace(
        world,
        groups=tuple(groups),
        templates=templates,
        retired=tuple(retired),
        standing=standing,
        notes=tuple(notes),
    )


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
    if edit.catalogue is None and (edit.region or not edit.scale):
        raise InputError("name a catalogue, or scale something")
    groups, standing = list(world.groups), dict(world.standing)
    catalogue = world.catalogue
    if edit.catalogue is not None:
        beside = folder / edit.catalogue
        catalogue = read_catalogue(beside if beside.exists() else edit.catalogue)
        catalogue.check_region(edit.region)
        known = {name: price for name, kind in catalogue.items() if (price := kind.price(edit.region)) is not None}
        others = {_type_of([node]) for node in world.place.snapshot.columns.objects}
        news, olds = _types_of(world)
        if not known.keys() & {*news.values(), *olds.values(), *others}:
            raise InputError(f"{edit.catalogue} has no price for any of these nodes")
        for i, group in enumerate(groups):
            old = standing.pop(group.id, group.price)
            if news[group.id] in known:
                groups[i] = msgspec.structs.replace(group, price=known[news[group.id]])
            old = known.get(olds[group.id], old)
            if old != groups[i].price:
                standing[group.id] = old
        for name in {group.id for group in world.retired} - {group.id for group in groups}:
            standing[name] = known.get(olds[name], standing[name])
    for pattern, text in edit.scale.items():
        factor = float(factor_in(text, f"prices.scale[{pattern}]"))
        for name in dict.fromkeys(group_names((*groups, *world.retired), pattern)):
            at = next((i for i, group in enumerate(groups) if group.id == name), None)  # None: only its nodes are left
            old = standing.get(name)
            price = old if at is None else groups[at].price
            if price is None:
                raise InputError(f"node group {name} has no price to scale")
            if at is not None:
                groups[at] = msgspec.structs.replace(groups[at], price=price * factor)
            if old is not None:
                standing[name] = old * factor
    return replace(world, groups=tuple(groups), catalogue=catalogue, standing=standing)


def _types_of(world: World) -> tuple[dict[str, str], dict[str, str]]:
    """(the instance type of a new node of each group, that of the nodes it has, also of groups that were removed);
    empty = not known, or there are none."""
    nodes = world.place.snapshot.columns.objects
    olds: dict[str, str] = {}
    for group in (*world.groups, *world.retired):
        olds[group.id] = olds.get(group.id) or _type_of(members_of(group, nodes)[:1])
    news = {}
    for group in world.groups:
        made = (group.template, world.templates.get(group.id))
        news[group.id] = _type_of([each.node for each in made if each is not None]) or olds[group.id]
    return news, olds


def _type_of(nodes: Iterable[Node]) -> str:
    labels = (node.metadata.labels or {} for node in nodes)
    return next((each[_TYPE] for each in labels if _TYPE in each), "")


def change_flags(world: World, edit: Mapping[str, Any], question: Question) -> World:
    """``question``: what will be asked, whose answer has to depend on the flags."""
    values = options_in(edit, question)
    options: AutoscalingOptions = msgspec.structs.replace(world.options, **values)
    if problems := options.problems():
        raise InputError(problems)
    if values.keys() & _CHOOSING:
        try:
            check_options(options)
        except AutoscalerError as error:
            unknown = not set(options.expander_names).issubset(EXPANDER_NAMES)
            there_are = f"; there are {', '.join(EXPANDER_NAMES)}" if unknown else ""
            raise InputError(Problem(f"{error}{there_are}", field="expander")) from None
    return replace(world, options=options)


def change_scheduler(world: World, edit: str, folder: Path) -> World:
    path = folder / edit
    data = read_plain_file(path, "KubeSchedulerConfiguration", "one")
    try:
        profile = scheduler_profile(data)
    except InputError as error:
        raise InputError([replace(problem, source=str(path)) for problem in error.problems]) from None
    return replace(world, profile=profile)
