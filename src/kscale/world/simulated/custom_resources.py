"""Custom resources with a scale: their ``/scale`` endpoint and a controller for their pods.

The real behaviour of a custom controller is unknown. This one does what most kinds with replicas do (rollouts, clone
sets): a ReplicaSet keeps as many pods of ``spec.template`` as the object's scale requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from msgspec.structs import replace

from kscale.effects import VirtualTime
from kscale.errors import InputError
from kscale.objects.api.apps import ReplicaSet
from kscale.objects.api.autoscaling import Scale
from kscale.objects.api.meta import LabelSelector, OwnerReference
from kscale.objects.custom_workloads import CustomObject, CustomResource
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.kinds import BUILT_IN, BUILT_IN_MAPPER, RESTMapper
from kscale.objects.pod_owners import controller_of
from kscale.objects.scale import ScaleError, ScalePaths, scale_of, with_replicas
from kscale.objects.selectors import compile_selector
from kscale.world.simulated.api_server import ApiObjects, RefusedError, one_by_one
from kscale.world.simulated.controllers import Controller, OwnedPods

__all__ = ["CustomScales", "controllers_of", "pod_template_problem"]


class CustomScales:
    """Scales of custom kinds, as an API server serves them."""

    def __init__(self, api: ApiObjects, resources: Sequence[CustomResource]) -> None:
        self._api = api
        self._of = {custom.resource.group_resource: custom for custom in reversed(resources)}
        served = (custom.resource for custom in resources)
        self.mapper = RESTMapper([*BUILT_IN, *served]) if resources else BUILT_IN_MAPPER

    def has_scale(self, resource: str) -> bool:
        """Return whether a group-resource (``crontabs.stable.example.com``) is custom and has a scale."""
        return resource in self._of

    def get(self, namespace: str, resource: str, name: str) -> Scale:
        """Return the scale of an object.

        Raises RefusedError if there is no such object, ScaleError if its scale cannot be read.
        """
        custom = self._of[resource]
        return scale_of(to_dict(self._api.get(custom.kind, namespace, name)), custom.paths)

    def put(self, namespace: str, resource: str, scale: Scale, replicas: int) -> Scale:
        """Write the replicas of an object through its scale, and return the new scale.

        Raises RefusedError if there is no such object or it was changed since ``scale`` was read, ScaleError if its
        scale cannot be written.
        """
        custom = self._of[resource]
        stored = self._api.get(custom.kind, namespace, scale.metadata.name)
        try:
            written = with_replicas(to_dict(stored), scale, replicas, custom.paths)
        except ScaleError as error:
            if error.conflict:
                raise RefusedError(str(error), 409, "Conflict") from None
            raise
        put = self._api.put(from_dict(written, CustomObject))
        return scale_of(to_dict(put), custom.paths)


def pod_template_problem(owner: CustomObject) -> str:
    """Return why no pods can be created for an object; empty if they can."""
    template = owner.spec.get("template")
    if not isinstance(template, dict):
        return "it has no spec.template that says what its pods are"
    try:
        _replica_set(owner, 0)
    except InputError as error:
        return str(error)
    return ""


def controllers_of(
    resources: Iterable[CustomResource], api: ApiObjects, time: VirtualTime, owned: OwnedPods
) -> list[Controller]:
    """Return a controller for each custom kind, which manages the pods of its objects."""
    first_of_kind: dict[str, CustomResource] = {}
    for custom in resources:
        first_of_kind.setdefault(custom.kind, custom)
    return [
        type(f"{kind}Controller", (_CustomController,), {"kind": kind})(api, time, owned, custom.paths)
        for kind, custom in first_of_kind.items()
    ]


class _CustomController(Controller):
    kind: ClassVar[str] = ""

    def __init__(self, api: ApiObjects, time: VirtualTime, owned: OwnedPods, paths: ScalePaths) -> None:
        self._paths = paths
        super().__init__(api, time, owned, rank=0)
        api.listen("ReplicaSet", one_by_one(self._replica_set_changed))

    def _replica_set_changed(self, old: Any, new: Any) -> None:
        metadata = (old if new is None else new).metadata
        owner = controller_of(metadata)
        if owner is not None and owner.kind == self.kind:
            self.changed(f"{metadata.namespace}/{owner.name}")

    def sync(self, custom_object: CustomObject) -> None:
        """Create or resize the object's ReplicaSet, and copy the ReplicaSet's counts to the object's status."""
        if pod_template_problem(custom_object):
            return
        try:
            replicas = scale_of(to_dict(custom_object), self._paths).spec.replicas
        except ScaleError:  # the object has no replicas, as on a real API server
            return
        desired = _replica_set(custom_object, replicas)
        replica_set: ReplicaSet | None = self._api.find("ReplicaSet", desired.key)
        if replica_set is None:
            replica_set = self._api.create(desired)
        elif replica_set.spec.replicas != replicas or to_dict(replica_set.spec.template) != to_dict(
            desired.spec.template
        ):
            replica_set = self._api.put(
                replace(replica_set, spec=replace(replica_set.spec, replicas=replicas, template=desired.spec.template))
            )
        assert replica_set.spec.selector is not None
        status = _set_status_value(custom_object.status, self._paths.status_replicas, replica_set.status.replicas)
        if self._paths.label_selector:
            status = _set_status_value(
                status, self._paths.label_selector, str(compile_selector(replica_set.spec.selector))
            )
        if status != custom_object.status:
            self._api.put_status(custom_object, status)


def _set_status_value(status: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy of a status with a value set at a path below ``.status``.

    For any other path, the status is returned.
    """
    first, *parts = path.strip(".").split(".")
    if first != "status" or not parts:
        return status
    out = here = dict(status)
    for part in parts[:-1]:
        below = here.get(part)
        here[part] = here = dict(below) if isinstance(below, dict) else {}
    here[parts[-1]] = value
    return out


def _replica_set(custom_object: CustomObject, replicas: int) -> ReplicaSet:
    """Return the ReplicaSet for an object's pods. Raises InputError for an invalid template or selector."""
    metadata = custom_object.metadata
    template = custom_object.spec["template"]
    labels = (template.get("metadata") or {}).get("labels") or {}
    selector = custom_object.spec.get("selector")
    if not isinstance(selector, dict):
        selector = {"matchLabels": labels}
    elif not selector.keys() <= {"matchLabels", "matchExpressions"}:
        selector = {"matchLabels": selector}  # a plain map of labels
    replica_set = from_dict(
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": metadata.name, "namespace": metadata.namespace, "labels": labels},
            "spec": {"replicas": replicas, "template": template, "selector": selector},
        },
        ReplicaSet,
    )
    owner = OwnerReference(
        api_version=custom_object.api_version,
        kind=custom_object.kind,
        name=metadata.name,
        uid=metadata.uid,
        controller=True,
    )
    compile_selector(from_dict(selector, LabelSelector))
    return replace(replica_set, metadata=replace(replica_set.metadata, owner_references=[owner]))
