"""Removal simulation: upstream's table of SimulateNodeRemoval, and what a success leaves behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from builders import N0, node, owner, pod
from kscale import ca
from kscale.ca.scale_down import removal
from kscale.ca.scale_down.moving_pods import get_moving_pods
from kscale.objects.api.core import Node, Pod, TopologySpreadConstraint
from kscale.objects.api.meta import LabelSelector
from kscale.objects.api.policy import PodDisruptionBudget
from kscale.objects.decode import from_dict
from kscale.scheduling.place import PlaceState
from kscale.snapshot.cluster import Cluster

HOSTNAME = "kubernetes.io/hostname"


def worker(name: str, **metadata: Any) -> Node:
    return node(name, 1000, 2_000_000, ready=True, **metadata)


def replica(name: str, on: str, cpu: int = 100, memory: int = 100_000, **more: Any) -> Pod:
    created = pod(name, cpu, memory, owner_references=owner("ReplicaSet", "rs"), **more)
    created.spec.node_name = on
    return created


def naked(name: str, on: str, cpu: int) -> Pod:
    created = pod(name, cpu, 100_000)
    created.spec.node_name = on
    return created


def spread_over_hosts(policy: str | None) -> dict[str, Any]:
    constraint = TopologySpreadConstraint(
        max_skew=1,
        topology_key=HOSTNAME,
        when_unsatisfiable="DoNotSchedule",
        min_domains=2,
        label_selector=LabelSelector(match_labels={"app": "topo-app"}),
        node_taints_policy=policy,
    )
    return {"topology_spread_constraints": [constraint]}


def topo(policy: str | None, extra: int) -> list[Any]:
    objects: list[Any] = []
    for name in ("t1", "t2", "t3"):
        objects.append(worker(name, labels={HOSTNAME: name}))
        objects.append(replica(f"p-{name}", name, spec=spread_over_hosts(policy), labels={"app": "topo-app"}))
    return objects + [naked(f"x-{i}", f"t{i + 2}", 100) for i in range(extra)]


A, B, X, L = replica("a", "n2"), replica("b", "n2"), naked("x", "n3", 100), naked("l", "n4", 1000)
PLACE, INFO = "NoPlaceToMovePods", "NoNodeInfo"


@pytest.mark.parametrize(
    ("objects", "name", "want"),
    [
        ([worker("n1")], "n1", []),
        ([worker("n2"), A, B], "n2", PLACE),
        ([worker("n2"), worker("n3"), A, B, X], "n2", ["default/a", "default/b"]),
        ([worker("n2"), worker("n4"), A, B, L], "n2", PLACE),
        ([worker("n1"), worker("n2"), worker("n4"), worker("n3"), A, B, X, L], "n1", []),
        (topo(None, 2), "t1", PLACE),
        (topo("Honor", 0), "t1", ["default/p-t1"]),
        ([], "n5", INFO),
    ],
    ids=["empty", "alone", "moves", "full", "many", "ghost-domain", "ghost-honoured", "unknown"],
)
def test_upstreams_table(objects: list[Any], name: str, want: list[str] | str) -> None:
    result = _remove(objects, name, listers=ca.Listers([]), persist=False)
    if isinstance(want, str):
        assert [item.reason for item in result.unremovable] == [want]
        assert not result.removable
    else:
        assert [item.pods_to_reschedule for item in result.removable] == [want]


OPTIONS = ca.AutoscalingOptions(skip_nodes_with_custom_controller_pods=False)


def _remove(objects: list[Any], *names: str, **more: Any) -> ca.RemovalResult:
    return ca.simulate_removals(Cluster(objects).snapshot(), names, now=N0, options=OPTIONS, **more)


def test_moved_pods_live_on() -> None:
    objects = [worker("n1"), worker("n2"), worker("n3"), replica("a", "n1"), replica("b", "n2")]
    result = _remove(objects, "n1", "n2")
    assert result.removable[0].placement == {"default/a": "n2"}
    assert result.removable[1].pods_to_reschedule == ["default/b", "default/a"]
    assert set(result.removable[1].placement.values()) == {"n3"}
    assert result.state.hints == {"a": "n3", "b": "n3"}


def test_a_failure_leaves_hints_and_cursor() -> None:
    objects = [worker("n1"), worker("n2"), replica("a", "n1", 400), replica("b", "n1", 900)]
    result = _remove(objects, "n1")
    assert [(item.reason, item.homeless) for item in result.unremovable] == [(PLACE, "default/b")]
    assert result.state == PlaceState(cursor=1, hints={"a": "n2"})


def test_simulators_of_one_snapshot_do_not_see_each_other() -> None:
    objects = [worker("n1"), worker("n2"), worker("n3"), replica("a", "n1", 600), replica("b", "n2", 600)]
    snapshot = Cluster(objects).snapshot()
    first, second = (ca.RemovalSimulator(snapshot, now=N0, options=OPTIONS) for _ in range(2))
    assert [item.node for item in first.run(["n1", "n3"]).removable] == ["n1"]
    assert [item.node for item in second.run(["n3", "n1"]).removable] == ["n3"]
    third = ca.RemovalSimulator(snapshot, now=N0, options=OPTIONS).run(["n1", "n3"])
    assert [(item.node, item.placement) for item in third.removable] == [("n1", {"default/a": "n3"})]
    assert [pod.metadata.name for pod in first.pods_on("n3")] == ["a"]


@pytest.mark.parametrize(("has_ledger", "compiled"), [(False, [1, 2, 2, 2]), (True, [1, 2, 3, 4])])
def test_a_compilation_is_shared_from_the_second_on_unless_it_has_a_ledger(
    has_ledger: bool, compiled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most snapshots are asked about once. A ledger of devices belongs to one engine, and cannot be copied."""
    created: list[Any] = []

    class Compiled:
        def __init__(self, *_: Any) -> None:
            self.session = SimpleNamespace(has_ledger=has_ledger)
            created.append(self)

        def copy(self) -> SimpleNamespace:
            assert not has_ledger
            return SimpleNamespace()

    monkeypatch.setattr(removal, "CompiledRemoval", Compiled)
    snapshot = Cluster([worker("n1")]).snapshot()
    counts = []
    for _ in compiled:
        result = removal.get_compiled_removal(snapshot, None, get_moving_pods(snapshot))
        assert (result is created[-1]) == (has_ledger or len(counts) == 0)  # what is cached is never handed out itself
        counts.append(len(created))
    assert counts == compiled


def test_simulation_of_no_nodes_keeps_its_state() -> None:
    objects = [worker("n1"), worker("n2"), worker("n3"), replica("a", "n1"), replica("b", "n2")]
    state = PlaceState(cursor=2, hints={"a": "n2"}, old_hints={"b": "n3"})
    snapshot = Cluster(objects).snapshot()
    simulator = ca.RemovalSimulator(snapshot, now=N0, options=OPTIONS, state=state)
    nobody = simulator.run([])
    assert (nobody.removable, nobody.unremovable, nobody.state) == ([], [], state)
    simulator.set_time(N0 + 60 * 10**9)
    fresh = ca.RemovalSimulator(snapshot, now=N0 + 60 * 10**9, options=OPTIONS, state=state)
    late, at_once = simulator.run(["n1", "n2"]), fresh.run(["n1", "n2"])
    assert [item.placement for item in late.removable] == [item.placement for item in at_once.removable]
    assert late.removable[0].placement == {"default/a": "n2"}
    assert late.state == at_once.state
    dropped = ca.RemovalSimulator(snapshot, now=N0, options=OPTIONS, state=state)
    dropped.drop_old_hints()
    assert dropped.state == PlaceState(cursor=2, old_hints={"a": "n2"})
    assert dropped.run(["n1"]).removable[0].placement == {"default/a": "n2"}


def test_budgets_are_charged() -> None:
    budget = from_dict(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"namespace": "default", "name": "one"},
            "spec": {"selector": {}},
            "status": {"disruptionsAllowed": 1},
        },
        PodDisruptionBudget,
    )
    objects = [*(worker(f"n{i}") for i in range(3)), replica("a", "n0"), replica("b", "n0"), replica("c", "n1"), budget]
    result = _remove(objects, "n0", "n1")
    assert [(item.node, item.risky) for item in result.removable] == [("n0", True)]
    assert [(item.node, item.reason) for item in result.unremovable] == [("n1", "BlockedByPod")]
    assert result.pdbs.pdbs[0].disruptions_allowed == -1


def test_tpu_requests_do_not_travel() -> None:
    created = replica("a", "n1")
    requests = created.spec.containers[0].resources.requests
    assert requests is not None
    requests["cloud-tpus.google.com/v2"] = requests["cpu"]
    assert _remove([worker("n1"), worker("n2"), created], "n1").removable[0].placement == {"default/a": "n2"}
