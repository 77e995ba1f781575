"""What no API server would hold, by name and path."""

from __future__ import annotations

from typing import Any

import pytest

from kscale.objects.decode import from_dict
from kscale.objects.kinds import find_kind
from kscale.objects.validation import check

META = {"name": "x", "namespace": "a"}


def found(api_version: str, kind: str, **parts: Any) -> list[str]:
    type_ = find_kind(api_version, kind)
    assert type_ is not None
    obj = from_dict({"metadata": META, **parts}, type_)
    return [f"{item.field}: {item.message}{'' if item.fatal else ' (warning)'}" for item in check(obj)]


def container(requests: dict[str, str], limits: dict[str, str] | None = None) -> dict[str, Any]:
    return {"resources": {"requests": requests, "limits": limits}}


@pytest.mark.parametrize(
    ("api_version", "kind", "parts", "want"),
    [
        ("v1", "Pod", {}, []),
        ("v1", "Pod", {"metadata": {}}, ["metadata.name: is empty", "metadata.namespace: is empty (warning)"]),
        (
            "v1",
            "Pod",
            {
                "spec": {
                    "initContainers": [container({"a.b/c": "-1"})],
                    "containers": [container({"cpu": "2"}, {"cpu": "1"})],
                }
            },
            [
                "spec.containers[0].resources.requests.cpu: 2 is above the limit 1 (warning)",
                "spec.initContainers[0].resources.requests[a.b/c]: -1 is negative",
            ],
        ),
        (
            "v1",
            "Pod",
            {"spec": {"overhead": {"cpu": "-1"}, "resources": {"requests": {"memory": "-1Gi"}}}},
            ["spec.resources.requests.memory: -1Gi is negative", "spec.overhead.cpu: -1 is negative"],
        ),
        (
            "v1",
            "Pod",
            {"spec": {"topologySpreadConstraints": [{"maxSkew": 0, "whenUnsatisfiable": "ScheduleAnyway"}]}},
            ["spec.topologySpreadConstraints[0].maxSkew: 0 is not above zero (warning)"],
        ),
        ("v1", "Node", {"status": {"allocatable": {"cpu": "-4"}}}, ["status.allocatable.cpu: -4 is negative"]),
        (
            "v1",
            "LimitRange",
            {"spec": {"limits": [{"min": {"cpu": "2"}, "max": {"cpu": "1"}}]}},
            ["spec.limits[0].min.cpu: 2 is above the maximum 1"],
        ),
        (
            "v1",
            "PersistentVolumeClaim",
            {"spec": {"resources": {"requests": {"storage": "-1Gi"}}}},
            ["spec.resources.requests.storage: -1Gi is negative"],
        ),
        ("v1", "PersistentVolume", {"spec": {"capacity": {"x": "-1"}}}, ["spec.capacity.x: -1 is negative"]),
        ("apps/v1", "Deployment", {"spec": {"replicas": -1}}, ["spec.replicas: -1 is negative"]),
        ("batch/v1", "Job", {"spec": {"completions": -2}}, ["spec.completions: -2 is negative"]),
        (
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            {"spec": {"minReplicas": 5, "maxReplicas": 3}},
            ["spec.minReplicas: 5 is above maxReplicas 3"],
        ),
    ],
)  # fmt: skip
def test_findings(api_version: str, kind: str, parts: dict[str, Any], want: list[str]) -> None:
    assert found(api_version, kind, **parts) == want
