"""What a table needs from whoever answers it: a few operations over Kubernetes JSON.

A problem is a dict in the shape of a recorded input (`objects`, `pod`, `options`; `estimates`; `rounds`), an answer
is in the shape of the recorded answer. A second engine is a second `Engine` value, and a test module that runs the
tables on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reference import equivalence, scheduler
from reference.cluster import Cluster
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
    found = scheduler.schedule_pod_on_any_node(problem["pod"], cluster)
    if isinstance(found, Failure):
        return recorded.failure_record(found)
    return {"ok": True, "node": found, "cursor": cluster.cursor}


def _groups(pods: list[Json]) -> list[list[str]]:
    return [[pod_key(pod) for pod in group] for group in equivalence.groups(pods)]


REFERENCE = Engine(
    name="reference",
    check_predicates=_check_predicates,
    all_failing=_all_failing,
    prefilter=lambda problem: recorded.fit(problem)["prefilter"],
    any_node=_any_node,
    estimate=recorded.estimates,
    groups=_groups,
    filter_schedulable=recorded.filter_rounds,
)
