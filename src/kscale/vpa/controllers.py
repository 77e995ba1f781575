"""Controllers as watches bring them, and the scales of those that are not well known.

Upstream: ``target/controller_fetcher``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kscale.errors import KscaleError
from kscale.objects.apps import DaemonSet, Deployment, ReplicaSet, StatefulSet
from kscale.objects.autoscaling import Scale
from kscale.objects.batch import CronJob, Job
from kscale.objects.core import PodTemplateSpec, ReplicationController
from kscale.objects.meta import KubeObject, LabelSelector
from kscale.objects.rest_mapping import RESTMapper, RESTMappingError, parse_group_version
from kscale.vpa.scales import NO_SCALES, ScaleKey, ScaleRefusedError, Scales

__all__ = ["WELL_KNOWN", "ControllerKey", "Controllers", "TargetError", "UnknownKindError", "selector_of"]

WELL_KNOWN: Final = frozenset(
    {"DaemonSet", "Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "Job", "CronJob"}
)
"""Kinds that are watched; of all others only the scale is known."""


class TargetError(KscaleError, ValueError):
    """A target that cannot be resolved, in upstream's words."""


class UnknownKindError(LookupError):
    """A kind that the API server does not serve, in upstream's words."""


class ControllerKey(NamedTuple):
    """A controller as an owner reference or a target names it.

    ``api_version``: group and version as written there (``apps/v1``); it tells which resources a kind that is not well
    known is served as, and those that are well known are found without it. Empty: not told.
    """

    namespace: str
    kind: str
    name: str
    api_version: str = ""

    def __str__(self) -> str:
        return f"{self.api_version}.{self.kind}/{self.name}"


class Controllers:
    """The controllers of a cluster: those of well-known kinds by kind (whatever their group), namespace and name.

    - ``objects``: the first ones; :meth:`apply` and :meth:`remove` take what changes. Other kinds are passed over.
    - ``mapper``: which resources the API server serves a kind as.
    - ``scales``: what the ``/scale`` endpoints of other kinds answer: :class:`~kscale.vpa.KnownScales` (all that there
      are), or :class:`~kscale.vpa.ScaleCache` (what is not in it yet is asked for, by the machines with ``GetScale``).

    Single owner.
    """

    __slots__ = ("_objects", "mapper", "scales")

    def __init__(
        self,
        objects: Iterable[KubeObject] = (),
        *,
        mapper: RESTMapper | None = None,
        scales: Scales = NO_SCALES,
    ) -> None:
        self._objects: dict[tuple[str, str, str], KubeObject] = {}
        self.mapper = mapper if mapper is not None else RESTMapper(())
        self.scales = scales
        for item in objects:
            self.apply(item)

    def __len__(self) -> int:
        return len(self._objects)

    def __repr__(self) -> str:
        return f"<Controllers: {len(self)} of well-known kinds, {self.scales!r}>"

    def apply(self, item: KubeObject) -> None:
        """An object (``item``) is there, or has changed: it takes the place of the one of its kind and name."""
        kind = type(item).__name__
        if kind in WELL_KNOWN:
            self._objects[kind, item.namespace, item.name] = item

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """An object is gone; one that was not there is no error."""
        self._objects.pop((kind, namespace, name), None)

    def get(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        """A controller of a well-known kind."""
        return self._objects.get((kind, namespace, name))

    def existing(self, key: ControllerKey) -> KubeObject:
        """A controller of a well-known kind; raises :class:`TargetError` if it is not there."""
        found = self.get(key.kind, key.namespace, key.name)
        if found is None:
            raise TargetError(f"{key.kind} {key.namespace}/{key.name} does not exist")
        return found

    def templates(self) -> Iterator[tuple[ControllerKey, PodTemplateSpec]]:
        """Every well-known controller and the template that its pods are made from, in listed order."""
        for (kind, namespace, name), item in self._objects.items():
            yield ControllerKey(namespace, kind, name, item.api_version), _template_of(item)

    def scale(self, key: ControllerKey, scales: Scales | None = None) -> Scale:
        """The scale of a key whose kind is not well known, by the first of its resources that answers.

        ``scales``: where to look instead. Raises :class:`TargetError` for an ``apiVersion`` that cannot be read,
        :class:`UnknownKindError`, :class:`~kscale.vpa.scales.ScaleRefusedError` (the last refusal) and
        :class:`~kscale.vpa.scales.ScaleNeededError`.
        """
        try:
            group, _ = parse_group_version(key.api_version)
        except RESTMappingError as error:
            raise TargetError(str(error)) from None
        try:
            resources = self.mapper.resources(group, key.kind)
        except RESTMappingError as error:
            raise UnknownKindError(str(error)) from None
        known = scales if scales is not None else self.scales
        refused: ScaleRefusedError | None = None
        for resource in resources:
            try:
                return known.get(ScaleKey(key.namespace, resource, key.name))
            except ScaleRefusedError as error:
                refused = error
        raise refused if refused is not None else UnknownKindError(f"no resource of kind {key.kind}")


def selector_of(controller: KubeObject) -> LabelSelector | None:
    """What selects the pods of a well-known controller."""
    match controller:
        case CronJob():
            return LabelSelector(match_labels=controller.spec.job_template.spec.template.metadata.labels)
        case ReplicationController():
            return LabelSelector(match_labels=controller.spec.selector)
        case DaemonSet() | Deployment() | ReplicaSet() | StatefulSet() | Job():
            return controller.spec.selector
    raise TypeError(controller)


def _template_of(controller: KubeObject) -> PodTemplateSpec:
    match controller:
        case CronJob():
            return controller.spec.job_template.spec.template
        case ReplicationController():
            return controller.spec.template or PodTemplateSpec()
        case DaemonSet() | Deployment() | ReplicaSet() | StatefulSet() | Job():
            return controller.spec.template
    raise TypeError(controller)
