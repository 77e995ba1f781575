"""What an API server refuses of a disruption budget.

Upstream: ``pkg/apis/policy/validation`` (``ValidatePodDisruptionBudgetSpec``).
"""

from __future__ import annotations

from typing import Final

from kscale.errors import Problem
from kscale.objects.numbers_or_percent import is_share
from kscale.objects.policy import PodDisruptionBudget
from kscale.objects.selectors import SelectorError, compile_selector

__all__ = ["budget_problems"]

_POLICIES: Final = ("AlwaysAllow", "IfHealthyBudget")


def budget_problems(item: PodDisruptionBudget, source: str) -> list[Problem]:
    """What is wrong with one of a file (``source``)."""
    spec, where = item.spec, f"PodDisruptionBudget {item.key}"
    found = [
        Problem(text, source, where, f"spec.{name}")
        for name, value in (("minAvailable", spec.min_available), ("maxUnavailable", spec.max_unavailable))
        if (text := _wrong(value))
    ]
    if spec.min_available is not None and spec.max_unavailable is not None:
        found.append(Problem("minAvailable and maxUnavailable cannot be both set", source, where, "spec"))
    policy = spec.unhealthy_pod_eviction_policy
    if policy and policy not in _POLICIES:
        text = f"{policy!r} is neither {' nor '.join(_POLICIES)}"
        found.append(Problem(text, source, where, "spec.unhealthyPodEvictionPolicy"))
    try:
        compile_selector(spec.selector)
    except SelectorError as error:
        found.append(Problem(str(error), source, where, "spec.selector"))
    return found


def _wrong(value: int | str | None) -> str:
    """What is wrong with a number of pods; empty: nothing."""
    if value is None or is_share(value):
        return f"{value} is more than 100%" if isinstance(value, str) and int(value[:-1]) > 100 else ""
    return f"{value} is negative" if isinstance(value, int) else f"{value!r} is no number and no percentage"
