"""A second loop knows of the nodes that the first one asked for, also if the groups are described as before."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import kscale
from kscale import ca
from unit.cli.support import kscale as run

Json = dict[str, Any]
NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
READY = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-05-01T00:00:00Z"}]


def node(name: str) -> Json:
    amounts = {"cpu": "1", "memory": "4Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name}
    metadata = {"name": name, "labels": labels, "creationTimestamp": "2026-05-01T00:00:00Z"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": READY}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": {"providerID": f"p://{name}"},
        "status": status,
    }


def pod(number: int) -> Json:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "w", "controller": True}
    container = {"name": "c", "resources": {"requests": {"cpu": "900m"}}}
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"w-{number}", "namespace": "d", "uid": f"w-{number}", "ownerReferences": [owner]},
        "spec": {"containers": [container]},
        "status": {"phase": "Pending", "conditions": [condition]},
    }


def cluster(nodes: int = 3, pods: int = 10) -> kscale.Cluster:
    """Pods need a node each."""
    return kscale.Cluster([*(node(f"g-{i}") for i in range(nodes)), *map(pod, range(pods))])


def groups(nodes: int = 3, **fields: Any) -> list[kscale.NodeGroup]:
    return [kscale.NodeGroup(id="g", max_size=20, nodes=[f"g-{i}" for i in range(nodes)], **fields)]


def sizes(plan: Any) -> dict[str, int]:
    return {group.id: group.size for group in plan.groups}


@pytest.mark.parametrize("described", [{}, {"target_size": 3}], ids=["without a size", "with the size before"])
def test_a_second_loop_does_not_repeat_the_request(described: dict[str, int]) -> None:
    there = cluster()
    first = kscale.scale_up(there, groups(**described), now=NOW)
    assert [(info.current, info.new) for info in first.scale_ups] == [(3, 10)]
    state = ca.LoopState.from_json(first.state.to_json())
    second = kscale.scale_up(there, groups(**described), now=NOW + timedelta(seconds=10), state=state)
    assert second.scale_ups == []
    assert second.upcoming == {"g": 7}
    assert sizes(second) == {"g": 10}
    third = kscale.scale_up(there, groups(**described), now=NOW + timedelta(seconds=20), state=second.state)
    assert third.scale_ups == [], "the state of a loop that changes nothing knows of the nodes, too"


def test_groups_after_the_plan_may_be_passed_instead() -> None:
    first = kscale.scale_up(cluster(), groups(), now=NOW)
    assert sizes(first) == {"g": 10}
    second = kscale.scale_up(cluster(), first.groups, now=NOW + timedelta(seconds=10), state=first.state)
    assert (second.scale_ups, second.upcoming) == ([], {"g": 7})


def test_nodes_that_have_come_are_not_counted_twice() -> None:
    first = kscale.scale_up(cluster(), groups(), now=NOW)
    second = kscale.scale_up(cluster(5), groups(5), now=NOW + timedelta(seconds=10), state=first.state)
    assert (second.scale_ups, second.upcoming) == ([], {"g": 5})
    third = kscale.scale_up(cluster(10), groups(10), now=NOW + timedelta(seconds=20), state=second.state)
    assert (third.upcoming, third.state.targets) == ({}, {})
    fewer = kscale.scale_up(cluster(8), groups(8), now=NOW + timedelta(seconds=30), state=third.state)
    assert fewer.upcoming == {}, "a node that is gone later is not awaited"


def test_a_description_with_another_size_counts() -> None:
    first = kscale.scale_up(cluster(), groups(target_size=3), now=NOW)
    second = kscale.scale_up(cluster(), groups(target_size=4), now=NOW + timedelta(seconds=10), state=first.state)
    assert [(info.current, info.new) for info in second.scale_ups] == [(4, 10)], "one node is coming"


def test_overdue_nodes_are_requested_again() -> None:
    first = kscale.scale_up(cluster(), groups(), now=NOW)
    late = kscale.scale_up(cluster(), groups(), now=NOW + timedelta(minutes=16), state=first.state)
    assert [(info.current, info.new) for info in late.scale_ups] == [(3, 10)]


def test_target_sizes_of_the_provider_are_used_unchanged() -> None:
    first = kscale.scale_up(cluster(), groups(), now=NOW)
    plan = kscale.scale_up(
        cluster(), first.groups.with_targets({"g": 3}), now=NOW + timedelta(seconds=10), state=first.state
    )
    assert [(info.current, info.new) for info in plan.scale_ups] == [(3, 10)]


@pytest.mark.parametrize("target", [{}, {"target": 3}])
def test_the_command_line_does_not_repeat_the_request(tmp_path: Path, target: Json) -> None:
    dump, state = tmp_path / "dump.json", tmp_path / "state.json"
    items = [*(node(f"g-{i}") for i in range(3)), *map(pod, range(10))]
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    described = tmp_path / "groups.json"
    described.write_text(json.dumps([{"id": "g", "max": 20, "nodes": ["g-0", "g-1", "g-2"], **target}]))
    answers = []
    for time in ("2026-05-04T12:00:00Z", "2026-05-04T12:00:10Z"):
        words = ["scale-up", "-q", "-f", dump, "-g", described, "--state", state, "--save-state", state, "--now", time]
        answers.append(json.loads(run(*words, "-o", "json").stdout))
    assert [[info["new"] for info in answer["scaleUps"]] for answer in answers] == [[10], []]
