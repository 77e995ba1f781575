"""Tracks allocations of claims while pods are placed: as counted resource columns if those can express the requests,
otherwise exactly, in a ledger.

The packing engine asks the ledger about pods that request devices (``check``), and reports changes to it: placed pods
reserve their claims, removed pods release them, forks are reverted (upstream: the autoscaler's ``PredicateSnapshot``
and its ``dynamicresources`` snapshot, around the Filter and Reserve of the plug-in).

DynamicResources' verdict on one pod alone is static. Several pods compete for devices. If the sets of devices that
kinds of requests can use are equal or disjoint on every node, only the number of free devices matters, and the packing
engine counts them like any other resource. Otherwise the ledger decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from kscale.objects.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kscale.objects.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from kscale.objects.decode import enc_hook
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.pod_resources import ExtendedRequest
from kscale.scheduling.devices.allocator import AllocatedDevice, AllocationError
from kscale.scheduling.devices.claims import (
    MAX_CONSUMERS,
    ClaimError,
    ClaimRequests,
    Claims,
    Devices,
    available,
    binding_failed,
    skips_operations,
    to_allocate,
)
from kscale.scheduling.devices.inventory import Hold, Offer, for_node, holds_of
from kscale.scheduling.profile import Context, NodeFacts, SchedulerProfile
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.object_store import Informers
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "ClaimKey",
    "ClaimState",
    "DeviceLedger",
    "Need",
    "Needs",
    "allocation",
    "reserve",
]


ClaimKey = tuple[str, str]
"""(namespace, name)."""


class ClaimState(msgspec.Struct, frozen=True, eq=False):
    """A claim in the simulation. ``claim``: as observed; ``consumers``, ``allocation``, ``holds``: in the current
    state. Without ``allocation`` it holds no devices.
    """

    claim: ResourceClaim
    consumers: tuple[ResourceClaimConsumerReference, ...]
    allocation: AllocationResult | None
    holds: tuple[Hold, ...] = ()

    @classmethod
    def of(cls, claim: ResourceClaim) -> ClaimState:
        """Build the state of a claim from the API object: its consumers, allocation and devices in use."""
        allocation = claim.status.allocation
        return cls(
            claim,
            tuple(claim.status.reserved_for),
            allocation,
            () if allocation is None else tuple(holds_of(allocation)),
        )

    @property
    def claim_with_status(self) -> ResourceClaim:
        """Return the claim with its current status."""
        status = msgspec.structs.replace(
            self.claim.status, allocation=self.allocation, reserved_for=list(self.consumers)
        )
        return msgspec.structs.replace(self.claim, status=status)


def allocation(claim: ResourceClaim, devices: Iterable[AllocatedDevice], node_name: str) -> AllocationResult:
    """Build the allocation that a claim's status reports, from the devices that the allocator returned.

    If one of them belongs to a node, the allocation is bound to the node ``node_name``.
    """
    results = []
    terms: list[NodeSelectorTerm] = []
    local = False
    for i, each in enumerate(devices):
        driver, pool, device = each.offer.identity
        results.append(
            DeviceRequestAllocationResult(
                request=each.request,
                driver=driver,
                pool=pool,
                device=device,
                admin_access=True if each.admin else None,
                # Upstream generates a random ID.
                share_id=f"{claim.metadata.uid or claim.key}-{i}" if each.offer.shareable else None,
                consumed_capacity=each.consumed,
                binding_conditions=each.offer.device.binding_conditions,
                binding_failure_conditions=each.offer.device.binding_failure_conditions,
            )
        )
        local = local or each.offer.local or bool(each.offer.device.binds_to_node)
        if each.offer.selector is not None:
            terms += [term for term in each.offer.selector.node_selector_terms if term not in terms]
    if local:
        field = NodeSelectorRequirement(key="metadata.name", operator="In", values=[node_name])
        terms = [NodeSelectorTerm(match_fields=[field])]
    elif len(terms) > 1:  # the API allows a slice one term, and all of them must hold
        expressions = [expression for term in terms for expression in term.match_expressions]
        fields = [expression for term in terms for expression in term.match_fields]
        terms = [NodeSelectorTerm(match_expressions=expressions, match_fields=fields)]
    selector = NodeSelector(node_selector_terms=terms) if terms else None
    return AllocationResult(devices=DeviceAllocationResult(results=results), node_selector=selector)


_encode = msgspec.json.Encoder(enc_hook=enc_hook, order="sorted").encode


class Need(msgspec.Struct, frozen=True, eq=False):
    """Devices that a pod needs in the current state. Pods with equal ``key`` get equal verdicts. ``open``: the claims
    to allocate.
    """

    key: int
    open: tuple[ClaimKey, ...]
    requests: ClaimRequests


class Needs:
    """Pods by number, and their claims. ``keys``: all claims of each pod; ``own``: those created for the pod.

    ``exchangeable``: every pod stands for equivalent ones, with claims of their own.
    """

    def __init__(self, ctx: Context, pods: Sequence[PodClass], *, exchangeable: bool) -> None:
        self._pods = pods
        self._exchangeable = exchangeable
        self._claims = Claims.of(ctx)
        self._binding_timeout = ctx.now, ctx.profile.device_binding_timeout
        self.observed: dict[ClaimKey, ClaimState] = {}
        """The claims of the pods as observed."""
        self.keys = [tuple(self._claim_keys(pod)) for pod in pods]
        self.own = [self._owned_claims(pod, keys) for pod, keys in zip(pods, self.keys, strict=True)]
        self._extended = [self._special_requests(pod) for pod in pods]
        self._known: dict[int, tuple[tuple[ClaimState, ...], Need | None]] = {}
        self._numbers: dict[object, int] = {}

    def _claim_keys(self, pod: PodClass) -> Iterator[ClaimKey]:
        """Yield the keys of a pod's claims, and add new claims to ``observed``.

        If a claim cannot be used, nothing is yielded and ``observed`` is left as it is.
        """
        try:
            claims = self._claims.list_pod_claims(pod) if pod.claims else []
        except ClaimError:  # its PreFilter fails
            return
        for claim in claims:
            key = claim.metadata.namespace, claim.metadata.name
            if key not in self.observed:
                self.observed[key] = ClaimState.of(claim)
            yield key

    def _owned_claims(self, pod: PodClass, keys: tuple[ClaimKey, ...]) -> frozenset[ClaimKey]:
        """Return those claims that the pod controls."""
        return frozenset(
            key
            for key in keys
            if any(o.controller and o.uid == pod.pod_uid for o in self.observed[key].claim.metadata.owner_references)
        )

    def _special_requests(self, pod: PodClass) -> tuple[tuple[ExtendedRequest, ...], bool]:
        """Return (extended resources to allocate for the pod, whether an earlier claim prevents the allocation).

        As :meth:`Claims.get_special_requests`, but ``((), True)`` instead of a ClaimError.
        """
        try:
            return self._claims.get_special_requests(pod)
        except ClaimError:  # its PreFilter fails
            return (), True

    def may_count(self, pod: int) -> bool:
        """Return whether the pod with the number ``pod`` requests devices."""
        return bool(self.keys[pod] or any(self._extended[pod]))

    def of(self, pod: int, claims: Mapping[ClaimKey, ClaimState]) -> Need | None:
        """Return the devices that the pod needs in the current state of the claims; None if its PreFilter fails.

        ``pod``: its number; ``claims``: the states of all claims by key.
        """
        states = tuple(claims[key] for key in self.keys[pod])
        cached = self._known.get(pod)
        if cached is not None and all(a is b for a, b in zip(cached[0], states, strict=True)):
            return cached[1]
        need = self._find(pod, states)
        self._known[pod] = states, need
        return need

    def _find(self, pod: int, states: tuple[ClaimState, ...]) -> Need | None:
        """Compute what the pod needs from the states of its claims; None if a claim is in use by too many pods."""
        uid = self._pods[pod].pod_uid
        still_open, allocated = [], []
        for key, state in zip(self.keys[pod], states, strict=True):
            if state.allocation is None or (self._exchangeable and key in self.own[pod]):
                still_open.append((key, state.claim))
                continue
            if len(state.consumers) >= MAX_CONSUMERS and not any(c.uid == uid for c in state.consumers):
                return None
            allocated.append(state.claim_with_status)
        requests = ClaimRequests(
            tuple(allocated),
            tuple(claim for _, claim in still_open),
            *self._extended[pod],
            self._pods[pod].namespace,
        )
        parts = (
            tuple(_encode(claim.spec) for claim in requests.open),
            tuple(_encode(a.node_selector) for a in (claim.status.allocation for claim in requests.allocated) if a),
            any(map(skips_operations, requests.allocated)),
            any(binding_failed(claim, *self._binding_timeout) for claim in requests.allocated),
            requests.extended,
            requests.stale,
        )
        return Need(self._numbers.setdefault(parts, len(self._numbers)), tuple(key for key, _ in still_open), requests)


class _Node(msgspec.Struct, frozen=True, eq=False):
    """A node's facts and offers. ``number``: identity of the node in its current state, independent of the engine's
    number.
    """

    number: int
    facts: NodeFacts
    offers: list[Offer]


_Decision = list[list[AllocatedDevice]] | None


class DeviceLedger:
    """Claims and devices of a simulation. ``pods``: in the order of the engine's numbers.

    ``exchangeable``: every placement of a pod stands for another equivalent pod, with claims of its own.
    """

    def __init__(
        self,
        ctx: Context,
        pods: Sequence[PodClass],
        templates: Sequence[NodeTemplate] = (),
        *,
        exchangeable: bool = False,
    ) -> None:
        self.ctx = ctx
        self._pods = list(pods)
        self._templates = templates
        self._exchangeable = exchangeable
        devices = Devices.of(ctx)
        self._inventory = devices.inventory.with_slices(())
        self._allocator = devices.allocator.on(self._inventory)
        self._needs = Needs(ctx, self._pods, exchangeable=exchangeable)
        self._claims = dict(self._needs.observed)
        self._binding_timeout = ctx.now, ctx.profile.device_binding_timeout
        self._existing = len(ctx.snapshot.columns)
        self._known = 0
        self._added: list[_Node] = []
        self._nodes: dict[int, _Node] = {}
        self._copies: dict[str, tuple[int, _Node]] = {}
        self._changes: dict[str, int] = {}  # node name -> how often its local devices changed owners
        self._wide_changes = 0
        self._seen: dict[tuple[int, int], tuple[int, _Decision]] = {}
        self._puts = 0
        self._last_pod, self._last_put = -1, -1
        self._last_need: Need | None = None
        self._journal: list[tuple[ClaimKey, ClaimState | None]] = []
        self._marks: list[tuple[int, int]] = []
        self._home = {offer.identity: name for name, offers in self._inventory.own.items() for offer in offers}
        self._steady = True
        self._update_steady()
        self._placed = 0

    def _update_steady(self) -> None:
        """Update ``_steady``: whether allocations can only reduce what other pods can get."""
        self._steady = self._steady and self._inventory.is_monotonic([state.claim for state in self._claims.values()])

    def may_count(self, pod: int) -> bool:
        """Return whether the pod with the number ``pod`` requests devices."""
        return self._needs.may_count(pod)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def add(self, template: int, copy: int) -> None:
        """Add a node: copy number ``copy`` of the template with number ``template``, with devices of its own."""
        base = self._templates[template]
        suffix = f"e-{copy}"
        name = f"{base.node.metadata.name}-{suffix}"
        cached = self._copies.get(name)
        if cached is None or cached[0] != template:
            self._inventory.replace(name, for_node(base.resource_slices, name, suffix))
            node = self._new_node(self.ctx.copy_facts(base, name))
            self._home.update((offer.identity, name) for offer in node.offers if offer.local)
            self._update_steady()
            cached = self._copies[name] = template, node
        self._added.append(cached[1])

    def _new_node(self, facts: NodeFacts) -> _Node:
        """Return a node with these facts under a new number."""
        self._known += 1
        return _Node(self._known, facts, self._inventory.offers(facts))

    def _node(self, node: int) -> _Node:
        """Return a node by the engine's number: existing nodes come first, then added copies of templates."""
        if node >= self._existing:
            return self._added[node - self._existing]
        cached = self._nodes.get(node)
        if cached is None:
            cached = self._nodes[node] = self._new_node(self.ctx.node(node))
        return cached

    # -- verdicts ------------------------------------------------------------------------------------------------------

    def check(self, pod: int, node: int) -> bool:
        """Check whether the plug-in's PreFilter and Filter pass now for the pod and the node of these numbers."""
        return self._decide(pod, node) is not None

    def _decide(self, pod: int, node: int) -> _Decision:
        """Return the cached or new allocation for a pod on a node: a list of devices for each claim to allocate.

        Empty if the pod needs no more devices; None if its PreFilter or Filter fails.
        """
        if pod != self._last_pod or self._puts != self._last_put:  # a scan checks one pod on many nodes
            self._last_pod, self._last_put, self._last_need = pod, self._puts, self._needs.of(pod, self._claims)
        need = self._last_need
        if need is None:
            return None
        state = self._nodes.get(node) or self._node(node)
        now = self._changes.get(state.facts.name, 0) + self._wide_changes
        seen = self._seen.get((need.key, state.number))
        if seen is not None and seen[0] == now:
            return seen[1]
        decision = self._allocate(need.requests, state.facts, state.offers)
        self._seen[need.key, state.number] = now, decision
        return decision

    def _allocate(self, requests: ClaimRequests, facts: NodeFacts, offers: list[Offer]) -> _Decision:
        """Compute the allocation for a pod on a node; None if it is not possible."""
        if requests.stale:
            return None
        decision: _Decision = []
        to_satisfy = to_allocate(requests, facts, self.ctx.informers.device_classes)
        if to_satisfy:
            try:
                decision = self._allocator.allocate(to_satisfy, offers)
            except AllocationError:
                self._steady = False  # the device that causes the error may be allocated later, and is skipped then
                return None
        if decision is None:
            return None
        if not all(available(claim, facts, *self._binding_timeout) for claim in requests.allocated):
            return None
        return decision

    # -- changes -------------------------------------------------------------------------------------------------------

    def place(self, pod: int, node: int) -> bool:
        """Allocate and reserve the claims of a pod that was placed, with the devices that its Filter found.

        ``pod`` and ``node`` are numbers. Returns whether the verdict on any pod may be better than before. A pod placed
        where it does not pass reserves nothing. A pod without claims reserves nothing, even if it requests extended
        resources: the autoscaler runs Reserve only for pods that list claims (``PredicateSnapshot.SchedulePod``).
        """
        keys = self._needs.keys[pod]
        if not keys:
            return False
        need, decision = self._needs.of(pod, self._claims), self._decide(pod, node)
        if need is None or decision is None:
            return False
        self._placed += 1
        pod_class, facts = self._pods[pod], self._node(node).facts
        mark = f" {self._placed}" if self._exchangeable else ""
        consumer = ResourceClaimConsumerReference(
            resource="pods", name=pod_class.pod_name + mark, uid=pod_class.pod_uid + mark
        )
        for key, devices in zip(need.open, decision, strict=False):
            to = (key[0], key[1] + mark) if key in self._needs.own[pod] else key
            self._allocate_claim(to, self._claims[key].claim, (), devices, facts.name)
        if len(decision) > len(need.open):  # the last one is for extended resources
            claim = to_allocate(need.requests, facts, self.ctx.informers.device_classes)[-1]
            self._allocate_claim(self._special_claim_key(pod), claim, (consumer,), decision[-1], facts.name)
        for key in keys:
            state = self._claims[key]
            if all(c.uid != consumer.uid for c in state.consumers):
                self._set_claim(key, msgspec.structs.replace(state, consumers=(*state.consumers, consumer)))
        return not self._steady or any(key not in self._needs.own[pod] for key in need.open)

    def _special_claim_key(self, pod: int) -> ClaimKey:
        """Return the key under which a pod's claim for extended resources is stored."""
        pod_class = self._pods[pod]
        return pod_class.namespace, f"<extended-resources> {pod_class.pod_name}"

    def _allocate_claim(
        self,
        key: ClaimKey,
        claim: ResourceClaim,
        consumers: tuple[ResourceClaimConsumerReference, ...],
        devices: list[AllocatedDevice],
        node_name: str,
    ) -> None:
        """Store the allocation of ``devices`` on a node to the claim with this key, and mark the devices as used.

        ``consumers`` are stored only if the claim has no state yet.
        """
        holds = tuple(each.hold for each in devices)
        before = self._claims.get(key)
        self._set_claim(
            key,
            ClaimState(
                claim, consumers if before is None else before.consumers, allocation(claim, devices, node_name), holds
            ),
        )

    def unplace(self, pod: int, node: int) -> None:  # noqa: ARG002  # the claims of the pod know their devices
        """Release the claims of a pod that was removed from a node. ``pod`` and ``node`` are numbers.

        The pod's own claims, and claims that no other pod uses, give their devices back (upstream:
        ``UnreservePodClaims``).
        """
        pod_class = self._pods[pod]
        for key in self._needs.keys[pod]:
            state = self._claims[key]
            rest = list(state.consumers)
            consumer = next((c for c in rest if c.uid == pod_class.pod_uid), None)
            if consumer is not None:
                rest.remove(consumer)
            if key in self._needs.own[pod] or not rest:
                state = msgspec.structs.replace(state, allocation=None, holds=())
            self._set_claim(key, msgspec.structs.replace(state, consumers=tuple(rest)))
        if self._special_claim_key(pod) in self._claims:
            self._set_claim(self._special_claim_key(pod), None)

    def _set_claim(self, key: ClaimKey, state: ClaimState | None) -> None:
        """Set the state of the claim with this key (None: remove it), and update its devices in the inventory."""
        before = self._claims.get(key)
        self._puts += 1
        if self._marks:
            self._journal.append((key, before))
        old = () if before is None else before.holds
        new = () if state is None else state.holds
        if old is not new:
            for hold in old:
                self._inventory.release(hold)
            for hold in new:
                self._inventory.allocate(hold)
            for hold in (*old, *new):
                self._count_change(hold)
        if state is None:
            self._claims.pop(key, None)
        else:
            self._claims[key] = state

    def _count_change(self, hold: Hold) -> None:
        """Count a change of the device in ``hold``, which makes decisions about the nodes that may use it invalid."""
        home = self._home.get(hold.identity)
        if home is None or self._inventory.counts(hold.identity):  # other nodes may use the same counters
            self._wide_changes += 1
        else:
            self._changes[home] = self._changes.get(home, 0) + 1

    # -- forks ---------------------------------------------------------------------------------------------------------

    def fork(self) -> None:
        """Open a nested level: :meth:`revert` restores the current state, :meth:`commit` keeps the changes."""
        self._marks.append((len(self._journal), len(self._added)))

    def revert(self) -> None:
        """Restore the state at the last :meth:`fork`, and close this level."""
        length, added = self._marks[-1]
        while len(self._journal) > length:
            key, before = self._journal.pop()
            size = len(self._journal)
            self._set_claim(key, before)
            del self._journal[size:]
        self._marks.pop()
        del self._added[added:]

    def commit(self) -> None:
        """Merge the changes since the last ``fork`` into the level below."""
        self._marks.pop()
        if not self._marks:
            self._journal.clear()

    # -- queries -------------------------------------------------------------------------------------------------------

    def claims(self) -> dict[ClaimKey, ResourceClaim]:
        """Return the claims that pods of this simulation use, in their current state."""
        return {key: state.claim_with_status for key, state in self._claims.items()}

    def checksum(self) -> int:
        """Return a checksum of the state; equal states have equal checksums."""
        inventory = self._inventory
        state = (
            sorted((key, _encode(claim_state.claim_with_status.status)) for key, claim_state in self._claims.items()),
            sorted(inventory.used.items()),
            sorted(inventory.shares.items()),
            sorted(
                (key, sorted((n, str(q.as_fraction())) for n, q in q.items())) for key, q in inventory.consumed.items()
            ),
            sorted(
                (key, str(q.as_fraction())) for key, q in inventory.available.items() if q != inventory.published[key]
            ),
        )
        from hashlib import blake2b  # loads OpenSSL, so only if needed

        return int.from_bytes(blake2b(repr(state).encode(), digest_size=8).digest(), "little")


def reserve(snapshot: Snapshot, pods: Sequence[PodRecord], nodes: Sequence[int]) -> Informers:
    """Return the informers' objects after pods were placed on nodes, one after the other.

    ``nodes``: number of each pod's node. The pods' claims are allocated and reserved for them. A claim that cannot be
    allocated stays unchanged. If no pod has claims, or without dynamic resource allocation, the result is the
    snapshot's own object.
    """
    if not snapshot.dra or not snapshot.informers.resource_claims:
        return snapshot.informers
    if not any(pod.claims for pod in snapshot.distinct_classes(pods)[0]):
        return snapshot.informers
    ledger = DeviceLedger(Context(snapshot, SchedulerProfile()), snapshot.classify(pods))
    for number, node in enumerate(nodes):
        ledger.place(number, node)
    claims = {**snapshot.informers.resource_claims, **ledger.claims()}
    return snapshot.informers.replace(resource_claims=claims)
