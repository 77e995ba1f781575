"""What a cluster keeps from snapshot to snapshot is renewed for each object that it stands on, and for no other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import builders
import kscale
from kscale.objects.api.core import TopologySpreadConstraint
from kscale.objects.decode import from_dict
from kscale.scheduling.compile.pod_classes import PodClasses, PodCompiler
from kscale.scheduling.plugins.node_volume_limits import _NodeLimits
from kscale.scheduling.profile import TAINTS, Context
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.snapshot import without_lost_nodes

Json = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
DRIVER = "ebs.csi.aws.com"
SPREAD = kscale.SchedulerProfile(
    default_constraints=(from_dict({"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"},
                                   TopologySpreadConstraint),)
)  # fmt: skip


def thing(kind: str, name: str, namespace: str = "", **fields: Any) -> Json:
    version = {"StorageClass": "storage.k8s.io/v1", "CSINode": "storage.k8s.io/v1", "CSIDriver": "storage.k8s.io/v1",
               "CSIStorageCapacity": "storage.k8s.io/v1"}.get(kind, "v1")  # fmt: skip
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **fields.pop("metadata", {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def node(name: str, zone: str) -> Json:
    return thing("Node", name, metadata={"labels": {ZONE: zone, "kubernetes.io/hostname": name}},
                 status={"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}})  # fmt: skip


def pod(name: str, labels: Json | None = None, **spec: Any) -> Json:
    return thing("Pod", name, "d", metadata={"uid": name, "labels": labels or {}},
                 spec={"containers": [{"name": "c"}], **spec})  # fmt: skip


def claim(volume: str = "", **metadata: Any) -> Json:
    bound = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}} if volume else {}
    return thing("PersistentVolumeClaim", "data", "d", metadata={**bound, **metadata},
                 spec={"volumeName": volume, "storageClassName": "fast", "accessModes": ["ReadWriteOnce"]},
                 status={"phase": "Bound" if volume else "Pending"})  # fmt: skip


def volume(zone: str) -> Json:
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]
    spec = {"csi": {"driver": DRIVER, "volumeHandle": "h"}, "storageClassName": "fast"}
    where = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
    return thing("PersistentVolume", "pv", spec=spec | where, status={"phase": "Bound"})


def storage_class(zone: str = "", mode: str = "WaitForFirstConsumer") -> Json:
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": [zone]}]}] if zone else []
    return thing("StorageClass", "fast", provisioner=DRIVER, volumeBindingMode=mode, allowedTopologies=allowed)


def csi_node(limit: int | None) -> Json:
    drivers = [] if limit is None else [{"name": DRIVER, "nodeID": "a", "allocatable": {"count": limit}}]
    return thing("CSINode", "a", spec={"drivers": drivers})


def driver(must: bool) -> Json:
    return thing("CSIDriver", DRIVER, spec={"preventPodSchedulingIfMissing": must})


def namespace(team: str) -> Json:
    return thing("Namespace", "d", metadata={"labels": {"team": team}})


def no_web(**term: Any) -> Json:
    terms = [{"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": ZONE, **term}]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def service(app: str) -> Json:
    return thing("Service", "web", "d", spec={"selector": {"app": app}})


WITH_CLAIM = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
OF_THE_TEAM = no_web(namespaceSelector={"matchLabels": {"team": "red"}})
WEB = {"app": "web"}

# What is there, what is asked, what changes, and where the pod fits before and after.
CASES: dict[str, tuple[list[Json], Json, Json, str, str]] = {
    "claim": ([claim("pv"), volume("a")], pod("p", **WITH_CLAIM), claim(), "a", ""),
    "volume": ([claim("pv"), volume("a")], pod("p", **WITH_CLAIM), volume("b"), "a", "b"),
    "class": ([claim(), storage_class()], pod("p", **WITH_CLAIM), storage_class("b"), "ab", "b"),
    "limit": ([claim("pv"), volume("a"), csi_node(1)], pod("p", **WITH_CLAIM), csi_node(0), "a", ""),
    "driver": ([claim("pv"), volume("a"), driver(False)], pod("p", **WITH_CLAIM), driver(True), "a", ""),
    "namespace of the pod's own terms": (
        [namespace("blue"), pod("o", WEB, nodeName="a")], pod("p", affinity=OF_THE_TEAM), namespace("red"), "ab", "b",
    ),
    "namespace of others' terms": (
        [namespace("blue"), pod("o", nodeName="a", affinity=OF_THE_TEAM)], pod("p", WEB), namespace("red"), "ab", "b",
    ),
    "service": ([service("no"), pod("o", WEB, nodeName="a")], pod("p", WEB), service("web"), "ab", "b"),
    "placed pod": ([pod("o", nodeName="a")], pod("p", WEB, affinity=no_web()), pod("o", WEB, nodeName="a"), "ab", "b"),
}  # fmt: skip


def where(cluster: kscale.Cluster, new_pod: Json, *, dra: bool = False) -> str:
    snapshot = cluster.snapshot(dra=dra)
    profile = SPREAD if new_pod["metadata"]["labels"] and not new_pod["spec"].get("affinity") else None
    fits = kscale.fit(snapshot, [new_pod], profile=profile).ok[0]
    return "".join(name for name, yes in zip(snapshot.nodes, fits.tolist(), strict=True) if yes)


@pytest.mark.parametrize("dra", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_each_object_counts(case: str, dra: bool) -> None:
    objects, new_pod, changed, before, after = CASES[case]
    cluster = kscale.Cluster([node("a", "a"), node("b", "b"), *objects])
    assert where(cluster, new_pod, dra=dra) == before
    assert where(cluster, new_pod, dra=dra) == before
    cluster.apply(changed)
    assert where(cluster, new_pod, dra=dra) == after
    fresh = kscale.Cluster(list(cluster))
    assert where(fresh, new_pod, dra=dra) == after


def test_device_classes_count() -> None:
    """A resource that nodes do not have, until a device class stands for it, and again when none does."""
    slices = thing("ResourceSlice", "s", spec={"nodeName": "b", "driver": "d", "devices": [{"name": "x"}],
                                               "pool": {"name": "b", "resourceSliceCount": 1}})  # fmt: skip
    stands = thing("DeviceClass", "c", spec={"extendedResourceName": "x.io/gpu"})
    for each in (slices, stands):
        each["apiVersion"] = "resource.k8s.io/v1"
    new_pod = pod("p", containers=[{"name": "c", "resources": {"requests": {"x.io/gpu": "1"}}}])
    cluster = kscale.Cluster([node("a", "a"), node("b", "b"), slices])
    for _ in range(2):
        assert where(cluster, new_pod, dra=True) == ""
        cluster.apply(stands)
        assert where(cluster, new_pod, dra=True) == "b"
        assert where(cluster, new_pod) == ""
        cluster.remove("DeviceClass", "c")


def test_each_removal_counts() -> None:
    cluster = kscale.Cluster([node("a", "a"), node("b", "b"), claim("pv"), volume("a")])
    new_pod = pod("p", **WITH_CLAIM)
    assert where(cluster, new_pod) == "a"
    assert cluster.remove("PersistentVolume", "pv")
    assert where(cluster, new_pod) == ""
    cluster.remove("Node", "b")
    cluster.apply(volume("a"))
    assert where(cluster, new_pod) == "a"


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What is worked out, not taken from a cache: labels of classes that are compiled, "all" for lists of them."""
    compiled: list[Any] = []
    compile_pod, register = PodCompiler._compile, PodClasses._register_classes

    def compile_and_record(self: PodCompiler, pod: PodClass, *arguments: Any) -> Any:
        compiled.append(pod.labels)
        return compile_pod(self, pod, *arguments)

    def register_and_record(self: PodClasses, *arguments: Any) -> None:
        compiled.append("all")
        register(self, *arguments)

    monkeypatch.setattr(PodCompiler, "_compile", compile_and_record)
    monkeypatch.setattr(PodClasses, "_register_classes", register_and_record)
    return compiled


@pytest.mark.parametrize("dra", [False, True])
def test_nothing_is_worked_out_twice(work: list[Any], dra: bool) -> None:
    cluster = kscale.Cluster([node("a", "a"), node("b", "b"), claim("pv"), volume("a"), csi_node(3), driver(True)])
    pods_ = [pod("p", WEB, **WITH_CLAIM), pod("q", {"app": "db"}, affinity=no_web())]
    kscale.fit(cluster.snapshot(dra=dra), pods_)
    assert work == [WEB, {"app": "db"}, "all"]
    work.clear()
    kscale.fit(cluster.snapshot(dra=dra), pods_)
    cluster.apply({**node("a", "b"), "spec": {"unschedulable": True}})
    cluster.apply(thing("PersistentVolumeClaim", "other", "d", spec={}))
    kscale.place(cluster.snapshot(dra=dra), pods_)
    assert work == []
    cluster.apply(volume("b"))
    kscale.fit(cluster.snapshot(dra=dra), pods_)
    assert work == [WEB, "all"]
    work.clear()
    cluster.apply(pod("o", {"app": "new"}, nodeName="a"))
    kscale.fit(cluster.snapshot(dra=dra), pods_)
    assert work == ["all"]


def test_classes_that_ask_the_same_share_it() -> None:
    """Thousands of pods, no two alike, keep one object each for what few of them ask."""
    cluster = kscale.Cluster([node("a", "a"), node("b", "b")])
    demands = [{"containers": [{"name": "c", "resources": {"requests": {"cpu": f"{i}m"}}}]} for i in range(1, 7)]
    pods_ = [pod(f"p{i}", nodeSelector={ZONE: "ab"[i % 2]}, **demand) for i, demand in enumerate(demands)]
    snapshot = cluster.snapshot()
    result = kscale.fit(snapshot, pods_)
    assert result.ok.tolist() == [[True, False], [False, True]] * 3
    known = PodCompiler(Context(snapshot, kscale.SchedulerProfile()))
    questions = [known.get(each) for each in result.session.pods]
    assert len({id(question) for question in questions}) == 2
    filters = [pair for question in questions for pair in question.node_filters]
    taints = {id(node_filter) for _, node_filter in filters if node_filter.columns == {TAINTS}}
    assert len(taints) == 1


def test_volume_limits_after_a_loss_of_nodes_are_those_of_the_nodes_left() -> None:
    def limited(name: str, **limits: int) -> Json:
        drivers = [{"name": each, "nodeID": name, "allocatable": {"count": most}} for each, most in limits.items()]
        return thing("CSINode", name, spec={"drivers": drivers})

    nodes = [node(name, "z") for name in "abcd"]
    csi_nodes = [limited("a", x=3, y=1), limited("b", x=4), limited("d", z=5, x=9), limited("gone", w=1)]
    before = kscale.Cluster([*nodes, *csi_nodes]).snapshot()
    assert _NodeLimits.of(Context(before, kscale.SchedulerProfile())).drivers == {"x", "y", "z"}
    for lost in (["a"], ["b", "c"], ["a", "d"], ["a", "b", "d"]):
        after = without_lost_nodes(before, lost, before.table)
        limits = _NodeLimits.of(Context(after, kscale.SchedulerProfile()))
        fresh = _NodeLimits(after.nodes, before.informers.csi_nodes, None)
        assert limits.drivers == fresh.drivers
        assert limits.migrated.tolist() == fresh.migrated.tolist()
        for name in "xyzw-":  # that of a template may be limited on no node
            assert limits.column(name).tolist() == fresh.column(name).tolist()
    assert fresh.column("x").tolist() == [-1]
    assert fresh.migrated.tolist() == [0]


def test_a_modified_template_is_read_again() -> None:
    """Callers own their templates: what was prepared of one is not reused after it was modified in place."""
    snapshot = kscale.load([builders.pod(f"p{i}", 1000, 1) for i in range(8)]).snapshot()
    template = kscale.NodeTemplate(node=builders.node("t", 4000, 1 << 40))
    room = template.node.status.allocatable
    assert room is not None
    assert kscale.estimate(snapshot, template=template).node_count == 2
    room["cpu"] = kscale.Quantity("8")
    assert kscale.estimate(snapshot, template=template).node_count == 1
    room["pods"] = kscale.Quantity("2")
    assert kscale.estimate(snapshot, template=template).node_count == 4
