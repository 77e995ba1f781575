"""One snapshot, many threads: the same answers as one after the other."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import kscale
from kscale.errors import ConcurrentUseError


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
        return fit.ok.tolist(), placed.placed, estimated.placed, estimated.reasons

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(ask, news))
    alone = ask(news[0])
    assert all(each == alone for each in together)
    assert kscale.place(pickle.loads(pickle.dumps(snapshot))).placed == kscale.place(snapshot).placed
    classes = snapshot.interner.classes
    assert [each.index for each in classes] == list(range(len(classes)))


@pytest.mark.usefixtures("eager_switching")
@pytest.mark.parametrize("threads", [2, 3, 16])
def test_templates_shared_by_threads_are_estimated_as_by_one(threads: int) -> None:
    def apart(name: str, cpu: int, key: str) -> dict[str, Any]:
        result = pod(name, cpu)
        term = {"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": key}
        result["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        return result

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

    def ask(**estimate_options: Any) -> list[Any]:
        result = kscale.estimate_many(
            snapshot, templates=templates, options=options, cursor=2, fresh_cursor=True, **estimate_options
        )
        return [(e.template.node.metadata.name, e.node_count, e.cursor, e.placed, e.reasons) for e in result]

    alone = ask()
    assert ask(threads=threads) == alone
    one = [kscale.estimate(snapshot, template=t, options=o, cursor=2) for t, o in zip(templates, options, strict=True)]
    assert [(e.template.node.metadata.name, e.node_count, e.cursor, e.placed, e.reasons) for e in one] == alone


def test_failed_estimate_in_a_thread_stops_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from kscale.ca.estimator import binpacking

    templates_seen: list[str] = []

    def fails(*arguments: Any) -> Any:
        templates_seen.append(arguments[2].node.metadata.name)
        raise RuntimeError("in the way")

    monkeypatch.setattr(binpacking, "estimate_in_session", fails)
    with pytest.raises(RuntimeError, match="in the way"):
        kscale.estimate_many(
            kscale.load(pod("p", 1)).snapshot(),
            templates=[node(f"t{n}") for n in range(6)],
            fresh_cursor=True,
            threads=2,
        )
    assert len(templates_seen) <= 2


class PausingPod:
    """An object of a client library, whose data come when they may."""

    def __init__(self, data: dict[str, Any], inside: threading.Event, go_on: threading.Event) -> None:
        self._data, self._inside, self._go_on = data, inside, go_on

    def to_dict(self) -> dict[str, Any]:
        self._inside.set()
        assert self._go_on.wait(20)
        return self._data


CALLS: dict[str, Callable[[kscale.Cluster], object]] = {
    "apply": lambda cluster: cluster.apply(node("m")),
    "apply_pods": lambda cluster: cluster.apply_pods([]),
    "remove": lambda cluster: cluster.remove("Node", "n"),
    "watched": lambda cluster: cluster.watched(b""),
    "replace": lambda cluster: cluster.replace("Pod", []),
    "relist": lambda cluster: cluster.relist("Pod").__enter__(),
    "tidy": lambda cluster: cluster.tidy(),
    "snapshot": lambda cluster: cluster.snapshot(),
    "copy": lambda cluster: cluster.copy(),
    "pickle": pickle.dumps,
    "pod": lambda cluster: cluster.pod("d/p"),
    "pod_index": lambda cluster: cluster.pod_index(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_second_thread_inside_a_cluster_is_an_error(name: str) -> None:
    cluster, inside, go_on = kscale.Cluster([node("n"), pod("p", 100)]), threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(cluster.apply, PausingPod(pod("q", 100), inside, go_on))
        assert inside.wait(20)
        try:
            with pytest.raises(ConcurrentUseError, match="another thread is using this cluster, which has one owner"):
                CALLS[name](cluster)
        finally:
            go_on.set()
        first.result()
    assert cluster.keys("Pod") == ["d/p", "d/q"], "the first call went on, and the second changed nothing"
    assert cluster.keys("Node") == ["n"]


def test_a_cluster_may_be_handed_over_between_calls() -> None:
    cluster = kscale.Cluster([node("n")])
    for number in range(3):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(cluster.apply, pod(f"p{number}", 100)).result()
        cluster.apply(pod(f"q{number}", 100))
    assert pickle.loads(pickle.dumps(cluster)).copy().snapshot().counts["pending"] == 6


@pytest.mark.usefixtures("eager_switching")
def test_writers_that_ignore_the_rule_do_not_damage_the_sums() -> None:
    cluster, refused = kscale.Cluster([node("n")]), [0]

    def write(writer: int) -> None:
        for number in range(150):
            item = pod(f"w{writer}-{number % 10}", 10)
            item["spec"]["nodeName"] = "n"
            item["metadata"]["uid"] = f"{writer}-{number}"
            try:
                cluster.apply(item)
                if number % 3 == 0:
                    cluster.remove("Pod", f"d/w{writer}-{number % 10}")
                cluster.snapshot()
            except ConcurrentUseError:
                refused[0] += 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert refused[0], "the threads met"
    snapshot, fresh = cluster.snapshot(), kscale.Cluster(list(cluster)).snapshot()
    assert snapshot.used["cpu"].tolist() == fresh.used["cpu"].tolist()
    assert len(snapshot.placed) == len(fresh.placed)
