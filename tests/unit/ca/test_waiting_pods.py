"""Kinds of waiting pods: read from text or from structs, the same."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import kscale
from kscale.ca.pod_lists.daemonsets import without_daemonset_pods
from kscale.ca.pod_lists.split import split
from kscale.ca.pod_lists.waiting import WaitingPods
from kscale.ca.pod_lists.young import DELAY_ANNOTATION
from kscale.objects.owners import is_daemonset_pod


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
    _pod("slow", annotations={DELAY_ANNOTATION: "5m"}),
    _pod("slow-too", annotations={DELAY_ANNOTATION: "5m"}),
    _pod("noted", annotations={"other": "x"}),
    _pod("no-notes", annotations=None),
    _pod("daemon", ownerReferences=_owned("DaemonSet")),
    _pod("not-daemon", ownerReferences=_owned("DaemonSet", None)),
    _pod("marked", annotations={"cluster-autoscaler.kubernetes.io/daemonset-pod": "true"}),
    _pod("replica", ownerReferences=_owned("ReplicaSet")),
]


def _kinds(cluster: kscale.Cluster) -> list[frozenset[str]]:
    rows = cluster.snapshot().pending_records
    waiting = WaitingPods.of(rows)
    for record, kind in zip(rows, waiting.kind.tolist(), strict=True):
        example = waiting.examples[kind]
        assert is_daemonset_pod(record.pod) == is_daemonset_pod(example)
        ours, theirs = (
            split([record.pod], bypassed=["default-scheduler"]),
            split([example], bypassed=["default-scheduler"]),
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
    assert frozenset({"plain", "same", "none", "null", "no-notes", "noted", "not-daemon"}) in from_text
    assert frozenset({"slow"}) in from_text  # what is said of its annotation names the pod
    assert frozenset({"zero"}) in from_text


@pytest.mark.parametrize("records", [True, False])
def test_rules_hold_for_every_pod_of_a_kind(records: bool) -> None:
    rows = kscale.Cluster(PODS).snapshot().pending_records
    waiting = WaitingPods.of(list(rows) if records else rows)
    kept = waiting.kept_by(without_daemonset_pods)
    assert [key for key in waiting.keys if key not in kept.keys] == ["shop/daemon", "shop/marked"]
    assert kept.take(np.array([1, 0])).keys == ["shop/same", "shop/plain"]
    assert len(WaitingPods.of(rows[:0]).kept_by(without_daemonset_pods)) == 0
