"""What loops count has upstream's names and labels."""

from __future__ import annotations

import pytest

from builders import node
from kscale.ca import gpu
from kscale.ca.gpu import GpuConfig, get_dra_drivers_label, get_gpu_metric_labels
from kscale.ca.metrics import METRICS, build_observation
from kscale.objects.api.resource import ResourceSlice, ResourceSliceSpec
from kscale.objects.quantity import Quantity


def test_an_observation_has_the_labels_of_its_metric() -> None:
    created = build_observation("evicted_pods_total", eviction_result="failed")
    assert (created.name, created.labels) == ("cluster_autoscaler_evicted_pods_total", {"eviction_result": "failed"})
    with pytest.raises(ValueError, match="has the labels eviction_result, not result"):
        build_observation("evicted_pods_total", result="failed")
    assert all(name == metric.name for name, metric in METRICS.items())


def test_bounds_of_durations() -> None:
    bounds = METRICS["cluster_autoscaler_function_duration_seconds"].bounds
    assert (len(bounds), bounds[0]) == (150, 0.1)
    assert bounds[-1] == pytest.approx(1800)
    assert list(bounds) == sorted(bounds)


@pytest.mark.parametrize(
    ("labels", "gpus", "want"),
    [
        ({}, 0, ("", "")),
        ({"gpu": "a100"}, 1, ("nvidia.com/gpu", "a100")),
        ({"gpu": "other"}, 1, ("nvidia.com/gpu", "not-listed")),
        ({}, 1, ("nvidia.com/gpu", "generic")),
        ({"gpu": "a100"}, 0, ("nvidia.com/gpu", "unexpected-label")),
    ],
)
def test_gpu_labels(labels: dict[str, str], gpus: int, want: tuple[str, str]) -> None:
    machine = node("n", 1000, 1000, labels=labels)
    if gpus:
        for amounts in (machine.status.capacity, machine.status.allocatable):
            assert amounts is not None
            amounts["nvidia.com/gpu"] = Quantity(str(gpus))
    assert tuple(get_gpu_metric_labels("gpu", machine, {"a100"}).values()) == want


def test_a_gpu_that_is_a_device_of_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    config = GpuConfig(label="gpu", type="a100", resource_name="", dra_driver="gpu.nvidia.com")
    monkeypatch.setattr(gpu, "get_gpu_config", lambda *_: config)
    result = get_gpu_metric_labels("gpu", node("n", 1000, 1000), {"a100"})
    assert result == {"gpu_resource_name": "dra_gpu.nvidia.com", "gpu_name": "a100"}


def test_drivers() -> None:
    slices = [ResourceSlice(spec=ResourceSliceSpec(driver=name)) for name in ("driver2", "dra.net", "driver3")]
    assert get_dra_drivers_label(slices) == "custom.driver,dra.net"
    assert get_dra_drivers_label([]) == ""
