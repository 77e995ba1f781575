"""Upstream's own tables on proportional limits and limit ranges."""

from __future__ import annotations

import pytest

from kscale.objects.api.core import LimitRange
from kscale.objects.decode import from_dict
from kscale.objects.quantity import Quantity
from kscale.vpa.capping import (
    DIVISION_BY_ZERO,
    POD_LIMIT,
    SCALE_CAPPED,
    LimitRanges,
    get_proportional_limit,
    get_proportional_limits,
    scale_quantity,
)
from unit.vpa.builders import limit_ranges, quantities

NOW = 1769299200 * 10**9  # 2026-01-25T00:00:00Z
ZERO = Quantity.zero()
MAX = 2**63 - 1


@pytest.mark.parametrize("resource", ["cpu", "memory"])
@pytest.mark.parametrize(
    ("limit", "request_", "rec", "default", "expected", "note"),
    [
        ("2", "1", "10", "0", "20", ""),
        ("0", "1", "10", "2", "20", ""),
        ("0", "1", "10", "0", None, "limit NOT set since originalLimit is nil or 0"),
        ("2", "0", "10", "0", "10", ""),
        ("0", "1", "0", "2", None, "limit NOT set since recommendedRequest is nil or 0"),
        ("1", "1", "10", "0", "10", ""),
    ],
)
def test_limits(
    resource: str, limit: str, request_: str, rec: str, default: str, expected: str | None, note: str
) -> None:
    result, message = get_proportional_limit(resource, *map(Quantity, (limit, request_, rec, default)))
    assert result == (Quantity(expected) if expected is not None else None)
    assert message == (f"{resource}: {note}" if note else "")


def test_limits_are_cut_and_capped() -> None:
    assert get_proportional_limit("cpu", *map(Quantity, ("2", "1500m", "1", "0")))[0] == Quantity("1333m")
    assert get_proportional_limit("memory", *map(Quantity, ("200", "150", "100", "0")))[0] == Quantity("133")
    for resource in ("cpu", "memory"):
        result, message = get_proportional_limit(resource, *map(Quantity, ("10G", "1m", "10G", "0")))
        assert result is not None
        assert (result.milli_value() if resource == "cpu" else result.value()) == MAX
        assert message == f"{resource}: failed to keep limit to request ratio; capping limit to int64"
    assert scale_quantity("cpu", Quantity("1"), ZERO, Quantity("20")) == (Quantity("1"), DIVISION_BY_ZERO)
    assert scale_quantity("memory", Quantity("1"), ZERO, Quantity("20"))[1] == DIVISION_BY_ZERO
    assert scale_quantity("cpu", Quantity("10G"), Quantity("1m"), Quantity("10G"))[1] == SCALE_CAPPED
    assert scale_quantity("memory", Quantity("1"), Quantity("3"), Quantity("1"), "down")[0] == Quantity("-1")
    assert get_proportional_limits({}, {}, {}, {}) == (None, [])


def test_effective_limit_ranges() -> None:
    both = LimitRanges(
        [*limit_ranges(POD_LIMIT, "a", max=("1.5", None)), *limit_ranges(POD_LIMIT, "b", max=("2", None))]
    )
    result = both.effective("default", POD_LIMIT)
    assert result is not None
    assert result.max == quantities(("1.5", None))
    both = LimitRanges(
        [*limit_ranges(POD_LIMIT, "a", min=("1.5", None)), *limit_ranges(POD_LIMIT, "b", min=("1", None))]
    )
    result = both.effective("default", POD_LIMIT)
    assert result is not None
    assert result.min == quantities(("1.5", None))
    assert both.effective("other", POD_LIMIT) is None
    assert both.effective("default", "Container") is None


@pytest.mark.parametrize("bound", ["max", "default", "min"])
def test_a_limit_range_of_one_bound(bound: str) -> None:
    result = limit_ranges("Container", **{bound: ("2", "2G")}).effective("default", "Container")
    assert result is not None
    bounds = {name: getattr(result, name) for name in ("max", "default", "min")}
    assert {name: amounts for name, amounts in bounds.items() if amounts} == {bound: quantities(("2", "2G"))}


def test_limit_ranges_of_several_bounds_combine() -> None:
    parts = [
        limit_ranges("Container", name, **{name: (cpu, None)})
        for name, cpu in (("max", "3"), ("default", "2"), ("min", "1"))
    ]
    result = LimitRanges(item for part in parts for item in part).effective("default", "Container")
    assert result is not None
    assert (result.max, result.default, result.min) == tuple(quantities((cpu, None)) for cpu in "321")


def test_limit_ranges_change_one_by_one() -> None:
    def of(name: str, cpu: str) -> LimitRange:
        limits = [{"type": "Container", "max": {"cpu": cpu}}]
        return from_dict({"metadata": {"name": name, "namespace": "default"}, "spec": {"limits": limits}}, LimitRange)

    def most(known: LimitRanges, namespace: str = "default") -> str | None:
        result = known.effective(namespace, "Container")
        return None if result is None else str((result.max or {})["cpu"])

    known = LimitRanges([of("a", "2"), of("b", "1")])
    assert (most(known), most(known, "elsewhere"), known.effective("default", "Pod")) == ("1", None, None)
    known.apply(of("b", "3"))
    assert most(known) == "2"
    known.remove("default", "a")
    assert most(known) == "3"
    for _ in range(2):
        known.remove("default", "b")
    assert most(known) is None
