"""Place pods as Karpenter does: first-fit decreasing onto nodes and node claims.

:func:`place_pods` is the only implementation of this rule. Plans, what-if scenarios and the simulated
Karpenter all call it.

Upstream: ``sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling`` (``scheduler.go``, ``queue.go``,
``existingnode.go``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kscale.capacity.karpenter.node_claim import (
    REQUIRED_EFFECTS,
    Alternative,
    Daemon,
    NodeClaim,
    NodeClaimTemplate,
    OfferedPools,
    PlannedClaim,
    alternatives_of,
    share_ports,
)
from kscale.capacity.karpenter.requirements import Operator, Requirements, requirement
from kscale.capacity.karpenter.topology import (
    ALL_EFFECTS,
    DomainChoice,
    PlacedPod,
    Topology,
    TopologyNode,
    choose_first,
)
from kscale.objects.api.apps import DaemonSet
from kscale.objects.api.core import Pod, Taint
from kscale.objects.node_selectors import HOSTNAME
from kscale.objects.pod_owners import is_daemonset_pod
from kscale.objects.pod_resources import CPU, MEMORY, PODS, occupancy, to_integers
from kscale.objects.taints import tolerates_all
from kscale.objects.workloads import daemonset_pod
from kscale.scheduling.coercion import pods_of
from kscale.scheduling.fork import Fork, fork
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.snapshot import Snapshot
from kscale.vpa.updater.priority import sort_as_go

__all__ = ["Placement", "place_pods"]

_OWN_RULES = frozenset({"TaintToleration", "NodeAffinity", "PodTopologySpread", "InterPodAffinity"})
"""Plug-ins of the scheduler in whose place Karpenter has rules of its own."""
_REPAIRED = 50
"""Minimum length from which Go's sort repairs a list in which only few elements are out of place."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Nodes that pods would go to.

    Attributes
    ----------
    pods : list of str
        The pods that were asked about, without those of DaemonSets.
    existing : dict
        Node of the snapshot by pod.
    claims : list of PlannedClaim
        New nodes.
    unschedulable : list of str
        Pods that nothing takes.
    unmodelled : list of str
        Constraints of pods that the placement ignores, with their number of pods.
    reasons : list of str
        Why no NodePool takes each of ``unschedulable``.
    """

    pods: list[str]
    existing: dict[str, str]
    claims: list[PlannedClaim]
    unschedulable: list[str]
    unmodelled: list[str]
    reasons: list[str]


def place_pods(
    snapshot: Snapshot,
    pods: Sequence[str | Pod],
    offered: OfferedPools,
    *,
    remaining: Mapping[str, Mapping[str, int]] | None = None,
    last: Collection[str] = (),
    unavailable: Collection[str] = (),
    choose: DomainChoice = choose_first,
) -> Placement:
    """Place pods as Karpenter's scheduler does.

    Parameters
    ----------
    snapshot : Snapshot
        The nodes that pods may go to, with their pods, and the DaemonSets.
    pods : sequence of str or Pod
        Pods without a node: names of the snapshot's pending pods, or pods that are not in the snapshot. Those of
        DaemonSets are left out.
    offered : OfferedPools
        What new nodes may be.
    remaining : mapping, optional
        What the limits of each NodePool leave, by pool and resource. Default: what they leave beside the nodes for
        which the pools were converted.
    last : collection of str
        Nodes that are tried after all others, as they are not initialized yet.
    unavailable : collection of str
        Groups of offerings that the cloud cannot launch now.
    choose : callable
        Called with the number of a pod, a topology key and the domains that the topology allows equally well; returns
        one of the domains. Default: the first in alphabetical order. Upstream takes any.

    Returns
    -------
    Placement
        The node or node claim of each pod.

    Raises
    ------
    InputError
        If a pod cannot be read, or a named pod is not in the snapshot or is named twice.

    Notes
    -----
    Upstream: ``pkg/controllers/provisioning/scheduling/scheduler.go`` (``Solve``, ``trySchedule``, ``add``). On nodes
    that exist, the scheduler's own predicates decide about resources, host ports, volumes and devices.
    """
    records = pods_of(snapshot, pods)
    movable = [pod for pod, record in zip(pods, records, strict=True) if not is_daemonset_pod(record.pod)]
    if len(movable) < len(records):
        records = pods_of(snapshot, movable)
    limits = offered.remaining if remaining is None else remaining
    return _Scheduler(snapshot, records, offered, limits, frozenset(last), frozenset(unavailable), choose).solve()


@dataclass(slots=True)
class _Shape:
    """Pods of one class with equal preferences."""

    number: int
    pod: PodClass
    request: NDArray[np.int64]
    amounts: Mapping[str, int]
    alternatives: list[Alternative]
    only_tightens: list[bool]
    """For each alternative: whether a node that refuses such a pod refuses all later ones."""
    starts: list[int] = field(default_factory=list)
    """For each alternative: how many existing nodes take no such pod any more."""
    refusing: list[set[int]] = field(default_factory=list)
    """For each alternative: the claims that take no such pod any more."""
    cannot_fit: bool = False
    """Whether nothing can take such a pod any more."""


@dataclass(slots=True)
class _ExistingNode:
    """A node that exists: what it has left, and what its new pods require of it."""

    number: int
    node: TopologyNode
    requirements: Requirements
    remaining: dict[str, int]

    def has_room(self, amounts: Mapping[str, int]) -> bool:
        """Check whether the node has room for a pod. ``amounts``: its requests by resource.

        As in Karpenter, a node that has a negative amount left of any resource takes no pod at all.
        """
        remaining = self.remaining
        if any(amount < 0 for amount in remaining.values()):
            return False
        return all(amount <= remaining.get(name, 0) for name, amount in amounts.items())


class _Scheduler:
    def __init__(
        self,
        snapshot: Snapshot,
        records: Sequence[PodRecord],
        offered: OfferedPools,
        remaining: Mapping[str, Mapping[str, int]],
        last: frozenset[str],
        unavailable: frozenset[str],
        choose: DomainChoice,
    ) -> None:
        self._snapshot, self._records, self._offered = snapshot, records, offered
        self._names = [record.key for record in records]
        self._last = last
        self._undefined = offered.undefined
        self._daemons = [
            Daemon.of(daemonset_pod(each)) for each in snapshot.informers.workloads if isinstance(each, DaemonSet)
        ]
        self._classes, numbers = snapshot.distinct_classes(self._records)
        self._class_of: list[int] = numbers.tolist()
        resources = {PODS: 0}
        for amounts in (*(pod.occupancy for pod in self._classes), *(each.request for each in self._daemons)):
            for name in amounts:
                resources.setdefault(name, len(resources))
        self._resources = resources
        self._templates = [
            NodeClaimTemplate(pool, offered, self._daemons, resources, remaining.get(pool.name, {}), unavailable)
            for pool in offered.pools
        ]
        taints = [taint for template in self._templates for taint in template.taints]
        self._tolerates_preferences = any(taint.effect == "PreferNoSchedule" for taint in taints)
        self._unmodelled: Counter[str] = Counter()
        self._shapes: list[_Shape] = []
        self._shape_of = list(self._find_shapes())
        for number in self._class_of:
            for text in _unmodelled(self._classes[number]):
                self._unmodelled[text] += 1
        self._existing: dict[str, str] = {}
        self._claims: list[NodeClaim] = []
        self._order: list[NodeClaim] = []
        """Claims in the order in which they were tried last."""
        self._changed: int | None = None
        """Position of the only claim in the order that may be out of place."""
        self._choose = choose

    # -- input -------------------------------------------------------------------------------------------------------

    def _find_shapes(self) -> Iterator[_Shape]:
        """Yield the :class:`_Shape` of each pod in turn; equal pods share one.

        New shapes are added to the scheduler.
        """
        shapes: dict[tuple[int, str], _Shape] = {}
        for number, record in zip(self._class_of, self._records, strict=True):
            pod = self._classes[number]
            affinity = record.pod.spec.affinity
            node_affinity = affinity.node_affinity if affinity is not None else None
            preferred = "" if node_affinity is None else repr((node_affinity.preferred, node_affinity.required))
            spread = repr(record.pod.spec.topology_spread_constraints)
            key = number, preferred + spread
            if key not in shapes:
                amounts = {**pod.occupancy, PODS: 1}
                request = np.zeros(len(self._resources), dtype=np.int64)
                for name, position in self._resources.items():
                    request[position] = amounts.get(name, 0)
                alternatives = list(alternatives_of(record.pod, tolerates_preferences=self._tolerates_preferences))
                shapes[key] = _Shape(
                    len(shapes),
                    pod,
                    request,
                    amounts,
                    alternatives,
                    [each.topology.only_tightens for each in alternatives],
                    [0] * len(alternatives),
                    [set() for _ in alternatives],
                )
                self._shapes.append(shapes[key])
            yield shapes[key]

    @cached_property
    def _nodes(self) -> list[_ExistingNode]:
        """Return the existing nodes in the order in which they are tried, with what is left of their resources.

        Also registers the nodes' host names in the topology.
        """
        world, _ = self._world
        names, last = self._snapshot.nodes, self._last
        reserved = self._requested_by_daemons
        # Upstream lets pods of DaemonSets tolerate PreferNoSchedule when it looks at the types of a NodePool.
        has_types = any(template.types and template.can_meet_minimum_values for template in self._templates)
        effects = REQUIRED_EFFECTS if has_types else ALL_EFFECTS
        result = []
        for number in sorted(range(len(names)), key=lambda n: (names[n] in last, names[n])):
            node = self._topology_nodes[number]
            free, slots = world.free(number)
            host = node.labels.get(HOSTNAME) or node.name
            running = [each for each in self._daemons if each.runs_on_node(node.requirements, node.taints, effects)]
            expected: Counter[str] = Counter()
            for daemon in running:
                expected.update(daemon.request)
            expected.subtract(reserved.get(number, {}))
            remaining = {**free, PODS: slots}
            for name in remaining:
                remaining[name] -= max(0, expected.get(name, 0))
            requirements = node.requirements.with_([requirement(HOSTNAME, Operator.IN, [host])])
            result.append(_ExistingNode(number, node, requirements, remaining))
            self._topology.register(HOSTNAME, host)
        return result

    @cached_property
    def _requested_by_daemons(self) -> dict[int, Counter[str]]:
        """Return the sums of requests of the DaemonSet pods on each node, by resource and by position of the node."""
        result: dict[int, Counter[str]] = {}
        if self._daemons:
            for node, record in zip(self._snapshot.placed_node.tolist(), self._snapshot.placed, strict=True):
                if is_daemonset_pod(record.pod):
                    amounts = {**to_integers(occupancy(record.pod)), PODS: 1}
                    result.setdefault(node, Counter()).update(amounts)
        return result

    @cached_property
    def _topology_nodes(self) -> list[TopologyNode]:
        """Return the existing nodes with their labels and taints, as topology groups read them."""
        result = []
        for node in self._snapshot.columns.objects:
            labels = node.metadata.labels or {}
            requirements = Requirements(requirement(key, Operator.IN, [value]) for key, value in labels.items())
            result.append(TopologyNode(node.metadata.name, labels, requirements, node.spec.taints))
        return result

    @cached_property
    def _topology(self) -> Topology:
        """Return the topology, with a group for each constraint of the pods to place, in which placed pods count."""
        snapshot = self._snapshot
        classes = snapshot.interner.classes
        placed = [
            PlacedPod(node, pod.namespace, pod.labels or {}, pod.terminating, pod.tolerations, pod.anti_affinity)
            for node, number in zip(snapshot.placed_node.tolist(), snapshot.placed_class.tolist(), strict=True)
            for pod in (classes[number],)
        ]
        topology = Topology(
            self._offered.domains_of, self._topology_nodes, placed, snapshot.informers.namespaces, self._choose
        )
        for shape in self._shapes:
            topology.update(shape.alternatives[0].topology)
        return topology

    @cached_property
    def _world(self) -> tuple[Fork, list[int]]:
        """Return (copy of the snapshot on which pods are placed, number of each pod's class in that copy)."""
        world = fork(self._snapshot, self._records, profile=SchedulerProfile(disabled_filters=_OWN_RULES))
        return world, world.session.classes_of(self._snapshot.classify(self._records)).tolist()

    # -- decisions ---------------------------------------------------------------------------------------------------

    def solve(self) -> Placement:
        """Place all pods; try rejected pods again until no more can be placed."""
        # A pod that its topology refused may fit once others were placed: pods are tried until no try succeeds.
        queue = deque(sorted(range(len(self._names)), key=self._sort_key))
        lengths: dict[int, int] = {}
        if queue:
            _ = self._nodes  # the topology knows all nodes before the first pod
        while queue and lengths.get(queue[0]) != len(queue):
            i = queue.popleft()
            if not self._add(i):
                queue.append(i)
                lengths[i] = len(queue)
        refused = sorted(queue)
        reasons: dict[int, str] = {}
        for i in refused:
            shape = self._shape_of[i]
            if shape.number not in reasons:
                reasons[shape.number] = self._explain(i, shape)
        return Placement(
            pods=self._names,
            existing=self._existing,
            claims=[claim.plan(self._names) for claim in self._claims],
            unschedulable=[self._names[i] for i in refused],
            unmodelled=[f"{text}: {count:,} pods" for text, count in self._unmodelled.items()],
            reasons=[reasons[self._shape_of[i].number] for i in refused],
        )

    def _sort_key(self, i: int) -> tuple[int, int, str, str]:
        """Return the key of pod ``i`` for the order of placement: most cpu first, then most memory, oldest, UID."""
        amounts, metadata = self._classes[self._class_of[i]].occupancy, self._records[i].pod.metadata
        created = str(metadata.creation_timestamp or "")
        return -amounts.get(CPU, 0), -amounts.get(MEMORY, 0), created, metadata.uid

    def _add(self, i: int) -> bool:
        """Place pod ``i`` on an existing node, an open claim or a new claim. Returns False if nothing takes the pod.

        The pod's preferences are requirements at first, and are dropped one at a time.
        """
        shape = self._shape_of[i]
        if shape.cannot_fit:
            return False
        for which in range(len(shape.alternatives)):
            if self._add_to_existing(i, shape, which):
                return True
            if self._add_to_claim(i, shape, which) or self._add_to_new_claim(i, shape, which):
                return True
        # Nodes get fuller, claims narrower and limits smaller, but other pods may make room for a spread or affinity.
        shape.cannot_fit = all(shape.only_tightens)
        return False

    def _add_to_existing(self, i: int, shape: _Shape, which: int) -> bool:
        """Place pod ``i`` on the first existing node that takes it. Returns False if none does.

        ``which``: position of the alternative among those of the shape.
        """
        nodes = self._nodes
        if not nodes:
            return False
        world, numbers = self._world
        alternative = shape.alternatives[which]
        position = shape.starts[which] if shape.only_tightens[which] else 0
        while position < len(nodes):
            node = nodes[position]
            requirements = self._requirements_on(i, shape, alternative, node)
            if requirements is not None and world.schedule(numbers[i], node.number):
                break
            position += 1
        if shape.only_tightens[which]:
            shape.starts[which] = position
        if position == len(nodes):
            return False
        assert requirements is not None
        if len(requirements) > len(node.requirements):  # a label that the node lacks may have a value for later pods
            for other in self._shapes:
                other.starts = [min(start, position) for start in other.starts]
                other.cannot_fit = False
        node.requirements = requirements
        for name, amount in shape.amounts.items():
            if name in node.remaining:
                node.remaining[name] -= amount
        self._topology.record(alternative.topology, node.node.taints, requirements)
        self._existing[self._names[i]] = node.node.name
        return True

    def _requirements_on(
        self, i: int, shape: _Shape, alternative: Alternative, node: _ExistingNode
    ) -> Requirements | None:
        """Return the requirements of an existing node together with those of pod ``i``.

        None if the node does not take the pod.
        """
        taints = node.node.taints
        if not _tolerates(shape, alternative, taints) or not node.has_room(shape.amounts):
            return None
        if not node.requirements.is_compatible(alternative.requirements):
            return None
        requirements = node.requirements.with_(alternative.requirements.values())
        return self._with_topology(i, alternative, requirements, frozenset())

    def _with_topology(
        self, i: int, alternative: Alternative, requirements: Requirements, undefined: frozenset[str]
    ) -> Requirements | None:
        """Return the requirements of a node narrowed to the domains that the topology allows pod ``i``.

        None if no domain is left. ``undefined``: labels that the node need not mention.
        """
        more = self._topology.requirements_for(i, alternative.topology, alternative.strict, requirements)
        if not more:
            return None if more is None else requirements
        tightened = requirements.with_(more)
        if not requirements.is_compatible(tightened, undefined=undefined):
            return None
        return tightened

    def _add_to_claim(self, i: int, shape: _Shape, which: int) -> bool:
        """Add pod ``i`` to the claim with the fewest pods that takes it. Returns False if none does.

        ``which``: position of the alternative among those of the shape.
        """
        self._sort_claims()
        alternative, refusing = shape.alternatives[which], shape.refusing[which]
        only_tightens = shape.only_tightens[which]
        for position, claim in enumerate(self._order):
            if claim.number in refusing:
                continue
            if not claim.has_room(shape.request):
                refusing.add(claim.number)
            elif self._try(i, claim, shape, alternative):
                self._changed = position
                return True
            elif only_tightens:
                refusing.add(claim.number)
        return False

    def _sort_claims(self) -> None:
        """Sort the claims by their number of pods. Ties end up as upstream's unstable sort leaves them."""
        order, changed = self._order, self._changed
        if changed is None:
            return
        self._changed = None
        count, size = len(order[changed].members), len(order)
        before = changed > 0 and len(order[changed - 1].members) > count
        after = changed + 1 < size and len(order[changed + 1].members) < count
        if not before and not after:
            return
        samples = [size // 4 * part for part in (1, 2, 3)]
        if size < _REPAIRED or any(abs(changed - sample) <= 1 for sample in samples):
            self._order = sort_as_go(order, lambda first, second: len(first.members) < len(second.members))
            return
        # A long list in which one element is out of place, and none that the sort samples, is repaired in a stable way.
        claim = order.pop(changed)
        find = bisect_right if before else bisect_left
        order.insert(find(order, count, key=lambda each: len(each.members)), claim)

    def _add_to_new_claim(self, i: int, shape: _Shape, which: int) -> bool:
        """Open a claim of the first NodePool that takes pod ``i``. Returns False if none does.

        ``which``: position of the alternative among those of the shape.
        """
        for template in self._templates:
            allowed = template.within_limits()
            if not template.can_meet_minimum_values or not allowed.any():
                continue
            claim = self._open(template, allowed)
            if self._try(i, claim, shape, shape.alternatives[which]):
                self._claims.append(claim)
                self._changed = len(self._order)
                self._order.append(claim)
                template.take(claim.types)
                return True
        return False

    def _open(self, template: NodeClaimTemplate, types: NDArray[np.bool_]) -> NodeClaim:
        """Build a claim without pods for ``types`` (bool[types]). It is not added to the claims."""
        request = np.zeros(len(self._resources), dtype=np.int64)
        claim = NodeClaim(template, template.requirements, types, request, len(self._claims))
        claim.requirements = claim.requirements.with_([requirement(HOSTNAME, Operator.IN, [claim.hostname])])
        return claim

    def _try(self, i: int, claim: NodeClaim, shape: _Shape, alternative: Alternative) -> bool:
        """Add pod ``i`` to a claim. Returns False, and changes nothing, if the claim does not take the pod."""
        labels = len(claim.requirements)
        if self._find_refusal(i, claim, shape, alternative) is not None:
            return False
        if len(claim.requirements) > labels and claim.members:  # see _add_to_existing
            for other in self._shapes:
                other.cannot_fit = False
                for refusing in other.refusing:
                    refusing.discard(claim.number)
        claim.members.append(i)
        if shape.pod.ports:
            claim.ports.append(shape.pod.ports)
        self._topology.register(HOSTNAME, claim.hostname)
        self._topology.record(alternative.topology, claim.template.taints, claim.requirements)
        return True

    def _find_refusal(self, i: int, claim: NodeClaim, shape: _Shape, alternative: Alternative) -> str | None:
        """Narrow a claim to the needs of pod ``i`` and return None; if the claim does not take the pod, return why.

        A claim that does not take the pod is unchanged. The reason is a text, or one of ``taints``, ``requirements``
        and ``types``, which :meth:`_find_reason` explains.
        """
        template = claim.template
        if not _tolerates(shape, alternative, template.taints):
            return "taints"
        if not claim.requirements.is_compatible(alternative.requirements, undefined=self._undefined):
            return "requirements"
        requirements = claim.requirements.with_(alternative.requirements.values())
        tightened = self._with_topology(i, alternative, requirements, self._undefined)
        if tightened is None:
            return "spread over or affinity to other pods cannot be met"
        request = claim.request + shape.request
        fits: NDArray[np.bool_] = claim.types & (template.rooms >= request).all(axis=1)
        if shape.pod.ports:
            if any(share_ports(shape.pod.ports, ports) for ports in claim.ports):
                return "its host ports are taken"
            fits &= template.free_of_ports(shape.pod.ports)
        types = fits & template.suitable(tightened)
        if not types.any():
            return "types"
        if not template.has_minimum_values(tightened, types):
            return "minValues cannot be met"
        claim.requirements, claim.types, claim.request = tightened, types, request
        return None

    # -- reasons -----------------------------------------------------------------------------------------------------

    def _explain(self, i: int, shape: _Shape) -> str:
        """Return a line that says why each NodePool refuses pod ``i``, even without its preferences."""
        alternative = shape.alternatives[-1]
        return "; ".join(f"{each.name}: {self._find_reason(i, each, shape, alternative)}" for each in self._templates)

    def _find_reason(self, i: int, template: NodeClaimTemplate, shape: _Shape, alternative: Alternative) -> str:
        """Return a text that says why a NodePool refuses pod ``i``."""
        everything = np.ones(len(template.types), dtype=bool)
        if not template.types:
            return "the cloud has no capacity for its types"
        if not template.can_meet_minimum_values:
            return "its types cannot meet minValues"
        within = template.within_limits()
        if not within.any():
            return "its limits leave no node"
        reason = self._find_refusal(i, self._open(template, within), shape, alternative)
        if reason == "taints":
            taint = next(each for each in template.taints if not _tolerates(shape, alternative, [each]))
            value = f"={taint.value}" if taint.value else ""
            return f"does not tolerate {taint.key}{value}:{taint.effect}"
        if reason == "requirements":
            for key, each in alternative.requirements.items():
                if not template.requirements.is_compatible(Requirements([each]), undefined=self._undefined):
                    return f"conflict on {key}"
            return f"conflict on {HOSTNAME}"
        if reason == "types":
            return self._find_type_reason(i, template, shape, alternative, everything, within)
        return reason or "it takes no such pod"

    def _find_type_reason(
        self,
        i: int,
        template: NodeClaimTemplate,
        shape: _Shape,
        alternative: Alternative,
        everything: NDArray[np.bool_],
        within: NDArray[np.bool_],
    ) -> str:
        """Return a text that says why no instance type of a NodePool suits pod ``i``.

        ``everything``, ``within``: bool[types], all types, and those that the limits allow.
        """
        suits = template.suitable(template.requirements.with_(alternative.requirements.values()))
        if not suits.any():
            return "no type meets the pod's requirements"
        fits = (template.rooms >= shape.request).all(axis=1)
        if not (suits & fits).any():
            return "no type is large enough"
        if not (suits & fits & within).any():
            return "its limits leave no node that is large enough"
        if self._find_refusal(i, self._open(template, everything), shape, alternative) is None:
            return "its limits leave no node that is large enough"
        return "no type suits both the pod and the other pods of its topology"


def _tolerates(shape: _Shape, alternative: Alternative, taints: Sequence[Taint]) -> bool:
    """Check whether pods of a shape tolerate the taints that count in an alternative of their requirements."""
    return tolerates_all(shape.pod.tolerations, taints, effects=alternative.effects, comparison_operators=True)


def _unmodelled(pod: PodClass) -> Iterator[str]:
    """Yield a text for each constraint of a pod that is ignored on new nodes."""
    if pod.has_claims:
        yield "volumes (zones, limits of nodes)"
    if pod.claims:
        yield "devices (dynamic resource allocation)"
