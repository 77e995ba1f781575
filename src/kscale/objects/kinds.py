"""Kinds and their structs, checks of an object's kind, the resources that serve kinds, and their URL paths (upstream:
``k8s.io/client-go/restmapper``, ``discovery``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, Final, TypeVar

import msgspec

from kscale.errors import InputError, Problem
from kscale.objects.api.meta import ApiStruct, KubeObject, object_key
from kscale.objects.decode import from_dict

__all__ = [
    "AUTOSCALING_V1",
    "BUILT_IN",
    "BUILT_IN_MAPPER",
    "DEFAULT_NAMESPACE",
    "KINDS",
    "NAMESPACED",
    "AnyKindRESTMapper",
    "RESTMapper",
    "RESTMappingError",
    "ServedResource",
    "check_kind",
    "custom_kind_key",
    "discovered_at_once",
    "find_kind",
    "find_misspelled_kind",
    "group_of",
    "is_custom_group",
    "item_kind",
    "kind_of",
    "list_discovered_resources",
    "parse_group_version",
    "plural_of",
    "split_group_resource",
    "with_namespace",
]

_CORE: Final = "kscale.objects.api.core"
_APPS: Final = "kscale.objects.api.apps"
_STORAGE: Final = "kscale.objects.api.storage"
_AUTOSCALING: Final = "kscale.objects.api.autoscaling"
_CUSTOM: Final = "kscale.objects.custom_workloads"
_RESOURCE: Final = "kscale.objects.api.resource"

KINDS: Final[dict[tuple[str, str], str]] = {
    ("", "Pod"): f"{_CORE}:Pod",
    ("", "PodTemplate"): f"{_CORE}:PodTemplate",
    ("", "Node"): f"{_CORE}:Node",
    **{("", kind): f"{_CORE}:{kind}" for kind in (
        "Namespace", "Service", "ReplicationController", "LimitRange", "ConfigMap",
    )},
    ("", "Event"): f"{_CORE}:Event",
    ("events.k8s.io", "Event"): f"{_CORE}:Event",
    ("", "PersistentVolume"): f"{_STORAGE}:PersistentVolume",
    ("", "PersistentVolumeClaim"): f"{_STORAGE}:PersistentVolumeClaim",
    **{("apps", kind): f"{_APPS}:{kind}" for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")},
    **{("extensions", kind): f"{_APPS}:{kind}" for kind in ("Deployment", "ReplicaSet", "DaemonSet")},
    ("batch", "Job"): "kscale.objects.api.apps:Job",
    ("batch", "CronJob"): "kscale.objects.api.apps:CronJob",
    ("", "ResourceQuota"): "kscale.objects.api.policy:ResourceQuota",
    ("policy", "PodDisruptionBudget"): "kscale.objects.api.policy:PodDisruptionBudget",
    ("coordination.k8s.io", "Lease"): "kscale.objects.api.coordination:Lease",
    **{("storage.k8s.io", kind): f"{_STORAGE}:{kind}" for kind in (
        "StorageClass", "CSINode", "CSIDriver", "CSIStorageCapacity", "VolumeAttachment",
    )},
    **{("resource.k8s.io", kind): f"{_RESOURCE}:{kind}" for kind in (
        "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass",
    )},
    ("autoscaling", "HorizontalPodAutoscaler"): f"{_AUTOSCALING}:HorizontalPodAutoscaler",
    ("autoscaling/v1", "HorizontalPodAutoscaler"): f"{_AUTOSCALING}:HorizontalPodAutoscalerV1",
    ("autoscaling/v2beta1", "HorizontalPodAutoscaler"): "",
    ("autoscaling", "Scale"): f"{_AUTOSCALING}:Scale",
    ("metrics.k8s.io", "PodMetrics"): "kscale.objects.api.metrics:PodMetrics",
    ("metrics.k8s.io", "NodeMetrics"): "kscale.objects.api.metrics:NodeMetrics",
    **{("autoscaling.k8s.io", kind): f"kscale.objects.api.vpa:{kind}" for kind in (
        "VerticalPodAutoscaler", "VerticalPodAutoscalerCheckpoint",
    )},
    ("apiextensions.k8s.io", "CustomResourceDefinition"): "kscale.objects.scale:CustomResourceDefinition",
    ("keda.sh", "ScaledObject"): "kscale.objects.custom_workloads:ScaledObject",
    ("argoproj.io", "Rollout"): f"{_CUSTOM}:Rollout",
    **{("apps.kruise.io", kind): f"{_CUSTOM}:{kind}" for kind in ("CloneSet", "UnitedDeployment")},
    ("apps.openshift.io", "DeploymentConfig"): f"{_CUSTOM}:DeploymentConfig",
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): f"{_CUSTOM}:LeaderWorkerSet",
    ("scheduling.k8s.io", "PriorityClass"): "kscale.objects.api.policy:PriorityClass",
    ("node.k8s.io", "RuntimeClass"): "kscale.objects.api.policy:RuntimeClass",
    ("autoscaling.x-k8s.io", "CapacityQuota"): "kscale.objects.api.cluster_autoscaler:CapacityQuota",
    ("autoscaling.x-k8s.io", "CapacityBuffer"): "kscale.objects.api.cluster_autoscaler:CapacityBuffer",
    ("autoscaling.x-k8s.io", "ProvisioningRequest"): "kscale.objects.api.cluster_autoscaler:ProvisioningRequest",
    **{("cluster.x-k8s.io", kind): f"kscale.objects.machine_groups:{kind}" for kind in (
        "Machine", "MachineDeployment", "MachineSet", "MachinePool",
    )},
}  # fmt: skip
"""(API group, kind) or (API group/version, kind) -> ``module:Class``; the entry with the version goes first.

An empty target is a version that is not read although others of its kind are.
"""


def group_of(api_version: str) -> str:
    """Return the API group of an ``apiVersion``: ``apps`` for ``apps/v1``, empty for the core group."""
    return api_version.rpartition("/")[0]


def custom_kind_key(group: str, kind: str) -> str:
    """Return the name under which a cluster stores objects of a custom kind for which kscale has no struct."""
    return f"{kind}.{group}"


def is_custom_group(group: str) -> bool:
    """Return whether an API group does not belong to Kubernetes itself."""
    return "." in group and (not group.endswith(".k8s.io") or group.endswith(".x-k8s.io"))


@lru_cache(1024)  # the keys come from input files
def find_kind(api_version: str, kind: str) -> type[KubeObject] | None:
    """Return the struct of a kind, or None if kscale does not read the kind."""
    target = KINDS.get((api_version, kind), KINDS.get((group_of(api_version), kind)))
    if not target:
        return None
    module, _, name = target.partition(":")
    struct: type[KubeObject] = getattr(import_module(module), name)
    return struct


def find_misspelled_kind(kind: str) -> str:
    """Return the kind that kscale reads and whose name equals ``kind`` apart from case; empty if there is none."""
    return next((name for _, name in KINDS if name.lower() == kind.lower()), "")


@cache
def _index_kinds_by_struct() -> dict[str, tuple[str, str]]:
    """Return (API group, kind) by struct (``module:Class``). A struct of several kinds has the first one in ``KINDS``.

    For a struct of one version only, the group includes the version (``autoscaling/v1``).
    """
    return {target: key for key, target in reversed(KINDS.items())}


@cache
def kind_of(type_: type) -> tuple[str, str] | None:
    """Return the (API group, kind) that a struct represents; None if the type represents no kind.

    Used for objects without ``kind``. For a struct of one version only, the group includes the version
    (``autoscaling/v1``).
    """
    return _index_kinds_by_struct().get(f"{type_.__module__}:{type_.__name__}")


def item_kind(list_kind: str) -> str:
    """Return the kind of a list's items: ``Pod`` for ``PodList``; empty for ``List`` and for other kinds."""
    return list_kind.removesuffix("List") if list_kind.endswith("List") else ""


DEFAULT_NAMESPACE: Final = "default"

NAMESPACED: Final = frozenset(
    {
        "CapacityBuffer", "CloneSet", "ConfigMap", "CronJob", "CSIStorageCapacity", "DaemonSet", "Deployment",
        "DeploymentConfig", "Event", "HorizontalPodAutoscaler", "Job", "LeaderWorkerSet", "Lease", "LimitRange",
        "MachineDeployment", "MachinePool",
        "MachineSet", "PersistentVolumeClaim", "Pod", "PodDisruptionBudget", "PodMetrics", "PodTemplate",
        "ProvisioningRequest", "ReplicaSet", "ReplicationController", "ResourceClaim", "ResourceClaimTemplate",
        "ResourceQuota", "Rollout", "ScaledObject", "Service", "StatefulSet", "UnitedDeployment",
        "VerticalPodAutoscaler", "VerticalPodAutoscalerCheckpoint",
    }
)  # fmt: skip
"""Kinds whose objects are in a namespace, of those that are modelled."""

K = TypeVar("K", bound=KubeObject)


def with_namespace(item: K, namespace: str = DEFAULT_NAMESPACE) -> K:
    """Return the object, or a copy with ``namespace`` if its kind is namespaced and it has no namespace."""
    if item.metadata.namespace:
        return item
    kind = item.kind or (kind_of(type(item)) or ("", ""))[1]
    if kind not in NAMESPACED:
        return item
    return msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, namespace=namespace))


_TEMPLATES = frozenset({"template", "jobTemplate"})  # what workloads have in their spec, and pods do not


def check_kind(value: KubeObject | Mapping[str, Any], type_: type[KubeObject], field: str = "") -> None:
    """Check the kind of an object that a caller passes as a ``type_``.

    Parameters
    ----------
    value : KubeObject or mapping
        A struct, or API data. Data without ``kind`` passes.
    type_ : type of KubeObject
        The struct that the caller is about to read, for example ``Pod``.
    field : str
        The object's field, for the error.

    Raises
    ------
    InputError
        If the object is of another kind. The message names the kind and says what to pass instead.
    """
    _, expected = kind_of(type_) or ("", type_.__name__)
    kind: Any
    version: Any
    if isinstance(value, KubeObject):
        _, own = kind_of(type(value)) or ("", type(value).__name__)
        kind, version = value.kind or own, value.api_version
    else:
        kind, version = value.get("kind") or expected, value.get("apiVersion") or ""
        spec = value.get("spec")
        if (
            not value.get("kind")
            and expected == "Pod"
            and isinstance(spec, Mapping)
            and not _TEMPLATES.isdisjoint(spec)
        ):
            key = _get_key(value.get("metadata"))
            text = f"an object without kind, {key} with a pod template, is not a Pod{_advise('Deployment', expected)}"
            raise InputError(Problem(text, field=field))
    if not (isinstance(kind, str) and isinstance(version, str)):
        return  # decoding reports it
    if kind == expected and (not version or find_kind(version, kind) is type_):
        return
    key = value.key if isinstance(value, KubeObject) else _get_key(value.get("metadata"))
    label = kind if kind != expected else f"{version} {kind}"
    message = f"{label} {key}".rstrip() + f" is not a {expected}{_advise(kind, expected)}"
    raise InputError(Problem(message, field=field))


def _get_key(metadata: Any) -> str:
    """Return ``namespace/name`` from plain metadata (``name`` without a namespace); empty if it is no mapping."""
    if not isinstance(metadata, Mapping):
        return ""
    namespace, name = metadata.get("namespace"), metadata.get("name")
    return object_key(str(namespace or ""), str(name or ""))


def _advise(kind: str, expected: str) -> str:
    """Return the part of the message that says what to pass instead of an object of another kind.

    Empty if there is no such advice.
    """
    if item_kind(kind) or kind == "List":
        return ": pass the objects of the list one by one"
    if expected != "Pod" or kind == expected:
        return ""
    from kscale.objects.workloads import WORKLOADS

    if kind not in WORKLOADS:
        return ": pass pods, or the names of pods in the snapshot"
    return (
        ": a workload needs a Cluster instead of a snapshot, or pass the pods that it would create, as "
        "kscale.objects.workloads.pods_of(workload) returns them"
    )


AUTOSCALING_V1: Final = "autoscaling/v1"


class RESTMappingError(ValueError):
    """A kind that is not served, or a malformed version, with upstream's text."""


class ServedResource(msgspec.Struct, frozen=True):
    """A resource of an API group in one version.

    ``scale`` is the ``apiVersion`` of its ``/scale`` endpoint; empty if there is none.
    """

    group: str
    version: str
    kind: str
    name: str
    namespaced: bool = True
    scale: str = ""

    @property
    def group_resource(self) -> str:
        """Return the resource's name and group, such as ``deployments.apps``; the name alone for the core group."""
        return f"{self.name}.{self.group}" if self.group else self.name

    @property
    def api_version(self) -> str:
        """Return group and version, such as ``apps/v1``; the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path, such as ``/apis/apps/v1/namespaces/shop/deployments/web/scale``.

        Empty arguments are left out. Without ``name`` it is the path of the list of objects. Without ``namespace`` this
        list has the objects of all namespaces.
        """
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        within = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return "/".join([part for part in (f"{root}{within}", self.name, name, subresource) if part])


def _declare(group: str, kind: str, name: str, *, scales: bool = False, namespaced: bool = True) -> ServedResource:
    """Build the resource of a built-in kind in version v1. ``name``: plural of the kind, as in URLs.

    ``scales``: whether the kind has a scale (autoscaling/v1). ``namespaced``: whether its objects have namespaces.
    """
    return ServedResource(group, "v1", kind, name, namespaced, AUTOSCALING_V1 if scales else "")


BUILT_IN: Final[tuple[ServedResource, ...]] = (
    _declare("", "Pod", "pods"),
    _declare("", "Node", "nodes", namespaced=False),
    _declare("", "Namespace", "namespaces", namespaced=False),
    _declare("", "Service", "services"),
    _declare("", "ReplicationController", "replicationcontrollers", scales=True),
    _declare("apps", "Deployment", "deployments", scales=True),
    _declare("apps", "ReplicaSet", "replicasets", scales=True),
    _declare("apps", "StatefulSet", "statefulsets", scales=True),
    _declare("apps", "DaemonSet", "daemonsets"),
    _declare("batch", "Job", "jobs"),
    _declare("batch", "CronJob", "cronjobs"),
)
"""Resources of the kinds that a target may name on every server."""


@lru_cache(1024)  # the versions come from input files
def parse_group_version(api_version: str) -> tuple[str, str]:
    """Split an ``apiVersion`` into (group, version). Both are empty if the text is empty or only a slash.

    The group is empty without a slash. Raises :class:`RESTMappingError` if there is more than one slash.
    """
    if not api_version or api_version == "/":
        return "", ""
    parts = api_version.split("/")
    if len(parts) > 2:
        raise RESTMappingError(f"unexpected GroupVersion string: {api_version}")
    return (parts[0], parts[1]) if len(parts) == 2 else ("", parts[0])


def split_group_resource(group_resource: str) -> tuple[str, str]:
    """Split a group-resource such as ``deployments.apps`` into (group, resource). The group may be empty."""
    resource, _, group = group_resource.partition(".")
    return group, resource


class RESTMapper:
    """Mapper of kinds to the resources that serve them, and of each resource to its preferred version.

    The first version of a resource in ``resources`` is the preferred one. Kinds in lower case are accepted too, as in
    discovery.
    """

    __slots__ = ("_by_kind", "_preferred")

    def __init__(self, resources: Iterable[ServedResource] = BUILT_IN) -> None:
        self._by_kind: dict[tuple[str, str], tuple[str, ...]] = {}
        self._preferred: dict[str, ServedResource] = {}
        lower: dict[tuple[str, str], tuple[str, ...]] = {}
        for each in resources:
            name = each.group_resource
            self._preferred.setdefault(name, each)
            for table, kind in ((self._by_kind, each.kind), (lower, each.kind.lower())):
                existing = table.get((each.group, kind), ())
                table[each.group, kind] = existing if name in existing else (*existing, name)
        self._by_kind = {**lower, **self._by_kind}

    def resources(self, group: str, kind: str) -> tuple[str, ...]:
        """Return the group-resources (``deployments.apps``) of a kind.

        Raises :class:`RESTMappingError` if the group does not have the kind.
        """
        try:
            return self._by_kind[group, kind]
        except KeyError:
            raise RESTMappingError(f'no matches for kind "{kind}" in group "{group}"') from None

    def find_preferred(self, group_resource: str) -> ServedResource:
        """Return a group-resource in its preferred version.

        Raises :class:`RESTMappingError` if the group-resource is unknown.
        """
        resource_found = self._preferred.get(group_resource)
        if resource_found is None:
            group, resource = split_group_resource(group_resource)
            text = f"no matches for {group}/, Resource={resource}"
            message = f"unable to get full preferred group-version-resource for {group_resource}: {text}"
            raise RESTMappingError(f"unable to get client for {group_resource}: {message}")
        return resource_found


class AnyKindRESTMapper(RESTMapper):
    """A mapper that treats every kind as served, by default under its usual plural.

    Use it if the served kinds are not known. Then only the presence of an object counts.
    """

    __slots__ = ()

    def resources(self, group: str, kind: str) -> tuple[str, ...]:
        """Return the group-resources of a kind; an unknown kind has its usual plural."""
        try:
            return super().resources(group, kind)
        except RESTMappingError:
            plural = plural_of(kind)
            return (f"{plural}.{group}" if group else plural,)


def plural_of(kind: str) -> str:
    """Return the usual name of a kind's resource: ``gateways``, ``policies``, ``ingresses``."""
    name = kind.lower()
    if name.endswith("y") and not name.endswith(("ay", "ey", "oy", "uy")):
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith(("s", "x", "ch", "sh")) else f"{name}s"


BUILT_IN_MAPPER: Final = RESTMapper()
"""Mapper of :data:`BUILT_IN`, whose resources need no discovery."""


class _APIResource(ApiStruct):
    name: str = ""
    kind: str = ""
    namespaced: bool = False
    group: str = ""
    version: str = ""


class _APIResourceList(ApiStruct):
    group_version: str = ""
    resources: list[_APIResource] | None = None


class _GroupVersion(ApiStruct):
    version: str = ""


class _APIGroup(ApiStruct):
    name: str = ""
    versions: list[_GroupVersion] | None = None
    preferred_version: _GroupVersion | None = None


class _APIGroupList(ApiStruct):
    groups: list[_APIGroup] | None = None


def list_discovered_resources(
    groups: Mapping[str, Any] | None, lists: Iterable[Mapping[str, Any]]
) -> list[ServedResource]:
    """Return the resources that an API server's discovery lists, preferred versions first.

    Subresources are left out. The version of a scale subresource becomes the ``scale`` of its resource.

    Parameters
    ----------
    groups : mapping or None
        The APIGroupList (``/apis``) as plain data. None: versions are preferred in the order of ``lists``.
    lists : iterable of mapping
        The APIResourceList of each version (``/api/v1``, ``/apis/apps/v1``) as plain data.

    Raises
    ------
    InputError
        If the data have the wrong shape.
    RESTMappingError
        If a version is malformed.
    """
    order: dict[tuple[str, str], int] = {}
    for group in (from_dict(groups or {}, _APIGroupList)).groups or ():
        first = [group.preferred_version] if group.preferred_version is not None else []
        for version in (*first, *(group.versions or ())):
            order.setdefault((group.name, version.version), len(order))
    ranked: list[tuple[int, ServedResource]] = []
    for data in lists:
        listed = from_dict(data, _APIResourceList)
        group_name, version_name = parse_group_version(listed.group_version)
        resources = listed.resources or ()
        scales = {
            each.name.removesuffix("/scale"): f"{each.group}/{each.version}" if each.group else listed.group_version
            for each in resources
            if each.name.endswith("/scale")
        }
        rank = order.get((group_name, version_name), len(order))
        ranked += [
            (
                rank,
                ServedResource(
                    group_name, version_name, each.kind, each.name, each.namespaced, scales.get(each.name, "")
                ),
            )
            for each in resources
            if "/" not in each.name
        ]
    return [each for _, each in sorted(ranked, key=lambda pair: pair[0])]


class _Kind(ApiStruct):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Subresource(ApiStruct):
    subresource: str = ""
    response_kind: _Kind | None = None


class _Resource(ApiStruct):
    resource: str = ""
    response_kind: _Kind | None = None
    scope: str = ""
    subresources: list[_Subresource] | None = None


class _Version(ApiStruct):
    version: str = ""
    resources: list[_Resource] | None = None


class _Name(ApiStruct):
    name: str = ""


class _Group(ApiStruct):
    metadata: _Name | None = None
    versions: list[_Version] | None = None


class _GroupDiscoveryList(ApiStruct):
    items: list[_Group] | None = None


def discovered_at_once(documents: Iterable[Mapping[str, Any]]) -> list[ServedResource]:
    """Return the resources in aggregated discovery (APIGroupDiscoveryLists of ``/api`` and ``/apis``).

    The documents list versions in the order of preference. Raises :class:`~kscale.errors.InputError` if a document has
    another structure.
    """
    resources: list[ServedResource] = []
    for document in documents:
        for group in from_dict(document, _GroupDiscoveryList).items or ():
            name = "" if group.metadata is None else group.metadata.name
            for version in group.versions or ():
                resources += [_build_served_resource(name, version.version, each) for each in version.resources or ()]
    return resources


def _build_served_resource(group: str, version: str, resource: _Resource) -> ServedResource:
    """Build a resource from aggregated discovery. Its ``scale`` is empty without a scale subresource."""
    kind = resource.response_kind or _Kind()
    scale = next((each.response_kind for each in resource.subresources or () if each.subresource == "scale"), None)
    scale_api_version = "" if scale is None else f"{scale.group}/{scale.version}" if scale.group else scale.version
    return ServedResource(
        group, version, kind.kind, resource.resource, resource.scope == "Namespaced", scale_api_version
    )
