"""Leases: who holds something, and until when (upstream: ``k8s.io/api/coordination/v1``)."""

from __future__ import annotations

import msgspec

from kscale.objects.base import ApiStruct
from kscale.objects.meta import KubeObject

__all__ = ["Lease", "LeaseSpec"]


class LeaseSpec(ApiStruct):
    """The holder and its times, which are RFC 3339 with microseconds (:func:`kscale.objects.times.micro_time`).

    A candidate may take a lease over that was not renewed for ``lease_duration_seconds`` since ``renew_time``;
    ``lease_transitions`` counts its holders. ``strategy`` and ``preferred_holder`` belong to coordinated elections.
    """

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None
    strategy: str | None = None
    preferred_holder: str | None = None


class Lease(KubeObject):
    """A lease (``coordination.k8s.io/v1``)."""

    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)
