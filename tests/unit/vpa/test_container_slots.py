"""Cached container slots equal new lookups, whatever happens to pods."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kscale.effects import Progress
from kscale.objects.pod_metrics import JoinedLists
from kscale.vpa import RecommenderState, fork_state, save_state
from kscale.vpa.controllers import Controllers, run_without_requests
from kscale.vpa.model.add_samples import ContainerUsage, add_container_usage, find_slot
from kscale.vpa.model.saved_state import UsageError, add_usage
from kscale.vpa.model.usage import CPU_SAMPLE, Usage
from kscale.vpa.recommender.cluster_feeder import load_vpas_steps
from unit.vpa.builders import controller, vpa

T0 = 1767571200 * 10**9
APPS, PODS, CONTAINERS = ("x", "y"), ("p0", "p1", "p2"), ("c", "d")
KNOWN = Controllers(controller("ReplicaSet", app, selector={"matchLabels": {"app": app}}) for app in APPS)
NAMES = [("default", pod, container) for pod in PODS for container in CONTAINERS]

comes = st.tuples(
    st.sampled_from(PODS),
    st.sampled_from(APPS),
    st.sets(st.sampled_from(CONTAINERS), min_size=1),
    st.frozensets(st.sampled_from(CONTAINERS), max_size=1),
)
happenings = st.lists(comes | st.sampled_from(PODS) | st.integers(0, 3) | st.none(), max_size=12)


def world() -> RecommenderState:
    state = RecommenderState()
    vpas = []
    for app in APPS:
        item = vpa(targetRef={"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app})
        item.metadata.name = app
        vpas.append(item)
    run_without_requests(load_vpas_steps(state, vpas, KNOWN, Progress(T0)))
    return state


def happen(state: RecommenderState, what: object) -> None:
    """A pod comes or changes, or goes; an aggregate is garbage; usage is told of."""
    match what:
        case (str(name), str(app), set() as containers, frozenset() as init):
            pod = state.add_pod("default", name, {"app": app}, "Running", T0)
            for container in sorted(containers):
                state.add_container(pod, container, T0)
            state.set_init_containers(pod, init)
        case str(name):
            state.delete_pod(("default", name))
        case int(number) if state.aggregates:
            state.remove_aggregate(list(state.aggregates.values())[number % len(state.aggregates)])


@given(happenings)
def test_containers_are_where_they_would_be_found(what: list[object]) -> None:
    state = world()
    for each in what:
        happen(state, each)
        anew = fork_state(state)
        assert [find_slot(state, name, T0) for name in NAMES] == [find_slot(anew, name, T0) for name in NAMES]
        assert state.store.aggregate.tolist() == anew.store.aggregate.tolist()
        for vpa_ in state.vpas.values():
            mine, theirs = state.slots_of(vpa_), anew.slots_of(anew.vpas[vpa_.key])
            assert (mine.slot.tolist(), mine.names) == (theirs.slot.tolist(), theirs.names)
            assert mine.name.tolist() == theirs.name.tolist()


LISTS = [[name] for name in NAMES]
untold = st.sets(st.sampled_from(range(len(LISTS))), max_size=2)


def take(state: RecommenderState, lists: list[list[tuple[str, str, str]]], at: int) -> list[UsageError]:
    """Usage of each container at a moment: what is refused."""
    names = JoinedLists(lists)
    time, value = np.full(len(names), at), np.arange(len(names), dtype=np.int64)
    return add_usage(state, Usage(names, np.arange(len(names), dtype=np.int32), time, value, CPU_SAMPLE), at)


@given(st.lists(st.tuples(comes | st.sampled_from(PODS) | st.integers(0, 3), untold)))
def test_usage_of_repeated_lists_reaches_the_same_aggregates(what: list[Any]) -> None:
    state, anew = world(), world()
    for step, (each, without) in enumerate(what):
        for one in (state, anew):
            happen(one, each)
        lists = [names for number, names in enumerate(LISTS) if number not in without]
        for at in (T0 + 2 * step, T0 + 2 * step + 1):  # what is found the first time is known the second
            assert take(state, lists, at) == take(anew, [list(names) for names in lists], at)
        assert save_state(state) == save_state(anew)


ages = st.tuples(*[st.sampled_from((0, 0, 0, 60 * 10**9, -(10**9), -8 * 10**18))] * len(NAMES))  # the last: refused


@given(happenings, st.lists(st.tuples(ages, st.booleans()), min_size=1, max_size=3))
def test_samples_by_resource_are_added_like_alternating_ones(
    what: list[object], scrapes: list[tuple[tuple[int, ...], bool]]
) -> None:
    """Also those of unknown and init containers, and those that are refused, whose order stays."""
    state, anew = world(), world()
    for each in what:
        happen(state, each)
        happen(anew, each)
    known = {(*pod, container) for pod, each in state.pods.items() for container in each.containers}
    for step, (of_names, only_known) in enumerate(scrapes):
        at = T0 + step * 60 * 10**9
        rows = [row for row, name in enumerate(NAMES) if name in known or not only_known]
        time, cpu = np.array(of_names)[rows] + at, np.arange(len(rows), dtype=np.int64) * 100
        usage = ContainerUsage([NAMES[row] for row in rows], time, cpu, cpu * 2**20)
        assert add_container_usage(state, usage, at) == add_usage(anew, usage.to_usage(), at)
    assert save_state(state) == save_state(anew)
