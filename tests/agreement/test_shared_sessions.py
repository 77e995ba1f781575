"""A session on shared pod classes that places pods, then checks templates, answers as two new sessions do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kscale
from examples import examples
from golden_support import decoded, profile_of
from kscale.ca.estimator.binpacking import EstimateCache, estimate_in_session
from kscale.ca.estimator.result import EstimateOptions, group_pods
from kscale.objects.api.core import Pod
from kscale.objects.nodegroup import NodeTemplate
from kscale.scheduling.compile.pod_classes import SharedPodClasses
from kscale.scheduling.place import PlaceState, place_in_session
from kscale.scheduling.session import Session
from strategies import clusters

Json = dict[str, Any]

FEATURES = [
    ("plain", "ports", "affinity", "spread", "volumes", "csi"),
    ("volumes",),
    ("affinity", "spread"),
    clusters.FEATURES,
]


def copies_of(elements: list[Json], suffix: str) -> list[Pod]:
    pods = []
    for element in elements:
        for i in range(element["count"]):
            metadata = element["pod"]["metadata"]
            name = f"{metadata['name']}-{suffix}{i}"
            pods.append(decoded({**element["pod"], "metadata": {**metadata, "name": name, "uid": name}}))
    return pods


def answers(session: Session, grouped: Any, unplaced: list[Any], template: NodeTemplate) -> Json:
    """What a session says of classes that are left, on existing nodes and on a copy of its template."""
    classes = [pod.pod_class or session.snapshot.classify([pod])[0] for pod in unplaced]
    numbers = session.classes_of(classes).tolist()
    on_copy = session.verdicts_on_copy(0, 0, numbers)
    estimate = estimate_in_session(
        session.snapshot, grouped, template, 0, EstimateOptions(thresholds=()), session, EstimateCache()
    )
    nodes = range(len(session.snapshot.nodes))
    return {
        "nodes": [[session.verdict(number, node) for node in nodes] for number in numbers],
        "copy": [on_copy[number] for number in numbers],
        "free": [session.free_on(node)[1] for node in nodes],
        "estimate": (estimate.node_count, estimate.placed, estimate.reasons, estimate.unmodelled, estimate.runs),
    }


@pytest.mark.parametrize("features", FEATURES, ids="-".join)
@settings(max_examples=examples(1))
@given(data=st.data())
def test_a_shared_session_answers_as_new_ones(data: st.DataObject, features: clusters.Features) -> None:
    problem = data.draw(clusters.clusters(features))
    full_cluster = kscale.Cluster(map(decoded, problem["objects"]))
    profile = profile_of(problem["options"]) if data.draw(st.booleans()) else None
    csi = problem["options"].get("csi", False)
    template = NodeTemplate(node=decoded(data.draw(clusters.nodes("tmpl", features))))
    shared = SharedPodClasses()
    for number in range(3):
        cluster = full_cluster.copy()
        for name in data.draw(st.lists(st.sampled_from(full_cluster.snapshot().nodes), max_size=2, unique=True)):
            for key in cluster.keys_on([name]):
                cluster.remove("Pod", key)
            cluster.remove("Node", name)
        pods = copies_of(data.draw(clusters.pending_pods(features, max_shapes=3, max_copies=3)), f"{number}-")
        snapshot = cluster.snapshot(csi=csi)
        records = group_pods(snapshot, pods).records
        session = Session(snapshot, snapshot.distinct_classes(records)[0], [template], profile, shared=shared)
        placed = place_in_session(session, records, state=PlaceState())
        alone = kscale.place(snapshot, pods, profile=profile)
        assert (placed.placed, placed.unschedulable, placed.state) == (alone.placed, alone.unschedulable, alone.state)
        unplaced, after = placed.unschedulable_records, placed.snapshot_after
        if not unplaced:
            continue
        grouped = group_pods(after, unplaced)
        new = Session(after, grouped.unique, [template], profile)
        new.engine.cursor = session.engine.cursor
        shared_session = session.with_pods_placed(after)
        assert answers(shared_session, grouped.in_session(session), unplaced, template) == answers(
            new, grouped, unplaced, template
        )
