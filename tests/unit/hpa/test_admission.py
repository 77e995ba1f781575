"""Fields behind a gate, as the API server drops them."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from kscale.errors import InputError
from kscale.hpa.api.admission import admit
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler
from kscale.objects.decode import from_dict


@pytest.mark.parametrize(
    ("gate", "stored", "is_stored"), [(True, False, True), (False, False, False), (False, True, True)]
)
def test_a_tolerance_is_dropped_without_its_gate(gate: bool, stored: bool, is_stored: bool) -> None:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": reference, "maxReplicas": 3, "behavior": {"scaleUp": {"tolerance": "0.2"}}},
    }
    options = HPAOptions(feature_gates={"HPAConfigurableTolerance": gate})
    out = admit(hpa, hpa if stored else None, options=options).hpa
    assert out is not None
    assert out.spec.behavior is not None
    assert out.spec.behavior.scale_up is not None
    assert (out.spec.behavior.scale_up.tolerance is not None) == is_stored


class V2HorizontalPodAutoscaler:
    """As the models of the official client: attributes, and what they are called in the API."""

    openapi_types: ClassVar = {"metadata": "V1ObjectMeta", "spec": "object"}
    attribute_map: ClassVar = {"api_version": "apiVersion", "kind": "kind", "metadata": "metadata", "spec": "spec"}

    def __init__(self, document: dict[str, Any]) -> None:
        self.api_version = self.kind = None
        self.metadata, self.spec = document["metadata"], document["spec"]


def test_clients_objects_and_structs_are_taken_as_plain_data_is() -> None:
    document = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 3},
    }
    want = admit(document)
    assert want.hpa is not None
    assert admit(V2HorizontalPodAutoscaler(document)) == want
    assert admit(from_dict(document, HorizontalPodAutoscaler)) == want
    updated = admit(want.hpa, V2HorizontalPodAutoscaler(document))
    assert updated.hpa is not None
    assert (updated.hpa.spec, updated.errors) == (want.hpa.spec, ())


@pytest.mark.parametrize("value", [None, 5, "web", [1]])
def test_non_objects_are_an_input_error(value: Any) -> None:
    with pytest.raises(InputError, match="a HorizontalPodAutoscaler is a struct, a mapping or a client's object, not "):
        admit(value)
