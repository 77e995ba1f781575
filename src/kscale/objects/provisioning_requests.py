"""Capacity that is asked for before the pods (upstream: ``autoscaling.x-k8s.io/v1``, ``ProvisioningRequest``)."""

from __future__ import annotations

import msgspec

from kscale.objects.base import ApiStruct, Int32
from kscale.objects.meta import Condition, KubeObject

__all__ = ["PodSet", "PodTemplateRef", "ProvisioningRequest", "ProvisioningRequestSpec", "ProvisioningRequestStatus"]


class PodTemplateRef(ApiStruct):
    """A pod template of the same namespace."""

    name: str = ""


class PodSet(ApiStruct):
    """So many pods of a template."""

    pod_template_ref: PodTemplateRef = msgspec.field(default_factory=PodTemplateRef)
    count: Int32 = 0


class ProvisioningRequestSpec(ApiStruct):
    """Which pods, and how their capacity is to be found."""

    pod_sets: list[PodSet] = []
    provisioning_class_name: str = ""
    parameters: dict[str, str] | None = None


class ProvisioningRequestStatus(ApiStruct):
    """How far it is."""

    conditions: list[Condition] = []
    provisioning_class_details: dict[str, str] | None = None


class ProvisioningRequest(KubeObject):
    """A provisioning request."""

    spec: ProvisioningRequestSpec = msgspec.field(default_factory=ProvisioningRequestSpec)
    status: ProvisioningRequestStatus = msgspec.field(default_factory=ProvisioningRequestStatus)

    @property
    def pod_count(self) -> int:
        """How many pods it is about."""
        return sum(pod_set.count for pod_set in self.spec.pod_sets)
