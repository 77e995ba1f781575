"""Pods that changed are as good as the whole list."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale.effects import Action, List
from kscale.objects.api.core import Pod
from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.objects.selectors import parse_selector
from kscale.vpa import (
    Controllers,
    PodChanges,
    RecommenderOptions,
    RecommenderResult,
    RecommenderRound,
    RecommenderState,
    Usage,
    diff_pods,
    recommender_steps,
)
from kscale.vpa.model.saved_state import CPU_SAMPLE
from unit.vpa.builders import container, controller, pod, vpa
from unit.vpa.worlds import World, counted

T0 = 1767571200 * 10**9
HOUR = 3600 * 10**9
APPS = ("x", "y", "z")
KNOWN = Controllers(controller("ReplicaSet", app, selector={"matchLabels": {"app": app}}) for app in APPS)

live = st.dictionaries(st.integers(0, 5), st.tuples(st.sampled_from(APPS), st.sampled_from(["Running", "Failed"])))
targets = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from([*APPS, "gone"]))
rounds = st.lists(st.tuples(live, targets, st.integers(0, 40)), min_size=1, max_size=5)


def pods_of(given_pods: dict[int, tuple[str, str]]) -> list[Pod]:
    return [
        pod(container("c"), name=f"p{i}", labels={"app": app}, status={"phase": phase})
        for i, (app, phase) in sorted(given_pods.items())
    ]


def vpas_of(given_targets: dict[str, str]) -> list[VerticalPodAutoscaler]:
    result = []
    for name, app in sorted(given_targets.items()):
        item = vpa(targetRef={"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app})
        item.metadata.name = name
        result.append(item)
    return result


def one_round(
    state: RecommenderState, pods: list[Pod], changes: PodChanges, vpas: list[VerticalPodAutoscaler], now: int
) -> tuple[RecommenderResult, World]:
    def answer(action: Action) -> Any:
        if isinstance(action, List) and action.kind == "Pod":
            selector = parse_selector(action.selector)
            return [one for one in pods if selector.matches(one.metadata.labels or {})]
        return []

    events = [(("default", f"p{i}", "c"), now, 100 * (i + 1), CPU_SAMPLE) for i in range(6)]
    usage = [Usage.from_events(events)]
    world = World(answer=answer)
    this = RecommenderRound(vpas=vpas, pods=changes, controllers=KNOWN, usage=usage)
    return world.run(recommender_steps(state, this, now=now), now), world


def remembered(state: RecommenderState) -> Any:
    pods = {key: (pod.labels, pod.phase, pod.sources, sorted(pod.containers)) for key, pod in state.pods.items()}
    samples = {key: int(state.store.samples[one.row]) for key, one in state.aggregates.items()}
    return pods, samples, state.unselected_pods, state.sources()


@pytest.mark.parametrize("saver", [False, True])
@given(rounds)
def test_changes_are_as_good_as_lists(saver: bool, given_rounds: list[Any]) -> None:
    options = RecommenderOptions(memory_saver=saver, storage="prometheus")
    from_lists, parts = RecommenderState(options), RecommenderState(options)
    before: dict[int, tuple[str, str]] = {}
    now = T0
    for given_pods, given_targets, hours in given_rounds:
        now += hours * HOUR
        pods, vpas = pods_of(given_pods), vpas_of(given_targets)
        changed = [i for i, what in sorted(given_pods.items()) if before.get(i) != what]
        deleted = [("default", f"p{i}") for i in before if i not in given_pods]
        changes = PodChanges(changed=pods_of({i: given_pods[i] for i in changed}), deleted=deleted)
        expected, listed = one_round(from_lists, pods, diff_pods(from_lists, pods), vpas, now)
        result, later = one_round(parts, pods, changes, vpas, now)
        assert (result.vpas, result.errors, result.collected) == (expected.vpas, expected.errors, expected.collected)
        assert counted(later.observations) == counted(listed.observations)
        assert remembered(parts) == remembered(from_lists)
        before = given_pods
