"""What is behind a no of topology spread and inter-pod affinity."""

from __future__ import annotations

from typing import Any

import kscale

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
WEB = {"matchLabels": {"app": "web"}}


def node(name: str, zone: str | None) -> dict[str, Any]:
    labels = {HOST: name} | ({ZONE: zone} if zone else {})
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": amounts},
    }


def pod(name: str, app: str = "web", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "d", "labels": {"app": app}},
        "spec": {"containers": [{"name": "c"}], **spec},
    }


def apart(key: str) -> dict[str, Any]:
    terms = [{"labelSelector": WEB, "topologyKey": key}]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def near(key: str) -> dict[str, Any]:
    terms = [{"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": key}]
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def numbers(pending: dict[str, Any], where: str, *placed: dict[str, Any]) -> dict[str, Any]:
    nodes = [node("n1", "a"), node("n2", "a"), node("n3", "b"), node("n4", None)]
    fit = kscale.fit(kscale.Cluster([*nodes, *placed]).snapshot(), [pending])
    verdict = fit.verdict(f"d/{pending['metadata']['name']}", where)
    (same,) = (v for v in fit.verdicts(f"d/{pending['metadata']['name']}", where) if v.plugin == verdict.plugin)
    assert same.numbers == verdict.numbers
    (found,) = verdict.numbers
    return found


def test_spread_tells_domain_counts_and_minimum() -> None:
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB}
    pending = pod("p", topologySpreadConstraints=[constraint])
    placed = [pod("a", nodeName="n1"), pod("b", nodeName="n2")]
    assert numbers(pending, "n1", *placed) == {
        "constraint": 0, "topologyKey": ZONE, "domain": "a", "matching": 2, "self": 1, "minimum": 0, "maxSkew": 1,
    }  # fmt: skip
    assert numbers(pending, "n4", *placed) == {"constraint": 0, "topologyKey": ZONE, "domain": None}


def test_anti_affinity_names_the_pods() -> None:
    placed = [pod(f"w{i}", nodeName="n1" if i % 2 else "n2") for i in range(7)]
    found = numbers(pod("p", affinity=apart(ZONE)), "n2", *placed, pod("other", "db", nodeName="n1"))
    assert found == {
        "rule": "anti-affinity", "term": 0, "topologyKey": ZONE, "domain": "a", "matching": 7,
        "pods": ["d/w0", "d/w1", "d/w2", "d/w3", "d/w4"],
    }  # fmt: skip


def test_existing_anti_affinity_names_its_carriers() -> None:
    guard = pod("guard", "db", nodeName="n3", affinity=apart(HOST))
    found = numbers(pod("p"), "n3", guard, pod("w", nodeName="n3"))
    assert (found["rule"], found["domain"], found["pods"]) == ("anti-affinity of placed pods", "n3", ["d/guard"])


def test_affinity_tells_where_nobody_is() -> None:
    found = numbers(pod("p", affinity=near(ZONE)), "n3", pod("db", "db", nodeName="n1"))
    assert found == {
        "rule": "affinity", "term": 0, "topologyKey": ZONE, "domain": "b", "matching": 0, "pods": [],
    }  # fmt: skip
