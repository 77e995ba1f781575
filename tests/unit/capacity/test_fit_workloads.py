"""Would a manifest fit: its pods as the API server would store them, placed one after the other."""

from __future__ import annotations

from typing import Any

import pytest

import kscale
from kscale.capacity.fit import fit_workloads
from kscale.capacity.records import WorkloadFit
from kscale.objects.api.meta import KubeObject
from kscale.objects.decode import from_dict
from kscale.objects.kinds import find_kind
from kscale.objects.pod_admission import PodClasses
from kscale.snapshot.manifests import MAX_REPLICAS


def make_object(kind: str, name: str, api: str = "apps/v1", **fields: Any) -> KubeObject:
    type_ = find_kind(api, kind)
    assert type_ is not None
    data = {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": "d", "uid": name}, **fields}
    return from_dict(data, type_)


def node(name: str, cpu: str = "4", **labels: str) -> KubeObject:
    status = {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}}
    return from_dict(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status},
        kscale.objects.api.core.Node,
    )


def template(requests: dict[str, str] | None, **spec: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "c"}
    if requests is not None:
        container["resources"] = {"requests": requests}
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container], **spec}}


def deployment(replicas: int, requests: dict[str, str] | None, **spec: Any) -> KubeObject:
    return make_object("Deployment", "web", spec={"replicas": replicas, "template": template(requests, **spec)})


def fit(workload: KubeObject, *objects: KubeObject) -> tuple[WorkloadFit, list[str]]:
    cluster = kscale.load(*objects)
    kinds = ("PriorityClass", "RuntimeClass", "LimitRange")
    classes = PodClasses.of(item for kind in kinds for item in cluster.all(kind))
    report = fit_workloads(cluster.snapshot(), [workload], classes=classes, placements=True)
    return report.workloads[0], report.unmodelled


def test_runtime_classes_add_their_overhead_and_their_node_selector() -> None:
    kata = make_object("RuntimeClass", "kata", "node.k8s.io/v1", handler="kata", overhead={"podFixed": {"cpu": "3"}},
                scheduling={"nodeSelector": {"kata": "yes"}})  # fmt: skip
    workload = deployment(2, {"cpu": "2"}, runtimeClassName="kata")
    assert fit(workload, node("n", kata="yes"), kata)[0].fit == 0
    assert fit(workload, node("n", "6", kata="yes"), kata)[0].fit == 1
    assert fit(workload, node("n", "6"), kata)[0].rejections[0].plugin == "NodeAffinity"


def test_limit_ranges_fill_in_requests() -> None:
    limits = [{"type": "Container", "defaultRequest": {"cpu": "3"}, "default": {"cpu": "4"}}]
    ranged = make_object("LimitRange", "l", "v1", spec={"limits": limits})
    line, unmodelled = fit(deployment(4, None), node("n"), ranged)
    assert (line.fit, unmodelled) == (1, [])
    assert fit(deployment(4, {"cpu": "1"}), node("n"), ranged)[0].fit == 4


CONTAINER = {"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "1", "memory": "1Gi"}}
POD = {"type": "Pod", "max": {"cpu": "3"}, "min": {"memory": "64Mi"}}
RATIO = {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}


@pytest.mark.parametrize(
    ("item", "resources", "message"),
    [
        (CONTAINER, [{"cpu": "50m"}, {"cpu": "1", "memory": "1Gi"}], (
            "minimum cpu usage per Container is 100m, but request is 50m"
        )),
        (CONTAINER, [{"memory": "1Gi"}, {"cpu": "1", "memory": "2Gi"}], (
            "maximum memory usage per Container is 1Gi, but limit is 2Gi"
        )),
        (CONTAINER, [{"cpu": "1"}, {}], (
            "[maximum cpu usage per Container is 1.  No limit is specified, "
            "maximum memory usage per Container is 1Gi.  No limit is specified]"
        )),
        (CONTAINER, [{}, {}], (
            "[minimum cpu usage per Container is 100m.  No request is specified, "
            "maximum cpu usage per Container is 1.  No limit is specified, "
            "maximum memory usage per Container is 1Gi.  No limit is specified]"
        )),
        (CONTAINER, [{}, {"cpu": "500m", "memory": "1Gi"}], ""),
        (POD, [{"cpu": "1", "memory": "32Mi"}, {"cpu": "2"}], (
            "[minimum memory usage per Pod is 64Mi, but request is 32Mi, "
            "maximum cpu usage per Pod is 3, but limit is 4]"
        )),
        (POD, [{"cpu": "1", "memory": "64Mi"}, {"cpu": "1"}], ""),
        (RATIO, [{"cpu": "400m"}, {"cpu": "1"}], (
            "cpu max limit to request ratio per Container is 2, but provided ratio is 2.500000"
        )),
        (RATIO, [{"cpu": "0"}, {"cpu": "1"}], (
            "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0"
        )),
        (RATIO, [{"cpu": "1"}, {}], (
            "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0"
        )),
        (RATIO, [{"cpu": "500m"}, {"cpu": "1"}], ""),
    ],
)  # fmt: skip
def test_limit_ranges_refuse_pods_outside_their_bounds(item: dict[str, Any], resources: Any, message: str) -> None:
    requests, limits = resources
    containers: list[Any] = [{"name": "c", "resources": {"requests": requests, "limits": limits}}]
    if item is POD:
        second = {"requests": {"cpu": "1", "memory": "0"}, "limits": {"cpu": "2"}}
        containers.append({"name": "d", "resources": second})
    pod = make_object("Pod", "p", "v1", spec={"containers": containers})
    ranged = make_object("LimitRange", "b", "v1", spec={"limits": [item]})
    line, unmodelled = fit(pod, node("n", "20"), ranged)
    assert unmodelled == []
    assert [rejection.reasons for rejection in line.rejections] == ([[message]] if message else [])
    assert [rejection.plugin for rejection in line.rejections] == (["LimitRanger"] if message else [])


def test_limits_of_a_pod_without_requests_are_its_requests() -> None:
    spec = {"containers": [{"name": "c", "resources": {"limits": {"cpu": "5"}}}]}
    line, _ = fit(make_object("Pod", "p", "v1", spec=spec), node("n"))
    assert line.rejections[0].reasons == ["Insufficient cpu"]


@pytest.mark.parametrize(
    ("field", "known", "plugin", "message"),
    [
        ("priorityClassName", make_object("PriorityClass", "high", "scheduling.k8s.io/v1", value=5), "Priority",
         "no PriorityClass with name nosuch was found"),
        ("runtimeClassName", make_object("RuntimeClass", "kata", "node.k8s.io/v1", handler="kata"), "RuntimeClass",
         'pod rejected: RuntimeClass "nosuch" not found'),
    ],
)  # fmt: skip
def test_classes_that_do_not_exist(field: str, known: KubeObject, plugin: str, message: str) -> None:
    workload = deployment(3, {"cpu": "1"}, **{field: "nosuch"})
    line, unmodelled = fit(workload, node("n"), known)
    assert (line.replicas, line.fit, unmodelled) == (3, 0, [])
    assert [(each.pods, each.plugin, each.reasons) for each in line.rejections] == [(3, plugin, [message])]
    line, unmodelled = fit(workload, node("n"))  # the dump has none of the kind: nothing can be said
    assert (line.fit, unmodelled) == (3, [f"{known.kind} nosuch (not in the input)"])
    agent = make_object("DaemonSet", "agent", spec={"template": template({"cpu": "1"}, **{field: "nosuch"})})
    assert fit(agent, node("n"), node("m"), known)[0].rejections[0].pods == 2


def test_a_stateful_set_makes_its_claims() -> None:
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    waits = make_object(
        "StorageClass", "fast", "storage.k8s.io/v1", provisioner="p", volumeBindingMode="WaitForFirstConsumer"
    )
    waits.metadata.annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    stateful_set = make_object("StatefulSet", "db", spec={
        "replicas": 5, "template": template({"cpu": "1"}), "volumeClaimTemplates": [claim],
    })  # fmt: skip
    line, _ = fit(stateful_set, node("n"), waits)
    assert (line.fit, [each.reasons for each in line.rejections]) == (4, [["Insufficient cpu"]])
    line, _ = fit(stateful_set, node("n"))  # no class to make a volume
    assert line.fit == 0
    assert line.rejections[0].reasons == ["pod has unbound immediate PersistentVolumeClaims"]


def test_fit_without_nodes_gives_the_upstream_reason() -> None:
    line, _ = fit(deployment(3, {"cpu": "1"}))
    assert [(each.pods, each.reasons) for each in line.rejections] == [(3, ["no nodes available to schedule pods"])]


@pytest.mark.parametrize(
    ("kind", "api", "spec"),
    [
        ("Deployment", "apps/v1", {"replicas": 70_000}),
        ("ReplicaSet", "apps/v1", {"replicas": 70_000}),
        ("Job", "batch/v1", {"parallelism": 70_000}),
    ],
)
def test_equal_pods_are_counted_not_walked(kind: str, api: str, spec: dict[str, Any]) -> None:
    workload = make_object(kind, "many", api, spec={**spec, "template": template({"cpu": "1"})})
    line, _ = fit(workload, node("n"), node("m", "2"))
    assert (line.replicas, line.fit, line.placement) == (70_000, 6, {"n": 4, "m": 2})
    assert line.rejections[0].pods == 69_994


def test_too_many_replicas_are_an_input_error() -> None:
    with pytest.raises(kscale.InputError, match=r"spec\.replicas: 1,000,000,000 pods are more than"):
        fit(deployment(10**9, {"cpu": "1"}), node("n"))
    assert MAX_REPLICAS >= 450_000


@pytest.mark.parametrize(
    ("kind", "api", "spec", "field"),
    [
        ("StatefulSet", "apps/v1", {"replicas": 10**9}, "spec.replicas"),
        ("Job", "batch/v1", {"parallelism": 10**9, "completionMode": "Indexed"}, "spec.parallelism"),
    ],
)
def test_nor_of_pods_that_differ(kind: str, api: str, spec: dict[str, Any], field: str) -> None:
    workload = make_object(kind, "many", api, spec={**spec, "template": template({"cpu": "1"})})
    with pytest.raises(kscale.InputError, match=field):
        fit(workload, node("n"))


def test_replicas_go_to_the_highest_score_with_scores() -> None:
    busy = make_object("Pod", "busy", "v1", spec={"nodeName": "n2", "containers": [
        {"name": "c", "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}},
    ]})  # fmt: skip
    cluster = kscale.load(node("n1"), node("n2"), node("n3", "1"), busy)
    workloads = [
        deployment(1, {"cpu": "1"}),
        make_object("Deployment", "api", spec={"template": template({"cpu": "500m"})}),
    ]

    def placements(**more: Any) -> list[dict[str, int] | None]:
        report = fit_workloads(cluster.snapshot(), workloads, placements=True, **more)
        return [line.placement for line in report.workloads]

    assert placements() == [{"n2": 1}, {"n2": 1}], "the first node behind the cursor that takes it"
    assert placements(scores=kscale.ScoreOptions()) == [{"n1": 1}, {"n1": 1}], "the emptiest node"


def test_default_spreading_knows_the_controller_of_a_workload() -> None:
    nodes = [node(f"n{i}", "64", **{"topology.kubernetes.io/zone": f"z{i}"}) for i in range(3)]
    spread = deployment(6, {"cpu": "1"})
    report = fit_workloads(kscale.load(*nodes).snapshot(), [spread], placements=True, scores=kscale.ScoreOptions())
    assert report.workloads[0].placement == {"n0": 2, "n1": 2, "n2": 2}
