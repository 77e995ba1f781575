"""The generated cluster: exact counts, the same every time, and everything that runs runs legally."""

from __future__ import annotations

import io
import json
from collections import Counter, defaultdict
from uuid import UUID

import pytest

from kscale import InputError, Quantity
from kscale.capacity.generate import generate
from kscale.capacity.generate.nodes import SplitMix64


def written(cluster) -> bytes:
    file = io.BytesIO()
    assert cluster.write(file) == file.tell()
    return file.getvalue()


@pytest.fixture(scope="module", params=[(40, 600, 0), (9, 260, 3), (3, 20, 1), (1, 200, 5)], ids=str)
def cluster(request):
    nodes, pods, seed = request.param
    return generate(nodes, pods, seed=seed, lean=True)


@pytest.fixture(scope="module")
def kinds(cluster) -> dict[str, list[dict]]:
    result: dict[str, list[dict]] = defaultdict(list)
    for item in cluster.objects():
        result[item["kind"]].append(item)
    return result


def test_the_random_numbers_are_fixed() -> None:
    rng = SplitMix64(1234567)
    assert [rng.bits() for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    for seed in range(20):
        endings = list(SplitMix64(seed).suffixes(5000))
        assert len(set(endings)) == 5000
        assert {len(ending) for ending in endings} == {5}


def test_counts_are_exact(cluster, kinds) -> None:
    pods = kinds["Pod"]
    pending = [pod for pod in pods if "nodeName" not in pod["spec"]]
    counts = cluster.counts
    assert (len(kinds["Node"]), len(pods), len(pending)) == (
        counts["nodes"],
        counts["running"] + counts["pending"],
        counts["pending"],
    )
    assert len(pending) == len(pods) // 10


def test_names_and_uids_are_unique(kinds) -> None:
    for objects in kinds.values():
        names = Counter((o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects)
        assert max(names.values()) == 1
    uids = Counter(o["metadata"]["uid"] for objects in kinds.values() for o in objects if "uid" in o["metadata"])
    assert max(uids.values()) == 1
    assert all(str(UUID(uid, version=4)) == uid for uid in uids)


def test_requests_fit(kinds) -> None:
    free = {
        node["metadata"]["name"]: {r: Quantity(q).milli_value() for r, q in node["status"]["allocatable"].items()}
        for node in kinds["Node"]
    }
    ports = set()
    for pod in kinds["Pod"]:
        if "nodeName" not in pod["spec"]:
            continue
        node = pod["spec"]["nodeName"]
        free[node]["pods"] -= 1000
        for container in pod["spec"]["containers"]:
            for resource, amount in container["resources"]["requests"].items():
                free[node][resource] -= Quantity(amount).milli_value()
            for port in container.get("ports", []):
                assert (node, port["hostPort"]) not in ports
                ports.add((node, port["hostPort"]))
    assert min(min(room.values()) for room in free.values()) >= 0


def _selected(pod: dict, node: dict) -> bool:
    labels = node["metadata"]["labels"]
    if any(labels.get(key) != value for key, value in pod["spec"].get("nodeSelector", {}).items()):
        return False
    required = (
        pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    )
    if required is None:
        return True
    return any(
        all(labels.get(e["key"]) in e["values"] for e in term.get("matchExpressions", []))
        and all(node["metadata"]["name"] in e["values"] for e in term.get("matchFields", []))
        for term in required["nodeSelectorTerms"]
    )


def _tolerated(pod: dict, node: dict) -> bool:
    return all(
        any(t.get("key", taint["key"]) == taint["key"] for t in pod["spec"]["tolerations"])
        for taint in node["spec"].get("taints", [])
    )


def test_selectors_and_taints_hold(kinds) -> None:
    nodes = {node["metadata"]["name"]: node for node in kinds["Node"]}
    for pod in kinds["Pod"]:
        if "nodeName" in pod["spec"]:
            node = nodes[pod["spec"]["nodeName"]]
            assert _selected(pod, node)
            assert _tolerated(pod, node)


def _by_app(pods: list[dict]) -> dict[tuple[str, str], list[dict]]:
    apps = defaultdict(list)
    for pod in pods:
        apps[pod["metadata"]["namespace"], pod["metadata"]["labels"]["app.kubernetes.io/name"]].append(pod)
    return apps


def test_spread_and_anti_affinity_hold(kinds) -> None:
    nodes = {node["metadata"]["name"]: node for node in kinds["Node"]}
    zone_label = "topology.kubernetes.io/zone"
    for pods in _by_app(kinds["Pod"]).values():
        running = [pod for pod in pods if "nodeName" in pod["spec"]]
        if not running:
            continue
        hosts = Counter(pod["spec"]["nodeName"] for pod in running)
        anti = running[0]["spec"].get("affinity", {}).get("podAntiAffinity", {})
        if "requiredDuringSchedulingIgnoredDuringExecution" in anti:
            assert max(hosts.values()) == 1
        for constraint in running[0]["spec"].get("topologySpreadConstraints", []):
            if constraint["whenUnsatisfiable"] == "DoNotSchedule":
                domains = {n["metadata"]["labels"][zone_label] for n in nodes.values() if _selected(running[0], n)}
                zones = Counter(nodes[host]["metadata"]["labels"][zone_label] for host in hosts.elements())
                assert max(zones.values()) - min(zones[domain] for domain in domains) <= 1


def test_claims_are_bound_in_the_zone_of_the_pod(kinds) -> None:
    nodes = {node["metadata"]["name"]: node for node in kinds["Node"]}
    volumes = {volume["metadata"]["name"]: volume for volume in kinds["PersistentVolume"]}
    claims = {(c["metadata"]["namespace"], c["metadata"]["name"]): c for c in kinds["PersistentVolumeClaim"]}
    used = 0
    for pod in kinds["Pod"]:
        for volume in pod["spec"].get("volumes", []):
            if "persistentVolumeClaim" in volume:
                claim = claims[pod["metadata"]["namespace"], volume["persistentVolumeClaim"]["claimName"]]
                term = volumes[claim["spec"]["volumeName"]]["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]
                zone = nodes[pod["spec"]["nodeName"]]["metadata"]["labels"]["topology.kubernetes.io/zone"]
                assert term["matchExpressions"][0]["values"] == [zone]
                used += 1
    assert used == len(claims) == len(volumes)


def test_controllers_count_their_pods(kinds) -> None:
    owned = Counter(pod["metadata"]["ownerReferences"][0]["uid"] for pod in kinds["Pod"])
    for kind in ("ReplicaSet", "StatefulSet"):
        for controller in kinds[kind]:
            assert controller["spec"]["replicas"] == owned[controller["metadata"]["uid"]]
    for claim in kinds["PersistentVolumeClaim"]:
        annotations = claim["metadata"]["annotations"]
        assert claim["status"]["phase"] == "Bound"
        assert {f"pv.kubernetes.io/{what}" for what in ("bind-completed", "bound-by-controller")} <= annotations.keys()
    for daemon in kinds["DaemonSet"]:
        assert daemon["status"]["numberMisscheduled"] == 0
        assert owned[daemon["metadata"]["uid"]] == daemon["status"]["desiredNumberScheduled"] == len(kinds["Node"])


def test_large_cluster_has_realistic_shares() -> None:
    cluster = generate(40, 600, seed=0, lean=True)
    pods = [item for item in cluster.objects() if item["kind"] == "Pod"]
    system = sum(pod["metadata"]["namespace"] in {"kube-system", "monitoring"} for pod in pods)
    assert 0.12 <= system / len(pods) <= 0.18
    messages = " ".join(
        pod["status"]["conditions"][0]["message"] for pod in pods if pod["status"]["phase"] == "Pending"
    )
    for reason in ("Insufficient cpu", "Insufficient memory", "untolerated taint", "node affinity/selector", "waiting"):
        assert reason in messages


def test_full_pods_are_of_realistic_size() -> None:
    full, lean = (generate(20, 300, seed=2, lean=lean) for lean in (False, True))
    sizes = [
        [len(text) for text in c.texts() if text.startswith('{"apiVersion":"v1","kind":"Pod"')] for c in (full, lean)
    ]
    assert 5000 <= sum(sizes[0]) / 300 <= 7500
    assert 1200 <= sum(sizes[1]) / 300 <= 1800
    pod = next(item for item in full.objects() if item["kind"] == "Pod")
    assert pod["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:containers"]
    assert full.counts == lean.counts


def test_the_same_arguments_give_the_same_bytes() -> None:
    assert written(generate(12, 150, seed=4)) == written(generate(12, 150, seed=4))
    assert written(generate(12, 150, seed=4)) != written(generate(12, 150, seed=5))


def test_the_file_is_one_list() -> None:
    cluster = generate(3, 40, seed=1)
    document = json.loads(written(cluster))
    assert document["kind"] == "List"
    assert document["items"] == list(cluster.objects())


def test_pending_can_be_chosen() -> None:
    assert generate(10, 100, pending=0).counts["pending"] == 0
    assert generate(10, 100, pending=37).counts["pending"] == 37
    assert generate(8, 240, pending=240).counts == {"nodes": 8, "running": 0, "pending": 240, "workloads": 30}
    assert generate(2, 0).counts == {"nodes": 2, "running": 0, "pending": 0, "workloads": 0}


@pytest.mark.parametrize(
    "arguments",
    [
        {"nodes": 0, "pods": 1},
        {"nodes": 1, "pods": -1},
        {"nodes": 1, "pods": 1, "pending": 2},
        {"nodes": 1, "pods": 900},
    ],
)
def test_impossible_arguments_are_refused(arguments) -> None:
    with pytest.raises(InputError, match="generate: "):
        generate(**arguments)
