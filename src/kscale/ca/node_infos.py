"""Which template every node group gets (``processors/nodeinfosprovider``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from kscale.ca.errors import CLOUD_PROVIDER_ERROR, INTERNAL_ERROR, AutoscalerError
from kscale.ca.nodes import TO_BE_DELETED_TAINT, has_taint, readiness
from kscale.ca.options import AutoscalingOptions
from kscale.ca.state import RememberedTemplate
from kscale.ca.templates import TaintConfig, template_from_group, template_from_node
from kscale.effects import SECOND, Moment, duration
from kscale.objects.apps import DaemonSet
from kscale.objects.core import Container, Node, PodSpec
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.meta import ObjectMeta
from kscale.objects.nodegroup import NodeGroup, NodeTemplate, ProviderError, is_not_implemented
from kscale.objects.nodegroups import Groups
from kscale.objects.owners import CONFIG_MIRROR_ANNOTATION, DAEMONSET_POD_ANNOTATION
from kscale.objects.resource import ResourceSlice
from kscale.objects.storage import CSINode

__all__ = [
    "CachedTemplate",
    "Templates",
    "is_good_template",
    "mixed_templates",
    "provided_template",
    "recalled",
    "remembered",
]

_STABLE_AFTER = 60 * SECOND
"""A node is a good example once its readiness has not changed for this long."""


_MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"
_READ_ANNOTATIONS = frozenset({DAEMONSET_POD_ANNOTATION, CONFIG_MIRROR_ANNOTATION, _MIGRATED_PLUGINS})


class CachedTemplate(msgspec.Struct, kw_only=True, frozen=True):
    """A template that was made from a real node, and when."""

    template: NodeTemplate
    added: Moment


def remembered(cached: CachedTemplate) -> RememberedTemplate:
    """For the state of a loop. Annotations and environments may hold secrets: only what decisions read is kept."""
    template = cached.template
    bare = replace(
        template,
        node=replace(template.node, metadata=_bare(template.node.metadata)),
        pods=[replace(pod, metadata=_bare(pod.metadata), spec=_without_environment(pod.spec)) for pod in template.pods],
        csi_node=None if template.csi_node is None else _unannotated(template.csi_node),
        resource_slices=[_unannotated(each) for each in template.resource_slices],
    )
    return RememberedTemplate(template=to_dict(bare), added=cached.added)


def recalled(item: RememberedTemplate, group: str) -> CachedTemplate:
    """A group's, from the state of a loop. Raises InputError for a template that cannot be read."""
    where = f"templates[{group}] of the state"
    return CachedTemplate(template=from_dict(item.template, NodeTemplate, object_path=where), added=item.added)


def _bare(metadata: ObjectMeta) -> ObjectMeta:
    kept = {key: value for key, value in (metadata.annotations or {}).items() if key in _READ_ANNOTATIONS}
    return replace(metadata, annotations=kept or None)


_Published = TypeVar("_Published", CSINode, ResourceSlice)


def _unannotated(item: _Published) -> _Published:
    return replace(item, metadata=_bare(item.metadata))


def _without_environment(spec: PodSpec) -> PodSpec:
    def bare(containers: Iterable[Container]) -> list[Container]:
        return [replace(container, env=[]) for container in containers]

    return replace(
        spec,
        containers=bare(spec.containers),
        init_containers=bare(spec.init_containers),
        ephemeral_containers=bare(spec.ephemeral_containers),
    )


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
        and state.last_transition + _STABLE_AFTER < now_ns
        and not node.spec.unschedulable
        and not has_taint(node, TO_BE_DELETED_TAINT)
    )


def _candidates(
    nodes: Iterable[Node], groups: Groups, now_ns: int, warnings: list[str]
) -> tuple[dict[str, Node], list[tuple[Node, str]]]:
    """(the first good node of each group, nodes that would do at need and their groups)."""
    good: dict[str, Node] = {}
    bad: list[tuple[Node, str]] = []
    group_of = groups.id_of_node
    for node in nodes:
        name = node.metadata.name
        try:
            group = group_of(name)
        except ProviderError as error:
            warnings.append(f"Failed to get node group for node {name}: {error.message}")
            continue
        if group is None or group in good:
            continue
        if is_good_template(node, now_ns):
            good[group] = node
        else:
            bad.append((node, group))
    return good, bad


def mixed_templates(
    nodes: Sequence[Node],
    examples_of: Callable[[Sequence[Node]], Sequence[NodeTemplate | None]],
    daemonsets: Sequence[DaemonSet],
    groups: Groups,
    *,
    now: Moment,
    options: AutoscalingOptions | None = None,
    cache: Mapping[str, CachedTemplate] | None = None,
    cache_ttl: int | None = None,
    suffix: str = "0",
) -> Templates:
    """The template of every group: from its first good node, else a cached one, else the provider's, else any node.

    ``examples_of`` gives nodes with the pods they have in the snapshot (None: it is not there, which is an error).
    ``cache_ttl``: nanoseconds (default: the option's).
    ``suffix`` ends the names of template nodes and their pods; upstream's are random.

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

    good, bad = _candidates(nodes, groups, now, result.warnings)
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
