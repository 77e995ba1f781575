"""Selections of pods, and joins of usage and pods, that reuse the last ones equal new ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kscale.hpa.batch.pods import JoinedUsage, SelectedPods, join_usage, to_batch_pods
from kscale.hpa.options import DEFAULT_OPTIONS
from kscale.objects.api.metrics import PodMetrics
from kscale.objects.decode import from_dict
from kscale.objects.pod_metrics import PodUsage
from kscale.snapshot.cluster import Cluster

APPS, PODS = ("a", "b", "c"), ("p0", "p1")
SELECTIONS = [("shop", "app=a"), ("shop", "app in (b,c)"), ("shop", "app")]

comes = st.tuples(st.sampled_from(APPS), st.sampled_from(PODS), st.sampled_from(APPS))  # app, name, label
happenings = st.one_of(
    comes.map(lambda each: ("pod", *each)),
    comes.map(lambda each: ("no pod", *each)),
    comes.map(lambda each: ("usage", *each)),
    comes.map(lambda each: ("no usage", *each)),
    st.just(("other numbers",)),
)


class World:
    """Pods of three apps, all with usage at first, a list for each app; a list that changes is made anew."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.usage: dict[str, dict[str, str]] = {app: {} for app in APPS}
        self.parts: dict[str, PodUsage] = {}
        for app in APPS:
            for name in PODS:
                self.happen("pod", app, name, app)
                self.happen("usage", app, name, app)

    def happen(self, what: str, app: str = "", name: str = "", label: str = "") -> None:
        match what:
            case "pod":
                meta = {"name": f"{app}-{name}", "namespace": "shop", "labels": {"app": label}}
                container = {"name": "c", "resources": {"requests": {"cpu": f"{ord(label)}m"} if label != "c" else {}}}
                status = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"} if label == "b" else {}
                pod = {"metadata": meta, "spec": {"containers": [container]}, "status": status}
                self.cluster.apply({"apiVersion": "v1", "kind": "Pod", **pod})
            case "no pod":
                self.cluster.remove("Pod", f"shop/{app}-{name}")
            case "usage":
                self.usage[app][f"{app}-{name}"] = label
                self.parts.pop(app, None)
            case "no usage":
                self.usage[app].pop(f"{app}-{name}", None)
                self.parts.pop(app, None)
            case _:
                self.cluster = Cluster(reversed([*self.cluster]))

    def join_usage(self) -> PodUsage:
        for app in APPS:
            if app not in self.parts:
                self.parts[app] = PodUsage.of([item(name, label) for name, label in self.usage[app].items()])
        return PodUsage.concatenate(list(self.parts.values()))


def item(name: str, label: str) -> PodMetrics:
    metadata = {"name": name, "namespace": "shop", "labels": {"app": label}}
    data = {"metadata": metadata, "window": "30s", "containers": [{"name": "c", "usage": {"cpu": "1"}}]}
    return from_dict(data, PodMetrics)


@given(st.lists(st.lists(happenings, max_size=3), max_size=6))
def test_incremental_usage_join_equals_a_fresh_join(rounds: list[list[tuple[str, ...]]]) -> None:
    world, before = World(), None
    for happened in [[], *rounds]:
        for each in happened:
            world.happen(*each)
        pods, usage = to_batch_pods(world.cluster), world.join_usage()
        selected = pods.select(SELECTIONS)
        again, anew = (join_usage(usage, pods, selected, SELECTIONS, last) for last in (before, None))
        assert usage_rows(again) == usage_rows(anew)
        before = again


@given(st.lists(st.lists(happenings, max_size=3), max_size=6))
def test_selections_that_reuse_the_last_ones_equal_new_ones(rounds: list[list[tuple[str, ...]]]) -> None:
    world, groups = World(), np.arange(len(SELECTIONS))
    selected: SelectedPods | None = None
    for happened in [[], *rounds]:
        for each in happened:
            world.happen(*each)
        pods = to_batch_pods(world.cluster)
        selected, fresh = pods.select(SELECTIONS, selected), pods.select(SELECTIONS)
        for mine, expected in zip(selected_columns(selected), selected_columns(fresh), strict=True):
            assert (mine.dtype, mine.tolist()) == (expected.dtype, expected.tolist())
        requests = [each.requests_of(groups, pods, "", "cpu", DEFAULT_OPTIONS) for each in (selected, fresh)]
        assert [each.tolist() for each in requests[0]] == [each.tolist() for each in requests[1]]


def selected_columns(selected: SelectedPods) -> tuple[NDArray[Any], ...]:
    return selected.ends, selected.rows, *selected.columns.arrays


def test_changed_positions_are_known_if_all_pods_have_usage() -> None:
    world = World()
    pods, usage = to_batch_pods(world.cluster), world.join_usage()
    before = join_usage(usage, pods, pods.select(SELECTIONS), SELECTIONS)
    world.happen("no pod", "a", "p0")
    world.happen("no usage", "a", "p0")
    world.happen("pod", "c", "p2", "c")
    world.happen("usage", "c", "p2", "c")
    pods, usage = to_batch_pods(world.cluster), world.join_usage()
    assert before.placed is not None
    again = before.placed.update(usage, pods)
    assert again is not None
    assert [pods.keys[row] for row in again.rows.tolist()] == list(usage.keys)


def test_for_a_round_there_is_no_usage_at_all() -> None:
    """As where every question was refused."""
    world = World()
    pods, usage = to_batch_pods(world.cluster), world.join_usage()
    selected = pods.select(SELECTIONS)
    before = join_usage(usage, pods, selected, SELECTIONS)
    assert before.placed is not None
    for nothing in (PodUsage.concatenate([]), PodUsage.of([])):
        result = join_usage(nothing, pods, selected, SELECTIONS, before)
        assert usage_rows(result) == usage_rows(join_usage(nothing, pods, selected, SELECTIONS))
        assert usage_rows(join_usage(usage, pods, selected, SELECTIONS, result)) == usage_rows(before)


def usage_rows(usage: JoinedUsage) -> tuple[object, ...]:
    return usage.item.tolist(), usage.answered.tolist(), usage.others
