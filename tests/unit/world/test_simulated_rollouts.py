"""Roll-outs of deployments and stateful sets: who has how many replicas next, and what becomes of pods meanwhile.

The tables are those of upstream's tests (``pkg/controller/deployment``: ``rolling_test.go``, ``sync_test.go``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from kscale.effects import SECOND
from kscale.objects.api.apps import Deployment, ReplicaSet, StatefulSet
from kscale.objects.api.core import Pod
from kscale.objects.api.policy import PodDisruptionBudget
from kscale.objects.conditions import pod_ready
from kscale.objects.decode import from_dict
from kscale.world.simulated.deployments import first_size, get_max_pods, next_sizes, shared_sizes
from kscale.world.simulated.kubelet import PodTimes
from kscale.world.simulated.load import DurationDistribution
from kscale.world.simulated.pods import delete_pod
from kscale.world.simulated.world import SimulatedWorld, WorldOptions
from unit.world.simulated_cases import deployment, named, pod_template, run, scale, workload, world_of


def of_size(size: int, **rolling: Any) -> Deployment:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0, **rolling}}
    return deployment(replicas=size, spec={"strategy": strategy})


def replica_set(name: str, size: int, available: int = 0, minute: int = 0) -> ReplicaSet:
    created = {
        "metadata": {"name": name, "namespace": "shop", "creationTimestamp": f"2016-05-20T00:{minute:02}:00Z"},
        "spec": {"replicas": size},
        "status": {"availableReplicas": available},
    }
    return from_dict({"apiVersion": "apps/v1", "kind": "ReplicaSet", **created}, ReplicaSet)


@pytest.mark.parametrize(
    ("surge", "old", "new", "expected"), [(0, 10, 0, 0), (2, 10, 0, 2), (2, 5, 0, 7), (2, 10, 2, 2), (2, 2, 11, 10)]
)
def test_new_set_grows_up_to_max_surge(surge: int, old: int, new: int, expected: int) -> None:
    stored = of_size(10, maxSurge=surge, maxUnavailable=0)
    result = next_sizes(stored, replica_set("new", new, new), [replica_set("old", old)])
    assert result.get("shop/new", new) == expected
    if not new:
        assert first_size(stored, [replica_set("old", old)]) == expected


@pytest.mark.parametrize(
    ("away", "old", "ready", "new", "new_ready", "expected"),
    [
        (0, 10, 10, 0, 0, 9),
        (2, 10, 10, 0, 0, 8),
        (2, 10, 8, 0, 0, 8),
        (2, 10, 9, 0, 0, 8),
        (2, 8, 8, 2, 0, 8),
        (2, 8, 8, 2, 2, 6),
        (2, 10, 1, 0, 0, 8),
    ],
)
def test_old_sets_shrink_down_to_max_unavailable(
    away: int, old: int, ready: int, new: int, new_ready: int, expected: int
) -> None:
    stored = of_size(10, maxUnavailable=away)
    result = next_sizes(stored, replica_set("new", new, new_ready), [replica_set("old", old, ready)])
    assert result.get("shop/old", old) == expected


def test_oldest_set_shrinks_first_and_never_below_zero() -> None:
    old = [replica_set("b", 3, 3, minute=2), replica_set("a", 2, 1, minute=1)]
    result = next_sizes(of_size(10, maxUnavailable="50%"), replica_set("new", 5, 5), old)
    assert result == {"shop/b": 0, "shop/a": 0}
    result = next_sizes(of_size(10, maxUnavailable=3), replica_set("new", 5, 5), old)
    assert result == {"shop/a": 0, "shop/b": 2}


SHARED: list[tuple[int, int, Sequence[int], Sequence[int]]] = [
    (10, 12, (10,), (12,)),
    (10, 5, (10,), (5,)),
    (5, 10, (2, 3), (4, 6)),
    (5, 3, (2, 3), (1, 2)),
    (9, 4, (8, 1), (4, 0)),
    (7, 10, (2, 3, 2), (3, 4, 3)),
    (13, 8, (2, 8, 3), (1, 5, 2)),
    (3, 4, (1, 1, 1), (2, 1, 1)),
    (3, 2, (1, 1, 1), (1, 1, 0)),
    (4, 5, (0, 2, 2), (0, 3, 2)),
    (6, 0, (3, 2, 1), (0, 0, 0)),
    (10, 14, (7, 3), (10, 4)),
    (2, 2, (2, 1), (1, 1)),
]


@pytest.mark.parametrize(("before", "size", "sets", "expected"), SHARED)
def test_sets_share_a_changed_size(before: int, size: int, sets: Sequence[int], expected: Sequence[int]) -> None:
    """The newest stands first."""
    there = [replica_set(f"v{9 - i}", each, minute=9 - i) for i, each in enumerate(sets)]
    result = shared_sizes(of_size(size), there, get_max_pods(of_size(before)))
    assert [result.get(each.key, each.spec.replicas) for each in there] == list(expected)


@pytest.mark.parametrize(
    ("before", "size", "sets", "expected"), [((10, 2), (20, 2), (6, 6), (11, 11)), ((10, 3), (50, 6), (5, 8), (22, 34))]
)
def test_surge_is_shared_among_sets(
    before: tuple[int, int], size: tuple[int, int], sets: tuple[int, int], expected: tuple[int, int]
) -> None:
    there = [replica_set("v2", sets[0], minute=2), replica_set("v1", sets[1], minute=1)]
    stored, earlier = (of_size(number, maxSurge=surge) for number, surge in (size, before))
    result = shared_sizes(stored, there, get_max_pods(earlier))
    assert tuple(result[each.key] for each in there) == expected


# -- in a world --------------------------------------------------------------------------------------------------------

TIMES = PodTimes(start=DurationDistribution.fixed(10 * SECOND), termination=DurationDistribution.fixed(3 * SECOND))
OPTIONS = WorldOptions(pods=TIMES)


def changed(world: SimulatedWorld, **annotations: str) -> None:
    """Another template (``kubectl rollout restart``)."""
    stored = named(world, "web")
    metadata = replace(stored.spec.template.metadata, annotations=annotations)
    world.api.put(replace(stored, spec=replace(stored.spec, template=replace(stored.spec.template, metadata=metadata))))


def counted(world: SimulatedWorld) -> tuple[list[int], int]:
    """(pods that are not told to end by version, the oldest version first; those that are ready)."""
    alive = [each for each in world.api.get_all("Pod").values() if each.metadata.deletion_timestamp is None]
    versions = Counter((each.metadata.annotations or {}).get("v", "") for each in alive)
    return [versions[name] for name in sorted(versions)], sum(map(pod_ready, alive))


def watched(world: SimulatedWorld, seconds: int) -> tuple[int, int]:
    """(most pods, least ready ones) meanwhile."""
    most, least = 0, 10**6
    for _ in range(seconds):
        run(world, 1)
        versions, ready = counted(world)
        most, least = max(most, sum(versions)), min(least, ready)
    return most, least


@pytest.mark.parametrize(
    ("rolling", "most", "least"),
    [({}, 5, 3), ({"maxSurge": 2, "maxUnavailable": 0}, 6, 4), ({"maxSurge": 0, "maxUnavailable": "50%"}, 4, 2)],
)
def test_rolling_update_replaces_the_template_step_by_step(rolling: dict[str, Any], most: int, least: int) -> None:
    strategy = {"strategy": {"rollingUpdate": rolling}} if rolling else {}
    world = world_of(deployment(replicas=4, spec=strategy, cpu="100m"), options=OPTIONS)
    run(world, 20)
    changed(world, v="1")
    assert watched(world, 120) == (most, least)
    assert counted(world) == ([4], 4)
    status = named(world, "web").status
    assert (status.replicas, status.updated_replicas, status.available_replicas) == (4, 4, 4)
    assert sorted(each.spec.replicas for each in world.api.get_all("ReplicaSet").values()) == [0, 4]


def test_recreate_strategy_waits_for_old_pods_to_end() -> None:
    stored = deployment(replicas=3, spec={"strategy": {"type": "Recreate"}}, cpu="100m")
    world = world_of(stored, options=OPTIONS)
    run(world, 20)
    changed(world, v="1")
    run(world, 2)
    assert counted(world) == ([], 0)
    assert len(world.api.get_all("Pod")) == 3  # they end
    run(world, 2)
    assert counted(world) == ([3], 0)
    scale(world, 5)
    run(world, 20)
    assert counted(world) == ([5], 5)


def test_rollback_with_recreate_waits_for_the_other_pods() -> None:
    stored = deployment(replicas=3, spec={"strategy": {"type": "Recreate"}}, cpu="100m")
    world = world_of(stored, options=OPTIONS)
    run(world, 20)
    changed(world, v="1")
    run(world, 60)
    changed(world)
    run(world, 2)
    assert (counted(world), len(world.api.get_all("Pod"))) == (([], 0), 3)
    run(world, 20)
    assert (counted(world), len(world.api.get_all("Pod"))) == (([3], 3), 3)
    assert len(world.api.get_all("ReplicaSet")) == 2


@pytest.mark.parametrize("size", [0, 2])
def test_paused_deployment_scales_also_from_zero(size: int) -> None:
    world = world_of(deployment(replicas=size, cpu="10m"), options=OPTIONS)
    run(world, 20)
    stored = named(world, "web")
    world.api.put(replace(stored, spec=replace(stored.spec, paused=True)))
    changed(world, v="1")
    for replicas in (3, 0, 2):
        scale(world, replicas)
        run(world, 60)
        assert counted(world) == ([replicas] if replicas else [], replicas)
    assert len(world.api.get_all("ReplicaSet")) == 1  # of the template before


def test_a_size_that_changes_while_it_rolls_is_shared() -> None:
    world = world_of(deployment(replicas=8, cpu="10m"), options=OPTIONS)
    run(world, 20)
    changed(world, v="1")
    run(world, 5)
    assert counted(world)[0] == [6, 4]
    scale(world, 16)
    run(world, 0)
    assert counted(world)[0] == [12, 8]
    assert watched(world, 120)[0] == 20
    assert counted(world) == ([16], 16)


def test_rollback_reuses_its_set_and_a_paused_rollout_waits() -> None:
    world = world_of(deployment(replicas=2, cpu="10m"), options=OPTIONS)
    run(world, 20)
    (first,) = world.api.get_all("ReplicaSet")
    changed(world, v="1")
    run(world, 60)
    changed(world)
    run(world, 60)
    assert {key: each.spec.replicas for key, each in world.api.get_all("ReplicaSet").items()}[first] == 2
    stored = named(world, "web")
    world.api.put(replace(stored, spec=replace(stored.spec, paused=True)))
    changed(world, v="2")
    run(world, 60)
    assert len(world.api.get_all("ReplicaSet")) == 2
    scale(world, 3)
    run(world, 60)
    assert counted(world) == ([3], 3)
    stored = named(world, "web")
    world.api.put(replace(stored, spec=replace(stored.spec, paused=False)))
    run(world, 60)
    assert len(world.api.get_all("ReplicaSet")) == 3


def test_recreated_deployment_has_its_own_set() -> None:
    world = world_of(deployment(replicas=2, cpu="10m"), options=OPTIONS)
    run(world, 20)
    world.api.remove(named(world, "web"))
    world.api.create(deployment(replicas=3, cpu="10m"))
    run(world, 60)
    assert counted(world) == ([3], 3)
    (remaining_set,) = world.api.get_all("ReplicaSet").values()
    assert remaining_set.metadata.owner_references[0].uid == named(world, "web").metadata.uid


def test_revision_history_limit_is_applied() -> None:
    world = world_of(deployment(replicas=1, spec={"revisionHistoryLimit": 2}, cpu="10m"), options=OPTIONS)
    for number in range(5):
        changed(world, v=str(number))
        run(world, 60)
    assert len(world.api.get_all("ReplicaSet")) == 3
    assert counted(world) == ([1], 1)


def test_budget_counts_the_desired_replicas() -> None:
    """And not what its sets have between them while it rolls."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    metadata = {"name": "b", "namespace": "shop"}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}
    stored = deployment(
        replicas=4, spec={"strategy": {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}}}, cpu="9m"
    )
    world = world_of(stored, from_dict(budget, PodDisruptionBudget), options=OPTIONS)
    run(world, 20)
    changed(world, v="1")
    run(world, 5)
    status = world.api.get("PodDisruptionBudget", "shop", "b").status
    assert (status.expected_pods, status.desired_healthy, status.current_healthy) == (4, 3, 4)


@pytest.mark.parametrize(
    ("strategy", "field"),
    [
        ({"type": "Sometimes"}, "spec.strategy.type"),
        ({"rollingUpdate": {"maxSurge": "many"}}, "spec.strategy.rollingUpdate.maxSurge"),
        ({"rollingUpdate": {"maxUnavailable": -1}}, "spec.strategy.rollingUpdate.maxUnavailable"),
    ],
)
def test_invalid_strategy_is_reported(strategy: dict[str, Any], field: str) -> None:
    from kscale.objects.validation import check

    template = pod_template("web")
    stored = from_dict(workload("Deployment", "web", 1, spec={"strategy": strategy, "template": template}), Deployment)
    assert [each.field for each in check(stored) if each.fatal] == [field]


# -- stateful sets -----------------------------------------------------------------------------------------------------


def with_template(world: SimulatedWorld, version: str) -> None:
    stateful_set = world.api.get("StatefulSet", "shop", "db")
    metadata = replace(stateful_set.spec.template.metadata, annotations={"v": version} if version else None)
    world.api.put(
        replace(
            stateful_set,
            spec=replace(stateful_set.spec, template=replace(stateful_set.spec.template, metadata=metadata)),
        )
    )


def lose(world: SimulatedWorld, name: str) -> None:
    """A pod is told to end."""
    delete_pod(world.api, world.api.get("Pod", "shop", name))


def versions(world: SimulatedWorld) -> list[str]:
    """Of pods that are not told to end: number and version."""
    return sorted(
        f"{each.name[-1]}{(each.metadata.annotations or {}).get('v', '')}"
        for each in world.api.get_all("Pod").values()
        if each.metadata.deletion_timestamp is None
    )


def stateful(*others: Any, replicas: int = 3, **spec: Any) -> SimulatedWorld:
    template = pod_template("db", cpu="10m")
    item = workload("StatefulSet", "db", replicas, spec={"template": template, **spec})
    world = world_of(*others, from_dict(item, StatefulSet), options=OPTIONS)
    run(world, 60)
    return world


def test_pods_of_a_stateful_set_are_replaced_from_the_last_to_the_first() -> None:
    world = stateful()
    with_template(world, "1")
    observed_versions = []
    for _ in range(60):
        run(world, 1)
        if not observed_versions or observed_versions[-1] != versions(world):
            observed_versions.append(versions(world))
    assert observed_versions == [
        ["0", "1"],
        ["0", "1", "21"],
        ["0", "21"],
        ["0", "11", "21"],
        ["11", "21"],
        ["01", "11", "21"],
    ]
    assert world.api.get("StatefulSet", "shop", "db").status.updated_replicas == 3
    with_template(world, "")  # and back: the first revision is known
    run(world, 60)
    assert versions(world) == ["0", "1", "2"]


def test_partition_keeps_the_old_template_for_recreated_pods() -> None:
    world = stateful(updateStrategy={"rollingUpdate": {"partition": 1}})
    with_template(world, "1")
    run(world, 60)
    assert versions(world) == ["0", "11", "21"]
    lose(world, "db-0")
    run(world, 30)
    assert versions(world) == ["0", "11", "21"]


def test_pods_before_the_partition_use_the_last_common_template() -> None:
    """Not one that took the place of it in part."""
    world = stateful(updateStrategy={"rollingUpdate": {"partition": 2}})
    for version, last in (("1", "21"), ("2", "22"), ("", "2")):
        with_template(world, version)
        run(world, 60)
        for name in ("db-0", "db-1"):
            lose(world, name)
        run(world, 60)
        assert versions(world) == ["0", "1", last]


def test_completed_rollout_template_becomes_the_previous_one() -> None:
    world = stateful(updateStrategy={"rollingUpdate": {"partition": 0}})
    with_template(world, "1")
    run(world, 100)
    stateful_set = world.api.get("StatefulSet", "shop", "db")
    rolling = from_dict({"rollingUpdate": {"partition": 2}}, type(stateful_set.spec.update_strategy))
    world.api.put(replace(stateful_set, spec=replace(stateful_set.spec, update_strategy=rolling)))
    with_template(world, "2")
    run(world, 60)
    lose(world, "db-0")
    run(world, 60)
    assert versions(world) == ["01", "11", "22"]


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_recreated_stateful_set_waits_for_old_pods(policy: str) -> None:
    world = stateful(podManagementPolicy=policy)
    stateful_set = world.api.get("StatefulSet", "shop", "db")
    world.api.remove(stateful_set)
    again = world.api.create(
        replace(stateful_set, metadata=replace(stateful_set.metadata, uid="", resource_version=""))
    )
    run(world, 2)
    assert versions(world) == []
    assert len(world.api.get_all("Pod")) == 3  # they end
    run(world, 60)
    assert versions(world) == ["0", "1", "2"]
    assert {each.metadata.owner_references[0].uid for each in world.api.get_all("Pod").values()} == {again.metadata.uid}


def test_a_stateful_set_may_wait_for_deletion() -> None:
    world = stateful(updateStrategy={"type": "OnDelete"}, podManagementPolicy="Parallel")
    with_template(world, "1")
    run(world, 60)
    assert versions(world) == ["0", "1", "2"]
    lose(world, "db-1")
    run(world, 60)
    assert versions(world) == ["0", "11", "2"]


def test_dumped_pods_belong_to_the_template_regardless_of_labels() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "u", "controller": True}
    objects: list[Any] = []
    for name, label in (("db-0", "db-abc"), ("db-1", "db-def"), ("db-x", "")):
        metadata = {"name": name, "namespace": "shop", "ownerReferences": [owner]}
        metadata["labels"] = {"app": "db", "controller-revision-hash": label}
        spec = {**pod_template("db", cpu="10m")["spec"], "nodeName": "pool-0"}
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}
        objects.append(from_dict(pod, Pod))
    item = workload("StatefulSet", "db", 2, spec={"template": pod_template("db", cpu="10m")})
    item["metadata"]["uid"] = "u"
    world = world_of(*objects, from_dict(item, StatefulSet), options=OPTIONS)
    run(world, 60)
    assert versions(world) == ["0", "1", "x"]  # whose name has no number is none of its pods
    with_template(world, "1")
    run(world, 60)
    assert versions(world) == ["01", "11", "x"]
