"""What the nodes of a simulated cluster would have cost at best, and where the rest went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from kscale.capacity.mix import ALL, MixOptions, Offer, mix, offers_of
from kscale.effects import SECOND
from kscale.objects.autoscaling import HorizontalPodAutoscaler, MetricSpec
from kscale.objects.core import Node, Pod
from kscale.objects.owners import is_daemonset_pod
from kscale.simulation.records import IdealMix
from kscale.snapshot.cluster import Cluster
from kscale.world.simulated.machines import Pool
from kscale.world.simulated.owned_pods import Key
from kscale.world.simulated.pods import finished
from kscale.world.simulated.view import NOT_IN_COLUMNS
from kscale.world.simulated.world import SimulatedWorld

__all__ = ["IdealMixes"]

_EFFORT: Final = 200_000
"""Of each search: about a fifth of a second."""


class IdealMixes:
    """Looks at a world now and then (:meth:`look`), and splits what its machines cost at that moment.

    Of the machines that are paid for, some are no ready nodes yet (boot), some have no pods but those of DaemonSets
    (CA); the pods of the others would fit on the cheapest mix of nodes of the same groups (packing), and if each HPA
    had only as many pods as its load needs just then, on a cheaper one still (HPA). Nodes of no group have no price:
    they and their pods are left out, as are groups without one. What was paid is a mix, too: where the search finds a
    dearer one, that is the cheapest. Minimum nodes without pods are part of CA, so no minimum counts for the mix.
    """

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._moments = self._unplaced = 0
        self._methods: set[str] = set()
        self._sums = dict.fromkeys(("paid", "ideal", "bound", "hpa", "packing", "ca", "boot"), 0.0)

    def look(self) -> None:
        """Takes the present moment in."""
        pools = [pool for pool in self._world.cloud.pools.values() if pool.group.price is not None]
        nodes = self._world.api.of("Node")
        on: dict[str, list[Pod]] = {}
        for pod in self._world.api.of("Pod").values():
            if pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed") and not is_daemonset_pod(pod):
                on.setdefault(pod.spec.node_name, []).append(pod)
        paid = boot = idle = 0.0
        prices: dict[str, float] = {}  # of nodes with pods
        pods: list[Pod] = []
        for pool in pools:
            price = pool.group.price or 0.0
            for machine in pool.machines.values():
                if machine.error is not None:
                    continue
                paid += price
                node, mine = nodes.get(machine.name), on.get(machine.name, ())
                if node is not None and mine:
                    prices[node.name] = price
                    pods += mine
                elif node is not None and _is_ready(node):
                    idle += price
                else:
                    boot += price
        offers, used = [_offer_of(pool) for pool in pools], sum(prices.values())
        found, bound = self._cheapest(offers, pods, prices)
        ideal = packed = min(found, used)
        surplus = set(self._surplus())
        needed = [pod for pod in pods if pod.key not in surplus]
        if len(needed) < len(pods):
            found, bound = self._cheapest(offers, needed, prices)
            ideal = min(found, packed)
        self._moments += 1
        # What was paid may break the rules that the bound relies on: nodes unlike their group's template.
        parts = (paid, ideal, min(bound, ideal), packed - ideal, used - packed, idle, boot)
        for name, value in zip(self._sums, parts, strict=True):
            self._sums[name] += value

    def _cheapest(
        self, offers: Sequence[Offer], pods: Sequence[Pod], prices: Mapping[str, float]
    ) -> tuple[float, float]:
        """What an hour costs of the cheapest nodes found for some pods, and at least. Pods without a place there stay
        on the nodes that they are on, at their ``prices``."""
        if not pods or not offers:
            return 0.0, 0.0
        others = (item for item in self._world.api if item.kind not in NOT_IN_COLUMNS | {"Node", "Pod"})
        plan = mix(
            Cluster([*others, *pods]),
            offers,
            pods=ALL,
            options=MixOptions(bound_effort=_EFFORT, plan_effort=_EFFORT),
        )
        self._methods.add(plan.bound.method)
        self._unplaced = max(self._unplaced, plan.nowhere)
        lost = set(plan.nowhere_pods)
        stay = {pod.spec.node_name for pod in pods if pod.key in lost}
        return plan.cost + sum(prices[name] for name in stay), plan.bound.cost or 0.0

    # -- how many pods the load needs --------------------------------------------------------------------------------

    def _surplus(self) -> Iterator[str]:
        """The pods that HPAs have beyond what the load needs, by key, on any node: those that end or came last."""
        for hpa in self._world.api.of("HorizontalPodAutoscaler").values():
            target = hpa.spec.scale_target_ref
            key = target.kind, hpa.namespace, target.name
            mine = sorted(self._world.load.pods.of_workload(key), key=_ends)
            needed = self._needed(hpa, key, mine)
            if needed is not None:
                yield from (pod.key for pod in mine[needed:])

    def _needed(self, hpa: HorizontalPodAutoscaler, key: Key, pods: Sequence[Pod]) -> int | None:
        """How many pods would bring usage to the targets of an HPA; None: it goes by something else, too."""
        found = [self._needed_for(spec, key, pods) for spec in hpa.spec.metrics or ()]
        needed = [each for each in found if each is not None]
        if not pods or not needed or len(needed) < len(found):
            return None
        least = 1 if hpa.spec.min_replicas is None else hpa.spec.min_replicas
        return min(max(*needed, least), hpa.spec.max_replicas)

    def _needed_for(self, spec: MetricSpec, key: Key, pods: Sequence[Pod]) -> int | None:
        source, now = spec.resource, self._world.time.now
        if source is None or not pods:
            return None
        used = self._world.load.used(key, source.name, now - SECOND, now)
        if source.target.average_utilization is not None:
            requests = [each.resources.requests or {} for each in pods[0].spec.containers]
            whole = sum(each[source.name].milli_value() for each in requests if source.name in each)
            target = whole * source.target.average_utilization
        elif source.target.average_value is not None:
            target = source.target.average_value.milli_value() * 100
        else:
            return None
        if used is None or target <= 0:
            return None
        return -(-used * self._world.load.pods.ready(key) * 100 // target)

    def told(self, hours: float) -> IdealMix | None:
        """What it comes to over a run of so many hours; None: nobody has looked."""
        if not self._moments:
            return None
        each = {name: value * hours / self._moments for name, value in self._sums.items()}
        return IdealMix(moments=self._moments, methods=sorted(self._methods), unplaced=self._unplaced, **each)


def _offer_of(pool: Pool) -> Offer:
    """Return what the mix may have of a pool: up to its maximum, or as many nodes as it has if that is more."""
    (offer,) = offers_of([pool.group], anew=True)
    most = None if offer.most is None else max(offer.most, len(pool.machines))
    return msgspec.structs.replace(offer, least=0, most=most)


def _ends(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None or finished(pod)


def _is_ready(node: Node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
