"""How Go prints the objects that end up in messages."""

from __future__ import annotations

from kscale.objects.meta import LabelSelector

__all__ = ["print_label_selector"]


def print_label_selector(selector: LabelSelector | None) -> str:
    """``%v`` of a ``*metav1.LabelSelector``."""
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in sorted((selector.match_labels or {}).items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{each.key},Operator:{each.operator},Values:[{' '.join(each.values)}],}},"
        for each in selector.match_expressions
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
