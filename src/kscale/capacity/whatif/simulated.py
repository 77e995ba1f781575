"""The question ``simulate``: what a horizon of time comes to. Who simulates is told by whoever asks: see
:class:`~kscale.simulation.simulator.Simulator`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kscale.ca.options import AutoscalingOptions
from kscale.effects import Moment
from kscale.objects.nodegroup import NodeGroup
from kscale.snapshot.cluster import Cluster

__all__ = ["Simulate", "Simulated"]


@dataclass(frozen=True, slots=True)
class Simulated:
    """``hours`` of simulated time; ``node_hours`` of each group in them, ``nodes`` there are at the end, and the pods
    that wait then (``waiting``). ``pending_seconds`` of all pods together; ``decisions``: what autoscalers did, in
    order, each with its moment. ``change``: how many nodes more (or less) each group has at the end."""

    hours: float
    node_hours: Mapping[str, float]
    nodes: int
    waiting: frozenset[str]
    pending_seconds: float
    decisions: Sequence[str]
    change: Mapping[str, int] = field(default_factory=dict)


Simulate = Callable[[Cluster, Sequence[NodeGroup], AutoscalingOptions, Moment], Simulated]
"""From a cluster, its node groups, the options of its Cluster Autoscaler and the moment at which it begins."""
