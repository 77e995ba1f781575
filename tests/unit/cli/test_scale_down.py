"""scale-down through the command line: answers, odd input, saved states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kscale.schemas import schema
from unit.cli.support import Run, kscale

NOW = "2026-01-01T12:00:00Z"


def node(name: str, cpu: str = "4") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, on: str, owner: str = "web") -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "a", "uid": name, "ownerReferences": [reference]},
        "spec": {"nodeName": on, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
    }


REPLICAS = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web", "namespace": "a"}}


class World:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.groups([{"id": "g", "min": 0, "max": 9, "nodes": ["n1", "n2", "n3"]}])
        self.objects(node("n1"), node("n2"), node("n3"), pod("p1", "n1"), pod("p2", "n2"), REPLICAS)

    def groups(self, groups: list[dict[str, Any]]) -> None:
        (self.directory / "groups.json").write_text(json.dumps(groups))

    def objects(self, *objects: dict[str, Any]) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        (self.directory / "dump.json").write_text(text)

    def run(self, *more: Any, now: str = NOW) -> Run:
        dump, groups = self.directory / "dump.json", self.directory / "groups.json"
        return kscale("scale-down", "-f", dump, "-g", groups, "--now", now, *more)

    def report(self, *more: Any, now: str = NOW) -> dict[str, Any]:
        run = self.run(*more, "-o", "json", now=now)
        assert run.code == 0, run.stderr
        found: dict[str, Any] = json.loads(run.stdout)
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def decisions(report: dict[str, Any]) -> dict[str, str]:
    return {item["node"]: item["decision"] for item in report["nodes"]}


def test_exhaustive(world: World) -> None:
    report = world.report("--exhaustive")
    jsonschema.validate(report, schema("ScaleDownReport"))
    assert decisions(report) == {"n1": "drain", "n2": "stays", "n3": "delete empty"}
    assert report["saves"] == {"g": 2}
    run = world.run("--exhaustive")
    assert "2 of 3 nodes can go: 1 is empty, 1 after moving 1 pod. Saves 2 x g." in run.stdout
    assert "1 pod -> n2 (1)" in run.stdout
    assert world.run("--exhaustive", "-o", "name").stdout.split() == ["node/n3", "node/n1"]


def test_times_are_carried_from_run_to_run(world: World) -> None:
    saved = world.directory / "state.json"
    first = world.report("--state", saved, "--save-state", saved)
    assert decisions(first) == {"n1": "unneeded", "n2": "stays", "n3": "unneeded"}
    assert {item["reason"] for item in first["nodes"]} == {"NotUnneededLongEnough", "NoPlaceToMovePods"}
    second = world.report("--state", saved, now="2026-01-01T12:10:01Z")
    assert decisions(second) == {"n1": "drain", "n2": "stays", "n3": "delete empty"}


def test_a_state_of_another_version(world: World) -> None:
    saved = world.directory / "state.json"
    saved.write_text('{"kind": "LoopState", "version": 2}')
    run = world.run("--state", saved)
    assert run.code == 2
    assert "a loop state of version 2; this is version 1" in run.stderr


def test_an_owner_that_is_not_in_the_dump(world: World) -> None:
    world.objects(node("n1"), node("n2"), node("n3"), pod("p1", "n1", "lost"))
    (item,) = [item for item in world.report()["nodes"] if item["node"] == "n1"]
    assert item["reason"] == "BlockedByPod"
    assert item["blockingPod"] == "a/p1"
    assert item["why"] == "the controller of a/p1 does not exist"


def test_a_budget_with_a_broken_selector(world: World) -> None:
    broken = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "a"},
        "spec": {"selector": {"matchExpressions": [{"key": "x", "operator": "Sideways"}]}},
    }
    world.objects(node("n1"), node("n2"), node("n3"), broken)
    run = world.run()
    assert run.code == 2
    assert "PodDisruptionBudget a/b" in run.stderr
    assert "Traceback" not in run.stderr


def test_nodes_of_no_group_and_pods_on_unknown_nodes(world: World) -> None:
    world.groups([{"id": "g", "min": 1, "max": 9, "nodes": ["n1"]}])
    world.objects(node("n1"), node("n2"), pod("p1", "elsewhere"))
    run = world.run()
    assert "1 pod runs on a node that is not in the input" in run.stderr
    assert "belongs to no node group" in run.stdout
    assert "group g is at its minimum of 1" in run.stdout


def test_a_time_that_is_none(world: World) -> None:
    assert world.run(now="yesterday").code == 2
