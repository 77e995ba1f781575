"""The template of every node group, cached from loop to loop (upstream: ``processors/nodeinfosprovider``)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from operator import is_
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from kscale.ca.errors import CLOUD_PROVIDER_ERROR, INTERNAL_ERROR, AutoscalerError
from kscale.ca.loop_state import RememberedTemplate
from kscale.ca.nodes import TO_BE_DELETED_TAINT, RegisteredNodes, get_readiness, has_taint
from kscale.ca.options import AutoscalingOptions, default_options
from kscale.ca.templates import TaintConfig, build_template_from_group, build_template_from_node
from kscale.effects import SECOND, Moment, duration
from kscale.effects.moments import ComparedDuration
from kscale.objects.api.apps import DaemonSet
from kscale.objects.api.core import Container as PodContainer
from kscale.objects.api.core import Node, PodSpec
from kscale.objects.api.meta import ObjectMeta, ResourceList
from kscale.objects.api.resource import ResourceSlice
from kscale.objects.api.storage import CSINode
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.nodegroup import Groups, NodeGroup, NodeTemplate, ProviderError, is_not_implemented
from kscale.objects.pod_owners import READ_ANNOTATIONS
from kscale.snapshot.caches import IdentityCache
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "CachedTemplate",
    "LoopTemplateCaches",
    "TemplateCache",
    "TemplatesResult",
    "build_node_templates",
    "build_provider_template",
    "decode_cached_template",
    "encode_cached_template",
    "is_good_template_candidate",
]


_MIGRATED_PLUGINS_ANNOTATION = "storage.alpha.kubernetes.io/migrated-plugins"
_STORED_ANNOTATIONS = frozenset({*READ_ANNOTATIONS, _MIGRATED_PLUGINS_ANNOTATION})


class CachedTemplate(msgspec.Struct, kw_only=True, frozen=True):
    """A template that was built from a real node, and the time."""

    template: NodeTemplate
    added: Moment


def encode_cached_template(cached: CachedTemplate) -> RememberedTemplate:
    """Encode a template for the state of a loop.

    Only what decisions read is stored: annotations and environments may hold secrets, and images are many.
    """
    return RememberedTemplate(template=_encode_template(cached.template), added=cached.added)


def _encode_template(template: NodeTemplate) -> dict[str, Any]:
    """Encode a template as JSON data without fields that decisions do not read (:func:`encode_cached_template`)."""
    bare = replace(
        template,
        node=_strip_node(template.node),
        pods=[
            replace(pod, metadata=_strip_annotations(pod.metadata), spec=_strip_environment(pod.spec))
            for pod in template.pods
        ],
        csi_node=None if template.csi_node is None else _strip_published_object(template.csi_node),
        resource_slices=[_strip_published_object(each) for each in template.resource_slices],
    )
    written: dict[str, Any] = to_dict(bare)
    return written


def decode_cached_template(item: RememberedTemplate, group: str) -> CachedTemplate:
    """Decode the template ``item`` of a group from the state of a loop. Raises InputError if it is unreadable."""
    return CachedTemplate(template=_decode_template(item.template, group), added=item.added)


def _decode_template(template: dict[str, Any], group: str) -> NodeTemplate:
    """Decode a group's template from JSON data.

    Raises InputError, which names the group, for an unreadable template.
    """
    return from_dict(template, NodeTemplate, object_path=f"templates[{group}] of the state")


def _strip_annotations(metadata: ObjectMeta) -> ObjectMeta:
    """Return the metadata without the annotations that decisions do not read."""
    retained = {key: value for key, value in (metadata.annotations or {}).items() if key in _STORED_ANNOTATIONS}
    return replace(metadata, annotations=retained or None)


def _strip_node(node: Node) -> Node:
    """Return the node without images, and without the annotations that decisions do not read."""
    return replace(node, metadata=_strip_annotations(node.metadata), status=replace(node.status, images=[]))


_PublishedObject = TypeVar("_PublishedObject", CSINode, ResourceSlice)


def _strip_published_object(item: _PublishedObject) -> _PublishedObject:
    """Return the CSINode or ResourceSlice without the annotations that decisions do not read."""
    return replace(item, metadata=_strip_annotations(item.metadata))


def _strip_environment(spec: PodSpec) -> PodSpec:
    """Return the pod spec without the environment variables of its containers."""

    def bare(containers: Iterable[PodContainer]) -> list[PodContainer]:
        return [replace(container, env=[]) for container in containers]

    return replace(
        spec,
        containers=bare(spec.containers),
        init_containers=bare(spec.init_containers),
        ephemeral_containers=bare(spec.ephemeral_containers),
    )


class TemplateCache(msgspec.Struct, eq=False):
    """The last template of each name, valid while it is built from the very same objects and equal values."""

    _last: dict[str, tuple[tuple[object, ...], tuple[object, ...], NodeTemplate]] = {}

    def get(
        self, name: str, objects: tuple[object, ...], values: tuple[object, ...], make: Callable[[], NodeTemplate]
    ) -> NodeTemplate:
        """Return the cached template ``name``, or build it by ``make()`` if it was built of other inputs.

        The inputs are the same if ``objects`` are the very same objects and ``values`` are equal.
        """
        last = self._last.get(name)
        if last is None or len(last[0]) != len(objects) or not all(map(is_, last[0], objects)) or last[1] != values:
            last = self._last[name] = objects, values, make()
        return last[2]

    def forget_others(self, names: Container[str]) -> None:
        """Remove the templates whose names are not among these."""
        self._last = {name: entry for name, entry in self._last.items() if name in names}


class LoopTemplateCaches:
    """Templates that the last loop over a cluster built and wrote into its state.

    They are cached with the interner that the snapshots of a cluster share. ``templates`` and ``completed`` are by
    group, ``examples`` by the name of the node.
    """

    def __init__(self) -> None:
        self.templates = TemplateCache()
        self.examples = TemplateCache()
        self.completed = TemplateCache()
        self._read: IdentityCache[dict[str, Any], NodeTemplate] = IdentityCache()
        self._written: IdentityCache[NodeTemplate, dict[str, Any]] = IdentityCache()

    @classmethod
    def of(cls, snapshot: Snapshot) -> LoopTemplateCaches:
        """Return the caches of the snapshot's cluster."""
        return snapshot.interner.memo.get(cls, cls)

    def tidy(self, groups: Container[str], nodes: Container[str]) -> None:
        """Remove the cache entries of groups and nodes that are not among these ids and names."""
        self.templates.forget_others(groups)
        self.completed.forget_others(groups)
        self.examples.forget_others(nodes)

    def decode(self, items: Mapping[str, RememberedTemplate]) -> dict[str, CachedTemplate]:
        """Decode many groups' templates (``items``), by group id (:func:`decode_cached_template`).

        Raises InputError if one is unreadable.
        """
        dicts = [item.template for item in items.values()]
        names = dict(zip(map(id, dicts), items, strict=True))
        read = self._read.get(dicts, lambda each: _decode_template(each, names[id(each)]))
        return {
            name: CachedTemplate(template=template, added=item.added)
            for (name, item), template in zip(items.items(), read, strict=True)
        }

    def encode(self, items: Mapping[str, CachedTemplate]) -> dict[str, RememberedTemplate]:
        """Encode many groups' templates (``items``), by group id (:func:`encode_cached_template`)."""
        written = self._written.get([item.template for item in items.values()], _encode_template)
        return {
            name: RememberedTemplate(template=template, added=item.added)
            for (name, item), template in zip(items.items(), written, strict=True)
        }


STABILIZATION_DELAY: Final[ComparedDuration] = 60 * SECOND
"""A node is a good example once its readiness has not changed for this long."""


class TemplatesResult(msgspec.Struct, kw_only=True):
    """Templates by group id, the cache for the next loop, and what was logged on the way."""

    templates: dict[str, NodeTemplate] = {}
    cache: dict[str, CachedTemplate] = {}
    warnings: list[str] = []


def build_provider_template(
    group: NodeGroup, daemonsets: Iterable[DaemonSet], *, suffix: str, taints: TaintConfig
) -> NodeTemplate:
    """Build a template of the group from the provider's own, with the pods of the DaemonSets.

    ``suffix`` ends the names of the node and its pods. Raises :class:`AutoscalerError` if the provider has none.
    """
    try:
        example = group.node_template
    except ProviderError as error:
        text = f'failed to obtain template NodeInfo from node group "{group.id}": {error.message}'
        raise AutoscalerError(CLOUD_PROVIDER_ERROR, text) from None
    return build_template_from_group(example, daemonsets, group.id, suffix=suffix, taints=taints)


def is_good_template_candidate(node: Node, now_ns: int) -> bool:
    """Return whether the node is ready for more than a minute, not cordoned and not about to be deleted.

    Raises InputError if a time of the node is invalid.
    """
    state = get_readiness(node)
    return (
        state.ready
        and state.last_transition + STABILIZATION_DELAY < now_ns
        and not node.spec.unschedulable
        and not has_taint(node, TO_BE_DELETED_TAINT)
    )


def _find_template_candidates(
    nodes: RegisteredNodes, groups: Groups, now_ns: int, warnings: list[str]
) -> tuple[dict[str, Node], list[tuple[Node, str]]]:
    """Return the first good template candidate of each group by group id, and the rejected nodes as (node, group id).

    See :func:`is_good_template_candidate`. The search ends once each group has a good candidate. Adds a warning for
    each node whose group cannot be determined.
    """
    good: dict[str, Node] = {}
    bad: list[tuple[Node, str]] = []
    names, errors = nodes.names, groups.node_errors
    if errors:
        warnings += [f"Failed to get node group for node {name}: {errors[name]}" for name in names if name in errors]
    group_of = groups.ids_of_nodes(names)
    group_count = len({*group_of} - {None})
    for node, group in zip(nodes.nodes, group_of, strict=True):
        if len(good) == group_count:
            break
        if group is None or group in good:
            continue
        if is_good_template_candidate(node, now_ns):
            good[group] = node
        else:
            bad.append((node, group))
    return good, bad


def build_node_templates(
    nodes: Iterable[Node] | RegisteredNodes,
    examples_of: Callable[[Sequence[Node]], Sequence[NodeTemplate | None]],
    daemonsets: Sequence[DaemonSet],
    groups: Groups,
    *,
    now: Moment,
    options: AutoscalingOptions | None = None,
    cache: Mapping[str, CachedTemplate] | None = None,
    suffix: str = "0",
    example_cache: TemplateCache | None = None,
    completed: TemplateCache | None = None,
) -> TemplatesResult:
    """Build the template of every group from the first of these sources that exists.

    1. its first node that is a good template candidate (:func:`is_good_template_candidate`)
    2. the template in ``cache``, unless it is older than ``cache_ttl``
    3. the provider's template
    4. its first node that is not a good candidate

    A group without any of these has no template.

    ``examples_of`` returns nodes with their pods in the snapshot (None: the node is missing, which is an error).
    ``suffix`` ends the names of template nodes and their pods; upstream's are random. ``example_cache`` caches what
    earlier calls built of the same examples and DaemonSets.
    With ``completed``, which caches the results, templates from nodes get the resources that only the provider's
    template has, as upstream does on AWS (``asg_tag_resource_node_info_provider.go``).

    Raises :class:`AutoscalerError` if a node is missing from the snapshot.
    """
    options = options or default_options()
    taints = TaintConfig.from_options(options)
    ttl = duration(options.node_info_cache_expire_time)
    result = TemplatesResult(cache=dict(cache or {}))

    def make(node: Node, group: NodeGroup, example: NodeTemplate | None) -> NodeTemplate:
        if example is None:
            text = (
                f"error while retrieving node {node.metadata.name} from cluster snapshot - this shouldn't happen: "
                "node not found"
            )
            raise AutoscalerError(INTERNAL_ERROR, text)

        def from_node() -> NodeTemplate:
            return build_template_from_node(
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

        if example_cache is None:
            return from_node()
        return example_cache.get(group.id, (example, daemonsets), (suffix, options.force_ds, taints), from_node)

    good, bad = _find_template_candidates(RegisteredNodes.of(nodes), groups, now, result.warnings)
    for (name, node), example in zip(good.items(), examples_of([*good.values()]), strict=True):
        result.templates[name] = template = make(node, groups[name], example)
        result.cache[name] = CachedTemplate(template=template, added=now)
    for group in groups:
        if group.id in result.templates:
            continue
        cached = result.cache.get(group.id)
        if cached is not None and now - cached.added <= ttl:
            result.templates[group.id] = cached.template
            continue
        result.cache.pop(group.id, None)
        try:
            result.templates[group.id] = build_provider_template(group, daemonsets, suffix=suffix, taints=taints)
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
    return result if completed is None else _complete_templates(result, groups, completed)


def _complete_templates(result: TemplatesResult, groups: Groups, completed: TemplateCache) -> TemplatesResult:
    """Add to each template in ``result`` the resources that only the provider's template has. Returns ``result``.

    ``completed`` caches the new templates.
    """
    for group in groups:
        built, provided = result.templates.get(group.id), group.template
        if built is not None and provided is not None:
            add = partial(_add_missing_resources, built, provided)
            result.templates[group.id] = completed.get(group.id, (built, provided), (), add)
    return result


def _add_missing_resources(template: NodeTemplate, provided: NodeTemplate) -> NodeTemplate:
    """Return the template with the resources that only the provider's template has; itself if there are none."""
    status = template.node.status
    missing: dict[str, ResourceList] = {}
    for field in ("capacity", "allocatable"):
        known: ResourceList = getattr(status, field) or {}
        others = {
            name: amount for name, amount in (getattr(provided.node.status, field) or {}).items() if name not in known
        }
        if others:
            missing[field] = {**known, **others}
    if not missing:
        return template
    return replace(template, node=replace(template.node, status=replace(status, **missing)))
