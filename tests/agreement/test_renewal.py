"""What a cluster keeps from snapshot to snapshot answers as a cluster that was made of the same objects just now."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kscale
from examples import examples
from golden_support import decoded, profile_of
from kscale.objects.api.core import Pod
from kscale.scheduling.compile.pod_classes import PodCompiler
from kscale.scheduling.profile import Context
from kscale.scheduling.session import Session
from strategies import clusters

Json = dict[str, Any]
fewer = settings(max_examples=examples(1 / 2))

FEATURES = [("plain", "ports", "affinity", "spread", "volumes"), ("volumes",), ("affinity",), clusters.FEATURES]


def answers(snapshot: kscale.Snapshot, pods: list[Pod], profile: kscale.SchedulerProfile | None) -> dict[str, Any]:
    """Return the answers of every entry point for some pods and for the running pods."""
    fit = kscale.fit(snapshot, pods, profile=profile)
    moving = Session(snapshot, snapshot.placed_classes, profile=profile, moving=True)
    verdicts = moving.engine.verdicts(moving.classes_of(snapshot.placed_classes))
    row_of = {pod.index: row for row, pod in enumerate(snapshot.placed_classes)}
    placed = kscale.place(snapshot, pods, profile=profile)
    estimate = kscale.estimate(snapshot, pods, template=snapshot.columns.objects[0], profile=profile)
    return {
        "alone": {
            (pod.key, node): (fit.verdict(pod, node), fit.verdicts(pod, node), fit.prefilter(pod))
            for pod in pods
            for node in snapshot.nodes
        },
        "moving": [verdicts[row_of[index]].tolist() for index in snapshot.placed_class.tolist()],
        "placed": (placed.placed, placed.state),
        "estimate": (estimate.node_count, estimate.placed, estimate.reasons),
    }


def draw_objects(data: st.DataObject, features: clusters.Features) -> tuple[list[Json], Json, Json]:
    problem = data.draw(clusters.fit_problems(features))
    return problem["objects"], problem["pod"], problem["options"]


@pytest.mark.parametrize("features", FEATURES, ids="-".join)
@fewer
@given(data=st.data())
def test_cached_sessions_equal_fresh_ones(data: st.DataObject, features: clusters.Features) -> None:
    objects, pod, options = draw_objects(data, features)
    mode = {"csi": options.get("csi", False), "dra": options.get("dra", False)}
    cluster = kscale.Cluster(map(decoded, objects))
    pods = [decoded(pod)]
    for _ in range(3):
        profile = profile_of(options) if data.draw(st.booleans()) else None
        got = answers(cluster.snapshot(**mode), pods, profile)
        assert got == answers(kscale.Cluster(list(cluster)).snapshot(**mode), pods, profile)
        others, pod, options = draw_objects(data, features)
        pods = [*pods[-1:], decoded({**pod, "metadata": {**pod["metadata"], "name": "newer", "uid": "newer"}})][
            : data.draw(st.integers(1, 2))
        ]
        for each in data.draw(st.lists(st.sampled_from(others), max_size=4)):
            cluster.apply(decoded(each))
        removed = data.draw(st.lists(st.sampled_from([*cluster][1:] or [*cluster]), max_size=2))
        for each in removed if len([*cluster]) > 1 else ():
            cluster.remove(each)


@settings(max_examples=examples(2 / 3))
@given(data=st.data())
def test_plain_classes_share_the_queries_of_each(data: st.DataObject) -> None:
    features = ("plain", "ports", "affinity", "spread", "volumes", "dra")
    world = data.draw(clusters.clusters(features, max_nodes=2, max_pods=0))
    pods = [data.draw(clusters.pods(f"p{i}", features)) for i in range(4)]
    for dra in (False, True):
        snapshot = kscale.Cluster([*world["objects"], *pods]).snapshot(dra=dra)
        known = PodCompiler(Context(snapshot, kscale.SchedulerProfile()))
        for pod in filter(known.is_plain, snapshot.pending_classes):
            shared, own = known.get(pod), known._compile(pod, ())
            assert (shared.outcome, shared.node_filters, shared.columns) == (own.outcome, own.node_filters, own.columns)
            assert own.counters == ()
            assert known._get_dependencies(pod) == ()
