"""Kind ``vpa-patch``: everything is compared but the texts of Go's JSON decoder and quantity parser."""

from __future__ import annotations

from typing import Any

from kscale.objects.api.core import LimitRange
from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.kinds import find_kind
from kscale.vpa import AdmissionOptions, Controllers, admit_pod
from kscale.vpa.capping import LimitRanges

NOT_OURS = ("json: cannot unmarshal", "quantities must match")


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    kinds = [(item, find_kind(item["apiVersion"], item["kind"])) for item in inputs.get("controllers") or ()]
    result = admit_pod(
        inputs["pod"],
        [from_dict(item, VerticalPodAutoscaler) for item in inputs.get("vpas") or ()],
        namespace=inputs["request_namespace"],
        controllers=Controllers(from_dict(item, kind) for item, kind in kinds if kind is not None),
        limit_ranges=LimitRanges(from_dict(item, LimitRange) for item in inputs.get("limit_ranges") or ()),
        options=from_dict(inputs.get("options") or {}, AdmissionOptions),
    )
    assert result.allowed == want["allowed"]
    assert (result.vpa.name if result.vpa is not None else None) == want["matched_vpa"]
    ours, theirs = [str(error) for error in result.errors], want["errors"] or []
    assert len(ours) == len(theirs)
    for mine, his in zip(ours, theirs, strict=True):
        assert mine == his or any(text in his for text in NOT_OURS)
    assert to_dict(result.patches) == (want["patches"] or [])
    assert not want["warnings"]
