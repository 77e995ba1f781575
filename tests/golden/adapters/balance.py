"""Kind ``balance``: everything is compared; of the two recorded splits of large ties the stable one."""

from __future__ import annotations

from typing import Any

import golden_ca
from kscale import ca


def check(case: dict[str, Any]) -> None:
    inputs = case["input"]
    want = {name: value for name, value in case["want"].items() if name != "scale_ups_unstable_sort"}
    assert {"similar": _similar, "find_similar": _find_similar, "balance": _balance}[inputs["op"]](inputs) == want


def comparator_of(inputs: dict[str, Any]) -> ca.Comparator:
    ratios = inputs.get("ratios")
    names = ("max_allocatable_difference_ratio", "max_free_difference_ratio", "memory_difference_ratio")
    return ca.Comparator(
        kind=inputs.get("comparator") or "generic",
        ignored_labels=tuple(inputs.get("balancing_ignore_labels") or ()),
        labels=tuple(inputs.get("balancing_labels") or ()),
        ratios=ca.DifferenceRatios()
        if ratios is None
        else ca.DifferenceRatios(**{name: ratios.get(name, 0.0) for name in names}),
    )


def _similar(inputs: dict[str, Any]) -> dict[str, Any]:
    one, other = golden_ca.template(inputs["a"]), golden_ca.template(inputs["b"])
    assert one is not None
    assert other is not None
    comparator = comparator_of(inputs)
    verdict = ca.compare_templates(one, other, comparator)
    assert ca.compare_templates(other, one, comparator) == verdict
    return {"similar": verdict.similar, "reasons": verdict.reasons}


def _find_similar(inputs: dict[str, Any]) -> dict[str, Any]:
    templates = {group["id"]: golden_ca.template(group.get("template")) for group in inputs["groups"]}
    known = {name: template for name, template in templates.items() if template is not None}
    try:
        result = ca.find_similar_node_groups(inputs["group"], list(templates), known, comparator_of(inputs))
    except ca.AutoscalerError as error:
        return {"similar_groups": [], "error": golden_ca.error_of(error)}
    assert ca.SimilarGroups(list(templates), known, comparator_of(inputs)).find_similar(inputs["group"]) == result
    return {"similar_groups": result, "error": None}


def _balance(inputs: dict[str, Any]) -> dict[str, Any]:
    groups = [
        ca.GroupSize(id=g["id"], target=g["target"], max=g["max"], target_error=g.get("target_size_error"))
        for g in inputs["groups"]
    ]
    try:
        plan = ca.balance_scale_up_between_groups(groups, inputs["new_nodes"])
    except ca.AutoscalerError as error:
        return {"scale_ups": [], "error": golden_ca.error_of(error)}
    scale_ups = [
        {"group": info.group, "current": info.current, "new": info.new, "max": info.max, "text": str(info)}
        for info in plan
    ]
    return {"scale_ups": scale_ups, "error": None}
