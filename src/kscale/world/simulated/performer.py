"""Perform actions in a simulated cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from kscale.effects import (
    ANSWERS,
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
    GetWhole,
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
from kscale.objects.api.vpa import VerticalPodAutoscalerCheckpointStatus
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.nodegroup import ProviderError
from kscale.objects.rest_mapping import BUILT_IN
from kscale.objects.scale import ScaleError, scale_of
from kscale.objects.selectors import parse_selector
from kscale.world.protocols import Ranker, ask_cloud, nodes_named
from kscale.world.simulated.api_server import ApiObjects, PatchError, RefusedError, json_patch, merge, strategic
from kscale.world.simulated.cloud import SimulatedCloud
from kscale.world.simulated.custom_resources import CustomScales
from kscale.world.simulated.disruption import Disruption
from kscale.world.simulated.kubelet import Resizing
from kscale.world.simulated.metrics import SimulatedMetrics
from kscale.world.simulated.pods import delete_pod
from kscale.world.simulated.stores import ClusterView

__all__ = ["Fault", "SimulatedPerformer"]

_KIND_OF: Final = {each.group_resource: each.kind for each in BUILT_IN}
_STATUS_IN_WHOLE: Final = frozenset({"Pod", "VerticalPodAutoscalerCheckpoint"})
"""Kinds whose status is written with the rest: pods (only this world writes theirs), and what has no sub-resource."""
_SAID: Final = frozenset({Emit, Observe})
_WITHOUT_QUANTITIES: Final = VerticalPodAutoscalerCheckpointStatus
"""Statuses that are read as they were written."""


Fault = Callable[[Action, Moment], ApiError | int | None]
"""An error refuses an action; a number of nanoseconds is added to the time that its answer takes."""


class SimulatedPerformer:
    """Carries actions out (:data:`kscale.effects.Perform`), at once.

    ``fault`` may refuse an action before it is done, or delay its answer. Reports go nowhere: whoever keeps them stands
    between this and a driver.
    """

    def __init__(
        self,
        api: ApiObjects,
        view: ClusterView,
        cloud: SimulatedCloud,
        disruption: Disruption,
        resizing: Resizing,
        metrics: SimulatedMetrics,
        custom: CustomScales,
        *,
        ranker: Ranker | None = None,
    ) -> None:
        self._api, self._view, self._cloud = api, view, cloud
        self._disruption, self._resizing = disruption, resizing
        self._metrics, self._custom, self._ranker = metrics, custom, ranker
        self.fault: Fault | None = None

    def __call__(self, action: Action, now: Moment) -> Outcome:
        """Carries an action out. What is refused is an outcome with an error."""
        if type(action) in _SAID:
            return Outcome(at=now)  # for whoever is between this and the driver
        fault = self.fault(action, now) if self.fault is not None and ANSWERS[type(action)].refusable else None
        if isinstance(fault, ApiError):
            return Outcome(at=now, error=fault)
        at = now + (fault or 0)
        try:
            value = self._do(action)
        except RefusedError as refusal:
            value = refusal.error
        except ProviderError as error:
            value = ApiError(error.message, reason=error.type)
        except (InputError, ScaleError) as error:
            value = ApiError(str(error), reason="InternalError")
        if isinstance(value, ApiError):
            return Outcome(at=at, error=value)
        return Outcome(at=at, value=value)

    def _do(self, action: Action) -> Any:
        match action:
            case Patch():  # what is done most comes first
                return self._patch(action)
            case WriteStatus(object=held):
                return self._write_status(held)
            case Get() | GetWhole() | Preview():
                return self._get(action)
            case List():
                return self._list(action)
            case Discover():
                return self._custom.mapper
            case Create(object=made):
                return self._api.create(made).metadata.resource_version
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

    def _get(self, action: Get | GetWhole | Preview) -> Any:
        match action:
            case Preview(content=content):
                return content
            case GetWhole(kind=kind, namespace=namespace, name=name):
                return to_dict(self._api.get(kind, namespace, name))
            case Get(kind=kind, namespace=namespace, name=name, watched=watched):
                found = self._view.of(kind).get(object_key(namespace, name)) if watched else None
                return found if found is not None else self._api.get(kind, namespace, name)

    def _list(self, action: List) -> list[KubeObject]:
        found: Sequence[KubeObject]
        if action.nodes is not None:
            found = self._view.pods_of(action.nodes)
        elif action.watched:
            found = list(self._view.of(action.kind).values())
        else:
            found = list(self._api.of(action.kind).values())
        selector = parse_selector(action.selector) if action.selector else None
        return [
            each
            for each in found
            if (not action.namespace or each.namespace == action.namespace)
            and (selector is None or selector.matches(each.metadata.labels or {}))
        ]

    def _patch(self, action: Patch) -> str:
        held = self._api.get(action.kind, action.namespace, action.name)
        self._api.check_version(held, action.resource_version)
        status = _status_in_place(action, held)
        if status is not None:
            return self._api.put_status(held, status)
        before = to_dict(held)
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
            after["status"] = before["status"]  # has a sub-resource of its own
        made = from_dict(after, type(held))
        if getattr(made, "spec", None) == getattr(held, "spec", None) and hasattr(held, "spec"):
            made = replace(made, spec=held.spec)
        return str(self._api.put(replace(made, metadata=_kept(made, held))).metadata.resource_version)

    def _delete(self, action: Delete) -> None:
        held = self._api.get(action.kind, action.namespace, action.name)
        if action.uid and action.uid != held.metadata.uid:
            text = f"Precondition failed: UID in precondition: {action.uid}, UID in object meta: {held.metadata.uid}"
            raise RefusedError(text, 409, "Conflict")
        if isinstance(held, Pod):
            delete_pod(self._api, held, action.grace_period_seconds)
        else:
            self._api.remove(held)

    def _write_status(self, given: Any) -> str:
        held = self._api.get(given.kind, given.metadata.namespace, given.metadata.name)
        self._api.check_version(held, given.metadata.resource_version)
        if held.status == given.status:
            return str(held.metadata.resource_version)  # the API server writes nothing either
        return self._api.put_status(held, given.status)

    def _scaled(self, namespace: str, resource: str, name: str) -> Any:
        kind = _KIND_OF.get(resource)
        if kind is None:
            raise RefusedError(f'the server doesn\'t have a resource type "{resource}"', 404, "NotFound")
        return self._api.get(kind, namespace, name)

    def _scale(self, action: GetScale | PutScale) -> Any:
        namespace, resource = action.namespace, action.resource
        if isinstance(action, GetScale):
            if self._custom.knows(resource):
                return self._custom.get(namespace, resource, action.name)
            return scale_of(to_dict(self._scaled(namespace, resource, action.name)))
        if self._custom.knows(resource):
            return self._custom.put(namespace, resource, action.scale, action.replicas)
        stored = self._scaled(namespace, resource, action.scale.metadata.name)
        self._api.check_version(stored, action.scale.metadata.resource_version)
        if action.replicas < 0:
            raise ScaleError(f"spec.replicas: Invalid value: {action.replicas}: must be greater than or equal to 0")
        return scale_of(to_dict(self._api.put(replace(stored, spec=replace(stored.spec, replicas=action.replicas)))))

    # -- the cloud ---------------------------------------------------------------------------------------------------

    def _ask_cloud(self, action: Action) -> Any:
        if isinstance(action, HasInstances):
            return dict(self._cloud.have_instances(action.nodes))
        nodes: Sequence[Node] = ()
        if isinstance(action, DeleteNodes):
            nodes = nodes_named(action, self._view.of("Node"))
        return ask_cloud(self._cloud, action, nodes)


def _status_in_place(action: Patch, held: Any) -> Any:
    """The status of a patch that puts one in the place of another, and does nothing else; None: it is another patch. It
    comes to the same as a patch of the whole object, of which nothing else is looked at."""
    if action.type != "json" or not isinstance(action.patch, tuple) or len(action.patch) != 1:
        return None
    only = action.patch[0]
    writes = action.subresource == "status" or (not action.subresource and action.kind in _STATUS_IN_WHOLE)
    if not writes or only.path != "/status" or only.op not in ("add", "replace"):
        return None
    there = type(held.status)
    if not isinstance(only.value, (dict, there)) or (only.op == "replace" and held.status == there()):
        return None
    if isinstance(only.value, _WITHOUT_QUANTITIES):
        return only.value  # who wrote it never changes it again
    # A quantity that was made remembers another format than the one that its text is read with.
    return from_dict(only.value if isinstance(only.value, dict) else to_dict(only.value), there)


def _kept(made: KubeObject, held: KubeObject) -> Any:
    """Metadata after a patch: who an object is no patch changes."""
    of = held.metadata
    return replace(
        made.metadata,
        name=of.name,
        namespace=of.namespace,
        uid=of.uid,
        generation=of.generation,
        creation_timestamp=of.creation_timestamp,
    )
