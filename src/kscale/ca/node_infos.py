"""Which template every node group gets (``processors/nodeinfosprovider``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from kscale.ca.errors import CLOUD_PROVIDER_ERROR, INTERNAL_ERROR, AutoscalerError
from kscale.ca.kept_templates import CachedTemplate, KeptTemplates
from kscale.ca.node_readings import NodeReadings
from kscale.ca.nodes import TO_BE_DELETED_TAINT, has_taint, readiness
from kscale.ca.options import AutoscalingOptions
from kscale.ca.templates import TaintConfig, template_from_group, template_from_node
from kscale.effects import SECOND, Moment, duration
from kscale.effects.moments import ComparedDuration
from kscale.objects.apps import DaemonSet
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeGroup, NodeTemplate, ProviderError, is_not_implemented
from kscale.objects.nodegroups import Groups

__all__ = [
    "Templates",
    "is_good_template",
    "mixed_templates",
    "provided_template",
]

STABLE_AFTER: Final[ComparedDuration] = 60 * SECOND
"""A node is a good example once its readiness has not changed for this long."""


class Templates(msgspec.Struct, kw_only=True):
    """Templates by group id, the cache for the next loop, and what was logged on the way."""

    templates: dict[str, NodeTemplate] = {}
    cache: dict[str, CachedTemplate] = {}
    warnings: list[str] = []


def provided_template(
    group: NodeGroup, daemonsets: Iterable[DaemonSet], *, suffix: str, taints: TaintConfig
) -> NodeTemplate:
    """A template from the provider's own. Raises :class:`AutoscalerError` if the provider has none."""
    try:
        example = group.node_template
    except ProviderError as error:
        text = f'failed to obtain template NodeInfo from node group "{group.id}": {error.message}'
        raise AutoscalerError(CLOUD_PROVIDER_ERROR, text) from None
    return template_from_group(example, daemonsets, group.id, suffix=suffix, taints=taints)


def is_good_template(node: Node, now_ns: int) -> bool:
    """Ready for more than a minute, not cordoned, not about to be deleted."""
    state = readiness(node)
    return (
        state.ready
        and state.last_transition + STABLE_AFTER < now_ns
        and not node.spec.unschedulable
        and not has_taint(node, TO_BE_DELETED_TAINT)
    )


def _candidates(
    nodes: NodeReadings, groups: Groups, now_ns: int, warnings: list[str]
) -> tuple[dict[str, Node], list[tuple[Node, str]]]:
    """(the first good node of each group, nodes that would do at need and their groups)."""
    good: dict[str, Node] = {}
    bad: list[tuple[Node, str]] = []
    names, errors = nodes.names, groups.node_errors
    if errors:
        warnings += [f"Failed to get node group for node {name}: {errors[name]}" for name in names if name in errors]
    group_of = groups.ids_of_nodes(names)
    sought = len({*group_of} - {None})
    for node, group in zip(nodes.nodes, group_of, strict=True):
        if len(good) == sought:
            break
        if group is None or group in good:
            continue
        if is_good_template(node, now_ns):
            good[group] = node
        else:
            bad.append((node, group))
    return good, bad


def mixed_templates(
    nodes: Iterable[Node] | NodeReadings,
    examples_of: Callable[[Sequence[Node]], Sequence[NodeTemplate | None]],
    daemonsets: Sequence[DaemonSet],
    groups: Groups,
    *,
    now: Moment,
    options: AutoscalingOptions | None = None,
    cache: Mapping[str, CachedTemplate] | None = None,
    cache_ttl: int | None = None,
    suffix: str = "0",
    kept: KeptTemplates | None = None,
) -> Templates:
    """The template of every group: from its first good node, else a cached one, else the provider's, else any node.

    ``examples_of`` gives nodes with the pods they have in the snapshot (None: it is not there, which is an error).
    ``cache_ttl``: nanoseconds (default: the option's).
    ``suffix`` ends the names of template nodes and their pods; upstream's are random. ``kept``: what earlier calls made
    of examples and DaemonSets, if these are the same objects.

    Raises :class:`AutoscalerError` if a node is missing from the snapshot.
    """
    options = options or AutoscalingOptions()
    taints = TaintConfig.from_options(options)
    ttl = duration(options.node_info_cache_expire_time) if cache_ttl is None else cache_ttl
    result = Templates(cache=dict(cache or {}))

    def make(node: Node, group: NodeGroup, example: NodeTemplate | None) -> NodeTemplate:
        if example is None:
            text = (
                f"error while retrieving node {node.metadata.name} from cluster snapshot - this shouldn't happen: "
                "node not found"
            )
            raise AutoscalerError(INTERNAL_ERROR, text)

        def from_node() -> NodeTemplate:
            return template_from_node(
                example.node,
                example.pods,
                daemonsets,
                group.id,
                suffix=suffix,
                csi_node=example.csi_node,
                resource_slices=example.resource_slices,
                force_daemonsets=options.force_ds,
                taints=taints,
            )

        if kept is None:
            return from_node()
        return kept.of(group.id, (example, daemonsets), (suffix, options.force_ds, taints), from_node)

    good, bad = _candidates(NodeReadings.of(nodes), groups, now, result.warnings)
    for (name, node), example in zip(good.items(), examples_of([*good.values()]), strict=True):
        result.templates[name] = made = make(node, groups[name], example)
        result.cache[name] = CachedTemplate(template=made, added=now)
    for group in groups:
        if group.id in result.templates:
            continue
        cached = result.cache.get(group.id)
        if cached is not None and now - cached.added <= ttl:
            result.templates[group.id] = cached.template
            continue
        result.cache.pop(group.id, None)
        try:
            result.templates[group.id] = provided_template(group, daemonsets, suffix=suffix, taints=taints)
        except AutoscalerError as error:
            if not (group.template_error is None or is_not_implemented(group.template_error)):
                result.warnings.append(f"Unable to build proper template node for {group.id}: {error.message}")
    result.cache = {name: entry for name, entry in result.cache.items() if name in groups}
    last: dict[str, Node] = {}
    for node, name in bad:
        if name not in result.templates:
            last.setdefault(name, node)
    for (name, node), example in zip(last.items(), examples_of([*last.values()]), strict=True):
        result.templates[name] = make(node, groups[name], example)
        result.warnings.append(f"Built template for {name} based on unready/unschedulable node {node.metadata.name}")
    return result
