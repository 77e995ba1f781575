"""The requests as a loop finds them, and as it leaves them (``provisioningrequest/provreqclient``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from kscale.ca.provisioning_requests.pods import pods_of_request
from kscale.effects import Delete, Progress, StepsOf, WriteStatus
from kscale.objects.core import Pod, PodTemplate
from kscale.objects.provisioning_requests import ProvisioningRequest

__all__ = ["LoopRequests"]


class LoopRequests:
    """The requests in their order, and the pod templates by ``namespace/name``.

    What is written of a request holds for the rest of the loop, also if the API server refuses it: upstream changes
    what its informer keeps.
    """

    def __init__(self, requests: Iterable[ProvisioningRequest], templates: Mapping[str, PodTemplate]) -> None:
        self._held = {request.key: request for request in requests}
        self._templates = templates

    def __iter__(self) -> Iterator[ProvisioningRequest]:
        return iter(tuple(self._held.values()))

    def __contains__(self, key: str) -> bool:
        return key in self._held

    def get(self, key: str) -> ProvisioningRequest | None:
        """The request ``namespace/name``."""
        return self._held.get(key)

    def pods_of(self, request: ProvisioningRequest) -> list[Pod]:
        """Raises :class:`~kscale.ca.provisioning_requests.pods.MissingTemplatesError`."""
        return pods_of_request(request, self._templates)

    def write(self, p: Progress, request: ProvisioningRequest) -> StepsOf[WriteStatus, str]:
        """Writes its status; why that was refused, empty if it was not."""
        outcome = yield from p.act(WriteStatus(request))
        version = outcome.value or request.metadata.resource_version
        self._held[request.key] = replace(request, metadata=replace(request.metadata, resource_version=version))
        return "" if outcome.error is None else outcome.error.message

    def delete(self, p: Progress, request: ProvisioningRequest) -> StepsOf[Delete, str]:
        """Deletes it; why that was refused, empty if it was not."""
        about = request.metadata
        gone = Delete(
            kind="ProvisioningRequest",
            api_version="autoscaling.x-k8s.io/v1",
            namespace=about.namespace,
            name=about.name,
            uid=about.uid,
        )
        outcome = yield from p.act(gone)
        if outcome.error is not None:
            return outcome.error.message
        del self._held[request.key]
        return ""
