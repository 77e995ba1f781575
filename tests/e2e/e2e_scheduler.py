"""The duel with kube-scheduler: pods come one by one to drawn clusters, and go where ``kscale.place`` says
(``docs/duel.md``)."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

import kscale
from e2e.control_plane import ControlPlane
from e2e.real_api import MERGE
from e2e.scheduler_duel import API_PATHS, BOUND_CLAIM, cluster, incoming, volume_for

Json = dict[str, Any]
SELECTED: Final = "volume.kubernetes.io/selected-node"
NODES, PLACED, CLAIMS, PODS = 24, 40, 5, 30
_PATIENCE: Final = 60.0

PROFILES: dict[str, Json] = {
    "default": {},
    "packing": {
        "plugins": {"score": {"enabled": [{"name": "NodeResourcesFit", "weight": 5}]}},
        "pluginConfig": [
            {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated", "resources": [
                {"name": "cpu", "weight": 3}, {"name": "memory", "weight": 1}]}}},
            {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 7}},
        ],
    },
    "shapes": {
        "plugins": {"score": {"enabled": [{"name": "VolumeBinding", "weight": 4}]}},
        "pluginConfig": [
            {"name": "VolumeBinding", "args": {"shape": [
                {"utilization": 0, "score": 2}, {"utilization": 40, "score": 10}, {"utilization": 90, "score": 1}]}},
            {"name": "NodeResourcesFit", "args": {"scoringStrategy": {
                "type": "RequestedToCapacityRatio", "resources": [{"name": "cpu", "weight": 1}],
                "requestedToCapacityRatio": {"shape": [
                    {"utilization": 0, "score": 0}, {"utilization": 55, "score": 10}, {"utilization": 100, "score": 3}]}
                }}},
        ],
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("scheduler")) as plane:
        yield plane


class Duel:
    """A cluster as the API server has it, once more in kscale."""

    def __init__(self, plane: ControlPlane, objects: list[Json]) -> None:
        self._plane = plane
        self.cluster = kscale.Cluster()
        for each in objects:
            self.cluster.apply(plane.ask("POST", API_PATHS[each["kind"]], each))

    def create(self, pod: Json) -> None:
        """A pod without a node."""
        self._plane.ask("POST", API_PATHS["Pod"], pod)

    def bound(self, name: str, claim: str) -> str:
        """Where a pod is once it is somewhere; its claim gets what a provisioner would make for it."""
        end = time.monotonic() + _PATIENCE
        while not (on := (pod := self._read("Pod", name))["spec"].get("nodeName", "")):
            if claim:
                self._provision(claim)
            assert time.monotonic() < end, pod["status"]
            time.sleep(0.05)
        self.cluster.apply(pod)
        if claim:
            self.cluster.apply(self._read("PersistentVolume", f"pv-{claim}"))
            self.cluster.apply(self._read("PersistentVolumeClaim", claim))
        return str(on)

    def _read(self, kind: str, name: str) -> Json:
        result: Json = self._plane.ask("GET", f"{API_PATHS[kind]}/{name}")
        return result

    def _provision(self, name: str) -> None:
        claim = self._read("PersistentVolumeClaim", name)
        node = (claim["metadata"].get("annotations") or {}).get(SELECTED)
        if not node or claim["spec"].get("volumeName"):
            return
        volume = self._plane.ask("POST", API_PATHS["PersistentVolume"], volume_for(claim, node))
        path = f"{API_PATHS['PersistentVolumeClaim']}/{name}"
        body = {"metadata": {"annotations": BOUND_CLAIM}, "spec": {"volumeName": volume["metadata"]["name"]}}
        for where, patch in ((path, body), (f"{path}/status", {"status": {"phase": "Bound"}})):
            self._plane.ask("PATCH", where, patch, content_type=MERGE)


def emptied(plane: ControlPlane) -> None:
    """Nothing of an earlier case is left."""
    now = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    for path in reversed(API_PATHS.values()):
        for each in plane.ask("GET", path)["items"] or ():
            at = f"{path}/{each['metadata']['name']}"
            if each["metadata"].get("finalizers"):
                plane.ask("PATCH", at, {"metadata": {"finalizers": None}}, content_type=MERGE)
            if each["metadata"]["name"] != "kubernetes":  # the API server's own service
                plane.ask("DELETE", at, now)


@pytest.mark.parametrize(("profile", "seed"), [("default", 1), ("default", 2), ("packing", 3), ("shapes", 4)])
def test_pods_go_where_kube_scheduler_puts_them(plane: ControlPlane, profile: str, seed: int) -> None:
    emptied(plane)
    draw = random.Random(seed)
    duel = Duel(plane, cluster(draw, NODES, PLACED, CLAIMS))
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(plane.kubeconfig)},
        "profiles": [{"schedulerName": "default-scheduler", **PROFILES[profile]}],
    }
    file = plane.directory / f"{profile}.json"
    file.write_text(json.dumps(configuration))
    scores = kscale.score_options(configuration)
    plane.start_scheduler(f"--config={file}")
    differences: list[str] = []
    telling: set[str] = set()
    compared = on_the_first = 0
    try:
        for i in range(PODS):
            claim = f"data-{i // 6}" if i % 6 == 3 else ""
            pod = incoming(draw, f"new-{seed}-{i}", claim)
            name = pod["metadata"]["name"]
            snapshot = duel.cluster.snapshot()
            node_scores = kscale.node_scores(snapshot, pod, scores=scores)
            if not node_scores.total or node_scores.total.count(max(node_scores.total)) > 1:
                continue  # it would wait, or chance would decide
            (expected,) = kscale.place(snapshot, [pod], scores=scores).placed.values()
            duel.create(pod)
            bound_node = duel.bound(name, claim)
            compared += 1
            on_the_first += expected == node_scores.nodes[0]
            telling |= {plugin for plugin, each in node_scores.by_plugin.items() if len(set(each)) > 1}
            if bound_node != expected:
                there = {
                    plugin: dict(zip(node_scores.nodes, each, strict=True))
                    for plugin, each in node_scores.by_plugin.items()
                }
                parts = [f"{plugin}: {each[expected]} and {each.get(bound_node)}" for plugin, each in there.items()]
                differences.append(f"{name}: {expected} here, {bound_node} there; {'; '.join(parts)}")
    finally:
        plane.end("scheduler")
    print(f"{profile} {seed}: {compared} pods of {PODS} compared, {on_the_first} on the first node that takes them")
    assert differences == []
    assert compared >= PODS // 2
    assert on_the_first < compared // 2
    assert telling == {plugin for plugin, weight in scores.weights.items() if weight}
