"""Actions in a simulated cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kscale.effects import (
    LEGAL_OUTCOMES,
    Action,
    ApiError,
    Create,
    Delete,
    DeleteNodes,
    Discover,
    Emit,
    Evict,
    Get,
    GetMetric,
    GetScale,
    GetUnstructured,
    HasInstances,
    List,
    Moment,
    Observe,
    Outcome,
    Patch,
    Preview,
    PutScale,
    RankOptions,
    Resize,
    WriteStatus,
)
from kscale.errors import InputError
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.meta import KubeObject, object_key
from kscale.objects.api.vpa import (
    RecommendedContainerResources,
    RecommendedPodResources,
    VerticalPodAutoscalerCheckpointStatus,
    VerticalPodAutoscalerStatus,
)
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.kinds import BUILT_IN
from kscale.objects.nodegroup import ProviderError
from kscale.objects.quantity import Quantity
from kscale.objects.scale import ScaleError, scale_of
from kscale.objects.selectors import SelectorError, parse_selector
from kscale.world.protocols import Ranker, ask_cloud, nodes_named
from kscale.world.simulated.api_server import ApiObjects, PatchError, RefusedError, json_patch, merge, strategic
from kscale.world.simulated.cloud import SimulatedCloud
from kscale.world.simulated.disruption import Disruption
from kscale.world.simulated.kubelet import Resizing
from kscale.world.simulated.metrics import SimulatedMetrics
from kscale.world.simulated.pods import delete_pod
from kscale.world.simulated.stores import ClusterView
from kscale.world.simulated.workloads import CustomScales

__all__ = ["Fault", "SimulatedPerformer"]

_KIND_OF: Final = {resource.group_resource: resource.kind for resource in BUILT_IN}
_STATUS_IN_WHOLE: Final = frozenset({"Pod", "VerticalPodAutoscalerCheckpoint"})
"""Kinds whose status is written with the object: pods (written only by the simulation), and kinds without a status
subresource."""
_SAID: Final = frozenset({Emit, Observe})
_WITHOUT_QUANTITIES: Final = VerticalPodAutoscalerCheckpointStatus
"""Types of statuses that need no decoding, as they have no quantities."""


Fault = Callable[[Action, Moment], ApiError | int | None]
"""Returns the error that rejects an action, additional nanoseconds until its outcome, or None."""


class SimulatedPerformer(msgspec.Struct, eq=False):
    """Performs actions at once (:data:`kscale.effects.Perform`).

    ``fault`` may reject an action before it is performed, or delay its outcome. Events and observations are dropped; a
    wrapper between this class and the driver records them.
    """

    _api: ApiObjects
    _view: ClusterView
    _cloud: SimulatedCloud
    _disruption: Disruption
    _resizing: Resizing
    _metrics: SimulatedMetrics
    _custom: CustomScales
    _ranker: Ranker | None = None
    fault: Fault | None = None

    def __call__(self, action: Action, now: Moment) -> Outcome:
        """Perform an action and return its outcome. A rejected action is an outcome with an error.

        Events and observations have no effect. Raises TypeError for an action that this world does not know.
        """
        if type(action) in _SAID:
            return Outcome(at=now)  # a wrapper between this class and the driver records them
        end = now
        if self.fault is not None and LEGAL_OUTCOMES[type(action)].refusable:
            fault = self.fault(action, now)
            if isinstance(fault, ApiError):
                return Outcome(at=now, error=fault)
            end += fault or 0
        try:
            if type(action) is WriteStatus:  # the two most frequent actions
                value: Any = self._write_status(action.object)
            else:
                value = self._patch(action) if type(action) is Patch else self._do(action)
        except RefusedError as refusal:
            value = refusal.error
        except ProviderError as error:
            value = ApiError(error.message, reason=error.type)
        except (InputError, ScaleError) as error:
            value = ApiError(str(error), reason="InternalError")
        if isinstance(value, ApiError):
            return Outcome(at=end, error=value)
        return Outcome(at=end, value=value)

    def _do(self, action: Action) -> Any:
        """Perform an action and return the value of its outcome, or an ApiError.

        Raises RefusedError, ProviderError, InputError or ScaleError, which :meth:`__call__` converts.
        """
        match action:
            case Get() | GetUnstructured() | Preview():
                return self._get(action)
            case List():
                return self._list(action)
            case Discover():
                return self._custom.mapper
            case Create(object=new_object):
                return self._api.create(new_object).metadata.resource_version
            case Delete():
                return self._delete(action)
            case Evict(namespace=namespace, name=name, grace_period_seconds=grace):
                return self._disruption.evict(namespace, name, grace)
            case Resize(namespace=namespace, name=name, patch=patch):
                return self._resizing.resize(self._api.get("Pod", namespace, name), patch)
            case GetScale() | PutScale():
                return self._scale(action)
            case GetMetric():
                return self._metrics.get(action)
            case RankOptions() if self._ranker is not None:
                return self._ranker(action)
            case _:
                return self._ask_cloud(action)

    # -- the API server ----------------------------------------------------------------------------------------------

    def _get(self, action: Get | GetUnstructured | Preview) -> Any:
        """Return an object as a struct (Get) or as plain data (GetUnstructured); of a Preview the unchanged content.

        A Get with ``watched`` returns the version that drivers see, or the current one if they do not see the object
        yet. Raises RefusedError if there is no such object.
        """
        match action:
            case Preview(content=content):
                return content
            case GetUnstructured(kind=kind, namespace=namespace, name=name):
                return to_dict(self._api.get(kind, namespace, name))
            case Get(kind=kind, namespace=namespace, name=name, watched=watched):
                cached = self._view.get_all(kind).get(object_key(namespace, name)) if watched else None
                return cached if cached is not None else self._api.get(kind, namespace, name)

    def _list(self, action: List) -> list[KubeObject]:
        """Return the objects that a List selects. If it names nodes, these are active pods of the nodes.

        With ``watched`` or nodes, these are the objects that drivers see, otherwise the current ones. Raises
        RefusedError for an invalid selector.
        """
        candidates: Sequence[KubeObject]
        if action.nodes is not None:
            candidates = self._view.pods_of(action.nodes)
        elif action.watched:
            candidates = list(self._view.get_all(action.kind).values())
        else:
            candidates = list(self._api.get_all(action.kind).values())
        try:
            selector = parse_selector(action.selector) if action.selector else None
        except SelectorError as error:
            raise RefusedError(str(error), 400, "BadRequest") from None
        return [
            candidate
            for candidate in candidates
            if (not action.namespace or candidate.namespace == action.namespace)
            and (selector is None or selector.matches(candidate.metadata.labels or {}))
        ]

    def _patch(self, action: Patch) -> str:
        """Apply a patch and return the new resource version.

        If the status of the kind is a subresource, only a patch of the subresource changes it.
        Raises RefusedError if there is no such object, its version differs, or the patch does not apply.
        """
        current = self._api.get(action.kind, action.namespace, action.name)
        self._api.check_version(current, action.resource_version)
        status = _status_in_place(action, current)
        if status is not None:
            return self._api.put_status(current, status)
        before = to_dict(current)
        try:
            if action.type == "json":
                after = json_patch(before, to_dict(action.patch))
            else:
                after = (merge if action.type == "merge" else strategic)(before, action.patch)
        except PatchError as error:
            raise RefusedError(str(error), 422, "Invalid") from None
        if action.subresource:
            after = {**before, action.subresource: after.get(action.subresource)}
        elif "status" in before and action.kind not in _STATUS_IN_WHOLE:
            after["status"] = before["status"]  # the status has its own subresource
        patched = from_dict(after, type(current))
        if getattr(patched, "spec", None) == getattr(current, "spec", None) and hasattr(current, "spec"):
            patched = replace(patched, spec=current.spec)
        return str(
            self._api.put(replace(patched, metadata=_merge_metadata(patched, current))).metadata.resource_version
        )

    def _delete(self, action: Delete) -> None:
        """Delete an object. Raises RefusedError if it does not exist or has another UID than the action requires."""
        current = self._api.get(action.kind, action.namespace, action.name)
        if action.uid and action.uid != current.metadata.uid:
            text = f"Precondition failed: UID in precondition: {action.uid}, UID in object meta: {current.metadata.uid}"
            raise RefusedError(text, 409, "Conflict")
        if isinstance(current, Pod):
            delete_pod(self._api, current, action.grace_period_seconds)
        else:
            self._api.remove(current)

    def _write_status(self, changed: Any) -> str:
        """Replace the status of an object, unless it is equal, and return the resource version.

        Raises RefusedError if there is no such object or its version differs.
        """
        api, metadata, status = self._api, changed.metadata, changed.status
        current = api.get(changed.kind, metadata.namespace, metadata.name)
        version: str = current.metadata.resource_version
        if metadata.resource_version != version:
            api.check_version(current, metadata.resource_version)
        if current.status == status:
            return version  # a real API server writes nothing either
        return api.put_status(current, status)

    def _find_scaled_object(self, namespace: str, resource: str, name: str) -> Any:
        """Return the object of a built-in group-resource.

        Raises RefusedError if the resource or the object does not exist.
        """
        kind = _KIND_OF.get(resource)
        if kind is None:
            raise RefusedError(f'the server doesn\'t have a resource type "{resource}"', 404, "NotFound")
        return self._api.get(kind, namespace, name)

    def _scale(self, action: GetScale | PutScale) -> Any:
        """Read or write the scale of an object, and return the (new) scale. Raises RefusedError or ScaleError."""
        namespace, resource = action.namespace, action.resource
        if isinstance(action, GetScale):
            if self._custom.has_scale(resource):
                return self._custom.get(namespace, resource, action.name)
            return scale_of(to_dict(self._find_scaled_object(namespace, resource, action.name)))
        if self._custom.has_scale(resource):
            return self._custom.put(namespace, resource, action.scale, action.replicas)
        stored = self._find_scaled_object(namespace, resource, action.scale.metadata.name)
        self._api.check_version(stored, action.scale.metadata.resource_version)
        if action.replicas < 0:
            raise ScaleError(f"spec.replicas: Invalid value: {action.replicas}: must be greater than or equal to 0")
        return scale_of(to_dict(self._api.put(replace(stored, spec=replace(stored.spec, replicas=action.replicas)))))

    # -- the cloud ---------------------------------------------------------------------------------------------------

    def _ask_cloud(self, action: Action) -> Any:
        """Perform an action of the cloud provider and return its result.

        Raises ProviderError, or TypeError for an action that does not concern a cloud.
        """
        if isinstance(action, HasInstances):
            return dict(self._cloud.have_instances(action.nodes))
        nodes: Sequence[Node] = ()
        if isinstance(action, DeleteNodes):
            nodes = nodes_named(action, self._view.get_all("Node"))
        return ask_cloud(self._cloud, action, nodes)


def _status_in_place(action: Patch, current: Any) -> Any:
    """Return the new status of a JSON patch that only replaces the status, or None for any other patch.

    The result is the same as from patching the whole object, but faster.
    """
    if action.type != "json" or not isinstance(action.patch, tuple) or len(action.patch) != 1:
        return None
    only = action.patch[0]
    writes = action.subresource == "status" or (not action.subresource and action.kind in _STATUS_IN_WHOLE)
    if not writes or only.path != "/status" or only.op not in ("add", "replace"):
        return None
    status_type = type(current.status)
    if not isinstance(only.value, (dict, status_type)) or (only.op == "replace" and current.status == status_type()):
        return None
    if isinstance(only.value, _WITHOUT_QUANTITIES):
        return only.value  # the writer never changes it again
    # A computed quantity has another format than a quantity read from its text.
    if isinstance(only.value, VerticalPodAutoscalerStatus):
        return replace(only.value, recommendation=_read_recommendation_again(only.value.recommendation))
    return from_dict(only.value if isinstance(only.value, dict) else to_dict(only.value), status_type)


def _read_recommendation_again(recommendation: RecommendedPodResources | None) -> RecommendedPodResources | None:
    """Return a recommendation with its quantities as they are read from their texts."""
    if recommendation is None:
        return None
    containers = [
        RecommendedContainerResources(
            item.container_name,
            *(
                None if amounts is None else {name: Quantity(str(amount)) for name, amount in amounts.items()}
                for amounts in (item.target, item.lower_bound, item.upper_bound, item.uncapped_target)
            ),
        )
        for item in recommendation.container_recommendations
    ]
    return RecommendedPodResources(containers)


def _merge_metadata(patched: KubeObject, existing: KubeObject) -> Any:
    """Return the metadata after a patch. A patch cannot change name, namespace, UID, generation and creation time."""
    metadata = existing.metadata
    return replace(
        patched.metadata,
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        generation=metadata.generation,
        creation_timestamp=metadata.creation_timestamp,
    )
