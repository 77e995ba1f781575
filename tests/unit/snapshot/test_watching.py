"""Events and lists as an API server writes them: whatever way a cluster got to where it is, it is that cluster."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kscale
from kscale.errors import InputError
from kscale.snapshot.changes import ChangedKeys
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.pods import store
from kscale.snapshot.pods import table as texts_of_pods
from kscale.snapshot.pods.store import Texts
from kscale.snapshot.snapshot import Snapshot

NAMES = "abcdef"
NODES = ("n0", "n1", "n2")
MANAGED = [{"manager": "kubelet", "fieldsV1": {"f:metadata": {"f:labels": {".": {}}}}}]


def meaning(snapshot: Snapshot) -> dict[str, Any]:
    """What a snapshot says, without the numbers that mean nothing."""
    classes = snapshot.interner.classes
    index = snapshot.pod_index.pods
    result = [record.pod for record in index.records()]
    return {
        "nodes": [(node.name, node.metadata.labels, node.spec.unschedulable) for node in snapshot.columns.objects],
        "placed": (snapshot.pods, snapshot.placed_node.tolist(), snapshot.placed.priorities.tolist()),
        "pending": (snapshot.pending, list(snapshot.pending_records.uids())),
        "counts": snapshot.counts,
        "used": {name: column.tolist() for name, column in snapshot.used.items() if column.any()},
        "pod_count": snapshot.pod_count.tolist(),
        "classes": [
            (c.namespace, c.labels, c.demand, c.occupancy, c.owner, c.terminating, c.node_affinity, c.ports)
            for c in (classes[i] for i in snapshot.placed_class.tolist())
        ],
        "uids": [record.uid for record in snapshot.placed],
        "index": [
            index.keys, *(c.tolist() for c in (index.phase, index.ready, index.since, index.started, index.deleted))
        ],
        "read": [
            (pod.key, pod.metadata.uid, pod.metadata.resource_version, pod.metadata.deletion_timestamp,
             pod.metadata.labels, pod.spec.node_name, pod.spec.priority, pod.status.phase, pod.status.start_time,
             [(c.name, c.resources.requests) for c in pod.spec.containers],
             [(o.kind, o.name, o.uid, o.controller) for o in pod.metadata.owner_references],
             [(c.type, c.status, c.last_transition_time) for c in pod.status.conditions if c.type == "Ready"])
            for pod in result
        ],
        "budgets": [(budget.key, budget.spec.min_available) for budget in snapshot.informers.budgets],
    }  # fmt: skip


def decisions(snapshot: Snapshot) -> Any:
    if not snapshot.nodes or not snapshot.pending:
        return None
    placed = kscale.place(snapshot)
    return kscale.fit(snapshot).ok.tolist(), placed.placed


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    some = draw
    name, uid = some(st.sampled_from(NAMES)), some(st.sampled_from("12"))
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": some(st.sampled_from(("x", "y"))),
        "uid": f"{name}{uid}",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app": some(st.sampled_from("uvw"))},
        "managedFields": MANAGED,
    }
    owner = some(st.sampled_from((None, "ReplicaSet", "DaemonSet")))
    if owner:
        metadata["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": f"o{some(st.sampled_from('12'))}",
             "controller": True}
        ]  # fmt: skip
    if some(st.integers(0, 3)) == 0:
        metadata["deletionTimestamp"] = some(st.sampled_from(("2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z")))
    spec: dict[str, Any] = {
        "containers": [{"name": "c", "env": [{"name": "A", "value": "{\"x\": [1]}"}],
                        "resources": {"requests": {"cpu": some(st.sampled_from(("500m", "1", "100.5m")))}}}],
    }  # fmt: skip
    if node := some(st.sampled_from(("", "", *NODES, "gone"))):
        spec["nodeName"] = node
    if some(st.integers(0, 3)) == 0:
        spec["priority"] = some(st.sampled_from((0, 7)))
    odd = some(st.integers(0, 9))
    if odd == 0:
        spec["resourceClaims"] = [{"name": "c", "resourceClaimName": "c"}]  # its name is part of its class
    if odd == 1:
        spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    status: dict[str, Any] = {"phase": some(st.sampled_from(("Running", "Pending", "Failed")))}
    if some(st.booleans()):
        times = st.sampled_from(("2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"))
        status["startTime"] = some(times)
        status["conditions"] = [
            {"type": "Initialized", "status": "True"},
            {"type": "Ready", "status": some(st.sampled_from(("True", "False"))), "lastTransitionTime": some(times)},
        ]
    if not node and odd == 2:
        status["nominatedNodeName"] = "n0"
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}


@st.composite
def nodes(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from(NODES))
    amounts = {"cpu": draw(st.sampled_from("24")), "pods": "5"}
    return {
        "kind": "Node", "apiVersion": "v1",
        "metadata": {"name": name, "uid": f"{name}{draw(st.sampled_from('12'))}", "managedFields": MANAGED},
        "spec": {"unschedulable": draw(st.booleans())}, "status": {"allocatable": amounts},
    }  # fmt: skip


@st.composite
def budgets(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from("ab"))
    return {
        "kind": "PodDisruptionBudget", "apiVersion": "policy/v1",
        "metadata": {"name": name, "namespace": "x", "uid": name}, "spec": {"minAvailable": draw(st.integers(0, 3))},
    }  # fmt: skip


OBJECTS = pods() | pods() | pods() | nodes() | budgets()


class World:
    """The slow, obvious cluster: objects by key, in order of appearance."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.version = 100

    def put(self, item: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        metadata = {**item["metadata"], "resourceVersion": str(self.version)}
        created = {**item, "metadata": metadata}
        self.objects[self.key(item)] = created
        return created

    def remove(self, item: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        stored = self.objects.get(self.key(item))
        if stored is not None and stored["metadata"]["uid"] == item["metadata"]["uid"]:
            del self.objects[self.key(item)]
        return {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}

    @staticmethod
    def key(item: dict[str, Any]) -> tuple[str, str, str]:
        return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [item for item in self.objects.values() if item["kind"] == kind]

    def loaded(self, texts: Texts) -> Cluster:
        return kscale.load(json.dumps({"kind": "List", "items": list(self.objects.values())}).encode(), texts=texts)


def line(type_: str, item: dict[str, Any]) -> bytes:
    return json.dumps({"type": type_, "object": item}).encode() + b"\n"


def cut(data: bytes, places: list[int]) -> Iterator[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return (data[begin:end] for begin, end in itertools.pairwise(edges))


def fed(cluster: Cluster, chunks: Iterator[bytes]) -> None:
    rest = b""
    for chunk in chunks:
        result = cluster.watched(rest + chunk)
        assert not result.problems
        rest = (rest + chunk)[result.used :]
    assert not rest.strip()


def pages_of(world: World, kind: str, size: int) -> Iterator[bytes]:
    items = [{name: value for name, value in item.items() if name not in ("kind", "apiVersion")}
             for item in world.of(kind)]  # fmt: skip
    group = "policy/v1" if kind == "PodDisruptionBudget" else "v1"
    for begin in range(0, max(len(items), 1), size):
        more = begin + size < len(items)
        metadata = {"resourceVersion": str(world.version), **({"continue": f"c{begin}"} if more else {})}
        yield json.dumps(
            {"kind": f"{kind}List", "apiVersion": group, "metadata": metadata, "items": items[begin : begin + size]}
        ).encode()


def bookmark(world: World, kind: str) -> bytes:
    notes = {"k8s.io/initial-events-end": "true"}
    return line("BOOKMARK", {"kind": kind, "metadata": {"resourceVersion": str(world.version), "annotations": notes}})


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("watch"), st.lists(st.tuples(st.sampled_from("ppd"), OBJECTS), max_size=8),
                  st.lists(st.integers(0, 4000), max_size=4)),
        st.tuples(st.just("missed"), st.lists(st.tuples(st.sampled_from("ppd"), OBJECTS), max_size=4),
                  st.sampled_from(("pages", "stream"))),
        st.tuples(st.just("apply"), OBJECTS, st.booleans()),
        st.tuples(st.just("snapshot"), st.none(), st.none()),
    ),
    max_size=8,
)  # fmt: skip


@given(STEPS, st.sampled_from(("all", "pending")), st.integers(1, 3))
def test_every_sequence_of_changes_gives_the_same_cluster(steps: list[Any], texts: Texts, threads: int) -> None:
    went_all_the_way(steps, texts, threads)


@given(STEPS, st.sampled_from(("all", "pending")))
def test_eagerly_released_rows_are_not_needed(steps: list[Any], texts: Texts) -> None:
    """Rows, numbers and texts that nothing uses are usually given back when there are many."""
    eager = {(store, "_UNUSED_ROWS_ALLOWED"): -1, (store, "_ROWS_PER_STEP"): 2, (store, "_UNUSED_NUMBERS_ALLOWED"): -1,
             (texts_of_pods, "_SEGMENT"): 1 << 11}  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for (module, name), value in eager.items():
            patch.setattr(module, name, value)
        went_all_the_way(steps, texts, 1)


def went_all_the_way(steps: list[Any], texts: Texts, threads: int) -> None:
    world, cluster = World(), Cluster(texts=texts, threads=threads)
    snapshots: list[tuple[Snapshot, Any]] = []
    for what, given_items, how in steps:
        if what == "snapshot":
            snapshot = cluster.snapshot()
            snapshots.append((snapshot, meaning(snapshot)))
        elif what == "apply":
            cluster.apply(world.put(given_items))
            if how:
                cluster.remove(world.remove(given_items))
        elif what == "watch":
            data = b"".join(
                line("DELETED", world.remove(item)) if change == "d"
                else line("MODIFIED" if world.key(item) in world.objects else "ADDED", world.put(item))
                for change, item in given_items
            )  # fmt: skip
            fed(cluster, cut(data, how))
        else:  # events that nobody saw, and a list
            for change, item in given_items:
                world.remove(item) if change == "d" else world.put(item)
            for kind in ("Pod", "Node", "PodDisruptionBudget"):
                before = set(cluster.keys(kind))
                now = {"/".join(part for part in world.key(item)[1:] if part) for item in world.of(kind)}
                if how == "pages":
                    change = cluster.replace(kind, pages_of(world, kind, 2))
                else:
                    stream = b"".join(line("ADDED", item) for item in world.of(kind)) + bookmark(world, kind)
                    with cluster.relist(kind) as listing:
                        assert listing.watched(stream).synced
                    change = listing.change
                assert set(change.removed) == before - now
                assert set(change.added) == now - before
            reorder(world, cluster)
    reloaded = world.loaded(texts).snapshot()
    result = cluster.snapshot()
    assert meaning(result) == meaning(reloaded)
    assert decisions(result) == decisions(reloaded)
    for kind in ("Pod", "Node", "PodDisruptionBudget"):
        versions = [item["metadata"]["resourceVersion"] for item in world.of(kind)]
        assert [cluster.resource_version(kind, key) for key in cluster.keys(kind)] == versions
    for snapshot, expected in snapshots:
        assert meaning(snapshot) == expected


def reorder(world: World, cluster: Cluster) -> None:
    """A list has an order of its own; what was there already keeps its place."""
    keys = {(kind, *((*key.split("/"),) if "/" in key else ("", key))): None
            for kind in ("Pod", "Node", "PodDisruptionBudget") for key in cluster.keys(kind)}  # fmt: skip
    world.objects = {key: world.objects[key] for key in keys}


def pod(name: str = "a", version: str = "1", **more: Any) -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": "x",
        "uid": f"u-{name}",
        "resourceVersion": version,
        **more.pop("metadata", {}),
    }
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], **more}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def test_watch_events_change_the_cluster() -> None:
    cluster = Cluster()
    node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n", "resourceVersion": "7"}}
    first = cluster.watched(line("ADDED", pod("a")) + line("ADDED", pod("b", "2")) + line("ADDED", node))
    assert (first.events, first.version, first.synced, first.error, first.only_added) == (3, "7", False, None, True)
    assert first.changes["Pod"].added == ["x/a", "x/b"]
    assert first.changes["Node"].added == ["n"]
    again = cluster.watched(line("MODIFIED", pod("a")) + line("MODIFIED", pod("b", "8", priority=3)))
    assert again.changes["Pod"].modified == ["x/b"]
    assert (again.changes["Pod"].added, again.version) == ([], "8")
    result = cluster.watched(line("DELETED", pod("a", "9")) + line("DELETED", pod("b", metadata={"uid": "other"})))
    assert result.changes["Pod"].removed == ["x/a"]
    assert cluster.resource_version("Pod", "x/b") == "8"
    with pytest.raises(KeyError):
        cluster.resource_version("Pod", "x/a")


def test_bookmarks_and_errors() -> None:
    cluster = Cluster()
    mark = line("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "12"}})
    result = cluster.watched(mark)
    assert (result.version, result.synced, result.events, result.only_added) == ("12", False, 1, False)
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "too old resource version: 1 (5)",
              "reason": "Expired", "code": 410}  # fmt: skip
    result = cluster.watched(mark + line("ERROR", status))
    assert result.error is not None
    assert (result.error.code, result.error.reason, result.version) == (410, "Expired", "12")


def test_a_null_is_nothing_as_in_go() -> None:
    """Whatever of the metadata it is, of pods and of others."""
    for kind in ("Pod", "Node"):
        cluster = Cluster()
        metadata = {"name": "a", "namespace": None, "resourceVersion": None, "uid": None, "annotations": {"x": None}}
        result = cluster.watched(line("ADDED", {"apiVersion": "v1", "kind": kind, "metadata": metadata}))
        assert not result.problems
        assert len(cluster.keys(kind)) == 1
        assert result.version == ""
    bookmark = {"kind": "Pod", "metadata": {"resourceVersion": "7", "namespace": None, "annotations": None}}
    assert Cluster().watched(line("BOOKMARK", bookmark)).version == "7"
    (problem,) = Cluster().watched(line("ADDED", {"kind": None, "metadata": None})).problems
    assert "no kind: not a Kubernetes object" in str(problem)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"type":"ADDED","object":{"kind":"Pod"\n', "line 2: damaged"),
        (b'{"type":"MOVED","object":{}}\n', "line 2: not an event of a watch: its type is 'MOVED'"),
        (b'{"kind":"Pod"}\n', "line 2 (Pod): not an event of a watch: Object missing required field `type`"),
        (b'{"type":"ADDED","type":"ADDED","object":{}}\n', "line 2: damaged: a key comes twice"),
        (b'{"type":"ADDED","object":{}}\n', "line 2: no kind: not a Kubernetes object"),
        (line("ADDED", pod("q", priority="high")), "line 2 (Pod x/q): spec.priority: expected `int | null`, got `str`"),
        (line("ADDED", pod("")), "line 2 (Pod x): metadata.name: is empty"),
        (b'{"type":"BOOKMARK","object":{"metadata":5}}\n', "line 2: BOOKMARK without metadata"),
        (b'{"type":"ERROR","object":{"code":"x"}}\n', "line 2: code: expected `int`, got `str`"),
        (b"nonsense\n", "line 2: damaged"),
        (b'{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"metadata":{}}}\n',
         "line 2 (Pod): metadata: the key metadata comes twice"),
    ],
)  # fmt: skip
def test_damaged_lines_are_reported_and_the_others_applied(text: bytes, message: str) -> None:
    cluster = Cluster()
    result = cluster.watched(line("ADDED", pod("a")) + text + line("ADDED", pod("b")))
    (problem,) = result.problems
    assert str(problem).startswith(message)
    assert cluster.keys("Pod") == ["x/a", "x/b"]


def test_half_a_line_is_left_to_the_caller() -> None:
    data = line("ADDED", pod("a")) + line("ADDED", pod("b"))
    first = len(line("ADDED", pod("a")))
    for end in range(len(data) + 1):
        cluster = Cluster()
        result = cluster.watched(data[:end])
        complete_names = [name for name, size in (("x/a", first - 1), ("x/b", len(data) - 1)) if end >= size]
        assert (cluster.keys("Pod"), result.problems) == (complete_names, ())
        cluster.watched(data[result.used :])
        assert cluster.keys("Pod") == ["x/a", "x/b"]


def test_kinds_that_are_not_modelled_are_counted() -> None:
    other = {"kind": "Gizmo", "apiVersion": "example.com/v1", "metadata": {"name": "l", "resourceVersion": "5"}}
    result = Cluster().watched(line("ADDED", other) * 2)
    assert (result.skipped, result.version, result.changes) == ({"Gizmo.example.com": 2}, "5", {})


def listed(*items: dict[str, Any], **metadata: Any) -> bytes:
    return json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items}).encode()


def test_paged_list_replaces_objects_at_its_end() -> None:
    cluster = Cluster()
    cluster.apply(pod("old"))
    cluster.apply(pod("a", "1"))
    with cluster.relist("Pod") as listing:
        first = listing.pages(listed(pod("a", "1"), resourceVersion="9", **{"continue": "x", "remainingItemCount": 1}))
        assert (first.version, first.continue_, first.remaining, bool(first.change)) == ("9", "x", 1, False)
        assert "x/old" in cluster.keys("Pod")
        last = listing.pages(listed(pod("b", "2"), resourceVersion="9"))
        assert last.change.added == ["x/b"]
    assert (listing.change.removed, listing.version) == (["x/old"], "9")
    assert cluster.keys("Pod") == ["x/a", "x/b"]
    assert cluster.replace("Pod", [listed()]).removed == ["x/a", "x/b"]
    assert cluster.replace("Pod", [b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":null}']).removed == []


def test_changes_of_several_pages_are_ordered() -> None:
    cluster = Cluster([pod("a", "1"), pod("old")])
    with cluster.relist("Pod") as listing:
        first = listing.pages(listed(pod("c"), pod("a", "2"), **{"continue": "x"}))
        so_far = listing.change
        listing.pages(listed(**{"continue": "y"}))
        listing.pages(listed(pod("b")))
    assert listing.change == ChangedKeys(added=["x/c", "x/b"], modified=["x/a"], removed=["x/old"])
    assert first.change == so_far == ChangedKeys(added=["x/c"], modified=["x/a"])


def test_nothing_is_removed_where_a_list_breaks_off() -> None:
    cluster = Cluster([pod("old")])

    def pages() -> Iterator[bytes]:
        yield listed(pod("a"), **{"continue": "x"})
        raise ConnectionError

    with pytest.raises(ConnectionError):
        cluster.replace("Pod", pages())
    with pytest.raises(InputError, match="the list of Pod is incomplete"), cluster.relist("Pod") as listing:
        listing.pages(listed(pod("a"), **{"continue": "x"}))
    with pytest.raises(InputError, match="is incomplete"):
        cluster.replace("Pod", [])
    with pytest.raises(InputError, match="expected `int"):
        cluster.replace("Pod", [listed(pod("q", priority="high"))])
    assert cluster.keys("Pod") == ["x/old", "x/a"]


@pytest.mark.parametrize("name", [b'"PodList"', b'"v1"'])
@pytest.mark.parametrize("kind", ["Pod", "Node"])
def test_a_list_whose_kind_or_version_is_not_utf8_is_refused(name: bytes, kind: str) -> None:
    data = listed(pod("a")).replace(name, name[:-1] + b'\xff"')
    cluster = Cluster([pod("old")])
    with pytest.raises(InputError, match=f"not a list of {kind}: 'utf-8' codec can't decode byte 0xff"):
        cluster.replace(kind, [data])
    assert cluster.keys("Pod") == ["x/old"]


def test_unreadable_object_keeps_its_old_version() -> None:
    cluster = Cluster([pod("a"), pod("b")])
    with cluster.relist("Pod") as listing:
        page = listing.pages(listed(pod("a", "2", priority="high")))
    (problem,) = page.problems
    assert (problem.object, problem.field) == ("items[0] (Pod x/a)", "spec.priority")
    assert listing.change.removed == ["x/b"]
    assert cluster.resource_version("Pod", "x/a") == "1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"kind":"Status","message":"Forbidden"}', "answered with an error, not with a list: Forbidden"),
        (b'{"kind":"NodeList","apiVersion":"v1","items":[]}', "not a list of Pod but a NodeList"),
        (b'{"items":[]}', "not a list of Pod but a text without a kind"),
        (b'{"kind":"PodList","items":[', "not a list of Pod: "),
        (b'{"kind":"PodList","items":5}', "whose items are no list"),
        (b"", "not a list of Pod"),
    ],
)
def test_invalid_list_is_refused(text: bytes, message: str) -> None:
    cluster = Cluster([pod("old")])
    with pytest.raises(InputError, match=message):
        cluster.replace("Pod", [text])
    assert cluster.keys("Pod") == ["x/old"]


def test_two_lists_of_a_kind_at_once_are_refused() -> None:
    cluster = Cluster()
    for kind in ("Pod", "Node"):
        with cluster.relist(kind) as listing:
            with pytest.raises(RuntimeError, match=f"{kind} is being listed already"), cluster.relist(kind):
                pass
            listing.pages(json.dumps({"kind": f"{kind}List", "items": []}).encode())


@pytest.mark.parametrize("kind", ["Pod", "Node", "Service"])
def test_removed_by_key(kind: str) -> None:
    key = "x" if kind == "Node" else "ns/x"
    item = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x", "uid": "u"}}
    if kind != "Node":
        item["metadata"]["namespace"] = "ns"
    cluster = Cluster([item])
    assert cluster.remove(kind, key, uid="other") is False
    assert cluster.remove(kind, "ns/y") is False
    assert cluster.remove(kind, key, uid="u") is True
    assert cluster.keys(kind) == []
    cluster.apply(item)
    assert cluster.remove(kind, key) is True


def test_texts_of_placed_pods_are_not_kept() -> None:
    cluster = Cluster(texts="pending")
    placed, waiting = pod("a", nodeName="n", hostname="h"), pod("b", hostname="h")
    for each in (placed, waiting):
        each["metadata"]["managedFields"] = MANAGED
    cluster.watched(line("ADDED", placed) + line("ADDED", waiting))
    assert (cluster.pod("x/a").spec.hostname, cluster.pod("x/b").spec.hostname) == ("", "h")
    assert cluster.pod("x/a").spec.node_name == "n"
    waiting["spec"]["nodeName"], waiting["metadata"]["resourceVersion"] = "n", "2"
    cluster.watched(line("MODIFIED", waiting))
    assert cluster.pod("x/b").spec.hostname == ""
    cluster.apply(pod("c", nodeName="n", metadata={"managedFields": MANAGED}))
    with pytest.raises(ValueError, match="texts is 'none', not 'all' or 'pending'"):
        Cluster(texts="none")


@pytest.mark.parametrize("texts", ["all", "pending"])
def test_managed_fields_are_not_kept(texts: Texts) -> None:
    cluster = Cluster(texts=texts)
    given_pod = pod("a", metadata={"managedFields": MANAGED})
    cluster.watched(line("ADDED", given_pod))
    cluster.apply(pod("b", metadata={"managedFields": MANAGED}))
    cluster.apply(json.dumps(pod("c", metadata={"managedFields": MANAGED}, resourceClaims=[{"name": "c"}])).encode())
    for record in cluster.snapshot().pending_records:
        data = record.data()
        assert "managedFields" not in data["metadata"]
        assert data["metadata"]["uid"].startswith("u-")


@pytest.mark.parametrize("type_", ["BOOKMARK", "ERROR", "OTHER"])
def test_a_type_behind_its_object_counts(type_: str) -> None:
    cluster = Cluster()
    cluster.watched(f'{{"object":{json.dumps(pod())},"type":"{type_}"}}\n'.encode())
    assert cluster.keys("Pod") == []


def test_lines_that_come_alone_after_snapshots() -> None:
    cluster, together = Cluster(), Cluster()
    lines = [
        line("ADDED", pod("a", "1")), line("ADDED", pod("b", "2", nodeName="n1")),
        line("MODIFIED", pod("a", "3", nodeName="n1")), line("MODIFIED", pod("a", "3", nodeName="n1")),
        line("DELETED", pod("b", "4")), line("DELETED", pod("c", "5")), line("ADDED", pod("b", "6")),
    ]  # fmt: skip
    before = []
    for each in lines:
        snapshot = cluster.snapshot()
        before.append((snapshot, meaning(snapshot)))
        cluster.watched(each)
    together.watched(b"".join(lines))
    assert meaning(cluster.snapshot()) == meaning(together.snapshot())
    assert all(meaning(snapshot) == then for snapshot, then in before)


def test_pods_without_text_and_uid_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such pods use no bytes of the texts' buffers, which are released and reused meanwhile."""
    monkeypatch.setattr(texts_of_pods, "_SEGMENT", 1 << 12)
    cluster, random = Cluster(texts="pending"), Random(1)
    texts, present = cluster._contents.pods.table.texts, dict[str, str]()
    for version in range(0, 3000, 20):
        lines = []
        for i, number in enumerate(random.sample(range(30), random.choice((1, 1, 5, 20)))):
            name, node = f"p{number}", random.choice(("", "n"))
            changed = pod(name, str(version + i), nodeName=node)
            del changed["metadata"]["uid"]
            if name in present and random.random() < 0.5:
                lines.append(line("DELETED", changed))
                del present[name]
            else:
                lines.append(line("MODIFIED" if name in present else "ADDED", changed))
                present[name] = node
        cluster.watched(b"".join(lines))
        assert len(set(texts._free)) == len(texts._free)
        for each in (cluster, pickle.loads(pickle.dumps(cluster, protocol=5))):
            assert {one.metadata.name: one.spec.node_name for one in each.pods()} == present
