"""How Cluster Autoscaler runs the plug-ins (scheduler-predicates 2 and 3; cluster-autoscaler-scale-up 3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reference.cluster import ERROR, SKIP, UNRESOLVABLE, UNSCHEDULABLE, Cluster, Json, NodeState, Status, namespace_of
from reference.plugins import PROFILE, dynamic_resources


@dataclass(frozen=True)
class Failure:
    """Why a pod was not placed; `message` is upstream's error text."""

    pod: str
    plugin: str = ""
    reasons: tuple[str, ...] = ()
    unexpected: str = ""
    debug: str = ""
    nowhere: bool = False

    @property
    def type(self) -> str:
        return "NoNodesPassingPredicatesFoundError" if self.nowhere else "FailingPredicateError"

    @property
    def message(self) -> str:
        head = f"can't schedule pod {self.pod}: "
        if self.nowhere:
            return head + "couldn't find a matching Node with passing predicates"
        parts = [f"predicateReasons=[{', '.join(self.reasons)}]"]
        if self.debug:
            parts.append(f"debugInfo={self.debug}")
        if self.unexpected:
            parts.append(f"unexpectedError={self.unexpected}")
        return head + f'predicate "{self.plugin}" didn\'t pass ({"; ".join(parts)})'


def pod_key(pod: Json) -> str:
    return f"{namespace_of(pod)}/{pod['metadata']['name']}"


@dataclass
class Attempt:
    """The outcome of the PreFilter phase: a failure, or what the Filters need."""

    failure: Failure | None = None
    skipped: set[str] = field(default_factory=set)
    states: dict[str, Any] = field(default_factory=dict)
    node_names: set[str] | None = None
    choosers: list[str] = field(default_factory=list)


def run_pre_filters(pod: Json, cluster: Cluster) -> Attempt:
    """All PreFilters over the whole snapshot (2.3)."""
    attempt = Attempt()
    pending: Failure | None = None
    for plugin in PROFILE:
        answer = plugin.pre_filter(pod, cluster)
        status = answer.status
        if status is not None and status.code == SKIP:
            attempt.skipped.add(plugin.NAME)
            continue
        if status is not None:
            reasons = status.reasons
            if status.code == ERROR:
                reasons = (f'running PreFilter plugin "{plugin.NAME}": {status.reasons[0]}',)
            failure = Failure(pod_key(pod), plugin.NAME, reasons, "PreFilter failed")
            if status.code == UNSCHEDULABLE:
                pending = failure
                continue
            return Attempt(failure)
        attempt.states[plugin.NAME] = answer.state
        if answer.node_names is not None:
            attempt.choosers.append(plugin.NAME)
            names = answer.node_names
            attempt.node_names = names if attempt.node_names is None else attempt.node_names & names
            if not attempt.node_names:
                return Attempt(Failure(pod_key(pod), "", (rejection_reason(attempt.choosers),), "PreFilter failed"))
    attempt.failure = pending
    return attempt


def rejection_reason(choosers: list[str]) -> str:
    if len(choosers) == 1:
        return f"node(s) didn't satisfy plugin {choosers[0]}"
    return f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(choosers))}] simultaneously"


def run_filters(attempt: Attempt, pod: Json, node: NodeState, cluster: Cluster) -> Failure | None:
    """The first Filter that fails on one node (2.4)."""
    for plugin in PROFILE:
        if plugin.NAME in attempt.skipped or plugin.NAME in cluster.options.disabled_filters:
            continue
        status: Status | None = plugin.check(attempt.states[plugin.NAME], pod, node, cluster)
        if status is None:
            continue
        debug = f'nodeName: "{node.name}"'
        if status.code in (UNSCHEDULABLE, UNRESOLVABLE):
            return Failure(pod_key(pod), plugin.NAME, status.reasons, debug=debug)
        reason = f'running "{plugin.NAME}" filter plugin: {status.reasons[0]}'
        unexpected = f'unexpected filter status "{ERROR}"'
        return Failure(pod_key(pod), plugin.NAME, (reason,), unexpected, debug)
    return None


def check_predicates(pod: Json, node: NodeState, cluster: Cluster) -> Failure | None:
    """Whether a pod can run on one node: None, or the failure (3.2)."""
    attempt = run_pre_filters(pod, cluster)
    if attempt.failure:
        return attempt.failure
    if attempt.node_names is not None and node.name not in attempt.node_names:
        plugin = ", ".join(sorted(attempt.choosers))
        return Failure(pod_key(pod), plugin, (), "PreFilter filtered the Node out")
    return run_filters(attempt, pod, node, cluster)


def find_node(
    pod: Json, cluster: Cluster, acceptable: Callable[[NodeState], bool] | None = None
) -> NodeState | Failure:
    """The first passing node after the cursor, round robin; moves the cursor (3.3)."""
    attempt = run_pre_filters(pod, cluster)
    if attempt.failure:
        return attempt.failure
    count = len(cluster.nodes)
    for step in range(count):
        index = (cluster.cursor + 1 + step) % count
        node = cluster.nodes[index]
        if attempt.node_names is not None and node.name not in attempt.node_names:
            continue
        if (node.node.get("spec") or {}).get("unschedulable"):
            continue
        if acceptable is not None and not acceptable(node):
            continue
        if run_filters(attempt, pod, node, cluster) is None:
            cluster.cursor = index
            return node
    return Failure(pod_key(pod), nowhere=True)


def schedule_pod(pod: Json, node: NodeState, cluster: Cluster) -> Failure | None:
    """Places the pod on this node if it can run there."""
    failure = check_predicates(pod, node, cluster)
    if failure is None:
        place(pod, node, cluster)
    return failure


def schedule_pod_on_any_node(
    pod: Json, cluster: Cluster, acceptable: Callable[[NodeState], bool] | None = None
) -> str | Failure:
    """Places the pod on the node the search finds; the node's name, or the failure."""
    result = find_node(pod, cluster, acceptable)
    if isinstance(result, Failure):
        return result
    place(pod, result, cluster)
    return result.name


def place(pod: Json, node: NodeState, cluster: Cluster) -> None:
    dynamic_resources.reserve(pod, node, cluster)
    node.pods.append(pod)


def all_failing(pod: Json, node: NodeState, cluster: Cluster) -> list[tuple[str, str, tuple[str, ...]]]:
    """Every Filter run on its own: (plug-in, code, reasons) of those that fail; node sets are not applied."""
    result = []
    for plugin in PROFILE:
        answer = plugin.pre_filter(pod, cluster)
        if answer.status is not None or plugin.NAME in cluster.options.disabled_filters:
            continue
        status = plugin.check(answer.state, pod, node, cluster)
        if status is not None:
            result.append((plugin.NAME, status.code, status.reasons))
    return result


@dataclass
class PreFilterReport:
    skipped: list[str] = field(default_factory=list)
    failures: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    node_sets: list[tuple[str, list[str]]] = field(default_factory=list)


def prefilter_report(pod: Json, cluster: Cluster) -> PreFilterReport:
    """Every PreFilter run on its own, even after one that fails."""
    report = PreFilterReport()
    for plugin in PROFILE:
        answer = plugin.pre_filter(pod, cluster)
        if answer.status is not None and answer.status.code == SKIP:
            report.skipped.append(plugin.NAME)
        elif answer.status is not None:
            report.failures.append((plugin.NAME, answer.status.code, answer.status.reasons))
        elif answer.node_names is not None:
            report.node_sets.append((plugin.NAME, sorted(answer.node_names)))
    report.skipped.sort()
    return report
