"""Loop after loop over a cluster in which nothing changes: what is kept from loop to loop changes no answer."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from io import BytesIO

import kscale
from kscale import ca
from kscale.capacity.generate import generate
from kscale.effects import SECOND, moment, to_text
from kscale.objects.api.meta import LabelSelector, ObjectMeta
from kscale.objects.api.policy import PodDisruptionBudget
from kscale.objects.nodegroup import NodeGroup

START = datetime(2026, 5, 4, 12, tzinfo=UTC)


def _cluster() -> tuple[kscale.Cluster, list[NodeGroup]]:
    with BytesIO() as file:
        generate(12, 150, pending=0, seed=5, lean=True).write(file)
        created = kscale.load(file.getvalue())
    placed = [pod for pod in created.pods() if pod.spec.node_name]
    for i, pod in enumerate(placed[:12]):
        pod = pickle.loads(pickle.dumps(pod))
        if i % 2:  # told to stop: some while after that it does not count any more
            pod.metadata.deletion_timestamp = to_text(moment(START) - 10 * i * SECOND)
        else:  # a pod of the system: it blocks a drain while it is young
            pod.metadata.name, pod.metadata.uid = f"system-{i}", f"system-{i}"
            pod.metadata.namespace = "kube-system"
            pod.metadata.creation_timestamp = to_text(moment(START) - (60 - i) * 60 * SECOND)
        created.apply(pod)
    budget = PodDisruptionBudget(metadata=ObjectMeta(name="all", namespace=placed[0].metadata.namespace))
    budget.spec.selector, budget.status.disruptions_allowed = LabelSelector(), 3
    created.apply(budget)
    names = [node.metadata.name for node in created.nodes()]
    return created, [NodeGroup(id=f"g{i}", max_size=100, nodes=names[i::3]) for i in range(3)]


def test_cached_results_change_no_answer() -> None:
    created, groups = _cluster()
    # Options one after the other and again: what was found out under one is not said under another.
    several = [
        ca.AutoscalingOptions(),
        ca.AutoscalingOptions(skip_nodes_with_system_pods=False, skip_nodes_with_local_storage=False),
        ca.AutoscalingOptions(expendable_pods_priority_cutoff=1),
    ]
    state: ca.LoopState | None = None
    outcomes = set()
    for number in range(9):
        options, now = several[number % 3], moment(START) + number * 37 * SECOND
        cached = ca.run_once(created, groups, now=now, options=options, state=state)
        fresh = ca.run_once(kscale.Cluster(created), groups, now=now, options=options, state=state)
        assert cached.error is None
        assert cached.state == fresh.state
        assert cached.scale_up.record() == fresh.scale_up.record()
        for part in ("result", "candidates", "unneeded", "eligibility", "unremovable", "failures", "soft_taints"):
            assert getattr(cached.scale_down, part) == getattr(fresh.scale_down, part), part
        outcomes.add(repr((cached.scale_down.unremovable, cached.scale_down.failures)))
        state = cached.state
    assert len(outcomes) > 3
    assert created.snapshot(dra=True) is created.snapshot(dra=True)


def test_a_caller_may_change_his_groups_between_loops() -> None:
    created, groups = _cluster()
    name = groups[0].nodes[0]
    first = ca.run_once(created, groups, now=moment(START))
    assert first.groups.id_of_node(name) == "g0"
    groups[0].nodes.remove(name)
    groups[1].max_size = 7
    second = ca.run_once(created, groups, now=moment(START) + SECOND, state=first.state)
    assert second.groups.id_of_node(name) is None
    assert [(group.size, group.max_size) for group in second.groups] == [(3, 100), (4, 7), (4, 100)]
