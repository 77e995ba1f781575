"""Plain objects: what the kernel takes for plain is decoded without an error, and no check finds anything."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale._native import _projection
from kscale.errors import NativeError
from kscale.snapshot.loading import decode_plain_object
from kscale.snapshot.text.pod_reader import FACETS, READ_OF_PODS, SLOTS, plain_kinds

_CONTAINER = {
    "name": "app",
    "image": "registry.example.com/app:1",
    "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
    "ports": [{"containerPort": 80, "hostPort": 0, "protocol": "TCP"}],
    "env": [{"name": "A", "value": "b"}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_EXPRESSION = {"key": "zone", "operator": "In", "values": ["a"]}
_POD_SPEC = {
    "containers": [_CONTAINER],
    "initContainers": [{"name": "init"}],
    "restartPolicy": "Always",
    "preemptionPolicy": None,
    "priority": 10,
    "overhead": {"cpu": "10m"},
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "Honor"}
    ],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [_EXPRESSION]}]
            }
        }
    },
    "volumes": [{"name": "data", "emptyDir": {"medium": "Memory"}}],
}
_TEMPLATE = {"metadata": {"creationTimestamp": None, "labels": {"a": "b"}}, "spec": _POD_SPEC}
_SELECTOR = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}
_STATUS = {
    "replicas": 2,
    "conditions": [{"type": "Available", "status": "True", "lastUpdateTime": "2026-03-02T08:11:29Z"}],
}


def _object(api_version: str, kind: str, namespace: str | None = "team", **members: Any) -> dict[str, Any]:
    """Return an object with usual metadata; without a namespace if that is None."""
    metadata = {
        "name": "some-name",
        "creationTimestamp": "2026-03-02T08:11:29Z",
        "labels": {"a": "b"},
        "annotations": {"note": 'a "quoted"\ntext'},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": True}],
        **({} if namespace is None else {"namespace": namespace}),
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **members}


_OBJECTS = [
    _object(
        "v1", "Node", None,
        spec={"providerID": "aws:///a", "unschedulable": True, "taints": [{"key": "a", "effect": "NoSchedule"}]},
        status={
            "capacity": {"cpu": "16", "memory": "66584576Ki", "pods": "110", "nvidia.com/gpu": "1"},
            "allocatable": {"cpu": "15890m", "memory": "59075584Ki", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-03-09T11:58:04Z"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.1.2"}],
            "images": [{"names": ["a", "b"], "sizeBytes": 1000}],
            "nodeInfo": {"architecture": "amd64"},
        },
    ),
    _object(
        "apps/v1", "Deployment",
        spec={
            "replicas": 2, "selector": _SELECTOR, "template": _TEMPLATE,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
        },
        status=_STATUS,
    ),
    _object("apps/v1", "ReplicaSet", spec={"replicas": 2, "selector": _SELECTOR, "template": _TEMPLATE}),
    _object("apps/v1", "StatefulSet", spec={"replicas": 2, "serviceName": "a", "template": _TEMPLATE}),
    _object("batch/v1", "Job", spec={"parallelism": 1, "completions": 2, "template": _TEMPLATE}),
    _object("policy/v1", "PodDisruptionBudget", spec={"maxUnavailable": 1, "selector": _SELECTOR}),
    _object("storage.k8s.io/v1", "CSINode", None, spec={"drivers": [{"name": "d", "allocatable": {"count": 25}}]}),
    _object(
        "v1", "PersistentVolume", None,
        spec={"capacity": {"storage": "5Gi"}, "csi": {"driver": "d"}, "claimRef": {"name": "c", "namespace": "team"}},
    ),
    _object(
        "v1", "PersistentVolumeClaim",
        spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}, "volumeName": "v"},
    ),
]  # fmt: skip


def _scan(texts: list[bytes]) -> list[tuple[int, str, str]]:
    """Return (number that the kernel gives, namespace, name) of each text as an item of a list."""
    projector = _projection.Projector(READ_OF_PODS, len(SLOTS), FACETS)
    projector.add_plain((kind.group, kind.kind, kind.rule) for kind in plain_kinds())
    data = b'{"kind":"List","items":[' + b",".join(texts) + b"]}"
    found: list[tuple[int, str, str]] = []

    def store(begin: Any, size: Any, combined: Any, places: _projection.Places, first: int) -> None:
        which = np.arange(first, len(places))
        namespaces, names = (places.names(data, which, SLOTS[slot]) for slot in ("namespace", "name"))
        found.extend(zip(combined.tolist(), namespaces, names, strict=True))

    projector.scan(data, kind=(b"v1", b"Pod"), meanwhile=store)
    return found


@pytest.mark.parametrize("obj", _OBJECTS, ids=lambda each: str(each["kind"]))
def test_usual_objects_are_plain(obj: dict[str, Any]) -> None:
    """Also with spaces, with members that are not read, and without a namespace."""
    kinds = [kind.kind for kind in plain_kinds()]
    unread = {**obj, "other": [{"a": None, "b": [1.5, "c"]}]}
    nowhere = {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key != "namespace"}}
    texts = [json.dumps(obj), json.dumps(obj, indent=2), json.dumps(unread), json.dumps(nowhere)]
    found = _scan([text.encode() for text in texts])
    assert [-4 - number for number, _, _ in found] == [kinds.index(obj["kind"])] * 4
    namespace = obj["metadata"].get("namespace", "")
    assert [each[1:] for each in found] == [(namespace, "some-name")] * 3 + [("", "some-name")]


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values in plain data, but the whole."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [each for key, item in inner for each in ((*path, key), *_paths(item, (*path, key)))]


_VALUES: list[Any] = [
    None, True, 0, -1, 1, 7, 1.5, 2**31, 2**63, 10**18, 1e300, "", "a", "A", "a.b", "-a", "ä", "\ud800", "\u2028",
    "\x7f", "0", "-1", "1", "500m", "1.5", "1e3", "01", "12E", "9007199254740993Ti", "9223372036854775807", "100%",
    "-5%", "%", "2026-03-02T08:11:29Z", "2026-02-30T08:11:29Z", "2026-03-02T08:11:29+01:00", "yesterday", "Always",
    "Never", "NoSchedule", "Exists", "In", "ScheduleAnyway", "UDP", "Recreate", [], {}, [None], [{}], {"a": None},
    {"": ""}, {"cpu": "2"}, {"cpu": 2}, {"pods": "500m"}, {"memory": "-1"}, {"a/b": "1500m"}, [[[1]]],
]  # fmt: skip


_POD = ("spec", "template", "spec")
_TERMS = ("affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms")


@pytest.mark.parametrize(
    ("which", "path", "value"),
    [
        (0, ("metadata", "name"), "Not_a_name"),
        (0, ("metadata", "creationTimestamp"), "yesterday"),
        (0, ("spec", "taints", 0, "effect"), "Sometimes"),
        (0, ("spec", "taints", 0), {"key": "a"}),
        (0, ("spec", "unschedulable"), "true"),
        (0, ("status", "capacity", "cpu"), "-1"),
        (0, ("status", "allocatable", "pods"), "500m"),
        (0, ("status", "conditions", 0, "lastTransitionTime"), "2026-02-30T00:00:00Z"),
        (1, ("spec", "replicas"), -1),
        (1, ("spec", "strategy", "type"), "Sometimes"),
        (1, ("spec", "strategy", "rollingUpdate", "maxSurge"), "-1%"),
        (1, (*_POD, "containers"), []),
        (1, ("spec", "template"), {}),
        (1, (*_POD, "containers", 0, "resources", "requests", "cpu"), "2"),
        (1, (*_POD, "containers", 0, "ports", 0, "hostPort"), 65536),
        (1, (*_POD, "containers", 0, "ports", 0, "protocol"), "ICMP"),
        (1, (*_POD, "restartPolicy"), "Sometimes"),
        (1, (*_POD, "preemptionPolicy"), ""),
        (1, (*_POD, "tolerations", 0, "operator"), "In"),
        (1, (*_POD, "topologySpreadConstraints", 0, "maxSkew"), 0),
        (1, (*_POD, "topologySpreadConstraints", 0), {"maxSkew": 1}),
        (1, (*_POD, *_TERMS, 0, "matchExpressions", 0, "operator"), "Exist"),
        (1, (*_POD, *_TERMS, 0, "matchExpressions", 0), {"key": "a"}),
        (4, ("spec", "parallelism"), -1),
        (8, ("spec", "resources", "requests", "storage"), "-5Gi"),
    ],
)
def test_values_with_findings_are_not_plain(which: int, path: tuple[Any, ...], value: Any) -> None:
    obj = copy.deepcopy(_OBJECTS[which])
    parent: Any = obj
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    text = json.dumps(obj).encode()
    assert decode_plain_object(memoryview(text)) is None
    assert _scan([text])[0][0] == -3


@pytest.mark.parametrize("which", [1, 2, 3, 4])
@pytest.mark.parametrize("spec", [None, {}, {"template": {}}, {"template": {"spec": {}}}])
def test_workloads_without_containers_are_not_plain(which: int, spec: dict[str, Any] | None) -> None:
    """A pod template that is absent has no containers, which is a warning."""
    obj = {key: value for key, value in _OBJECTS[which].items() if key != "spec"}
    text = json.dumps(obj if spec is None else {**obj, "spec": spec}).encode()
    assert decode_plain_object(memoryview(text)) is None
    assert _scan([text])[0][0] == -3


@given(st.data())
def test_plain_objects_need_no_check(data: st.DataObject) -> None:
    """What the kernel takes for plain is decoded as the slow way decodes it: objects with some other values."""
    which = data.draw(st.integers(0, len(_OBJECTS) - 1))
    paths = _paths(_OBJECTS[which])
    removed = data.draw(st.lists(st.sampled_from(paths), max_size=2), label="removed")
    changed = data.draw(
        st.lists(st.tuples(st.sampled_from(paths), st.sampled_from(_VALUES)), max_size=3), label="changed"
    )
    obj = copy.deepcopy(_OBJECTS[which])
    for path, *values in [*changed, *((each,) for each in removed)]:
        parent: Any = obj
        try:
            for key in path[:-1]:
                parent = parent[key]
            if values:
                parent[path[-1]] = copy.deepcopy(values[0])
            else:
                del parent[path[-1]]
        except (KeyError, IndexError, TypeError):
            continue
    for ascii_only in (True, False):
        text = json.dumps(obj, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
        [(number, namespace, name)] = _scan([text])
        if number > -4:
            continue
        kind = plain_kinds()[-4 - number]
        slow = decode_plain_object(memoryview(text))
        assert slow is not None
        assert slow == ((kind.kind, namespace or kind.namespace, name), kind.decode(memoryview(text)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"kind": "Node"', '"kind": "Node\\u0020"'),
        ('"a": "b"', '"a": "\\u0062"'),
        ('"a": "b"', '"a": "b", "a": "c"'),
        ('"pods": "110"', '"pods": "' + "9" * 19 + '"'),
        ('"sizeBytes": 1000', '"sizeBytes": -0.0'),
        ('"architecture": "amd64"', '"architecture": 1e400'),
        ('"architecture": "amd64"', '"architecture": ' + "9" * 400),
        ('"architecture": "amd64"', '"architecture": ' + "[" * 150 + "]" * 150),
        ('"apiVersion": "v1"', '"apiVersion": "v2/v1"'),
        ('{"apiVersion": "v1", ', '{"spec": {}, "apiVersion": "v1", '),
    ],
)
def test_texts_that_are_not_plain(old: str, new: str) -> None:
    text = json.dumps(_OBJECTS[0])
    assert old in text
    assert _scan([text.replace(old, new, 1).encode()])[0][0] in (-1, -3)


def test_names_of_items_that_are_not_there() -> None:
    text = json.dumps(_OBJECTS[0]).encode()
    data = b'{"kind":"List","items":[' + text + b"," + text + b"]}"
    projector = _projection.Projector(READ_OF_PODS, len(SLOTS), FACETS)
    scanned = projector.scan(data, kind=(b"v1", b"Pod"))
    assert scanned is not None
    places = scanned[3]
    assert places.names(data, np.array([0, 1]), SLOTS["name"]) == ["", ""]
    for which, slot in (([2], 0), ([-1], 0), ([1, 0], 0), ([0, 0], 0), ([0], len(SLOTS)), ([0], -1)):
        with pytest.raises(IndexError):
            places.names(data, np.array(which), slot)


def test_names_outside_of_the_text() -> None:
    data = b'{"kind":"List","items":[' + json.dumps(_OBJECTS[0]).encode() + b"]}"
    projector = _projection.Projector(READ_OF_PODS, len(SLOTS), FACETS)
    projector.add_plain((kind.group, kind.kind, kind.rule) for kind in plain_kinds())
    scanned = projector.scan(data, kind=(b"v1", b"Pod"), meanwhile=lambda *_: None)
    assert scanned is not None
    assert scanned[3].names(data, np.array([0]), SLOTS["name"]) == ["some-name"]
    with pytest.raises(NativeError):
        scanned[3].names(data[:40], np.array([0]), SLOTS["name"])


def test_rules_that_are_none() -> None:
    projector = _projection.Projector(READ_OF_PODS, len(SLOTS), FACETS)
    for rule in ("other", ("name", len(SLOTS)), ("object", dict.fromkeys(map(str, range(65)), "any"), (), False)):
        with pytest.raises(NativeError):
            projector.add_plain([("", "Node", rule)])
