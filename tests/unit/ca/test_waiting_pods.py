"""Kinds of waiting pods: read from text or from structs, the same."""

from __future__ import annotations

import json
import pickle
from datetime import datetime
from typing import Any

import numpy as np
import pytest

import kscale
from kscale.ca import pod_lists as waiting_pods
from kscale.ca.pod_lists import (
    PendingPodList,
    clear_tpu_requests,
    filter_out_daemon_set_pods,
    filter_out_young_pods,
    find_daemon_set_pods,
    find_old_pods,
    find_unscheduled_pods,
    has_tpu_requests,
    split_pods,
)
from kscale.effects import moment
from kscale.objects.api.core import Pod, PodSpec
from kscale.objects.pod_owners import SCALE_UP_DELAY, is_daemonset_pod
from kscale.snapshot.classes.facets import QueueingNumbers


def _pod(name: str, *, status: Any = None, spec: Any = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", **metadata},
        "spec": {"containers": [{"name": "c"}], **(spec or {})},
        "status": status or {},
    }


def _condition(**fields: Any) -> dict[str, Any]:
    return {"conditions": [{"type": "PodScheduled", "status": "False", **fields}]}


def _owned(kind: str, controller: Any = True) -> list[dict[str, Any]]:
    return [{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o", "controller": controller}]


PODS = [
    _pod("plain"),
    _pod("same"),
    _pod("said", status=_condition(reason="Unschedulable")),
    _pod("silent", status=_condition()),
    _pod("bound-soon", status={"conditions": [{"type": "PodScheduled", "status": "True"}]}),
    _pod("none", status={"conditions": None}),
    _pod("other", spec={"schedulerName": "other"}),
    _pod("low", spec={"priority": -20}),
    _pod("zero", spec={"priority": 0}),
    _pod("null", spec={"priority": None, "schedulerName": ""}),
    _pod("young", creationTimestamp="2026-05-04T11:00:00Z"),
    _pod("slow", annotations={SCALE_UP_DELAY: "5m"}),
    _pod("slow-too", annotations={SCALE_UP_DELAY: "5m"}),
    _pod("noted", annotations={"other": "x"}),
    _pod("no-notes", annotations=None),
    _pod("daemon", ownerReferences=_owned("DaemonSet")),
    _pod("not-daemon", ownerReferences=_owned("DaemonSet", None)),
    _pod("marked", annotations={"cluster-autoscaler.kubernetes.io/daemonset-pod": "true"}),
    _pod("replica", ownerReferences=_owned("ReplicaSet")),
]


def _kinds(cluster: kscale.Cluster) -> list[frozenset[str]]:
    rows = cluster.snapshot().pending_records
    waiting = PendingPodList.of(rows)
    for record, kind in zip(rows, waiting.kind.tolist(), strict=True):
        example = waiting.examples[kind]
        assert is_daemonset_pod(record.pod) == is_daemonset_pod(example)
        ours, theirs = (
            split_pods([record.pod], bypassed=["default-scheduler"]),
            split_pods([example], bypassed=["default-scheduler"]),
        )
        assert [len(ours.unschedulable), len(ours.unprocessed)] == [len(theirs.unschedulable), len(theirs.unprocessed)]
        assert record.pod.spec.priority == example.spec.priority
        assert record.pod.metadata.creation_timestamp == example.metadata.creation_timestamp
    groups: dict[int, set[str]] = {}
    for key, kind in zip(waiting.keys, waiting.kind.tolist(), strict=True):
        groups.setdefault(kind, set()).add(key.removeprefix("shop/"))
    return sorted(map(frozenset, groups.values()), key=sorted)


def test_text_and_structs_give_the_same_kinds() -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": PODS}).encode()
    from_text = _kinds(kscale.load(text))
    assert from_text == _kinds(kscale.Cluster(PODS))
    assert from_text == _kinds(pickle.loads(pickle.dumps(kscale.load(text))))
    one_by_one = kscale.Cluster()
    for pod in PODS:
        one_by_one.apply(pod)
    assert from_text == _kinds(one_by_one)
    assert frozenset({"plain", "same", "none", "null", "no-notes", "noted", "not-daemon"}) in from_text
    assert frozenset({"slow"}) in from_text  # what is said of its annotation names the pod
    assert frozenset({"zero"}) in from_text


@pytest.mark.parametrize("records", [True, False])
def test_rules_hold_for_every_pod_of_a_kind(records: bool) -> None:
    rows = kscale.Cluster(PODS).snapshot().pending_records
    waiting = PendingPodList.of(list(rows) if records else rows)
    remaining = waiting.filter_by(filter_out_daemon_set_pods)
    assert [key for key in waiting.keys if key not in remaining.keys] == ["shop/daemon", "shop/marked"]
    assert remaining.take(np.array([1, 0])).keys == ["shop/same", "shop/plain"]
    assert len(PendingPodList.of(rows[:0]).filter_by(filter_out_daemon_set_pods)) == 0


@pytest.mark.parametrize("records", [True, False])
@pytest.mark.parametrize("delayed", [True, False])
def test_rules_by_kind_decide_as_the_rules_for_lists_of_pods(records: bool, delayed: bool) -> None:
    pods = [pod for pod in PODS if delayed or not pod["metadata"]["name"].startswith("slow")]
    rows = kscale.Cluster(pods).snapshot().pending_records
    waiting = PendingPodList.of(list(rows) if records else rows)
    decoded = [record.pod for record in rows]
    for bypassed, allowed in [((), ()), (("default-scheduler",), ()), ((), ("other",)), (("other",), ("other",))]:
        lists = split_pods(decoded, bypassed=bypassed, allowed=allowed)
        positions = find_unscheduled_pods(waiting, bypassed=bypassed, allowed=allowed)
        expected = [[pod.key for pod in each] for each in (lists.unschedulable, lists.unprocessed)]
        assert [waiting.take(each).keys for each in positions] == expected
    others = [pod.key for pod in filter_out_daemon_set_pods(decoded)]
    assert waiting.without(find_daemon_set_pods(waiting)).keys == others
    for time, delay in [("2026-05-04T11:00:00Z", 0), ("2026-05-04T11:00:01Z", 0), ("2026-05-04T11:04:00Z", 10**10)]:
        now = moment(datetime.fromisoformat(time))
        old, warnings = find_old_pods(waiting, now, delay)
        aged = filter_out_young_pods(waiting.present_examples, now, delay)
        assert waiting.without(~old).keys == waiting.take(np.flatnonzero(waiting.among(aged.pods))).keys
        assert warnings == aged.warnings
    assert not has_tpu_requests(waiting)
    assert clear_tpu_requests(decoded) == decoded


def test_a_pod_that_requests_tpus_is_noticed() -> None:
    requests = {"resources": {"requests": {"cloud-tpus.google.com/v2": "1"}}}
    cluster = kscale.Cluster([*PODS, _pod("tpu", spec={"containers": [{"name": "c", **requests}]})])
    waiting = PendingPodList.of(cluster.snapshot().pending_records)
    assert has_tpu_requests(waiting)
    assert not has_tpu_requests(waiting.take(np.arange(len(PODS))))


def test_answers_on_kinds_are_computed_once_and_stay_with_the_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_pods, "_MAX_UNUSED_KINDS", 2)
    cluster, asked = kscale.Cluster([_pod("stays")]), list[str]()

    def answer(pod: Pod) -> int:
        asked.append(pod.spec.scheduler_name or "")
        return len(asked)

    lists = []
    for i in range(12):
        cluster.apply(_pod("comes", spec={"schedulerName": f"s{i}"}))
        waiting = PendingPodList.of(cluster.snapshot().pending_records)
        lists.append((waiting, waiting.evaluate_kinds("rule", answer).tolist()))
        assert [asked[number - 1] for number in lists[-1][1]] == ["", f"s{i}"]
    assert asked.count("") < 12
    assert all(waiting.evaluate_kinds("rule", answer).tolist() == expected for waiting, expected in lists)


def test_pods_that_come_later_are_of_kinds_of_their_own() -> None:
    cluster = kscale.Cluster(PODS)
    before = PendingPodList.of(cluster.snapshot().pending_records)
    cluster.apply(_pod("later", spec={"schedulerName": "third"}))
    after = PendingPodList.of(cluster.snapshot().pending_records)
    assert after.kind[:-1].tolist() == before.kind.tolist()
    assert after.examples[after.kind[-1]].spec.scheduler_name == "third"


def test_kinds_are_those_of_the_pods_that_wait_now() -> None:
    """However often they are written, and in how many arrivals they come."""
    cluster = kscale.Cluster()
    for version in "123":
        cluster.apply(_pod("same", resourceVersion=version))
        cluster.apply(_pod("slow", annotations={SCALE_UP_DELAY: "5m"}, resourceVersion=version))
        waiting = PendingPodList.of(cluster.snapshot().pending_records)
        assert [pod.metadata.name for pod in waiting.examples] == ["same", "slow"]
    for arrival in range(10):
        for i in range(3):
            cluster.apply(_pod(f"{arrival}-{i}"))
        waiting = PendingPodList.of(cluster.snapshot().pending_records)
        assert len(waiting.examples) == 2
    assert set(waiting.kind.tolist()) == {0, 1}
    cluster.remove(cluster.pod("shop/same"))
    first, second = PendingPodList.of(cluster.snapshot().pending_records).examples
    assert (first.metadata.annotations, second.metadata.annotations) == ({SCALE_UP_DELAY: "5m"}, None)


def test_kinds_that_no_pod_has_any_more_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_pods, "_MAX_UNUSED_KINDS", 2)
    cluster = kscale.Cluster([_pod("stays")])
    for i in range(20):
        cluster.apply(_pod("comes", spec={"schedulerName": f"s{i}"}))
        waiting = PendingPodList.of(cluster.snapshot().pending_records)
        assert [pod.spec.scheduler_name for pod in waiting.examples] == ["", f"s{i}"]
        assert waiting.kind.tolist() == [0, 1]
        assert len(cluster.snapshot().pending_records.table.memo.values(waiting_pods._PENDING_POD_KINDS_KEY)) <= 6


def test_pods_of_columns_wait_as_their_examples_do() -> None:
    examples = [_pod("a", creationTimestamp="2026-05-04T11:00:00Z"), _pod("b"), _pod("c", spec={"schedulerName": "c"})]
    snapshot = kscale.from_columns(
        resources=["cpu"],
        node_names=["n"],
        allocatable=np.array([[4000]]),
        pods=examples,
        pod_class=np.array([0, 1, 2, 1, 0]),
        pod_node=np.full(5, -1),
    )
    waiting = PendingPodList.of(snapshot.pending_records)
    assert waiting.kind.tolist() == [0, 1, 2, 1, 0]
    assert [pod.spec.scheduler_name for pod in waiting.examples] == ["", "", "c"]


def test_of_very_many_ways_to_wait_the_first_are_forgotten_and_never_mistaken() -> None:
    numbers = QueueingNumbers()
    pods = [Pod(spec=PodSpec(scheduler_name=f"s{i}")) for i in range(5000)]
    first = list(map(numbers.get, pods))
    assert len(set(first)) == len(pods)
    again = list(map(numbers.get, pods))
    assert not set(again[:100]) & set(first)
    assert again[-1] == numbers.get(pods[-1])
