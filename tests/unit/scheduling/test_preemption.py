"""Who goes for a pod of a higher priority."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from kscale import InputError
from kscale.scheduling.preemption import Preemption, preempt
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.cluster import Cluster
from reference.preemption import preempted
from unit.scheduling.score_cases import node, pod

Json = dict[str, Any]
BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "b", "namespace": "default"},
    "spec": {"selector": {"matchLabels": {"budget": "none"}}},
    "status": {"disruptionsAllowed": 0},
}


def running(name: str, on: str, cpu: int, priority: int = 0, minute: int = 0, *, protected: bool = False) -> Json:
    labels = {"app": name[0], **({"budget": "none"} if protected else {})}
    created = pod(name, {"cpu": f"{cpu}m"}, on=on, labels=labels, priority=priority)
    return {**created, "status": {"phase": "Running", "startTime": f"2026-01-01T00:{minute:02}:00Z"}}


def resized(pod_: Json, cpu: int) -> Json:
    """A pod that still holds what it had before its spec said less."""
    resources = {"cpu": f"{cpu}m"}
    status = {
        "name": pod_["spec"]["containers"][0]["name"],
        "allocatedResources": resources,
        "resources": {"requests": resources},
    }
    return {**pod_, "status": {**pod_["status"], "containerStatuses": [status]}}


def vip(cpu: int, priority: int = 100, **spec: Any) -> Json:
    return pod("vip", {"cpu": f"{cpu}m"}, priority=priority, **spec)


def preempt_result(*items: Json, budgets: bool = False, **options: Any) -> tuple[str, set[str], int] | None:
    snapshot = Cluster([*items, *([BUDGET] if budgets else [])]).snapshot()
    created: Preemption | None = preempt(snapshot, "default/vip", **options)
    if created is None:
        return None
    return created.node, {name.removeprefix("default/") for name in created.victims}, created.violations


ONE = node("n1", cpu="4")
TWO = (ONE, node("n2", cpu="4"))
CASES: dict[str, tuple[list[Json], tuple[str, set[str], int] | None]] = {
    "nobody is less important": ([ONE, running("a", "n1", 4000, 100), vip(1000)], None),
    "it would not fit even so": ([ONE, running("a", "n1", 4000), vip(5000)], None),
    "a node that nobody's end would help with": (
        [node("n1", cpu="4", unschedulable=True), running("a", "n1", 4000), vip(1000)],
        None,
    ),
    "the most important stay": (
        [ONE, running("a", "n1", 2000, 1), running("b", "n1", 2000, 2), vip(2000)],
        ("n1", {"a"}, 0),
    ),
    "of equals those that have run for long stay": (
        [ONE, running("a", "n1", 2000, minute=5), running("b", "n1", 2000, minute=3), vip(2000)],
        ("n1", {"a"}, 0),
    ),
    "the node whose victims matter least": (
        [*TWO, running("a", "n1", 4000, 2), running("b", "n2", 4000, 1), vip(1000)],
        ("n2", {"b"}, 0),
    ),
    "then the smallest sum of priorities": (
        [*TWO, running("a", "n1", 2000, 1), running("b", "n1", 2000, 1), running("c", "n2", 4000, 1), vip(4000)],
        ("n2", {"c"}, 0),
    ),
    "then the one that began last": (
        [*TWO, running("a", "n1", 4000, minute=1), running("b", "n2", 4000, minute=9), vip(1000)],
        ("n2", {"b"}, 0),
    ),
    "then the first": ([*TWO, running("a", "n1", 4000), running("b", "n2", 4000), vip(1000)], ("n1", {"a"}, 0)),
    "what a resized pod takes is what it has been given": (
        [ONE, resized(running("a", "n1", 1000, 2), 3000), running("b", "n1", 1000, 1), vip(2000)],
        ("n1", {"a"}, 0),
    ),
    "one that does not preempt": (
        [ONE, running("a", "n1", 4000), vip(1000, preemptionPolicy="Never")],
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_victims_are_those_of_upstream(name: str) -> None:
    items, expected = CASES[name]
    assert preempt_result(*items) == expected


def test_budgets_are_respected_if_possible() -> None:
    items = [*TWO, running("a", "n1", 4000, protected=True), running("b", "n2", 4000, 50), vip(4000)]
    assert preempt_result(*items) == ("n1", {"a"}, 0)
    assert preempt_result(*items, budgets=True) == ("n2", {"b"}, 0)
    assert preempt_result(items[0], items[2], items[4], budgets=True) == ("n1", {"a"}, 1)


def test_a_budget_that_knows_of_an_end_does_not_count_it() -> None:
    chosen = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}
    for disrupted, expected in (({}, ("n1", {"a"}, 1)), ({"a": "2026-01-01T00:00:00Z"}, ("n1", {"a"}, 0))):
        status = {"disruptionsAllowed": 0, "disruptedPods": disrupted}
        budget = {**BUDGET, "spec": {"selector": chosen}, "status": status}
        elsewhere = {**budget, "metadata": {"name": "e", "namespace": "elsewhere"}, "status": {"disruptionsAllowed": 0}}
        created = preempt_result(ONE, running("a", "n1", 4000), vip(4000), budget, elsewhere)
        assert created == expected


def test_so_many_candidates_are_enough() -> None:
    items = [*TWO, running("a", "n1", 4000, 2), running("b", "n2", 4000, 1), vip(1000)]
    assert preempt_result(*items, least_percentage=0, least_candidates=1) == ("n1", {"a"}, 0)


def test_anti_affinity_makes_room_too() -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    items = [ONE, running("a", "n1", 100), running("b", "n1", 100), vip(1000, affinity=apart)]
    assert preempt_result(*items) == ("n1", {"a"}, 0)


def test_a_pod_that_does_not_wait() -> None:
    with pytest.raises(InputError, match="no pending pod"):
        preempt_result(ONE, running("vip", "n1", 100))


PODS = st.lists(
    st.tuples(
        st.sampled_from(["n1", "n2", "n3"]), st.integers(1, 4), st.integers(0, 3), st.integers(0, 9), st.booleans()
    ),
    max_size=9,
)


@settings(max_examples=examples(1 / 4))
@given(pods=PODS, cpu=st.integers(1, 4), priority=st.integers(1, 4))
def test_preemption_agrees_with_rebuilt_clusters(
    pods: list[tuple[str, int, int, int, bool]], cpu: int, priority: int
) -> None:
    nodes = [node(name, cpu="4") for name in ("n1", "n2", "n3")]
    items = [
        running(f"p{i}", on, 1000 * size, important, minute, protected=protected)
        for i, (on, size, important, minute, protected) in enumerate(pods)
    ]
    coming = vip(1000 * cpu, priority)
    full = Cluster([*nodes, *items, coming]).snapshot()
    if any(bool(ok) for ok in full.free("cpu") >= 1000 * cpu):
        return  # it has a place
    created = preempt_result(*nodes, *items, coming, budgets=True)
    assert (None if created is None else (created[0], sorted(created[1]))) == preempted(nodes, items, coming)


def test_profile_decides_which_filters_block_preemption() -> None:
    tainted = node("n1", cpu="4", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    items = [tainted, running("a", "n1", 3000), vip(3000)]
    assert preempt_result(*items) is None
    assert preempt_result(*items, profile=SchedulerProfile(disabled_filters=frozenset({"TaintToleration"}))) == (
        "n1",
        {"a"},
        0,
    )
