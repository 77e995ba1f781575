"""One loop of scale-down: upstream's tables of UpdateClusterState, limits, state, reasons in words."""

from __future__ import annotations

import gc
import pickle
import weakref
from datetime import timedelta
from random import Random
from typing import Any

import pytest

import kscale
from builders import N0, group_options, node, owner, pod
from kscale import ca
from kscale.ca.nodes import TO_BE_DELETED_TAINT
from kscale.ca.scale_down.plan import explain_unremovable
from kscale.effects import SECOND
from kscale.errors import InputError, StateError
from kscale.objects.api.core import Node, Pod, Taint
from kscale.objects.api.policy import PodDisruptionBudget
from kscale.objects.api.volumes import Volume
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import Groups, NodeGroup
from kscale.snapshot.cluster import Cluster

MINUTES = 60 * SECOND
LAX = ca.AutoscalingOptions(
    skip_nodes_with_system_pods=False,
    skip_nodes_with_local_storage=False,
    skip_nodes_with_custom_controller_pods=False,
    scale_down_utilization_threshold=100.0,
)


def nodes(*sizes: str) -> list[Node]:
    """``1000`` = a node of that many milli-cores; ``!`` behind it: about to be deleted."""
    result = []
    for i, text in enumerate(sizes, 1):
        created = node(f"n{i}", int(text.rstrip("!")), 10, ready=True)
        if text.endswith("!"):
            created.spec.taints = [Taint(key=TO_BE_DELETED_TAINT, value=str(N0 // SECOND), effect="NoSchedule")]
        result.append(created)
    return result


def pods(*texts: str) -> list[Pod]:
    """``500@1`` = a pod of that many milli-cores on node n1, owned by a ReplicaSet."""
    result = []
    for i, text in enumerate(texts):
        cpu, on = text.split("@")
        created = pod(f"p{i}", int(cpu), 1, owner_references=owner("ReplicaSet", "rs", "apps/v1"))
        created.spec.node_name = f"n{on}"
        result.append(created)
    return result


def group(names: list[str], **more: Any) -> Groups:
    return Groups([NodeGroup(id="ng1", max_size=99, target_size=len(names), nodes=names, instances=names, **more)])


def plan(objects: list[Any], names: list[str], **more: Any) -> kscale.ScaleDownPlan:
    inputs = {name: more.pop(name) for name in [*more] if name in ca.ScaleDownInputs.__struct_fields__}
    arguments: dict[str, Any] = {"now": N0, "options": LAX, "inputs": ca.ScaleDownInputs(**inputs), **more}
    return kscale.scale_down(Cluster(objects).snapshot(), arguments.pop("groups", group(names)), **arguments)


@pytest.mark.parametrize(
    ("sizes", "placed", "candidates", "want"),
    [
        ("1000 1000 1000", "", "1 2 3", "1 2 3"),
        ("1000 1000 1000", "", "1 2", "1 2"),
        ("1000", "500@1", "1", ""),
        ("1000 1000!", "500@1 500@1", "1", ""),
        ("1000 1000", "500@1 500@1", "1", "1"),
        ("2000 1000 500", "1000@1 1000@1 1000@2", "1 2", ""),
        ("1000 1000 2000", "500@1 500@1 500@2 500@2", "1 2", "1 2"),
        ("2000 1000 1000", "1000@1 1000@1 500@2 500@2", "1 2", "2"),
        ("1000 1000 500", "500@1 500@1 500@2 500@2", "1 2", ""),
    ],
)
def test_unneeded_nodes(sizes: str, placed: str, candidates: str, want: str) -> None:
    objects = [*nodes(*sizes.split()), *pods(*placed.split())]
    result = plan(objects, [f"n{i}" for i in candidates.split()])
    assert [item.name for item in result.unneeded] == [f"n{i}" for i in want.split()]


def evicted(*cpus: int, **metadata: Any) -> list[Pod]:
    return [
        pod(f"e{i}", cpu, 1, **{"owner_references": owner("ReplicaSet", "rs", "apps/v1"), **metadata})
        for i, cpu in enumerate(cpus)
    ]


@pytest.mark.parametrize(
    ("sizes", "evicted_pods", "candidates", "want"),
    [
        ("1000 2000!", evicted(500), "1", ""),
        ("1000", evicted(1000, owner_references=[]), "1", ""),
        ("1000 2000!", evicted(500, annotations={"kubernetes.io/config.mirror": "x"}), "1", "1"),
        ("1000 2000!", evicted(500, annotations={"kubernetes.io/config.source": "file"}), "1", "1"),
        ("1000 2000!", evicted(500, owner_references=owner("DaemonSet")), "1", "1"),
        ("1000 1000 2000!", evicted(2000), "1 2", "1 2"),
    ],
    ids=["replica", "naked", "mirror", "static", "daemon", "fits-nowhere"],
)
def test_pods_that_were_evicted_of_late(sizes: str, evicted_pods: list[Pod], candidates: str, want: str) -> None:
    # The nodes about to be deleted take nothing; a pod of an owner that is not there is always put back.
    result = plan(nodes(*sizes.split()), [f"n{i}" for i in candidates.split()], recent_evictions=evicted_pods)
    assert [item.name for item in result.unneeded] == [f"n{i}" for i in want.split()]


@pytest.mark.parametrize(
    ("before", "count", "parallelism", "unneeded_time", "interval", "atomic", "want"),
    [
        (0, 100, 10, 60, 10, False, 20),
        (3, 100, 10, 60, 10, False, 23),
        (70, 100, 10, 60, 10, False, 70),
        (77, 100, 10, 60, 10, False, 70),
        (0, 100, 10, 0, 10, False, 20),
        (13, 100, 10, 60, 1, False, 33),
        (13, 100, 10, 60, 30, False, 30),
        (5, 100, 10, 60, 10, True, 100),
        (77, 100, 10, 60, 30, True, 100),
        (0, 500, 1, 1, 1, True, 500),
    ],
)
def test_the_limit_on_unneeded_nodes(
    before: int, count: int, parallelism: int, unneeded_time: int, interval: int, atomic: bool, want: int
) -> None:
    names = [f"n{i}" for i in range(1, count + 1)]
    options = ca.AutoscalingOptions(
        max_scale_down_parallelism=parallelism, scale_down_unneeded_time=timedelta(seconds=unneeded_time)
    )
    own = group_options(zero_or_max_node_scaling=atomic) if atomic else None
    state = ca.LoopState(
        scale_down=ca.ScaleDownState(unneeded_since=dict.fromkeys(names[:before], N0), update_interval=interval * 10**9)
    )
    result = plan(nodes(*["1000"] * count), names, groups=group(names, options=own), options=options, state=state)
    assert len(result.unneeded) == want
    assert len(result.skipped) == count - want


# -- choosing --------------------------------------------------------------------------------------------------------


def test_a_restart_with_the_saved_state_decides_the_same() -> None:
    objects = [*nodes("1000", "1000", "1000"), *pods("300@1", "300@2")]
    state = ca.LoopState()
    first = plan(objects, ["n1", "n2", "n3"], state=state)
    assert first.chosen is not None
    assert first.delete_empty == []
    later = N0 + 11 * MINUTES
    restarted = ca.LoopState.from_json(first.state.to_json())
    assert restarted == first.state
    second = plan(objects, ["n1", "n2", "n3"], state=restarted, now=later)
    assert second.delete_empty == ["n3"]
    assert second.drain == {"n1": {"default/p0": "n2"}}
    assert second.unneeded_since == first.unneeded_since
    assert second.result == "ScaleDownNodeDeleteStarted"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"{", "not a saved loop state"),
        (b'{"kind": "LoopState", "version": 7}', "version 7"),
        (b'{"kind": "Other", "version": 1}', "'Other'"),
        (b'{"kind": "LoopState", "version": 2, "cursor": "x"}', "cursor"),
    ],
)
def test_invalid_state_is_refused(text: bytes, says: str) -> None:
    with pytest.raises(StateError, match=says):
        ca.LoopState.from_json(text)


def test_time_does_not_run_backwards() -> None:
    state = ca.LoopState(scale_down=ca.ScaleDownState(last_update=N0 + MINUTES))
    with pytest.raises(InputError, match="before the last loop"):
        plan(nodes("1000"), ["n1"], state=state)


def test_two_loops_at_one_moment() -> None:
    first = plan(nodes("1000"), ["n1"])
    assert [item.name for item in plan(nodes("1000"), ["n1"], state=first.state).unneeded] == ["n1"]


@pytest.mark.parametrize("field", ["last_scale_up", "last_failure"])
def test_cooldown(field: str) -> None:
    state = ca.LoopState(scale_down=ca.ScaleDownState(**{field: N0 - MINUTES}))
    result = plan(nodes("1000"), ["n1"], state=state)
    assert result.result == "ScaleDownInCooldown"
    assert result.chosen is None
    assert result.soft_taints.add == ["n1"]


def test_no_candidates() -> None:
    assert plan(nodes("1000"), []).result == "ScaleDownNoCandidates"


def test_exhaustive_knows_no_limits() -> None:
    names = [f"n{i}" for i in range(1, 41)]
    objects = [*nodes(*["1000"] * 40), *pods(*(f"400@{i}" for i in range(1, 41)))]
    result = plan(objects, names, exhaustive=True)
    assert len(result.drain) == 20
    assert result.state == ca.LoopState()
    assert len(plan(objects, names).unneeded) == 20
    assert {item.reason for item in result.unremovable.values()} == {"NoPlaceToMovePods"}


def test_exhaustive_may_be_disabled_too() -> None:
    objects = nodes("1000", "1000")
    result = plan(objects, ["n1", "n2"], exhaustive=True, disabled=True)
    assert (result.result, result.chosen, result.delete_empty) == ("ScaleDownInCooldown", None, [])
    assert [item.name for item in result.unneeded] == ["n1", "n2"]


@pytest.mark.parametrize("seed", range(6))
def test_exhaustive_finds_a_set_to_which_no_node_can_be_added(seed: int) -> None:
    random = Random(seed)
    names = [f"n{i}" for i in range(1, 13)]
    placed = [f"{random.choice((100, 300, 500))}@{random.randint(1, 12)}" for _ in range(18)]
    objects = [*nodes(*["1000"] * 12), *pods(*placed)]
    result = plan(objects, names, exhaustive=True, threads=1)
    going = list(result.removable)
    stays = [name for name in result.alone if name not in going]
    again = ca.simulate_removals(Cluster(objects).snapshot(), [*going, *stays], now=N0, options=LAX)
    assert [item.node for item in again.removable] == going
    assert [item.node for item in again.unremovable] == stays
    # What a node could do alone is what it could do in a cluster of which nothing went.
    for name, answer in result.alone.items():
        single = ca.simulate_removals(Cluster(objects).snapshot(), [name], now=N0, options=LAX)
        assert (answer.node in result.removable) <= bool(single.removable)
        if single.removable:
            assert isinstance(answer, ca.RemovableNode)
            assert answer.placement == single.removable[0].placement
        else:
            assert answer == single.unremovable[0]
    for threads in (2, 5, None):
        more = plan(objects, names, exhaustive=True, threads=threads)
        assert repr(more.alone) == repr(result.alone)
        assert list(more.removable) == going


def test_each_node_is_judged_before_any_removal() -> None:
    budget = from_dict(
        {"metadata": {"name": "one", "namespace": "default"}, "spec": {"selector": {}},
         "status": {"disruptionsAllowed": 1}}, PodDisruptionBudget,
    )  # fmt: skip
    objects = [*nodes(*["1000"] * 3), *pods("400@1", "400@2"), budget]
    result = plan(objects, ["n1", "n2", "n3"], exhaustive=True, recent_evictions=[pod("gone", 700, 0)])
    allowed = result.pdbs.pdbs[0].disruptions_allowed
    assert allowed == 0
    # Each could go if the other stayed, but for the one that takes the pod evicted a moment ago.
    could = [name for name, answer in result.alone.items() if isinstance(answer, ca.RemovableNode)]
    assert len(could) == 2 > len(result.removable)
    assert result.alone is result.alone
    assert result.pdbs.pdbs[0].disruptions_allowed == allowed
    assert plan(objects, ["n1", "n2", "n3"]).alone == {}


def test_expendable_pods_are_not_there() -> None:
    created = pods("900@1", "900@2")
    created[0].spec.priority = -11
    result = plan([*nodes("1000", "1000"), *created], ["n1", "n2"])
    assert result.removable["n1"].pods_to_reschedule == []


def test_a_broken_budget_is_named() -> None:
    with pytest.raises(InputError, match=r"PodDisruptionBudget default/b: spec\.selector"):
        plan([*nodes("1000"), budget(0, operator="Sideways")], ["n1"])


def budget(allowed: int, **expression: str) -> PodDisruptionBudget:
    selector: dict[str, Any] = {"matchExpressions": [{"key": "a", **expression}]} if expression else {}
    return from_dict(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"namespace": "default", "name": "b"},
            "spec": {"selector": selector},
            "status": {"disruptionsAllowed": allowed},
        },
        PodDisruptionBudget,
    )


# -- nodes that are not removed ---------------------------------------------------------------------------------------


def _one(**more: Any) -> Pod:
    created = pod("p", 100, 1, **{"owner_references": owner("ReplicaSet", "rs", "apps/v1"), **more})
    created.spec.node_name = "n1"
    return created


def _with_storage() -> Pod:
    created = _one()
    created.spec.volumes = [Volume(name="scratch", empty_dir={})]
    return created


def _disabled() -> Node:
    created = node("n1", 1000, 10, ready=True)
    created.metadata.annotations = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    return created


@pytest.mark.parametrize(
    ("objects", "reason", "why"),
    [
        ([*nodes("1000", "1000"), _one(), budget(0)], "BlockedByPod",
         "default/p: PodDisruptionBudget default/b allows no more evictions now"),
        ([*nodes("1000", "1000"), _one(namespace="kube-system")], "BlockedByPod",
         "kube-system/p is a kube-system pod without PodDisruptionBudget and not known to be older than 1h0m0s"),
        ([*nodes("1000", "1000"), _one(owner_references=[])], "BlockedByPod",
         "default/p has no controller that would create it again"),
        ([*nodes("1000", "1000"), _with_storage()], "BlockedByPod",
         "default/p keeps data on the node (hostPath or emptyDir)"),
        ([*nodes("1000", "50"), _one()], "NoPlaceToMovePods", "default/p fits on no other node that stays"),
        ([_disabled(), *nodes("1000")[1:], node("n2", 1000, 10, ready=True)], "ScaleDownDisabledAnnotation",
         "annotated cluster-autoscaler.kubernetes.io/scale-down-disabled=true"),
    ],
    ids=["budget", "kube-system", "no-controller", "local-storage", "no-place", "annotation"],
)  # fmt: skip
def test_nodes_that_are_not_removed(objects: list[Any], reason: str, why: str) -> None:
    options = ca.AutoscalingOptions(skip_nodes_with_custom_controller_pods=False)
    snapshot = Cluster(objects).snapshot()
    groups = group(["n1"])
    result = kscale.scale_down(snapshot, groups, now=N0, options=options)
    assert result.unremovable["n1"].reason == reason
    assert explain_unremovable("n1", result, groups, options, snapshot) == why


@pytest.mark.parametrize(
    ("group_fields", "rolling", "why"),
    [
        ({"rolling_out": True}, ["n1"], "the machines of group ng1 are being replaced (it is currently under rollout)"),
        ({"rolling_out_error": "no such revision"}, [],
         "whether the machines of group ng1 are being replaced is not known: no such revision"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("exhaustive", [False, True])
def test_nodes_of_a_group_in_the_middle_of_a_rollout_are_no_candidates_and_take_pods(
    group_fields: dict[str, Any], rolling: list[str], why: str, exhaustive: bool
) -> None:
    other = NodeGroup(id="ng2", max_size=9, target_size=1, nodes=["n2"], instances=["n2"])
    groups = Groups([*group(["n1"], **group_fields), other])
    snapshot = Cluster([*nodes("1000", "1000"), *pods("100@2")]).snapshot()
    result = kscale.scale_down(snapshot, groups, now=N0, options=LAX, exhaustive=exhaustive)
    assert (result.candidates, result.under_rollout) == (["n2"], rolling)
    assert [item.name for item in result.unneeded] == ["n2"]
    assert result.removable["n2"].placement == {"default/p0": "n1"}
    assert explain_unremovable("n1", result, groups, LAX, snapshot) == why


@pytest.mark.parametrize("read_before", [False, True])
def test_a_pickled_plan_hands_on_the_same_state(read_before: bool) -> None:
    groups = [NodeGroup(id="g", max_size=9, nodes=["n1", "n2"])]
    plan = kscale.scale_down(Cluster([*nodes("1000", "1000"), *pods("100@1", "100@2")]), groups, now=N0, options=LAX)
    if read_before:
        assert plan.state.scale_down.hints
    again = pickle.loads(pickle.dumps(plan))
    assert repr(again) == repr(plan)
    assert again.state == plan.state
    assert list(plan.state.scale_down.hints.values()) == ["n2"]


def test_plan_releases_the_cluster_after_its_state_is_read() -> None:
    groups = [NodeGroup(id="g", max_size=9, nodes=["n1", "n2"])]
    plan = kscale.scale_down(Cluster([*nodes("1000", "1000"), *pods("100@1", "100@2")]), groups, now=N0, options=LAX)
    worked_out = weakref.ref(plan.remember)
    state = plan.state
    gc.collect()
    assert worked_out() is None
    assert plan.remember() is state
