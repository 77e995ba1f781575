"""Decoding, times, names, owners, kinds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kscale.errors import InputError
from kscale.objects import kinds, pod_owners, times
from kscale.objects import pod_owners as owners
from kscale.objects.api.coordination import Lease
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.resource import ResourceClaim, ResourceSlice
from kscale.objects.decode import from_dict, from_json, to_dict, to_json
from kscale.objects.names import go_quote, qualified_name_errors


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"spec": {"overhead": {"cpu": "1O0m"}}}, 'spec.overhead.cpu: "1O0m" is not a quantity'),
        (
            {"spec": {"containers": [{"resources": {"limits": {"memory": "1", "a.b/c": []}}}]}},
            "spec.containers[0].resources.limits[a.b/c]: [] is not a quantity",
        ),
        ({"metadata": {"labels": {"x": "y", "a": 1}}}, "metadata.labels.a: expected `str`, got `int`"),
        ({"spec": {"priority": "high"}}, "spec.priority: expected `int | null`, got `str`"),
        ([], "expected `object`, got `array`"),
    ],
)
def test_field_paths(data: Any, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        from_dict(data, Pod, source="f.yaml", object_path="items[3] (Pod a/b)")
    assert str(caught.value) == f"f.yaml: items[3] (Pod a/b): {problem}"
    with pytest.raises(InputError) as caught:
        from_json(to_json(data), Pod)
    assert str(caught.value) == problem


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_numbers_that_json_does_not_have(text: str) -> None:
    with pytest.raises(InputError, match=rf"^spec\.overhead\.cpu: {text} is not a quantity$"):
        from_dict({"spec": {"overhead": {"cpu": float(text)}}}, Pod)


def test_round_trip() -> None:
    data = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "labels": {}},
        "spec": {"providerID": "x://1", "taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "1500m", "pods": "110"}},
    }
    node = from_dict(data, Node)
    assert to_dict(node) == data
    assert from_json(to_json(node), Node) == node


def test_device_allocation_of_v1beta1_takes_the_shape_of_v1() -> None:
    old = {"name": "r", "deviceClassName": "gpu", "count": 2, "selectors": [{"cel": {"expression": "true"}}]}
    new = {"name": "r", "exactly": {key: value for key, value in old.items() if key != "name"}}
    claims = [from_dict({"spec": {"devices": {"requests": [item]}}}, ResourceClaim) for item in (old, new)]
    assert claims[0] == claims[1]
    device = {"attributes": {"model": {"string": "a"}}, "capacity": {"memory": {"value": "1Gi"}}}
    slices = [
        from_dict({"spec": {"devices": [item]}}, ResourceSlice)
        for item in ({"name": "d", "basic": device}, {"name": "d", **device})
    ]
    assert slices[0] == slices[1]


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [("1970-01-01T00:00:00Z", 0), ("1970-01-01T01:00:00.5+01:00", 500_000_000), ("1969-12-31T23:59:59Z", -(10**9)),
     ("2024-02-29T12:00:00.123456789Z", 1709208000_123456789), ("1970-01-01T00:00:00-00:30", 1800 * 10**9)],
)  # fmt: skip
def test_times(text: str, nanoseconds: int) -> None:
    assert times.nanoseconds(text) == nanoseconds
    assert times.seconds(text) == nanoseconds / 1e9


def test_times_both_ways() -> None:
    moment = datetime(2024, 2, 29, 12, 0, 0, tzinfo=UTC)
    assert times.to_datetime(times.format_time(moment)) == moment
    for wrong in ("yesterday", "2024-02-30T00:00:00Z", "2024-01-01"):
        with pytest.raises(ValueError, match="not an RFC 3339 time"):
            times.nanoseconds(wrong)
    with pytest.raises(ValueError, match="time zone"):
        times.format_time(datetime(2024, 1, 1))  # noqa: DTZ001  # a time without a zone is refused


def test_owners() -> None:
    def pod(*references: dict[str, Any], **annotations: str) -> Pod:
        names = {key.replace("__", "/").replace("_", "-"): value for key, value in annotations.items()}
        return from_dict({"metadata": {"ownerReferences": list(references), "annotations": names}}, Pod)

    plain, daemon = {"kind": "Job", "name": "j"}, {"kind": "DaemonSet", "name": "d", "controller": True}
    assert owners.controller_of(pod(plain).metadata) is None
    controller = owners.controller_of(pod(plain, daemon).metadata)
    assert controller is not None
    assert controller.name == "d"
    assert owners.is_daemonset_pod(pod(daemon))
    assert not owners.is_daemonset_pod(pod(plain))
    marked = from_dict({"metadata": {"annotations": {pod_owners.DAEMONSET_POD: "true"}}}, Pod)
    assert owners.is_daemonset_pod(marked)
    for source, static in (("file", True), ("api", False)):
        mirror_pod = from_dict({"metadata": {"annotations": {pod_owners.CONFIG_SOURCE: source}}}, Pod)
        assert owners.is_static_pod(mirror_pod) is static
    assert owners.is_mirror_pod(from_dict({"metadata": {"annotations": {pod_owners.CONFIG_MIRROR: ""}}}, Pod))


def test_kinds() -> None:
    assert kinds.find_kind("v1", "Pod") is Pod
    assert kinds.find_kind("v1", "Secret") is None
    for (group, kind), target in kinds.KINDS.items():
        struct = kinds.find_kind(group if "/" in group or not group else f"{group}/v0", kind)
        assert bool(struct) is bool(target)
    assert kinds.kind_of(Pod) == ("", "Pod")
    assert kinds.item_kind("PodList") == "Pod"
    assert kinds.item_kind("List") == kinds.item_kind("Pod") == ""


def test_leases() -> None:
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "leader", "namespace": "kube-system", "resourceVersion": "7"},
        "spec": {
            "holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 2,
            "acquireTime": "2026-01-05T00:00:00.000000Z", "renewTime": "2026-01-05T00:00:10.250000Z",
        },
    }  # fmt: skip
    type_ = kinds.find_kind("coordination.k8s.io/v1", "Lease")
    assert type_ is Lease
    lease = from_dict(body, Lease)
    assert to_dict(lease) == body
    assert lease.spec.renew_time is not None
    assert times.micro_time(times.nanoseconds(lease.spec.renew_time)) == lease.spec.renew_time
    assert times.micro_time(1_999_999_999) == "1970-01-01T00:00:01.999999Z"


@pytest.mark.parametrize(
    ("name", "start"),
    [("a/b/c", "a valid label key must consist"), ("/a", "prefix part must be non-empty"), ("", "name part must be"),
     ("A.com/x", "prefix part a lowercase RFC 1123 subdomain"), ("x" * 64, "name part must be no more than 63")],
)  # fmt: skip
def test_qualified_names(name: str, start: str) -> None:
    assert qualified_name_errors(name)[0].startswith(start)


def test_go_quote() -> None:
    assert go_quote('a"b\\c\nd\x00é') == r'"a\"b\\c\nd\x00é"'


def test_image_of_many_nodes_is_shared() -> None:
    image = {"names": ["web@sha256:1", "web:v1"], "sizeBytes": 5}
    one, two = (from_dict({"metadata": {"name": name}, "status": {"images": [image]}}, Node) for name in "ab")
    assert one.status.images[0] is two.status.images[0]
    assert to_dict(one)["status"] == {"images": [image]}
    assert from_dict({"status": {"images": [{"names": None}]}}, Node).status.images[0].names == []
    assert from_dict({"status": {"images": None}}, Node).status.images == []
