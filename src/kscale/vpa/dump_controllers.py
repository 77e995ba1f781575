"""The controllers of a dump: what upstream's controller fetcher would be answered about owners of custom kinds.

Upstream (``target/controller_fetcher``) gets the scale of an owner whose kind is not well known. A kind without a scale
answers 404, and the well-known controller below is the topmost one. Whether a kind has a scale its
CustomResourceDefinition says; what is assumed without one is in :attr:`DumpScales.assumed`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from kscale.effects import ApiError
from kscale.effects.outcomes import NOT_FOUND
from kscale.objects.argument_types import typed
from kscale.objects.autoscaling import Scale, ScaleStatus
from kscale.objects.custom_workloads import CustomWorkload
from kscale.objects.decode import to_dict
from kscale.objects.kinds import group_of
from kscale.objects.meta import ObjectMeta
from kscale.objects.rest_mapping import BUILT_IN, AnyKindRESTMapper, ServedResource, split_group_resource
from kscale.objects.scale import (
    WELL_KNOWN_PATHS,
    ScaleError,
    ScalePaths,
    definition_parts,
    has_built_in_scale,
    scale_of,
)
from kscale.vpa.controllers import WELL_KNOWN, Controllers
from kscale.vpa.scales import ScaleKey, ScaleRefusedError

__all__ = ["DumpScales", "controllers_of", "custom_workloads_of"]

_CUSTOM_KINDS = ("Rollout", "CloneSet", "UnitedDeployment", "DeploymentConfig", "LeaderWorkerSet")
_NO_SCALE = ApiError("the server could not find the requested resource", 404, NOT_FOUND)


class Objects(Protocol):
    """A cluster, as far as it is read here."""

    def all(self, kind: str) -> Iterable[Any]:
        """All objects of a kind."""
        ...


class _KindRemembered(AnyKindRESTMapper):
    """Remembers which kind a resource stands for: :class:`ScaleKey` has the resource alone."""

    __slots__ = ("kinds",)

    def __init__(self, resources: Iterable[ServedResource]) -> None:
        super().__init__(resources)
        self.kinds: dict[str, tuple[str, str]] = {}

    def resources(self, group: str, kind: str) -> tuple[str, ...]:
        """Return the group-resources of a kind."""
        names = super().resources(group, kind)
        for name in names:
            self.kinds.setdefault(name, (group, kind))
        return names


class DumpScales:
    """Scales of custom kinds from the objects and definitions of a dump.

    ``assumed``: by namespace, what was assumed because the dump does not say it, in words.
    """

    def __init__(self, cluster: Objects) -> None:
        self._definitions: dict[tuple[str, str], dict[str, ScalePaths]] = {}
        plurals: list[ServedResource] = list(BUILT_IN)
        for definition in cluster.all("CustomResourceDefinition"):
            group, kind, plural, paths = definition_parts(definition)
            self._definitions[group, kind] = paths
            plurals.append(ServedResource(group, "", kind, plural))
        self.mapper = _KindRemembered(plurals)
        self._objects: dict[tuple[str, str, str, str], CustomWorkload] = {
            (group_of(each.api_version), each.kind, each.namespace, each.name): each
            for each in custom_workloads_of(cluster)
        }
        self._answers: dict[ScaleKey, Scale | ApiError] = {}
        self._selectors: dict[ScaleKey, str] = {}
        self.assumed: dict[tuple[str, str], None] = {}

    def __repr__(self) -> str:
        return f"<DumpScales: {len(self._definitions)} definitions, {len(self._objects)} objects>"

    def get(self, key: ScaleKey) -> Scale:
        """Return a scale. Raises :class:`~kscale.vpa.scales.ScaleRefusedError` if the kind or the object has none."""
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self._answer(key)
        if isinstance(answer, ApiError):
            raise ScaleRefusedError(answer)
        return answer

    def assume_selector(self, group: str, kind: str, namespace: str, name: str, selector: str) -> bool:
        """Take a selector for that of an object that is not in the dump; False, and nothing changed, if it is there."""
        if (group, kind, namespace, name) in self._objects:
            return False
        for resource in self.mapper.resources(group, kind):
            key = ScaleKey(namespace, resource, name)
            self._selectors[key] = selector
            self._answers.pop(key, None)
        return True

    def _answer(self, key: ScaleKey) -> Scale | ApiError:
        group, kind = self.mapper.kinds.get(key.resource) or split_group_resource(key.resource)[::-1]
        name = f"{kind}.{group}" if group else kind
        item = self._objects.get((group, kind, key.namespace, key.name))
        paths: ScalePaths | None = WELL_KNOWN_PATHS.get((group, kind))
        if (group, kind) in self._definitions:
            versions = self._definitions[group, kind]
            if not versions:
                return _NO_SCALE
            version = "" if item is None else item.api_version.rpartition("/")[2]
            paths = versions.get(version) or next(iter(versions.values()))
        elif paths is None and not has_built_in_scale(group, kind):
            if "." in group and not group.endswith(".k8s.io"):
                text = f"the input has no CustomResourceDefinition of {name}: taken to have no scale"
                self.assumed[key.namespace, text] = None
            return _NO_SCALE
        elif paths is not None:
            text = f"the input has no CustomResourceDefinition of {name}: its scale is read as it usually is"
            self.assumed[key.namespace, text] = None
        if item is None:
            self.assumed[key.namespace, f"the input has no {name} {key.namespace}/{key.name}, which owns others"] = None
            metadata = ObjectMeta(name=key.name, namespace=key.namespace)
            return Scale(metadata=metadata, status=ScaleStatus(selector=self._selectors.get(key, "")))
        try:
            return scale_of(to_dict(item), paths)
        except ScaleError as error:
            return ApiError(str(error))


def custom_workloads_of(cluster: Objects) -> list[CustomWorkload]:
    """Return the custom workloads of a cluster."""
    return [each for kind in _CUSTOM_KINDS for each in cluster.all(kind) if isinstance(each, CustomWorkload)]


@typed
def controllers_of(cluster: Objects) -> Controllers:
    """Return the controllers of a cluster, with the scales of the custom kinds that own some of them.

    Upstream: ``target/controller_fetcher/controller_fetcher.go``.
    """
    scales = DumpScales(cluster)
    objects = (item for kind in sorted(WELL_KNOWN) for item in cluster.all(kind))
    return Controllers(objects, mapper=scales.mapper, scales=scales)
