"""Upstream's own tables on post-processors and checkpoints."""

from __future__ import annotations

from typing import Any

import pytest

from kscale.objects.api.vpa import VerticalPodAutoscalerCheckpoint
from kscale.objects.decode import from_dict
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import parse_selector
from kscale.vpa import RecommenderState
from kscale.vpa.recommender.checkpoints import load_checkpoints
from kscale.vpa.recommender.update_vpas import apply_vpa_policy as cap_to_policy
from kscale.vpa.recommender.update_vpas import find_integer_cpu_containers, get_container_name, round_up_integer_cpu
from unit.vpa.builders import recommendation, recommended, vpa
from unit.vpa.recorder import T0


@pytest.mark.parametrize(
    ("key", "prefix", "suffix", "name"),
    [
        ("abc", "a", "c", "b"),
        ("abc", "z", "x", ""),
        (
            "vpa-post-processor.kubernetes.io/kafka_integerCPU",
            "vpa-post-processor.kubernetes.io/",
            "_integerCPU",
            "kafka",
        ),
    ],
)
def test_annotation_names(key: str, prefix: str, suffix: str, name: str) -> None:
    assert get_container_name(key, prefix, suffix) == name


@pytest.mark.parametrize(("cpu", "rounded"), [("8.6", "9"), ("5.2", "6"), ("8", "8"), ("8.1", "9"), ("8.9", "9")])
def test_integer_cpu(cpu: str, rounded: str) -> None:
    annotations = {"vpa-post-processor.kubernetes.io/container1_integerCPU": "true"}
    recommended_ = recommendation(recommended("container1", (cpu, "200Mi")), recommended("container2", ("8.2", "1")))
    one, other = round_up_integer_cpu(recommended_, annotations).container_recommendations
    assert one.target == {"cpu": Quantity(rounded), "memory": Quantity("200Mi")}
    assert other.target == {"cpu": Quantity("8.2"), "memory": Quantity("1")}
    assert (
        round_up_integer_cpu(recommended_, {"vpa-post-processor.kubernetes.io/container1_integerCPU": "yes"})
        is recommended_
    )
    assert find_integer_cpu_containers({"vpa-post-processor.kubernetes.io/_integerCPU": "true"}) == set()


@pytest.mark.parametrize(
    ("policy", "most", "expected"),
    [
        ({}, {}, (42, 31, 53)),
        ({"minAllowed": 50}, {}, (50, 50, 53)),
        ({"maxAllowed": 40}, {}, (40, 31, 40)),
        ({}, {"both": 40}, (40, 31, 40)),
        ({"minAllowed": 35}, {"both": 50}, (42, 35, 50)),
    ],
)
def test_policy_bounds(policy: dict[str, int], most: dict[str, int], expected: tuple[int, int, int]) -> None:
    def both(number: int) -> tuple[str, str]:
        return f"{number}m", f"{number}Mi"

    item = recommended("foo", both(42), both(31), both(53))
    item["uncappedTarget"] = item["target"]
    bounds = {key: dict(zip(("cpu", "memory"), both(number), strict=True)) for key, number in policy.items()}
    vpa_ = vpa(policies=[{"containerName": "foo", **bounds}] if policy else None)
    limit = {k: Quantity(v) for k, v in zip(("cpu", "memory"), both(most["both"]), strict=True)} if most else None
    capped = cap_to_policy(recommendation(item), vpa_.spec.resource_policy, limit)
    assert capped is not None
    (created,) = capped.container_recommendations
    for result, number in zip(
        (created.target, created.lower_bound, created.upper_bound, created.uncapped_target),
        (*expected, 42),
        strict=True,
    ):
        assert result == {k: Quantity(v) for k, v in zip(("cpu", "memory"), both(number), strict=True)}
    assert cap_to_policy(None, None) is None


@pytest.mark.parametrize(
    ("most", "cpu", "memory"),
    [
        ({"memory": "40Mi"}, ("40m", "31m", "40m"), ("40Mi", "31Mi", "40Mi")),
        ({"cpu": "30m", "memory": "30Mi"}, ("40m", "31m", "40m"), ("30Mi", "30Mi", "30Mi")),
    ],
)
def test_policy_and_global_bounds_are_merged_by_resource(
    most: dict[str, str], cpu: tuple[str, ...], memory: tuple[str, ...]
) -> None:
    item = recommended("foo", ("42m", "42Mi"), ("31m", "31Mi"), ("53m", "53Mi"))
    policy = vpa(policies=[{"containerName": "foo", "maxAllowed": {"cpu": "40m"}}]).spec.resource_policy
    capped = cap_to_policy(recommendation(item), policy, {name: Quantity(text) for name, text in most.items()})
    assert capped is not None
    (created,) = capped.container_recommendations
    for result, amounts in zip(
        (created.target, created.lower_bound, created.upper_bound), zip(cpu, memory, strict=True), strict=True
    ):
        assert result == {"cpu": Quantity(amounts[0]), "memory": Quantity(amounts[1])}
    assert policy is not None
    assert policy.container_policies[0].max_allowed == {"cpu": Quantity("40m")}


@pytest.mark.parametrize(
    ("vpa_name", "status", "text"),
    [
        ("gone", {}, "cannot load checkpoint to missing VPA object default/gone"),
        (
            "name",
            {"version": "foo"},
            "cannot load checkpoint for VPA default/name. Reason: unsupported checkpoint version foo",
        ),
        (
            "name",
            {"version": "v3", "memoryHistogram": {"bucketWeights": {"176": 1}, "totalWeight": 1.0}},
            (
                "cannot load checkpoint for VPA default/name. "
                "Reason: checkpoint has bucket 176 that is exceeding histogram buckets 176"
            ),
        ),
    ],
)
def test_bad_checkpoints(vpa_name: str, status: dict[str, Any], text: str) -> None:
    state = RecommenderState()
    state.add_vpa(vpa(), parse_selector("app=x"))
    body = {
        "metadata": {"namespace": "default"},
        "spec": {"vpaObjectName": vpa_name, "containerName": "c"},
        "status": status,
    }
    assert load_checkpoints(state, [from_dict(body, VerticalPodAutoscalerCheckpoint)], T0) == [text]
