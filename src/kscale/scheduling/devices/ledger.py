"""Which claims have which devices while pods are placed: exact, for everything that counting columns cannot express.

The packing engine asks the ledger about pods that want devices (``check``), and tells it what happens: pods that are
placed reserve their claims, pods that leave give them back, forks are reverted (upstream: the autoscaler's
``PredicateSnapshot`` and its ``dynamicresources`` snapshot, around the Filter and Reserve of the plug-in).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kscale.objects.base import enc_hook
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.resource import ResourceClaim, ResourceClaimConsumerReference
from kscale.scheduling.context import Context
from kscale.scheduling.devices.allocator import AllocationError, Given
from kscale.scheduling.devices.availability import available
from kscale.scheduling.devices.claims import Wanted, to_allocate
from kscale.scheduling.devices.devices import Devices
from kscale.scheduling.devices.held_claim import ClaimKey, HeldClaim, allocation
from kscale.scheduling.devices.inventory import Hold, Offer, for_node
from kscale.scheduling.devices.needs import Need, Needs
from kscale.scheduling.facts import NodeFacts
from kscale.snapshot.interner import PodClass

__all__ = ["DeviceLedger"]

_encode = msgspec.json.Encoder(enc_hook=enc_hook, order="sorted").encode


class _Node(msgspec.Struct, frozen=True, eq=False):
    """``number``: of this node as it is, whatever number the engine gives it."""

    number: int
    facts: NodeFacts
    offers: list[Offer]


_Decision = list[list[Given]] | None


class DeviceLedger:
    """The claims and devices of a simulation. ``pods``: by the numbers that the engine knows them by.

    ``alike``: every placing of a pod stands for another pod like it, with claims of its own.
    """

    def __init__(
        self,
        ctx: Context,
        pods: Sequence[PodClass],
        templates: Sequence[NodeTemplate] = (),
        *,
        alike: bool = False,
    ) -> None:
        self.ctx = ctx
        self._pods = list(pods)
        self._templates = templates
        self._alike = alike
        devices = Devices.of(ctx)
        self._inventory = devices.inventory.with_slices(())
        self._allocator = devices.allocator.on(self._inventory)
        self._needs = Needs(ctx, self._pods, alike=alike)
        self._claims = dict(self._needs.observed)
        self._patience = ctx.now, ctx.profile.device_binding_timeout
        self._existing = len(ctx.snapshot.columns)
        self._known = 0
        self._added: list[_Node] = []
        self._nodes: dict[int, _Node] = {}
        self._copies: dict[str, tuple[int, _Node]] = {}
        self._changes: dict[str, int] = {}  # node name -> how often devices of its own changed hands
        self._wide_changes = 0
        self._seen: dict[tuple[int, int], tuple[int, _Decision]] = {}
        self._puts = 0
        self._asked, self._asked_at = -1, -1
        self._asked_need: Need | None = None
        self._journal: list[tuple[ClaimKey, HeldClaim | None]] = []
        self._marks: list[tuple[int, int]] = []
        self._home = {offer.identity: name for name, offers in self._inventory.own.items() for offer in offers}
        self._steady = True
        self._judge()
        self._placed = 0

    def _judge(self) -> None:
        """Whether giving devices away only ever takes possibilities from others."""
        self._steady = self._steady and self._inventory.steady([held.claim for held in self._claims.values()])

    def concerns(self, pod: int) -> bool:
        """Whether the pod has anything to do with devices."""
        return self._needs.concerns(pod)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def add(self, template: int, copy: int) -> None:
        """A copy of a template joined, with devices of its own."""
        base = self._templates[template]
        suffix = f"e-{copy}"
        name = f"{base.node.metadata.name}-{suffix}"
        found = self._copies.get(name)
        if found is None or found[0] != template:
            self._inventory.replace(name, for_node(base.resource_slices, name, suffix))
            node = self._new_node(self.ctx.copy_facts(base, name))
            self._home.update((offer.identity, name) for offer in node.offers if offer.local)
            self._judge()
            found = self._copies[name] = template, node
        self._added.append(found[1])

    def _new_node(self, facts: NodeFacts) -> _Node:
        self._known += 1
        return _Node(self._known, facts, self._inventory.offers(facts))

    def _node(self, node: int) -> _Node:
        if node >= self._existing:
            return self._added[node - self._existing]
        found = self._nodes.get(node)
        if found is None:
            found = self._nodes[node] = self._new_node(self.ctx.node(node))
        return found

    # -- verdicts ------------------------------------------------------------------------------------------------------

    def check(self, pod: int, node: int) -> bool:
        """Whether the plug-in's PreFilter and Filter pass now."""
        return self._decide(pod, node) is not None

    def _decide(self, pod: int, node: int) -> _Decision:
        if pod != self._asked or self._puts != self._asked_at:  # a scan asks for one pod on many nodes
            self._asked, self._asked_at, self._asked_need = pod, self._puts, self._needs.of(pod, self._claims)
        need = self._asked_need
        if need is None:
            return None
        at = self._nodes.get(node) or self._node(node)
        now = self._changes.get(at.facts.name, 0) + self._wide_changes
        seen = self._seen.get((need.key, at.number))
        if seen is not None and seen[0] == now:
            return seen[1]
        decision = self._allocate(need.wanted, at.facts, at.offers)
        self._seen[need.key, at.number] = now, decision
        return decision

    def _allocate(self, wanted: Wanted, facts: NodeFacts, offers: list[Offer]) -> _Decision:
        if wanted.stale:
            return None
        found: _Decision = []
        asked = to_allocate(wanted, facts, self.ctx.informers.device_classes)
        if asked:
            try:
                found = self._allocator.allocate(asked, offers)
            except AllocationError:
                self._steady = False  # what is at fault may be given away, and is not looked at then
                return None
        if found is None:
            return None
        if not all(available(claim, facts, *self._patience) for claim in wanted.allocated):
            return None
        return found

    # -- changes -------------------------------------------------------------------------------------------------------

    def place(self, pod: int, node: int) -> bool:
        """The pod was placed: its claims get the devices that its Filter found, and are reserved for it. Put there
        without being asked, where it does not pass, it reserves nothing.

        Whether any verdict may be better than before. Pods without claims hold nothing, also if they ask for extended
        resources: the autoscaler runs Reserve for pods that list claims (``PredicateSnapshot.SchedulePod``).
        """
        keys = self._needs.keys[pod]
        if not keys:
            return False
        need, decision = self._needs.of(pod, self._claims), self._decide(pod, node)
        if need is None or decision is None:
            return False
        self._placed += 1
        of, facts = self._pods[pod], self._node(node).facts
        mark = f" {self._placed}" if self._alike else ""
        consumer = ResourceClaimConsumerReference(resource="pods", name=of.pod_name + mark, uid=of.pod_uid + mark)
        for key, devices in zip(need.open, decision, strict=False):
            to = (key[0], key[1] + mark) if key in self._needs.own[pod] else key
            self._hold(to, self._claims[key].claim, (), devices, facts.name)
        if len(decision) > len(need.open):  # it stands for extended resources
            claim = to_allocate(need.wanted, facts, self.ctx.informers.device_classes)[-1]
            self._hold(self._special(pod), claim, (consumer,), decision[-1], facts.name)
        for key in keys:
            held = self._claims[key]
            if all(c.uid != consumer.uid for c in held.consumers):
                self._put(key, msgspec.structs.replace(held, consumers=(*held.consumers, consumer)))
        return not self._steady or any(key not in self._needs.own[pod] for key in need.open)

    def _special(self, pod: int) -> ClaimKey:
        of = self._pods[pod]
        return of.namespace, f"<extended-resources> {of.pod_name}"

    def _hold(
        self,
        key: ClaimKey,
        claim: ResourceClaim,
        consumers: tuple[ResourceClaimConsumerReference, ...],
        devices: list[Given],
        node_name: str,
    ) -> None:
        holds = tuple(each.hold for each in devices)
        before = self._claims.get(key)
        self._put(
            key,
            HeldClaim(
                claim, consumers if before is None else before.consumers, allocation(claim, devices, node_name), holds
            ),
        )

    def unplace(self, pod: int, node: int) -> None:  # noqa: ARG002  (whatever node it was: claims know their devices)
        """The pod left: claims of its own, and those that nobody else uses, give their devices back
        (upstream: ``UnreservePodClaims``)."""
        of = self._pods[pod]
        for key in self._needs.keys[pod]:
            held = self._claims[key]
            rest = list(held.consumers)
            mine = next((c for c in rest if c.uid == of.pod_uid), None)
            if mine is not None:
                rest.remove(mine)
            if key in self._needs.own[pod] or not rest:
                held = msgspec.structs.replace(held, allocation=None, holds=())
            self._put(key, msgspec.structs.replace(held, consumers=tuple(rest)))
        if self._special(pod) in self._claims:
            self._put(self._special(pod), None)

    def _put(self, key: ClaimKey, held: HeldClaim | None) -> None:
        before = self._claims.get(key)
        self._puts += 1
        if self._marks:
            self._journal.append((key, before))
        old = () if before is None else before.holds
        new = () if held is None else held.holds
        if old is not new:
            for hold in old:
                self._inventory.give_back(hold)
            for hold in new:
                self._inventory.take(hold)
            for hold in (*old, *new):
                self._changed(hold)
        if held is None:
            self._claims.pop(key, None)
        else:
            self._claims[key] = held

    def _changed(self, hold: Hold) -> None:
        home = self._home.get(hold.identity)
        if home is None or self._inventory.counts(hold.identity):  # other nodes may draw on the same counters
            self._wide_changes += 1
        else:
            self._changes[home] = self._changes.get(home, 0) + 1

    # -- forks ---------------------------------------------------------------------------------------------------------

    def fork(self) -> None:
        """Remember this state."""
        self._marks.append((len(self._journal), len(self._added)))

    def revert(self) -> None:
        """Return to the state of the last fork."""
        length, added = self._marks[-1]
        while len(self._journal) > length:
            key, before = self._journal.pop()
            size = len(self._journal)
            self._put(key, before)
            del self._journal[size:]
        self._marks.pop()
        del self._added[added:]

    def commit(self) -> None:
        """Forget the last fork, keep what was done since."""
        self._marks.pop()
        if not self._marks:
            self._journal.clear()

    # -- looking -------------------------------------------------------------------------------------------------------

    def claims(self) -> dict[ClaimKey, ResourceClaim]:
        """The claims that pods of this simulation have to do with, as they stand."""
        return {key: held.replaced for key, held in self._claims.items()}

    def checksum(self) -> int:
        """Equal states have equal sums."""
        inventory = self._inventory
        state = (
            sorted((key, _encode(held.replaced.status)) for key, held in self._claims.items()),
            sorted(inventory.used.items()),
            sorted(inventory.shares.items()),
            sorted(
                (key, sorted((n, str(q.as_fraction())) for n, q in q.items())) for key, q in inventory.consumed.items()
            ),
            sorted(
                (key, str(q.as_fraction())) for key, q in inventory.available.items() if q != inventory.published[key]
            ),
        )
        from hashlib import blake2b  # loads OpenSSL: not for an answer that needs none

        return int.from_bytes(blake2b(repr(state).encode(), digest_size=8).digest(), "little")
