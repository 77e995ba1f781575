"""Fields behind a gate, as the API server drops them."""

from __future__ import annotations

import pytest

from kscale.hpa.admission import admit
from kscale.hpa.options import HPAOptions


@pytest.mark.parametrize(("gate", "stored", "kept"), [(True, False, True), (False, False, False), (False, True, True)])
def test_a_tolerance_is_dropped_without_its_gate(gate: bool, stored: bool, kept: bool) -> None:
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
    assert (out.spec.behavior.scale_up.tolerance is not None) == kept
