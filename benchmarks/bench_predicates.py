"""Inter-pod affinity, topology spread and the static fit matrix at scale. Every benchmark asserts its answer.

Conditions as in bench_packing.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from bench_packing import pod, template
from floor import floor
from rounds import WHEN, timed

import kscale
from kscale.objects.api.core import Pod
from kscale.objects.decode import from_dict, to_dict

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def term(app: str, key: str) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}


def constraint(app: str, key: str) -> dict[str, Any]:
    return {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": app}}}  # fmt: skip


def labelled(base: Pod, app: str, *, node: str = "") -> Pod:
    data = to_dict(base)
    data["metadata"]["labels"] = {"app": app}
    if node:
        data["spec"]["nodeName"] = node
    return from_dict(data, Pod)


def anti(app: str, key: str = HOST) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term(app, key)]}}}


def near(app: str, key: str) -> dict[str, Any]:
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term(app, key)]}}}


def test_anti_affinity_probes_on_5001_nodes(benchmark: Any) -> None:
    """Hostname anti-affinity on 5,001 nodes with 10 pods each, of which only the last fits: another pod is asked about
    in every round, none was asked about before. Target: <= 20 us."""
    nodes = [template("4", "8Gi", 110, name=f"n{i}").node for i in range(5_001)]
    other, same = pod("other", "100m", "64Mi"), pod("same", "100m", "64Mi")
    placed = []
    for i in range(5_001):
        for j in range(10):
            blocks = j == 0 and i < 5_000
            one = labelled(same if blocks else other, "web" if blocks else "other", node=f"n{i}")
            one.metadata.name = f"p{i}-{j}"
            placed.append(one)
    probes = 1_000
    pending = [labelled(pod(f"wanted-{i}", f"{100 + i}m", "64Mi", **anti("web")), "web") for i in range(probes)]
    fork = kscale.fork(kscale.Cluster([*nodes, *placed, *pending]).snapshot())
    questions = iter([f"default/wanted-{i}" for i in range(probes)])

    def probe() -> tuple[tuple[str], dict[str, Any]]:
        fork.engine.cursor = 0
        return (next(questions),), {}

    def ask(pod: str) -> int | None:
        fork.fork()
        result = fork.schedule_anywhere(pod)
        fork.revert()
        return result

    result = benchmark.pedantic(ask, setup=probe, rounds=probes - 1)
    assert fork.node_name(result) == "n5000"


def test_anti_affinity_surge(benchmark: Any) -> None:
    """5,000 pods with required hostname anti-affinity in 50 apps on 5,000 nodes. Target: <= 0.1 s."""
    nodes = [template("4", "8Gi", 110, name=f"n{i}").node for i in range(5_000)]
    pods = []
    for app in range(50):
        base = labelled(pod("p", "500m", "64Mi", owner=f"rs-{app}", **anti(f"app-{app}")), f"app-{app}")
        for i in range(100):
            data = to_dict(base)
            data["metadata"] |= {"name": f"p-{app}-{i}", "uid": f"u-{app}-{i}"}
            pods.append(from_dict(data, Pod))
    snapshot = kscale.Cluster([*nodes, *pods]).snapshot()
    result = benchmark.pedantic(kscale.place, (snapshot,), rounds=3)
    assert len(result.placed) == 5_000
    for app in range(50):
        used = [node for name, node in result.placed.items() if name.startswith(f"default/p-{app}-")]
        assert len(set(used)) == 100


def test_five_kinds_on_400_templates(benchmark: Any) -> None:
    """20,000 pods in five equal kinds x 400 templates, each from a fresh cursor, cap 5,000 nodes. Target: <= 2 s."""
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("plain", {}),
        ("zone-spread", {"topologySpreadConstraints": [constraint("zone-spread", ZONE)]}),
        ("host-spread", {"topologySpreadConstraints": [constraint("host-spread", HOST)]}),
        ("zone-near", near("zone-near", ZONE)),
        ("host-apart", anti("host-apart")),
    ]
    pods = []
    for app, spec in kinds:
        base = labelled(pod("p", "100m", "128Mi", owner=f"rs-{app}", **spec), app)
        for i in range(4_000):
            data = to_dict(base)
            data["metadata"] |= {"name": f"{app}-{i}", "uid": f"u-{app}-{i}"}
            pods.append(from_dict(data, Pod))
    templates = [
        template(f"{2 + 2 * (i % 20)}", f"{8 + 4 * (i % 25)}Gi", 110, name=f"t{i}", **{ZONE: f"z{i % 4}"})
        for i in range(400)
    ]
    snapshot = kscale.Cluster(pods).snapshot()
    options = [kscale.EstimateOptions(max_nodes=5_000)] * len(templates)

    def run() -> list[Any]:
        return kscale.estimate_many(snapshot, templates=templates, options=options, fresh_cursor=True)

    results = benchmark.pedantic(run, rounds=2, warmup_rounds=1)
    single = kscale.estimate(snapshot, template=templates[7], options=options[7])
    assert results[7].placement == single.placement
    assert all(result.node_count >= 4_000 for result in results)  # one host-apart pod a node


@WHEN
def test_static_fit_matrix(benchmark: Any, when: str) -> None:
    """The static fit matrix of 20,000 pods x 15,000 nodes, by classes: ``kscale.fit`` of pending pods. ``cold`` and
    ``first`` classify them, too. Target, ``warm``: <= 0.1 s."""
    nodes = []
    for i in range(15_000):
        node = template("4", "8Gi", 110, name=f"n{i}", **{ZONE: f"z{i % 3}", "pool": f"p{i % 20}"}).node
        nodes.append(node)
    classes = [pod(f"c{k}", f"{100 + k}m", "64Mi", nodeSelector={"pool": f"p{k % 20}"}) for k in range(150)]
    pods = []
    for i in range(20_000):
        data = to_dict(classes[i % 150])
        data["metadata"] |= {"name": f"x{i}", "uid": f"x{i}"}
        pods.append(from_dict(data, Pod))

    def matrix(snapshot: kscale.Snapshot) -> tuple[kscale.FitResult, Any]:
        fit = kscale.fit(snapshot)
        return fit, fit.class_ok

    fit, ok = timed(benchmark, matrix, when=when, cluster=kscale.Cluster([*nodes, *pods]))
    assert ok.shape == (150, 15_000)
    assert (ok.sum(axis=1) == 750).all()
    assert np.array_equal(fit.ok[150], fit.ok[0])
    floor(benchmark, ok.nbytes * 5)  # codes of two bytes read and written, the answer written


def test_fit_of_distinct_pods(benchmark: Any) -> None:
    """12,000 pods, no two alike in what they ask for, x 1,000 nodes: ``kscale.fit`` of pending pods on a new cluster,
    and the first plug-in that says no of each pair. Target: <= 20 us a pod and <= 5 ns a pair."""
    nodes = [
        template("16", "64Gi", 110, name=f"n{i}", **{ZONE: f"z{i % 3}", "pool": f"p{i % 10}"}).node
        for i in range(1_000)
    ]
    pods = []
    for i in range(12_000):
        spec = {"nodeSelector": {"pool": f"p{i % 10}"}} if i % 3 == 0 else {}
        pods.append(labelled(pod(f"p{i}", f"{100 + i % 3_000}m", f"{64 + i // 100}Mi", **spec), f"a{i}"))

    def new() -> tuple[tuple[kscale.Snapshot], dict[str, Any]]:
        return (kscale.Cluster([*nodes, *pods]).snapshot(),), {}

    def codes(snapshot: kscale.Snapshot) -> Any:
        return kscale.fit(snapshot).codes

    result = benchmark.pedantic(codes, setup=new, rounds=2)
    assert result.shape == (12_000, 1_000)
    assert (result == 0).sum() == 8_000 * 1_000 + 4_000 * 100


def test_placing_by_scores(benchmark: Any) -> None:
    """8,000 pods in five kinds on 1,200 nodes as kube-scheduler places them, every node compared: filters, six Score
    plug-ins and the choice, one pod after the other."""
    nodes = [template("32", "128Gi", 110, name=f"n{i}", **{ZONE: f"z{i % 4}"}).node for i in range(1_200)]
    soft = {**constraint("spread", ZONE), "whenUnsatisfiable": "ScheduleAnyway"}
    kinds: list[dict[str, Any]] = [{}, {}, {}, {"topologySpreadConstraints": [soft]}, near("near", ZONE)]
    pods = []
    for i in range(8_000):
        kind = i % 5
        app = ("a", "b", "c", "spread", "near")[kind]
        pods.append(labelled(pod(f"p{i}", f"{100 + 50 * kind}m", "256Mi", owner=f"rs-{app}", **kinds[kind]), app))
    snapshot = kscale.Cluster([*nodes, *pods]).snapshot()
    every = kscale.ScoreOptions(percentage_of_nodes_to_score=100)
    result = benchmark.pedantic(kscale.place, (snapshot,), {"scores": every}, rounds=2)
    assert len(result.placed) == 8_000
    zones = [sum(int(node[1:]) % 4 == z for p, node in result.placed.items() if int(p[9:]) % 5 == 3) for z in range(4)]
    assert max(zones) - min(zones) <= 1


def dra_world(nodes: int, pods: int, **claim: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(nodes with eight devices each, their slices and class, claims; pods with a claim of their own each)."""
    api, driver = "resource.k8s.io/v1", "gpu.example.com"
    selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
    objects: list[dict[str, Any]] = [
        {"apiVersion": api, "kind": "DeviceClass", "metadata": {"name": driver}, "spec": {"selectors": [selector]}}
    ]
    for i in range(nodes):
        objects.append(to_dict(template("64", "256Gi", 110, name=f"n{i}").node))
        devices = [{"name": f"dev{k}", "attributes": {"numa": {"int": k % 2}}} for k in range(8)]
        pool = {"name": f"n{i}", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": f"n{i}", "pool": pool, "devices": devices}
        objects.append({"apiVersion": api, "kind": "ResourceSlice", "metadata": {"name": f"s{i}"}, "spec": spec})
    request = {"name": "gpus", "exactly": {"deviceClassName": driver, "count": 2}}
    created = []
    for i in range(pods):
        data = to_dict(pod(f"train-{i}", "1", "1Gi"))
        data["metadata"] |= {"uid": f"uid-{i}"}
        data["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "pair"}]
        data["status"] = {"resourceClaimStatuses": [{"name": "gpus", "resourceClaimName": f"train-{i}"}]}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": f"train-{i}", "uid": f"uid-{i}", "controller": True}
        metadata = {"name": f"train-{i}", "namespace": "default", "ownerReferences": [owner]}
        spec = {"devices": {"requests": [request], **claim}}
        objects.append({"apiVersion": api, "kind": "ResourceClaim", "metadata": metadata, "spec": spec})
        created.append(data)
    return objects, created


def test_devices_counted(benchmark: Any) -> None:
    """2,000 pods that want two of any eight devices, on 400 nodes: devices are counted in the native loop."""
    objects, pods = dra_world(400, 2_000)
    snapshot = kscale.Cluster([*objects, *pods]).snapshot(dra=True)
    result = benchmark.pedantic(kscale.place, (snapshot,), rounds=3, warmup_rounds=1)
    assert len(result.placed) == 1_600
    assert result.unmodelled == []


def test_devices_allocated_in_the_packing_loop(benchmark: Any) -> None:
    """The same, both devices of one NUMA node: the ledger runs the allocator for every pod, inside the packing loop."""
    same = {"constraints": [{"matchAttribute": "gpu.example.com/numa"}]}
    objects, pods = dra_world(400, 2_000, **same)
    snapshot = kscale.Cluster([*objects, *pods]).snapshot(dra=True)
    result = benchmark.pedantic(kscale.place, (snapshot,), rounds=3, warmup_rounds=1)
    assert len(result.placed) == 1_600
    assert result.unmodelled == []
    claims = result.snapshot_after.informers.resource_claims
    for pod_name in result.placed:
        allocation = claims["default", pod_name.removeprefix("default/")].status.allocation
        assert allocation is not None
        devices = [each.device for each in allocation.devices.results]
        assert devices in (["dev0", "dev2"], ["dev1", "dev3"], ["dev4", "dev6"], ["dev5", "dev7"])
