"""How the devices (DRA) of ready nodes differ from those of their groups' templates
(``simulator/dynamicresources/comparator``, ``processors/customresources/dra_processor.go``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kscale.ca.promised_resources import complete_pools, promised_slices
from kscale.ca.state import RememberedTemplate
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeTemplate, ProviderError
from kscale.objects.nodegroups import Groups
from kscale.objects.resource import ResourceSlice

__all__ = ["MISMATCHES", "compare_devices", "device_mismatches"]

MISMATCHES: Final = ("missing", "extra", "mismatch", "unknown")
"""Upstream's types. A group of devices of the template that no group of the node goes with is missing, one of the node
extra, two that go together and are not alike a mismatch; ``unknown`` would have no pool on either side: there is none.
"""

_Alike = tuple[frozenset[str], int]
"""Devices of one driver and pool with the same names of attributes: these names, and how many devices there are."""


def device_mismatches(
    nodes: Iterable[Node],
    groups: Groups,
    slices: Iterable[ResourceSlice],
    given: Mapping[str, NodeTemplate],
    known: Mapping[str, RememberedTemplate],
) -> dict[str, Counter[str]]:
    """By driver, what differs (:data:`MISMATCHES`) over all nodes whose group and its template are known, and which
    have as many pools as that promises; drivers of which everything is alike are not in it.

    ``nodes``: that are ready, and whose GPUs have shown up; ``slices``: all that are published; ``given`` and
    ``known``: templates that the caller and the loop before had.
    """
    published: dict[str | None, list[ResourceSlice]] = {}
    for each in slices:
        published.setdefault(each.spec.node_name, []).append(each)
    templates: dict[str, list[ResourceSlice] | None] = {
        group.id: promised_slices(group, given, known) for group in groups
    }
    found: dict[str, Counter[str]] = {}
    if not published and not any(templates.values()):
        return found
    for node in nodes:
        name = node.metadata.name
        try:
            home = groups.id_of_node(name)
        except ProviderError:
            continue
        promised, own = None if home is None else templates[home], published.get(name, [])
        if promised is None or not (promised or own) or not complete_pools(promised) <= complete_pools(own):
            continue
        for driver, counts in compare_devices(promised, own).items():
            found.setdefault(driver, Counter()).update(counts)
    return found


def compare_devices(template: Sequence[ResourceSlice], node: Sequence[ResourceSlice]) -> dict[str, Counter[str]]:
    """What differs between the devices of a template and those of a node, by driver.

    Devices are alike by the names of their attributes, whatever these say. What a pool has as many of as some pool of
    the other side is nothing to tell; the rest goes together two by two, and what is left over is missing or extra. A
    driver of whose pools on the node some is not whole, or of two generations, is not compared.
    """
    changing = _changing(node)
    ours, theirs = _groups(template, changing), _groups(node, changing)
    found = {}
    for driver in dict.fromkeys((*ours, *theirs)):
        expected, there = Counter(ours.get(driver, ())), Counter(theirs.get(driver, ()))
        left, more = (expected - there).total(), (there - expected).total()
        counts = {"mismatch": min(left, more), "missing": max(left - more, 0), "extra": max(more - left, 0)}
        if left or more:
            found[driver] = Counter(counts)
    return found


def _changing(slices: Iterable[ResourceSlice]) -> set[str]:
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for each in slices:
        pools.setdefault((each.spec.driver, each.spec.pool.name), []).append(each)

    def is_settled(pool: list[ResourceSlice]) -> bool:
        first = pool[0].spec.pool  # by whose number the pool is whole
        same = all(each.spec.pool.generation == first.generation for each in pool)
        return same and len(pool) == first.resource_slice_count

    return {driver for (driver, _), pool in pools.items() if not is_settled(pool)}


def _groups(slices: Iterable[ResourceSlice], without: set[str]) -> dict[str, list[_Alike]]:
    """By driver."""
    counts: Counter[tuple[str, str, frozenset[str]]] = Counter()
    for each in slices:
        if each.spec.driver not in without:
            pool = each.spec.pool.name
            counts.update((each.spec.driver, pool, frozenset(device.attributes or ())) for device in each.spec.devices)
    found: dict[str, list[_Alike]] = {}
    for (driver, _, names), count in counts.items():
        found.setdefault(driver, []).append((names, count))
    return found
