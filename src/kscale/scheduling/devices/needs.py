"""What pods need of devices as their claims stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from kscale.objects.base import enc_hook
from kscale.scheduling.context import Context
from kscale.scheduling.devices.availability import binding_failed, skips_operations
from kscale.scheduling.devices.claims import MOST_CONSUMERS, ClaimError, Claims, Wanted
from kscale.scheduling.devices.held_claim import ClaimKey, HeldClaim
from kscale.snapshot.interner import PodClass

__all__ = ["Need", "Needs"]

_encode = msgspec.json.Encoder(enc_hook=enc_hook, order="sorted").encode


class Need(msgspec.Struct, frozen=True, eq=False):
    """What a pod needs now; pods with equal ``key`` get equal verdicts. ``open``: the claims to allocate."""

    key: int
    open: tuple[ClaimKey, ...]
    wanted: Wanted


class Needs:
    """Pods by number, and their claims: ``keys`` of all of them, ``own``: of those that were made for the pod.

    ``alike``: every pod stands for others like it, with claims of their own.
    """

    def __init__(self, ctx: Context, pods: Sequence[PodClass], *, alike: bool) -> None:
        self._pods = pods
        self._alike = alike
        self._claims = Claims.of(ctx)
        self._patience = ctx.now, ctx.profile.device_binding_timeout
        self.observed: dict[ClaimKey, HeldClaim] = {}
        """The claims of the pods as they were observed."""
        self.keys = [tuple(self._keys_of(pod)) for pod in pods]
        self.own = [self._owned(pod, keys) for pod, keys in zip(pods, self.keys, strict=True)]
        self._special = [self._special_of(pod) for pod in pods]
        self._known: dict[int, tuple[tuple[HeldClaim, ...], Need | None]] = {}
        self._numbers: dict[object, int] = {}

    def _keys_of(self, pod: PodClass) -> Iterator[ClaimKey]:
        try:
            claims = self._claims.of_pod(pod) if pod.claims else []
        except ClaimError:  # its PreFilter fails
            return
        for claim in claims:
            key = claim.metadata.namespace, claim.metadata.name
            if key not in self.observed:
                self.observed[key] = HeldClaim.of(claim)
            yield key

    def _owned(self, pod: PodClass, keys: tuple[ClaimKey, ...]) -> frozenset[ClaimKey]:
        return frozenset(
            key
            for key in keys
            if any(o.controller and o.uid == pod.pod_uid for o in self.observed[key].claim.metadata.owner_references)
        )

    def _special_of(self, pod: PodClass) -> tuple[tuple[tuple[str, int], ...], bool]:
        try:
            return self._claims.special(pod)
        except ClaimError:  # its PreFilter fails
            return (), True

    def concerns(self, pod: int) -> bool:
        """Whether the pod has anything to do with devices."""
        return bool(self.keys[pod] or any(self._special[pod]))

    def of(self, pod: int, claims: Mapping[ClaimKey, HeldClaim]) -> Need | None:
        """What the pod needs with the claims as they stand; None if its PreFilter fails."""
        states = tuple(claims[key] for key in self.keys[pod])
        known = self._known.get(pod)
        if known is not None and all(a is b for a, b in zip(known[0], states, strict=True)):
            return known[1]
        need = self._find(pod, states)
        self._known[pod] = states, need
        return need

    def _find(self, pod: int, states: tuple[HeldClaim, ...]) -> Need | None:
        uid = self._pods[pod].pod_uid
        still_open, allocated = [], []
        for key, held in zip(self.keys[pod], states, strict=True):
            if held.allocation is None or (self._alike and key in self.own[pod]):
                still_open.append((key, held.claim))
                continue
            if len(held.consumers) >= MOST_CONSUMERS and not any(c.uid == uid for c in held.consumers):
                return None
            allocated.append(held.replaced)
        wanted = Wanted(tuple(allocated), tuple(claim for _, claim in still_open), *self._special[pod])
        parts = (
            tuple(_encode(claim.spec) for claim in wanted.open),
            tuple(_encode(a.node_selector) for a in (claim.status.allocation for claim in wanted.allocated) if a),
            any(map(skips_operations, wanted.allocated)),
            any(binding_failed(claim, *self._patience) for claim in wanted.allocated),
            wanted.extended,
            wanted.stale,
        )
        return Need(self._numbers.setdefault(parts, len(self._numbers)), tuple(key for key, _ in still_open), wanted)
