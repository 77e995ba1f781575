"""Edits of pods, of what they ask for, and of the nodes that are there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from fractions import Fraction
from itertools import count, islice
from pathlib import Path

import msgspec

from kscale.capacity.fit import workloads_in
from kscale.capacity.groups import members_of
from kscale.capacity.lost_nodes import goes_with_its_node, smaller, waiting
from kscale.capacity.other_requests import asking
from kscale.capacity.right_sizing import advice_of, resized
from kscale.capacity.templates import with_templates
from kscale.capacity.whatif.grammar import LoseEdit, PodsEdit, RequestsEdit
from kscale.capacity.whatif.texts import factor_in, group_names
from kscale.capacity.whatif.world import ZONE, Nodes, Place, World, zones_of
from kscale.errors import InputError
from kscale.files import read_file
from kscale.objects.base import ResourceList
from kscale.objects.core import Pod
from kscale.objects.quantity import Quantity, QuantityError
from kscale.objects.requests import CPU, MEMORY, demand
from kscale.objects.selector_text import parse_selector
from kscale.objects.selectors import Selector, SelectorError
from kscale.objects.workloads import pods_of
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.loading import load_objects
from kscale.vpa.advice.records import RecommendationReport
from kscale.vpa.controllers import Controllers, TargetError
from kscale.vpa.dump_controllers import controllers_of
from kscale.vpa.target import parent_of

__all__ = ["change_pods", "change_requests", "lose_nodes"]


def change_pods(world: World, edit: PodsEdit, folder: Path) -> World:
    if not edit.add and not edit.scale and edit.remove is None and edit.namespace is None:
        raise InputError("add, scale or remove something")
    cluster = world.place.cluster.copy()
    if edit.remove is not None:
        gone = list(_chosen(world.place, edit.namespace, edit.remove))
        if not gone:
            raise InputError(f'pods.remove: no pod has the labels "{edit.remove}"')
        for pod in gone:
            cluster.remove(pod)
    elif edit.namespace is not None:
        raise InputError("pods.namespace is of use with remove only")
    if edit.scale:
        _scale(world.place, cluster, edit)
    for name in edit.add:
        objects = [loaded.obj for loaded in load_objects(str(folder / name))]
        for workload in workloads_in(objects, name):
            for pod in pods_of(workload):
                cluster.apply(waiting(pod) if not pod.spec.node_name else pod)
        for item in objects:
            if not isinstance(item, Pod):
                cluster.apply(item)
    return replace(world, place=Place(cluster, world.place.lost))


def _scale(place: Place, cluster: Cluster, edit: PodsEdit) -> None:
    controllers = _controllers(place)
    running: dict[str, list[Pod]] = {}
    for pod in cluster.pods():
        parent = _parent(pod, controllers)
        if parent and pod.status.phase not in ("Succeeded", "Failed"):
            running.setdefault(parent, []).append(pod)
    for name, key in _workloads(edit.scale, running):
        size, pods = edit.scale[key], running[name]
        wanted = size if isinstance(size, int) else math.ceil(len(pods) * factor_in(size, f"pods.scale[{key}]"))
        if wanted < 0:
            raise InputError(f"pods.scale[{name}]: {wanted} is negative")
        pods = sorted(pods, key=lambda pod: not pod.spec.node_name)  # those that wait go first
        for pod in pods[wanted:]:
            cluster.remove(pod)
        first, taken = pods[0].metadata, {pod.metadata.name for pod in pods}
        free = (i for i in count() if f"{first.name}-more-{i}" not in taken)
        for i in islice(free, max(0, wanted - len(pods))):
            metadata = msgspec.structs.replace(first, name=f"{first.name}-more-{i}", uid=f"{first.uid}-more-{i}")
            cluster.apply(waiting(msgspec.structs.replace(pods[0], metadata=metadata)))


def _workloads(scale: Iterable[str], running: Mapping[str, Sequence[Pod]]) -> list[tuple[str, str]]:
    """Return (workload, key of ``scale`` that names it). A name wins over a pattern; a pattern means no DaemonSets,
    which have a pod on each node. Raises InputError for what names nothing, and for two patterns of one workload."""
    keys: dict[str, str] = {name: name for name in scale if name in running}
    for pattern in (each for each in scale if each not in running):
        matches = [name for name in running if fnmatchcase(name, pattern) and name.split("/")[1] != "DaemonSet"]
        if not matches:
            near = "; a workload is named namespace/kind/name" if pattern.count("/") != 2 else ""
            raise InputError(f'pods.scale: "{pattern}" has no pods{near}')
        for name in matches:
            other = keys.setdefault(name, pattern)
            if other not in (name, pattern):
                raise InputError(f'pods.scale: both "{other}" and "{pattern}" mean {name}')
    return list(keys.items())


def _controllers(place: Place) -> Controllers:
    return controllers_of(place.cluster)


def _parent(pod: Pod, controllers: Controllers) -> str:
    try:
        parent = parent_of(pod, controllers)
    except TargetError:
        return ""
    return "" if parent is None else f"{parent.namespace}/{parent.kind}/{parent.name}"


def _chosen(place: Place, namespace: str | None, selector: str | None) -> Iterable[Pod]:
    try:
        wanted: Selector | None = parse_selector(selector) if selector else None
    except SelectorError as error:
        raise InputError(f"selector: {error}") from None
    for pod in place.cluster.pods():
        here = namespace is None or pod.metadata.namespace == namespace
        if here and (wanted is None or wanted.matches(pod.metadata.labels)):
            yield pod


def lose_nodes(world: World, edit: LoseEdit, _: Path) -> World:
    nodes = world.place.snapshot.columns.objects
    known = Nodes.of(world)
    gone: dict[str, None] = {}
    for name in edit.node:
        if name not in world.place.snapshot.columns.index:
            raise InputError(f'lose.node: there is no node "{name}"')
        gone[name] = None
    for zone in edit.zone:
        mine = [node.metadata.name for node in nodes if (node.metadata.labels or {}).get(ZONE) == zone]
        if not mine:
            raise InputError(f'lose.zone: no node is in zone "{zone}"')
        gone.update(dict.fromkeys(mine))
    pools: set[str] = set()
    for pool in edit.pool:
        names = set(group_names(world.groups, pool, world.retired))
        pools |= names
        mine = [name for name, of in known.group_of.items() if of in names]
        if not mine:
            raise InputError(f'lose.pool: "{pool}" has no nodes')
        gone.update(dict.fromkeys(mine))
    if not gone:
        raise InputError("lose: name a node, a zone or a pool that has nodes")
    cluster = world.place.cluster.copy()
    lost = set(world.place.lost)
    for pod in world.place.cluster.pods_on(gone):
        cluster.remove(pod)
        if not goes_with_its_node(pod):
            cluster.apply(waiting(pod))
            lost.add(pod.key)
    for node in nodes:
        if node.metadata.name in gone:
            cluster.remove(node)
    less = Counter(known.group_of[name] for name in gone if name in known.group_of)
    groups = [smaller(group, less[group.id], gone) for group in world.groups]
    changed = replace(world, place=Place(cluster, frozenset(lost)), groups=tuple(groups))
    return changed if edit.rebuy else _without_growth(world, changed, frozenset(edit.zone), pools)


def _without_growth(world: World, changed: World, zones: frozenset[str], pools: set[str]) -> World:
    """Retire the lost pools and the groups whose new nodes would come in lost zones only.

    ``world`` is the one before the loss. A group that still has nodes elsewhere models its new nodes on those.
    """
    lost_zones = world.lost_zones | zones
    before, after = world.place.snapshot.columns.objects, changed.place.snapshot.columns.objects
    templates = dict(world.templates)
    closed, moved = set(pools), []
    for group in changed.groups:
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
    remade = with_templates(changed.place.cluster, changed.place.snapshot, moved, options=world.options)
    templates |= {group.id: group.template for group in remade if group.template is not None}
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


def change_requests(world: World, edit: RequestsEdit, folder: Path) -> World:
    """The pods that are meant with other requests. A factor of ``x1`` leaves them as they are and is no error: it is a
    step of a sweep over factors."""
    given = {name: text for name, text in ((CPU, edit.cpu), (MEMORY, edit.memory)) if text is not None}
    if bool(given) == bool(edit.recommendation):
        raise InputError("requests: give cpu, memory or both, or a recommendation")
    cluster = world.place.cluster.copy()
    chosen = list(_chosen(world.place, edit.namespace, edit.selector))
    if not chosen:
        raise InputError("requests: no pod is meant")
    if edit.recommendation is not None:
        made = _recommended(world.place, chosen, folder / edit.recommendation)
    else:
        changes = {name: _amount(name, text) for name, text in given.items()}
        made = [_asking(pod, changes) for pod in chosen]
    if all(new is old for new, old in zip(made, chosen, strict=True)):
        raise InputError("requests: it says nothing of what the pods that are meant ask for")
    for pod in made:
        cluster.apply(pod)
    return replace(world, place=Place(cluster, world.place.lost))


def _recommended(place: Place, pods: Iterable[Pod], path: Path) -> list[Pod]:
    try:
        report = msgspec.json.decode(read_file(path), type=RecommendationReport)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except msgspec.DecodeError as error:
        raise InputError(f"{path} is no report of kscale recommend -o json: {error}") from None
    advice, controllers = advice_of(report), _controllers(place)
    return [resized(pod, controllers, advice) for pod in pods]


def _amount(name: str, text: str) -> Fraction | Quantity:
    if text.startswith("x"):
        return factor_in(text, f"requests.{name}")
    try:
        amount = Quantity(text)
    except QuantityError:
        raise InputError(f'requests.{name}: "{text}" is neither a quantity nor a factor like x0.8') from None
    if amount.sign < 0:
        raise InputError(f"requests.{name}: {text} is negative")
    return amount


def _asking(pod: Pod, changes: dict[str, Fraction | Quantity]) -> Pod:
    """The pod with other requests: a factor changes all that is asked for, by containers and for the pod as a whole,
    and is rounded up; an amount is asked for by each container, and no longer for the pod as a whole. The pod itself
    where there is nothing to change."""
    factors = {name: change for name, change in changes.items() if isinstance(change, Fraction)}

    def changed(name: str, old: Quantity) -> Quantity:
        if name not in factors:
            return old
        if name == CPU:
            return Quantity(f"{math.ceil(old.milli_value() * factors[name])}m")
        return Quantity(str(math.ceil(old.value() * factors[name])))

    def scaled(requests: ResourceList) -> ResourceList:
        return {name: changed(name, old) for name, old in requests.items()}

    amounts = {name: change for name, change in changes.items() if isinstance(change, Quantity)}
    if not amounts and not factors.keys() & demand(pod).keys():
        return pod
    return asking(
        pod,
        lambda container: {**scaled(container.resources.requests or {}), **amounts},
        lambda requests: {name: old for name, old in scaled(requests).items() if name not in amounts},
    )
