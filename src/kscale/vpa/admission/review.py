"""The webhook as a function: the bytes of an AdmissionReview in, those of its answer out (``logic/server.go``)."""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec

from kscale.effects import Observation, PatchOperation
from kscale.objects.decode import to_json
from kscale.vpa.admission.matching import VpaIndex
from kscale.vpa.admission.pod_handler import admit_pod
from kscale.vpa.admission.vpa_handler import admit_vpa
from kscale.vpa.limit_range import LimitRangeLookup
from kscale.vpa.metrics import observation
from kscale.vpa.options import AdmissionOptions
from kscale.vpa.target import Controllers

__all__ = ["Reviewed", "VpaIndex", "review"]

MAX_BODY: Final = 5 * 1024 * 1024
"""Bytes; whoever serves refuses more with 413."""


class Reviewed(msgspec.Struct, kw_only=True):
    """``body`` is the answer; ``status`` (applied, skipped, error) and ``resource`` label the latency metric."""

    body: bytes
    status: str
    resource: str = "unknown"
    messages: list[str] = []
    observations: list[Observation] = []

    def latency(self, seconds: float) -> Observation:
        """What upstream would observe of an answer that took so long from the request to its end."""
        labels = {"status": self.status, "resource": self.resource}
        return observation("vpa_admission_controller_admission_latency_seconds", labels, seconds)


def _of_pod(body: bytes, applied: bool, messages: list[str]) -> Reviewed:
    """Errors never block a pod; it is skipped then."""
    return Reviewed(
        body=body,
        status="applied" if applied else "skipped",
        resource="Pod",
        messages=messages,
        observations=[observation("vpa_admission_controller_admission_pods_total", {"applied": applied})],
    )


def review(
    body: bytes,
    vpas: VpaIndex,
    *,
    controllers: Controllers | None = None,
    limit_ranges: LimitRangeLookup | None = None,
    options: AdmissionOptions | None = None,
) -> Reviewed:
    """Answer a review. What cannot be read, and what is no pod or VPA, is allowed as it is."""
    try:
        request = _request(body)
    except ValueError as error:
        return Reviewed(body=_answer({"allowed": True}), status="error", messages=[str(error)])
    uid, group, kind = request.get("uid", ""), *_resource(request)
    raw = request.get("object")
    if (group, kind) == ("", "pods"):
        namespace = request.get("namespace", "")
        if _version(request) != "v1":
            return _of_pod(_answer({"uid": uid, "allowed": True}), False, ["only v1 Pods are supported"])
        admitted = admit_pod(
            raw if isinstance(raw, dict) else {},
            vpas,
            namespace=_text(namespace),
            controllers=controllers,
            limit_ranges=limit_ranges,
            options=options,
        )
        return _of_pod(
            _answer({"uid": uid, "allowed": True, **_patch(admitted.patches)}),
            bool(admitted.patches),
            [*map(str, admitted.errors), *admitted.diagnostics],
        )
    if (group, kind) == ("autoscaling.k8s.io", "verticalpodautoscalers"):
        old = request.get("oldObject")
        written = admit_vpa(
            raw if isinstance(raw, dict) else {},
            old if isinstance(old, dict) else None,
            operation=_text(request.get("operation")) or "CREATE",
            name=_text(request.get("name")),
            kind=_kind(request),
            options=options,
        )
        answer: dict[str, Any] = {"uid": uid, "allowed": written.allowed, **_patch(written.patches)}
        if written.status is not None:
            answer["status"] = written.status
        if written.warnings:
            answer["warnings"] = written.warnings
        return Reviewed(
            body=_answer(answer),
            status="applied" if written.patches else "skipped",
            resource="VPA",
            messages=list(map(str, written.errors)),
        )
    name = f"{kind}.{group}" if group else kind
    text = f"not supported resource type: {name}"
    return Reviewed(body=_answer({"uid": uid, "allowed": True}), status="error", messages=[text])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _kind(request: dict[str, Any]) -> str:
    found = request.get("requestKind")
    return (_text(found.get("kind")) if isinstance(found, dict) else "") or "VerticalPodAutoscaler"


def _request(body: bytes) -> dict[str, Any]:
    data = msgspec.json.decode(body)
    request = data.get("request") if isinstance(data, dict) else None
    if not isinstance(request, dict):
        raise ValueError("not an AdmissionReview with a request")
    return request


def _resource(request: dict[str, Any]) -> tuple[str, str]:
    resource = request.get("resource")
    if not isinstance(resource, dict):
        return "", ""
    return str(resource.get("group") or ""), str(resource.get("resource") or "")


def _version(request: dict[str, Any]) -> str:
    return str(request["resource"].get("version") or "")


def _patch(patches: list[PatchOperation]) -> dict[str, str]:
    if not patches:
        return {}
    return {"patchType": "JSONPatch", "patch": base64.b64encode(to_json(patches)).decode()}


def _answer(response: dict[str, Any]) -> bytes:
    return msgspec.json.encode(
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {"uid": "", **response}}
    )
