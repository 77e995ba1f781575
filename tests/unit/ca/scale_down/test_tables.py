"""Upstream's tables of hinted placing, UpdateClusterState and NodesToDelete, row by row."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

import kscale
from builders import N0, group_options, node, owner, pod
from kscale import ca
from kscale.ca.nodes import TO_BE_DELETED_TAINT
from kscale.ca.scale_down.plan import NodesToDelete, choose_nodes_to_delete
from kscale.ca.scale_down.planner import count_missing_replicas
from kscale.ca.scale_down.unneeded import UnneededNode
from kscale.effects import SECOND
from kscale.objects.api.apps import Job, ReplicaSet, StatefulSet
from kscale.objects.api.core import Affinity, Node, Pod, PodAffinity, PodAffinityTerm, ReplicationController, Taint
from kscale.objects.api.meta import LabelSelector
from kscale.objects.api.volumes import Volume
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import Groups, NodeGroup
from kscale.scheduling.place import PlaceState, place
from kscale.snapshot.cluster import Cluster

MINUTE = 60 * SECOND


# -- hinted placing (23.7) -------------------------------------------------------------------------------------------


def asking(text: str) -> Pod:
    """``p2:800/10`` = pod p2 of 800 milli-cores and priority 10."""
    name, _, size = text.partition(":")
    cpu, _, priority = size.partition("/")
    created = pod(name, int(cpu), 0)
    created.spec.priority = int(priority) if priority else None
    return created


@pytest.mark.parametrize(
    ("sizes", "running", "pods", "hints", "refused", "want"),
    [
        ("1000 1000", "p1:300@n1", "p2:800 p3:500", "", "", "p2@n2 p3@n1"),
        ("1000 1000", "p1:300@n1", "p2:800 p3:500", "p2@gone", "", "p2@n2 p3@n1"),
        ("1000 1000", "p1:300@n1", "p2:800 p3:500 p4:700", "", "", "p2@n2 p3@n1"),
        ("1000 1000", "", "p2:500 p3:500", "", "n1", "p2@n2 p3@n2"),
        ("1000 1000", "p1:300@n1", "p2:500 p3:500", "", "n2", "p2@n1"),
        ("1000", "", "high:1100/100 cold:800/10 warm:800/10", "warm@n1", "", "warm@n1"),
        ("1000 1000 1500", "", "low:800 high:800/100 highest:1100/1000", "low@n1 high@n1 highest@n1", "",
         "highest@n3 high@n1 low@n2"),
        ("2100", "", "p1:500 p2:500 p3:500 p4:500 p5:500 p6:500", "p2@n1 p5@n1 p6@n2", "",
         "p2@n1 p5@n1 p1@n1 p3@n1"),
    ],
    ids=["search", "hint-to-nowhere", "full", "second-only", "first-only", "hinted-first", "priorities", "many"],
)  # fmt: skip
def test_hinted_placing(sizes: str, running: str, pods: str, hints: str, refused: str, want: str) -> None:
    objects: list[Any] = [node(f"n{i}", int(size), 10, ready=True) for i, size in enumerate(sizes.split(), 1)]
    for text in running.split():
        created = asking(text.split("@")[0])
        created.spec.node_name = text.split("@")[1]
        objects.append(created)
    state = PlaceState(hints=dict(text.split("@") for text in hints.split()))
    result = place(
        Cluster(objects).snapshot(), [asking(text) for text in pods.split()], state=state,
        unacceptable_nodes=refused.split(),
    )  # fmt: skip
    assert [f"{name.removeprefix('default/')}@{on}" for name, on in result.placed.items()] == want.split()


def seeker(name: str, *, by: str | None = "rs", kind: str = "ReplicaSet", cpu: int = 100, **more: Any) -> Pod:
    """A pod that wants to be near one labelled ``app: web``."""
    term = PodAffinityTerm(label_selector=LabelSelector(match_labels={"app": "web"}), topology_key="kubernetes.io/os")
    spec = {"affinity": Affinity(pod_affinity=PodAffinity(required=[term])), **more.pop("spec", {})}
    return pod(name, cpu, 0, spec=spec, owner_references=owner(kind, by, "apps/v1") if by else [], **more)


def volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [Volume(name="v", **source)]}


@pytest.mark.parametrize(
    ("second", "known"),
    [
        ({}, True),
        ({"spec": volume(projected={})}, True),
        ({"spec": volume(config_map={"name": "c"})}, False),
        ({"labels": {"a": "b"}}, False),
        ({"cpu": 101}, False),
        ({"by": "other"}, False),
        ({"by": None}, False),
        ({"kind": "DaemonSet"}, False),
    ],
    ids=["same", "projected", "volume", "labels", "requests", "other-controller", "no-controller", "daemon-set"],
)
def test_failed_pod_classes_are_not_retried(second: dict[str, Any], known: bool) -> None:
    """A pod that fails before what it wants to be near is there; after that, one that is like it or is not."""
    snapshot = Cluster([node("n1", 1000, 10, ready=True, labels={"kubernetes.io/os": "linux"})]).snapshot()
    kind = {key: second[key] for key in ("by", "kind") if second.get(key) != "other" and key in second}
    pods = [seeker("first", **kind), pod("web", 100, 0, labels={"app": "web"}), seeker("second", **second)]
    result = place(snapshot, pods)
    assert result.placed.keys() == {"default/web"} | (set() if known else {"default/second"})


def test_no_time_at_all() -> None:
    """Upstream's context that has expired: nothing is placed, and that is no error."""
    snapshot = Cluster([node("n1", 1000, 10, ready=True)]).snapshot()
    result = place(snapshot, [asking("p1:100"), asking("p2:100")], max_looks=0)
    assert (result.placed, result.unschedulable) == ({}, [])
    assert result.not_tried == ["default/p1", "default/p2"]


def test_hints_live_for_two_generations() -> None:
    objects = [node("n1", 1000, 10, ready=True), node("n2", 1000, 10, ready=True)]
    moving = pod("p", 500, 0, owner_references=owner("ReplicaSet", "rs", "apps/v1"))
    moving.spec.node_name = "n1"
    simulator = ca.RemovalSimulator(Cluster([*objects, moving]).snapshot(), now=N0, listers=None)
    simulator.run(["n1"], persist=False)
    assert simulator.state.hints == {"p": "n2"}
    simulator.drop_old_hints()
    assert simulator.state.hint("p") == "n2"
    simulator.drop_old_hints()
    assert simulator.state.hint("p") is None


# -- UpdateClusterState (23.8) ---------------------------------------------------------------------------------------

LAX = ca.AutoscalingOptions(
    skip_nodes_with_system_pods=False,
    skip_nodes_with_local_storage=False,
    skip_nodes_with_custom_controller_pods=False,
    scale_down_utilization_threshold=100.0,
)


def machines(text: str) -> list[Node]:
    """``1000`` = a node of that many milli-cores; ``!`` behind it: about to be deleted."""
    result = []
    for i, size in enumerate(text.split(), 1):
        created = node(f"n{i}", int(size.rstrip("!")), 10, ready=True)
        if size.endswith("!"):
            created.spec.taints = [Taint(key=TO_BE_DELETED_TAINT, value=str(N0 // SECOND), effect="NoSchedule")]
        result.append(created)
    return result


def replicas(name: str, want: int, have: int) -> ReplicaSet:
    return from_dict(
        {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"replicas": want},
         "status": {"replicas": have}}, ReplicaSet,
    )  # fmt: skip


def evicted(cpu: int, i: int, kind: str) -> Pod:
    """``kind``: the ReplicaSet that owns the pod, or what else it is."""
    fields: dict[str, Any] = {"owner_references": owner("ReplicaSet", kind, "apps/v1")}
    if kind == "naked":
        fields = {}
    elif kind == "mirror":
        fields = {"annotations": {"kubernetes.io/config.mirror": "x"}}
    elif kind == "static":
        fields = {"annotations": {"kubernetes.io/config.source": "file"}}
    elif kind == "ds":
        fields = {"owner_references": owner("DaemonSet", "ds", "apps/v1")}
    return pod(f"e{i}", cpu, 1, **fields)


@pytest.mark.parametrize(
    ("sizes", "placed", "evicted_pods", "have", "eligible", "unneeded", "unremovable"),
    [
        ("1000 1000 1000", "", "", 0, "1 2 3", "1 2 3", ""),
        ("1000 1000 1000", "", "", 0, "1 2", "1 2", ""),
        ("1000 1000 1000", "", "", 0, "", "", ""),
        ("1000", "500@1", "", 0, "1", "", "1"),
        ("1000 1000!", "500@1 500@1", "", 0, "1", "", "1"),
        ("1000 1000", "500@1 500@1", "", 0, "1", "1", ""),
        ("1000 1000", "500@1 500@1", "", 0, "1 2", "1", "2"),
        ("2000 1000 500", "1000@1 1000@1 1000@2", "", 0, "1 2", "", "1 2"),
        ("1000 1000 2000", "500@1 500@1 500@2 500@2", "", 0, "1 2", "1 2", ""),
        ("2000 1000 1000", "1000@1 1000@1 500@2 500@2", "", 0, "1 2", "2", "1"),
        ("1000 1000 500", "500@1 500@1 500@2 500@2", "", 0, "1 2", "", "1 2"),
        ("1000 2000!", "", "500:rs", 4, "1", "", "1"),
        ("1000", "", "1000:naked", 0, "1", "", "1"),
        ("1000 2000!", "", "500:static", 0, "1", "1", ""),
        ("1000 2000!", "", "500:mirror", 0, "1", "1", ""),
        ("1000 2000!", "", "500:ds", 0, "1", "1", ""),
        ("1000 1000 1000!", "", "500:rs", 4, "1", "1", ""),
        ("1000 1000 1000!", "", "500:rs", 4, "1 2", "1", "2"),
        ("1000 1000 2000!", "", "2000:rs", 4, "1 2", "1 2", ""),
        ("1000 1000 2000!", "", "1000:rs1 1000:rs1", 2, "1 2", "1 2", ""),
        ("1000 1000 2000!", "", "1000:rs1 1000:rs1", 1, "1 2", "1", "2"),
        ("1000 1000 2000!", "", "1000:rs1 1000:rs1", 0, "1 2", "", "1 2"),
        ("1000 1000 1000 2000!", "250@1", "250:rs 250:rs", 3, "1 2", "1 2", ""),
        ("1000 1000 1000 2000!", "500@1", "500:rs 500:rs", 3, "1 2", "1", "2"),
        ("1000 1000 1000 2000!", "1000@1", "1000:rs 1000:rs", 3, "1 2", "", "1 2"),
    ],
)
def test_update_cluster_state(
    sizes: str, placed: str, evicted_pods: str, have: int, eligible: str, unneeded: str, unremovable: str
) -> None:
    """Eligible nodes are those of the group; upstream's fake calls the others unremovable, here nobody asks them.

    ``rs`` wants 5 and ``rs1`` 2 replicas, ``have`` of them run. Upstream writes the nodes found down without order: of
    two that could go each for itself, which one goes is decided by the order of candidates.
    """
    objects: list[Any] = machines(sizes)
    for i, text in enumerate(placed.split()):
        cpu, on = text.split("@")
        created = pod(f"p{i}", int(cpu), 1, owner_references=owner("ReplicaSet", "rs", "apps/v1"))
        created.spec.node_name = f"n{on}"
        objects.append(created)
    objects += [replicas("rs", 5, have), replicas("rs1", 2, have)]
    names = [f"n{i}" for i in eligible.split()]
    result = kscale.scale_down(
        Cluster(objects).snapshot(),
        Groups([NodeGroup(id="ng1", max_size=99, target_size=9, nodes=names)]),
        now=N0,
        options=LAX,
        inputs=ca.ScaleDownInputs(
            recent_evictions=[
                evicted(int(text.split(":")[0]), i, text.split(":")[1]) for i, text in enumerate(evicted_pods.split())
            ]
        ),
    )
    assert len(result.unneeded) == len(unneeded.split())
    assert len(result.unremovable_after_update) == len(unremovable.split())
    if not (len(names) == 2 and len(result.unneeded) == 1):
        assert sorted(item.name for item in result.unneeded) == [f"n{i}" for i in unneeded.split()]
        assert sorted(result.unremovable_after_update) == [f"n{i}" for i in unremovable.split()]


def test_when_time_is_up_the_rest_is_skipped() -> None:
    names = ["n1", "n2", "n3"]
    result = kscale.scale_down(
        Cluster(machines("1000 1000 1000")).snapshot(),
        Groups([NodeGroup(id="ng1", max_size=9, target_size=3, nodes=names)]),
        now=N0, options=LAX, inputs=ca.ScaleDownInputs(max_simulations=1),
    )  # fmt: skip
    assert [item.name for item in result.unneeded] == ["n1"]
    assert result.skipped == ["n2", "n3"]
    assert result.unremovable_after_update == {}
    without = kscale.scale_down(
        Cluster(machines("1000 1000 1000")).snapshot(),
        Groups([NodeGroup(id="ng1", max_size=9, target_size=3, nodes=names)]),
        now=N0, options=replace(LAX, scale_down_simulation_timeout=timedelta()),
    )  # fmt: skip
    assert (without.unneeded, without.skipped) == ([], names), "time is up before it begins"


@pytest.mark.parametrize(
    ("before", "nodes", "parallelism", "unneeded_time", "interval", "atomic", "want"),
    [
        (0, 100, 10, 60, 10, False, 20), (3, 100, 10, 60, 10, False, 23), (70, 100, 10, 60, 10, False, 70),
        (77, 100, 10, 60, 10, False, 70), (0, 100, 10, 0, 10, False, 20), (13, 100, 10, 60, 1, False, 33),
        (13, 100, 10, 60, 30, False, 30), (5, 100, 10, 60, 10, True, 100), (5, 100, 10, 60, 1, True, 100),
        (5, 100, 10, 60, 30, True, 100), (77, 100, 10, 60, 30, True, 100), (0, 100, 10, 60, 30, True, 100),
        (0, 500, 1, 1, 1, True, 500),
    ],
)  # fmt: skip
def test_limit(
    before: int, nodes: int, parallelism: int, unneeded_time: int, interval: int, atomic: bool, want: int
) -> None:
    names = [f"n{i}" for i in range(1, nodes + 1)]
    own = group_options(zero_or_max_node_scaling=True) if atomic else None
    state = ca.LoopState(
        scale_down=ca.ScaleDownState(unneeded_since=dict.fromkeys(names[:before], N0), update_interval=interval * 10**9)
    )
    result = kscale.scale_down(
        Cluster(machines(" ".join(["1000"] * nodes))).snapshot(),
        Groups([NodeGroup(id="g", max_size=999, target_size=nodes, nodes=names, instances=names, options=own)]),
        now=N0,
        state=state,
        options=ca.AutoscalingOptions(
            max_scale_down_parallelism=parallelism, scale_down_unneeded_time=timedelta(seconds=unneeded_time)
        ),
    )
    assert len(result.unneeded) == want


@pytest.mark.parametrize(
    ("kind", "spec", "status", "missing"),
    [
        (Job, {"parallelism": 3}, {"active": 1}, 3 - 1),
        (Job, {}, {}, 1 - 0),
        (Job, {"parallelism": 3, "completions": 3}, {"active": 1, "succeeded": 2}, 1 - 1),
        (ReplicaSet, {"replicas": 1}, {"replicas": 1}, 1 - 1),
        (ReplicaSet, {}, {}, 1 - 0),
        (ReplicationController, {"replicas": 1}, {"replicas": 0}, 1 - 0),
        (StatefulSet, {"replicas": 3}, {"replicas": 1}, 3 - 0),
    ],
)
def test_replicas_that_a_controller_lacks(kind: Any, spec: Any, status: Any, missing: int) -> None:
    created = from_dict({"metadata": {"name": "owner", "namespace": "default"}, "spec": spec, "status": status}, kind)
    (reference,) = owner(kind.__name__, "owner")
    assert count_missing_replicas(reference, "default", ca.Listers([created])) == missing
    assert count_missing_replicas(reference, "default", ca.Listers([])) is None


# -- NodesToDelete (23.9) --------------------------------------------------------------------------------------------


def decide(
    groups: str, *, extra: str = "", limits: ca.ResourceLimiter | None = None
) -> tuple[NodesToDelete, dict[str, list[str]]]:
    """``std3:e,d+`` = an ordinary group of target 3 with an empty node and one to drain that waits for a pod;
    ``atomic3:e,d/2`` = an atomic group of which 2 nodes are registered. Nodes are named ``<group number>-<number>``."""
    created: list[NodeGroup] = []
    unneeded: list[UnneededNode] = []
    snapshot: list[Node] = [node(name, 1000, 10) for name in extra.split()]
    names: dict[str, list[str]] = {}
    for g, text in enumerate(groups.split()):
        kind, _, content = text.partition(":")
        content, _, registered = content.partition("/")
        flags = [flag for flag in content.split(",") if flag]
        mine = [f"{g}-{i}" for i in range(max(len(flags), int(registered or 0)))]
        names[f"{g}"] = mine
        snapshot += [node(name, 1000, 10) for name in mine]
        target = int(kind.removeprefix("std").removeprefix("atomic"))
        own = group_options(zero_or_max_node_scaling=kind.startswith("atomic"))
        created.append(NodeGroup(id=f"g{g}", max_size=99, target_size=target, nodes=mine, instances=mine, options=own))
        unneeded += [
            UnneededNode(
                node=node(name, 1000, 10), drain=flag.startswith("d"), since=N0 - 60 * MINUTE, threshold=0,
                on_completion=flag.endswith("+"),
            )
            for name, flag in zip(mine, flags, strict=False)
        ]  # fmt: skip
    result = choose_nodes_to_delete(
        unneeded, groups=Groups(created), snapshot_nodes=snapshot, options=ca.AutoscalingOptions(), now=N0,
        limits=limits,
    )  # fmt: skip
    return result, names


@pytest.mark.parametrize(
    ("groups", "empty", "drain"),
    [
        ("", "", ""),
        ("std3:e+", "", ""),
        ("std3:d+", "", ""),
        ("std3:e", "0-0", ""),
        ("std3:d", "", "0-0"),
        ("atomic3:e/3", "", ""),
        ("atomic3:e,e,e", "0-0 0-1 0-2", ""),
        ("atomic3:e,e,d", "0-0 0-1", "0-2"),
        ("std3:e,e,e std3:d,d,d std3:e,d,d atomic3:e,e,e atomic3:e,d,d atomic3:e,d/3 atomic3:e,d/2",
         "0-0 0-1 0-2 2-0 3-0 3-1 3-2 4-0 6-0", "1-0 1-1 1-2 2-1 2-2 4-1 4-2 6-1"),
    ],
)  # fmt: skip
def test_nodes_to_delete(groups: str, empty: str, drain: str) -> None:
    result, _ = decide(groups)
    assert sorted(result.empty) == empty.split()
    assert sorted(result.drain) == drain.split()


def test_minimum_resources() -> None:
    limits = ca.ResourceLimiter(min={"cpu": 2, "memory": 20, "nodes": 2})
    result, _ = decide("std3:e,d", extra="node-3", limits=limits)
    assert (result.empty, result.drain) == (["0-0"], [])
    assert result.unremovable == {"0-1": "MinimalResourceLimitExceeded"}
    result, _ = decide("std3:e,e", extra="node-3", limits=ca.ResourceLimiter(min={"cpu": 1, "memory": 10, "nodes": 1}))
    assert result.empty == ["0-0", "0-1"]


def test_a_quota_of_cores_end_to_end() -> None:
    names = ["n1", "n2"]
    result = kscale.scale_down(
        Cluster(machines("2000 2000")).snapshot(),
        Groups([NodeGroup(id="g", max_size=9, target_size=2, nodes=names)]),
        now=N0,
        options=ca.AutoscalingOptions(scale_down_unneeded_time=timedelta()),
        inputs=ca.ScaleDownInputs(limits=ca.ResourceLimiter(min={"cpu": 3})),
    )
    assert result.delete_empty == []
    assert {name: item.reason for name, item in result.unremovable.items()} == dict.fromkeys(
        names, "MinimalResourceLimitExceeded"
    )
