"""Spare capacity that a namespace wants (upstream: ``autoscaling.x-k8s.io/v1beta1``, ``CapacityBuffer``)."""

from __future__ import annotations

import msgspec

from kscale.objects.base import ApiStruct, Int32, Int64, ResourceList
from kscale.objects.meta import Condition, KubeObject

__all__ = ["CapacityBuffer", "CapacityBufferSpec", "CapacityBufferStatus", "LocalObjectRef", "ScalableRef"]


class LocalObjectRef(ApiStruct):
    """An object of the same namespace."""

    name: str = ""


class ScalableRef(ApiStruct):
    """An object of the same namespace that has a scale. ``api_group``: upstream calls the core group ``core`` here."""

    api_group: str = ""
    kind: str = ""
    name: str = ""


class CapacityBufferSpec(ApiStruct):
    """A number of pods: of a template or like those of a workload; ``percentage`` is of the workload's replicas.

    An absent ``provisioning_strategy`` is what the API server fills in as ``buffer.x-k8s.io/active-capacity``.
    """

    provisioning_strategy: str | None = None
    pod_template_ref: LocalObjectRef | None = None
    scalable_ref: ScalableRef | None = None
    replicas: Int32 | None = None
    percentage: Int32 | None = None
    limits: ResourceList | None = None


class CapacityBufferStatus(ApiStruct):
    """What the controller made of it; ``replicas`` pods are wanted of the template at that generation."""

    pod_template_ref: LocalObjectRef | None = None
    replicas: Int32 | None = None
    pod_template_generation: Int64 | None = None
    conditions: list[Condition] = []
    provisioning_strategy: str | None = None


class CapacityBuffer(KubeObject):
    """A capacity buffer."""

    spec: CapacityBufferSpec = msgspec.field(default_factory=CapacityBufferSpec)
    status: CapacityBufferStatus = msgspec.field(default_factory=CapacityBufferStatus)
