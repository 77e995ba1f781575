"""Upstream's own tables on the validation of VPA objects."""
# ruff: noqa: E501  (upstream texts stand on one line)

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.objects.decode import to_dict
from kscale.objects.quantity import Quantity
from kscale.vpa import AdmissionOptions, VpaIndex, admit_vpa, review
from kscale.vpa.admission.vpa_handler import validate_vpa
from unit.vpa.builders import BOOST, container, owned, pod, recommended, vpa

NOW = 1769299200 * 10**9  # 2026-01-25T00:00:00Z
ZERO = Quantity.zero()
MAX = 2**63 - 1


POLICY = "spec.resourcePolicy.containerPolicies[0]"
PER_VPA = "not supported when feature flag PerVPAConfig is disabled"


def policies(**fields: Any) -> dict[str, Any]:
    return {"resourcePolicy": {"containerPolicies": [{"containerName": "c", **fields}]}}


@pytest.mark.parametrize(
    ("spec", "gates", "text"),
    [
        (
            {"updatePolicy": {}},
            [],
            "spec.updatePolicy.updateMode: Required value: updateMode is required if UpdatePolicy is used",
        ),
        (
            {"updatePolicy": {"updateMode": "bad"}},
            [],
            'spec.updatePolicy.updateMode: Unsupported value: "bad": supported values: "InPlace", "InPlaceOrRecreate", "Initial", "Off", "Recreate"',
        ),
        ({"updatePolicy": {"updateMode": "InPlaceOrRecreate"}}, [], ""),
        (
            {"updatePolicy": {"updateMode": "Auto", "minReplicas": 0}},
            [],
            "spec.updatePolicy.minReplicas: Invalid value: 0: minReplicas has to be positive",
        ),
        (policies(containerName=""), [], f"{POLICY}.containerName: Required value"),
        (policies(mode="bad"), [], f'{POLICY}.mode: Unsupported value: "bad": supported values: "Auto", "Off"'),
        (
            {"recommenders": [{"name": "a"}, {"name": "b"}]},
            [],
            "spec.recommenders: Too many: 2: must have at most 1 item",
        ),
        (
            policies(minAllowed={"cpu": "100"}, maxAllowed={"cpu": "10"}),
            [],
            f'{POLICY}.maxAllowed[cpu]: Invalid value: "10": max resource for cpu is lower than min of "100"',
        ),
        (
            policies(minAllowed={"cpu": "187500u"}),
            [],
            f'{POLICY}.minAllowed[cpu]: Invalid value: "187500u": must be a whole number of milli CPUs',
        ),
        (
            policies(maxAllowed={"cpu": "187500u"}),
            [],
            f'{POLICY}.maxAllowed[cpu]: Invalid value: "187500u": must be a whole number of milli CPUs',
        ),
        (
            policies(minAllowed={"memory": "100m"}),
            [],
            f'{POLICY}.minAllowed[memory]: Invalid value: "100m": must be a whole number of bytes',
        ),
        (
            policies(memoryAggregationIntervalSeconds=0),
            ["PerVPAConfig"],
            f"{POLICY}.memoryAggregationIntervalSeconds: Invalid value: 0: must be greater than or equal to 1",
        ),
        (
            policies(memoryAggregationIntervalCount=0),
            ["PerVPAConfig"],
            f"{POLICY}.memoryAggregationIntervalCount: Invalid value: 0: must be greater than or equal to 1",
        ),
        (
            policies(maxAllowed={"memory": "500m"}),
            [],
            f'{POLICY}.maxAllowed[memory]: Invalid value: "500m": must be a whole number of bytes',
        ),
        (
            policies(mode="Off", controlledValues="RequestsAndLimits"),
            [],
            f"{POLICY}.controlledValues: Forbidden: controlledValues shouldn't be specified if container scaling mode is off",
        ),
        (
            policies(
                mode="Auto", minAllowed={"cpu": "1"}, maxAllowed={"cpu": "2"}, controlledValues="RequestsAndLimits"
            ),
            [],
            "",
        ),
        (
            {"startupBoost": BOOST},
            [],
            "spec.startupBoost: Forbidden: in order to use startupBoost, you must enable feature gate CPUStartupBoost in the admission-controller args",
        ),
        (
            policies(startupBoost=BOOST),
            [],
            f"{POLICY}.startupBoost: Forbidden: in order to use startupBoost, you must enable feature gate CPUStartupBoost in the admission-controller args",
        ),
        (
            {"startupBoost": {"cpu": {"type": "Factor", "factor": 0}}},
            ["CPUStartupBoost"],
            "spec.startupBoost.cpu.factor: Invalid value: 0: must be >= 1 for type Factor",
        ),
        (
            {"startupBoost": {"cpu": {"type": "Quantity", "quantity": "187500u"}}},
            ["CPUStartupBoost"],
            'spec.startupBoost.cpu.quantity: Invalid value: "187500u": must be a whole number of milli CPUs',
        ),
        (
            {"startupBoost": {"cpu": {"type": "bad"}}},
            ["CPUStartupBoost"],
            'spec.startupBoost.cpu.type: Unsupported value: "bad": supported values: "Factor", "Quantity"',
        ),
        (
            {"startupBoost": {"cpu": {"type": ""}}},
            ["CPUStartupBoost"],
            "spec.startupBoost.cpu.type: Required value: must be either Factor or Quantity",
        ),
        (
            policies(oomBumpUpRatio="-1"),
            ["PerVPAConfig"],
            f"{POLICY}.oomBumpUpRatio: Invalid value: -1: must be greater than or equal to 1.0",
        ),
        (
            policies(oomBumpUpRatio="0.5"),
            ["PerVPAConfig"],
            f"{POLICY}.oomBumpUpRatio: Invalid value: 0.5: must be greater than or equal to 1.0",
        ),
        (
            policies(oomMinBumpUp="-1"),
            ["PerVPAConfig"],
            f"{POLICY}.oomMinBumpUp: Invalid value: -1: must be greater than or equal to 0",
        ),
        (policies(oomBumpUpRatio="2"), [], f"{POLICY}.oomBumpUpRatio: Forbidden: {PER_VPA}"),
        (policies(oomMinBumpUp="2"), [], f"{POLICY}.oomMinBumpUp: Forbidden: {PER_VPA}"),
        (
            policies(memoryAggregationIntervalSeconds=1),
            [],
            f"{POLICY}.memoryAggregationIntervalSeconds: Forbidden: {PER_VPA}",
        ),
        (
            policies(memoryAggregationIntervalCount=1),
            [],
            f"{POLICY}.memoryAggregationIntervalCount: Forbidden: {PER_VPA}",
        ),
        (
            policies(memoryAggregationIntervalSeconds=-5),
            ["PerVPAConfig"],
            f"{POLICY}.memoryAggregationIntervalSeconds: Invalid value: -5: must be greater than or equal to 1",
        ),
        (
            policies(memoryAggregationIntervalCount=-3),
            ["PerVPAConfig"],
            f"{POLICY}.memoryAggregationIntervalCount: Invalid value: -3: must be greater than or equal to 1",
        ),
        (
            {"updatePolicy": {"updateMode": "Off", "evictAfterOOMSeconds": 5}},
            [],
            f"spec.updatePolicy.evictAfterOOMSeconds: Forbidden: {PER_VPA}",
        ),
        (
            {"updatePolicy": {"updateMode": "InPlace"}},
            [],
            "spec.updatePolicy.updateMode: Forbidden: in order to use UpdateMode InPlace, you must enable feature gate InPlace in the admission-controller args",
        ),
        (
            policies(controlledResources=["cpu", "broken"]),
            [],
            f'{POLICY}.controlledResources[1]: Unsupported value: "broken": supported values: "cpu", "memory"',
        ),
    ],
)
def test_validation(spec: dict[str, Any], gates: list[str], text: str) -> None:
    result = admit_vpa(vpa(**spec), options=AdmissionOptions(feature_gates=dict.fromkeys(gates, True)))
    assert [str(error) for error in result.errors] == ([text] if text else [])
    assert result.allowed == (not text)


def test_target_is_required_of_new_objects() -> None:
    bare = VerticalPodAutoscaler()
    errors, _ = validate_vpa(bare, None)
    text = "spec.targetRef: Required value: If you're using v1beta1 version of the API, please migrate to v1"
    assert [str(error) for error in errors] == [text]
    assert validate_vpa(bare, bare) == ([], [])


def test_errors_of_the_old_object_are_tolerated() -> None:
    broken = vpa(**policies(controlledResources=["cpu", "broken"]))
    unchanged = admit_vpa(broken, broken)
    assert unchanged.allowed
    assert unchanged.warnings == [
        (
            f'{POLICY}.controlledResources[1]: unsupported value "broken" is allowed only because it is present in the '
            'existing VPA object; supported values: "cpu", "memory"'
        )
    ]
    for spec in ({"updatePolicy": {"updateMode": "InPlace"}}, policies(oomMinBumpUp="2"), {"startupBoost": BOOST}):
        assert admit_vpa(vpa(**spec), vpa(**spec)).allowed


KEYS = (
    "metadata", "name", "namespace", "annotations", "ownerReferences", "spec", "containers", "resources", "requests",
    "limits", "cpu", "targetRef", "updatePolicy", "updateMode", "minReplicas", "resourcePolicy", "containerPolicies",
    "containerName", "minAllowed", "startupBoost", "operation", "requestKind", "kind", "c", "status",
)  # fmt: skip


def test_review() -> None:
    index = VpaIndex([vpa(recommended("c", ("1", None)))])
    request = {
        "uid": "u1",
        "namespace": "default",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": to_dict(pod(container("c"))),
    }
    answer = msgspec.json.decode(review(msgspec.json.encode({"request": request}), index, controllers=owned()).body)
    assert answer["response"]["uid"] == "u1"
    assert answer["response"]["patchType"] == "JSONPatch"
    for body in (b"{", b"[]", b'{"request": 5}'):
        done = review(body, index)
        assert (done.status, msgspec.json.decode(done.body)["response"]["allowed"]) == ("error", True)
    resource = {"group": "autoscaling.k8s.io", "version": "v1", "resource": "verticalpodautoscalers"}
    bad = {"metadata": {"name": "x"}, "spec": {"updatePolicy": {}}}
    body = msgspec.json.encode({"request": {"uid": "u2", "resource": resource, "object": bad}})
    response = msgspec.json.decode(review(body, index).body)["response"]
    assert (response["allowed"], response["status"]["code"], response["status"]["reason"]) == (False, 422, "Invalid")
    other = {"group": "apps", "version": "v1", "resource": "deployments"}
    done = review(msgspec.json.encode({"request": {"uid": "u3", "resource": other}}), index)
    assert done.messages == ["not supported resource type: deployments.apps"]


@pytest.mark.parametrize("resource", ["pods", "verticalpodautoscalers.autoscaling.k8s.io"])
@pytest.mark.parametrize("depth", [500, 796, 797, 5000, 100_000])
def test_a_review_that_is_nested_deeply_is_answered(resource: str, depth: int) -> None:
    name, _, group = resource.partition(".")
    about = msgspec.json.encode({"group": group, "version": "v1", "resource": name})
    nested = b'{"a":' * depth + b"1" + b"}" * depth
    body = b'{"request": {"uid": "u", "resource": %b, "object": {"spec": {"x": %b}}}}' % (about, nested)
    done = review(body, VpaIndex([]))
    assert (done.messages == ["the review is nested too deeply"]) == (depth + 4 > 800)  # with the levels around it
    assert done.status == "error" or depth + 4 <= 800
    assert msgspec.json.decode(done.body)["response"]["allowed"] is True or name != "pods"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=25,
)


@given(JSON, JSON, st.sampled_from(["pods", "verticalpodautoscalers", "deployments"]), JSON)
def test_every_review_is_answered_and_no_pod_is_refused(obj: Any, old: Any, resource: str, more: Any) -> None:
    group = "autoscaling.k8s.io" if resource == "verticalpodautoscalers" else ""
    about = {"group": group, "version": "v1", "resource": resource}
    request = {"uid": "u", "resource": about, "object": obj, "oldObject": old, "operation": "UPDATE"}
    if isinstance(more, dict):
        request |= {key: value for key, value in more.items() if key != "resource"}
    done = review(msgspec.json.encode({"request": request}), VpaIndex([vpa(recommended("c", ("1", None)))]))
    if resource != "verticalpodautoscalers":
        assert msgspec.json.decode(done.body)["response"]["allowed"] is True


def test_auto_is_only_warned_about() -> None:
    result = admit_vpa(vpa(updatePolicy={"updateMode": "Auto"}))
    assert (result.allowed, result.errors) == (True, [])
    assert [text[:52] for text in result.warnings] == ['spec.updatePolicy: "Auto" mode is deprecated and wil']


def test_a_changed_object_needs_no_target() -> None:
    vpa_ = vpa(targetRef=None)
    assert admit_vpa(vpa_, vpa_).allowed


def reviewed(**request: Any) -> dict[str, Any]:
    resource = {"group": "autoscaling.k8s.io", "version": "v1", "resource": "verticalpodautoscalers"}
    body = msgspec.json.encode({"request": {"uid": "u", "resource": resource, **request}})
    response: dict[str, Any] = msgspec.json.decode(review(body, VpaIndex([])).body)["response"]
    return response


def test_a_refusal_names_the_request_and_each_field() -> None:
    bad = {"metadata": {"name": "x"}, "spec": {"updatePolicy": {"updateMode": "Off", "minReplicas": 0}}}
    answer = reviewed(operation="CREATE", name="mine", requestKind={"kind": "VPA"}, object=bad)
    text = "Invalid value: 0: minReplicas has to be positive"
    assert answer["status"] == {
        "metadata": {},
        "status": "Failure",
        "message": f'VPA.autoscaling.k8s.io "mine" is invalid: spec.updatePolicy.minReplicas: {text}',
        "reason": "Invalid",
        "details": {
            "name": "mine",
            "group": "autoscaling.k8s.io",
            "kind": "VPA",
            "causes": [{"reason": "FieldValueInvalid", "message": text, "field": "spec.updatePolicy.minReplicas"}],
        },
        "code": 422,
    }
    assert "patch" not in answer


def test_the_old_object_counts_on_updates_only() -> None:
    mine = {"metadata": {"name": "x"}, "spec": {"updatePolicy": {"updateMode": "InPlace"}}}
    assert reviewed(operation="UPDATE", object=mine, oldObject=mine)["allowed"]
    for operation in ("CREATE", "DELETE"):
        assert not reviewed(operation=operation, object=mine, oldObject=mine)["allowed"]
    assert not reviewed(operation="UPDATE", object=mine, oldObject={"spec": 1})["allowed"]


def test_an_empty_boost_counts_for_containers_only() -> None:
    """``startupBoost: {}`` of the whole pod does not let the feature through, that of a container does."""
    empty_boost, container_ = vpa(startupBoost={}), vpa(**policies(startupBoost={}))
    assert not admit_vpa(vpa(startupBoost=BOOST), empty_boost).allowed
    assert admit_vpa(vpa(startupBoost=BOOST), container_).allowed
