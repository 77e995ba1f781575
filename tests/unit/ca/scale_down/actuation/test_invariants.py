"""What holds of every deletion, whatever goes wrong in whatever order."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import N0, group_options, node, owner, pod
from ca_world import World, never
from examples import examples
from kscale import ca
from kscale.ca.nodes import TO_BE_DELETED_TAINT, has_taint
from kscale.ca.scale_down.actuation.actuator import Actuator
from kscale.effects import SECOND, DeleteNodes, Evict, List, Patch, VirtualTime
from kscale.objects.nodegroup import Groups, NodeGroup
from kscale.snapshot.cluster import Cluster

LETTERS = ("a", "b", "A", "B")  # capitals go whole or not at all
FLAGS = st.fixed_dictionaries(
    {
        "drain": st.booleans(),
        "pods": st.integers(0, 2),
        "untaintable": st.sampled_from([False, False, False, False, True]),
        "unevictable": st.sampled_from([False, False, True]),
        "refused": st.sampled_from([False, False, True]),
        "lingers": st.sampled_from([0, 3, 700]),
    }
)
GROUPS = st.dictionaries(st.sampled_from(LETTERS), st.lists(FLAGS, min_size=1, max_size=3), min_size=1)


@settings(max_examples=examples(5 / 2), deadline=None)
@given(
    GROUPS,
    st.integers(0, 1),
    st.sampled_from([0, 7]),
    st.sampled_from([0, 15]),
    st.booleans(),
    st.dictionaries(st.sampled_from([Patch, Evict, DeleteNodes, List]), st.integers(0, 9)),
)
def test_every_deletion_ends(
    groups: dict[str, list[dict[str, Any]]],
    stray: int,
    interval: int,
    eviction: int,
    force: bool,
    takes: dict[type, int],
) -> None:
    """``stray``: pods that came to empty nodes meanwhile.

    A node whose deletion began has one result in the end: deleted nodes keep their taint, all others have lost it, and
    nothing is under way any more. But where nodes to drain cannot be tainted, empty ones of a group that goes whole
    wait for them for ever, as upstream has it.
    """
    flags = {f"{letter}{i}": each for letter, members in groups.items() for i, each in enumerate(members)}
    nodes = [node(name, 8000, 8000, ready=True) for name in flags]
    placed = []
    for name, each in flags.items():
        for i in range(each["pods"] if each["drain"] else stray * each["pods"]):
            created = pod(f"{name}-{i}", 1, 1, owner_references=owner("ReplicaSet", "rs", "apps/v1"))
            created.spec.node_name = name
            placed.append(created)
    options = ca.AutoscalingOptions(
        max_scale_down_parallelism=50,
        max_drain_parallelism=50,
        max_pod_eviction_time=timedelta(seconds=eviction),
        node_deletion_batcher_interval=timedelta(seconds=interval),
        skip_nodes_with_custom_controller_pods=False,
    )
    atomic = group_options(zero_or_max_node_scaling=True)
    known = Groups(
        NodeGroup(
            id=letter, max_size=9, target_size=len(members), options=atomic if letter.isupper() else None,
            nodes=(names := [f"{letter}{i}" for i in range(len(members))]), instances=names,
        )
        for letter, members in groups.items()
    )  # fmt: skip
    world = World(nodes, placed)
    world.takes = {kind: seconds * SECOND for kind, seconds in takes.items()}
    for name, each in flags.items():
        world.no_taint |= {name} if each["untaintable"] else set()
        world.cloud_refuses |= {name} if each["refused"] else set()
        world.no_eviction |= {f"{name}-{i}": never for i in range(2)} if each["unevictable"] else {}
        world.lingers |= {f"{name}-{i}": each["lingers"] * SECOND for i in range(2)}
    actuator = Actuator(options)
    result: list[Any] = []
    simulation = VirtualTime(world.perform, now=N0)
    machine = actuator.start_deletion(
        [name for name, each in flags.items() if not each["drain"]],
        [name for name, each in flags.items() if each["drain"]],
        Cluster([*nodes, *placed]).snapshot(),
        known,
        force=force,
    )
    simulation.start(machine, lambda value, _: result.append(value))
    simulation.run()
    (started,) = result
    begun = {item.node for item in started.nodes}
    results, _ = actuator.tracker.results(N0)
    waiting = begun - set(results)
    assert set(results) <= begun
    assert actuator.tracker.in_progress() == ca.DeletionsInProgress(empty=len(waiting))
    for name in waiting:
        assert started.error is not None
        assert name[0].isupper()
        assert any(f"{name[0]}{i}" not in begun for i in range(len(groups[name[0]])))
    deleted = [name for _, names in world.deleted for name in names]
    assert sorted(deleted) == sorted(name for name, item in results.items() if item.result == "NodeDeleteOk")
    assert {name for name in flags if has_taint(world.nodes[name], TO_BE_DELETED_TAINT)} == {*deleted, *waiting}
    for letter, members in groups.items():
        deleted_members = [name for name in deleted if name[0] == letter]
        if letter.isupper():
            assert len(deleted_members) in (0, len(members))
    assert (started.result == "ScaleDownError") is (started.error is not None)
