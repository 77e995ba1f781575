"""Fields of a status: kept through conversion, written as upstream writes them, validated."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kscale.hpa import Admission, HPAOptions, admit, from_v1, read_dump, to_v1
from kscale.objects.api.autoscaling import HorizontalPodAutoscalerStatus
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


def test_observed_generation_of_conditions_is_preserved() -> None:
    admitted = admit(document(conditions=[CONDITION]), document(), subresource="status")
    assert admitted.hpa is not None
    assert to_dict(admitted.hpa)["status"]["conditions"] == [CONDITION]
    old = to_v1(admitted.hpa)
    text = (old.metadata.annotations or {})["autoscaling.alpha.kubernetes.io/conditions"]
    assert json.loads(text) == [CONDITION]
    assert text.endswith('"observedGeneration":3}]')  # in the order of the struct
    assert from_v1(old).status.conditions == admitted.hpa.status.conditions


def texts(admission: Admission) -> list[str]:
    return [str(each) for each in admission.errors]


@pytest.mark.parametrize(("generation", "refused"), [(-1, True), (0, False), (7, False)])
def test_a_write_to_the_status_refuses_a_negative_generation_of_a_condition(generation: int, refused: bool) -> None:
    written = document(conditions=[{**CONDITION, "type": "Other"}, {**CONDITION, "observedGeneration": generation}])
    path = "status.conditions[1].observedGeneration"
    want = [f"{path}: Invalid value: {generation}: must be greater than or equal to 0"] if refused else []
    before = document(conditions=[{**CONDITION, "type": "Other"}])
    assert texts(admit(written, before, subresource="status")) == want
    assert texts(admit(written, written, subresource="status")) == want  # the rule does not look at the old object


def test_the_conditions_are_validated_before_the_sizes() -> None:
    written = document(conditions=[{**CONDITION, "observedGeneration": -1}], currentReplicas=-5, desiredReplicas=-6)
    assert [error.field for error in admit(written, document(), subresource="status").errors] == [
        "status.conditions[0].observedGeneration",
        "status.currentReplicas",
        "status.desiredReplicas",
    ]


def test_a_new_object_has_neither_status_nor_a_generation_of_its_own() -> None:
    written = document(conditions=[{**CONDITION, "observedGeneration": -1}], currentReplicas=-5)
    written["metadata"]["generation"] = 7
    admitted = admit(written)
    assert texts(admitted) == []
    assert admitted.hpa is not None
    assert admitted.defaulted is not None
    assert admitted.hpa.status == HorizontalPodAutoscalerStatus()
    assert admitted.hpa.metadata.generation == 1
    assert admitted.defaulted.status.current_replicas == -5
    off = admit(written, options=HPAOptions(feature_gates={"HPAGeneration": False}))
    assert off.hpa is not None
    assert off.hpa.metadata.generation == 7


def test_an_update_leaves_the_status_and_counts_changes_of_the_spec() -> None:
    old = document(currentReplicas=2, conditions=[{**CONDITION, "observedGeneration": -1}])
    old["metadata"]["generation"] = 4
    written = document(currentReplicas=-5, conditions=[{**CONDITION, "observedGeneration": -2}])
    written["metadata"] |= {"generation": 40, "uid": "", "labels": {"a": "b"}}
    same = admit(written, old)
    assert texts(same) == []
    assert same.hpa is not None
    assert same.hpa.status.current_replicas == 2
    assert (same.hpa.metadata.generation, same.hpa.metadata.uid, same.hpa.metadata.labels) == (4, "u", {"a": "b"})
    written["spec"] = {**written["spec"], "maxReplicas": 6}
    changed = admit(written, old)
    assert changed.hpa is not None
    assert (changed.hpa.metadata.generation, changed.hpa.spec.max_replicas) == (5, 6)


def test_a_spec_that_means_the_same_is_no_change() -> None:
    queue: dict[str, Any] = {"metric": {"name": "jobs"}, "target": {"type": "Value", "value": "1500m"}}
    old, written = document(), document()
    old["metadata"]["generation"] = 4
    old["spec"] = {**old["spec"], "metrics": [{"type": "External", "external": queue}]}
    same = {"metric": {"name": "jobs"}, "target": {"type": "Value", "value": "1.5"}}
    written["spec"] = {**old["spec"], "metrics": [{"type": "External", "external": same}], "minReplicas": 1}
    admitted = admit(written, old)
    assert admitted.hpa is not None
    assert admitted.hpa.metadata.generation == 4


def test_a_write_to_the_status_leaves_the_spec_and_the_generation() -> None:
    old, written = document(), document(currentReplicas=3)
    old["metadata"]["generation"] = 4
    written["spec"] = {**written["spec"], "maxReplicas": -1}
    admitted = admit(written, old, subresource="status")
    assert texts(admitted) == []
    assert admitted.hpa is not None
    assert (admitted.hpa.spec.max_replicas, admitted.hpa.status.current_replicas) == (5, 3)
    assert admitted.hpa.metadata.generation == 4


def test_an_object_of_a_dump_keeps_its_status() -> None:
    written = document(currentReplicas=3, conditions=[{**CONDITION, "observedGeneration": -1}])
    for version in ("1", ""):
        written["metadata"]["resourceVersion"] = version
        (hpa,) = read_dump(json.dumps(written).encode()).hpas.values()
        assert hpa.status.current_replicas == 3


def test_values_beyond_int64_are_a_decode_error() -> None:
    document_ = document(conditions=[{**CONDITION, "observedGeneration": 2**63}])
    text = admit(document_).decode_error
    assert text is not None
    assert text.startswith("json: cannot unmarshal number 9223372036854775808 into Go struct field ")
    assert text.endswith("observedGeneration of type int64")


def test_a_metric_without_type_is_written_with_an_empty_one() -> None:
    admitted = admit(document(currentMetrics=[{}]), document(), subresource="status")
    assert admitted.hpa is not None
    assert to_dict(admitted.hpa)["status"]["currentMetrics"] == [{"type": ""}]
