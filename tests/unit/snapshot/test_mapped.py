"""A file that changes after it was read is named; it does not end the process, and nobody reads what is not meant."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import kscale
from kscale.objects.pod_equivalence import Digester
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot
from kscale.snapshot.text import pod_reader

COUNT = 400


def dump(name: str = "p") -> bytes:
    owner = [{"kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}]
    items: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}{i}", "namespace": "d", "uid": f"u{i}", "ownerReferences": owner},
            "spec": {"containers": [{"name": "c", "image": f"i{i}"}]},
        }
        for i in range(COUNT)
    ]
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items})


def shrink(path: Path) -> None:
    os.truncate(path, 10)


def write(path: Path) -> None:
    content = b"X" * path.stat().st_size
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))  # whatever the clock's grain


def replace(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(b"{}")
    other.replace(path)


READS: dict[str, Callable[[Cluster, Snapshot], Any]] = {
    "a pod": lambda cluster, snapshot: snapshot.pod("d/p399"),
    "all pods": lambda cluster, snapshot: list(cluster.pods()),
    "UIDs": lambda cluster, snapshot: list(snapshot.pending_records.uids()),
    "shapes": lambda cluster, snapshot: kscale.estimate(snapshot, template={"metadata": {"name": "t"}}),
    "pickling": lambda cluster, snapshot: pickle.dumps(snapshot),
}


@pytest.mark.parametrize("change", [shrink, write])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_file_that_was_written_to_is_named(tmp_path: Path, change: Callable[[Path], None], read: Any) -> None:
    path = tmp_path / "dump.json"
    path.write_bytes(dump())
    cluster = kscale.load(path)
    snapshot = cluster.snapshot()
    record = snapshot.record("d/p1")
    change(path)
    with pytest.raises(kscale.InputError, match=r"dump\.json: the file was changed after it was read: load it again"):
        read(cluster, snapshot)
    for late in (lambda: record.pod, lambda: record.digest(Digester()), lambda: pickle.dumps(record)):
        with pytest.raises(kscale.InputError, match="was changed"):
            late()
    path.write_bytes(dump("q"))
    assert kscale.load(path).snapshot().pod("d/q399").name == "q399"


@pytest.mark.parametrize("change", [replace, Path.unlink])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_file_that_was_replaced_or_deleted_is_still_there(
    tmp_path: Path, change: Callable[[Path], None], read: Any
) -> None:
    path = tmp_path / "dump.json"
    path.write_bytes(dump())
    cluster = kscale.load(path)
    snapshot = cluster.snapshot()
    change(path)
    read(cluster, snapshot)
    assert snapshot.pod("d/p399").spec.containers[0].image == "i399"


def test_pods_that_lie_alone_do_not_need_their_file(tmp_path: Path) -> None:
    path = tmp_path / "pod.json"
    path.write_bytes(b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"d"},"spec":{}}')
    snapshot = kscale.load(path).snapshot()
    os.truncate(path, 0)
    assert snapshot.record("d/a").digest(Digester())
    assert pickle.loads(pickle.dumps(snapshot)).pod("d/a").name == "a"


def test_the_descriptor_goes_with_the_cluster(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_bytes(dump())
    kscale.load(path)
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    for _ in range(5):
        kscale.load(path)
    assert not before or len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux tells what is in memory")
def test_pages_of_a_file_that_was_read_leave_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_reader, "_PART", 20)
    path = tmp_path / "dump.json"
    path.write_bytes(dump().replace(b'"image"', b" " * 20_000 + b'"image"'))
    cluster = kscale.load(path)
    mapped = Path("/proc/self/smaps").read_text().partition(str(path))[2]
    resident = int(mapped.partition("Rss:")[2].split()[0])  # KiB
    assert resident < path.stat().st_size // 1024 // 4
    assert cluster.pod("d/p0").spec.containers[0].image == "i0"
