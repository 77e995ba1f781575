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
        "kubernetes_version": "",
    }
    assert all(FEATURE_GATES.values())
    assert all(HPAOptions().gates[gate] for gate in FEATURE_GATES)


@pytest.mark.parametrize(
    ("version", "off"),
    [
        ("1.37", set()),
        ("v1.36.3", {"HPAScaleToZero", "HPAGeneration", "HPAOptimizedSelectorStore", "StaleControllerConsistencyHPA"}),
        ("1.35+", {"HPAScaleToZero", "HPAGeneration", "HPAOptimizedSelectorStore", "StaleControllerConsistencyHPA"}),
        ("v1.34.4-gke.100", {*FEATURE_GATES} - {"PodLevelResources"}),
    ],
)
def test_gates_are_as_by_default_in_a_version(version: str, off: set[str]) -> None:
    options = HPAOptions(kubernetes_version=version)
    assert {gate for gate in FEATURE_GATES if not options.gates[gate]} == off
    every = HPAOptions(kubernetes_version=version, feature_gates=dict.fromkeys(FEATURE_GATES, True))
    assert all(every.gates[gate] for gate in FEATURE_GATES)


def test_release_1_18_has_one_worker_and_no_gate() -> None:
    legacy = HPAOptions(profile="legacy")
    assert legacy.workers == 1
    assert not any(legacy.gates[gate] for gate in FEATURE_GATES)


def test_invalid_options_are_named() -> None:
    for fields, named in (
        ({"profile": "old"}, "unknown profile 'old'"),
        ({"feature_gates": {"HPANoSuch": True}}, "unrecognized feature gate: HPANoSuch"),
        ({"profile": "legacy", "feature_gates": {"HPAGeneration": True}}, "unrecognized feature gate: HPAGeneration"),
        ({"kubernetes_version": "1.33"}, "unknown version '1.33'; there are 1.34 to 1.37"),
        ({"kubernetes_version": "1.38.0"}, "unknown version '1.38.0'"),
        ({"kubernetes_version": "1.3"}, "unknown version '1.3'"),
        ({"kubernetes_version": "newest"}, "unknown version 'newest'"),
        ({"profile": "legacy", "kubernetes_version": "1.36"}, "the profile legacy has a version of its own"),
        ({"concurrent_horizontal_pod_autoscaler_syncs": 0}, "must be greater than 0, but got 0"),
    ):
        with pytest.raises(InputError, match=named):
            HPAOptions(**fields)
