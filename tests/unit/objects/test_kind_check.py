"""An object of another kind is refused by name wherever one kind is expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
import pytest

import kscale
from kscale import hpa, vpa
from kscale.objects.api.apps import Deployment
from kscale.objects.api.core import Pod, Service
from kscale.objects.api.meta import ObjectMeta
from kscale.objects.decode import from_dict
from kscale.objects.kinds import check_kind

Json = dict[str, Any]
NODE: Json = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "2", "memory": "8Gi", "pods": "9"}},
}
DEPLOYMENT: Json = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "w", "namespace": "d"},
    "spec": {
        "replicas": 300,
        "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "500"}}}]}},
    },
}
SERVICE: Json = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "w", "namespace": "d"}, "spec": {}}


class V1Deployment:
    """Has the shape of a kubernetes client's model."""

    attribute_map: ClassVar = {"metadata": "metadata", "spec": "spec"}
    openapi_types: ClassVar = {"metadata": "V1ObjectMeta", "spec": "V1DeploymentSpec"}

    def __init__(self) -> None:
        self.metadata, self.spec = DEPLOYMENT["metadata"], DEPLOYMENT["spec"]


QUESTIONS: dict[str, Callable[[kscale.Snapshot, Any], object]] = {
    "place": lambda snapshot, pod: kscale.place(snapshot, [pod]),
    "fit": lambda snapshot, pod: kscale.fit(snapshot, [pod]),
    "fork": lambda snapshot, pod: kscale.fork(snapshot, [pod]),
    "estimate": lambda snapshot, pod: kscale.estimate(snapshot, [pod], template=NODE),
    "estimate_many": lambda snapshot, pod: kscale.estimate_many(snapshot, [pod], templates=[NODE]),
    "node_scores": lambda snapshot, pod: kscale.node_scores(snapshot, pod),
}
OTHER_KINDS: dict[str, tuple[Any, str]] = {
    "a Deployment's data": (
        DEPLOYMENT,
        "Deployment d/w is not a Pod: a workload needs a Cluster",
    ),
    "a Deployment's data without kind": (
        {"metadata": DEPLOYMENT["metadata"], "spec": DEPLOYMENT["spec"]},
        "an object without kind, d/w with a pod template, is not a Pod: a workload needs a Cluster",
    ),
    "a Deployment's text": (msgspec.Raw(msgspec.json.encode(DEPLOYMENT)), "Deployment d/w is not a Pod"),
    "a Deployment struct": (from_dict(DEPLOYMENT, Deployment), "Deployment d/w is not a Pod"),
    "a client's Deployment": (V1Deployment(), "Deployment d/w is not a Pod"),
    "a Service's data": (SERVICE, "Service d/w is not a Pod"),
    "a Service struct without kind": (Service(metadata=ObjectMeta(name="w")), "Service w is not a Pod"),
    "a list": ({"apiVersion": "v1", "kind": "PodList", "items": []}, "PodList is not a Pod: pass the objects"),
    "a custom resource": ({"kind": "Database", "metadata": {"name": "x"}}, "Database x is not a Pod"),
    "a Pod of another group": (
        {"apiVersion": "example.org/v1", "kind": "Pod", "metadata": {"name": "x"}},
        "example.org/v1 Pod x is not a Pod",
    ),
    "a Pod struct of another kind": (Pod(kind="Job", metadata=ObjectMeta(name="x")), "Job x is not a Pod"),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("case", OTHER_KINDS)
def test_another_kind_is_no_empty_pod(question: str, case: str) -> None:
    value, message = OTHER_KINDS[case]
    with pytest.raises(kscale.InputError, match=message):
        QUESTIONS[question](kscale.Cluster([NODE]).snapshot(), value)


def test_pods_of_gives_the_pods_of_a_workload() -> None:
    from kscale.objects.workloads import pods_of

    pods = list(pods_of(from_dict(DEPLOYMENT, Deployment)))
    assert len(kscale.place(kscale.Cluster([NODE]), pods).unschedulable) == 300


@pytest.mark.parametrize(
    "template",
    [DEPLOYMENT, {"node": SERVICE}, {"node": NODE, "pods": [DEPLOYMENT]}, {"id": "g", "template": DEPLOYMENT}],
)
def test_another_kind_is_no_template(template: Json) -> None:
    with pytest.raises(kscale.InputError, match=r"template\.(node|pods): (Deployment|Service) d/w is not a (Node|Pod)"):
        kscale.estimate(kscale.Cluster([NODE]), [], template=template)
    if "id" in template:
        with pytest.raises(kscale.InputError, match="Deployment d/w is not a Node"):
            kscale.scale_up(kscale.Cluster([NODE]), [template], now=1_800_000_000 * 10**9)


def test_another_kind_is_no_example_of_columns() -> None:
    with pytest.raises(kscale.InputError, match=r"pods\[0\]: Deployment d/w is not a Pod"):
        kscale.from_columns(
            resources=["cpu"], node_names=["n"], allocatable=[[4]], pods=[DEPLOYMENT], pod_class=[0], pod_node=[-1]
        )


def test_another_kind_is_not_admitted() -> None:
    assert "Deployment d/w is not a Pod" in vpa.admit_pod(DEPLOYMENT, []).errors[0].detail
    refused = vpa.admit_vpa(DEPLOYMENT)
    assert "Deployment d/w is not a VerticalPodAutoscaler" in refused.errors[0].detail


def test_another_kind_is_no_pod_of_an_hpa() -> None:
    with pytest.raises(kscale.InputError, match="Deployment d/w is not a Pod"):
        hpa.decide([], {}, [DEPLOYMENT], hpa.MetricLists(), now=1_800_000_000 * 10**9)


@pytest.mark.parametrize(
    "pod",
    [
        {"metadata": {"name": "p"}},
        {"kind": "Pod", "metadata": {"name": "p"}},
        {"kind": None, "apiVersion": "v1"},
        Pod(),
    ],
)
def test_a_pod_without_or_with_its_own_kind_passes(pod: Any) -> None:
    check_kind(pod, Pod)
