"""Forks of random clusters with all plug-ins and devices at once: what is undone never happened."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from golden_support import decoded, profile_of, world
from kscale._native import _engine
from kscale.objects.nodegroup import NodeTemplate
from kscale.scheduling.fork import Fork
from strategies import clusters

Json = dict[str, Any]
fewer = settings(max_examples=examples(1 / 2))
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["schedule", "anywhere", "leave", "add", "fork", "revert", "commit"]), st.integers(0, 11)
    ),
    max_size=30,
)


def claims_have_consumers(objects: list[Json]) -> None:
    """A claim that is allocated is somebody's: the last consumer who leaves takes the devices along."""
    for entry in objects:
        if entry["kind"] == "ResourceClaim" and entry["status"].get("allocation"):
            entry["status"]["reservedFor"] = [{"resource": "pods", "name": "somebody", "uid": "somebody"}]


def view_of(data: st.DataObject, features: clusters.Features) -> tuple[Fork, list[str]]:
    problem = data.draw(clusters.estimate_problems(features))
    claims_have_consumers(problem["objects"])
    pods = {}
    for estimate in problem["estimates"]:
        for element in estimate["pods"]:
            for copy in range(2):
                metadata = element["pod"]["metadata"]
                metadata = {**metadata, "name": f"{metadata['name']}-{copy}", "uid": f"{metadata['name']}-{copy}"}
                pod = {**element["pod"], "metadata": metadata}
                pods[f"{metadata['namespace']}/{metadata['name']}"] = pod
    template = problem["estimates"][0]["template"]
    created = NodeTemplate(
        node=decoded(template["node"]),
        pods=[decoded(pod) for pod in template.get("pods", [])],
        resource_slices=[decoded(entry) for entry in template.get("resource_slices", [])],
    )
    snapshot = world(problem["objects"], problem["options"])
    view = Fork(snapshot, list(pods.values()), templates=[created], profile=profile_of(problem["options"]))
    return view, list(pods)


@pytest.mark.parametrize("features", [clusters.FEATURES, ("plain", "dra"), ("spread",)], ids="-".join)
@fewer
@given(data=st.data())
def test_undone_never_happened(data: st.DataObject, features: clusters.Features) -> None:
    view, pods = view_of(data, features)
    forks: list[tuple[int, list[tuple[str, int]]]] = []
    placed: list[tuple[str, int]] = []
    for step, number in data.draw(STEPS):
        before = view.checksum()
        pod, node = pods[number % len(pods)], number % view.engine.nodes
        if step in ("schedule", "anywhere") and any(pod == there for there, _ in placed):
            continue  # one pod is in one place
        if step == "schedule" and view.schedule(pod, node):
            placed.append((pod, node))
            after = view.checksum()
            view.unplace(pod, node)
            assert view.checksum() == before
            assert view.schedule(pod, node)
            assert view.checksum() == after
        elif step == "anywhere" and (result := view.schedule_anywhere(pod)) is not None:
            placed.append((pod, result))
        elif step == "leave" and placed:
            removed = placed.pop(number % len(placed))
            view.fork()
            view.unplace(*removed)
            view.revert()
            assert view.checksum() == before
            view.unplace(*removed)
        elif step == "add":
            view.add()
        elif step == "fork":
            forks.append((before, list(placed)))
            view.fork()
        elif step == "revert" and forks:
            view.revert()
            sum_before, placed = forks.pop()
            assert view.checksum() == sum_before
        elif step == "commit" and forks:
            view.commit()
            forks.pop()
            assert view.checksum() == before
    while forks:
        view.revert()
        assert view.checksum() == forks.pop()[0]


@fewer
@given(data=st.data())
def test_an_estimate_leaves_nothing_behind(data: st.DataObject) -> None:
    view, pods = view_of(data, clusters.FEATURES)
    before, cursor = view.checksum(), view.engine.cursor
    numbers = [view.pod(pod) for pod in pods]

    def run() -> list[Any]:
        view.engine.cursor = cursor
        starts = np.array([0, len(pods)], dtype=np.int32)
        result = _engine.estimate(view.engine, np.array(numbers, dtype=np.int32), starts, view.session.templates[0])
        return [part.tolist() if isinstance(part, np.ndarray) else part for part in result]

    first = run()
    assert view.checksum() == before
    assert run() == first
