"""Upstream's own tables on what pods get: provider, patches, startup boost."""

from __future__ import annotations

from typing import Any

import pytest

from kscale.objects.quantity import Quantity
from kscale.vpa import AdmissionOptions, admit_pod
from kscale.vpa.capping import LimitRangeError
from kscale.vpa.container_resources import (
    AnnotationError,
    BoostError,
    ProviderError,
    add_annotation,
    build_container_resources,
    escape_json_pointer,
    find_expired_boosts,
    format_observed_containers,
    parse_observed_containers,
    parse_original_resources,
    recommend_container_resources,
    remove_annotation,
)
from unit.vpa.builders import (
    REQUESTS_ONLY,
    Pair,
    container,
    limit_ranges,
    owned,
    pod,
    quantities,
    recommendation,
    recommended,
    vpa,
)

NOW = 1769299200 * 10**9  # 2026-01-25T00:00:00Z
ZERO = Quantity.zero()
MAX = 2**63 - 1


WITHIN = {
    "containerName": "c",
    "minAllowed": {"cpu": "1", "memory": "100Mi"},
    "maxAllowed": {"cpu": "3", "memory": "1Gi"},
}


class Broken:
    def effective(self, namespace: str, type_: str) -> None:
        raise LimitRangeError("oh no")


@pytest.mark.parametrize(
    ("target", "policy", "own", "limits", "requests", "limit", "notes"),
    [
        (("2", "200Mi"), WITHIN, container("c"), None, ("2", "200Mi"), None, []),
        (
            ("3", "150Mi"),
            {**WITHIN, "minAllowed": {"cpu": "4", "memory": "300Mi"}, "maxAllowed": {"cpu": "5", "memory": "1Gi"}},
            container("c"),
            None,
            ("4", "300Mi"),
            None,
            ["cpu capped to minAllowed", "memory capped to minAllowed"],
        ),
        (
            ("7", "2Gi"),
            {**WITHIN, "maxAllowed": {"cpu": "5", "memory": "1Gi"}},
            container("c"),
            None,
            ("5", "1Gi"),
            None,
            ["cpu capped to maxAllowed", "memory capped to maxAllowed"],
        ),
        (
            ("2", "200Mi"),
            WITHIN,
            container("c", ("2", "200Mi"), ("2", "200Mi")),
            None,
            ("2", "200Mi"),
            ("2", "200Mi"),
            [],
        ),
        (("2", "200Mi"), WITHIN, container("c", None, ("2", "200Mi")), None, ("2", "200Mi"), ("2", "200Mi"), []),
        (
            ("2", "200Mi"),
            WITHIN,
            container("c", ("1", "100Mi"), ("2", "200Mi")),
            None,
            ("2", "200Mi"),
            ("4", "400Mi"),
            [],
        ),
        (
            ("2", "200Mi"),
            {**WITHIN, "controlledValues": "RequestsOnly"},
            container("c", ("1", "100Mi"), ("2", "200Mi")),
            None,
            ("2", "200Mi"),
            None,
            [],
        ),
        (
            ("3", "500Mi"),
            {**WITHIN, "controlledValues": "RequestsOnly"},
            container("c", ("1", "100Mi"), ("2", "200Mi")),
            None,
            ("2", "200Mi"),
            None,
            ["cpu capped to container limit", "memory capped to container limit"],
        ),
        (
            ("2", "200Mi"),
            WITHIN,
            container("c", ("2", "100Mi")),
            limit_ranges("Container", default=("2", "100Mi")),
            ("2", "200Mi"),
            ("2", "200Mi"),
            [],
        ),
    ],
)
def test_provider(target: Any, policy: Any, own: Any, limits: Any, requests: Any, limit: Any, notes: Any) -> None:
    created = recommend_container_resources(pod(own), vpa(recommended("c", target), policies=[policy]), limits)
    assert created.containers[0].requests == quantities(requests)
    assert created.containers[0].limits == (quantities(limit) if limit is not None else None)
    assert created.notes["c"] == notes


def test_provider_without_recommendation_or_limit_ranges() -> None:
    assert recommend_container_resources(pod(container("c")), vpa()).containers == [(None, None)]
    with pytest.raises(ProviderError, match="error getting containerLimitRange: oh no"):
        recommend_container_resources(pod(container("c")), vpa(), Broken())
    item = recommended("c", ("2", "200Mi"))
    item["target"][""] = "1"
    assert recommend_container_resources(pod(container("c")), vpa(item)).containers[0].requests == quantities(
        ("2", "200Mi")
    )


@pytest.mark.parametrize(
    ("policies", "requests", "limits"),
    [(None, ("2", "1M"), ("20", "10M")), (REQUESTS_ONLY, ("2", "1M"), ("10", "10M"))],
)
def test_filling_in_from_the_pod(policies: Any, requests: Pair, limits: Pair) -> None:
    pod_ = pod(container("c", ("1", "1M"), ("10", "10M")))
    policy = vpa(policies=policies).spec.resource_policy if policies else None
    only_cpu = recommendation(recommended("c", ("2", None)))
    (created,) = build_container_resources(pod_, policy, only_cpu, None, {}, add_all=True)
    assert created == (quantities(requests), quantities(limits))
    (bare,) = build_container_resources(pod_, policy, only_cpu, None, {})
    assert bare.requests == quantities(("2", None))


def test_filling_in_from_the_status() -> None:
    statuses = [{"name": "c", "resources": container("c", ("1", "1M"), ("10", "3M"))["resources"]}]
    pod_ = pod(container("c"), status={"containerStatuses": statuses})
    rec = recommendation(recommended("c", ("3", "2M")))
    (created,) = build_container_resources(pod_, None, rec, None, {}, add_all=True)
    assert created == (quantities(("3", "2M")), quantities(("30", "6M")))
    (bare,) = build_container_resources(
        pod(container("c", ("1", "1M"), ("10", "10M"))), None, recommendation(recommended("c", ("2", None))), None, {}
    )
    assert bare.limits == quantities(("20", None))


def test_limits_that_leave_int64() -> None:
    own = container("c", ("1", "1"), ("10", "10"))
    created = recommend_container_resources(pod(own), vpa(recommended("c", ("1Ei", "1Ei"))))
    limits = created.containers[0].limits or {}
    assert (limits["cpu"].milli_value(), limits["memory"].value()) == (MAX, MAX)
    assert sum("failed to keep limit to request ratio" in note for note in created.notes["c"]) == 2


def patched(pod_: Any, *items: Any, gates: dict[str, bool] | None = None, cap_: str = "0", **spec: Any) -> Any:
    options = AdmissionOptions(feature_gates=gates or {}, max_allowed_cpu_boost=Quantity(cap_))
    return admit_pod(pod_, [vpa(*items, **spec)], controllers=owned(), options=options)


UPDATES = "/metadata/annotations/vpaUpdates"


@pytest.mark.parametrize(
    ("containers", "items", "paths", "note"),
    [
        (
            [container("c")],
            [recommended("c", ("1", None))],
            ["0/resources", "0/resources/requests", "0/resources/requests/cpu"],
            "container 0: cpu request",
        ),
        (
            [container("c", ("0", None))],
            [recommended("c", ("1", None))],
            ["0/resources/requests/cpu"],
            "container 0: cpu request",
        ),
        (
            [container("c", ("0", None)), container("d")],
            [recommended("c", ("1", None)), recommended("d", ("2", None))],
            ["0/resources/requests/cpu", "1/resources", "1/resources/requests", "1/resources/requests/cpu"],
            "container 0: cpu request; container 1: cpu request",
        ),
    ],
)
def test_patches(containers: Any, items: Any, paths: list[str], note: str) -> None:
    patches = patched(pod(*containers, annotations={}), *items).patches
    assert [p.path for p in patches if p.path.startswith("/spec")] == [f"/spec/containers/{path}" for path in paths]
    texts = {p.path: p.value for p in patches}
    assert texts[UPDATES] == f"Pod resources updated by name: {note}"
    assert texts["/metadata/annotations/vpaObservedContainers"] == ", ".join(c["name"] for c in containers)


def boosted(pod_: dict[str, Any], boost: dict[str, Any], item: Any, **more: Any) -> tuple[str | None, str | None, str]:
    gates = {"CPUStartupBoost": True}
    result = patched(pod(pod_, annotations={}), *item, gates=gates, startupBoost={"cpu": boost}, **more)
    assert not result.errors, result.errors
    values = {p.path: p.value for p in result.patches}
    base = "/spec/containers/0/resources"
    return (
        values.get(f"{base}/requests/cpu"),
        values.get(f"{base}/limits/cpu"),
        values.get("/metadata/annotations/vpaCpuStartupBoost~1c", ""),
    )


FACTOR_2 = {"type": "Factor", "factor": 2}


@pytest.mark.parametrize(
    ("amounts", "boost", "rec", "more", "expected"),
    [
        (("1m", "1m"), FACTOR_2, "100m", {}, ("200m", "200m")),
        (("1m", "1m"), {**FACTOR_2, "durationSeconds": 0}, "100m", {}, ("200m", "200m")),
        (("1m", "1m"), {"type": "Quantity", "quantity": "500m"}, "100m", {}, ("600m", "600m")),
        (("400m", "400m"), {"type": "Quantity", "quantity": "200m"}, "500m", {}, ("700m", "700m")),
        (("1m", "1m"), {"type": "Factor", "factor": 3}, "20m", {"cap_": "40m"}, ("40m", "40m")),
        (("100m", "100m"), FACTOR_2, None, {}, ("200m", "200m")),
        (("100m", "300m"), FACTOR_2, "100m", {"policies": REQUESTS_ONLY}, ("200m", None)),
        (("100m", "150m"), FACTOR_2, "100m", {"policies": REQUESTS_ONLY}, ("149m", None)),
        (("100m", "300m"), FACTOR_2, "150m", {}, ("300m", "900m")),
        (("100m", None), FACTOR_2, "150m", {}, ("300m", None)),
        (
            ("1m", "1m"),
            FACTOR_2,
            "100m",
            {"policies": [{"containerName": "c", "startupBoost": {"cpu": {"type": "Factor", "factor": 3}}}]},
            ("300m", "300m"),
        ),
    ],
)
def test_boost(amounts: Any, boost: Any, rec: str | None, more: Any, expected: Any) -> None:
    request, limit = amounts
    own = container("c", (request, None), (limit, None) if limit else None)
    item = [recommended("c", (rec, None))] if rec else []
    requests, limits, original = boosted(own, boost, item, **more)
    assert (requests, limits) == expected
    limits_text = f'{{"cpu":"{limit}"}}' if limit else "{}"
    assert original == f'{{"requests":{{"cpu":"{request}"}},"limits":{limits_text}}}'


def test_boost_that_does_not_happen() -> None:
    own, item = container("c", ("1m", None), ("1m", None)), recommended("c", ("100m", None))
    result = patched(pod(own), item, startupBoost={"cpu": FACTOR_2})
    assert "/metadata/annotations/vpaCpuStartupBoost~1c" not in {p.path for p in result.patches}
    off = [{"containerName": "c", "mode": "Off"}]
    result = patched(pod(own), item, gates={"CPUStartupBoost": True}, startupBoost={"cpu": FACTOR_2}, policies=off)
    assert not any(p.path.startswith("/spec") for p in result.patches)
    empty = [{"containerName": "c", "startupBoost": {}}]
    assert boosted(own, {**FACTOR_2}, [item], policies=empty)[2] == ""
    crashed = patched(pod(own), item, gates={"CPUStartupBoost": True}, startupBoost={"cpu": FACTOR_2}, policies=empty)
    assert crashed.diagnostics == ["container c: a startupBoost without cpu boosts nothing"]


@pytest.mark.parametrize(
    ("boost", "text"),
    [
        ({"type": "Factor", "factor": 0}, "boost factor must be >= 1"),
        ({"type": "Invalid"}, "unsupported startup boost type: Invalid"),
        ({"type": "Factor"}, "startupBoost.CPU.Factor is required when Type is Factor or not specified"),
        ({"type": "Quantity"}, "startupBoost.CPU.Quantity is required when Type is Quantity"),
    ],
)
def test_boosts_that_cannot_be(boost: Any, text: str) -> None:
    result = patched(
        pod(container("c")), recommended("c", ("1", None)), gates={"CPUStartupBoost": True}, startupBoost={"cpu": boost}
    )
    assert ([str(error) for error in result.errors], result.patches) == ([f".: Internal error: {text}"], [])


@pytest.mark.parametrize(
    ("boosts", "ready", "ago", "spec", "expected"),
    [
        ([], "True", 60, {}, []),
        (["c1"], "True", 1, {}, ["c1"]),
        (["c1"], "False", 600, {}, []),
        (["c1"], "True", 120, {"spec": 60}, ["c1"]),
        (["c1"], "True", 0, {"spec": 60}, []),
        (["c1", "c2"], "True", 120, {"c1": 180, "c2": 60}, ["c2"]),
        (["c1", "c2"], "True", 240, {"c1": 180, "c2": 60}, ["c1", "c2"]),
        (["c1"], "True", 240, {"spec": 300, "c1": 180}, ["c1"]),
    ],
)
def test_expiry_of_boosts(boosts: list[str], ready: str, ago: int, spec: dict[str, int], expected: list[str]) -> None:
    def boost(seconds: int) -> dict[str, Any]:
        return {"cpu": {"type": "Factor", "factor": 2, "durationSeconds": seconds}}

    since = (
        f"2026-01-24T23:{59 - (ago - 1) // 60 if ago else 59:02d}:{(60 - ago % 60) % 60:02d}Z"
        if ago
        else "2026-01-25T00:00:00Z"
    )
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": since}
    pod_ = pod(annotations={f"vpaCpuStartupBoost/{name}": "{}" for name in boosts}, status={"conditions": [condition]})
    policies = [{"containerName": name, "startupBoost": boost(spec[name])} for name in ("c1", "c2") if name in spec]
    more = {"startupBoost": boost(spec["spec"])} if "spec" in spec else {}
    assert find_expired_boosts(pod_, vpa(policies=policies, **more), NOW) == expected


def test_annotations() -> None:
    assert format_observed_containers(pod(container("test1"), container("test2"))) == "test1, test2"
    assert parse_observed_containers("test1, test2") == ["test1", "test2"]
    assert parse_observed_containers("") == []
    with pytest.raises(AnnotationError, match="is not a valid container name"):
        parse_observed_containers("test1, test3_;';s")
    assert escape_json_pointer("nvidia.com/gpu") == "nvidia.com~1gpu"
    assert escape_json_pointer("custom~domain.com/resource/name") == "custom~0domain.com~1resource~1name"
    assert add_annotation("a/b", "x").path == remove_annotation("a/b").path == "/metadata/annotations/a~1b"


def test_requests_in_the_status_are_patched_too() -> None:
    statuses = [{"name": "c", "resources": {"requests": {"cpu": "0"}}}]
    pod_ = pod(container("c"), annotations={}, status={"containerStatuses": statuses})
    patches = patched(pod_, recommended("c", ("1", None))).patches
    assert [p.path for p in patches if p.path.startswith("/spec")] == ["/spec/containers/0/resources/requests/cpu"]


def test_other_resources_and_containers_without_any() -> None:
    item = recommended("c", ("1", None))
    item["target"]["unobtanium"] = "2"
    patches = patched(pod(container("c"), container("d", ("1", None)), annotations={}), item).patches
    values = {p.path: p.value for p in patches}
    assert values["/spec/containers/0/resources/requests/unobtanium"] == "2"
    assert values[UPDATES] == "Pod resources updated by name: container 0: cpu request, unobtanium request"
    assert not any(path.startswith("/spec/containers/1") for path in values)


def test_pods_without_annotations_or_without_vpa() -> None:
    patches = patched(pod(container("c")), recommended("c", ("1", None))).patches
    assert (patches[0].path, patches[0].value) == ("/metadata/annotations", {})
    assert patches[-1].path == "/metadata/annotations/vpaObservedContainers"
    assert admit_pod(pod(container("c"), labels={"app": "z"}), [vpa()], controllers=owned()).patches == []


def test_an_empty_boost_matches_although_the_mode_is_off() -> None:
    """``HasStartupBoost`` does not look into it."""
    pod_ = pod(container("c", ("100m", None)))
    off = {"updatePolicy": {"updateMode": "Off"}}
    assert admit_pod(pod_, [vpa(**off)], controllers=owned()).patches == []
    (boosted,) = admit_pod(pod_, [vpa(**off, startupBoost={})], controllers=owned()).patches[-1:]
    assert boosted.path == "/metadata/annotations/vpaObservedContainers"


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"requests":5}', '{"requests":{"cpu":"x"}}', "[" * 5000, '{"a":' * 5000]
)
def test_invalid_boost_annotations_are_tolerated(text: str) -> None:
    """Whoever may change a pod writes it."""
    boosted_pod = pod(container("c"))
    boosted_pod.metadata.annotations = {"vpaCpuStartupBoost/c": text}
    with pytest.raises(BoostError, match="failed to read the startup boost annotation of container c"):
        parse_original_resources(boosted_pod, "c")
