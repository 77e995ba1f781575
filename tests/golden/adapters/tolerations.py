"""`tolerations`: the first taint that no toleration covers."""

from __future__ import annotations

from typing import Any

from kscale.objects.api.core import Taint, Toleration
from kscale.objects.decode import from_dict
from kscale.objects.taints import first_untolerated


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    result = first_untolerated(
        [from_dict(each, Toleration) for each in inputs["tolerations"]],
        [from_dict(each, Taint) for each in inputs["taints"]],
        effects=inputs["effects"],
        comparison_operators=inputs["comparison_operators"],
    )
    assert result == (None if want["untolerated"] is None else from_dict(want["untolerated"], Taint))
