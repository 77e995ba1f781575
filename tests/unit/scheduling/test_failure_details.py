"""What is behind a no of plug-ins that look at other pods, volumes and devices."""

from __future__ import annotations

from typing import Any

import kscale

Json = dict[str, Any]

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


def separate(key: str) -> dict[str, Any]:
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
    (result,) = verdict.numbers
    return result


def test_spread_details_have_domain_counts_and_minimum() -> None:
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB}
    pending = pod("p", topologySpreadConstraints=[constraint])
    placed = [pod("a", nodeName="n1"), pod("b", nodeName="n2")]
    assert numbers(pending, "n1", *placed) == {
        "constraint": 0, "topologyKey": ZONE, "domain": "a", "matching": 2, "self": 1, "minimum": 0, "maxSkew": 1,
    }  # fmt: skip
    assert numbers(pending, "n4", *placed) == {"constraint": 0, "topologyKey": ZONE, "domain": None}


def test_anti_affinity_names_the_pods() -> None:
    placed = [pod(f"w{i}", nodeName="n1" if i % 2 else "n2") for i in range(7)]
    result = numbers(pod("p", affinity=separate(ZONE)), "n2", *placed, pod("other", "db", nodeName="n1"))
    assert result == {
        "rule": "anti-affinity", "term": 0, "topologyKey": ZONE, "domain": "a", "matching": 7,
        "pods": ["d/w0", "d/w1", "d/w2", "d/w3", "d/w4"],
    }  # fmt: skip


def test_existing_anti_affinity_names_its_carriers() -> None:
    guard = pod("guard", "db", nodeName="n3", affinity=separate(HOST))
    result = numbers(pod("p"), "n3", guard, pod("w", nodeName="n3"))
    assert (result["rule"], result["domain"], result["pods"]) == ("anti-affinity of placed pods", "n3", ["d/guard"])


def test_of_several_carriers_the_first_in_the_snapshot_is_named_whatever_the_cluster_held_before() -> None:
    guards = [
        pod("a", "db", nodeName="n3", affinity=separate(HOST)),
        pod("b", "db", nodeName="n3", affinity=separate(ZONE)),
    ]
    cluster = kscale.Cluster([node("n3", "b"), *guards[::-1]])
    cluster.snapshot()
    cluster.remove(guards[1])
    cluster.apply(guards[1])
    assert cluster.snapshot().pods == ("d/a", "d/b")
    for known in (cluster, kscale.Cluster(list(cluster))):
        (result,) = kscale.fit(known.snapshot(), [pod("p")]).verdict("d/p", "n3").numbers
        assert (result["topologyKey"], result["term"], result["pods"]) == (HOST, 0, ["d/a"])


def test_affinity_details_name_the_empty_domain() -> None:
    result = numbers(pod("p", affinity=near(ZONE)), "n3", pod("db", "db", nodeName="n1"))
    assert result == {
        "rule": "affinity", "term": 0, "topologyKey": ZONE, "domain": "b", "matching": 0, "pods": [],
    }  # fmt: skip


# -- ports, volumes and devices ----------------------------------------------------------------------------------------


def simple(name: str, node: str = "", **spec: Any) -> Json:
    metadata = {"name": name, "namespace": "default", "uid": name}
    container = {"name": "c", **spec.pop("container", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], "nodeName": node, **spec},
    }


def one_node() -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10"}},
    }


def pvc(name: str, mode: str) -> list[Json]:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name, "namespace": "default", "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {"accessModes": [mode], "volumeName": f"pv-{name}"},
        "status": {"phase": "Bound"},
    }  # fmt: skip
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pv-{name}"},
        "spec": {"csi": {"driver": "disk.example.com", "volumeHandle": name}},
    }
    return [claim, volume]


def uses(*claims: str) -> list[Json]:
    return [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": name}} for i, name in enumerate(claims)]


def numbers_of(objects: list[Json], new_pod: Json, plugin: str, **options: bool) -> tuple[Json, ...]:
    snapshot = kscale.Cluster([one_node(), *objects]).snapshot(**options)
    result = kscale.fit(snapshot, [new_pod])
    (verdict,) = [entry for entry in result.verdicts("default/new", "n") if entry.plugin == plugin]
    return verdict.numbers


def test_port_conflict_names_the_pod() -> None:
    ports = {"ports": [{"hostPort": 80}, {"hostPort": 81, "hostIP": "10.0.0.1"}]}
    other = {"ports": [{"hostPort": 81, "hostIP": "10.0.0.2"}]}
    placed = [simple("web", "n", container={"ports": [{"hostPort": 80, "hostIP": "10.0.0.9"}]})]
    placed.append(simple("other", "n", container=other))
    assert numbers_of(placed, simple("new", container=ports), "NodePorts") == (
        {"port": "TCP 0.0.0.0:80", "pods": ["default/web"]},
    )


def test_disk_conflict_names_the_pod() -> None:
    disk = {"name": "d", "gcePersistentDisk": {"pdName": "shared"}}
    placed = [simple("holder", "n", volumes=[disk]), simple("else", "n")]
    assert numbers_of(placed, simple("new", volumes=[disk]), "VolumeRestrictions") == (
        {"disk": "gce/shared", "pods": ["default/holder"]},
    )


def test_claim_conflict_names_the_pod() -> None:
    objects = [*pvc("only", "ReadWriteOncePod"), simple("holder", "n", volumes=uses("only"))]
    assert numbers_of(objects, simple("new", volumes=uses("only")), "VolumeRestrictions") == (
        {"claim": "default/only", "pods": ["default/holder"]},
    )


def test_volume_limit_details_name_the_driver() -> None:
    csi_node = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": "n"},
        "spec": {"drivers": [{"name": "disk.example.com", "nodeID": "n", "allocatable": {"count": 1}}]},
    }
    objects = [csi_node, *pvc("a", "ReadWriteOnce"), *pvc("b", "ReadWriteOnce"), simple("x", "n", volumes=uses("a"))]
    assert numbers_of(objects, simple("new", volumes=uses("b")), "NodeVolumeLimits", csi=True) == (
        {"driver": "disk.example.com", "limit": 1},
    )


def test_which_devices_are_wanted() -> None:
    api = "resource.k8s.io/v1"
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    taint = {"taints": [{"key": "broken", "effect": "NoSchedule"}]}
    devices = [{"name": "d0"}, {"name": "d1", **taint}]
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2}}
    objects = [
        {"apiVersion": api, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}},
        {
            "apiVersion": api, "kind": "ResourceSlice", "metadata": {"name": "s"},
            "spec": {"driver": "d", "nodeName": "n", "pool": pool, "devices": devices},
        },
        {
            "apiVersion": api, "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "default"},
            "spec": {"devices": {"requests": [request]}},
        },
    ]  # fmt: skip
    new_pod = simple("new", resourceClaims=[{"name": "g", "resourceClaimName": "c"}])
    numbers = {"claim": "default/c", "request": "r", "deviceClass": "gpu", "wanted": 2, "free": 1, "devices": 2}
    assert numbers_of(objects, new_pod, "DynamicResources", dra=True) == (numbers,)
    objects[0]["spec"] = {"extendedResourceName": "example.com/gpu"}
    requests = [{"resources": {"requests": {"example.com/gpu": amount}}} for amount in ("1", "2")]
    sidecar = {"name": "s", "restartPolicy": "Always", **requests[1]}
    new_pod = simple("new", containers=[{"name": "c", **requests[0]}], initContainers=[sidecar])
    extended = {"claim": "extended resources", "deviceClass": "gpu", "free": 1, "devices": 2}
    assert numbers_of(objects, new_pod, "DynamicResources", dra=True) == (
        {**extended, "request": "container-0-request-0", "wanted": 2},
        {**extended, "request": "container-1-request-0", "wanted": 1},
    )
