"""Scale-down of release 1.3: the tables of its own tests, and what differs from today."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import kscale
from builders import N0, node, owner, pod, span
from kscale import ca
from kscale.ca.legacy.scale_down import get_pods_to_drain
from kscale.ca.loop_state import MAX_USAGE_RECORDED, UsageTracker
from kscale.ca.options import ResourceRange
from kscale.effects import SECOND
from kscale.errors import InputError
from kscale.objects.api.apps import ReplicaSet
from kscale.objects.api.core import Node, Pod, Taint
from kscale.objects.api.policy import PodDisruptionBudget
from kscale.objects.api.volumes import Volume
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import Groups, NodeGroup
from kscale.snapshot.cluster import Cluster

MINUTE = 60 * SECOND
SECONDS = N0 // SECOND
QUIET = {"scale_down_delay_after_add": timedelta(), "scale_down_delay_after_failure": timedelta(),
         "scale_down_delay_after_delete": timedelta()}  # fmt: skip


def options(**more: Any) -> ca.AutoscalingOptions:
    return ca.AutoscalingOptions.for_profile("legacy", **{**QUIET, **more})


def machine(name: str, cpu: int = 1000, memory: int = 10, *, ready: bool = True, marked: int | None = None) -> Node:
    created = node(name, cpu, memory, ready=ready)
    if marked is not None:
        mark = str(SECONDS - marked)
        created.spec.taints = [Taint(key="ToBeDeletedByClusterAutoscaler", value=mark, effect="NoSchedule")]
    return created


def run(name: str, on: str, cpu: int, *, naked: bool = False, priority: int | None = None, nominated: bool = False,
        **metadata: Any) -> Pod:  # fmt: skip
    created = pod(
        name, cpu, 0, **{"owner_references": [] if naked else owner("ReplicaSet", "rs", "apps/v1"), **metadata}
    )
    created.spec.priority = priority
    if nominated:
        created.status.nominated_node_name = on
    else:
        created.spec.node_name = on
    return created


REPLICAS = from_dict(
    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "rs", "namespace": "default"}}, ReplicaSet
)


def decide(
    objects: list[Any], group_of: dict[str, list[str]] | None = None, *, state: ca.LoopState | None = None,
    after: int = 0, **more: Any,
) -> kscale.ScaleDownPlan:  # fmt: skip
    """Every node in one group with a minimum of 0, unless told otherwise."""
    names = [item.metadata.name for item in objects if isinstance(item, Node)]
    least = more.pop("least", 0)
    groups = Groups(
        [
            NodeGroup(id=name, min_size=least, max_size=999, target_size=len(nodes), nodes=nodes)
            for name, nodes in (group_of or {"ng1": names}).items()
        ]
    )
    return kscale.scale_down(
        Cluster([*objects, REPLICAS]).snapshot(),
        groups,
        now=N0 + after,
        options=more.pop("options", None) or options(**more),
        state=state,
    )


def unneeded(plan: kscale.ScaleDownPlan) -> set[str]:
    return set(plan.unneeded_since)


def first_table() -> list[Any]:
    annotated = machine("n5")
    annotated.metadata.annotations = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    return [
        machine("n1"), machine("n2"), machine("n3"), machine("n4", 10000), annotated, machine("n7", 0),
        machine("n8", marked=301), machine("n9", marked=60),
        run("p1", "n1", 100, naked=True), run("p2", "n2", 300), run("p3", "n3", 400), run("p4", "n4", 2000),
        run("p7", "n7", 500),
    ]  # fmt: skip


def test_unneeded_nodes_are_found_by_utilization() -> None:
    options = {"scale_down_utilization_threshold": 0.35, "expendable_pods_priority_cutoff": 10}
    first = decide(first_table(), **options)
    assert unneeded(first) == {"n2", "n7", "n8"}
    assert sum(result.utilization is not None for result in first.eligibility.values()) == 6
    assert first.eligibility["n7"].error is not None
    later = decide(first_table(), state=first.state, after=MINUTE, **options)
    assert later.unneeded_since["n2"] == N0
    # n1 failed at N0: it is not looked at again until five minutes later.
    assert later.unremovable["n1"].reason == "RecentlyUnremovable"
    again = decide(first_table(), state=later.state, after=span(minutes=5, seconds=1), **options)
    assert again.unremovable["n1"].reason == "BlockedByPod"


def test_priorities() -> None:
    objects = [
        *(machine(f"n{i}", 1000 if i < 4 else 10000) for i in range(1, 5)),
        run("p1", "n1", 600, priority=100, nominated=True),
        run("p2", "n2", 400, priority=1), run("p3", "n2", 100, priority=100),
        run("p4", "n2", 100, priority=100, nominated=True),
        run("p5", "n3", 400, priority=1), run("p6", "n3", 400, priority=1),
        run("p7", "n4", 1200, priority=100, nominated=True),
    ]  # fmt: skip
    result = decide(objects, expendable_pods_priority_cutoff=10, scale_down_utilization_threshold=0.35)
    assert unneeded(result) == {"n2", "n3"}
    assert "n4" in result.failures


def test_candidates_are_capped() -> None:
    objects = [machine(f"n{i}") for i in range(100)] + [run(f"p{i}", f"n{i}", 100) for i in range(100)]
    options = {"scale_down_utilization_threshold": 0.35, "scale_down_non_empty_candidates_count": 30,
             "scale_down_candidates_pool_ratio": 1.0, "scale_down_candidates_pool_min_count": 1000}  # fmt: skip
    first = decide(objects, **options)
    assert len(unneeded(first)) == 30
    removed = next(iter(first.unneeded_since))
    rest = [item for item in objects if item.metadata.name not in (removed, f"p{removed[1:]}")]
    second = decide(rest, state=first.state, after=MINUTE, **options)
    assert len(unneeded(second)) == 30
    assert unneeded(first) - {removed} <= unneeded(second)


def test_empty_nodes_are_not_capped() -> None:
    objects = [machine(f"n{i}") for i in range(100)] + [run(f"p{i}", f"n{i}", 100) for i in range(70)]
    options = {"scale_down_utilization_threshold": 0.35, "scale_down_candidates_pool_ratio": 1.0}
    assert len(unneeded(decide(objects, **options))) == 60


def test_a_pool_of_candidates() -> None:
    objects = [machine(f"n{i}") for i in range(100)] + [run(f"p{i}", f"n{i}", 100) for i in range(100)]
    options = {"scale_down_candidates_pool_ratio": 0.1, "scale_down_candidates_pool_min_count": 10}
    assert 0 < len(unneeded(decide(objects, **options))) <= 10
    every = decide(objects, scale_down_non_empty_candidates_count=0)
    assert len(unneeded(every)) == 100


def started(*names: str, since: int = 3600 * SECOND) -> ca.LoopState:
    memory = ca.ScaleDownState(unneeded_since=dict.fromkeys(names, N0 - since), started=True)
    return ca.LoopState(scale_down=memory)


@pytest.mark.parametrize(
    ("sizes", "groups", "options", "count"),
    [
        ([1000] * 4, {"a": ["n0", "n1"], "b": ["n2", "n3"]}, {}, 2),
        ([1000] * 2, {"a": ["n0", "n1"]}, {}, 1),
        ([1000] * 1, {"a": ["n0"]}, {}, 0),
        ([1000] * 4, {"a": ["n0", "n1", "n2", "n3"]}, {"max_empty_bulk_delete": 2}, 2),
    ],
    ids=["two-groups", "one-group", "single-node", "bulk"],
)
def test_empty_nodes_go_together(
    sizes: list[int], groups: dict[str, list[str]], options: dict[str, Any], count: int
) -> None:
    objects = [machine(f"n{i}", cpu) for i, cpu in enumerate(sizes)]
    result = decide(objects, groups, least=1, state=started(*(f"n{i}" for i in range(len(sizes)))), **options)
    assert len(result.delete_empty) == count
    assert result.result == ("ScaleDownNodeDeleted" if count else "ScaleDownNoUnneeded")


def test_minimum_cores() -> None:
    objects = [machine("n1", 2000), machine("n2", 1000)]
    result = decide(objects, state=started("n1", "n2"), cores_total=ResourceRange(2, 99))
    assert result.delete_empty == ["n2"]
    assert result.unremovable["n1"].reason == "MinimalResourceLimitExceeded"


def test_minimum_memory() -> None:
    mib = 1 << 20
    objects = [machine(f"n{i}", 1000, size * mib) for i, size in enumerate([1000, 1000, 1000, 3000])]
    limits = ca.ResourceLimiter(min={"memory": 4000 * mib}, max={})
    groups = Groups([NodeGroup(id="a", max_size=9, target_size=3, nodes=["n0", "n1", "n2"]),
                        NodeGroup(id="b", max_size=9, target_size=1, nodes=["n3"])])  # fmt: skip
    result = kscale.scale_down(
        Cluster(objects).snapshot(), groups, now=N0, options=options(), inputs=ca.ScaleDownInputs(limits=limits),
        state=started("n0", "n1", "n2"),
    )  # fmt: skip
    assert len(result.delete_empty) == 2


def test_minimum_of_gpus() -> None:
    objects = []
    for i in range(3):
        created = machine(f"n{i}")
        created.metadata.labels = {"cloud.google.com/gke-accelerator": "v100"}
        for amounts in (created.status.capacity, created.status.allocatable):
            assert amounts is not None
            amounts["nvidia.com/gpu"] = kscale.Quantity("2")
        objects.append(created)
    result = kscale.scale_down(
        Cluster(objects).snapshot(),
        Groups([NodeGroup(id="a", max_size=9, target_size=3, nodes=["n0", "n1", "n2"])]),
        now=N0,
        options=options(),
        state=started("n0", "n1", "n2"),
        inputs=ca.ScaleDownInputs(
            limits=ca.ResourceLimiter(min={"v100": 4}, max={}), gpu_label="cloud.google.com/gke-accelerator"
        ),
    )
    assert len(result.delete_empty) == 1


@pytest.mark.parametrize(("since", "result"), [(3, "ScaleDownNoUnneeded"), (180, "ScaleDownNodeDeleteStarted")])
def test_nodes_that_are_not_ready(since: int, result: str) -> None:
    objects = [machine("n1", ready=False), machine("n2", ready=False)]
    plan = decide(
        objects, state=started("n1", "n2", since=since * MINUTE), scale_down_unready_time=timedelta(hours=1),
        max_empty_bulk_delete=0,
    )  # fmt: skip
    assert plan.result == result
    if since == 3:
        assert plan.unremovable["n1"].reason == "NotUnreadyLongEnough"


def test_one_node_is_drained_and_others_lose_their_time() -> None:
    """n1 and n2 would both go to n3: once n1 is drained there is less room for the pods of n2."""
    objects = [machine("n1"), machine("n2"), machine("n3"),
               run("p1", "n1", 300), run("p2", "n2", 300), run("p3", "n3", 600)]  # fmt: skip
    first = decide(objects)
    assert unneeded(first) == {"n1", "n2"}
    second = decide(objects, state=ca.LoopState.from_json(first.state.to_json()), after=11 * MINUTE)
    assert second.result == "ScaleDownNodeDeleteStarted"
    assert list(second.drain) == ["n1"]
    assert len(second.drain["n1"]) == 1
    assert "n1" not in second.state.scale_down.unneeded_since


def test_nothing_more_while_a_node_is_drained() -> None:
    result = kscale.scale_down(
        Cluster([machine("n1"), machine("n2")]).snapshot(),
        Groups([NodeGroup(id="a", max_size=9, target_size=2, nodes=["n1", "n2"])]),
        now=N0, options=options(), state=started("n1"),
        inputs=ca.ScaleDownInputs(draining=[ca.NodeInGroup(node="n2", group="a")]),
    )  # fmt: skip
    assert result.result == "ScaleDownInProgress"
    assert result.chosen is None


def test_a_process_that_has_just_started_waits() -> None:
    first = decide([machine("n1")], options=ca.AutoscalingOptions.for_profile("legacy"))
    assert first.result == "ScaleDownInCooldown"
    assert first.state.scale_down.last_scale_up == N0


def test_use_at_the_threshold_is_need() -> None:
    objects = [machine("n1"), machine("n2"), run("p1", "n1", 500)]
    assert unneeded(decide(objects)) == {"n2"}
    today = ca.AutoscalingOptions(skip_nodes_with_custom_controller_pods=False)
    assert decide(objects, options=today).eligibility["n1"].eligible


def test_masters_stay() -> None:
    api = run("api", "n1", 0, namespace="kube-system", labels={"component": "kube-apiserver"},
              annotations={"kubernetes.io/config.mirror": "x"})  # fmt: skip
    result = decide([machine("n1"), machine("n2"), api], state=started("n1", "n2"))
    assert result.delete_empty == ["n2"]


def test_nodes_that_are_not_ready_take_no_pods() -> None:
    objects = [machine("n1"), machine("n2", ready=False), run("p1", "n1", 100)]
    assert decide(objects).failures["n1"].reason == "NoPlaceToMovePods"


@pytest.mark.parametrize(
    "unknown_options",
    [
        {"exhaustive": True},
        {"recent_evictions": [pod("p")]},
        {"upcoming": ["n1"]},
        {"max_simulations": 0},
        {"threads": 1},
    ],
)
def test_options_unknown_to_that_release_are_refused(unknown_options: dict[str, Any]) -> None:
    exhaustive = "exhaustive" in unknown_options
    inputs = None if exhaustive else ca.ScaleDownInputs(**unknown_options)
    with pytest.raises(InputError, match=f"{next(iter(unknown_options))}: the planner of release 1.3 does not know it"):
        kscale.scale_down(Cluster().snapshot(), [], now=N0, options=options(), inputs=inputs, exhaustive=exhaustive)


# -- pods ------------------------------------------------------------------------------------------------------------


def context(**more: Any) -> ca.DrainContext:
    return ca.DrainContext(SECONDS * 10**9, options(), **more)


def stored(**empty_dir: Any) -> Pod:
    created = run("p", "n", 1)
    created.spec.volumes = [Volume(name="v", empty_dir=empty_dir)]
    return created


SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"


@pytest.mark.parametrize(
    ("item", "moves", "reason"),
    [
        (run("p", "n", 1), True, None),
        (run("p", "n", 1, naked=True), False, "NotReplicated"),
        (run("p", "n", 1, naked=True, annotations={SAFE: "true"}), True, None),
        (run("p", "n", 1, annotations={SAFE: "false"}), False, "NotSafeToEvictAnnotation"),
        (run("p", "n", 1, annotations={SAFE: "on-completion"}), True, None),
        (run("p", "n", 1, namespace="kube-system"), False, "UnmovableKubeSystemPod"),
        (stored(), False, "LocalStorageRequested"),
        (stored(medium="Memory"), False, "LocalStorageRequested"),
        (run("p", "n", 1, owner_references=owner("DaemonSet")), False, None),
        (run("p", "n", 1, annotations={"kubernetes.io/config.mirror": "x"}, naked=True), False, None),
        (run("p", "n", 1, naked=True, deletion_timestamp="2020-12-18T16:47:59Z"), False, None),
        (run("p", "n", 1, naked=True, deletion_timestamp="2020-12-18T16:49:00Z"), False, "NotReplicated"),
    ],
    ids=["replica", "naked", "safe", "not-safe", "on-completion", "system", "disk", "memory", "daemon", "mirror",
         "long-gone", "going"],
)  # fmt: skip
def test_pod_checks(item: Pod, moves: bool, reason: str | None) -> None:
    result = get_pods_to_drain([item], context(), system=True, storage=True)
    assert [each.key for each in result.pods] == ([item.key] if moves else [])
    assert (result.blocking and result.blocking.reason) == reason
    assert (result.error is None) == (reason is None)


def test_controllers_are_looked_up_in_detail_only() -> None:
    item = run("p", "n", 1)
    assert get_pods_to_drain([item], context(), system=True, storage=True).blocking is None
    result = get_pods_to_drain([item], context(listers=ca.Listers()), system=True, storage=True)
    assert result.error == 'replication controller for default/p is not available, err: replicaset.apps "rs" not found'


def test_budgets_hold_for_pods_that_may_be_evicted() -> None:
    budget = from_dict(
        {"metadata": {"name": "b", "namespace": "default"}, "spec": {"selector": {}}, "status": {}},
        PodDisruptionBudget,
    )
    item = run("p", "n", 1, naked=True, annotations={SAFE: "true"})
    result = get_pods_to_drain([item], context(pdbs=ca.RemainingPdbTracker([budget])), system=True, storage=True)
    assert result.error == "not enough pod disruption budget to move default/p"


# -- the usage tracker -----------------------------------------------------------------------------------------------


def test_nodes_that_shared_a_destination_lose_their_time() -> None:
    tracker = UsageTracker()
    for user, used in ("AB", "AC", "XC", "CZ", "MN"):
        tracker.register(user, used, N0)
    assert tracker.remove("A", ["A", "C", "X", "M"]) == {"A", "X"}
    assert "A" not in tracker.records
    assert tracker.records["C"].used_by.keys() == {"X"}


@pytest.mark.parametrize("users", [MAX_USAGE_RECORDED, 55])
def test_too_many_relations(users: int) -> None:
    tracker = UsageTracker()
    for i in range(users):
        tracker.register(f"n{i}", "hub", N0)
    many = users > MAX_USAGE_RECORDED
    assert tracker.records["hub"].used_by_too_many is many
    assert len(tracker.records["hub"].used_by) == MAX_USAGE_RECORDED
    assert tracker.remove("n0", ["n0", "other"]) == ({"n0", "other"} if many else {"n0"})


def test_old_relations_are_forgotten() -> None:
    tracker = UsageTracker()
    tracker.register("a", "b", N0)
    tracker.register("c", "d", N0 + MINUTE)
    tracker.clean_up(N0 + MINUTE)
    assert tracker.records.keys() == {"c", "d"}


def test_unknown_gpus_count_only_for_limits_of_gpus() -> None:
    """As ``ContainsGpuResources`` in upstream: cores are counted, and nodes removed, whatever the GPUs are."""
    label = "cloud.google.com/gke-accelerator"
    objects = [machine(f"n{i}") for i in range(3)]
    for each in objects:
        each.metadata.labels = {label: "v100"}  # but there are no devices, and no template of the group

    def deleted(minimum: dict[str, int]) -> int:
        result = kscale.scale_down(
            Cluster(objects).snapshot(),
            Groups([NodeGroup(id="a", max_size=9, target_size=3, nodes=["n0", "n1", "n2"])]),
            now=N0,
            options=options(),
            state=started("n0", "n1", "n2"),
            inputs=ca.ScaleDownInputs(limits=ca.ResourceLimiter(min=minimum, max={}), gpu_label=label),
        )
        return len(result.delete_empty)

    assert deleted({"cpu": 1}) == 2
    assert deleted({"v100": 1}) == 0
