"""Groups of pods, held against going through them one by one."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kscale.objects.api.core import Pod
from kscale.objects.decode import from_dict, to_dict
from kscale.scheduling.equivalent_pods import MAX_SHAPES, _renumber, equivalence_groups, number_controllers_and_shapes
from kscale.snapshot.cluster import Cluster

PODS = st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 14)), max_size=60)


def one_by_one(controllers: list[int], shapes: list[int]) -> list[list[int]]:
    """As upstream has it: a controller's groups are looked through, and there are never more than it remembers."""
    groups: list[list[int]] = []
    known: dict[int, list[tuple[int, list[int]]]] = {}
    for pod, (controller, shape) in enumerate(zip(controllers, shapes, strict=True)):
        remembered = known.setdefault(controller, []) if controller >= 0 else []
        result = next((group for of, group in remembered if of == shape), None)
        if result is not None:
            result.append(pod)
            continue
        groups.append([pod])
        if len(remembered) < MAX_SHAPES:
            remembered.append((shape, groups[-1]))
    return groups


@given(PODS)
def test_groups_are_those_found_one_by_one(pods: list[tuple[int, int]]) -> None:
    controllers = [controller for controller, _ in pods]
    shapes = [controller * 15 + shape if controller >= 0 else -1 for controller, shape in pods]
    of_controller, of_shape = (_renumber(np.array(each, dtype=np.int32)) for each in (controllers, shapes))
    members, starts = equivalence_groups(of_controller, of_shape)
    result = [members[a:b].tolist() for a, b in pairwise(starts)]
    assert result == one_by_one(controllers, shapes)


@given(st.lists(st.one_of(st.integers(-1, 30), st.integers(0, 1 << 20)), max_size=40))
def test_numbers_from_0_on(numbers: list[int]) -> None:
    order = sorted(set(numbers) - {-1})
    expected = [-1 if each < 0 else order.index(each) for each in numbers]
    assert _renumber(np.array(numbers, dtype=np.int32)).tolist() == expected


def replica(number: int, owner: str, *, labels: Any = None, cpu: str = "1", **container: Any) -> Pod:
    """A pending pod of a controller, as a struct."""
    owners = [{"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}]
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}, **container}]}
    metadata = {"name": f"pod-{number}", "uid": f"uid-{number}", "labels": labels, "ownerReferences": owners}
    return from_dict({"kind": "Pod", "metadata": metadata, "spec": spec}, Pod)


def test_structs_in_a_cluster_have_the_shapes_that_they_have_alone() -> None:
    variants: list[dict[str, Any]] = [
        {}, {"labels": {}}, {"labels": {"app": "a"}}, {"cpu": "1000m"}, {"cpu": "2"}, {"image": "other"},
        {"env": [{"name": "does", "value": "not count"}]}, {},
    ]  # fmt: skip
    pods = [replica(i, f"owner-{i % 2}", **variants[i // 2 % len(variants)]) for i in range(4 * len(variants))]
    pods += [replica(100 + i, "owner-0", labels={"app": "a"}) for i in range(3)]
    rows = Cluster(pods).snapshot().pending_records
    controller, shape = number_controllers_and_shapes(rows)
    assert [each.tolist() for each in (controller, shape)] == [
        each.tolist() for each in number_controllers_and_shapes(list(rows))
    ]
    assert len(set(shape.tolist())) == 2 * 5


def group_sizes(cluster: Cluster) -> list[int]:
    """Return the sizes of the groups of a cluster's pending pods."""
    _, starts = equivalence_groups(*number_controllers_and_shapes(cluster.snapshot().pending_records))
    sizes: list[int] = np.diff(starts).tolist()
    return sizes


def test_fields_that_no_struct_has_count_for_dicts() -> None:
    pods = [{**to_dict(replica(i, "owner")), "kind": "Pod", "apiVersion": "v1"} for i in range(4)]
    pods[3]["spec"] = {**pods[3]["spec"], "fieldOfTheFuture": "x"}
    assert group_sizes(Cluster(pods)) == [3, 1]


def test_a_struct_that_is_modified_and_applied_again_is_read_again() -> None:
    cluster, pod = Cluster(), replica(0, "owner")
    cluster.apply(pod)
    other = replica(1, "owner", cpu="3")
    pod.metadata.name, pod.metadata.uid, pod.spec.containers = "pod-1", "uid-1", other.spec.containers
    cluster.apply(pod)
    snapshot = cluster.snapshot()
    demands = [snapshot.interner.classes[i].demand["cpu"] for i in snapshot.pending_records.classes.tolist()]
    assert demands == [1000, 3000]


def test_content_numbers_stay_distinct_after_unpickling() -> None:
    cluster = Cluster([replica(i, "owner") for i in range(2)])
    restored = pickle.loads(pickle.dumps(cluster))
    for i in range(2, 5):
        restored.apply(replica(i, "owner", cpu="2"))
    restored.apply(replica(5, "owner"))
    assert group_sizes(restored) == [3, 3]
    assert group_sizes(cluster.copy()) == [2]
