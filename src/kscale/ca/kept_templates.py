"""Templates from one loop to the next: in the state that loops hand on, and as they were made last."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from operator import is_
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from kscale.ca.by_identity import ByIdentity
from kscale.ca.state import RememberedTemplate
from kscale.effects import Moment
from kscale.objects.core import Container as PodContainer
from kscale.objects.core import Node, PodSpec
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.meta import ObjectMeta
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.pod_annotations import READ_ANNOTATIONS
from kscale.objects.resource import ResourceSlice
from kscale.objects.storage import CSINode
from kscale.snapshot.snapshot import Snapshot

__all__ = ["CachedTemplate", "KeptTemplates", "LastTemplates", "recalled", "remembered"]

_MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"
_READ_ANNOTATIONS = frozenset({*READ_ANNOTATIONS, _MIGRATED_PLUGINS})


class CachedTemplate(msgspec.Struct, kw_only=True, frozen=True):
    """A template that was made from a real node, and when."""

    template: NodeTemplate
    added: Moment


def remembered(cached: CachedTemplate) -> RememberedTemplate:
    """For the state of a loop. Annotations and environments may hold secrets, images are many: only what decisions read
    is kept."""
    return RememberedTemplate(template=_written(cached.template), added=cached.added)


def _written(template: NodeTemplate) -> dict[str, Any]:
    bare = replace(
        template,
        node=_without_images(template.node),
        pods=[replace(pod, metadata=_bare(pod.metadata), spec=_without_environment(pod.spec)) for pod in template.pods],
        csi_node=None if template.csi_node is None else _unannotated(template.csi_node),
        resource_slices=[_unannotated(each) for each in template.resource_slices],
    )
    written: dict[str, Any] = to_dict(bare)
    return written


def recalled(item: RememberedTemplate, group: str) -> CachedTemplate:
    """A group's, from the state of a loop. Raises InputError for a template that cannot be read."""
    return CachedTemplate(template=_read(item.template, group), added=item.added)


def _read(template: dict[str, Any], group: str) -> NodeTemplate:
    return from_dict(template, NodeTemplate, object_path=f"templates[{group}] of the state")


def _bare(metadata: ObjectMeta) -> ObjectMeta:
    kept = {key: value for key, value in (metadata.annotations or {}).items() if key in _READ_ANNOTATIONS}
    return replace(metadata, annotations=kept or None)


def _without_images(node: Node) -> Node:
    return replace(node, metadata=_bare(node.metadata), status=replace(node.status, images=[]))


_Published = TypeVar("_Published", CSINode, ResourceSlice)


def _unannotated(item: _Published) -> _Published:
    return replace(item, metadata=_bare(item.metadata))


def _without_environment(spec: PodSpec) -> PodSpec:
    def bare(containers: Iterable[PodContainer]) -> list[PodContainer]:
        return [replace(container, env=[]) for container in containers]

    return replace(
        spec,
        containers=bare(spec.containers),
        init_containers=bare(spec.init_containers),
        ephemeral_containers=bare(spec.ephemeral_containers),
    )


class KeptTemplates:
    """What was made for each name last, while it would be made of the very same objects and equal values."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[tuple[object, ...], tuple[object, ...], NodeTemplate]] = {}

    def of(
        self, name: str, objects: tuple[object, ...], values: tuple[object, ...], make: Callable[[], NodeTemplate]
    ) -> NodeTemplate:
        """What was made of these, now or before."""
        last = self._last.get(name)
        if last is None or len(last[0]) != len(objects) or not all(map(is_, last[0], objects)) or last[1] != values:
            last = self._last[name] = objects, values, make()
        return last[2]

    def forget_others(self, names: Container[str]) -> None:
        """Nothing is kept for other names."""
        self._last = {name: found for name, found in self._last.items() if name in names}


class LastTemplates:
    """What the last loop over a cluster made, and wrote into its state; kept with the interner that the snapshots of a
    cluster share. ``templates``: by group; ``examples``: by the name of the node."""

    def __init__(self) -> None:
        self.templates = KeptTemplates()
        self.examples = KeptTemplates()
        self._read: ByIdentity[dict[str, Any], NodeTemplate] = ByIdentity()
        self._written: ByIdentity[NodeTemplate, dict[str, Any]] = ByIdentity()

    @classmethod
    def of(cls, snapshot: Snapshot) -> LastTemplates:
        """Those of the cluster of a snapshot."""
        return snapshot.interner.memo.of(cls, cls)

    def tidy(self, groups: Container[str], nodes: Container[str]) -> None:
        """Keep nothing of groups and nodes that are gone."""
        self.templates.forget_others(groups)
        self.examples.forget_others(nodes)

    def recalled(self, items: Mapping[str, RememberedTemplate]) -> dict[str, CachedTemplate]:
        """:func:`recalled` for many groups, by id."""
        dicts = [item.template for item in items.values()]
        names = dict(zip(map(id, dicts), items, strict=True))
        read = self._read.of(dicts, lambda each: _read(each, names[id(each)]))
        return {
            name: CachedTemplate(template=template, added=item.added)
            for (name, item), template in zip(items.items(), read, strict=True)
        }

    def remembered(self, items: Mapping[str, CachedTemplate]) -> dict[str, RememberedTemplate]:
        """:func:`remembered` for many groups, by id."""
        written = self._written.of([item.template for item in items.values()], _written)
        return {
            name: RememberedTemplate(template=template, added=item.added)
            for (name, item), template in zip(items.items(), written, strict=True)
        }
