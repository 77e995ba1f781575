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


@pytest.mark.usefixtures("eager_switching")
@pytest.mark.parametrize("threads", [2, 3, 16])
def test_templates_shared_by_threads_are_estimated_as_by_one(threads: int) -> None:
    def apart(name: str, cpu: int, key: str) -> dict[str, Any]:
        found = pod(name, cpu)
        term = {"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": key}
        found["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        return found

    snapshot = kscale.load(
        *(pod(f"p{n}", 37 * n + 1) for n in range(60)),
        *(apart(f"a{n}", 90 * n + 1, "kubernetes.io/hostname") for n in range(20)),
    ).snapshot()
    templates = []
    for n in range(7):
        template = node(f"t{n % 6}")  # two are alike
        template["status"]["allocatable"]["cpu"] = str(2 + n % 6)
        templates.append(template)
    options = [kscale.EstimateOptions(max_nodes=n) for n in range(7)]

    def ask(**given: Any) -> list[Any]:
        found = kscale.estimate_many(
            snapshot, templates=templates, options=options, cursor=2, fresh_cursor=True, **given
        )
        return [(e.template.node.metadata.name, e.node_count, e.cursor, e.placement, e.unscheduled) for e in found]

    alone = ask()
    assert ask(threads=threads) == alone
    one = [kscale.estimate(snapshot, template=t, options=o, cursor=2) for t, o in zip(templates, options, strict=True)]
    assert [(e.template.node.metadata.name, e.node_count, e.cursor, e.placement, e.unscheduled) for e in one] == alone


def test_an_estimate_that_fails_in_another_thread_ends_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    from kscale.ca.estimator import binpacking

    asked: list[str] = []

    def fails(*given: Any) -> Any:
        asked.append(given[2].node.metadata.name)
        raise RuntimeError("in the way")

    monkeypatch.setattr(binpacking, "estimate_groups", fails)
    with pytest.raises(RuntimeError, match="in the way"):
        kscale.estimate_many(
            kscale.load(pod("p", 1)).snapshot(),
            templates=[node(f"t{n}") for n in range(6)],
            fresh_cursor=True,
            threads=2,
        )
    assert len(asked) <= 2
