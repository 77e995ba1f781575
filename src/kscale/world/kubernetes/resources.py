"""Kinds and resources that an API server serves (upstream: ``client-go/restmapper``, ``discovery``).

Resources that every server has are in a table; others are discovered on demand.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

from kscale.effects import ApiError
from kscale.errors import InputError
from kscale.objects.api.meta import ApiStruct
from kscale.objects.kinds import (
    BUILT_IN,
    RESTMapper,
    RESTMappingError,
    ServedResource,
    discovered_at_once,
    list_discovered_resources,
    parse_group_version,
    split_group_resource,
)
from kscale.world.kubernetes.client import Client, RequestFailedError
from kscale.world.kubernetes.transport import Call
from kscale.world.server_data import read_data

__all__ = ["EVERYWHERE", "Resources"]


def _built_in(group: str, version: str, *names: str, namespaced: bool = True) -> list[ServedResource]:
    """Return resources of one group version. ``names``: texts of the form ``Kind=plural``."""
    pairs = (name.split("=") for name in names)
    return [ServedResource(group, version, kind, plural, namespaced) for kind, plural in pairs]


EVERYWHERE: Final = (
    *BUILT_IN,
    *_built_in("", "v1", "PersistentVolume=persistentvolumes", namespaced=False),
    *_built_in(
        "", "v1", "ConfigMap=configmaps", "Secret=secrets", "Event=events", "LimitRange=limitranges",
        "PersistentVolumeClaim=persistentvolumeclaims", "ResourceQuota=resourcequotas",
        "ServiceAccount=serviceaccounts"
    ),
    *_built_in("policy", "v1", "PodDisruptionBudget=poddisruptionbudgets"),
    *_built_in("coordination.k8s.io", "v1", "Lease=leases"),
    *_built_in("autoscaling", "v2", "HorizontalPodAutoscaler=horizontalpodautoscalers"),
    *_built_in(
        "autoscaling.k8s.io", "v1", "VerticalPodAutoscaler=verticalpodautoscalers",
        "VerticalPodAutoscalerCheckpoint=verticalpodautoscalercheckpoints"
    ),
    *_built_in(
        "storage.k8s.io", "v1", "StorageClass=storageclasses", "CSINode=csinodes", "CSIDriver=csidrivers",
        "VolumeAttachment=volumeattachments", namespaced=False
    ),
    *_built_in("storage.k8s.io", "v1", "CSIStorageCapacity=csistoragecapacities"),
    *_built_in("resource.k8s.io", "v1", "ResourceClaim=resourceclaims", "ResourceClaimTemplate=resourceclaimtemplates"),
    *_built_in("resource.k8s.io", "v1", "ResourceSlice=resourceslices", "DeviceClass=deviceclasses", namespaced=False),
    *_built_in("scheduling.k8s.io", "v1", "PriorityClass=priorityclasses", namespaced=False),
    *_built_in("node.k8s.io", "v1", "RuntimeClass=runtimeclasses", namespaced=False),
    *_built_in("apiextensions.k8s.io", "v1", "CustomResourceDefinition=customresourcedefinitions", namespaced=False),
    *_built_in(
        "admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration=mutatingwebhookconfigurations",
        "ValidatingWebhookConfiguration=validatingwebhookconfigurations", namespaced=False
    ),
)  # fmt: skip
"""Resources that need no discovery, each in the version that kscale uses."""

_ALL_AT_ONCE: Final = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"  # from 1.30 on
)


class Resources:
    """Resources that a server serves; each group version is discovered once.

    A missing resource is an error with reason ``NotFound``, since it may be installed later.
    """

    __slots__ = ("_asked", "_by_kind", "_by_name", "_client")

    def __init__(self, client: Client) -> None:
        self._client = client
        self._by_kind: dict[tuple[str, str], ServedResource] = {}
        self._by_name: dict[str, ServedResource] = {}
        self._asked: set[str] = set()
        for resource in EVERYWHERE:
            self._add(resource)
            self._by_kind.setdefault(("", resource.kind), resource)

    async def find_kind(self, kind: str, api_version: str = "") -> ServedResource:
        """Return where a kind is served. An empty ``api_version`` selects a kind that every server has.

        Raises :class:`~kscale.world.kubernetes.client.RequestFailedError` if the kind is not served or discovery fails.
        """
        resource = self._by_kind.get((api_version, kind))
        if resource is None and api_version:
            await self._discover(api_version)
            resource = self._by_kind.get((api_version, kind))
        if resource is None:
            raise _missing(f'no matches for kind "{kind}" in version "{api_version}"')
        return resource

    async def find_name(self, group_resource: str) -> ServedResource:
        """Return where a group-resource (``deployments.apps``) is served, in the server's preferred version.

        Raises :class:`~kscale.world.kubernetes.client.RequestFailedError` if it is not served or discovery fails.
        """
        resource = self._by_name.get(group_resource)
        if resource is None:
            group, _ = split_group_resource(group_resource)
            await self._discover(await self._find_preferred_version(group))
            resource = self._by_name.get(group_resource)
        if resource is None:
            raise _missing(f'the server doesn\'t have a resource type "{group_resource}"')
        return resource

    async def serves(self, api_version: str) -> bool:
        """Return whether the server serves a group version. Raises RequestFailedError if the request fails."""
        return api_version in self._asked or await self._list(api_version) is not None

    async def mapper(self) -> RESTMapper:
        """Discover all resources now, use them for later lookups, and return them as a RESTMapper.

        From servers without aggregated discovery, group versions that cannot be read are left out. Raises
        RequestFailedError if discovery fails.
        """
        calls = [Call(method="GET", path=path, accept=_ALL_AT_ONCE) for path in ("/api", "/apis")]
        documents = [self._client.decode(await self._client.call(call), dict[str, Any], call) for call in calls]
        if all(document.get("kind") == "APIGroupDiscoveryList" for document in documents):
            with _failed_if_odd():
                served = discovered_at_once(documents)
        else:
            with _failed_if_odd():
                versions = dict.fromkeys(["v1", *_versions(read_data(documents[1], _GroupList))])
            lists = [listed for version in versions if (listed := await self._list_if_it_works(version)) is not None]
            with _failed_if_odd():
                served = list_discovered_resources(documents[1], lists)
        self._by_kind, self._by_name = {}, {}
        self._asked.clear()
        for resource in (*EVERYWHERE, *served):
            self._add(resource)
        for resource in EVERYWHERE:
            self._by_kind.setdefault(("", resource.kind), resource)
        return RESTMapper(served)

    async def _list_if_it_works(self, api_version: str) -> dict[str, Any] | None:
        """Return the APIResourceList of a group version; None if it is not served or the request fails."""
        try:
            return await self._list(api_version)
        except RequestFailedError:
            return None

    def _add(self, resource: ServedResource) -> None:
        """Register a resource.

        The last one of a group version and kind is used, but the first one of a group-resource.
        """
        self._by_kind[resource.api_version, resource.kind] = resource
        self._by_name.setdefault(resource.group_resource, resource)

    async def _find_preferred_version(self, group: str) -> str:
        """Return the group version (``apps/v1``) that the server prefers for a group.

        Raises RequestFailedError if the server does not have the group or the request fails.
        """
        if not group:
            return "v1"
        call = Call(method="GET", path="/apis")
        versions = _versions(self._client.decode(await self._client.call(call), _GroupList, call))
        with _failed_if_odd():
            for version in versions:
                if parse_group_version(version)[0] == group:
                    return version
        raise _missing(f'the server has no group "{group}"')

    async def _discover(self, api_version: str) -> None:
        """Register the resources of a group version, once. Raises RequestFailedError.

        A group version that is not served is requested again next time.
        """
        if api_version in self._asked:
            return
        listed = await self._list(api_version)
        if listed is None:
            return
        with _failed_if_odd():
            served = list_discovered_resources(None, [listed])
        self._asked.add(api_version)
        for resource in served:
            self._add(resource)

    async def _list(self, api_version: str) -> dict[str, Any] | None:
        """Return the APIResourceList of a group version as plain data, or None if it is not served (404).

        Raises RequestFailedError if the request fails for another reason.
        """
        prefix = "apis" if "/" in api_version else "api"
        call = Call(method="GET", path=f"/{prefix}/{quote(api_version)}")
        try:
            return self._client.decode(await self._client.call(call), dict[str, Any], call)
        except RequestFailedError as error:
            if error.error.is_not_found:
                return None
            raise


class _GroupVersion(ApiStruct):
    group_version: str = ""


class _Group(ApiStruct):
    preferred_version: _GroupVersion | None = None
    versions: list[_GroupVersion] | None = None


class _GroupList(ApiStruct):
    groups: list[_Group] | None = None


@contextmanager
def _failed_if_odd() -> Iterator[None]:
    """Convert errors of malformed discovery data to RequestFailedError within the context."""
    try:
        yield
    except (InputError, RESTMappingError) as error:
        text = f"the server's list of APIs cannot be read: {error}"
        raise RequestFailedError(ApiError(text, reason="InternalError")) from None


def _versions(groups: _GroupList) -> list[str]:
    """Return the group versions of all groups, each group's preferred version first, and again in its own place."""
    names = []
    for group in groups.groups or ():
        first = [group.preferred_version] if group.preferred_version is not None else []
        names += [version.group_version for version in (*first, *(group.versions or ()))]
    return names


def _missing(text: str) -> RequestFailedError:
    """Build the error of a kind or resource that is not served (NotFound)."""
    return RequestFailedError(ApiError(text, code=404, reason="NotFound"))
