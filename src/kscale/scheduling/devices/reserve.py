"""What placing pods does to claims: the devices are theirs (upstream: the Reserve of the plug-in)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kscale.scheduling.context import Context
from kscale.scheduling.devices.ledger import DeviceLedger
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.informers import Informers
from kscale.snapshot.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["reserve"]


def reserve(snapshot: Snapshot, pods: Sequence[PodRecord], nodes: Sequence[int]) -> Informers:
    """The informers' objects once these pods are placed on these nodes, one after the other: their claims are allocated
    and reserved for them. A claim that cannot be allocated there stays as it is."""
    if not snapshot.dra:
        return snapshot.informers
    classes = snapshot.classify(pods)
    if not any(pod.claims for pod in classes):
        return snapshot.informers
    ledger = DeviceLedger(Context(snapshot, SchedulerProfile()), classes)
    for number, node in enumerate(nodes):
        ledger.place(number, node)
    claims = {**snapshot.informers.resource_claims, **ledger.claims()}
    return msgspec.structs.replace(snapshot.informers, resource_claims=claims)
