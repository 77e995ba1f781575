"""One snapshot, many threads: the same answers as one after the other."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import kscale


@pytest.fixture
def eager_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def pod(name: str, cpu: int) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": {"cpu": f"{cpu}m"}}}]
    metadata = {"name": name, "namespace": "d", "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}


def node(name: str) -> dict[str, Any]:
    status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


@pytest.mark.usefixtures("eager_switching")
def test_a_snapshot_may_be_used_from_several_threads() -> None:
    cluster = kscale.load(*(node(f"n{n}") for n in range(3)), *(pod(f"p{n}", 100 * n) for n in range(60)))
    snapshot = cluster.snapshot()
    news = [[pod(f"new-{n}", 37 * n + 1) for n in range(200)] for _ in range(4)]

    def ask(pods: list[dict[str, Any]]) -> tuple[Any, ...]:
        fit = kscale.fit(snapshot, pods=pods)
        placed = kscale.place(snapshot, pods=pods)
        estimated = kscale.estimate(snapshot, pods=pods, template=node("t"))
        return fit.ok.tolist(), placed.placement, estimated.placement, estimated.unscheduled

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(ask, news))
    alone = ask(news[0])
    assert all(each == alone for each in together)
    assert kscale.place(pickle.loads(pickle.dumps(snapshot))).placement == kscale.place(snapshot).placement
    classes = snapshot.interner.classes
    assert [each.index for each in classes] == list(range(len(classes)))
