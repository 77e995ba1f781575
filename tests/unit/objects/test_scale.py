"""Scales: of built-in kinds, and of custom resources by their definition's paths."""

from __future__ import annotations

from typing import Any

import pytest

from kscale.objects.rest_mapping import RESTMapper, RESTMappingError, parse_group_version
from kscale.objects.scale import ScaleError, ScalePaths, scale_of, scale_paths


def workload(kind: str = "Deployment", api_version: str = "apps/v1", **spec: Any) -> dict[str, Any]:
    selector = {
        "matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "env", "operator": "In", "values": ["a", "b"]}],
    }
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "web", "namespace": "ns", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}},
        "spec": {"replicas": 3, "selector": selector, **spec},
        "status": {"replicas": 2},
    }


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet"])
def test_workloads(kind: str) -> None:
    scale = scale_of(workload(kind))
    assert (scale.spec.replicas, scale.status.replicas) == (3, 2)
    assert scale.status.selector == "app=web,env in (a,b)"
    assert (scale.metadata.uid, scale.metadata.resource_version, scale.metadata.labels) == ("u", "7", None)
    absent = workload(kind)
    del absent["spec"]["replicas"], absent["status"]
    assert (scale_of(absent).spec.replicas, scale_of(absent).status.replicas) == (1, 0)


def test_replication_controller() -> None:
    scale = scale_of(workload("ReplicationController", "v1", selector={"b": "2", "a": "1"}))
    assert scale.status.selector == "a=1,b=2"


def test_custom_resources() -> None:
    definition = {
        "spec": {
            "versions": [
                {
                    "name": "v1",
                    "subresources": {
                        "scale": {
                            "specReplicasPath": ".spec.size",
                            "statusReplicasPath": ".status.size",
                            "labelSelectorPath": ".status.labels",
                        }
                    },
                },
                {"name": "v2", "subresources": {}},
            ]
        }
    }
    paths = scale_paths(definition)
    assert paths == {"v1": ScalePaths(".spec.size", ".status.size", ".status.labels")}
    custom = {"kind": "Widget", "apiVersion": "example.io/v1", "spec": {"size": 4}, "status": {"labels": "a=b"}}
    scale = scale_of(custom, paths["v1"])
    assert (scale.spec.replicas, scale.status.replicas, scale.status.selector) == (4, 0, "a=b")
    assert scale_of(custom, ScalePaths(".spec.size", ".status.size", "")).status.selector == ""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"kind": "Widget", "spec": {}}, 'the spec replicas field ".spec.replicas" does not exist'),
        ({"kind": "Widget", "spec": {"replicas": "3"}}, "replicas must be a whole number"),
        ({"kind": "Widget", "spec": {"replicas": 1}, "status": {"selector": {}}, "metadata": {}}, None),
        (
            {"kind": "Widget", "spec": {"replicas": 1}, "status": {"selector": {"a": 1}}},
            "the label selector must be a text",
        ),
        (
            workload(selector={"matchExpressions": [{"key": "a", "operator": "Near"}]}),
            "is not a valid label selector operator",
        ),
    ],
)
def test_errors(data: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert scale_of(data).status.selector == ""
        return
    with pytest.raises(ScaleError, match=message):
        scale_of(data)


def test_kinds_are_found_in_any_version_and_in_lower_case() -> None:
    mapper = RESTMapper(
        {("apps", "Deployment"): "deployments", ("", "Pod"): "pods", ("x.io", "Two"): ["twos", "others"]}
    )
    assert mapper.resources("apps", "Deployment") == mapper.resources("apps", "deployment") == ("deployments.apps",)
    assert mapper.resources("", "Pod") == ("pods",)
    assert mapper.resources("x.io", "Two") == ("twos.x.io", "others.x.io")
    with pytest.raises(RESTMappingError, match='no matches for kind "Pod" in group "apps"'):
        mapper.resources("apps", "Pod")
    assert [parse_group_version(text) for text in ("apps/v1", "v1", "", "/")] == [
        ("apps", "v1"),
        ("", "v1"),
        ("", ""),
        ("", ""),
    ]
    with pytest.raises(RESTMappingError, match="unexpected GroupVersion string: a/b/c"):
        parse_group_version("a/b/c")
