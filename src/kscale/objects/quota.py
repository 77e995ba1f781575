"""Capacity quotas of the cluster autoscaler (upstream: ``autoscaling.x-k8s.io/v1beta1``)."""

from __future__ import annotations

import msgspec

from kscale.objects.base import ApiStruct, Int64, ResourceList
from kscale.objects.meta import Condition, KubeObject, LabelSelector

__all__ = ["CapacityQuota", "CapacityQuotaLimits", "CapacityQuotaSpec", "CapacityQuotaStatus", "CapacityQuotaUsage"]


class CapacityQuotaLimits(ApiStruct):
    """The most that the selected nodes may have together."""

    resources: ResourceList | None = None


class CapacityQuotaSpec(ApiStruct):
    """An absent selector selects all nodes."""

    selector: LabelSelector | None = None
    limits: CapacityQuotaLimits = msgspec.field(default_factory=CapacityQuotaLimits)


class CapacityQuotaUsage(ApiStruct):
    """What the selected nodes have of what is limited."""

    resources: ResourceList = {}


class CapacityQuotaStatus(ApiStruct):
    """What the quota controller worked out."""

    conditions: list[Condition] = []
    used: CapacityQuotaUsage | None = None
    observed_generation: Int64 | None = None


class CapacityQuota(KubeObject):
    """A limit on the total size of the nodes that it selects."""

    spec: CapacityQuotaSpec = msgspec.field(default_factory=CapacityQuotaSpec)
    status: CapacityQuotaStatus = msgspec.field(default_factory=CapacityQuotaStatus)
