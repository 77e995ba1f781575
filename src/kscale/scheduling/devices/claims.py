"""The claims of a pod: which have devices and which need some (upstream: ``dynamicresources``, PreFilter)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from kscale.objects.meta import ObjectMeta
from kscale.objects.requests import is_scalar
from kscale.objects.resource import (
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kscale.scheduling.context import Context
from kscale.scheduling.facts import NodeFacts
from kscale.snapshot.interner import PodClass

__all__ = ["MOST_CONSUMERS", "ClaimError", "Claims", "Wanted", "device_class_of", "extended_claim", "to_allocate"]

MOST_CONSUMERS = 256
"""Consumers that a claim may be reserved for (``ResourceClaimReservedForMaxSize``)."""

_IMPLICIT = "deviceclass.resource.kubernetes.io/"
_EXTENDED_CLAIM = "<extended-resources>"


class ClaimError(Exception):
    """A claim cannot be used; the text is the reason."""


class Wanted(msgspec.Struct, frozen=True):
    """``allocated``: claims that have their devices; ``open``: claims that need some; ``extended``: amounts of extended
    resources that a device class stands for. ``stale``: a claim that was made for these before is in the way."""

    allocated: tuple[ResourceClaim, ...] = ()
    open: tuple[ResourceClaim, ...] = ()
    extended: tuple[tuple[str, int], ...] = ()
    stale: bool = False

    @property
    def nothing(self) -> bool:
        """Nothing to look at."""
        return not (self.allocated or self.open or self.extended or self.stale)


def device_class_of(resource: str, classes: Mapping[str, DeviceClass]) -> DeviceClass | None:
    """The device class behind a name of an extended resource: the first that declares it, or is named in it."""
    for device_class in classes.values():
        if resource in (device_class.spec.extended_resource_name, _IMPLICIT + device_class.name):
            return device_class
    return None


class Claims:
    """What pods of a context claim."""

    def __init__(self, ctx: Context) -> None:
        self._dra, self._informers = ctx.dra, ctx.informers  # not the context, which keeps this: they would be a cycle
        self._wanted: dict[int, Wanted] = {}
        self._delegable: dict[str, bool] = {}

    @classmethod
    def of(cls, ctx: Context) -> Claims:
        """Those of a context."""
        return ctx.memo.of(cls, lambda: cls(ctx))

    def delegable(self, resource: str) -> bool:
        """Whether a device class stands for the resource on nodes that have none of it themselves."""
        found = self._delegable.get(resource)
        if found is None:
            classes = self._informers.device_classes
            found = self._dra and device_class_of(resource, classes) is not None
            self._delegable[resource] = found
        return found

    def extended(self, pod: PodClass) -> tuple[tuple[str, int], ...]:
        """(resource, amount) of what the pod asks for and a device class stands for, by name."""
        if not self._dra or not self._informers.device_classes:
            return ()
        return tuple(
            (name, amount)
            for name, amount in sorted(pod.demand.items())
            if amount > 0 and is_scalar(name) and self.delegable(name)
        )

    def concern(self, pods: Iterable[PodClass]) -> bool:
        """Whether any of the pods may want devices."""
        return self._dra and any(pod.claims or self.extended(pod) for pod in pods)

    def of_pod(self, pod: PodClass) -> list[ResourceClaim]:
        """The claims of a pod, in its order. Raises ClaimError."""
        found = []
        statuses = dict(reversed(pod.claim_statuses))  # the first of a name counts
        for entry, given, _ in pod.claims:
            name = given
            if name is None:
                if entry not in statuses:
                    raise ClaimError(f'pod "{pod.namespace}/{pod.pod_name}": ResourceClaim not created yet')
                name = statuses[entry]
                if name is None:  # the template asked for nothing
                    continue
            if not self._dra:
                raise ClaimError("object not found: dra manager is disabled")
            claim = self._informers.resource_claims.get((pod.namespace, name))
            if claim is None:
                raise ClaimError(f"claim {pod.namespace}/{name} not found")
            if claim.metadata.deletion_timestamp is not None:
                raise ClaimError(f'resourceclaim "{name}" is being deleted')
            owners = claim.metadata.owner_references
            if given is None and not any(owner.controller and owner.uid == pod.pod_uid for owner in owners):
                whose = f"{pod.namespace}/{pod.pod_name}"
                raise ClaimError(
                    f"ResourceClaim {pod.namespace}/{name} was not created for Pod {whose} (Pod is not owner)"
                )
            found.append(claim)
        return found

    def wanted(self, pod: PodClass) -> Wanted:
        """What the plug-in has to see to. Raises ClaimError."""
        found = self._wanted.get(pod.index)
        if found is None:
            found = self._wanted[pod.index] = self._find_wanted(pod)
        return found

    def settled(self, pod: PodClass) -> Wanted:
        """The same; nothing of a pod whose PreFilter fails: no node is asked for it."""
        if not pod.claims and not self._dra:
            return Wanted()
        try:
            return self.wanted(pod)
        except ClaimError:
            return Wanted()

    def _find_wanted(self, pod: PodClass) -> Wanted:
        allocated, still_open = [], []
        for claim in self.of_pod(pod):
            if claim.status.allocation is None:
                still_open.append(claim)
                continue
            consumers = claim.status.reserved_for
            mine = any(consumer.uid == pod.pod_uid for consumer in consumers)
            if not mine and len(consumers) >= MOST_CONSUMERS:
                raise ClaimError("resourceclaim in use")
            allocated.append(claim)
        return Wanted(tuple(allocated), tuple(still_open), *self.special(pod))

    def special(self, pod: PodClass) -> tuple[tuple[tuple[str, int], ...], bool]:
        """(extended resources to allocate, whether an older claim for them is in the way). Raises ClaimError."""
        extended = self.extended(pod)
        left = self._leftover(pod) if extended else None
        if left is None:
            return extended, False
        return () if left.status.allocation else extended, bool(left.spec.devices.requests)

    def _leftover(self, pod: PodClass) -> ResourceClaim | None:
        """What the scheduler made for the extended resources of the pod when it tried before. Raises ClaimError."""
        claim = self._informers.leftovers.get(pod.pod_uid) if pod.pod_uid else None
        if claim is None or all(owner.name != pod.pod_name for owner in claim.metadata.owner_references):
            return None
        consumers = claim.status.reserved_for
        mine = any(consumer.uid == pod.pod_uid for consumer in consumers)
        if claim.status.allocation is not None and not mine and len(consumers) >= MOST_CONSUMERS:
            raise ClaimError("resourceclaim in use")
        return claim


def extended_claim(amounts: tuple[tuple[str, int], ...], classes: Mapping[str, DeviceClass]) -> ResourceClaim:
    """The claim that stands for extended resources."""
    requests = []
    for i, (name, amount) in enumerate(amounts):
        device_class = device_class_of(name, classes)
        exact = ExactDeviceRequest(device_class_name=device_class.name if device_class else "", count=amount)
        requests.append(DeviceRequest(name=f"request-{i}", exactly=exact))
    return ResourceClaim(
        metadata=ObjectMeta(name=_EXTENDED_CLAIM), spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests))
    )


def to_allocate(need: Wanted, node: NodeFacts, classes: Mapping[str, DeviceClass]) -> tuple[ResourceClaim, ...]:
    """The open claims, and one for the extended resources that the node does not offer itself."""
    amounts = tuple((name, amount) for name, amount in need.extended if name not in node.offered)
    return (*need.open, extended_claim(amounts, classes)) if amounts else need.open
