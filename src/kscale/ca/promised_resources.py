"""Nodes whose devices (DRA) or volume drivers (CSI) are still to be published: what their group's template promises.

Upstream: ``processors/customresources``, the DRA and the CSI processor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from kscale.ca.options import AutoscalingOptions
from kscale.ca.state import RememberedTemplate
from kscale.objects.core import Node
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import NodeGroup, NodeTemplate, ProviderError
from kscale.objects.nodegroups import Groups
from kscale.objects.resource import ResourceSlice
from kscale.snapshot.informers import Informers

__all__ = ["complete_pools", "lacks_promised", "promised_slices"]


def complete_pools(slices: Iterable[ResourceSlice]) -> Counter[str]:
    """By driver, the pools of which every slice of the newest generation is there."""
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


def _provided(group: NodeGroup) -> NodeTemplate | None:
    try:
        return group.node_template
    except ProviderError:
        return None


def promised_slices(
    group: NodeGroup, given: Mapping[str, NodeTemplate], known: Mapping[str, RememberedTemplate]
) -> list[ResourceSlice] | None:
    """Those of the template that the caller has, of the loop before, else of the provider's; None: there is no
    template."""
    if group.id in given:
        return given[group.id].resource_slices
    if group.id in known:
        raw = known[group.id].template.get("resourceSlices") or []
        where = f"templates[{group.id}] of the state"
        return from_dict({"resourceSlices": raw}, NodeTemplate, object_path=where).resource_slices if raw else []
    provided = _provided(group)
    return provided.resource_slices if provided is not None else None


def lacks_promised(
    groups: Groups,
    informers: Informers,
    options: AutoscalingOptions,
    *,
    given: Mapping[str, NodeTemplate] | None = None,
    known: Mapping[str, RememberedTemplate] | None = None,
) -> Callable[[Node], bool] | None:
    """Says of a node whether it lacks pools or drivers that the template of its group has; None if none has any.

    ``given`` and ``known`` are templates that the caller and the loop before had. Drivers are asked of the provider's
    template only, and with ``enable_csi_node_aware_scheduling``. A node of which anything is unknown (its group, the
    template, its CSINode) lacks nothing.
    """
    pools: dict[str, Counter[str]] = {}
    drivers: dict[str, frozenset[str]] = {}
    for group in groups:
        if options.enable_dynamic_resource_allocation:
            slices = promised_slices(group, given or {}, known or {})
            if slices and (complete := complete_pools(slices)):
                pools[group.id] = complete
        if options.enable_csi_node_aware_scheduling:
            provided = _provided(group)
            if provided is not None and provided.csi_node is not None and provided.csi_node.spec.drivers:
                drivers[group.id] = frozenset(driver.name for driver in provided.csi_node.spec.drivers)
    if not pools and not drivers:
        return None
    published: dict[str | None, list[ResourceSlice]] = {}
    for each in informers.resource_slices if pools else ():
        published.setdefault(each.spec.node_name, []).append(each)

    def lacks(node: Node) -> bool:
        name = node.metadata.name
        try:
            group = groups.id_of_node(name)
        except ProviderError:
            return False
        if group in pools and not pools[group] <= complete_pools(published.get(name, [])):
            return True
        if group not in drivers or name not in informers.csi_nodes:
            return False
        return not drivers[group] <= {driver.name for driver in informers.csi_nodes[name].spec.drivers}

    return lacks
