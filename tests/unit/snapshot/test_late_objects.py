"""Objects of long lists are decoded when they are needed; nobody sees a difference."""

from __future__ import annotations

import copy
import json
import os
import pickle
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import kscale
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.loading import decode_plain_object
from kscale.snapshot.text.files import UndecodedObject

_TIME = "2026-03-02T08:11:29Z"
_SPEC = {"containers": [{"name": "c", "image": "i" * 900, "resources": {"requests": {"cpu": "1"}}}]}
_LABELS = {"app": "a"}


def _items() -> list[dict[str, Any]]:
    """Return enough objects of several kinds for a long text; some are not plain."""
    template = {"metadata": {"labels": _LABELS}, "spec": _SPEC}
    items: list[dict[str, Any]] = []
    for i in range(1000):
        metadata = {"name": f"o{i}", "creationTimestamp": _TIME, "namespace": "team"}
        workload = {"selector": {"matchLabels": _LABELS}, "template": template}
        items += [
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{i}", "labels": {"zone": str(i % 3)}},
             "status": {"allocatable": {"cpu": "4", "pods": "10"}}},
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": {"replicas": i, **workload}},
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": f"d{i}"}, "spec": workload},
            {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": f"n{i}"}, "spec": {
                "drivers": [{"name": "d", "nodeID": f"n{i}", "topologyKeys": ["zone"], "allocatable": {"count": 2}}]}},
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {**metadata},
             "spec": {"volumeName": f"v{i}"}},
            {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "uid": f"u{i}"}, "spec": _SPEC},
        ]  # fmt: skip
    items[7]["metadata"]["annotations"] = {"note": "é"}  # not plain, as it is not ASCII
    items.append(copy.deepcopy(items[1]))  # it comes twice
    return items


def _text(items: list[dict[str, Any]]) -> bytes:
    """Return a list with the items as JSON text."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, ensure_ascii=False).encode()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a file with the items."""
    made = tmp_path_factory.mktemp("late") / "dump.json"
    made.write_bytes(_text(_items()))
    return made


def _count_undecoded(cluster: Cluster) -> int:
    """Return how many objects of a cluster are not decoded."""
    by_kind = cluster._contents.objects._objects
    return sum(type(value) is UndecodedObject for of in by_kind.values() for value in of.values())


def test_objects_are_those_of_a_short_list(path: Path) -> None:
    """Also their order, keys, and what was counted."""
    late, texts = kscale.load(path), [json.dumps(item) for item in _items()]
    early = Cluster()
    for text in texts:
        early.apply(json.loads(text))
    assert _count_undecoded(late) == 4 * 1000 - 1
    assert repr(late) == repr(early)
    assert late._repr_html_() == early._repr_html_()
    for kind in ("Node", "ReplicaSet", "Deployment", "CSINode", "PersistentVolumeClaim"):
        assert late.keys(kind) == early.keys(kind)
    assert _count_undecoded(late) == 4 * 1000 - 1
    assert late.objects == early.objects
    assert list(late.nodes()) == list(early.nodes())
    assert not _count_undecoded(late)
    report = late.report
    assert (report.read["ReplicaSet"], report.duplicates, report.warning_count) == (1001, 1, 1)
    assert report.warnings[0].object == "items[6000] (ReplicaSet team/o0)"


def test_only_what_is_looked_up_is_decoded(path: Path) -> None:
    cluster = kscale.load(path)
    informers = cluster.snapshot().informers
    before = _count_undecoded(cluster)
    claim = informers.claims["team", "o5"]
    assert informers.claims.get(("team", "o5")) is claim
    assert informers.claims.get(("team", "other")) is None
    assert len(informers.claims) == len(informers.csi_nodes) == 1000
    assert list(informers.csi_nodes)[:2] == ["n0", "n1"]
    assert informers.controllers["ReplicaSet", "team", "o7"].spec.replicas == 7
    assert _count_undecoded(cluster) == before  # the cluster's own
    objects = cluster._contents.objects._objects["PersistentVolumeClaim"]
    assert sum(value.decoded is not None for value in objects.values()) == 1
    assert next(item for item in cluster.all("PersistentVolumeClaim") if item.name == "o5") is claim
    assert [item.name for item in informers.workloads] == [f"o{i}" for i in range(1000)]


def test_snapshots_keep_their_objects(path: Path) -> None:
    cluster = kscale.load(path)
    snapshot, duplicate = cluster.snapshot(), cluster.copy()
    cluster.remove("PersistentVolumeClaim", "team/o1")
    cluster.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                   "metadata": {"name": "o2", "namespace": "team"}, "spec": {"volumeName": "other"}})  # fmt: skip
    changed = cluster.snapshot()
    assert changed.informers.csi_nodes is snapshot.informers.csi_nodes
    for old in (snapshot, duplicate.snapshot(), pickle.loads(pickle.dumps(snapshot))):
        assert len(old.informers.claims) == 1000
        assert old.informers.claims["team", "o2"].spec.volume_name == "v2"
    assert len(changed.informers.claims) == 999
    assert changed.informers.claims["team", "o2"].spec.volume_name == "other"
    assert pickle.loads(pickle.dumps(duplicate)).objects == duplicate.objects


def test_several_threads_get_the_same_objects(path: Path) -> None:
    informers = kscale.load(path).snapshot().informers
    results: list[list[Any]] = []
    threads = [Thread(target=lambda: results.append(list(informers.claims.values()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(a is b for a, b in zip(results[0], results[-1], strict=True))


def test_a_file_that_was_written_to_is_named(tmp_path: Path) -> None:
    file = tmp_path / "dump.json"
    file.write_bytes(_text(_items()))
    cluster = kscale.load(file)
    snapshot = cluster.snapshot()
    os.truncate(file, 10)
    for read in (
        lambda: cluster.objects,
        lambda: snapshot.informers.claims["team", "o1"],
        lambda: pickle.dumps(snapshot),
    ):
        with pytest.raises(kscale.InputError, match=r"dump\.json: the file was changed after it was read"):
            read()


@pytest.mark.parametrize("opened", [False, True])
def test_a_buffer_that_is_written_to_changes_nothing(opened: bool) -> None:
    data = bytearray(_text(_items()))

    class Opened:
        def read(self) -> bytearray:
            return data

    cluster = kscale.load(Opened() if opened else data)
    snapshot = cluster.snapshot()
    data[:] = bytes(len(data))
    assert snapshot.informers.claims["team", "o5"].spec.volume_name == "v5"
    assert len(cluster.objects["ReplicaSet"]) == 1000
    assert next(iter(cluster.pods())).spec.containers[0].name == "c"


def test_clusters_without_texts_decode_at_once(path: Path) -> None:
    assert not _count_undecoded(kscale.load(path, texts="pending"))


@pytest.mark.parametrize(
    ("number", "field", "value", "message"),
    [
        (1, "spec", {"replicas": -1}, r"items\[1\] \(ReplicaSet team/o0\): spec.replicas: -1 is negative"),
        (3, "spec", {"drivers": "none"}, r"items\[3\] \(CSINode n0\): spec.drivers: expected"),
        (
            2,
            "metadata",
            {"name": "d", "creationTimestamp": "today"},
            r"items\[2\] \(Deployment d\): metadata.creationTimestamp: .today. is",
        ),
    ],
)
def test_bad_objects_are_named_when_they_are_read(number: int, field: str, value: Any, message: str) -> None:
    items = _items()
    items[number][field] = value
    with pytest.raises(kscale.InputError, match=message):
        kscale.load(_text(items))


def test_the_slow_way_says_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each object is the one that decoding it at once returns."""
    late = kscale.load(path)
    monkeypatch.setattr(UndecodedObject, "get", lambda self: _decode(self.text))
    assert _count_undecoded(late)
    early = Cluster(json.loads(path.read_bytes())["items"])
    assert late.objects == early.objects


def _decode(text: memoryview) -> Any:
    """Return what decoding an object at once returns."""
    decoded = decode_plain_object(text)
    assert decoded is not None
    return decoded[1]
