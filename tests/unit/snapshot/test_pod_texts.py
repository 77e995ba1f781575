"""Pods read from the text of a list equal pods read one by one, whatever way they are written."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kscale
from examples import examples
from kscale._native import _projection
from kscale.capacity.generate import generate
from kscale.errors import InputError, NativeError
from kscale.snapshot.cluster import Cluster, load
from kscale.snapshot.loading import LoadReport, decode_plain_object, load_objects
from kscale.snapshot.text import pod_reader


def slowly(data: bytes, *, strict: bool = True) -> tuple[Cluster, LoadReport]:
    report = LoadReport()
    cluster = Cluster()
    for obj, raw in load_objects(data, strict=strict, report=report):
        cluster.apply_decoded(obj, raw)
    return cluster, report


def dump(*items: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items), **more}).encode()


def meaning(cluster: Cluster) -> dict[str, Any]:
    snapshot = cluster.snapshot()
    classes = [(c, cluster.interner.classes[c]) for c in snapshot.placed_class.tolist()]
    pending = snapshot.pending_records
    met: dict[int, int] = {}  # facets are equal or not; their numbers mean nothing
    return {
        "nodes": snapshot.nodes,
        "pods": snapshot.pods,
        "pending": snapshot.pending,
        "counts": snapshot.counts,
        "used": {name: column.tolist() for name, column in snapshot.used.items() if column.any()},
        "pod_count": snapshot.pod_count.tolist(),
        "placed_node": snapshot.placed_node.tolist(),
        "classes": [
            (c.demand, c.occupancy, c.labels, c.owner, c.node_affinity, met.setdefault(c.selection_id, len(met)))
            for _, c in classes
        ],
        "pending classes": [(c.demand, c.labels, c.node_affinity, c.volumes) for c in snapshot.pending_classes],
        "records": [(r.key, r.uid, r.priority, r.controller, r.pod) for r in pending],
        "all": list(cluster.pods()),
    }


def assert_same(data: bytes) -> None:
    slow, slow_report = slowly(data, strict=False)
    report = LoadReport()
    fast = load(data, strict=False, report=report)
    assert report == slow_report
    assert meaning(fast) == meaning(slow)
    assert len(fast.interner.classes) == len(slow.interner.classes)


NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4"}}}


def pod(name: Any = "a", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", **more.pop("metadata", {})}
    spec = {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], **more}
    status = spec.pop("status", {"phase": "Running"})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


@pytest.mark.parametrize("lean", [False, True])
def test_generated_cluster(lean: bool) -> None:
    objects = list(generate(20, 250, seed=3, lean=lean).objects())
    assert_same(dump(*objects))
    assert_same(json.dumps({"kind": "List", "items": objects[::-1]}, indent=2).encode())


@pytest.mark.parametrize(
    "item",
    [
        pod(metadata={"name": ""}),
        pod(metadata={"namespace": None}),
        pod(metadata={"uid": None, "labels": {"a": None}}),
        pod(metadata={"labels": {"a": 5}}),
        pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}, nodeName=""),
        pod(metadata={"ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}]}),
        pod(
            metadata={
                "ownerReferences": [{"kind": "Job", "name": "d", "uid": "u", "controller": True}],
                "annotations": {"cluster-autoscaler.kubernetes.io/daemonset-pod": "true"},
            }
        ),
        pod(nodeName=None),
        pod(nodeName=7),
        pod(nodeName="", status={"nominatedNodeName": "n"}),
        pod(nodeName="", schedulingGates=[{"name": "g"}]),
        pod(status={"phase": "Succeeded"}),
        pod(status={"phase": "Confused"}),
        pod(tolerations=[{"operator": "Sometimes"}]),
        pod(containers=[{"name": "c", "resources": {"requests": {"cpu": "-1"}}}]),
        pod(containers=[{"name": "c", "resources": {"requests": {"cpu": "1x"}}}]),
        pod(containers=[{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]),
        pod(containers=[{"name": "c", "volumeMounts": [{"name": "v", "bindMountOptions": ["x"]}]}]),
        pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "t", "projected": {}}]),
        pod(volumes=[{"name": "v", "ephemeral": {}}]),
        pod(resourceClaims=[{"name": "v", "resourceClaimName": "c"}]),
        pod(priority=7, nodeName=""),
        pod(
            status={
                "phase": "Running",
                "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}, {"type": "Ready"}],
                "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "2"}, "ready": True}],
            }
        ),
        pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "k", "operator": "Near"}]}]}}}),
        {**pod(), "kind": "Service"},
        {**pod(), "apiVersion": "v2"},
        {**pod(), "spec": None},
        {**pod(), "spec": 5},
        "text",
        None,
    ],
)  # fmt: skip
def test_unusual_pods(item: Any) -> None:
    assert_same(dump(NODE, *(pod(f"p{i}") for i in range(20)), item, pod("z")))


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ('"name": "p3"', '"name": "p\\u0033"'),
        ('"metadata": {"name": "p3"', '"metad\\u0061ta": {"name": "p3"'),
        ('"spec": {"nodeName": "n"', '"spec": {}, "spec": {"nodeName": "n"'),
        ('"name": "p3"', '"name": "p3", "name": "p33"'),
        ('"name": "p3"', '"name": "p2"'),
    ],
)
def test_unusual_texts(text: str, other: str) -> None:
    given_text = dump(NODE, *(pod(f"p{i}") for i in range(20))).decode()
    assert text in given_text
    assert_same(given_text.replace(text, other, 1).encode())


@pytest.mark.parametrize("kind", ["DaemonSet", "ReplicaSet"])
def test_node_affinity_of_placed_daemonset_pods_makes_no_classes(kind: str) -> None:
    """It names the node; such a pod never moves. Waiting for its node it keeps it, and so do others' pods."""

    def one(name: str, node: str, **more: Any) -> dict[str, Any]:
        owner = {"apiVersion": "apps/v1", "kind": kind, "name": "d", "uid": "u", "controller": True}
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        return pod(name, metadata={"ownerReferences": [owner]}, affinity=affinity, **more)

    placed = [one(f"p{i}", f"n{i}") for i in range(3)]
    finished = one("done", "n0", nodeName="", status={"phase": "Failed"})
    waiting = [one("w0", "n0", nodeName=""), one("w5", "n5", nodeName="")]
    nominated = one("m", "n2", nodeName="", status={"nominatedNodeName": "n"})
    data = dump(NODE, *placed, *waiting, finished, nominated)
    assert_same(data)
    snapshot = load(data).snapshot()
    own = kind == "DaemonSet"
    assert len(set(snapshot.placed_class.tolist())) == (1 if own else 3)
    assert all((each.node_affinity is None) == own for each in snapshot.placed_classes)
    for name, node in (("ns/w0", "n0"), ("ns/p1", "n1")):  # asked where it could go, it is as it is written
        verdict = kscale.fit(snapshot, [name]).verdict(name, "n")
        assert not verdict.ok, (name, node)
    cluster = load(dump(NODE, *placed))  # what is learned from one list serves the next
    cluster.apply(waiting[0])
    assert cluster.snapshot().pending_classes[0].node_affinity is not None


def test_items_of_a_pod_list_need_no_kind() -> None:
    items = [
        {key: value for key, value in pod(f"p{i}").items() if key not in ("apiVersion", "kind")} for i in range(20)
    ]
    assert_same(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": items}).encode())


@pytest.mark.parametrize("cut", [1, 2, 50, 3000])
def test_damaged_text_is_reported_as_by_the_slow_reader(cut: int) -> None:
    data = dump(*(pod(f"p{i}") for i in range(20)))[:-cut]
    with pytest.raises(InputError) as slow:
        slowly(data)
    with pytest.raises(InputError) as fast:
        load(data)
    assert str(fast.value) == str(slow.value)


def test_pod_is_decoded_on_access() -> None:
    cluster = load(dump(NODE, *(pod(f"p{i}", hostname=f"h{i}") for i in range(20))))
    assert cluster.pod("ns/p7").spec.hostname == "h7"
    assert cluster.snapshot().record("ns/p7").uid == "uid-p7"


def test_pickled_clusters_and_snapshots() -> None:
    cluster = load(dump(*generate(10, 100, seed=1).objects()))
    cluster.apply(pod("late"))
    again = pickle.loads(pickle.dumps(cluster, protocol=5))
    assert meaning(again) == meaning(cluster)
    snapshot = cluster.snapshot()
    copy = pickle.loads(pickle.dumps(snapshot, protocol=5))
    assert (copy.pods, copy.pending) == (snapshot.pods, snapshot.pending)
    node = next(cluster.nodes())
    expected, result = (kscale.estimate(each, template=node) for each in (snapshot, copy))
    assert result.placed == expected.placed


# -- the projection itself -----------------------------------------------------------------------------------------

RULE = ("object", {"a": "keep", "b": ("capture", 0), "c": ("array", ("object", {"x": "keep"}, ("x",))),
                   "d": ("facet", 0, "keep"), "e": ("equals", "1")}, ())  # fmt: skip


def reduced(item: dict[str, Any]) -> tuple[Any, Any, Any]:
    """The reference: (rest, facet, captured)."""
    rest = {}
    for key, value in item.items():
        if key == "a" or (key == "e" and value == 1):
            rest[key] = value
        elif key == "c":
            elements = (
                [{"x": v["x"]} if isinstance(v, dict) else v for v in value if not isinstance(v, dict) or "x" in v]
                if isinstance(value, list)
                else value
            )
            rest[key] = elements
    return rest, item.get("d", ...), item.get("b")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=10,
)
ITEMS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "a": JSON,
            "b": st.text(alphabet="abc-/", max_size=20),
            "c": JSON | st.lists(st.dictionaries(st.sampled_from("xyz"), JSON, max_size=3)),
            "d": JSON,
            "e": st.sampled_from([1, 2]),
            "f": JSON,
        },
    ),
    max_size=6,
)


@settings(max_examples=examples(2 / 3))
@given(ITEMS, st.sampled_from([None, 1, 3]))
def test_projection(items: list[dict[str, Any]], indent: int | None) -> None:
    text = json.dumps({"kind": "L", "items": items, "apiVersion": "v"}, indent=indent, ensure_ascii=False).encode()
    projector = _projection.Projector(RULE, 1, 1)
    scanned = projector.scan(text)
    assert scanned is not None
    begin, size, combined, noted, api_version, kind, _ = scanned
    at, length = noted.part(0, len(items))
    assert (api_version, kind) == ("v", "L")
    places = zip(begin.tolist(), size.tolist(), strict=True)
    assert [json.loads(text[b : b + n]) for b, n in places] == items
    for i, item in enumerate(items):
        if combined[i] < 0:  # escaped keys where rules look
            assert "\\" in json.dumps(item, ensure_ascii=False)
            continue
        facet, rest = projector.combinations()[combined[i]].tolist()
        result = json.loads(projector.text(rest)), ... if facet < 0 else json.loads(projector.facet_text(0, facet))
        name = None if length[0, i] < 0 else text[at[0, i] : at[0, i] + length[0, i]].decode()
        assert (*result, name) == reduced(item)


def scanned_by(text: bytes, threads: int) -> Any:
    projector = _projection.Projector(RULE, 1, 1)
    scanned = projector.scan(text, threads, 1)
    if scanned is None:
        return None
    texts = [projector.text(i) for i in range(len(projector))]
    return (
        *(column.tolist() for column in (*scanned[:3], *scanned[3].part(0, len(scanned[3])))),
        *scanned[4:],
        projector.combinations().tolist(),
        texts,
    )


# Items whose own parts look like the seam between two items: guesses that are wrong.
DECEPTIVE = st.fixed_dictionaries(
    {"a": JSON | st.just([{"a": "1", "b": "x"}, {"a": "2", "b": "y"}])},
    optional={"b": st.text(alphabet='ab{},:"', max_size=9), "c": st.just([{"a": "1", "b": "z"}] * 3), "d": JSON},
)


@given(st.lists(DECEPTIVE, max_size=12), st.sampled_from([None, 1]), st.integers(0, 30))
def test_reading_with_threads_equals_one_thread(items: list[dict[str, Any]], indent: int | None, cut: int) -> None:
    text = json.dumps({"kind": "L", "items": items}, indent=indent).encode()
    for given_text in (text, text[: len(text) - cut]):
        one = scanned_by(given_text, 1)
        assert [scanned_by(given_text, threads) for threads in (2, 3, 7)] == [one] * 3


@given(st.lists(DECEPTIVE, max_size=12), st.lists(DECEPTIVE, max_size=12))
def test_list_read_ahead_equals_list_read_at_once(before: list[dict[str, Any]], items: list[dict[str, Any]]) -> None:
    text = json.dumps({"kind": "L", "items": items}).encode()
    results = []
    for threads in (1, 2):
        projector = _projection.Projector(RULE, 1, 1)
        projector.scan(json.dumps({"items": before}).encode())
        news: list[Any] = []

        def note(begin: Any, size: Any, combined: Any, places: Any, first: int, news: list[Any] = news) -> None:
            assert first == len(news)
            assert (places.have((0,), first) == (places.part(first, len(places))[1][0] > 0)).all()
            news += zip(begin.tolist(), size.tolist(), combined.tolist(), strict=True)

        scanned = projector.scan(text, threads, 1, meanwhile=note)
        assert scanned is not None
        assert news == list(zip(*(column.tolist() for column in scanned[:3]), strict=True))
        texts = [projector.text(i) for i in range(len(projector))]
        results.append((news, projector.combinations().tolist(), texts))
    assert results[0] == results[1]


def test_an_error_while_a_list_is_read_ahead_ends_the_reading() -> None:
    text = json.dumps({"items": [{"b": str(i)} for i in range(1000)]}).encode()
    projector = _projection.Projector(RULE, 1, 1)

    def refuse(*_: Any) -> None:
        raise KeyError("b")

    with pytest.raises(KeyError, match="b"):
        projector.scan(text, 2, 1, meanwhile=refuse)
    assert projector.scan(text, 2, 1) is not None


def test_parts_are_read_one_ahead_in_order() -> None:
    numbers: list[int] = []

    def read(number: int) -> int:
        numbers.append(number)
        return 6 // (3 - number)

    parts = pod_reader._one_ahead(read, range(5))
    assert next(parts) == 2
    assert [next(parts), next(parts)] == [3, 6]
    with pytest.raises(ZeroDivisionError):
        next(parts)
    assert numbers == [0, 1, 2, 3]


def workload(name: str, **metadata: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c"}]}}
    spec = {"replicas": 2, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, **metadata}, "spec": spec}


UNUSUAL_OBJECTS: list[Any] = [
    workload("again"), workload("again"), workload("Upper", namespace="ns"), workload("", generateName="made-"),
    workload("negative") | {"spec": {"replicas": -1}}, workload("wrong") | {"spec": {"replicas": "many"}},
    workload("null") | {"spec": None}, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}},
    {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "other-order"}}, {"metadata": {"name": "no-kind"}},
    {"apiVersion": "v1", "kind": "ServiceList", "items": [{"metadata": {"name": "inside"}}]}, NODE,
    {"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "gone"}, pod("other", spec=7), 7, [], {},
    {"apiVersion": "example.com/v1", "kind": "Farm", "metadata": {"name": "farm", "namespace": "ns"}},
]  # fmt: skip


@pytest.mark.parametrize("end", ["", "]", "} {", "x", '"items":[]'])
def test_objects_of_a_long_list_are_decoded_as_in_a_short_one(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setattr(pod_reader, "_LONG", 1 << 16)
    many = [each for i in range(150) for each in (pod(f"p{i}"), workload(f"w{i}", namespace="ns"), NODE | {"n": i})]
    items: list[Any] = [each for i, odd in enumerate(UNUSUAL_OBJECTS) for each in (odd, *many[i * 25 : i * 25 + 25])]
    data = dump(*items).replace(b'"w7"', b'"w7","name":"w8"', 1)
    if end:
        data = data[:-1] + b"," + end.encode() + data[-1:]
        with pytest.raises(InputError) as slow_error:
            slowly(data)
        with pytest.raises(InputError) as fast_error:
            load(data)
        assert str(fast_error.value) == str(slow_error.value)
        return
    scanned = Cluster().reader.scan(memoryview(data), "", "items", decode_plain_object)
    assert scanned is not None
    assert 150 < len(scanned.objects) < 300 + len(UNUSUAL_OBJECTS)
    assert_same(data)
    slow, fast = slowly(data, strict=False)[0], load(data, strict=False)
    assert list(fast) == list(slow)
    assert {kind: list(by_key) for kind, by_key in fast.objects.items()} == {
        kind: list(by_key) for kind, by_key in slow.objects.items()
    }


@pytest.mark.parametrize("end", [b"", b',"items":[]'])
def test_a_kind_that_is_not_utf8_in_a_long_list(monkeypatch: pytest.MonkeyPatch, end: bytes) -> None:
    data = dump(pod("a"), NODE, NODE | {"kind": "Nod?"}, pod("b")).replace(b"Nod?", b"Nod\xff")
    data = data[:-1] + end + data[-1:]
    errors = []
    for at_least in (1 << 60, 0):
        monkeypatch.setattr(pod_reader, "_LONG", at_least)
        report = LoadReport()
        with pytest.raises(InputError) as error:
            load(data, strict=False, report=report)
        errors.append((str(error.value), error.value.problems, report))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("bare", [False, True])
def test_loading_with_threads_equals_one_thread(indent: int | None, bare: bool) -> None:
    items = list(generate(60, 900, seed=5).objects())
    if bare:  # as the API server lists them
        items = [
            {key: value for key, value in item.items() if key not in ("apiVersion", "kind")}
            for item in items
            if item["kind"] == "Pod"
        ]
    data = json.dumps(
        {"apiVersion": "v1", "kind": "PodList" if bare else "List", "items": items}, indent=indent
    ).encode()
    assert len(data) > 4 << 20  # worth four threads
    one = load(data, threads=1)
    assert sum(one.snapshot().counts.values()) > 500
    expected = meaning(one)
    for threads in (2, 3, 7):
        more = load(data, threads=threads)
        assert meaning(more) == expected
        assert more.report == one.report


@settings(max_examples=examples(2 / 3))
@given(st.binary(max_size=40) | JSON.map(lambda data: json.dumps({"items": [data]}).encode()), st.data())
def test_scanned_text_is_valid_json(text: bytes, data: st.DataObject) -> None:
    if text:
        at = data.draw(st.integers(0, len(text) - 1))
        text = text[:at] + data.draw(st.binary(max_size=2)) + text[at + data.draw(st.integers(0, 2)) :]
    if _projection.Projector(RULE, 1, 1).scan(text) is not None:
        assert isinstance(json.loads(text.decode(errors="replace"), strict=False), dict)


@pytest.mark.parametrize(
    "rule", ["forget", ("capture", 1), ("facet", 1, "keep"), ("object", {}, ()), ("object", {"": "keep"}, ())]
)
def test_refused_rules(rule: Any) -> None:
    with pytest.raises(NativeError):
        _projection.Projector(("object", {"a": rule}, ()), 1, 1)


@pytest.mark.parametrize(("threads", "grain"), [(0, 1), (-1, 1), (1, 0), (2, -5)])
def test_refused_threads(threads: int, grain: int) -> None:
    with pytest.raises(NativeError):
        _projection.Projector(RULE, 1, 1).scan(b"{}", threads, grain)
    with pytest.raises(ValueError, match="threads must be at least 1"):
        load(b"{}", threads=0)


TIMES = st.sampled_from(
    ["2024-02-29T23:59:59Z", "2023-02-29T00:00:00Z", "2024-13-01T00:00:00Z", "2024-00-01T00:00:00Z", "now", "", None,
     "2024-01-01T24:00:00Z", "2024-01-31T00:00:00.123456Z", "2024-01-31T00:00:00+01:00", "0000-01-01T00:00:00Z",
     "2024-04-31T00:00:00Z", "2024-01-0:T00:00:00Z", "2024-01-01t00:00:00Z", "20240-1-01T00:00:00Z"]
)  # fmt: skip
NAMES = st.sampled_from(
    ["a", "a.b-c", "A", "-a", "a-", "a..b", "a.-b", "a\nb", "\x1b[31m", "a" * 253, "a" * 254, "\xe9"]
)


@given(st.lists(st.tuples(NAMES, TIMES, TIMES, TIMES), min_size=1, max_size=6))
def test_odd_names_and_times_are_reported_the_same_way(pods: list[tuple[str, Any, Any, Any]]) -> None:
    items = [
        pod(name, metadata={"creationTimestamp": created, "deletionTimestamp": deleted}, status={"startTime": started})
        for name, created, deleted, started in pods
    ]
    data, report = dump(NODE, *items), LoadReport()
    slow, slow_report = slowly(data, strict=False)
    assert meaning(load(data, strict=False, report=report)) == meaning(slow)
    assert report == slow_report


def test_a_broken_time_and_an_odd_name_are_reported() -> None:
    report = LoadReport()
    data = dump(pod("a"), pod("b", metadata={"creationTimestamp": "2023-02-29T00:00:00Z"}), pod("C"))
    assert [each.key for each in load(data, strict=False, report=report).pods()] == ["ns/a", "ns/C"]
    (problem,), (warning,) = report.problems, report.warnings
    assert (problem.object, problem.field) == ("items[1] (Pod ns/b)", "metadata.creationTimestamp")
    assert (warning.object, warning.field) == ("items[2] (Pod ns/C)", "metadata.name")


def test_an_item_without_kind_is_a_pod_in_a_list_of_pods_only() -> None:
    items = [{key: value for key, value in pod(f"p{i}").items() if key not in ("apiVersion", "kind")} for i in range(2)]
    listed = json.dumps({"apiVersion": "v1", "kind": "PodList", "items": items[:1]}).encode()
    other = json.dumps({"apiVersion": "v1", "kind": "List", "items": items[1:]}).encode()
    report = LoadReport()
    assert [each.key for each in load(listed, other, strict=False, report=report).pods()] == ["ns/p0"]
    (problem,) = report.problems
    assert problem.message == "no kind: not a Kubernetes object"


@pytest.mark.parametrize(
    ("text", "key", "field"),
    [
        ('{"cpu":"1","cpu":"2"}', "cpu", "spec.containers[0].resources.requests.cpu"),
        ('{"example.com/gpu":"1","cpu":"1","example.com/gpu":"1"}', "example.com/gpu",
         "spec.containers[0].resources.requests[example.com/gpu]"),
    ],
)  # fmt: skip
def test_a_key_that_comes_twice_is_refused(text: str, key: str, field: str) -> None:
    good, bad = pod("a"), pod("b")
    bad["spec"]["containers"] = [{"name": "x", "resources": {"requests": "HERE"}}]
    data = dump(good, bad).replace(b'"HERE"', text.encode())
    report = LoadReport()
    assert [each.key for each in load(data, strict=False, report=report).pods()] == ["ns/a"]
    (problem,) = report.problems
    assert (problem.message, problem.field) == (f"the key {key} comes twice", field)
    assert problem.object == "items[1] (Pod ns/b)"


UNREAD = {
    "metadata.annotations.a": (b'"annotations":{', b'"a":"x","b":"y","a":"z",'),
    "metadata.managedFields[0].f:spec.f:x": (b'"managedFields":[{', b'"f:spec":{"f:x":{},"f:x":{}},'),
    "metadata.generation": (b'"metadata":{', b'"generation":1,"generation":2,'),
    "spec.containers[0].env[0].value": (b'"env":[{', b'"value":"1","value":"2",'),
    "spec.containers[0].image": (b'"containers":[{', b'"image":"a","image":"b",'),
    "spec.hostname": (b'"spec":{', b'"hostname":"a","hostname":"b",'),
    "spec.dnsConfig.options[0].name": (b'"spec":{', b'"dnsConfig":{"options":[{"name":"a","name":"b"}]},'),
    "status.hostIP": (b'"status":{', b'"hostIP":"1.1.1.1","hostIP":"1.1.1.2",'),
    "status.conditions[0].reason": (b'"conditions":[{', b'"reason":"a","reason":"b",'),
}


@pytest.mark.parametrize("field", UNREAD)
@pytest.mark.parametrize("many", [0, 40])
def test_duplicate_key_in_unread_fields_is_refused(field: str, many: int) -> None:
    place, repeated = UNREAD[field]
    pods = [
        pod(
            f"p{i}",
            metadata={"annotations": {"c": "d"}, "managedFields": [{"manager": f"m{i}"}]},
            containers=[{"name": "c", "env": [{"name": "e"}]}],
            status={"conditions": [{"type": "Initialized", "status": "True"}]},
        )
        for i in range(many + 2)
    ]
    texts = [json.dumps(each, separators=(",", ":")).encode() for each in pods]
    for bad in (many, many + 1):
        assert place in texts[bad]
        texts[bad] = texts[bad].replace(place, place + repeated, 1)
    report = LoadReport()
    text = b'{"apiVersion":"v1","kind":"List","items":[' + b",".join(texts) + b"]}"
    assert len(list(load(text, strict=False, report=report).pods())) == many
    key = field.rpartition(".")[2]
    assert [(each.message, each.field) for each in report.problems] == [(f"the key {key} comes twice", field)] * 2


@pytest.mark.parametrize("facet", ["labels", "ownerReferences"])
def test_a_key_that_comes_twice_in_a_facet_is_refused(facet: str) -> None:
    odd = '{"app":"a","app":"b"}' if facet == "labels" else '[{"kind":"Job","name":"j","uid":"u","uid":"v"}]'
    data = dump(pod("a", metadata={facet: "HERE"})).replace(b'"HERE"', odd.encode())
    with pytest.raises(InputError, match=rf"metadata\.{facet}.*comes twice"):
        load(data)


def test_a_list_with_two_lists_of_items_is_refused() -> None:
    text = dump(pod("a"))[:-1] + b',"items":[]}'
    with pytest.raises(InputError, match="a key of the list comes twice"):
        load(text)
