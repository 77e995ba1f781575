"""Pods by namespace and selector: every selection equals that of a look at all pods."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kscale
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import LabelSelector
from kscale.objects.conditions import find
from kscale.objects.decode import from_dict
from kscale.objects.selectors import SelectorError, compile_selector, parse_selector
from kscale.objects.times import ZERO_TIME, moment_of
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.columns import PHASES, READY
from kscale.snapshot.pods.index import PodIndex, PodSelection

LABELS = st.none() | st.dictionaries(st.sampled_from(("app", "tier")), st.sampled_from("abc"))
TIMES = st.none() | st.sampled_from(("2026-01-01T00:01:00Z", "2026-01-01T00:02:00.5Z"))
SELECTORS = ("app=a", "app in (a,b)", "app", "!app", "", "app=a,tier!=b", "tier in (c)", "app notin (a)", "app=z")


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": draw(st.sampled_from("pqrstu")), "namespace": draw(st.sampled_from("xy")), "labels": draw(LABELS),
    }  # fmt: skip
    if draw(st.integers(0, 3)) == 0:
        metadata["deletionTimestamp"] = "2026-01-01T01:00:00Z"
    conditions = [{"type": "PodScheduled", "status": "True"}]
    if draw(st.booleans()):
        status = draw(st.sampled_from(("True", "False", "Unknown", "Other")))
        conditions.append({"type": "Ready", "status": status, "lastTransitionTime": draw(TIMES)})
    containers = [{"name": "c", "resources": {"requests": {"cpu": draw(st.sampled_from(("1", "2", "1.5m")))}}}]
    sidecar = draw(st.sampled_from((None, "Always")))
    inits = [{"name": "i", "restartPolicy": sidecar, "resources": {"requests": {"cpu": "3"}}}]
    return {
        "kind": "Pod", "apiVersion": "v1", "metadata": metadata,
        "spec": {"nodeName": draw(st.sampled_from(("", "n"))), "containers": containers, "initContainers": inits},
        "status": {"phase": draw(st.sampled_from((*PHASES[1:5], ""))), "startTime": draw(TIMES),
                   "conditions": conditions},
    }  # fmt: skip


def asks(pod: Pod) -> list[Any]:
    """What each container asks for; init containers that end do not count."""
    lasting = [*pod.spec.containers, *(each for each in pod.spec.init_containers if each.restart_policy == "Always")]
    return [(each.name, each.resources.requests) for each in lasting]


def selection_rows(selection: PodSelection) -> list[Any]:
    columns = (selection.phase, selection.ready, selection.since, selection.started, selection.deleted)
    requests = [asks(selection.exemplar(shape)) for shape in selection.shapes.tolist()]
    return list(zip(selection.keys, *(column.tolist() for column in columns), requests, strict=True))


def looked_at(pods: list[Pod], namespace: str, text: str) -> list[Any]:
    selector, result = parse_selector(text), []
    for pod in pods:
        if pod.namespace != namespace or not selector.matches(pod.metadata.labels):
            continue
        ready = find(pod.status.conditions, "Ready")
        requests = asks(pod)
        code = 0 if ready is None else READY.index(ready.status if ready.status in READY else "Unknown")
        result.append((
            pod.key, PHASES.index(pod.status.phase), code,
            moment_of(None if ready is None else ready.last_transition_time),
            moment_of(pod.status.start_time), moment_of(pod.metadata.deletion_timestamp), requests,
        ))  # fmt: skip
    return result


@given(st.lists(st.tuples(st.sampled_from(("text", "object", "remove", "look")), pods()), max_size=14))
def test_index_selection_equals_a_scan(steps: list[tuple[str, dict[str, Any]]]) -> None:
    cluster = Cluster()
    remaining: dict[str, Pod] = {}
    older: list[tuple[PodIndex, list[Any]]] = []
    selections = [(namespace, text) for namespace in "xyz" for text in SELECTORS]
    for what, item in steps:
        pod = from_dict(item, Pod)
        if what == "text":
            cluster.watched(json.dumps({"type": "ADDED", "object": item}).encode())
        elif what == "object":
            cluster.apply(pod)
        elif what == "remove":
            cluster.remove("Pod", pod.key)
            remaining.pop(pod.key, None)
        if what in ("text", "object"):
            remaining[pod.key] = pod
        if what == "look":
            index = cluster.pod_index()
            older.append((index, [selection_rows(index.select(*each)) for each in selections]))
    index = cluster.snapshot().pod_index
    result = index.select_many(selections)
    assert len(result) == len(selections)
    for i, each in enumerate(selections):
        assert (
            selection_rows(result[i])
            == selection_rows(index.select(*each))
            == looked_at(list(remaining.values()), *each)
        )
    assert sorted(index.pods.keys) == sorted(remaining)
    for before, expected in older:
        assert [selection_rows(before.select(*each)) for each in selections] == expected


def pod(name: str, **labels: str) -> dict[str, Any]:
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "x", "labels": labels}}


def test_selectors_of_every_form() -> None:
    index = kscale.load([pod("a", app="w"), pod("b", app="v")]).snapshot().pod_index
    api = LabelSelector(match_labels={"app": "w"})
    for selector in ("app=w", api, compile_selector(api)):
        assert index.select("x", selector).keys == ["x/a"]
    assert index.select("x", None).keys == []
    assert index.select("x", LabelSelector()).keys == ["x/a", "x/b"]
    assert index.select("y", "app=w").keys == []
    assert sorted(labels["app"] for labels in index.pods.label_sets() if labels) == ["v", "w"]
    assert [record.pod.name for record in index.select("x", "app=v").records()] == ["b"]
    with pytest.raises(SelectorError):
        index.select("x", "app=(")


def test_groups_are_kept_while_labels_stay() -> None:
    cluster = Cluster([pod("a", app="w"), pod("b", app="v")])
    before = cluster.pod_index()
    assert before.select("x", "app=w").keys == ["x/a"]
    table = before.pods.table  # that the work is not done anew cannot be seen from outside
    cluster.apply({**pod("a", app="w"), "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}})
    after = cluster.pod_index()
    assert after.pods.table.population is table.population  # see above
    assert after.select("x", "app=w").started.tolist() == [moment_of("2026-01-01T00:00:00Z")]
    assert before.select("x", "app=w").started.tolist() == [ZERO_TIME]
    cluster.apply(pod("a", app="v"))
    assert cluster.pod_index().select("x", "app=v").keys == ["x/a", "x/b"]


def test_invalid_time_is_refused_by_name() -> None:
    with pytest.raises(kscale.InputError, match=r'Pod x/a: status.startTime: "soon" is not an RFC 3339 time'):
        Cluster([{**pod("a"), "status": {"startTime": "soon"}}])


def test_pods_given_as_structs_have_their_uids() -> None:
    """The UID of a pod without text is read from its struct."""
    pods = []
    for name, uid in (("a", "uid-a"), ("b", "")):
        metadata = {"name": name, "namespace": "default", "uid": uid}
        pods.append(
            from_dict({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}}, Pod)
        )
    assert Cluster(pods).snapshot().pending_records.uids() == ["uid-a", "default/b"]
