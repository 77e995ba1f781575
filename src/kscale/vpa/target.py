"""Which pods a VPA means, and which VPA a pod belongs to (upstream: ``pkg/target``, ``pkg/utils/vpa/api.go``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from kscale.errors import KscaleError
from kscale.objects.apps import DaemonSet, Deployment, ReplicaSet, StatefulSet
from kscale.objects.batch import CronJob, Job
from kscale.objects.core import Pod, PodTemplateSpec, ReplicationController
from kscale.objects.meta import KubeObject, LabelSelector, ObjectMeta, OwnerReference
from kscale.objects.names import go_quote
from kscale.objects.owners import controller_of
from kscale.objects.selector_text import parse_selector
from kscale.objects.selectors import Selector, SelectorError, compile_selector
from kscale.objects.times import nanoseconds
from kscale.objects.vpa import VerticalPodAutoscaler

__all__ = ["WELL_KNOWN", "ControllerKey", "Controllers", "Scale", "TargetError", "controlling_vpa", "pod_owner"]

WELL_KNOWN: Final = frozenset(
    {"DaemonSet", "Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "Job", "CronJob"}
)
Controller = DaemonSet | Deployment | ReplicaSet | StatefulSet | ReplicationController | Job | CronJob


class TargetError(KscaleError, ValueError):
    """A target that cannot be resolved, in upstream's words."""


class ControllerKey(NamedTuple):
    """A controller as an owner reference or a target names it."""

    namespace: str
    kind: str
    name: str
    api_version: str = ""

    def __str__(self) -> str:
        return f"{self.api_version}.{self.kind}/{self.name}"


class Scale(msgspec.Struct, kw_only=True):
    """The scale sub-resource of an object that is not well known: who selects its pods, and who owns it."""

    api_version: str
    kind: str
    namespace: str
    name: str
    selector: str = ""
    owner_references: list[OwnerReference] = []


class Controllers:
    """The controllers and scale sub-resources of a cluster, by kind, namespace and name.

    Well-known kinds are looked up by kind only; every other kind through ``scales``. Kinds of ``resources``
    ((group, kind) -> plural resource name) are known to the API server even if no object of them has a scale.
    """

    def __init__(
        self,
        objects: Iterable[KubeObject] = (),
        scales: Iterable[Scale] = (),
        resources: Mapping[tuple[str, str], str] | None = None,
    ) -> None:
        self._objects: dict[tuple[str, str, str], KubeObject] = {}
        for item in objects:
            kind = type(item).__name__
            if kind in WELL_KNOWN:
                self._objects[kind, item.namespace, item.name] = item
        self._scales = {(_group(s.api_version), s.kind, s.namespace, s.name): s for s in scales}
        self._resources = dict(resources or {})
        for group, kind, _, _ in self._scales:
            self._resources.setdefault((group, kind), kind.lower() + "s")

    def get(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        """A well-known controller."""
        return self._objects.get((kind, namespace, name))

    def templates(self) -> Iterator[tuple[ControllerKey, PodTemplateSpec]]:
        """Every well-known controller and the template that its pods are made from, in listed order."""
        for (kind, namespace, name), item in self._objects.items():
            yield ControllerKey(namespace, kind, name, item.api_version), _template_of(item)

    def _existing(self, key: ControllerKey) -> KubeObject:
        found = self._objects.get((key.kind, key.namespace, key.name))
        if found is None:
            raise TargetError(f"{key.kind} {key.namespace}/{key.name} does not exist")
        return found

    def _scale(self, key: ControllerKey) -> Scale:
        """The scale of a key whose kind is not well known. LookupError(text) when the kind or the object is unknown."""
        group = _group(key.api_version)
        resource = self._resources.get((group, key.kind))
        if resource is None:
            raise _UnknownKindError(f"no matches for kind {go_quote(key.kind)} in group {go_quote(group)}")
        found = self._scales.get((group, key.kind, key.namespace, key.name))
        if found is None:
            where = f"{resource}.{group}" if group else resource
            raise _NotFoundError(f'{where} "{key.name}" not found')
        return found

    # -- which pods ---------------------------------------------------------------------------------------------

    def selector(self, vpa: VerticalPodAutoscaler) -> Selector:
        """The selector of a VPA's target; raises :class:`TargetError`."""
        target = vpa.spec.target_ref
        if target is None:
            raise TargetError("targetRef not defined. If this is a v1beta1 object, switch to v1")
        key = ControllerKey(vpa.namespace, target.kind, target.name, target.api_version)
        try:
            if key.kind in WELL_KNOWN:
                return compile_selector(_selector_of(self._existing(key)))
            if key.api_version.count("/") > 1:
                raise TargetError(f"unexpected GroupVersion string: {key.api_version}")
            return self._scale_selector(key)
        except SelectorError as error:
            raise TargetError(str(error)) from None

    def _scale_selector(self, key: ControllerKey) -> Selector:
        try:
            scale = self._scale(key)
        except LookupError as error:
            raise _unhandled(key, error) from None
        if not scale.selector:
            raise TargetError(f"resource {key.namespace}/{key.name} has an empty selector for scale sub-resource")
        return parse_selector(scale.selector)

    # -- who owns -----------------------------------------------------------------------------------------------

    def is_known(self, key: ControllerKey) -> bool:
        """Well known, or scalable."""
        if key.kind in WELL_KNOWN:
            return True
        return key.api_version.count("/") <= 1 and _scale_key(key) in self._scales

    def _owner(self, key: ControllerKey) -> ControllerKey | None:
        if key.kind in WELL_KNOWN:
            reference = controller_of(self._existing(key).metadata)
            return _key_of(key.namespace, reference) if reference is not None else None
        if key.api_version.count("/") > 1:
            raise TargetError(f"unexpected GroupVersion string: {key.api_version}")
        if key.kind == "Node":  # mirror pods are owned by their node
            raise _unhandled(key, LookupError("node is not a valid owner"))
        try:
            scale = self._scale(key)
        except _NotFoundError:
            return None
        except LookupError as error:
            raise _unhandled(key, error) from None
        reference = controller_of(ObjectMeta(owner_references=scale.owner_references))
        return _key_of(key.namespace, reference) if reference is not None else None

    def topmost(self, key: ControllerKey | None) -> ControllerKey | None:
        """The last well-known or scalable controller up the chain of owners; raises :class:`TargetError`."""
        if key is None:
            return None
        found = key if self.is_known(key) else None
        visited = {key}
        while (owner := self._owner(key)) is not None:
            if self.is_known(owner):
                found = owner
            if owner in visited:
                raise TargetError("cycle detected in ownership chain")
            visited.add(owner)
            key = owner
        return found

    def parent_of(self, pod: Pod) -> ControllerKey | None:
        """The topmost controller of a pod; None for bare pods and those of a node. Raises :class:`TargetError`."""
        owner = pod_owner(pod)
        if owner is None or owner.kind == "Node":
            return None
        return self.topmost(owner)


class _UnknownKindError(LookupError):
    """The API server does not know the kind."""


class _NotFoundError(LookupError):
    """The kind is known, the object is not there."""


def _unhandled(key: ControllerKey, error: LookupError) -> TargetError:
    return TargetError(f"unhandled targetRef {key.api_version} / {key.kind} / {key.name}, last error {error}")


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0]


def _scale_key(key: ControllerKey) -> tuple[str, str, str, str]:
    return _group(key.api_version), key.kind, key.namespace, key.name


def _key_of(namespace: str, reference: OwnerReference) -> ControllerKey:
    return ControllerKey(namespace, reference.kind, reference.name, reference.api_version)


def _selector_of(controller: KubeObject) -> LabelSelector | None:
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


def pod_owner(pod: Pod) -> ControllerKey | None:
    """The controller that owns a pod. Upstream takes the last reference with ``controller: true`` here."""
    owners = [owner for owner in pod.metadata.owner_references if owner.controller]
    return _key_of(pod.namespace, owners[-1]) if owners else None


def stronger(a: VerticalPodAutoscaler, b: VerticalPodAutoscaler) -> bool:
    """Whether ``a`` wins over ``b``: older, or equally old with the smaller name."""
    mine, theirs = _created(a), _created(b)
    return mine < theirs if mine != theirs else a.name < b.name


def _created(vpa: VerticalPodAutoscaler) -> int:
    text = vpa.metadata.creation_timestamp
    return nanoseconds(text) if text else -(2**80)


def controlling_vpa(
    pod: Pod, parent: ControllerKey | None, vpas: Iterable[tuple[VerticalPodAutoscaler, Selector]]
) -> VerticalPodAutoscaler | None:
    """The strongest of the VPAs whose target is the pod's topmost controller and whose selector matches the pod."""
    if parent is None:
        return None
    best: VerticalPodAutoscaler | None = None
    for vpa, selector in vpas:
        target = vpa.spec.target_ref
        if target is None or vpa.namespace != parent.namespace:
            continue
        if (target.kind, target.name) != (parent.kind, parent.name) or not selector.matches(pod.metadata.labels):
            continue
        if best is None or stronger(vpa, best):
            best = vpa
    return best
