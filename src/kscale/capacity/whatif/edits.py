"""Apply a scenario's edits to its base: pods, requests, nodes, node groups, prices, flags and the scheduler profile."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from fractions import Fraction
from itertools import count, islice
from pathlib import Path
from typing import Any

import msgspec

from kscale.ca.entry_points import check_scale_up_options
from kscale.ca.errors import AutoscalerError
from kscale.ca.expander.chain import EXPANDER_NAMES
from kscale.ca.options import AutoscalingOptions
from kscale.capacity.catalogue import read_catalogue
from kscale.capacity.fit import workloads_in
from kscale.capacity.group_templates import with_templates
from kscale.capacity.groups import group_template, groups_from, members_of
from kscale.capacity.groups.groups_file import read_plain_file
from kscale.capacity.losses import make_pending, smaller
from kscale.capacity.machine_types import instance_type_of
from kscale.capacity.right_sizing import advice_of, apply_advice, replace_requests
from kscale.capacity.whatif.scenarios import (
    Edit,
    GroupsEdit,
    LoseEdit,
    PodsEdit,
    PricesEdit,
    Question,
    RequestsEdit,
    SetGroup,
    options_in,
)
from kscale.capacity.whatif.world import SharedCluster, World, zones_of
from kscale.errors import InputError, Problem
from kscale.files import read_file
from kscale.imports import lazy_pattern
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.meta import ResourceList
from kscale.objects.node_selectors import INSTANCE_TYPE, REGION, ZONE
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.pod_resources import CPU, MEMORY, demand
from kscale.objects.quantity import Quantity, QuantityError
from kscale.objects.selectors import Selector, SelectorError, parse_selector
from kscale.objects.workloads import pods_of
from kscale.scheduling.configuration import scheduler_profile
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.loading import load_objects
from kscale.vpa.advice.records import RecommendationReport
from kscale.vpa.controllers import Controllers, TargetError, read_controllers
from kscale.vpa.target import find_topmost_owner

__all__ = ["apply_edit", "get_digest_text", "text_of"]


_FACTOR = lazy_pattern(r"x(\d+(?:\.\d+)?)")


def text_of(kind: str, edit: Any) -> str:
    """Format an edit of a kind (``groups``, ``pods``, ...) as text; equal edits have equal texts."""
    return f"{kind} {msgspec.json.encode(edit).decode()}"


def _factor_in(text: str, what: str) -> Fraction:
    """Parse a factor such as ``x0.8``.

    Raises InputError, whose message begins with ``what``, if the text is not a factor.
    """
    match = _FACTOR.fullmatch(text)
    if match is None:
        raise InputError(f'{what}: "{text}" is no factor like x0.8')
    return Fraction(match[1])


def _group_names(groups: Iterable[NodeGroup], pattern: str, retired: Iterable[NodeGroup] = ()) -> list[str]:
    """Return the ids of the groups whose id equals or matches a shell pattern (``spot-*``).

    Raises InputError if there are none; the message says whether a group in ``retired`` (removed or lost) matches.
    """
    names = _matching(groups, pattern)
    if not names:
        retired_note = " any more: it was removed, or lost without rebuy: true" if _matching(retired, pattern) else ""
        raise InputError(f'there is no node group "{pattern}"{retired_note}')
    return names


def _matching(groups: Iterable[NodeGroup], pattern: str) -> list[str]:
    """Return the ids of the groups whose id equals or matches a pattern."""
    return [group.id for group in groups if fnmatchcase(group.id, pattern) or group.id == pattern]


_CHOOSING = frozenset({"estimator", "expander", "legacy"})  # flags whose values only the start of a scale-up validates
_OF_MACHINE = ("kubernetes.io/", "beta.kubernetes.io/", INSTANCE_TYPE)


def _change_groups(world: World, edit: GroupsEdit, folder: Path) -> World:
    """Return the world with groups added, removed or changed.

    ``folder``: base of relative file names. Raises InputError if the edit names nothing to change, or if a group is
    unknown or invalid.
    """
    if not (edit.add or edit.remove or edit.set):
        raise InputError("add, remove or set something")
    if world.offers is not None:
        _check_pool_groups(edit)
    groups = list(world.groups)
    templates, retired, standing = dict(world.templates), list(world.retired), dict(world.standing)
    notes = list(world.notes)
    for pattern in edit.remove:
        lost = [group for group in world.retired if group.id in world.lost_groups]  # removing these changes nothing
        removed = set(_group_names((*groups, *lost), pattern, retired))
        for group in groups:
            if group.id in removed:
                retired.append(group)
                standing.setdefault(group.id, group.price)
        groups = [group for group in groups if group.id not in removed]
    for pattern, change in edit.set.items():
        if not change.set_fields:
            raise InputError(f"set.{pattern}: name min, max, target, price or instanceType")
        for name in _group_names(groups, pattern, retired):
            index = next(i for i, group in enumerate(groups) if group.id == name)
            old = groups[index]
            groups[index] = _change_group(old, change, world, templates)
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
        world, groups=tuple(groups), templates=templates, retired=tuple(retired), standing=standing, notes=tuple(notes)
    )


def _check_pool_groups(edit: GroupsEdit) -> None:
    """Raise InputError for changes that Karpenter's rule cannot reflect.

    With NodePools, only offerings can be removed and their prices set.
    """
    if edit.add:
        raise InputError("add: with NodePools, Karpenter's rule decides: offerings can be removed and prices set")
    for pattern, change in edit.set.items():
        others = sorted(change.set_fields - {"price"})
        if others:
            raise InputError(
                f"set.{pattern}.{others[0]}: with NodePools, Karpenter's rule decides: only price can be set"
            )


def _change_group(group: NodeGroup, change: SetGroup, world: World, templates: dict[str, NodeTemplate]) -> NodeGroup:
    """Return the group with the changes of an edit.

    A new instance type also sets the group's entry in ``templates`` and, unless the edit does, its price. Raises
    InputError if the sizes or the price are invalid, or if ``instanceType`` is set without a catalogue that has the
    type.
    """
    fields = {"min": "min_size", "max": "max_size", "target": "target_size", "price": "price"}
    values = {field: getattr(change, name) for name, field in fields.items() if getattr(change, name) is not None}
    if change.instance_type is not None:
        if world.catalogue is None:
            raise InputError("instanceType needs a catalogue")
        kind = world.catalogue[change.instance_type]
        current_template = templates.get(group.id) or group.template
        old = {} if current_template is None else current_template.node.metadata.labels or {}
        kept_labels = {key: value for key, value in old.items() if not key.startswith(_OF_MACHINE)}
        node = kind.node(labels={**kept_labels, **(group.labels or {})})
        if current_template is not None:
            spec = msgspec.structs.replace(node.spec, taints=current_template.node.spec.taints)
            node = msgspec.structs.replace(node, spec=spec)
        group_of_template = msgspec.structs.replace(group, template=NodeTemplate(node=node), from_node=None)
        templates[group.id] = group_template(group_of_template, daemonsets=list(world.place.cluster.all("DaemonSet")))
        values.setdefault("price", kind.price(kept_labels.get(REGION, "")) or kind.price())
    new = msgspec.structs.replace(group, **values)
    if new.min_size < 0 or new.min_size > new.max_size:
        raise InputError(f"node group {group.id}: min {new.min_size} is more than max {new.max_size}, or negative")
    if new.price is not None and not (math.isfinite(new.price) and new.price >= 0):
        raise InputError(f"node group {group.id}: {new.price} is not a price")
    return new


def _change_prices(world: World, edit: PricesEdit, folder: Path) -> World:
    """Return the world with the prices of groups scaled, or taken from a catalogue.

    ``folder``: base of relative file names. Raises InputError if the edit names nothing or a region without a
    catalogue, for an unknown group or region, for a group to scale that has no price, and for a catalogue that cannot
    be read or has no price for any of the nodes.
    """
    if edit.catalogue is None and (edit.region or not edit.scale):
        raise InputError("name a catalogue, or scale something")
    groups, standing = list(world.groups), dict(world.standing)
    catalogue = world.catalogue
    if edit.catalogue is not None:
        beside = folder / edit.catalogue
        catalogue = read_catalogue(beside if beside.exists() else edit.catalogue)
        catalogue.check_region(edit.region)
        listed = {name: price for name, kind in catalogue.items() if (price := kind.price(edit.region)) is not None}
        others = {_type_of([node]) for node in world.place.snapshot.columns.objects}
        news, olds = _types_of(world)
        if not listed.keys() & {*news.values(), *olds.values(), *others}:
            raise InputError(f"{edit.catalogue} has no price for any of these nodes")
        for i, group in enumerate(groups):
            old = standing.pop(group.id, group.price)
            if news[group.id] in listed:
                groups[i] = msgspec.structs.replace(group, price=listed[news[group.id]])
            old = listed.get(olds[group.id], old)
            if old != groups[i].price:
                standing[group.id] = old
        for name in {group.id for group in world.retired} - {group.id for group in groups}:
            standing[name] = listed.get(olds[name], standing[name])
    for pattern, text in edit.scale.items():
        factor = float(_factor_in(text, f"prices.scale[{pattern}]"))
        for name in dict.fromkeys(_group_names((*groups, *world.retired), pattern)):
            index = next((i for i, group in enumerate(groups) if group.id == name), None)  # None: retired
            old = standing.get(name)
            price = old if index is None else groups[index].price
            if price is None:
                raise InputError(f"node group {name} has no price to scale")
            if index is not None:
                groups[index] = msgspec.structs.replace(groups[index], price=price * factor)
            if old is not None:
                standing[name] = old * factor
    return replace(world, groups=tuple(groups), catalogue=catalogue, standing=standing)


def _types_of(world: World) -> tuple[dict[str, str], dict[str, str]]:
    """Return (instance type of new nodes, instance type of existing nodes), each by group id.

    The second mapping includes removed groups. A text is empty if the type is unknown, or if the group has no nodes.
    """
    nodes = world.place.snapshot.columns.objects
    olds: dict[str, str] = {}
    for group in (*world.groups, *world.retired):
        olds[group.id] = olds.get(group.id) or _type_of(members_of(group, nodes)[:1])
    news = {}
    for group in world.groups:
        templates = (group.template, world.templates.get(group.id))
        news[group.id] = _type_of([template.node for template in templates if template is not None]) or olds[group.id]
    return news, olds


def _type_of(nodes: Iterable[Node]) -> str:
    """Return the instance type of the first node that has one; empty if none has."""
    return next(filter(None, map(instance_type_of, nodes)), "")


def _change_flags(world: World, edit: Mapping[str, Any], question: Question) -> World:
    """Return the world with other autoscaler flags.

    Raises InputError for invalid flags and for flags that decisions of ``question`` do not depend on.
    """
    values = options_in(edit, question)
    options: AutoscalingOptions = msgspec.structs.replace(world.options, **values)
    if problems := options.problems():
        raise InputError(problems)
    if values.keys() & _CHOOSING:
        try:
            check_scale_up_options(options)
        except AutoscalerError as error:
            unknown = not set(options.expander_names).issubset(EXPANDER_NAMES)
            there_are = f"; there are {', '.join(EXPANDER_NAMES)}" if unknown else ""
            raise InputError(Problem(f"{error}{there_are}", field="expander")) from None
    return replace(world, options=options)


def _change_scheduler(world: World, edit: str, folder: Path) -> World:
    """Return the world with the scheduler profile of a KubeSchedulerConfiguration file.

    ``edit``: name of the file, relative to ``folder``. Raises InputError, with the file's path, if the file cannot be
    read or is invalid.
    """
    path = folder / edit
    data = read_plain_file(path, "KubeSchedulerConfiguration", "one")
    try:
        profile = scheduler_profile(data)
    except InputError as error:
        raise InputError([replace(problem, source=str(path)) for problem in error.problems]) from None
    return replace(world, profile=profile)


def _change_pods(world: World, edit: PodsEdit, folder: Path) -> World:
    """Return the world with pods added, removed, or with workloads scaled.

    ``folder``: base of relative file names. Other objects of added files are added, too. Raises InputError if the edit
    names nothing to change, selects no pods, or has a namespace without ``remove``, for an invalid selector or size,
    and for a file that cannot be read or has no workload.
    """
    if not edit.add and not edit.scale and edit.remove is None and edit.namespace is None:
        raise InputError("add, scale or remove something")
    cluster = world.place.cluster.copy()
    if edit.remove is not None:
        removed = list(_select_pods(world.place, edit.namespace, edit.remove))
        if not removed:
            raise InputError(f'pods.remove: no pod has the labels "{edit.remove}"')
        for pod in removed:
            cluster.remove(pod)
    elif edit.namespace is not None:
        raise InputError("pods.namespace has an effect only with remove")
    if edit.scale:
        _scale_workloads(world.place, cluster, edit)
    for name in edit.add:
        objects = [loaded.obj for loaded in load_objects(str(folder / name))]
        for workload in workloads_in(objects, name):
            for pod in pods_of(workload):
                cluster.apply(make_pending(pod) if not pod.spec.node_name else pod)
        for item in objects:
            if not isinstance(item, Pod):
                cluster.apply(item)
    return replace(world, place=SharedCluster(cluster, world.place.lost))


def _scale_workloads(place: SharedCluster, cluster: Cluster, edit: PodsEdit) -> None:
    """Remove or add pods of workloads in ``cluster`` until they have the sizes of the edit.

    A factor is rounded up to whole pods. New pods are pending copies of a workload's first pod; pending pods are
    removed first. Raises InputError for a negative size, and for a workload that does not exist.
    """
    controllers = _controllers(place)
    running: dict[str, list[Pod]] = {}
    for pod in cluster.pods():
        parent = _get_topmost_owner(pod, controllers)
        if parent and not pod.is_finished:
            running.setdefault(parent, []).append(pod)
    for name, key in _workloads(edit.scale, running):
        size, pods = edit.scale[key], running[name]
        wanted = size if isinstance(size, int) else math.ceil(len(pods) * _factor_in(size, f"pods.scale[{key}]"))
        if wanted < 0:
            raise InputError(f"pods.scale[{name}]: {wanted} is negative")
        pods = sorted(pods, key=lambda pod: not pod.spec.node_name)  # pending pods are removed first
        for pod in pods[wanted:]:
            cluster.remove(pod)
        first, taken = pods[0].metadata, {pod.metadata.name for pod in pods}
        free = (i for i in count() if f"{first.name}-more-{i}" not in taken)
        for i in islice(free, max(0, wanted - len(pods))):
            metadata = msgspec.structs.replace(first, name=f"{first.name}-more-{i}", uid=f"{first.uid}-more-{i}")
            cluster.apply(make_pending(msgspec.structs.replace(pods[0], metadata=metadata)))


def _workloads(scale: Iterable[str], running: Mapping[str, Sequence[Pod]]) -> list[tuple[str, str]]:
    """Return (name of the workload, key of ``scale`` that selects it) for each workload to scale.

    ``running``: pods of each workload. A full name takes precedence over a pattern, and patterns do not match
    DaemonSets, which have a pod on each node. Raises InputError if a key matches nothing, or if two patterns match one
    workload.
    """
    keys: dict[str, str] = {name: name for name in scale if name in running}
    for pattern in (key for key in scale if key not in running):
        matches = [name for name in running if fnmatchcase(name, pattern) and name.split("/")[1] != "DaemonSet"]
        if not matches:
            near = "; a workload is named namespace/kind/name" if pattern.count("/") != 2 else ""
            raise InputError(f'pods.scale: "{pattern}" has no pods{near}')
        for name in matches:
            other = keys.setdefault(name, pattern)
            if other not in (name, pattern):
                raise InputError(f'pods.scale: both "{other}" and "{pattern}" match {name}')
    return list(keys.items())


def _controllers(place: SharedCluster) -> Controllers:
    """Return the controllers in the cluster, by which owners of pods are found."""
    return read_controllers(place.cluster)


def _get_topmost_owner(pod: Pod, controllers: Controllers) -> str:
    """Return ``namespace/Kind/name`` of a pod's topmost owner; empty if it has none or the owner cannot be resolved."""
    try:
        parent = find_topmost_owner(pod, controllers)
    except TargetError:
        return ""
    return "" if parent is None else f"{parent.namespace}/{parent.kind}/{parent.name}"


def _select_pods(place: SharedCluster, namespace: str | None, selector: str | None) -> Iterable[Pod]:
    """Yield the pods in a namespace (None: any) that a label selector matches (None: all).

    Raises InputError for an invalid selector.
    """
    try:
        wanted: Selector | None = parse_selector(selector) if selector else None
    except SelectorError as error:
        raise InputError(f"selector: {error}") from None
    for pod in place.cluster.pods():
        in_namespace = namespace is None or pod.metadata.namespace == namespace
        if in_namespace and (wanted is None or wanted.matches(pod.metadata.labels)):
            yield pod


def _lose_nodes(world: World, edit: LoseEdit, _: Path) -> World:
    """Return the world without the nodes that the edit names. Pods that do not end with their node become pending.

    Lost zones and groups get no new nodes, unless the edit allows it. Raises InputError if a named node, zone or pool
    has no nodes, or if none is named.
    """
    nodes = world.place.snapshot.columns.objects
    existing = world.existing
    lost_nodes: dict[str, None] = {}
    for name in edit.node:
        if name not in world.place.snapshot.columns.index:
            raise InputError(f'lose.node: there is no node "{name}"')
        lost_nodes[name] = None
    for zone in edit.zone:
        matching = [node.metadata.name for node in nodes if (node.metadata.labels or {}).get(ZONE) == zone]
        if not matching:
            raise InputError(f'lose.zone: no node is in zone "{zone}"')
        lost_nodes.update(dict.fromkeys(matching))
    pools: set[str] = set()
    for pool in edit.pool:
        names = set(_group_names(world.groups, pool, world.retired))
        pools |= names
        matching = [name for name, group_id in existing.group_of.items() if group_id in names]
        if not matching:
            raise InputError(f'lose.pool: "{pool}" has no nodes')
        lost_nodes.update(dict.fromkeys(matching))
    if not lost_nodes:
        raise InputError("lose: name a node, a zone or a pool that has nodes")
    less = Counter(existing.group_of[name] for name in lost_nodes if name in existing.group_of)
    groups = [smaller(group, less[group.id], lost_nodes) for group in world.groups]
    changed = replace(world, place=world.place.without_nodes(lost_nodes), groups=tuple(groups))
    if not edit.rebuy:
        changed = _retire_lost_pools(world, changed, frozenset(edit.zone), pools)
    if _is_each_node_in_same_group(world, changed):
        vars(changed)["existing"] = existing.without(lost_nodes)
    return changed


def _is_each_node_in_same_group(world: World, changed: World) -> bool:
    """Check whether the nodes left after a loss belong to the same groups as before, as no rule for them changed.

    ``world``, ``changed``: before and after the loss.
    """
    before, after = (*world.groups, *world.retired), (*changed.groups, *changed.retired)
    return len(before) == len(after) and all(
        new.id == old.id and new.node_selector == old.node_selector and bool(new.nodes) == bool(old.nodes)
        for old, new in zip(before, after, strict=True)
    )


def _retire_lost_pools(world: World, changed: World, zones: frozenset[str], pools: set[str]) -> World:
    """Return the world ``changed`` without the groups ``pools`` and those that create new nodes in lost zones only.

    These groups are retired: they get no new nodes. ``world`` is the world before the loss. A group that still has
    nodes elsewhere models new nodes on those.
    """
    lost_zones = world.lost_zones | zones
    before, after = world.place.snapshot.columns.objects, changed.place.snapshot.columns.objects
    templates = dict(world.templates)
    closed, moved = set(pools), []
    for group in changed.groups if lost_zones else ():
        rest = members_of(group, after)
        if group.template is None and rest:
            model = templates.get(group.id)
            if model is not None and (model.node.metadata.labels or {}).get(ZONE) in lost_zones:
                moved.append(group)
            continue
        places = zones_of(group, world, members_of(group, before))
        if places and places <= lost_zones:
            closed.add(group.id)
    moved = [group for group in moved if group.id not in closed]
    if moved:
        with_models = with_templates(changed.place.cluster, changed.place.snapshot, moved, options=world.options)
        templates |= {group.id: group.template for group in with_models if group.template is not None}
    retired = [group for group in changed.groups if group.id in closed]
    standing = {group.id: group.price for group in retired} | dict(world.standing)
    return replace(
        changed,
        groups=tuple(group for group in changed.groups if group.id not in closed),
        templates=templates,
        retired=(*world.retired, *retired),
        standing=standing,
        lost_zones=lost_zones,
        lost_groups=world.lost_groups | closed,
    )


def _change_requests(world: World, edit: RequestsEdit, folder: Path) -> World:
    """Return the world in which the selected pods have other requests.

    ``folder``: base of relative file names. A factor of ``x1`` leaves the pods as they are and is no error: it may be a
    step of a sweep over factors. Raises InputError if no pod is selected, if the edit sets no resource of the selected
    pods, if it gives both amounts and a recommendation or neither, and for a text or file that cannot be read.
    """
    amounts = {name: text for name, text in ((CPU, edit.cpu), (MEMORY, edit.memory)) if text is not None}
    if bool(amounts) == bool(edit.recommendation):
        raise InputError("requests: give cpu, memory or both, or a recommendation")
    cluster = world.place.cluster.copy()
    chosen = list(_select_pods(world.place, edit.namespace, edit.selector))
    if not chosen:
        raise InputError("requests: no pod matches")
    if edit.recommendation is not None:
        changed = _apply_recommendations(world.place, chosen, folder / edit.recommendation)
    else:
        changes = {name: _amount(name, text) for name, text in amounts.items()}
        changed = [_replace_requests(pod, changes) for pod in chosen]
    if all(new is old for new, old in zip(changed, chosen, strict=True)):
        raise InputError("requests: this changes none of the selected pods")
    for pod in changed:
        cluster.apply(pod)
    return replace(world, place=SharedCluster(cluster, world.place.lost))


def _apply_recommendations(place: SharedCluster, pods: Iterable[Pod], path: Path) -> list[Pod]:
    """Return the pods with the requests recommended by a report of ``kscale recommend -o json``.

    A pod without a recommendation is returned unchanged. Raises InputError if the file cannot be read.
    """
    try:
        report = msgspec.json.decode(read_file(path), type=RecommendationReport)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except msgspec.DecodeError as error:
        raise InputError(f"{path} is no report of kscale recommend -o json: {error}") from None
    advice, controllers = advice_of(report), _controllers(place)
    return [apply_advice(pod, controllers, advice) for pod in pods]


def _amount(name: str, text: str) -> Fraction | Quantity:
    """Parse a factor (``x0.8``) or a quantity of the resource ``name``.

    Raises InputError for any other text and for negative quantities.
    """
    if text.startswith("x"):
        return _factor_in(text, f"requests.{name}")
    try:
        amount = Quantity(text)
    except QuantityError:
        raise InputError(f'requests.{name}: "{text}" is neither a quantity nor a factor like x0.8') from None
    if amount.sign < 0:
        raise InputError(f"requests.{name}: {text} is negative")
    return amount


def _replace_requests(pod: Pod, changes: dict[str, Fraction | Quantity]) -> Pod:
    """Return the pod with other requests, or the pod itself if nothing changes.

    ``changes``: by resource. A factor scales all requests, of containers and of the pod, and rounds up. An amount is
    set on each container and removed from the pod-level requests.
    """
    factors = {name: change for name, change in changes.items() if isinstance(change, Fraction)}

    def changed(name: str, old: Quantity) -> Quantity:
        """Scale an amount by the resource's factor, if it has one; rounded up."""
        if name not in factors:
            return old
        if name == CPU:
            return Quantity(f"{math.ceil(old.milli_value() * factors[name])}m")
        return Quantity(str(math.ceil(old.value() * factors[name])))

    def scaled(requests: ResourceList) -> ResourceList:
        """Scale all amounts that have a factor."""
        return {name: changed(name, old) for name, old in requests.items()}

    amounts = {name: change for name, change in changes.items() if isinstance(change, Quantity)}
    if not amounts and not factors.keys() & demand(pod).keys():
        return pod
    return replace_requests(
        pod,
        lambda container: {**scaled(container.resources.requests or {}), **amounts},
        lambda requests: {name: old for name, old in scaled(requests).items() if name not in amounts},
    )


def apply_edit(world: World, edit: Edit, folder: Path, question: Question) -> World:
    """Return a copy of ``world`` with an edit applied.

    ``folder``: base of relative file names; ``question``: the decision that the scenario asks for. Raises InputError if
    the edit refers to something that does not exist, or has no effect.
    """
    is_autoscalers = edit.flags is not None or edit.scheduler is not None
    if world.offers is not None and question is Question.SCALE_UP and is_autoscalers:
        raise InputError("has no effect on Karpenter's rule, which decides for NodePools")
    if edit.flags is not None:
        result = _change_flags(world, edit.flags, question)
    else:
        change: Callable[[World, Any, Path], World] = _EDITS[edit.kind]
        result = change(world, getattr(edit, edit.kind), folder)
    digest_text = get_digest_text(edit, question)
    return result.with_digest((*world.digest, digest_text)) if digest_text else result


def get_digest_text(edit: Edit, question: Question) -> str:
    """Return the text of an edit for a world's digest, the key under which decisions are shared.

    Empty if decisions depend on the edit only through prices or the choice among options. Raises InputError for flags
    that cannot be parsed or that decisions of ``question`` do not depend on.
    """
    if edit.prices is not None or (edit.groups is not None and _only_prices(edit.groups)):
        return ""
    if edit.flags is None:
        return text_of(edit.kind, getattr(edit, edit.kind))
    values = options_in(edit.flags, question)
    others = {name: str(value) for name, value in values.items() if name != "expander"}
    return text_of("flags", others) if others else ""


def _only_prices(edit: GroupsEdit) -> bool:
    """Check whether an edit sets nothing but prices of groups."""
    return not edit.remove and not edit.add and all(change.set_fields == {"price"} for change in edit.set.values())


_EDITS: dict[str, Callable[[World, Any, Path], World]] = {
    "groups": _change_groups,
    "pods": _change_pods,
    "lose": _lose_nodes,
    "requests": _change_requests,
    "prices": _change_prices,
    "scheduler": _change_scheduler,
}
