"""What no API server would hold, by name and path."""

from __future__ import annotations

from typing import Any

import pytest

from kscale.objects.decode import from_dict
from kscale.objects.kinds import find_kind
from kscale.objects.validation import check

META = {"name": "x", "namespace": "a"}


def problems(api_version: str, kind: str, **parts: Any) -> list[str]:
    type_ = find_kind(api_version, kind)
    assert type_ is not None
    obj = from_dict({"metadata": META, **parts}, type_)
    return [f"{item.field}: {item.message}{'' if item.fatal else ' (warning)'}" for item in check(obj)]


ONE = [{"name": "c"}]
CUT = ": it is cut or wraps around (warning)"
CRON = "spec.jobTemplate.spec.template.spec"
NO_DAY = "day is out of range for month"
EMPTY = "containers: is empty (warning)"


def container(requests: dict[str, str], limits: dict[str, str] | None = None) -> dict[str, Any]:
    return {"resources": {"requests": requests, "limits": limits}}


@pytest.mark.parametrize(
    ("api_version", "kind", "parts", "want"),
    [
        ("v1", "Pod", {}, [f"spec.{EMPTY}"]),
        ("v1", "Pod", {"spec": {"containers": None}}, [f"spec.{EMPTY}"]),
        ("v1", "Pod", {"spec": {"containers": ONE}}, []),
        (
            "v1",
            "Pod",
            {"metadata": {}},
            ["metadata.name: is empty", "metadata.namespace: is empty (warning)", f"spec.{EMPTY}"],
        ),
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
            {"spec": {"containers": ONE, "overhead": {"cpu": "-1"}, "resources": {"requests": {"memory": "-1Gi"}}}},
            ["spec.resources.requests.memory: -1Gi is negative", "spec.overhead.cpu: -1 is negative"],
        ),
        (
            "v1",
            "Pod",
            {
                "spec": {
                    "containers": ONE,
                    "topologySpreadConstraints": [{"maxSkew": 0, "whenUnsatisfiable": "ScheduleAnyway"}],
                }
            },
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
        (
            "apps/v1",
            "Deployment",
            {"spec": {"replicas": -1}},
            ["spec.replicas: -1 is negative", f"spec.template.spec.{EMPTY}"],
        ),
        ("apps/v1", "DaemonSet", {"spec": None}, [f"spec.template.spec.{EMPTY}"]),
        (
            "apps/v1",
            "Deployment",
            {"spec": {"template": {"spec": {"containers": [container({"cpu": "-2"})]}}}},
            ["spec.template.spec.containers[0].resources.requests.cpu: -2 is negative"],
        ),
        (
            "batch/v1",
            "CronJob",
            {"spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": ONE, "restartPolicy": "No"}}}}}},
            [
                f'{CRON}.restartPolicy: "No" is not one of Always, Never, OnFailure (warning)',
            ],
        ),
        (
            "v1",
            "Pod",
            {
                "spec": {
                    "containers": [container({"cpu": "1e400", "memory": "16Ei", "a.b/c": "1500m"}, {"cpu": "1e400"})]
                }
            },
            [
                f"spec.containers[0].resources.requests.cpu: 10e399 is too large for 64 bits in thousandths{CUT}",
                f"spec.containers[0].resources.requests.memory: 9223372036854775807 is too large for 64 bits{CUT}",
                "spec.containers[0].resources.requests[a.b/c]: 1500m is not a whole number (warning)",
                f"spec.containers[0].resources.limits.cpu: 10e399 is too large for 64 bits in thousandths{CUT}",
            ],
        ),
        (
            "v1",
            "Pod",
            {
                "spec": {
                    "containers": [{"ports": [{"hostPort": 65536}, {"hostPort": -1, "protocol": "tcp"}, {}]}],
                }
            },
            [
                "spec.containers[0].ports[0].hostPort: 65536 is not between 1 and 65535 (warning)",
                "spec.containers[0].ports[1].hostPort: -1 is not between 1 and 65535 (warning)",
                'spec.containers[0].ports[1].protocol: "tcp" is not one of SCTP, TCP, UDP (warning)',
            ],
        ),
        (
            "v1",
            "Node",
            {"status": {"allocatable": {"pods": "1.5"}}},
            ["status.allocatable.pods: 1500m is not a whole number (warning)"],
        ),
        (
            "v1",
            "Node",
            {
                "metadata": {"name": "n", "creationTimestamp": "2024-02-30T00:00:00Z", "deletionTimestamp": ""},
                "spec": {"taints": [{"key": "a", "effect": "NoExecute", "timeAdded": "now"}]},
                "status": {"conditions": [{"type": "Ready", "lastTransitionTime": "2024-01-01"}]},
            },
            [
                f'metadata.creationTimestamp: "2024-02-30T00:00:00Z" is not an RFC 3339 time: {NO_DAY}',
                'metadata.deletionTimestamp: "" is not an RFC 3339 time',
                'spec.taints[0].timeAdded: "now" is not an RFC 3339 time',
                'status.conditions[0].lastTransitionTime: "2024-01-01" is not an RFC 3339 time',
            ],
        ),
        (
            "batch/v1",
            "Job",
            {"spec": {"completions": -2}},
            ["spec.completions: -2 is negative", f"spec.template.spec.{EMPTY}"],
        ),
        (
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            {"spec": {"minReplicas": 5, "maxReplicas": 3}},
            ["spec.minReplicas: 5 is above maxReplicas 3"],
        ),
    ],
)
def test_findings(api_version: str, kind: str, parts: dict[str, Any], want: list[str]) -> None:
    assert problems(api_version, kind, **parts) == want


@pytest.mark.parametrize("name", ["Node", "a\nb", "-a", "a..b", "a" * 254, "\x1b[31m"])
def test_names_that_no_object_has(name: str) -> None:
    (finding,) = problems("v1", "Node", metadata={"name": name})
    assert finding.startswith("metadata.name: ")
    assert finding.endswith("(warning)")
