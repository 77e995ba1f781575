"""While nothing changes, a cluster's snapshot is the very same; whatever changes makes another."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable
from threading import Thread

import numpy as np
import pytest
from numpy.typing import NDArray

from builders import node, pod
from kscale.objects.api.core import Node, Service
from kscale.objects.api.meta import ObjectMeta
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot, without_placed_by


def _machine(name: str) -> Node:
    created = node(name, 1000, 1000)
    created.api_version, created.kind = "v1", "Node"
    return created


def _cluster() -> Cluster:
    placed = [pod(f"run{i}", 100, 10, spec={"node_name": f"n{i % 2}"}) for i in range(3)]
    return Cluster([_machine("n0"), _machine("n1"), *placed, pod("wait", 100, 10)])


def _service() -> Service:
    return Service(metadata=ObjectMeta(name="s", namespace="default"))


_CHANGES: dict[str, Callable[[Cluster], object]] = {
    "a pod comes": lambda cluster: cluster.apply(pod("new", 100, 10)),
    "a pod is another": lambda cluster: cluster.apply(pod("wait", 200, 10)),
    "a pod is told again": lambda cluster: cluster.apply(pod("wait", 100, 10)),
    "a pod goes": lambda cluster: cluster.remove(pod("wait")),
    "a node comes": lambda cluster: cluster.apply(_machine("n2")),
    "a node is told again": lambda cluster: cluster.apply(_machine("n1")),
    "a node goes": lambda cluster: cluster.remove("Node", "n1"),
    "a service comes": lambda cluster: cluster.apply(_service()),
}


def test_snapshot_is_reused_while_nothing_changes() -> None:
    created = _cluster()
    first, with_devices = created.snapshot(), created.snapshot(dra=True)
    assert first is not with_devices
    assert (first.dra, with_devices.dra) == (False, True)
    assert not created.remove("Pod", "default/nobody")
    created.pod_index()
    assert created.snapshot() is first
    assert created.snapshot(dra=True) is with_devices


@pytest.mark.parametrize("what", _CHANGES)
def test_change_creates_a_new_snapshot(what: str) -> None:
    created = _cluster()
    first, with_devices = created.snapshot(), created.snapshot(dra=True)
    before = first.nodes[:], first.pods[:], first.pending[:], first.pod_count.tolist()
    _CHANGES[what](created)
    later, fresh = created.snapshot(), Cluster(created).snapshot()
    assert later is not first
    assert created.snapshot(dra=True) is not with_devices
    assert (first.nodes, first.pods, first.pending, first.pod_count.tolist()) == before
    assert (later.nodes, later.pods, later.pending) == (fresh.nodes, fresh.pods, fresh.pending)
    assert later.pod_count.tolist() == fresh.pod_count.tolist()
    assert {name: column.tolist() for name, column in later.used.items()} == {
        name: column.tolist() for name, column in fresh.used.items()
    }
    assert list(later.informers.services) == list(fresh.informers.services)


def test_copies_and_pickles_have_their_own() -> None:
    created = _cluster()
    first = created.snapshot()
    for other in (created.copy(), pickle.loads(pickle.dumps(created))):
        assert other.snapshot() is not first
        assert other.snapshot().pods == first.pods
        other.remove(pod("wait"))
        assert other.snapshot().pending == ()
    assert created.snapshot() is first


def test_without_placed_is_computed_once() -> None:
    first = _cluster().snapshot()
    removed_rows = np.array([0, 2])
    reduced = first.without_placed(removed_rows)
    assert reduced.pods == ("default/run1",)
    assert reduced.pod_count.tolist() == [0, 1]
    assert first.without_placed(removed_rows.copy()) is reduced
    assert first.without_placed(np.array([1])).pods == ("default/run0", "default/run2")
    assert first.without_placed(removed_rows[:0]) is first
    assert len(first.pods) == 3


def test_without_placed_by_a_rule_is_computed_once() -> None:
    first, calls = _cluster().snapshot(), list[str]()

    def find(*positions: int) -> Callable[[Snapshot], NDArray[np.int64]]:
        def found(snapshot: Snapshot) -> NDArray[np.int64]:
            calls.append(f"{positions} of {len(snapshot.pods)}")
            return np.array(positions, dtype=np.int64)

        return found

    reduced = without_placed_by(first, "some", find(0, 2))
    assert reduced.pods == ("default/run1",)
    assert without_placed_by(first, "some", find(0, 2)) is reduced is first.without_placed(np.array([0, 2]))
    assert without_placed_by(first, "others", find(1)).pods == ("default/run0", "default/run2")
    assert without_placed_by(first, "some", find(0, 2)).pods == ("default/run1",)
    assert without_placed_by(first, "none", find()) is first
    assert calls == ["(0, 2) of 3", "(1,) of 3", "(0, 2) of 3", "() of 3"]


def test_unrequested_resources_have_no_column() -> None:
    pods = [pod(f"p{i}", 0, 0, spec={"node_name": "n0"}) for i in range(2)]
    reduced = Cluster([_machine("n0"), *pods]).snapshot().without_placed(np.array([0]))
    assert reduced.pod_count.tolist() == [1]
    assert not any(column.any() for column in reduced.used.values())


def test_placements_one_after_the_other() -> None:
    snapshot = Cluster([_machine("n0"), _machine("n1"), *(pod(f"p{i}", 1, 1) for i in range(1200))]).snapshot()
    first = after = snapshot.with_placed([snapshot.pending_records[0]], [0])
    for i in range(1, 1200):
        after = after.with_placed([snapshot.pending_records[i]], [i % 2])
    assert after.counts["placed"] == 1200
    assert after.pod_count.tolist() == [600, 600]
    assert not after.pending
    of_first = weakref.ref(first)
    del first
    gc.collect()
    assert of_first() is None, "snapshots before are released"


def test_a_placement_does_not_depend_on_lists_that_change_later() -> None:
    snapshot = _cluster().snapshot()
    records, nodes = [*snapshot.pending_records], [1]
    after = snapshot.with_placed(records, nodes)
    records.clear()
    nodes.clear()
    assert after.pods == (*snapshot.pods, "default/wait")
    assert after.placed_node.tolist() == [*snapshot.placed_node.tolist(), 1]


def test_another_rule_in_another_thread_replaces_no_result() -> None:
    """The other thread runs between the comparison of the rules and the return of the cached result."""
    first = _cluster().snapshot()
    others: list[tuple[str, ...]] = []

    class Rule:
        def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
            self.meanwhile = meanwhile

        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            if not isinstance(other, Rule):
                return False
            for rule in (self, other):
                rule.meanwhile()
            return True

    def meanwhile() -> None:
        def run() -> None:
            others.append(without_placed_by(first, "others", lambda snapshot: np.array([1], np.int64)).pods)

        thread = Thread(target=run)
        thread.start()
        thread.join()

    def find(snapshot: Snapshot) -> NDArray[np.int64]:
        return np.array([0, 2], np.int64)

    assert without_placed_by(first, Rule(), find).pods == ("default/run1",)
    assert without_placed_by(first, Rule(meanwhile), find).pods == ("default/run1",)
    assert others == [("default/run0", "default/run2")]
    assert without_placed_by(first, "others", find).pods == ("default/run0", "default/run2")
    assert without_placed_by(first, Rule(), find).pods == ("default/run1",)
