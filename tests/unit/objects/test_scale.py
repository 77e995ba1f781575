"""Scales: of built-in kinds, and of custom resources by their definition's paths."""

from __future__ import annotations

from typing import Any

import pytest

from kscale.objects.api.apps import Deployment, StatefulSet
from kscale.objects.api.autoscaling import Scale, ScaleSpec, ScaleStatus
from kscale.objects.decode import from_dict
from kscale.objects.kinds import (
    RESTMapper,
    RESTMappingError,
    ServedResource,
    discovered_at_once,
    list_discovered_resources,
    parse_group_version,
)
from kscale.objects.scale import (
    ScaleError,
    ScalePaths,
    read_scale,
    scale_of,
    scale_of_workload,
    scale_paths,
    with_replicas,
    written_scale,
)


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


def served(group: str, kind: str, name: str, version: str = "v1", scale: str = "autoscaling/v1") -> ServedResource:
    return ServedResource(group, version, kind, name, scale=scale)


def test_kinds_are_found_in_any_version_and_in_lower_case() -> None:
    mapper = RESTMapper(
        [
            served("apps", "Deployment", "deployments"),
            served("", "Pod", "pods"),
            served("x.io", "Two", "twos", "v2"),
            served("x.io", "Two", "twos", "v1"),
            served("x.io", "Two", "others"),
        ]
    )
    assert mapper.resources("apps", "Deployment") == mapper.resources("apps", "deployment") == ("deployments.apps",)
    assert mapper.resources("", "Pod") == ("pods",)
    assert mapper.resources("x.io", "Two") == ("twos.x.io", "others.x.io")
    assert mapper.find_preferred("twos.x.io").version == "v2"
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


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        (served("apps", "Deployment", "deployments"), "/apis/apps/v1/namespaces/shop/deployments/web/scale"),
        (served("", "ReplicationController", "replicationcontrollers"),
         "/api/v1/namespaces/shop/replicationcontrollers/web/scale"),
        (ServedResource("x.io", "v2", "Two", "twos", namespaced=False), "/apis/x.io/v2/twos/web/scale"),
    ],
)  # fmt: skip
def test_where_a_scale_is_served(resource: ServedResource, path: str) -> None:
    assert resource.path("shop", "web", "scale") == path


def test_unserved_kind_error_matches_upstream() -> None:
    mapper = RESTMapper([served("x.io", "Two", "twos", scale="")])
    with pytest.raises(RESTMappingError) as caught:
        mapper.find_preferred("threes.x.io")
    assert str(caught.value) == (
        "unable to get client for threes.x.io: unable to get full preferred group-version-resource for threes.x.io: "
        "no matches for x.io/, Resource=threes"
    )


GROUPS = {
    "groups": [
        {
            "name": "x.io",
            "versions": [{"groupVersion": "x.io/v1", "version": "v1"}, {"groupVersion": "x.io/v2", "version": "v2"}],
            "preferredVersion": {"groupVersion": "x.io/v2", "version": "v2"},
        }
    ]
}
LISTS: list[dict[str, Any]] = [
    {
        "groupVersion": "v1",
        "resources": [
            {"name": "replicationcontrollers", "kind": "ReplicationController", "namespaced": True},
            {"name": "replicationcontrollers/scale", "kind": "Scale", "group": "autoscaling", "version": "v1"},
        ],
    },
    {
        "groupVersion": "x.io/v1",
        "resources": [
            {"name": "twos", "kind": "Two", "namespaced": True},
            {"name": "twos/scale", "kind": "Scale", "group": "extensions", "version": "v1beta1"},
            {"name": "olds", "kind": "Old", "namespaced": True},
            {"name": "olds/scale", "kind": "Scale"},
        ],
    },
    {
        "groupVersion": "x.io/v2",
        "resources": [{"name": "twos", "kind": "Two"}, {"name": "twos/status", "kind": "Two"}],
    },
]


def test_discovery_lists_served_and_preferred_versions() -> None:
    mapper = RESTMapper(list_discovered_resources(GROUPS, LISTS))
    assert mapper.find_preferred("twos.x.io") == ServedResource("x.io", "v2", "Two", "twos", namespaced=False)
    assert mapper.find_preferred("olds.x.io") == ServedResource("x.io", "v1", "Old", "olds", scale="x.io/v1")
    assert mapper.find_preferred("replicationcontrollers").scale == "autoscaling/v1"
    by_order = RESTMapper(list_discovered_resources(None, LISTS))
    assert by_order.find_preferred("twos.x.io").version == "v1"
    assert by_order.find_preferred("twos.x.io").scale == "extensions/v1beta1"


def test_aggregated_discovery_equals_group_discovery() -> None:
    """APIGroupDiscoveryLists of the same server: versions stand in the order of preference."""
    groups: dict[str, list[tuple[str, list[dict[str, Any]]]]] = {}
    preferred = {group["name"]: group["preferredVersion"]["version"] for group in GROUPS["groups"]}
    for each in LISTS:
        group, version = parse_group_version(each["groupVersion"])
        groups.setdefault(group, []).append((version, each["resources"]))
    items = []
    for group, versions in groups.items():
        versions.sort(key=lambda pair, group=group: pair[0] != preferred.get(group))
        items.append({"metadata": {"name": group}, "versions": [at_once(group, *each) for each in versions]})
    core = {"items": [each for each in items if not each["metadata"]["name"]]}
    others = {"items": [each for each in items if each["metadata"]["name"]]}
    result, expected = discovered_at_once([core, others]), list_discovered_resources(GROUPS, LISTS)
    assert sorted(result, key=repr) == sorted(expected, key=repr)
    for each in expected:
        assert RESTMapper(result).find_preferred(each.group_resource) == RESTMapper(expected).find_preferred(
            each.group_resource
        )


def at_once(group: str, version: str, resources: list[dict[str, Any]]) -> dict[str, Any]:
    own = f"{group}/{version}" if group else version
    result = []
    for each in resources:
        if "/" in each["name"]:
            continue
        scales = [other for other in resources if other["name"] == f"{each['name']}/scale"]
        entry = {
            "resource": each["name"],
            "responseKind": {"group": group, "version": version, "kind": each["kind"]},
            "scope": "Namespaced" if each.get("namespaced") else "Cluster",
        }
        if scales:
            spoken = f"{scales[0]['group']}/{scales[0]['version']}" if scales[0].get("group") else own
            kind = dict(zip(("group", "version"), parse_group_version(spoken), strict=True))
            entry["subresources"] = [{"subresource": "scale", "responseKind": {**kind, "kind": "Scale"}}]
        result.append(entry)
    return {"version": version, "resources": result}


@pytest.mark.parametrize(("kind", "struct"), [("Deployment", Deployment), ("StatefulSet", StatefulSet)])
def test_a_struct_has_the_scale_of_its_document(kind: str, struct: Any) -> None:
    document = workload(kind)
    assert scale_of_workload(from_dict(document, struct)) == scale_of(document)
    absent = workload(kind)
    del absent["spec"]["replicas"], absent["status"]
    assert scale_of_workload(from_dict(absent, struct)) == scale_of(absent)


OLD = ("extensions/v1beta1", "apps/v1beta1", "apps/v1beta2")


@pytest.mark.parametrize("version", OLD)
@pytest.mark.parametrize(
    ("status", "selector"),
    [
        ({"selector": {"b": "2", "a": "1"}}, "a=1,b=2"),
        ({"selector": {"a": "1"}, "targetSelector": "env in (p,q),!x,a==1"}, "a=1,env in (p,q),!x"),
        ({"selector": {}}, ""),
        ({}, ""),
    ],
)
def test_every_kind_of_scale_is_read(version: str, status: dict[str, Any], selector: str) -> None:
    data = {
        "apiVersion": version,
        "kind": "Scale",
        "metadata": {"name": "web", "resourceVersion": "7"},
        "spec": {"replicas": 3},
        "status": {"replicas": 2, **status},
    }
    scale = read_scale(data)
    assert (scale.spec.replicas, scale.status.replicas, scale.status.selector) == (3, 2, selector)
    assert (scale.api_version, scale.metadata.resource_version) == ("autoscaling/v1", "7")
    current = {**data, "apiVersion": "autoscaling/v1", "status": {"replicas": 2, "selector": "cheddar cheese"}}
    assert read_scale(current).status.selector == "cheddar cheese"  # as it is: decisions say what is wrong


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"apiVersion": "apps/v1", "kind": "Scale"}, 'no kind "Scale" is registered for version "apps/v1"'),
        ({"apiVersion": "autoscaling/v1", "kind": "Status"}, 'no kind "Status" is registered for version'),
        (
            {"apiVersion": OLD[0], "kind": "Scale", "status": {"targetSelector": "a!=b"}},
            (
                "received an object from a /scale endpoint which was not convertible to autoscaling Scale: "
                'failed to parse target selector: "!=" is not a valid label selector operator'
            ),
        ),
        (
            {"apiVersion": OLD[0], "kind": "Scale", "status": {"targetSelector": "a>1"}},
            '"gt" isn\'t supported in label selectors',
        ),
        ({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": "3"}}, "spec.replicas"),
    ],
)
def test_invalid_scales_are_named(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ScaleError) as caught:
        read_scale(data)
    assert message in str(caught.value)


@pytest.mark.parametrize("version", ["autoscaling/v1", *OLD])
@pytest.mark.parametrize("selector", ["", "a=1,b=2", "a=1,env in (p,q)"])
def test_written_scale_is_read_back_unchanged(version: str, selector: str) -> None:
    scale = Scale(spec=ScaleSpec(replicas=3), status=ScaleStatus(replicas=2, selector=selector))
    scale.metadata.resource_version = "7"
    written = written_scale(scale, 5, version)
    assert written["apiVersion"] == version
    assert ("selector" in written["status"]) == (
        bool(selector) and (version == "autoscaling/v1" or "in" not in selector)
    )
    again = read_scale(written)
    assert (again.spec.replicas, again.status, again.metadata) == (5, scale.status, scale.metadata)


def test_unwritable_scale_is_named() -> None:
    scale = Scale(status=ScaleStatus(selector="a!=1"))
    assert written_scale(scale, 1)["status"]["selector"] == "a!=1"
    with pytest.raises(ScaleError, match="could not convert scale update to external Scale"):
        written_scale(scale, 1, OLD[0])
    with pytest.raises(ScaleError, match='no kind "Scale" is registered for version "apps/v1"'):
        written_scale(scale, 1, "apps/v1")


WIDGET = {
    "apiVersion": "example.io/v1",
    "kind": "Widget",
    "metadata": {"name": "w", "uid": "u", "resourceVersion": "7"},
    "spec": {"size": 4, "color": "red"},
}


def test_a_write_changes_the_replicas_alone() -> None:
    paths = ScalePaths(".spec.deep.size", ".status.size", "")
    scale = scale_of(WIDGET, ScalePaths(".spec.size", ".status.size", ""))
    changed = with_replicas(WIDGET, scale, 9, ScalePaths(".spec.size", ".status.size", ""))
    assert changed == {**WIDGET, "spec": {"size": 9, "color": "red"}}
    assert WIDGET["spec"] == {"size": 4, "color": "red"}
    assert with_replicas(WIDGET, scale, 0, paths)["spec"] == {"size": 4, "color": "red", "deep": {"size": 0}}
    assert with_replicas(workload(), scale_of(workload()), 8)["spec"]["replicas"] == 8


@pytest.mark.parametrize(
    ("metadata", "replicas", "message", "conflict"),
    [
        ({"resourceVersion": "6"}, 1, "ResourceVersion in precondition: 6, ResourceVersion in object meta: 7", True),
        ({"uid": "v"}, 1, "UID in precondition: v, UID in object meta: u", True),
        ({}, -1, "spec.replicas: Invalid value: -1: must be greater than or equal to 0", False),
    ],
)
def test_a_write_is_refused(metadata: dict[str, str], replicas: int, message: str, conflict: bool) -> None:
    scale = read_scale({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata})
    with pytest.raises(ScaleError) as caught:
        with_replicas(WIDGET, scale, replicas)
    assert message in str(caught.value)
    assert caught.value.conflict == conflict


def test_path_through_a_non_object_is_refused() -> None:
    scale = read_scale({"apiVersion": "autoscaling/v1", "kind": "Scale"})
    with pytest.raises(ScaleError, match="size is not a map"):
        with_replicas(WIDGET, scale, 1, ScalePaths(".spec.size.replicas", ".status.size", ""))
