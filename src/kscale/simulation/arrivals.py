"""Pods of a recorded trace: each comes when it came, and works as long as it worked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import groupby
from operator import itemgetter
from typing import Final

from msgspec.structs import replace

from kscale.effects import SECOND, Moment
from kscale.errors import InputError, Problem
from kscale.objects.core import Node, Pod
from kscale.objects.decode import from_dict
from kscale.objects.meta import KubeObject
from kscale.simulation.openb import OpenbNode, OpenbPod, openb_rows
from kscale.simulation.scenario import OpenbEntry
from kscale.simulation.values import Values
from kscale.world.simulated.draws import Spread
from kscale.world.simulated.kubelet import PodTimes
from kscale.world.simulated.turns import HAPPENINGS
from kscale.world.simulated.world import SimulatedWorld

__all__ = ["Arrivals", "openb_arrivals"]

_RANDOM: Final = "-[a-z0-9]{5}"
_SUFFIXES: Final = {
    "DaemonSet": _RANDOM, "Deployment": f"-[a-z0-9]+{_RANDOM}", "Job": _RANDOM, "ReplicaSet": _RANDOM,
    "ReplicationController": _RANDOM, "StatefulSet": "-[0-9]+",
}  # fmt: skip
"""What the names of pods have behind that of their workload."""


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """``pods``: what comes, and when, in that order; ``work``: of some, by key, how many nanoseconds; ``nodes``: what
    is there at the beginning; ``places``: of all that by kind and key, the file, row and column that names it."""

    pods: Sequence[tuple[Moment, Pod]] = ()
    work: Mapping[str, int] = field(default_factory=dict)
    nodes: Sequence[Node] = ()
    places: Mapping[tuple[str, str], tuple[str, str, str]] = field(default_factory=dict)

    def times(self, usual: Callable[[Pod], PodTimes]) -> Callable[[Pod], PodTimes]:
        """How long pods take: these work as long as they did, all else is as usual."""
        if not self.work:
            return usual

        def times(pod: Pod) -> PodTimes:
            found, work = usual(pod), self.work.get(pod.key)
            return found if work is None else replace(found, work=Spread.fixed(work))

        return times

    def made_by(self, workload: KubeObject) -> str | None:
        """The key of one that may have the name of a pod of a workload; None: there is none."""
        suffix = _SUFFIXES.get(workload.kind)
        if suffix is None or workload.namespace not in self._namespaces:
            return None
        named = re.compile(re.escape(workload.key) + suffix)
        return next((pod.key for _, pod in self.pods if named.fullmatch(pod.key)), None)

    @cached_property
    def _namespaces(self) -> frozenset[str]:
        return frozenset(pod.namespace for _, pod in self.pods)

    def enter(self, world: SimulatedWorld) -> None:
        """They come in a world."""
        for at, coming in groupby(self.pods, key=itemgetter(0)):
            world.time.at(at, partial(_come, world, [pod for _, pod in coming]), rank=HAPPENINGS)


def _come(world: SimulatedWorld, pods: Sequence[Pod]) -> None:
    for pod in pods:
        world.add(pod)


def openb_arrivals(entry: OpenbEntry | None, values: Values, begin: Moment, end: Moment) -> Arrivals:
    """What of an openb trace comes from ``begin``, its second 0, up to ``end``. What is wrong ``values`` keeps."""
    if entry is None:
        return Arrivals()
    try:
        pods = openb_rows(values.folder / entry.pods, OpenbPod)
        nodes = openb_rows(values.folder / entry.nodes, OpenbNode) if entry.nodes else {}
    except InputError as error:
        values.problems += error.problems
        return Arrivals()
    untimed = next((pod for pod in pods.values() if pod.creation_time is None), None)
    if untimed is not None:
        text = f"pod {untimed.name} has no creation_time"
        values.problems.append(Problem(text, source=str(values.folder / entry.pods), field="openb.pods"))
        return Arrivals()
    timed = [(begin + (pod.creation_time or 0) * SECOND, row, pod) for row, pod in pods.items()]
    coming = sorted((each for each in timed if each[0] <= end), key=lambda each: each[0])
    rows = {("Node", node.sn): (str(values.folder / entry.nodes), row, "sn") for row, node in nodes.items()}
    rows |= {("Pod", f"openb/{pod.name}"): (str(values.folder / entry.pods), row, "name") for _, row, pod in coming}
    return Arrivals(
        pods=[(at, from_dict(pod.manifest(), Pod)) for at, _, pod in coming],
        work={f"openb/{pod.name}": work for _, _, pod in coming if (work := _work(pod)) is not None},
        nodes=[from_dict(node.manifest(), Node) for node in nodes.values()],
        places=rows,
    )


def _work(pod: OpenbPod) -> int | None:
    """From when it had a node until it was deleted."""
    since = pod.creation_time if pod.scheduled_time is None else pod.scheduled_time
    if pod.deletion_time is None or since is None:
        return None
    return max(pod.deletion_time - since, 0) * SECOND
