"""``hpa-validate``: defaulting, conversion, validation as the API server does it. Leaves out nothing."""

from __future__ import annotations

from typing import Any

from kscale.hpa.api.admission import admit
from kscale.hpa.api.v1_conversion import to_v1
from kscale.hpa.options import HPAOptions
from kscale.objects.decode import to_dict


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    subresource = inputs.get("subresource") or ""
    out = admit(
        inputs["object"],
        inputs.get("old_object"),
        subresource=subresource,
        options=HPAOptions(
            feature_gates=inputs.get("gates") or {}, kubernetes_version=inputs.get("kubernetes_version", "")
        ),
    )
    result: dict[str, Any] = {
        "decode_error": out.decode_error,
        "errors": [str(error) for error in out.errors],
        "error_details": [{"type": each.type, "field": each.field, "detail": each.detail} for each in out.errors],
        "defaulted": None,
        "as_v1": None,
    }
    if out.defaulted is not None and subresource != "status":
        head = {"kind": "HorizontalPodAutoscaler"}
        result["defaulted"] = _served(
            {"apiVersion": "autoscaling/v2", **head, **to_dict(out.defaulted)}, inputs["object"]
        )
        result["as_v1"] = _served(
            {"apiVersion": "autoscaling/v1", **head, **to_dict(to_v1(out.defaulted))}, inputs["object"]
        )
    different = {key: (result[key], value) for key, value in want.items() if result[key] != value}
    assert not different, different


def _served(document: dict[str, Any], original: dict[str, Any]) -> dict[str, Any]:
    """The status is left out of the record when the input had none."""
    return document if "status" in original else {key: value for key, value in document.items() if key != "status"}
