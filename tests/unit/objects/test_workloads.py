"""The pods that a controller would create, and what the API server fills in."""

from __future__ import annotations

from typing import Any

import pytest

from kscale.objects.api.apps import CronJob, DaemonSet, Deployment, Job, ReplicaSet, StatefulSet
from kscale.objects.api.core import Namespace, Pod, ReplicationController
from kscale.objects.api.meta import KubeObject
from kscale.objects.api.policy import PriorityClass, RuntimeClass
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.pod_admission import PodClasses
from kscale.objects.pod_owners import controller_of
from kscale.objects.pod_resources import demand
from kscale.objects.workloads import daemonset_pod, pods_of, replica_set_of

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}},
    "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]},
}
META = {"name": "web", "namespace": "shop"}


def workload(type_: type[KubeObject], **spec: Any) -> Any:
    return from_dict({"metadata": META, "spec": {"template": TEMPLATE, **spec}}, type_)


def template(**spec: Any) -> dict[str, Any]:
    return {**TEMPLATE, "spec": {**TEMPLATE["spec"], **spec}}


def keys(item: KubeObject, replicas: int | None = None) -> list[str]:
    return [pod.key for pod in pods_of(item, replicas)]


@pytest.mark.parametrize("type_", [ReplicaSet, ReplicationController, StatefulSet])
def test_replicas(type_: type[KubeObject]) -> None:
    assert keys(workload(type_)) == ["shop/web-0"]
    assert keys(workload(type_, replicas=2)) == ["shop/web-0", "shop/web-1"]
    assert keys(workload(type_, replicas=0)) == []
    assert keys(workload(type_, replicas=9), 1) == ["shop/web-0"]
    (pod,) = pods_of(workload(type_))
    owner = controller_of(pod.metadata)
    assert owner is not None
    assert (owner.kind, owner.name, bool(owner.uid)) == (type_.__name__, "web", True)
    assert pod.metadata.annotations == {"a": "b"}
    (again,) = pods_of(workload(type_))
    assert again == pod


def test_deployment_pods_belong_to_a_replica_set() -> None:
    deployment = workload(Deployment, replicas=2, selector={"matchLabels": {"app": "web"}})
    replica_set = replica_set_of(deployment)
    hash_ = replica_set.name.removeprefix("web-")
    assert len(hash_) == 10
    parent = controller_of(replica_set.metadata)
    assert parent is not None
    assert (parent.kind, parent.name) == ("Deployment", "web")
    first, second = pods_of(deployment)
    assert [first.name, second.name] == [f"web-{hash_}-0", f"web-{hash_}-1"]
    assert first.metadata.labels == {"app": "web", "pod-template-hash": hash_}
    assert first.metadata.uid != second.metadata.uid
    owner = controller_of(first.metadata)
    assert owner is not None
    assert owner.uid == replica_set.metadata.uid
    other = workload(Deployment, template=template(hostname="x"))
    assert replica_set_of(other).name != replica_set.name


def test_stateful_pods_have_their_own_names_and_claims() -> None:
    item = workload(
        StatefulSet,
        replicas=2,
        serviceName="svc",
        ordinals={"start": 3},
        volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": {}}],
        template=template(volumes=[{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]),
    )
    first, second = pods_of(item)
    assert [first.name, second.name] == ["web-3", "web-4"]
    assert (first.spec.hostname, first.spec.subdomain) == ("web-3", "svc")
    assert [to_dict(volume) for volume in second.spec.volumes] == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-4"}},
        {"name": "tmp", "emptyDir": {}},
    ]
    assert first.metadata.labels is not None
    assert first.metadata.labels["apps.kubernetes.io/pod-index"] == "3"
    assert first.metadata.labels["statefulset.kubernetes.io/pod-name"] == "web-3"


@pytest.mark.parametrize(
    ("spec", "status", "count"),
    [
        ({}, {}, 1),
        ({"parallelism": 3}, {}, 3),
        ({"parallelism": 3, "completions": 2}, {}, 2),
        ({"parallelism": 3, "completions": 5}, {"succeeded": 4}, 1),
        ({"parallelism": 3, "suspend": True}, {}, 0),
        ({"parallelism": 3}, {"conditions": [{"type": "Complete", "status": "True"}]}, 0),
    ],
)
def test_jobs(spec: dict[str, Any], status: dict[str, Any], count: int) -> None:
    job = from_dict({"metadata": META, "spec": {"template": TEMPLATE, **spec}, "status": status}, Job)
    assert len(keys(job)) == count


def test_job_labels_and_cron_jobs() -> None:
    (pod,) = pods_of(workload(Job, completionMode="Indexed"))
    assert pod.metadata.labels is not None
    assert pod.metadata.labels["job-name"] == "web"
    assert pod.metadata.labels["batch.kubernetes.io/job-completion-index"] == "0"
    cron = from_dict({"metadata": META, "spec": {"jobTemplate": {"spec": {"template": TEMPLATE}}}}, CronJob)
    assert keys(cron) == ["shop/web-next-0"]
    cron.spec.suspend = True
    assert keys(cron) == []


def test_daemon_set_pods() -> None:
    item = workload(DaemonSet, template=template(hostNetwork=True))
    assert keys(item) == ["shop/web-0"]
    pod = daemonset_pod(item, "node-1")
    assert (pod.name, pod.spec.node_name) == ("web-node-1", "node-1")
    assert [(t.key.removeprefix("node.kubernetes.io/"), t.effect) for t in pod.spec.tolerations] == [
        ("not-ready", "NoExecute"), ("unreachable", "NoExecute"), ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"), ("pid-pressure", "NoSchedule"), ("unschedulable", "NoSchedule"),
        ("network-unavailable", "NoSchedule"),
    ]  # fmt: skip


def test_pods_stand_for_themselves() -> None:
    pod = from_dict({"metadata": META}, Pod)
    assert list(pods_of(pod)) == [pod]
    assert keys(pod, 2) == ["shop/web-0", "shop/web-1"]
    with pytest.raises(TypeError, match="Namespace creates no pods"):
        list(pods_of(Namespace()))


def test_namespace_defaults() -> None:
    item = from_dict({"metadata": {"name": "web"}, "spec": {"template": TEMPLATE}}, ReplicaSet)
    assert keys(item) == ["default/web-0"]


def first_spec(**spec: Any) -> Any:
    (pod,) = pods_of(workload(ReplicaSet, template=template(**spec)))
    return pod.spec


def test_limits_become_requests() -> None:
    containers = [{"name": "c", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}}]
    (container,) = first_spec(containers=containers).containers
    assert {name: str(value) for name, value in container.resources.requests.items()} == {"cpu": "1", "memory": "1Gi"}


def test_pod_level_requests() -> None:
    limits = {"cpu": "4", "memory": "8Gi", "example.com/x": "1"}
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    spec = first_spec(containers=containers, resources={"limits": limits})
    assert {name: str(value) for name, value in spec.resources.requests.items()} == {"cpu": "1", "memory": "8Gi"}


def test_huge_pages_of_the_pod_follow_the_limits_of_the_containers() -> None:
    containers = [{"name": c, "resources": {"limits": {"hugepages-2Mi": "4Mi", "cpu": "1"}}} for c in "ab"]
    spec = first_spec(containers=containers, resources={"requests": {"memory": "1Gi"}})
    assert {name: str(value) for name, value in spec.resources.requests.items()} == {
        "memory": "1Gi", "cpu": "2", "hugepages-2Mi": "8Mi"
    }  # fmt: skip
    alone = first_spec(containers=[{"name": "c"}], resources={"requests": {"memory": "1Gi"}})
    assert alone.resources.limits is None


def test_ports_of_the_host_network() -> None:
    ports = [{"containerPort": 80}, {"containerPort": 81, "hostPort": 81, "protocol": "UDP"}]
    for host_network, host_port in ((True, 80), (False, 0)):
        (container,) = first_spec(hostNetwork=host_network, containers=[{"ports": ports}]).containers
        assert [(p.host_port, p.protocol) for p in container.ports] == [(host_port, "TCP"), (81, "UDP")]


def test_priority_and_tolerations() -> None:
    spec = first_spec(priorityClassName="system-node-critical", tolerations=[{"operator": "Exists"}])
    assert spec.priority == 2_000_001_000
    assert len(spec.tolerations) == 1
    assert [t.toleration_seconds for t in first_spec().tolerations] == [300, 300]


def test_classes() -> None:
    gold = from_dict({"metadata": {"name": "gold"}, "value": 7, "preemptionPolicy": "Never"}, PriorityClass)
    usual = from_dict({"metadata": {"name": "usual"}, "value": 3, "globalDefault": True}, PriorityClass)
    sandbox = from_dict(
        {
            "metadata": {"name": "sandbox"},
            "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {"nodeSelector": {"sandbox": "yes"}, "tolerations": [{"key": "sandbox"}]},
        },
        RuntimeClass,
    )
    classes = PodClasses.of([gold, usual, sandbox])
    spec = template(priorityClassName="gold", runtimeClassName="sandbox", nodeSelector={"zone": "a"})
    (pod,) = pods_of(workload(ReplicaSet, template=spec), classes=classes)
    assert (pod.spec.priority, pod.spec.preemption_policy) == (7, "Never")
    assert pod.spec.node_selector == {"sandbox": "yes", "zone": "a"}
    assert [t.key for t in pod.spec.tolerations][-1] == "sandbox"
    assert str(demand(pod)["cpu"]) == "1250m"
    (pod,) = pods_of(workload(ReplicaSet), classes=classes)
    assert (pod.spec.priority, pod.spec.priority_class_name) == (3, "usual")
    (pod,) = pods_of(workload(ReplicaSet, template=template(priorityClassName="unknown")), classes=classes)
    assert pod.spec.priority == 0


def test_label_keys_are_folded_into_the_selectors() -> None:
    term = {"topologyKey": "zone", "matchLabelKeys": ["app", "gone"], "mismatchLabelKeys": ["app"]}
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = [{**term, "labelSelector": {"matchLabels": {"x": "y"}}}, term]
    spec = first_spec(affinity={"podAntiAffinity": {name: terms}})
    folded, without = spec.affinity.pod_anti_affinity.required
    assert to_dict(folded.label_selector) == {
        "matchLabels": {"x": "y"},
        "matchExpressions": [
            {"key": "app", "operator": "In", "values": ["web"]},
            {"key": "app", "operator": "NotIn", "values": ["web"]},
        ],
    }
    assert without.label_selector is None


def test_templates_are_not_changed() -> None:
    item = workload(Deployment, template=template(resources={"limits": {"cpu": "1"}}))
    before = repr(item)
    list(pods_of(item, 3))
    assert repr(item) == before
