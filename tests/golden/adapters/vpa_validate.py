"""Kind ``vpa-validate``: everything is compared but the texts of Go's JSON decoder and quantity parser."""

from __future__ import annotations

from typing import Any

from kscale.objects.decode import from_dict, to_dict
from kscale.vpa import AdmissionOptions, admit_vpa

NOT_OURS = ("json: cannot unmarshal", "quantities must match")


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    options = from_dict(inputs.get("options") or {}, AdmissionOptions)
    result = admit_vpa(inputs["vpa"], inputs.get("old_vpa"), operation=inputs["operation"], options=options)
    assert result.allowed == want["allowed"]
    assert to_dict(result.patches) == (want["patches"] or [])
    assert result.warnings == (want["warnings"] or [])
    theirs = want["errors"] or []
    assert (result.status is None) == (want["status"] is None)
    if any(text in error["text"] for error in theirs for text in NOT_OURS):
        assert [(error.type, error.field) for error in result.errors] == [(e["type"], e["field"]) for e in theirs]
        return
    ours = [{"type": e.type, "field": e.field, "detail": e.detail, "text": str(e)} for e in result.errors]
    assert ours == theirs
    status = result.status
    assert (None if status is None else {name: status[name] for name in ("message", "reason", "code")}) == want[
        "status"
    ]
