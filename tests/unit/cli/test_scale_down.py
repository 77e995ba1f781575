"""scale-down through the command line: answers, odd input, saved states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from json_schemas import validate
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
        self.own_groups = False
        self.objects(node("n1"), node("n2"), node("n3"), pod("p1", "n1"), pod("p2", "n2"), REPLICAS)

    def groups(self, groups: list[dict[str, Any]]) -> None:
        self.own_groups = True
        (self.directory / "groups.json").write_text(json.dumps(groups))

    def objects(self, *objects: dict[str, Any]) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        (self.directory / "dump.json").write_text(text)
        if not self.own_groups:  # every node in one
            nodes = [item["metadata"]["name"] for item in objects if item["kind"] == "Node"]
            self.groups([{"id": "g", "min": 0, "max": 20, "nodes": nodes}])
            self.own_groups = False

    def run(self, *more: Any, now: str = NOW) -> Run:
        dump, groups = self.directory / "dump.json", self.directory / "groups.json"
        return kscale("scale-down", "-f", dump, "-g", groups, "--now", now, *more)

    def report(self, *more: Any, now: str = NOW) -> dict[str, Any]:
        run = self.run(*more, "-o", "json", now=now)
        assert run.code == 0, run.stderr
        result: dict[str, Any] = json.loads(run.stdout)
        return result


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def decisions(report: dict[str, Any]) -> dict[str, str]:
    return {item["node"]: item["decision"] for item in report["nodes"]}


def test_exhaustive(world: World) -> None:
    report = world.report("--exhaustive")
    validate(report, schema("ScaleDownReport"))
    assert decisions(report) == {"n1": "drain", "n2": "stays", "n3": "delete empty"}
    assert report["saves"] == {"g": 2}
    run = world.run("--exhaustive")
    assert "2 of 3 nodes can go: 1 is empty, 1 after moving 1 pod. Saves 2 x g." in run.stdout
    assert "1 pod -> n2 (1)" in run.stdout
    assert world.run("--exhaustive", "-o", "name").stdout.split() == ["node/n3", "node/n1"]


def test_groups_that_name_no_node(world: World) -> None:
    world.groups([{"id": "g", "fromNode": "n1"}])
    run = world.run()
    assert run.code == 0
    assert (
        "No group has a node: say in the groups file which nodes belong to each (nodes or nodeSelector)." in run.stdout
    )
    world.groups([{"id": "g", "nodes": ["n1"]}])
    assert "No group has a node" not in world.run().stdout


def test_pod_is_reported_at_its_final_node(world: World) -> None:
    """One that lands on a node that goes later moves on with that one; it counts once."""
    names = [f"n{i}" for i in range(1, 5)]
    pods = [pod(f"p{i}", name) for i, name in enumerate(names)]
    world.objects(*map(node, names), *pods, {**REPLICAS, "spec": {"replicas": 4}})
    report = world.report("--exhaustive")
    stays = {item["node"] for item in report["nodes"] if item["decision"] == "stays"}
    moves = {item["node"]: item["pods"] for item in report["nodes"] if item["decision"] == "drain"}
    assert len(stays) == 1
    assert {pod: target for placement in moves.values() for pod, target in placement.items()} == {
        f"a/p{i}": min(stays) for i, name in enumerate(names) if name not in stays
    }
    assert report["movedPods"] == 3


def test_times_are_carried_from_run_to_run(world: World) -> None:
    saved = world.directory / "state.json"
    first = world.report("--state", saved, "--save-state", saved)
    assert decisions(first) == {"n1": "unneeded", "n2": "stays", "n3": "unneeded"}
    assert {item["reason"] for item in first["nodes"]} == {"NotUnneededLongEnough", "NoPlaceToMovePods"}
    second = world.report("--state", saved, now="2026-01-01T12:10:01Z")
    assert decisions(second) == {"n1": "drain", "n2": "stays", "n3": "delete empty"}


def test_a_state_of_another_version(world: World) -> None:
    saved = world.directory / "state.json"
    saved.write_text('{"kind": "LoopState", "version": 3}')
    run = world.run("--state", saved)
    assert run.code == 2
    assert f"error: {saved}: a loop state of version 3; this is version 2" in run.stderr


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("unneededSince", {"n1": "2026-01-01T12:00:00Z"}, "Expected `int`, got `str`"),
        ("unneededSince", {"n1": 1.5}, "Expected `int`, got `float`"),
        ("unremovableUntil", {"n1": True}, "Expected `int`, got `bool`"),
        ("lastScaleUp", 1 << 70, "not a saved loop state"),
        ("lastUpdate", "2026-01-01T12:00:00", "Expected `int | null`, got `str`"),
        ("lastUpdate", 1767272400000000000, "is before the last loop"),
        ("changes", {"scaleUp": {"g": "2026-01-01T12:00:00"}}, "Expected `int`, got `str`"),
        ("updateInterval", -1, "`int` >= 0"),
        ("hints", {"p1": 1}, "Expected `str`"),
        ("cursor", -1, "`int` >= 0"),
        ("cursor", 1 << 80, "not a saved loop state"),
        ("kind", "HPAState", "its kind is 'HPAState'"),
        ("nonsense", 1, "unknown field `nonsense`"),
    ],
)
def test_a_state_that_cannot_be_used(world: World, field: str, value: Any, says: str) -> None:
    """It is named; it is never a bug."""
    saved = world.directory / "state.json"
    world.report("--save-state", saved)
    state = json.loads(saved.read_text())
    (state if field in state else state["scaleDown"])[field] = value
    saved.write_text(json.dumps(state))
    run = world.run("--state", saved, now="2026-01-01T12:10:01Z")
    assert run.code == 2
    assert says in run.stderr
    assert "bug" not in run.stderr


def test_a_time_at_the_end_of_the_calendar(world: World) -> None:
    run = world.run(now="9999-12-31T23:59:59Z")
    assert run.code == 2
    assert "is not between the years 1678 and 2262" in run.stderr


def test_an_owner_that_is_not_in_the_dump(world: World) -> None:
    world.objects(node("n1"), node("n2"), node("n3"), pod("p1", "n1", "lost"))
    (item,) = [item for item in world.report()["nodes"] if item["node"] == "n1"]
    assert item["reason"] == "BlockedByPod"
    assert item["blockingPod"] == "a/p1"
    assert item["why"] == "the controller of a/p1 does not exist"
    assert "1 pod of controllers that are not in the input" in world.run().stderr
    assert world.report()["orphans"] == 1
    assert world.report("--no-skip-nodes-with-custom-controller-pods")["orphans"] == 0


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


def test_invalid_now_is_refused(world: World) -> None:
    assert world.run(now="yesterday").code == 2


# -- options ---------------------------------------------------------------------------------------------------------


def reasons(report: dict[str, Any]) -> dict[str, str | None]:
    return {item["node"]: item.get("reason") for item in report["nodes"]}


def blockers(report: dict[str, Any]) -> dict[str, str]:
    return {item["node"]: item["blockingPod"] for item in report["nodes"] if item.get("blockingPod")}


def with_gpu(name: str) -> dict[str, Any]:
    created = node(name)
    created["status"]["allocatable"]["nvidia.com/gpu"] = "4"
    return created


def not_ready(name: str) -> dict[str, Any]:
    created = node(name)
    created["status"]["conditions"][0]["status"] = "False"
    return created


def special(name: str, on: str, **changes: Any) -> dict[str, Any]:
    """A pod of 1 core with changes to its metadata and spec."""
    created = pod(name, on)
    created["metadata"].update(changes.get("metadata", {}))
    created["spec"].update(changes.get("spec", {}))
    return created


LONG_AGO = ("--scale-down-unneeded-time", "0")


@pytest.mark.parametrize(
    ("option", "without", "with_it"),
    [
        (["--scale-down-utilization-threshold", "0.2"], None, "NotUnderutilized"),
        (["--scale-down-unneeded-time", "1h"], None, "NotUnneededLongEnough"),
        (["--scale-down-unneeded-time", "3600"], None, "NotUnneededLongEnough"),
        (["--cores-total", "9:100"], None, "MinimalResourceLimitExceeded"),
        (["--memory-total", "17:100"], None, "MinimalResourceLimitExceeded"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_reasons_that_keep_a_node_are_shown(world: World, option: list[str], without: str | None, with_it: str) -> None:
    """n1 would be drained at once with an unneeded time of 0."""
    sized = [node(name) for name in ("n1", "n2", "n3")]
    for item in sized:
        item["status"]["capacity"] = item["status"]["allocatable"]
    world.objects(*sized, pod("p1", "n1"), pod("p2", "n2"), pod("p3", "n3"), REPLICAS)
    assert reasons(world.report(*LONG_AGO))["n1"] == without
    assert reasons(world.report(*LONG_AGO, *option))["n1"] == with_it


@pytest.mark.parametrize(
    ("option", "objects", "without", "with_it"),
    [
        (["--scale-down-gpu-utilization-threshold", "0.2"],
         [with_gpu("n1"), special("p1", "n1", spec={"containers": [{"name": "c", "resources": {"requests": {
             "cpu": "1", "nvidia.com/gpu": "1"}}}]})], "NoPlaceToMovePods", "NotUnderutilized"),
        (["--scale-down-unready-time", "1h"], [not_ready("n1")], None, "NotUnreadyLongEnough"),
        (["--no-scale-down-unready-enabled"], [not_ready("n1")], None, "ScaleDownUnreadyDisabled"),
        (["--ignore-daemonsets-utilization"],
         [node("n1"), *(special(f"d{i}", "n1", metadata={"ownerReferences": [{
             "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}]})
             for i in range(3)),
          {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d", "namespace": "a"}}],
         "NotUnderutilized", None),
        (["--ignore-mirror-pods-utilization"],
         [node("n1"), *(special(f"m{i}", "n1", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}})
                        for i in range(3))], "NotUnderutilized", None),
        (["--expendable-pods-priority-cutoff", "5"],
         [node("n1"), *(special(f"e{i}", "n1", spec={"priority": 4}) for i in range(3))], "NotUnderutilized", None),
    ],
    ids=lambda value: value[0] if isinstance(value, list) and isinstance(value[0], str) else "",
)  # fmt: skip
def test_which_nodes_are_looked_at(
    world: World, option: list[str], objects: list[dict[str, Any]], without: str | None, with_it: str | None
) -> None:
    world.objects(*objects, node("n2"), REPLICAS)
    quick = (*LONG_AGO, "--scale-down-unready-time", "0")
    if any(item["metadata"]["name"] == "p1" for item in objects):
        world.objects(*objects, with_gpu("n2"), REPLICAS)
    assert reasons(world.report(*quick))["n1"] == without
    assert reasons(world.report(*quick, *option))["n1"] == with_it


@pytest.mark.parametrize(
    ("option", "changes", "controllers"),
    [
        (["--no-skip-nodes-with-system-pods"], {"metadata": {"namespace": "kube-system"}}, "kube-system"),
        (["--blocking-system-pod-distruption-timeout", "1m"],
         {"metadata": {"namespace": "kube-system", "creationTimestamp": "2026-01-01T11:58:00Z"}}, "kube-system"),
        (["--no-skip-nodes-with-local-storage"], {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}},
         "a"),
        (["--no-skip-nodes-with-custom-controller-pods"], {"metadata": {"ownerReferences": [
            {"apiVersion": "x/v1", "kind": "Foo", "name": "f", "uid": "f", "controller": True}]}}, "a"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)  # fmt: skip
def test_which_pods_hold_a_node(world: World, option: list[str], changes: dict[str, Any], controllers: str) -> None:
    replicas = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web", "namespace": controllers}}
    world.objects(node("n1"), node("n2"), special("p1", "n1", **changes), replicas)
    assert blockers(world.report(*LONG_AGO)) == {"n1": f"{changes.get('metadata', {}).get('namespace', 'a')}/p1"}
    assert blockers(world.report(*LONG_AGO, *option)) == {}


def test_min_replica_count(world: World) -> None:
    few = {**REPLICAS, "spec": {"replicas": 1}}
    world.objects(node("n1"), node("n2"), pod("p1", "n1"), few)
    assert blockers(world.report(*LONG_AGO)) == {}
    assert blockers(world.report(*LONG_AGO, "--min-replica-count", "2")) == {"n1": "a/p1"}


@pytest.mark.parametrize(
    ("option", "drained", "empty"),
    [
        ([], 1, 6),
        (["--max-drain-parallelism", "2"], 2, 6),
        (["--max-scale-down-parallelism", "3"], 0, 3),
        (["--max-drain-parallelism", "0"], 0, 6),
        (["--draining", "n9"], 0, 6),
        (["--max-scale-down-parallelism", "4", "--deleting", "n9"], 0, 3),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_how_many_go_at_once(world: World, option: list[str], drained: int, empty: int) -> None:
    names = [f"n{i}" for i in range(10)]
    # n9 keeps the rest: it is annotated, so that there is a place for the pods.
    protected = node("n9")
    protected["metadata"]["annotations"] = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    world.objects(*(node(name) for name in names[:-1]), protected, *(pod(f"p{i}", f"n{i}") for i in range(3)), REPLICAS)
    report = world.report(*LONG_AGO, *option)
    assert (report["drained"], report["empty"]) == (drained, empty)


@pytest.mark.parametrize(
    ("when", "delay"),
    [
        ("--last-scale-up", "--scale-down-delay-after-add"),
        ("--last-scale-down", "--scale-down-delay-after-delete"),
        ("--last-failure", "--scale-down-delay-after-failure"),
    ],
)
def test_cooldowns(world: World, when: str, delay: str) -> None:
    changed = (*LONG_AGO, when, "2026-01-01T11:50:01Z")
    assert world.report(*changed, delay, "9m")["result"] == "ScaleDownNodeDeleteStarted"
    assert world.report(*changed, delay, "10m")["result"] == "ScaleDownInCooldown"
    assert world.report(*changed, delay, "10m", "--scale-down-delay-type-local")["result"] != "ScaleDownInCooldown"


def test_a_node_that_had_to_stay_is_left_alone_for_a_while(world: World) -> None:
    saved = world.directory / "state.json"
    world.objects(node("n1"), node("n2"), pod("p1", "n1", "lost"))
    state = ("--state", saved, "--save-state", saved, "--unremovable-node-recheck-timeout", "1m")
    assert reasons(world.report(*state))["n1"] == "BlockedByPod"
    assert reasons(world.report(*state, now="2026-01-01T12:00:59Z"))["n1"] == "RecentlyUnremovable"
    assert reasons(world.report(*state, now="2026-01-01T12:01:00Z"))["n1"] == "BlockedByPod"


def test_gpus_that_the_cluster_keeps(world: World) -> None:
    created = [with_gpu("n1"), with_gpu("n2")]
    for item in created:
        item["metadata"]["labels"] = {"example.com/gpu": "v100"}
        item["status"]["capacity"] = item["status"]["allocatable"]
    world.objects(*created)
    label = ("--gpu-label", "example.com/gpu")
    assert world.report(*LONG_AGO, *label)["empty"] == 2
    assert world.report(*LONG_AGO, *label, "--gpu-total", "v100:4:99")["empty"] == 1


def test_the_label_of_a_cloud_is_recognised(world: World) -> None:
    created = [with_gpu("n1"), with_gpu("n2")]
    for item in created:
        item["metadata"]["labels"] = {"cloud.google.com/gke-accelerator": "v100"}
    world.objects(*created)
    assert world.report(*LONG_AGO, "--gpu-total", "v100:4:99")["empty"] == 1
    assert world.report(*LONG_AGO, "--gpu-label", "other", "--gpu-total", "v100:4:99")["empty"] == 2


def test_time_for_some_candidates_only(world: World) -> None:
    report = world.report("--max-simulations", "1")
    assert decisions(report) == {"n1": "stays", "n2": "stays", "n3": "unneeded"}
    assert {item["why"] for item in report["nodes"] if item["node"] != "n3"} == {
        "not looked at: enough nodes are unneeded already, or the time was up"
    }


def test_the_legacy_profile(world: World) -> None:
    saved = world.directory / "state.json"
    legacy = ("--profile", "legacy", "--state", saved, "--save-state", saved)
    assert world.report(*legacy)["result"] == "ScaleDownInCooldown"
    late = world.report(*legacy, "--max-empty-bulk-delete", "1", now="2026-01-01T12:10:01Z")
    assert (late["result"], late["empty"], late["drained"]) == ("ScaleDownNodeDeleted", 1, 0)
    run = world.run("--profile", "legacy", "--exhaustive")
    assert run.code == 2
    assert "legacy" in run.stderr


def test_alone_and_together(world: World) -> None:
    report = world.report("--exhaustive", "--threads", "2")
    assert {item["node"]: item["alone"] for item in report["nodes"]} == {"n1": True, "n2": True, "n3": True}
    assert report == world.report("--exhaustive", "--threads", "1")


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (["--scale-down-unneeded-time", "soon"], 'invalid duration "soon"'),
        (["--scale-down-unneeded-time", "-1s"], "no time to wait"),
        (["--cores-total", "5"], "wrong nodes configuration: 5"),
        (["--memory-total", "5:1"], "max size must be greater or equal to min size"),
        (["--gpu-total", "v100"], "incorrect gpu limit specification: v100"),
        (["--profile", "oldest"], "unknown profile 'oldest'"),
        (["--deleting", "n99"], "there is no node n99"),
        (["--deleting", "n1", "--draining", "n1"], "node n1 is in both deleting and draining"),
        (["--last-scale-up", "yesterday"], "--last-scale-up"),
        (["--scale-down-utilization-threshold", "-1"], "--scale-down-utilization-threshold"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_cannot_be_meant(world: World, option: list[str], says: str) -> None:
    run = world.run(*option)
    assert run.code == 2
    assert says in run.stderr
    assert "Traceback" not in run.stderr


def test_invalid_saved_state_is_refused(world: World) -> None:
    saved = world.directory / "state.json"
    for text in ("", "[]", '{"kind": "LoopState", "version": 2, "scaleDown": {"unneededSince": {"n1": "soon"}}}'):
        saved.write_text(text)
        run = world.run("--state", saved)
        assert run.code == 2
        assert "not a saved loop state" in run.stderr
        assert "Traceback" not in run.stderr
