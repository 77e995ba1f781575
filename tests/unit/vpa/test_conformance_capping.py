"""Upstream's own tables on the capping processor."""

from __future__ import annotations

from typing import Any

import pytest

from kscale.objects.quantity import Quantity
from kscale.vpa.capping import POD_LIMIT, CappingError, apply_pod_limit_range, cap_recommendation
from unit.vpa.builders import (
    REQUESTS_ONLY,
    Pair,
    container,
    limit_ranges,
    pod,
    quantities,
    recommendation,
    recommended,
    vpa,
)

NOW = 1769299200 * 10**9  # 2026-01-25T00:00:00Z
ZERO = Quantity.zero()
MAX = 2**63 - 1


def test_nothing_to_cap() -> None:
    with pytest.raises(CappingError, match="cannot process nil vpa"):
        cap_recommendation(None, pod())
    with pytest.raises(CappingError, match="cannot process nil pod"):
        cap_recommendation(vpa(), None)
    assert cap_recommendation(vpa(), pod(container("c")))[:2] == (None, {})
    capped = cap_recommendation(vpa(recommended("other", ("1", "1Gi"))), pod(container("c")))
    assert capped.recommendation == recommendation()
    assert capped.notes == {}


CONTAINER_MAX_MIN = limit_ranges("Container", max=("1", None), min=(None, "500M"))
CONTAINER_MIN = limit_ranges("Container", min=(None, "500M"))
MIN_NOTE, MAX_NOTE = "capped to fit Min in container LimitRange", "capped to fit Max in container LimitRange"


@pytest.mark.parametrize(
    ("vpa_", "pod_", "limits", "target", "upper", "notes"),
    [
        (
            vpa(recommended("c", ("20", "80000"), None, ("100", "90000"))),
            pod(container("c", None, ("30", "70000"))),
            None,
            ("20", "80000"),
            ("100", "90000"),
            [],
        ),
        (
            vpa(recommended("c", ("20", "80000"), None, ("100", "90000")), policies=REQUESTS_ONLY),
            pod(container("c", None, ("30", "70000"))),
            None,
            ("20", "70000"),
            ("30", "70000"),
            ["memory capped to container limit"],
        ),
        (
            vpa(
                recommended("c", ("300", "50000"), ("200", "43000"), ("500", "55000")),
                policies=[
                    {
                        "containerName": "c",
                        "minAllowed": {"cpu": "400", "memory": "40000"},
                        "maxAllowed": {"cpu": "450", "memory": "45000"},
                    }
                ],
            ),
            pod(container("c")),
            None,
            ("400", "45000"),
            ("450", "45000"),
            ["cpu capped to minAllowed", "memory capped to maxAllowed"],
        ),
        (
            vpa(recommended("c", ("2", "200M"), None, ("2", "200M"))),
            pod(container("c", ("1", "1G"), ("1", "1G"))),
            CONTAINER_MAX_MIN,
            ("1", "500M"),
            ("1", "500M"),
            [f"cpu {MAX_NOTE}", f"memory {MIN_NOTE}"],
        ),
        (
            vpa(recommended("c", ("1", "200M"), None, ("1", "200M"))),
            pod(container("c", ("1", "50M"), ("1", "600M"))),
            CONTAINER_MIN,
            ("1", "500M"),
            ("1", "500M"),
            [f"memory {MIN_NOTE}"],
        ),
        (
            vpa(recommended("c", ("1", "200M"), None, ("1", "200M")), policies=REQUESTS_ONLY),
            pod(container("c", ("1", "50M"), ("1", "100M"))),
            CONTAINER_MIN,
            ("1", "100M"),
            ("1", "100M"),
            [f"memory {MIN_NOTE}", "memory capped to container limit"],
        ),
        (
            vpa(recommended("c", ("1", "200M"), None, ("1", "200M")), policies=REQUESTS_ONLY),
            pod(container("c", ("1", "50M"), ("1", "100M"))),
            limit_ranges(POD_LIMIT, min=(None, "500M")),
            ("1", "100M"),
            ("1", "100M"),
            ["memory capped to container limit"],
        ),
    ],
)
def test_capping(vpa_: Any, pod_: Any, limits: Any, target: Pair, upper: Pair, notes: list[str]) -> None:
    capped = cap_recommendation(vpa_, pod_, limits)
    assert capped.recommendation is not None
    (item,) = capped.recommendation.container_recommendations
    assert (item.target, item.upper_bound) == (quantities(target), quantities(upper))
    assert capped.notes["c"] == notes


@pytest.mark.parametrize(
    ("limits", "items", "containers", "expected"),
    [
        (
            {"min": (None, "500M")},
            [("c1", ("1", "200M"))],
            ("50M", "100M"),
            {"c1": ("1", "400000000"), "c2": ("1", "100000000")},
        ),
        (
            {"min": (None, "500M")},
            [("c1", ("1", "200M")), ("c2", ("1", "200M"))],
            ("50M", "100M"),
            {"c1": ("1", "250000000"), "c2": ("1", "250000000")},
        ),
        (
            {"max": (None, "1Gi")},
            [("c1", ("1", "1Gi")), ("c2", ("1", "2Gi"))],
            ("50M", "50M"),
            {"c1": ("1", "357913941"), "c2": ("1", "715827882")},
        ),
        (
            {"min": (None, "4Gi")},
            [("c1", ("1", "1Gi")), ("c2", ("1", "2Gi"))],
            ("50M", "50M"),
            {"c1": ("1", "1431655765"), "c2": ("1", "2863311530")},
        ),
    ],
)
def test_limit_range_of_the_pod(
    limits: Any, items: Any, containers: tuple[str, str], expected: dict[str, Pair]
) -> None:
    request, limit = containers
    pod_ = pod(*(container(name, ("1", request), ("1", limit)) for name in ("c1", "c2")))
    capped = cap_recommendation(vpa(*(recommended(*item) for item in items)), pod_, limit_ranges(POD_LIMIT, **limits))
    assert capped.recommendation is not None
    created = {item.container_name: item.target for item in capped.recommendation.container_recommendations}
    assert created == {name: quantities(pair) for name, pair in expected.items()}
    assert not any(capped.notes.values())


def test_where_upstream_would_crash_a_diagnostic_is_left() -> None:
    pod_ = pod(container("c1", ("1", "50M"), ("1", "100M")), container("c2", ("1", "50M"), ("1", "100M")))
    capped = cap_recommendation(
        vpa(recommended("c1", ("1", "200M"), ("1", "200M"), ("1", "200M"))),
        pod_,
        limit_ranges(POD_LIMIT, min=(None, "500M")),
    )
    assert any("container c2 has no upper_bound" in text for text in capped.diagnostics)


@pytest.mark.parametrize(
    ("resource", "targets", "request_", "limit", "bounds", "expected"),
    [
        ("cpu", ("1", "1"), ("1", "1"), ("1", "1"), {"max": ("1", None)}, ("500m", "500m")),
        ("memory", ("1G", "1G"), ("1G", "1G"), ("1G", "1G"), {"min": (None, "4G")}, ("2000000000", "2000000000")),
        (
            "memory",
            ("1G", "1G"),
            ("1G", "1G"),
            ("2G", "2G"),
            {"max": (None, "10G"), "min": (None, "4G")},
            ("2000000000", "2000000000"),
        ),
        ("cpu", ("15m", "100m"), ("15m", "100m"), ("15m", "100m"), {"min": ("150m", None)}, ("20m", "131m")),
        ("cpu", ("15m", "100m"), ("15m", "100m"), ("15m", "100m"), {"max": ("90m", None)}, ("11m", "78m")),
        ("memory", ("1G",), ("1G", "1G"), ("1G", "1G"), {"min": (None, "4G")}, ("2000000000",)),
    ],
)
def test_pod_limits_on_one_resource(
    resource: str, targets: Any, request_: Any, limit: Any, bounds: Any, expected: Any
) -> None:
    def pair(text: str) -> Pair:
        return (text, None) if resource == "cpu" else (None, text)

    names = ("c1", "c2")
    pod_ = pod(*(container(n, pair(r), pair(m)) for n, r, m in zip(names, request_, limit, strict=True)))
    items = recommendation(
        *(recommended(n, pair(t)) for n, t in zip(names, targets, strict=False))
    ).container_recommendations
    item = limit_ranges(POD_LIMIT, **bounds).effective("default", POD_LIMIT)
    assert item is not None
    apply_pod_limit_range(items, pod_, item, resource, "target")
    assert [i.target for i in items] == [quantities(pair(text)) for text in expected]


def with_status(pod_: Any, requests: Pair | None, limits: Pair) -> Any:
    statuses = [{"name": "c", "resources": container("c", requests, limits)["resources"]}]
    return pod(pod_, status={"containerStatuses": statuses})


@pytest.mark.parametrize(
    ("vpa_", "pod_", "limits", "target", "notes"),
    [
        (
            vpa(recommended("c", ("20", "80000"), None, ("100", "90000")), policies=REQUESTS_ONLY),
            with_status(container("c", None, ("30", "70000")), None, ("2.5", "60000")),
            None,
            ("2.5", "60000"),
            ["cpu capped to container limit", "memory capped to container limit"],
        ),
        (
            vpa(recommended("c", ("1", "200M"), None, ("1", "200M")), policies=REQUESTS_ONLY),
            with_status(container("c", ("10", "1G"), ("10", "1G")), ("5m", "50M"), ("5m", "100M")),
            limit_ranges(POD_LIMIT, min=("2", "500M")),
            ("5m", "100M"),
            ["cpu capped to container limit", "memory capped to container limit"],
        ),
    ],
)
def test_limits_are_read_from_the_status(vpa_: Any, pod_: Any, limits: Any, target: Pair, notes: list[str]) -> None:
    capped = cap_recommendation(vpa_, pod_, limits)
    assert capped.recommendation is not None
    (item,) = capped.recommendation.container_recommendations
    assert (item.target, item.upper_bound, capped.notes["c"]) == (quantities(target), quantities(target), notes)


def test_each_list_is_held_between_the_bounds() -> None:
    bounds = {"minAllowed": {"cpu": "400", "memory": "40000"}, "maxAllowed": {"cpu": "450", "memory": "45000"}}
    item = recommended("c", ("300", "50000"), ("200", "43000"), ("500", "55000"))
    capped = cap_recommendation(vpa(item, policies=[{"containerName": "c", **bounds}]), pod(container("c")))
    assert capped.recommendation is not None
    (created,) = capped.recommendation.container_recommendations
    assert created.lower_bound == quantities(("400", "43000"))


def test_recommendations_for_absent_containers_take_no_part() -> None:
    pod_ = pod(container("c1", (None, "1G"), (None, "1G")))
    items = recommendation(recommended("gone", (None, "1G")), recommended("c1", (None, "1G"))).container_recommendations
    item = limit_ranges(POD_LIMIT, min=(None, "4G")).effective("default", POD_LIMIT)
    assert item is not None
    apply_pod_limit_range(items, pod_, item, "memory", "target")
    assert [one.target for one in items] == [quantities((None, "1G")), quantities((None, "4000000000"))]
