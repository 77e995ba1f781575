"""Manifests bring more than workloads: claims, templates, classes and volumes count as if they had been applied."""

from __future__ import annotations

from typing import Any

import pytest

import kscale
from kscale.capacity.fit import fit_workloads
from kscale.capacity.headroom import headroom
from kscale.capacity.records import FitReport
from kscale.errors import InputError
from kscale.snapshot.manifests import completing_classes, read_manifests, with_manifests, with_objects

Json = dict[str, Any]
GPU = "gpu.example.com"


def item(kind: str, name: str, api: str = "v1", namespace: str = "", **fields: Any) -> Json:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **fields}


def node(name: str, **labels: str) -> Json:
    allocatable = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    created = item("Node", name, status={"allocatable": allocatable})
    created["metadata"]["labels"] = {"kubernetes.io/hostname": name, **labels}
    return created


def workload(kind: str, name: str, replicas: int = 1, api: str = "apps/v1", **spec: Any) -> Json:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": containers, **spec}}
    selector = {"matchLabels": {"app": name}}
    return item(kind, name, api, "shop", spec={"replicas": replicas, "selector": selector, "template": template})


def claim(name: str, **spec: Any) -> Json:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return item("PersistentVolumeClaim", name, namespace="shop", spec=spec)


def volume(name: str, **spec: Any) -> Json:
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, **spec}
    return item("PersistentVolume", name, spec=spec)


def on_node(name: str) -> Json:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}]}
    return {"required": {"nodeSelectorTerms": [term]}}


def mounting(claim_name: str) -> list[Json]:
    return [{"name": "d", "persistentVolumeClaim": {"claimName": claim_name}}]


WAITING = item("StorageClass", "fast", "storage.k8s.io/v1", provisioner="csi.example.com",
               volumeBindingMode="WaitForFirstConsumer")  # fmt: skip
DEFAULT = {
    **WAITING,
    "metadata": {"name": "std", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
}
DEVICE_CLASS = item("DeviceClass", GPU, "resource.k8s.io/v1", spec={})


def gpus(where: str, count: int) -> Json:
    spec = {
        "driver": GPU,
        "nodeName": where,
        "pool": {"name": where, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"dev{i}"} for i in range(count)],
    }
    return item("ResourceSlice", f"s-{where}", "resource.k8s.io/v1", spec=spec)


REQUESTS = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": GPU}}]}}
TEMPLATE = item("ResourceClaimTemplate", "one-gpu", "resource.k8s.io/v1", "shop", spec={"spec": REQUESTS})
WITH_GPU: Json = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}


def fit(dump: list[Json], manifests: list[Json]) -> FitReport:
    read = read_manifests(manifests)
    cluster = with_objects(kscale.load(dump), read.objects)
    classes = completing_classes(cluster)
    return fit_workloads(cluster.snapshot(dra=True), read.workloads, classes=classes, placements=True)


def pending(dump: list[Json], manifests: list[Json]) -> dict[str, str]:
    """What `estimate --pod` places on nodes that exist."""
    read = read_manifests(manifests)
    cluster, names = with_manifests(with_objects(kscale.load(dump), read.objects), read.workloads)
    return kscale.place(cluster.snapshot(dra=True), names).placed


def more(dump: list[Json], manifests: list[Json]) -> list[int]:
    read = read_manifests(manifests)
    cluster = with_objects(kscale.load(dump), read.objects)
    report = headroom(cluster.snapshot(dra=True), read.workloads, classes=completing_classes(cluster))
    return [line.more for line in report.pods]


def test_a_claim_in_the_manifest_counts() -> None:
    manifests = [claim("data", storageClassName="fast"), workload("Deployment", "db", volumes=mounting("data"))]
    assert fit([node("n"), WAITING], manifests).fit == 1
    assert len(pending([node("n"), WAITING], manifests)) == 1
    assert more([node("n"), WAITING], manifests) == [40]
    assert (
        fit([node("n"), WAITING], manifests[1:]).workloads[0].event.endswith('persistentvolumeclaim "data" not found.')
    )


def test_a_claim_without_a_class_gets_the_default_class_of_the_manifest() -> None:
    manifests = [claim("data"), DEFAULT, workload("Deployment", "db", volumes=mounting("data"))]
    assert fit([node("n")], manifests).fit == 1


def test_a_class_without_a_binding_mode_binds_at_once() -> None:
    at_once = item("StorageClass", "slow", "storage.k8s.io/v1", provisioner="csi.example.com")
    manifests = [at_once, claim("data", storageClassName="slow"), workload("Pod", "p", api="v1")]
    manifests[2] = item("Pod", "p", namespace="shop", spec={"containers": [{"name": "c"}], "volumes": mounting("data")})
    assert "unbound immediate PersistentVolumeClaims" in fit([node("n")], manifests).workloads[0].event


@pytest.mark.parametrize("volume_name", ["", "disk"])
def test_a_claim_is_bound_to_a_volume_of_the_manifest(volume_name: str) -> None:
    manifests = [
        volume("disk", storageClassName="manual", nodeAffinity=on_node("b")),
        claim("data", storageClassName="manual", **({"volumeName": volume_name} if volume_name else {})),
        workload("Deployment", "db", 2, volumes=mounting("data")),
    ]
    line = fit([node("a"), node("b")], manifests).workloads[0]
    assert line.placement == {"b": 2}
    assert set(pending([node("a"), node("b")], manifests).values()) == {"b"}


def test_a_claim_that_exists_stays_bound_when_it_is_applied_again() -> None:
    bound = claim("data", storageClassName="fast", volumeName="disk")
    bound["metadata"] |= {"uid": "u", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    bound["status"] = {"phase": "Bound"}
    reference = {"kind": "PersistentVolumeClaim", "namespace": "shop", "name": "data", "uid": "u"}
    disk = volume("disk", storageClassName="fast", claimRef=reference, nodeAffinity=on_node("b"))
    dump = [node("a"), node("b"), WAITING, bound, disk]
    manifests = [claim("data", storageClassName="fast"), workload("Deployment", "db", volumes=mounting("data"))]
    assert fit(dump, manifests).workloads[0].placement == {"b": 1}


def test_claims_from_templates_are_created_for_each_pod() -> None:
    dump = [node("a"), node("b"), DEVICE_CLASS, gpus("a", 2), gpus("b", 1)]
    manifests = [TEMPLATE, workload("Deployment", "web", 4, **WITH_GPU)]
    line = fit(dump, manifests).workloads[0]
    assert (line.fit, line.placement) == (3, {"a": 2, "b": 1})
    assert "cannot allocate all claims" in line.event
    assert sorted(pending(dump, manifests).values()) == ["a", "a", "b"]
    assert more(dump, manifests) == [3]


def test_one_more_replica_gets_a_claim_of_its_own() -> None:
    dump = [node("a"), DEVICE_CLASS, gpus("a", 2)]
    line = fit(dump, [TEMPLATE, workload("Deployment", "web", 2, **WITH_GPU)]).workloads[0]
    assert line.fit == 2
    assert "cannot allocate all claims" in line.next_event


def test_pods_of_a_daemon_set_get_claims_from_templates() -> None:
    dump = [node("a"), node("b"), DEVICE_CLASS, gpus("a", 1)]
    manifests = [TEMPLATE, workload("DaemonSet", "agent", **WITH_GPU), workload("Deployment", "web", **WITH_GPU)]
    report = fit(dump, manifests)
    assert [(line.fit, line.replicas) for line in report.workloads] == [(1, 2), (0, 1)], "the agent took the only GPU"


def test_a_pod_whose_template_is_missing_waits_for_its_claim() -> None:
    event = fit([node("a"), DEVICE_CLASS, gpus("a", 1)], [workload("Deployment", "web", **WITH_GPU)]).workloads[0].event
    assert "ResourceClaim not created yet" in event


def test_a_shared_claim_of_the_manifest_is_taken_once() -> None:
    shared = item("ResourceClaim", "shared", "resource.k8s.io/v1", "shop", spec=REQUESTS)
    entry = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "shared"}]}
    dump = [node("a"), DEVICE_CLASS, gpus("a", 1)]
    assert fit(dump, [shared, workload("Deployment", "web", 3, **entry)]).fit == 3


def test_ephemeral_volumes_get_their_claims() -> None:
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
    manifests = [workload("Deployment", "web", 3, volumes=volumes)]
    assert fit([node("n"), DEFAULT], manifests).fit == 3
    assert len(pending([node("n"), DEFAULT], manifests)) == 3
    assert more([node("n"), DEFAULT], manifests) == [40]


def test_volume_claim_templates_get_their_claims() -> None:
    database = workload("StatefulSet", "db", 2)
    database["spec"]["volumeClaimTemplates"] = [claim("data", storageClassName="fast")]
    assert fit([node("n"), WAITING], [database]).fit == 2
    assert len(pending([node("n"), WAITING], [database])) == 2
    assert more([node("n"), WAITING], [database]) == [40]


def test_runtime_classes_of_the_manifest_add_their_overhead() -> None:
    kata = item("RuntimeClass", "kata", "node.k8s.io/v1", handler="kata", overhead={"podFixed": {"cpu": "3950m"}})
    manifests = [kata, workload("Deployment", "web", runtimeClassName="kata")]
    assert fit([node("n")], manifests).fit == 0
    assert pending([node("n")], manifests) == {}
    assert more([node("n")], manifests) == [0]


def test_classes_of_the_manifest_replace_those_of_the_dump() -> None:
    large, small = (
        item("RuntimeClass", "kata", "node.k8s.io/v1", handler="kata", overhead={"podFixed": {"cpu": cpu}})
        for cpu in ("3950m", "50m")
    )
    web = workload("Deployment", "web", runtimeClassName="kata")
    assert fit([node("n"), large], [small, web]).fit == 1
    assert fit([node("n"), small], [large, web]).fit == 0


def test_priority_classes_and_limit_ranges_of_the_manifest_complete_pods() -> None:
    urgent = item("PriorityClass", "urgent", "scheduling.k8s.io/v1", value=1000)
    limits = item("LimitRange", "l", namespace="shop", spec={"limits": [{"type": "Container", "max": {"cpu": "50m"}}]})
    other = item("PriorityClass", "other", "scheduling.k8s.io/v1", value=1)
    web = workload("Deployment", "web", priorityClassName="urgent")
    assert fit([node("n"), other], [urgent, web]).fit == 1
    assert fit([node("n"), other], [web]).workloads[0].rejections[0].plugin == "Priority"
    assert fit([node("n")], [limits, workload("Deployment", "web")]).workloads[0].rejections[0].plugin == "LimitRanger"


def test_namespaces_of_the_manifest_can_be_selected() -> None:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "busy"}},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}},
    }
    busy = item("Pod", "busy", namespace="other", spec={"nodeName": "a", "containers": [{"name": "c"}]})
    busy["metadata"]["labels"] = {"app": "busy"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    manifests = [item("Namespace", "other"), workload("Deployment", "web", affinity=affinity)]
    assert fit([node("a"), node("b"), busy], manifests).workloads[0].placement == {"b": 1}


def test_objects_that_no_decision_reads_are_counted() -> None:
    read = read_manifests(
        [
            item("ConfigMap", "c", namespace="shop"),
            item("ServiceAccount", "s", namespace="shop"),
            item("Ingress", "i", "networking.k8s.io/v1", "shop"),
            item("Kafka", "k", "kafka.strimzi.io/v1", "shop"),
            item("JobSet", "j", "jobset.x-k8s.io/v1", "shop"),
            workload("Deployment", "web"),
        ]
    )
    assert [each.name for each in read.workloads] == ["web"]
    assert read.report.skipped.total() == 4
    assert read.custom_resources == ["1 Kafka.kafka.strimzi.io", "1 JobSet.jobset.x-k8s.io"]


def test_error_for_manifests_without_workload_lists_their_kinds() -> None:
    kafka = item("Kafka", "k", "kafka.strimzi.io/v1", "shop")
    with pytest.raises(InputError, match=r"but 1 PersistentVolumeClaim, 2 Kafka\.kafka.* is not known"):
        read_manifests([kafka, claim("data"), {**kafka, "metadata": {"name": "l"}}])


def test_headroom_judges_each_workload_by_itself() -> None:
    small, large = workload("Deployment", "small"), workload("Deployment", "large", 12)
    large["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    assert more([node("n")], [small, large]) == [40, 1]


def test_a_cluster_without_objects_of_the_manifest_is_not_copied() -> None:
    cluster = kscale.load([node("n")])
    assert with_objects(cluster, []) is cluster
    changed = with_objects(cluster, read_manifests([claim("data"), workload("Deployment", "w")]).objects)
    assert (cluster.keys("PersistentVolumeClaim"), changed.keys("PersistentVolumeClaim")) == ([], ["shop/data"])
