"""Devices (DRA) and volume drivers (CSI) that a group's template promises: nodes that still lack them, and mismatches
on ready nodes (upstream: ``processors/customresources``, ``simulator/dynamicresources/comparator``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from kscale.ca.loop_state import RememberedTemplate
from kscale.ca.options import AutoscalingOptions
from kscale.objects.api.core import Node
from kscale.objects.api.resource import ResourceSlice
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import Groups, NodeGroup, NodeTemplate, ProviderError
from kscale.snapshot.object_store import Informers

__all__ = [
    "MISMATCH_TYPES",
    "build_missing_devices_check",
    "compare_devices",
    "count_complete_pools",
    "count_device_mismatches",
    "get_promised_slices",
]


def count_complete_pools(slices: Iterable[ResourceSlice]) -> Counter[str]:
    """Count, by driver, the pools of which every slice of the newest generation exists."""
    pools: dict[tuple[str, str], tuple[int, int, int]] = {}
    for each in slices:
        pool = each.spec.pool
        key = each.spec.driver, pool.name
        generation, size, count = pools.get(key, (pool.generation - 1, 0, 0))
        if pool.generation > generation:
            generation, size, count = pool.generation, pool.resource_slice_count, 0
        if pool.generation == generation:
            pools[key] = generation, size, count + 1
    return Counter(driver for (driver, _), (_, size, count) in pools.items() if count == size)


def _get_provider_template(group: NodeGroup) -> NodeTemplate | None:
    """Return the provider's template of a group; None if the provider has none."""
    try:
        return group.node_template
    except ProviderError:
        return None


def get_promised_slices(
    group: NodeGroup, caller_templates: Mapping[str, NodeTemplate], known: Mapping[str, RememberedTemplate]
) -> list[ResourceSlice] | None:
    """Return the slices of a group's template: the caller's if there is one, else the cached, else the provider's.

    ``known``: cached templates by group id. None if the group has no template. Raises InputError if the cached template
    is unreadable.
    """
    if group.id in caller_templates:
        return caller_templates[group.id].resource_slices
    if group.id in known:
        raw = known[group.id].template.get("resourceSlices") or []
        where = f"templates[{group.id}] of the state"
        return from_dict({"resourceSlices": raw}, NodeTemplate, object_path=where).resource_slices if raw else []
    provided = _get_provider_template(group)
    return provided.resource_slices if provided is not None else None


def build_missing_devices_check(
    groups: Groups,
    informers: Informers,
    options: AutoscalingOptions,
    *,
    caller_templates: Mapping[str, NodeTemplate] | None = None,
    known: Mapping[str, RememberedTemplate] | None = None,
) -> Callable[[Node], bool] | None:
    """Build a function that checks whether a node lacks device pools or CSI drivers that its group's template has.

    None if no template has pools or drivers. ``caller_templates`` and ``known`` are templates of the caller and of the
    previous loop, by group id. Pools are compared with ``enable_dynamic_resource_allocation``, drivers with
    ``enable_csi_node_aware_scheduling``; drivers are read from the provider's template only. A node whose group or
    template is unknown lacks nothing, and a node without CSINode lacks no driver.
    """
    pools: dict[str, Counter[str]] = {}
    drivers: dict[str, frozenset[str]] = {}
    for group in groups:
        if options.enable_dynamic_resource_allocation:
            slices = get_promised_slices(group, caller_templates or {}, known or {})
            if slices and (complete := count_complete_pools(slices)):
                pools[group.id] = complete
        if options.enable_csi_node_aware_scheduling:
            provided = _get_provider_template(group)
            if provided is not None and provided.csi_node is not None and provided.csi_node.spec.drivers:
                drivers[group.id] = frozenset(driver.name for driver in provided.csi_node.spec.drivers)
    if not pools and not drivers:
        return None
    published: dict[str | None, list[ResourceSlice]] = {}
    for each in informers.resource_slices if pools else ():
        published.setdefault(each.spec.node_name, []).append(each)

    def lacks(node: Node) -> bool:
        """Check whether the node lacks pools or drivers of its group's template."""
        name = node.metadata.name
        try:
            group = groups.id_of_node(name)
        except ProviderError:
            return False
        if group in pools and not pools[group] <= count_complete_pools(published.get(name, [])):
            return True
        if group not in drivers or name not in informers.csi_nodes:
            return False
        return not drivers[group] <= {driver.name for driver in informers.csi_nodes[name].spec.drivers}

    return lacks


MISMATCH_TYPES: Final = ("missing", "extra", "mismatch", "unknown")
"""Upstream's types of mismatches. ``missing``: a group of devices of the template matches no group of the node;
``extra``: a group of the node matches none of the template; ``mismatch``: two matching groups differ; ``unknown``:
neither side has a pool, which cannot happen.
"""

_DeviceClass = tuple[frozenset[str], int]
"""Devices of one driver and pool with the same names of attributes: these names, and how many devices there are."""


def count_device_mismatches(
    nodes: Iterable[Node],
    groups: Groups,
    slices: Iterable[ResourceSlice],
    caller_templates: Mapping[str, NodeTemplate],
    known: Mapping[str, RememberedTemplate],
) -> dict[str, Counter[str]]:
    """Count the device groups that differ (:func:`compare_devices`), by driver and type (:data:`MISMATCH_TYPES`).

    Only nodes count whose group and template are known, and which have at least as many complete pools as the template.
    ``nodes`` are ready nodes with the GPUs that their labels promise; ``slices`` are all published slices;
    ``caller_templates`` and ``known`` are templates of the caller and of the previous loop, by group id.
    """
    published: dict[str | None, list[ResourceSlice]] = {}
    for each in slices:
        published.setdefault(each.spec.node_name, []).append(each)
    templates: dict[str, list[ResourceSlice] | None] = {
        group.id: get_promised_slices(group, caller_templates, known) for group in groups
    }
    mismatches: dict[str, Counter[str]] = {}
    if not published and not any(templates.values()):
        return mismatches
    for node in nodes:
        name = node.metadata.name
        try:
            home = groups.id_of_node(name)
        except ProviderError:
            continue
        promised, own = None if home is None else templates[home], published.get(name, [])
        if promised is None or not (promised or own) or not count_complete_pools(promised) <= count_complete_pools(own):
            continue
        for driver, counts in compare_devices(promised, own).items():
            mismatches.setdefault(driver, Counter()).update(counts)
    return mismatches


def compare_devices(template: Sequence[ResourceSlice], node: Sequence[ResourceSlice]) -> dict[str, Counter[str]]:
    """Return how many device groups of a template and of a node differ, by driver and type; equal drivers are left out.

    A device group consists of the devices of a pool that have attributes of the same names. A group of the template
    matches one of the node if these names and the number of devices are equal. Remaining groups count in pairs as
    ``mismatch``; those left on one side are ``missing`` or ``extra``. A driver is not compared if one of its pools on
    the node is incomplete or has slices of two generations.
    """
    changing = _find_changing_drivers(node)
    ours, theirs = _group_devices(template, changing), _group_devices(node, changing)
    differences = {}
    for driver in dict.fromkeys((*ours, *theirs)):
        expected, there = Counter(ours.get(driver, ())), Counter(theirs.get(driver, ()))
        left, more = (expected - there).total(), (there - expected).total()
        counts = {"mismatch": min(left, more), "missing": max(left - more, 0), "extra": max(more - left, 0)}
        if left or more:
            differences[driver] = Counter(counts)
    return differences


def _find_changing_drivers(slices: Iterable[ResourceSlice]) -> set[str]:
    """Return the drivers with a pool that is incomplete or has slices of two generations."""
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for each in slices:
        pools.setdefault((each.spec.driver, each.spec.pool.name), []).append(each)

    def is_settled(pool: list[ResourceSlice]) -> bool:
        first = pool[0].spec.pool  # its slice count determines whether the pool is complete
        same = all(each.spec.pool.generation == first.generation for each in pool)
        return same and len(pool) == first.resource_slice_count

    return {driver for (driver, _), pool in pools.items() if not is_settled(pool)}


def _group_devices(slices: Iterable[ResourceSlice], without: set[str]) -> dict[str, list[_DeviceClass]]:
    """Return the device groups by driver, each as (names of attributes, number of devices).

    Drivers in ``without`` are left out.
    """
    counts: Counter[tuple[str, str, frozenset[str]]] = Counter()
    for each in slices:
        if each.spec.driver not in without:
            pool = each.spec.pool.name
            counts.update((each.spec.driver, pool, frozenset(device.attributes or ())) for device in each.spec.devices)
    devices_by_driver: dict[str, list[_DeviceClass]] = {}
    for (driver, _, names), count in counts.items():
        devices_by_driver.setdefault(driver, []).append((names, count))
    return devices_by_driver
