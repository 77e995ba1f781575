"""What a table needs from whoever answers it: a few operations over Kubernetes JSON.

A problem is a dict in the shape of a recorded input (`objects`, `pod`, `options`; `estimates`; `rounds`), an answer
is in the shape of the recorded answer. A second engine is a second `Engine` value, and a test module that runs the
tables on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reference import equivalence, estimator, filter_schedulable, legacy, scheduler
from reference.cluster import Cluster, NodeState
from reference.scheduler import Failure, pod_key
from reference_golden import recorded

Json = dict[str, Any]


@dataclass(frozen=True)
class Engine:
    """The operations, by the names the tables use."""

    name: str
    # (problem, node name) -> {"ok": True} or a recorded failure without debug
    check_predicates: Callable[[Json, str], Json]
    # (problem, node name) -> [{"plugin", "code", "reasons"}], each Filter on its own
    all_failing: Callable[[Json, str], list[Json]]
    # problem -> {"skipped", "failures", "node_sets"}; the last two only if not empty
    prefilter: Callable[[Json], Json]
    # problem -> {"ok": True, "node", "cursor"} or a recorded failure
    any_node: Callable[[Json], Json]
    # problem with `estimates` -> the recorded answer
    estimate: Callable[[Json], Json]
    # pods in order -> namespace/name per equivalence group
    groups: Callable[[list[Json]], list[list[str]]]
    # problem with `rounds` -> the recorded answer
    filter_schedulable: Callable[[Json], Json]
    # What follows is inside the engine; None where it cannot be asked, and its tables are then left out.
    # (groups, template node) -> index of the group that the fast path takes, or -1
    fast_path_choice: Callable[[list[list[Json]], Json], int] | None = None
    # (thresholds as (nodes, seconds) or a function of the number of starts, steps) -> one bool per "ask" step;
    # a step is ("start", now) or ("ask", now)
    limiter: Callable[[list[Any], list[tuple[str, float]]], list[bool]] | None = None
    # steps ("add" | "is", pod) -> (one bool per "is", number of overflowing controllers)
    similar_pods: Callable[[list[tuple[str, Json]]], tuple[list[bool], int]] | None = None
    # (objects, pods, hints, acceptable nodes or None) -> (pod, node) in placement order
    try_schedule: Callable[[list[Json], list[Json], Json, list[str] | None], list[tuple[str, str]]] | None = None
    # ("basic" | "binpacking", pods, template node, coming nodes) -> new nodes
    legacy: Callable[[str, list[Json], Json, list[Json]], int] | None = None


def _cluster(problem: Json) -> Cluster:
    return Cluster(problem["objects"], problem.get("options"))


def _check_predicates(problem: Json, node: str) -> Json:
    cluster = _cluster(problem)
    state = cluster.find(node)
    assert state is not None
    failure = scheduler.check_predicates(problem["pod"], state, cluster)
    return {"ok": True} if failure is None else recorded.failure_record(failure)


def _all_failing(problem: Json, node: str) -> list[Json]:
    cluster = _cluster(problem)
    state = cluster.find(node)
    assert state is not None
    return [recorded.failing(*each) for each in scheduler.all_failing(problem["pod"], state, cluster)]


def _any_node(problem: Json) -> Json:
    cluster = _cluster(problem)
    result = scheduler.schedule_pod_on_any_node(problem["pod"], cluster)
    if isinstance(result, Failure):
        return recorded.failure_record(result)
    return {"ok": True, "node": result, "cursor": cluster.cursor}


def _groups(pods: list[Json]) -> list[list[str]]:
    return [[pod_key(pod) for pod in group] for group in equivalence.groups(pods)]


def _limiter(thresholds: list[Any], steps: list[tuple[str, float]]) -> list[bool]:
    starts = 0
    answers = []
    limiter = estimator.Limiter([])
    for step, now in steps:
        if step == "ask":
            answers.append(limiter.permission(now))
            continue
        threshold_inputs = [each(starts) if callable(each) else each for each in thresholds]
        limiter.thresholds = [estimator.Threshold(*each) for each in threshold_inputs]
        limiter.start(now)
        starts += 1
    return answers


def _similar_pods(steps: list[tuple[str, Json]]) -> tuple[list[bool], int]:
    cache = equivalence.SimilarPods()
    answers = []
    for step, pod in steps:
        if step == "add":
            cache.add(pod)
        else:
            answers.append(cache.is_unschedulable(pod))
    return answers, len(cache.overflowing)


def _try_schedule(
    objects: list[Json], pods: list[Json], hints: Json, acceptable: list[str] | None
) -> list[tuple[str, str]]:
    known = filter_schedulable.Hints()
    for pod in pods:
        if pod["metadata"]["name"] in hints:
            known.set(pod, hints[pod["metadata"]["name"]])

    def accepts(node: NodeState) -> bool:
        return acceptable is None or node.name in acceptable

    outcome = filter_schedulable.try_schedule_pods(Cluster(objects), pods, known, accepts)
    return [(pod["metadata"]["name"], node) for pod, node in outcome.placed]


def _legacy(estimator_name: str, pods: list[Json], template: Json, coming: list[Json]) -> int:
    if estimator_name == "basic":
        return legacy.basic(pods, template, coming)
    return legacy.binpacking(pods, estimator.Template(template), coming)


REFERENCE = Engine(
    name="reference",
    check_predicates=_check_predicates,
    all_failing=_all_failing,
    prefilter=lambda problem: recorded.fit(problem)["prefilter"],
    any_node=_any_node,
    estimate=recorded.estimates,
    groups=_groups,
    filter_schedulable=recorded.filter_rounds,
    fast_path_choice=estimator.best_for_fast_path,
    limiter=_limiter,
    similar_pods=_similar_pods,
    try_schedule=_try_schedule,
    legacy=_legacy,
)
