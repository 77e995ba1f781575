"""`karpenter-requirements`: whether two sets of requirements meet, and what they are together."""

from __future__ import annotations

from typing import Any

from kscale.capacity.karpenter.requirements import WELL_KNOWN, Requirement, Requirements, requirement


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    first, second = (_requirements(inputs[name]) for name in ("first", "second"))
    both = first.with_(second.values())
    got = {
        "intersects": first.find_conflict(second) is None,
        "compatible": first.is_compatible(second),
        "compatible_well_known": first.is_compatible(second, undefined=WELL_KNOWN),
        "combined": {key: _described(each) for key, each in both.items()},
        "operators": {key: each.operator for key, each in both.items()},
        "allowed": {
            key: sorted(value for value in inputs["values"] if each.allows(value)) for key, each in both.items()
        },
    }
    assert got == want


def _requirements(requirements: list[dict[str, Any]]) -> Requirements:
    return Requirements(
        requirement(each["key"], each["operator"], each.get("values", []), each.get("minValues"))
        for each in requirements
    )


def _described(each: Requirement) -> dict[str, Any]:
    return {
        "complement": each.complement,
        "values": sorted(each.values),
        "least": None if each.least is None else str(each.least),
        "most": None if each.most is None else str(each.most),
        "min_values": each.min_values,
    }
