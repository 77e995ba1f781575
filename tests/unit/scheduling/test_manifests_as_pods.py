"""fit, place, estimate and fork take the manifests of workloads as pods, with the objects that come along."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kscale
from kscale.errors import InputError
from kscale.objects.api.apps import Deployment
from kscale.objects.decode import from_dict

Json = dict[str, Any]
AMOUNTS = {"cpu": "4", "memory": "8Gi", "pods": "110"}
NODE: Json = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": AMOUNTS}}
TEMPLATE: Json = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "3"}}}]},
}
SELECTOR = {"matchLabels": {"app": "web"}}
METADATA = {"name": "web", "namespace": "shop"}
DEPLOYMENT: Json = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": METADATA,
    "spec": {"replicas": 3, "selector": SELECTOR, "template": TEMPLATE},
}
STATEFUL_SET: Json = {**DEPLOYMENT, "kind": "StatefulSet", "spec": {**DEPLOYMENT["spec"], "serviceName": "web"}}
JOB: Json = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": METADATA,
    "spec": {"parallelism": 3, "completions": 3, "template": TEMPLATE},
}
CLASS: Json = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7}
HIGH: Json = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "priorityClassName": "high"}}
RELEASE: Json = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [CLASS, {**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "template": HIGH}}],
}
FORMS: dict[str, Callable[[Path], Any]] = {
    "a Deployment": lambda _: DEPLOYMENT,
    "a StatefulSet": lambda _: STATEFUL_SET,
    "a Job": lambda _: JOB,
    "a struct": lambda _: from_dict(DEPLOYMENT, Deployment),
    "a list": lambda _: [CLASS, RELEASE["items"][1]],
    "a List as helm template writes it": lambda _: RELEASE,
    "text": lambda _: json.dumps(RELEASE).encode(),
    "a path": lambda folder: written(folder),
    "a list of paths": lambda folder: [written(folder)],
}


def written(folder: Path) -> Path:
    path = folder / "release.json"
    path.write_text(json.dumps(RELEASE))
    return path


@pytest.mark.parametrize("form", FORMS)
def test_workloads_are_pods(form: str, tmp_path: Path) -> None:
    cluster, pods = kscale.load(NODE), FORMS[form](tmp_path)
    assert len(kscale.fit(cluster, pods).pods) == 3
    placed = kscale.place(cluster, pods)
    assert (placed.placed_count, len(placed.unschedulable)) == (1, 2)
    assert kscale.estimate(cluster, pods, template=NODE).node_count == 3
    assert kscale.estimate_many(cluster, pods, templates=[NODE])[0].node_count == 3
    world = kscale.fork(cluster, pods)
    assert [world.schedule(pod, "n") for pod in placed.pending] == [True, False, False]
    assert not list(cluster.pods()), "the cluster itself does not change"


def test_names_and_manifests_can_be_mixed() -> None:
    metadata = {"name": "other", "namespace": "shop"}
    waiting = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": TEMPLATE["spec"]}
    cluster = kscale.load(NODE, waiting)
    assert kscale.fit(cluster, ["shop/other", DEPLOYMENT]).pods[0] == "shop/other"
    assert len(kscale.fit(cluster, ["shop/other", DEPLOYMENT]).pods) == 4
    assert kscale.fit(cluster, [waiting]).pods == ["shop/other"], "a pod alone is no manifest of a workload"


def test_claims_of_a_stateful_set_are_created() -> None:
    claim = {"metadata": {"name": "data"}, "spec": {"storageClassName": "disk", "accessModes": ["ReadWriteOnce"]}}
    mounted = {**STATEFUL_SET, "spec": {**STATEFUL_SET["spec"], "volumeClaimTemplates": [claim]}}
    disk = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "disk"},
        "provisioner": "x",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    assert kscale.place(kscale.load(NODE), [mounted, disk]).placed == {"shop/web-0": "n"}


def test_workload_with_a_snapshot_is_refused() -> None:
    snapshot = kscale.load(NODE).snapshot()
    with pytest.raises(InputError, match=r"Deployment.*needs a Cluster instead of a snapshot"):
        kscale.fit(snapshot, [DEPLOYMENT])
    with pytest.raises(InputError, match="give a list of pod names or objects"):
        kscale.fit(snapshot, DEPLOYMENT)
    with pytest.raises(InputError, match="holds none of Pod, Deployment"):
        kscale.fit(kscale.load(NODE), NODE)
