"""A fork knows where its pods are: nothing is placed twice, taken off where it is not, or lost with a node."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kscale
from kscale.errors import InputError, StateError
from kscale.objects.api.core import Node
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import NodeTemplate
from kscale.scheduling.fork import Fork

Json = dict[str, Any]


def node(name: str) -> Json:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}, "status": {"allocatable": amounts}}


def pod(name: str, cpu: str = "1", at: str = "") -> Json:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    spec = {"containers": [container], "nodeName": at}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "d"}, "spec": spec}


def forked(pods: Any = None, **options: Any) -> Fork:
    objects = [node("n1"), node("n2"), pod("a"), pod("b"), pod("r", "500m", "n1"), pod("s", "500m", "n1")]
    return kscale.fork(kscale.load(objects).snapshot(), pods, **options)


TEMPLATE = NodeTemplate(node=from_dict(node("t"), Node))


def free(world: Fork, name: str | int) -> int:
    return world.free(name)[0]["cpu"]


def then(*steps: Callable[[Fork], Any]) -> Callable[[Fork], Any]:
    def run(world: Fork) -> None:
        for step in steps:
            step(world)

    return run


def place(name: str, where: str) -> Callable[[Fork], Any]:
    return lambda world: world.place(name, where)


REFUSED: list[tuple[str, Callable[[Fork], Any], str]] = [
    ("a pod that was never placed", lambda v: v.unplace("d/a", "n1"), "pod 'd/a' is not on node 'n1'"),
    ("a pod somewhere else", then(place("d/a", "n2"), lambda v: v.unplace("d/a", "n1")), "'d/a' is not on node 'n1'"),
    (
        "twice off",
        then(place("d/a", "n2"), lambda v: v.unplace("d/a", "n2"), lambda v: v.unplace("d/a", "n2")),
        "'d/a'",
    ),
    ("placed twice", then(place("d/a", "n1"), place("d/a", "n2")), "pod 'd/a' is on node 'n1' already"),
    ("scheduled twice", then(lambda v: v.schedule("d/a", "n1"), lambda v: v.schedule("d/a", "n2")), "is on node 'n1'"),
    (
        "scheduled anywhere else",
        then(lambda v: v.schedule("d/a", "n2"), lambda v: v.schedule_anywhere("d/a")),
        "pod 'd/a' is on node 'n2' already",
    ),
    ("a node with pods", then(place("d/a", "n1"), lambda v: v.remove("n1")), "node 'n1' has pods .*: d/a$"),
    ("by class", lambda v: v.unplace(v.pod("d/a"), "n2"), "no pod of class 0 is on node 'n2'"),
    ("removed twice", then(lambda v: v.remove("n2"), lambda v: v.remove("n2")), "node 'n2' was removed"),
    ("free of a removed node", then(lambda v: v.remove("n2"), lambda v: v.free("n2")), "node 'n2' was removed"),
    ("placing on a removed node", then(lambda v: v.remove("n2"), place("d/a", "n2")), "node 'n2' was removed"),
    ("fits a removed node", then(lambda v: v.remove("n2"), lambda v: v.fits("d/a", "n2")), "node 'n2' was removed"),
    ("a name twice", then(lambda v: v.add(0, 5), lambda v: v.add(0, 5)), "there is a node 't-e-5' already"),
    ("a negative copy", lambda v: v.add(0, -1), "copy is -1"),
    ("a huge copy", lambda v: v.add(0, 2**70), "copy is 1180591620717411303424"),
    ("no such template", lambda v: v.add(1), "there is no template 1: this fork has 1"),
    ("a negative template", lambda v: v.add(-1), "there is no template -1"),
    ("name of -1", lambda v: v.node_name(-1), "the number of a node is -1, not between 0 and 1"),
    ("name of 99", lambda v: v.node_name(99), "the number of a node is 99"),
    ("class of -1", lambda v: v.class_of(-1), "the number of a pod's class is -1"),
    ("class of 99", lambda v: v.class_of(99), "the number of a pod's class is 99"),
    ("free of a huge number", lambda v: v.free(2**70), "the number of a node is 1180591620717411303424"),
    ("free of a float", lambda v: v.free(1.5), "the number of a node is 1.5, not a whole number"),
    ("placing a huge number", lambda v: v.place("d/a", 2**40), "the number of a node is"),
    ("an unknown pod", lambda v: v.place("d/zz", "n1"), "pod 'd/zz' was not passed to this fork"),
    ("an unknown node", lambda v: v.place("d/a", "zz"), "no node 'zz'"),
    ("floats", lambda v: v.schedule_anywhere("d/a", np.ones(2)), "acceptable is not a column of 2 truth values"),
    ("too short", lambda v: v.schedule_anywhere("d/a", [1]), "acceptable is not a column of 2 truth values"),
    ("ragged", lambda v: v.schedule_anywhere("d/a", [[1], 1]), "acceptable is not a column of 2 truth values"),
]


@pytest.mark.parametrize(("step", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_invalid_steps_are_refused_and_change_nothing(step: Callable[[Fork], Any], message: str) -> None:
    world = forked(templates=[TEMPLATE])
    before = world.checksum()
    world.fork()
    with pytest.raises(InputError, match=message):
        step(world)
    world.revert()
    assert world.checksum() == before
    assert [free(world, "n1"), free(world, "n2")] == [3000, 4000]


@pytest.mark.parametrize("acceptable", [[0, 1], np.array([False, True]), np.array([0, 9, 1, 9], np.uint8)[::2], (0, 7)])
def test_a_mask_of_any_kind(acceptable: Any) -> None:
    assert forked().schedule_anywhere("d/a", acceptable) == 1


def test_many_pods_are_scheduled_as_one_by_one() -> None:
    """Names and class numbers mix, and full nodes refuse; what a level did is undone with it."""
    pods = [pod("a"), pod("b", "2"), pod("c", "3"), pod("big", "9")]
    one, many = forked(pods), forked(pods)
    numbers = [one.pod("d/a"), one.pod("d/b"), one.pod("d/c"), "d/b", one.pod("d/big"), one.pod("d/a")]
    nodes = [0, 0, 1, 1, 1, -1]
    before = many.checksum()
    many.fork()
    refused = many.schedule_each(numbers, nodes)
    expected = [i for i, (p, n) in enumerate(zip(numbers, nodes, strict=True)) if n < 0 or not one.schedule(p, n)]
    assert refused == expected
    assert refused[-2:] == [4, 5]
    assert many.checksum() == one.checksum()
    many.unplace(numbers[0], 0)
    many.revert()
    assert many.checksum() == before
    with pytest.raises(InputError, match="number of a node"):
        many.schedule_each([0], [7])


def test_levels_without_a_fork() -> None:
    for act in (Fork.revert, Fork.commit):
        with pytest.raises(StateError, match="nothing was forked"):
            act(forked())


@pytest.mark.parametrize("act", [pickle.dumps, copy.copy, copy.deepcopy])
def test_pickling_a_fork_is_refused(act: Callable[[Fork], Any]) -> None:
    with pytest.raises(StateError, match="pickle its snapshot"):
        act(forked())


def test_a_pod_of_the_snapshot_moves() -> None:
    world = forked(["d/r"])
    before = world.checksum()
    assert world.where("d/r") == 0
    with pytest.raises(InputError, match="'d/r' is on node 'n1' already"):
        world.place("d/r", "n2")
    world.fork()
    world.unplace("d/r", "n1")
    assert world.where("d/r") is None
    world.place("d/r", "n2")
    assert [free(world, "n1"), free(world, "n2")] == [3500, 3500]
    with pytest.raises(InputError, match="d/r"):
        world.remove("n2")
    assert len(world.remove("n1")) == 1  # d/s; d/r has left
    world.revert()
    assert world.where("d/r") == 0
    assert world.checksum() == before
    assert len(world.remove("n1")) == 2
    assert world.where("d/r") is None
    world.place("d/r", "n2")


def test_a_pod_put_back_where_it_was_is_the_forks() -> None:
    world = forked(["d/r"])
    before = world.checksum()
    world.unplace("d/r", "n1")
    world.place("d/r", "n1")
    assert world.checksum() == before
    with pytest.raises(InputError, match="d/r"):
        world.remove("n1")
    world.unplace("d/r", "n1")
    assert len(world.remove("n1")) == 1


def test_pods_by_class_are_counted() -> None:
    world = forked()
    number = world.session.number(world.snapshot.placed_classes[0])
    before = world.checksum()
    world.fork()
    world.unplace(number, "n1")
    world.place(number, "n1")
    with pytest.raises(InputError, match=f"one of class {number}"):
        world.remove("n1")
    for _ in range(2):
        world.unplace(number, "n1")
    with pytest.raises(InputError, match=f"no pod of class {number}"):
        world.unplace(number, "n1")
    assert free(world, "n1") == 4000
    assert world.remove("n1") == []
    world.revert()
    assert world.checksum() == before
    assert world.remove("n1") == [number, number]


def test_names_of_added_nodes_are_free_again_after_a_revert() -> None:
    world = forked(templates=[TEMPLATE])
    world.add(0, 1)
    world.fork()
    assert world.node_name(world.add()) == "t-e-2"
    world.place("d/a", "t-e-2")
    world.revert()
    assert world.where("d/a") is None
    assert world.number("t-e-1") == 2
    with pytest.raises(InputError, match="no node 't-e-2'"):
        world.number("t-e-2")
    assert world.node_name(world.add(0, 2)) == "t-e-2"


def test_any_walk_agrees_with_a_plain_model() -> None:
    """Random steps: what the model allows works, what it does not is refused, and levels put all of it back."""
    rng = random.Random(7)
    world, at = forked(["d/a", "d/b", "d/r"]), {"d/r": 0}
    levels: list[tuple[dict[str, int], int]] = []
    refused = 0
    for _ in range(3_000):
        what = rng.choice(["place", "unplace", "fork", "revert", "commit"])
        name, where = rng.choice(["d/a", "d/b", "d/r"]), rng.randrange(2)
        allowed = {
            "place": name not in at,
            "unplace": at.get(name) == where,
            "fork": len(levels) < 5,
            "revert": bool(levels),
            "commit": bool(levels),
        }[what]
        before = world.checksum()
        if what == "fork" and not allowed:
            continue
        if not allowed:
            refused += 1
            with pytest.raises((InputError, StateError)):
                getattr(world, what)(*((name, where) if what in ("place", "unplace") else ()))
            assert world.checksum() == before
            continue
        if what == "fork":
            levels.append((dict(at), before))
            world.fork()
        elif what == "revert":
            at, sum_before = levels.pop()
            world.revert()
            assert world.checksum() == sum_before
        elif what == "commit":
            levels.pop()
            world.commit()
        elif what == "place":
            at[name] = where
            world.place(name, where)
        else:
            del at[name]
            world.unplace(name, where)
        assert {key: n for key in ("d/a", "d/b", "d/r") if (n := world.where(key)) is not None} == at
    assert refused > 500


# -- names of pods -----------------------------------------------------------------------------------------------------


def test_a_name_given_twice_is_refused() -> None:
    world = forked().snapshot
    for call in (kscale.place, kscale.fit, kscale.fork):
        with pytest.raises(InputError, match="pod 'd/a' is passed twice"):
            call(world, ["d/a", "d/b", "d/a"])
    with pytest.raises(InputError, match="pod 'd/a' is passed twice"):
        kscale.estimate(world, ["d/a", "d/a"], template=TEMPLATE)


def test_a_pod_that_runs_is_not_placed_once_more() -> None:
    world = forked().snapshot
    with pytest.raises(InputError, match="pod 'd/r' is on node 'n1' already"):
        kscale.place(world, ["d/a", "d/r"])
    with pytest.raises(InputError, match="pod 'd/s' is on node 'n1' already"):
        kscale.estimate(world, ["d/s"], template=TEMPLATE)
    assert kscale.fit(world, ["d/r"]).verdict("d/r", "n1").ok
    after = kscale.place(world, ["d/a"]).snapshot_after
    with pytest.raises(InputError, match="pod 'd/a' is on node 'n2' already"):
        kscale.place(after, ["d/a"])
    assert kscale.place(after, ["d/b"]).placed_count == 1


@pytest.mark.parametrize("pods", ["d/a", 3, {"kind": "Pod"}])
def test_pods_are_a_list(pods: Any) -> None:
    with pytest.raises(InputError, match=r"pods is .*: give a list"):
        kscale.place(forked().snapshot, pods)


def test_classes_of_placed_pods_alone_have_no_verdict() -> None:
    """Nothing was worked out for them: an answer would leave out every rule but resources."""
    wants = pod("a", at="n0")
    wants["spec"]["nodeSelector"] = {"disk": "ssd"}
    snapshot = kscale.Cluster([node("n0"), node("n1"), wants]).snapshot()
    world = kscale.fork(snapshot)
    (number,) = world.remove("n0")
    with pytest.raises(kscale.InputError, match="belongs to placed pods only"):
        world.fits(number, "n1")
    with pytest.raises(kscale.InputError, match="belongs to placed pods only"):
        world.schedule(number, "n1")
    with pytest.raises(kscale.InputError, match="belongs to placed pods only"):
        world.schedule_anywhere(number)
    named = kscale.fork(snapshot, ["d/a"])
    named.unplace("d/a", "n0")
    assert not named.fits("d/a", "n1")
