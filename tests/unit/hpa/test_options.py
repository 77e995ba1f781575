"""Upstream's flags and feature gates with their defaults (``cmd/kube-controller-manager``, ``pkg/features``)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import asdict

from kscale.errors import InputError
from kscale.hpa.options import FEATURE_GATES, HPAOptions


def test_the_defaults_are_upstreams() -> None:
    assert asdict(HPAOptions()) == {
        "concurrent_horizontal_pod_autoscaler_syncs": 5,
        "horizontal_pod_autoscaler_sync_period": timedelta(seconds=15),
        "horizontal_pod_autoscaler_downscale_stabilization": timedelta(minutes=5),
        "horizontal_pod_autoscaler_tolerance": 0.1,
        "horizontal_pod_autoscaler_cpu_initialization_period": timedelta(minutes=5),
        "horizontal_pod_autoscaler_initial_readiness_delay": timedelta(seconds=30),
        "feature_gates": {},
        "profile": "current",
    }
    assert all(FEATURE_GATES.values())
    assert all(HPAOptions().enabled(gate) for gate in FEATURE_GATES)


def test_release_1_18_has_one_worker_and_no_gate() -> None:
    legacy = HPAOptions(profile="legacy")
    assert legacy.workers == 1
    assert not any(legacy.enabled(gate) for gate in FEATURE_GATES)


def test_what_is_no_option_is_named() -> None:
    for given, named in (
        ({"profile": "old"}, "unknown profile 'old'"),
        ({"feature_gates": {"HPANoSuch": True}}, "unrecognized feature gate: HPANoSuch"),
        ({"profile": "legacy", "feature_gates": {"HPAGeneration": True}}, "unrecognized feature gate: HPAGeneration"),
        ({"concurrent_horizontal_pod_autoscaler_syncs": 0}, "must be greater than 0, but got 0"),
    ):
        with pytest.raises(InputError, match=named):
            HPAOptions(**given)
