"""The quality of service of pods, as ``GetPodQOS`` has it."""

from __future__ import annotations

from typing import Any

import pytest

from kscale.objects.api.core import Pod
from kscale.objects.decode import from_dict
from kscale.objects.pod_resources import is_guaranteed

BOTH = {"cpu": "1", "memory": "1Gi"}


def pod(*resources: dict[str, Any], spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None) -> Pod:
    containers = [{"name": f"c{i}", "resources": each} for i, each in enumerate(resources)]
    data = {"metadata": {"name": "p"}, "spec": {"containers": containers, **(spec or {})}, "status": status or {}}
    return from_dict(data, Pod)


@pytest.mark.parametrize(
    ("pod_", "expected"),
    [
        (pod({"requests": BOTH, "limits": BOTH}), True),
        (pod({"limits": BOTH}), True),
        (pod({"requests": BOTH, "limits": {"cpu": "1000m", "memory": "1024Mi"}}), True),
        (pod({"limits": BOTH}, {"limits": BOTH}), True),
        (pod({"limits": BOTH}, {}), False),
        (pod({"requests": BOTH}), False),
        (pod({"requests": {"cpu": "500m"}, "limits": BOTH}), False),
        (pod({"limits": {"cpu": "1"}}), False),
        (pod({"limits": {"cpu": "0", "memory": "1Gi"}}), False),
        (pod(), False),
        (pod({"limits": BOTH}, spec={"initContainers": [{"name": "i"}]}), False),
        (pod({}, spec={"resources": {"limits": BOTH}}), True),
        (pod({}, status={"qosClass": "Guaranteed"}), True),
        (pod({"limits": BOTH}, status={"qosClass": "Burstable"}), False),
    ],
)
def test_guaranteed_pods_are_recognized(pod_: Pod, expected: bool) -> None:
    assert is_guaranteed(pod_) is expected
