"""Limits on what a namespace may ask for (upstream: ``v1``, ``ResourceQuota``)."""

from __future__ import annotations

import msgspec

from kscale.objects.base import ApiStruct, ResourceList
from kscale.objects.meta import KubeObject

__all__ = ["ResourceQuota", "ResourceQuotaSpec", "ResourceQuotaStatus", "ScopeSelector", "ScopeSelectorRequirement"]


class ScopeSelectorRequirement(ApiStruct):
    """Pods of a scope: ``operator`` is that of a label selector, with values for the scope ``PriorityClass``."""

    scope_name: str = ""
    operator: str = ""
    values: list[str] = []


class ScopeSelector(ApiStruct):
    """Pods for which all of these hold."""

    match_expressions: list[ScopeSelectorRequirement] = []


class ResourceQuotaSpec(ApiStruct):
    """What is limited, and of which pods: those of all ``scopes`` for which the selector holds."""

    hard: ResourceList | None = None
    scopes: list[str] = []
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(ApiStruct):
    """The limits that hold, and what is used of them."""

    hard: ResourceList | None = None
    used: ResourceList | None = None


class ResourceQuota(KubeObject):
    """A resource quota."""

    spec: ResourceQuotaSpec = msgspec.field(default_factory=ResourceQuotaSpec)
    status: ResourceQuotaStatus = msgspec.field(default_factory=ResourceQuotaStatus)
