"""A pod of which nothing that decisions read is wrong, and which is no pod all the same: loops end with an error."""

from __future__ import annotations

import json
from typing import Any

import pytest

import kscale
from builders import N0, at, node, owner, pod, template
from kscale import ca
from kscale.errors import InputError
from kscale.objects.api.core import Pod
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.nodegroup import NodeGroup


def _with_a_number_for_an_image(name: str, on: str, **metadata: Any) -> dict[str, Any]:
    data: dict[str, Any] = to_dict(pod(name, 100, spec={"node_name": on}, **metadata))
    data["spec"]["containers"][0] |= {"name": "c", "image": 5}
    if not on:
        data["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    return data


def _waiting(name: str) -> Pod:
    data = to_dict(pod(name, 900, 0))
    data["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    return from_dict(data, Pod)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        _with_a_number_for_an_image("daemon", "n0", owner_references=owner("DaemonSet", "d")),
        _with_a_number_for_an_image("waits", ""),
        _with_a_number_for_an_image("runs", "n0", namespace="kube-system"),
    ],
    ids=["daemon", "waits", "runs"],
)
def test_unreadable_objects_are_in_the_report(text: dict[str, Any], legacy: bool) -> None:
    nodes = [node(f"n{i}", 1000, 1, ready=True, creation_timestamp=at(hours=-1)) for i in range(2)]
    created = kscale.load(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [text]}).encode())
    for each in nodes:
        created.apply(each)
    options = ca.AutoscalingOptions.for_profile("legacy" if legacy else "current")
    groups = [NodeGroup(id="g", max_size=5, nodes=["n0", "n1"])]
    report = ca.run_once(created, groups, now=N0, options=options)
    key = f"{text['metadata']['namespace']}/{text['metadata']['name']}"
    assert report.error is not None
    assert report.error.type == "internalError"
    assert f"Pod {key}: spec.containers[0].image: expected `str`, got `int`" in report.error.message
    assert not report.successful


@pytest.mark.parametrize("legacy", [False, True])
def test_caller_errors_are_not_reported_as_cluster_objects(legacy: bool) -> None:
    """A chain of expanders that wants prices, and groups without: the caller's mistake, told as such."""
    created = kscale.Cluster([node("n0", 100, 1, ready=True, creation_timestamp=at(hours=-1)), _waiting("waits")])
    options = ca.AutoscalingOptions.for_profile("legacy" if legacy else "current", expander="price")
    groups = [NodeGroup(id="g", max_size=5, nodes=["n0"], template=template(node("new", 1000, 1, ready=True)))]
    with pytest.raises(InputError, match="the price expander needs a price"):
        ca.run_once(created, groups, now=N0, options=options)
