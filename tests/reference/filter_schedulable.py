"""Pending pods that fit on the nodes there are (cluster-autoscaler-scale-up 5.4, 5.6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reference import scheduler
from reference.cluster import Cluster, NodeState
from reference.equivalence import SimilarPods
from reference.scheduler import Failure, pod_key

Json = dict[str, Any]


def priority(pod: Json) -> int:
    return pod["spec"].get("priority") or 0


def hint_key(pod: Json) -> str:
    return pod["metadata"].get("uid") or pod_key(pod)


class Hints:
    """Where a pod went before; a hint survives one ageing without refresh."""

    def __init__(self) -> None:
        self.current: dict[str, str] = {}
        self.old: dict[str, str] = {}

    def get(self, pod: Json) -> str | None:
        key = hint_key(pod)
        return self.current.get(key, self.old.get(key))

    def set(self, pod: Json, node: str) -> None:
        self.current[hint_key(pod)] = node

    def drop_old(self) -> None:
        self.old, self.current = self.current, {}


@dataclass
class Outcome:
    placed: list[tuple[Json, str]] = field(default_factory=list)
    unschedulable: list[Json] = field(default_factory=list)
    overflowing: int = 0


def try_schedule_pods(
    cluster: Cluster,
    pods: list[Json],
    hints: Hints,
    acceptable: Callable[[NodeState], bool] = lambda node: True,
    *,
    break_on_failure: bool = False,
    max_looks: int | None = None,
) -> Outcome:
    """Places pods for good: by priority, hinted ones first, then round robin; the time is up after so many looks."""
    outcome = Outcome()
    looks = 0

    def expired() -> bool:
        nonlocal looks
        looks += 1
        return max_looks is not None and looks > max_looks

    similar = SimilarPods()
    for level in sorted({priority(pod) for pod in pods}, reverse=True):
        rest = []
        for pod in pods:
            if priority(pod) != level:
                continue
            if expired():
                return outcome
            node = cluster.find(hints.get(pod) or "")
            if node is not None and acceptable(node) and scheduler.schedule_pod(pod, node, cluster) is None:
                outcome.placed.append((pod, node.name))
                hints.set(pod, node.name)
            else:
                rest.append(pod)
        for pod in rest:
            if expired():
                return outcome
            result = None
            if not similar.is_unschedulable(pod):
                result = scheduler.schedule_pod_on_any_node(pod, cluster, acceptable)
                if isinstance(result, Failure):
                    similar.add(pod)
            if isinstance(result, str):
                outcome.placed.append((pod, result))
                hints.set(pod, result)
                continue
            outcome.unschedulable.append(pod)
            if break_on_failure:
                break
    outcome.overflowing = len(similar.overflowing)
    return outcome


@dataclass
class Filtered:
    """`remaining` in the processor's order; `placed` in placement order."""

    remaining: list[Json]
    placed: list[tuple[Json, str]]


def filter_out_schedulable(
    cluster: Cluster,
    pods: list[Json],
    hints: Hints,
    acceptable: Callable[[NodeState], bool] = lambda node: True,
    *,
    max_looks: int | None = None,
) -> Filtered:
    """The pods that remain pending, highest priority first; ages the hints. Pods not looked at do not remain."""
    ordered = sorted(pods, key=priority, reverse=True)
    outcome = try_schedule_pods(cluster, ordered, hints, acceptable, max_looks=max_looks)
    hints.drop_old()
    nowhere = {hint_key(pod) for pod in outcome.unschedulable}
    return Filtered([pod for pod in ordered if hint_key(pod) in nowhere], outcome.placed)
