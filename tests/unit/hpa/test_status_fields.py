"""Fields of a status: kept through conversion, written as upstream writes them, validated."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kscale.hpa import admit, from_v1, to_v1
from kscale.objects.decode import to_dict

CONDITION = {
    "type": "AbleToScale",
    "status": "True",
    "lastTransitionTime": "2026-03-02T12:00:00Z",
    "reason": "ReadyForNewScale",
    "message": "recommended size matches current size",
    "observedGeneration": 3,
}


def document(**status: Any) -> dict[str, Any]:
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "1"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 5,
            "metrics": [{"type": "Resource", "resource": cpu}],
        },
        "status": {"desiredReplicas": 1, **status},
    }


def test_the_generation_of_a_condition_is_kept() -> None:
    admitted = admit(document(conditions=[CONDITION]))
    assert admitted.hpa is not None
    assert to_dict(admitted.hpa)["status"]["conditions"] == [CONDITION]
    old = to_v1(admitted.hpa)
    text = (old.metadata.annotations or {})["autoscaling.alpha.kubernetes.io/conditions"]
    assert json.loads(text) == [CONDITION]
    assert text.endswith('"observedGeneration":3}]')  # in the order of the struct
    assert from_v1(old).status.conditions == admitted.hpa.status.conditions


@pytest.mark.parametrize("subresource", ["", "status"])
@pytest.mark.parametrize(("generation", "refused"), [(-1, True), (0, False), (7, False)])
def test_the_generation_of_a_condition_is_not_negative(subresource: str, generation: int, refused: bool) -> None:
    given = document(conditions=[{**CONDITION, "type": "Other"}, {**CONDITION, "observedGeneration": generation}])
    path = "status.conditions[1].observedGeneration"
    want = [f"{path}: Invalid value: {generation}: must be greater than or equal to 0"] if refused else []
    assert [str(each) for each in admit(given, subresource=subresource).errors] == want
    before = document(conditions=[{**CONDITION, "type": "Other"}])
    assert [str(each) for each in admit(given, before, subresource=subresource).errors] == want
    assert [str(each) for each in admit(given, given, subresource=subresource).errors] == []  # it was so before


def test_what_is_no_int64_is_not_decoded() -> None:
    given = document(conditions=[{**CONDITION, "observedGeneration": 2**63}])
    text = admit(given).decode_error
    assert text is not None
    assert text.startswith("json: cannot unmarshal number 9223372036854775808 into Go struct field ")
    assert text.endswith("observedGeneration of type int64")


def test_a_metric_without_type_is_written_with_an_empty_one() -> None:
    admitted = admit(document(currentMetrics=[{}]))
    assert admitted.hpa is not None
    assert to_dict(admitted.hpa)["status"]["currentMetrics"] == [{"type": ""}]
