"""What rules say of many pods at once is what they say of each, at any moment."""

from __future__ import annotations

from datetime import timedelta

import kscale
from builders import N0, node, owner, pod
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.drainability import DrainContext, Listers
from kscale.ca.scale_down.moving_pods import CODE_BLOCKS, CODE_MOVES, CODE_MOVES_UNLESS_PDB, DrainCodes, get_moving_pods
from kscale.ca.scale_down.pdb import RemainingPdbTracker
from kscale.effects import SECOND, to_text
from kscale.objects.api.apps import ReplicaSet, ReplicaSetSpec
from kscale.objects.api.meta import LabelSelector, ObjectMeta
from kscale.objects.api.policy import PodDisruptionBudget, PodDisruptionBudgetSpec

OPTIONS = AutoscalingOptions(blocking_system_pod_distruption_timeout=timedelta(minutes=1))


def test_pods_of_the_system_are_judged_by_their_age_now_and_by_their_budgets() -> None:
    seconds = {"long": 3600, "short": 30}
    pods = [
        pod(
            name,
            100,
            1,
            spec={"node_name": "n"},
            namespace="kube-system",
            labels={"app": name},
            owner_references=owner("ReplicaSet", api_version="apps/v1"),
            creation_timestamp=to_text(N0 - age * SECOND),
        )
        for name, age in seconds.items()
    ]
    moving = get_moving_pods(kscale.Cluster([node("n", 1000, 1000), *pods]).snapshot())
    budget = PodDisruptionBudget(
        metadata=ObjectMeta(name="b", namespace="kube-system"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "short"})),
    )
    covered = RemainingPdbTracker([budget])

    def codes(after: int, pdbs: RemainingPdbTracker, options: AutoscalingOptions = OPTIONS) -> dict[str, int]:
        result = DrainCodes(moving, DrainContext(N0 + after * SECOND, options, pdbs=pdbs)).codes.tolist()
        return {name.rpartition("/")[2]: code for name, code in zip(moving.names, result, strict=True)}

    for _ in range(2):  # what is kept of one question is no answer to another
        assert codes(0, RemainingPdbTracker()) == {"long": CODE_MOVES, "short": CODE_BLOCKS}
        assert codes(31, RemainingPdbTracker()) == {"long": CODE_MOVES, "short": CODE_MOVES}
        assert codes(0, covered) == {"long": CODE_MOVES, "short": CODE_MOVES_UNLESS_PDB}
        assert codes(0, covered.fork()) == {"long": CODE_MOVES, "short": CODE_MOVES_UNLESS_PDB}
        hour = AutoscalingOptions(blocking_system_pod_distruption_timeout=timedelta(hours=2))
        assert codes(31, RemainingPdbTracker(), hour) == {"long": CODE_BLOCKS, "short": CODE_BLOCKS}


def test_a_pod_is_judged_again_when_its_controller_goes_or_wants_too_few_replicas() -> None:
    options, cluster = AutoscalingOptions(min_replica_count=2), kscale.Cluster([node("n", 1000, 1000)])
    for name in ("a", "b"):
        owners = owner("ReplicaSet", name, api_version="apps/v1")
        cluster.apply(pod(name, 100, 1, spec={"node_name": "n"}, owner_references=owners))

    def codes(**replicas: int | None) -> list[int]:
        sets = [
            ReplicaSet(metadata=ObjectMeta(name=name, namespace="default"), spec=ReplicaSetSpec(replicas=replicas_))
            for name, replicas_ in replicas.items()
        ]
        result = DrainCodes(get_moving_pods(cluster.snapshot()), DrainContext(N0, options, Listers(sets)))
        return result.codes.tolist()

    for _ in range(2):
        assert codes(a=2, b=3) == [CODE_MOVES_UNLESS_PDB, CODE_MOVES_UNLESS_PDB]
        assert codes(a=1, b=4) == [CODE_BLOCKS, CODE_MOVES_UNLESS_PDB]
        assert codes(a=None, b=0) == [CODE_MOVES_UNLESS_PDB, CODE_BLOCKS]
        assert codes(b=2) == [CODE_BLOCKS, CODE_MOVES_UNLESS_PDB]
        assert codes(a=2) == [CODE_MOVES_UNLESS_PDB, CODE_BLOCKS]
