"""In-tree volumes, as the CSI drivers that serve them see them (upstream: ``csi-translation-lib``)."""

from __future__ import annotations

from typing import Any

import pytest

import kscale
from kscale.objects.api.storage import PersistentVolume
from kscale.objects.api.volumes import Volume
from kscale.objects.decode import from_dict
from kscale.scheduling.volumes import TranslationError, inline, reachable_from, translate_volume

Json = dict[str, Any]
ZONE, BETA = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
REGION, BETA_REGION = "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"
EBS, EBS_ZONE = "ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone"


def volume(source: Json, labels: Json | None = None, *terms: list[tuple[str, list[str]]]) -> PersistentVolume:
    written = [{"matchExpressions": [{"key": k, "operator": "In", "values": v} for k, v in term]} for term in terms]
    spec = source | ({"nodeAffinity": {"required": {"nodeSelectorTerms": written}}} if terms else {})
    return from_dict({"metadata": {"name": "pv", "labels": labels or {}}, "spec": spec}, PersistentVolume)


@pytest.mark.parametrize(
    ("source", "labels", "handle"),
    [
        ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, {}, (EBS, "vol-1")),
        ({"awsElasticBlockStore": {"volumeID": "aws://eu-1a/vol-1"}}, {}, (EBS, "vol-1")),
        ({"awsElasticBlockStore": {"volumeID": "aws:///vol-1"}}, {}, (EBS, "vol-1")),
        ({"gcePersistentDisk": {"pdName": "d"}}, {}, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"),
        ({"gcePersistentDisk": {"pdName": "d"}}, {ZONE: "us-1-a"}, "projects/UNSPECIFIED/zones/us-1-a/disks/d"),
        (
            {"gcePersistentDisk": {"pdName": "d"}},
            {BETA: "us-1-b", ZONE: "x"},
            "projects/UNSPECIFIED/zones/us-1-b/disks/d",
        ),
        ({"gcePersistentDisk": {"pdName": "d"}}, {ZONE: "us-1-a__us-1-b"}, "projects/UNSPECIFIED/regions/us-1/disks/d"),
        ({"azureDisk": {"diskURI": "/d", "kind": "managed"}}, {}, ("disk.csi.azure.com", "/d")),
        ({"cinder": {"volumeID": "c"}}, {}, ("cinder.csi.openstack.org", "c")),
        ({"portworxVolume": {"volumeID": "p"}}, {}, ("pxd.portworx.com", "p")),
        ({"vsphereVolume": {"volumePath": "p"}}, {}, None),
        ({"azureFile": {"shareName": "s", "secretName": "x"}}, {}, None),
        ({"nfs": {"path": "/"}}, {}, None),
    ],
)
def test_handles(source: Json, labels: Json, handle: Any) -> None:
    result = translate_volume(volume(source, labels))
    if isinstance(handle, tuple):
        assert result is not None
        assert result[:2] == handle
    else:
        assert (result and result[1]) == handle


@pytest.mark.parametrize(
    ("source", "labels", "problem"),
    [
        ({"awsElasticBlockStore": {"volumeID": "aws://a/disk"}}, {}, "Invalid format for AWS volume (aws://a/disk)"),
        (
            {"azureDisk": {"diskURI": "/d", "kind": "Dedicated"}},
            {},
            "kind(Dedicated) is not supported in csi migration",
        ),
        ({"gcePersistentDisk": {"pdName": "d"}}, {ZONE: "a__b"}, "{locale}-{region}-{zone}, got: a"),
        ({"gcePersistentDisk": {"pdName": "d"}}, {ZONE: "a-b-c__a-d-c"}, "gotten from zones, got: map[a-b:{} a-d:{}]"),
    ],
)
def test_untranslatable_volumes_are_refused(source: Json, labels: Json, problem: str) -> None:
    with pytest.raises(TranslationError) as caught:
        translate_volume(volume(source, labels))
    assert str(caught.value).endswith(problem)


def terms_of(selector: Any) -> Any:
    return selector and [[(e.key, e.values) for e in term.match_expressions] for term in selector.node_selector_terms]


@pytest.mark.parametrize(
    ("labels", "fields", "terms"),
    [
        ({}, [], None),
        ({}, [[(ZONE, ["a"])]], [[(EBS_ZONE, ["a"])]]),
        ({ZONE: "b"}, [[(ZONE, ["a"]), ("x", ["y"])]], [[(EBS_ZONE, ["a"]), ("x", ["y"])]]),
        ({ZONE: "b__ a"}, [[("x", ["y"])], [("z", ["w"])]],
         [[("x", ["y"]), (EBS_ZONE, ["a", "b"])], [("z", ["w"]), (EBS_ZONE, ["a", "b"])]]),
        ({BETA: "b"}, [], [[(EBS_ZONE, ["b"])]]),
        ({}, [[(BETA, ["a"]), (BETA_REGION, ["r"])]], [[(EBS_ZONE, ["a"]), (REGION, ["r"])]]),
        ({}, [[(ZONE, ["a"]), (BETA_REGION, ["r"])]], [[(EBS_ZONE, ["a"]), (BETA_REGION, ["r"])]]),
        ({ZONE: ""}, [], None),
    ],
)  # fmt: skip
def test_topology(labels: Json, fields: Any, terms: Any) -> None:
    source = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
    assert terms_of(reachable_from(volume(source, labels, *fields))) == terms
    other = volume({"azureDisk": {"diskURI": "/d"}}, labels, *fields)
    assert terms_of(reachable_from(other)) == (fields or None)


def test_inline() -> None:
    assert inline(from_dict({"name": "v", "gcePersistentDisk": {"pdName": "d"}}, Volume)) == (
        "pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d", 1,
    )  # fmt: skip
    assert inline(from_dict({"name": "v", "vsphereVolume": {"volumePath": "d"}}, Volume)) is None


def node(name: str, label: str) -> Json:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {label: "a"}},
            "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9"}}}  # fmt: skip


def csi_node(name: str, moved: str, limit: int) -> Json:
    meta = {"name": name, "annotations": {"storage.alpha.kubernetes.io/migrated-plugins": moved}}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": meta,
            "spec": {"drivers": [{"name": EBS, "nodeID": name, "allocatable": {"count": limit}}]}}  # fmt: skip


def pod(**volumes: Json) -> Json:
    spec = {"containers": [{"name": "c"}], "volumes": [{"name": name, **of} for name, of in volumes.items()]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "d", "uid": "p"}, "spec": spec}


def test_bound_volume_is_checked_against_driver_labels() -> None:
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "d",
             "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": "pv"}}  # fmt: skip
    bound = volume({"awsElasticBlockStore": {"volumeID": "vol-1"}}, {}, [(ZONE, ["a"])])
    pod_ = pod(v={"persistentVolumeClaim": {"claimName": "data"}})
    nodes = [node("old", ZONE), node("new", EBS_ZONE), node("neither", ZONE), node("plain", ZONE)]
    moved = [csi_node(name, "kubernetes.io/aws-ebs", 9) for name in ("new", "neither")]
    fit = kscale.fit(kscale.Cluster([*nodes, *moved, csi_node("old", "", 9), bound, claim]).snapshot(), [pod_])
    assert fit.ok.tolist() == [[True, True, False, True]]
    assert fit.verdict("d/p", "neither").reasons == ("node(s) didn't match PersistentVolume's node affinity",)
    bad = volume({"awsElasticBlockStore": {"volumeID": "aws://a/x"}}, {}, [(ZONE, ["a"])])
    verdict = kscale.fit(kscale.Cluster([*nodes, *moved, bad, claim]).snapshot(), [pod_]).verdict("d/p", "neither")
    assert verdict.reasons[0].startswith('running "VolumeBinding" filter plugin: could not translate pv: failed to')


def test_inline_volumes_count_wherever_a_node_has_drivers() -> None:
    """The scheduler of 1.37 takes plug-ins for migrated whatever the CSINode says, but only where there is one."""
    cluster = kscale.Cluster([node("a", ZONE), node("b", ZONE), csi_node("a", "", 1)])
    two = pod(v={"awsElasticBlockStore": {"volumeID": "vol-1"}}, w={"awsElasticBlockStore": {"volumeID": "vol-2"}})
    same = pod(
        v={"awsElasticBlockStore": {"volumeID": "vol-1"}}, w={"awsElasticBlockStore": {"volumeID": "aws:///vol-1"}}
    )
    broken = pod(v={"awsElasticBlockStore": {"volumeID": "aws://z/1"}})
    assert kscale.fit(cluster.snapshot(), [two]).ok.tolist() == [[False, True]]
    assert kscale.fit(cluster.snapshot(), [same]).ok.tolist() == [[True, True]]
    result = kscale.fit(cluster.snapshot(), [broken])
    assert result.ok.tolist() == [[False, True]]
    assert "converting volume(v) from inline to csi: failed to translate" in result.verdict("d/p", "a").reasons[0]
