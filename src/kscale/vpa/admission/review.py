"""The webhook as a function from an AdmissionReview request to its response (upstream:
``admission-controller/logic/server.go``).
"""

from __future__ import annotations

import base64
import hashlib
import operator
from collections import OrderedDict
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from kscale._native import _projection
from kscale.effects import (
    ZERO_TIME,
    GetScale,
    Moment,
    Observation,
    Observe,
    PatchOperation,
    Progress,
    StepsOf,
    moment,
)
from kscale.objects.api.core import LimitRangeItem, Pod
from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.objects.argument_types import typed
from kscale.objects.decode import decoder, enc_hook, from_json, to_json
from kscale.vpa.admission.pod_handler import PodAdmission, VpaIndex, patch_pod, read_review_pod
from kscale.vpa.admission.vpa_handler import admit_vpa
from kscale.vpa.capping import CONTAINER_LIMIT, POD_LIMIT, LimitRangeError, LimitRangeLookup
from kscale.vpa.controllers import Controllers, run_without_requests
from kscale.vpa.metrics import build_observation
from kscale.vpa.options import AdmissionOptions

__all__ = [
    "PatchCache",
    "PodReview",
    "ReviewResult",
    "VpaIndex",
    "allow_unpatched",
    "answer_review_steps",
    "read_review",
    "review",
    "review_pod",
    "review_steps",
]

MAX_BODY_BYTES: Final = 5 * 1024 * 1024
"""Maximum size of a request in bytes; servers reject larger ones with 413."""
_CACHED_PATCHES: Final = 512
_LATENCY: Final = "vpa_admission_controller_admission_latency_seconds"
_APPLIED, _NOT_APPLIED = (
    build_observation("vpa_admission_controller_admission_pods_total", {"applied": applied})
    for applied in (True, False)
)
_INPUTS: Final = msgspec.json.Encoder(enc_hook=enc_hook)


class ReviewResult(msgspec.Struct, kw_only=True):
    """Response to a review.

    - ``body``: its bytes.
    - ``status`` (``applied``, ``skipped``, ``error``) and ``resource`` (``Pod``, ``VPA``, ``unknown``): the labels of
      the latency metric.
    - ``messages``: what upstream logs.
    - ``observations``: what the review counts, but for its duration; :func:`review_steps` has observed it.
    """

    body: bytes
    status: str
    resource: str = "unknown"
    messages: list[str] = []
    observations: list[Observation] = []

    def latency(self, seconds: float) -> Observation:
        """Build the latency observation of a review that took ``seconds``."""
        return Observation(name=_LATENCY, value=seconds, labels={"status": self.status, "resource": self.resource})

    def build_observation(self) -> Observation:
        """Return the observation that counts this review in ``admission_pods_total``, as applied or not applied."""
        return _APPLIED if self.status == "applied" else _NOT_APPLIED

    def __repr__(self) -> str:
        return f"<Reviewed {self.resource}: {self.status}, {len(self.body)} bytes>"


@typed
def review(
    body: bytes,
    vpas: VpaIndex,
    *,
    controllers: Controllers | None = None,
    limit_ranges: LimitRangeLookup | None = None,
    options: AdmissionOptions | None = None,
) -> ReviewResult:
    """Answer a review. Requests that cannot be read, or that are about no pod or VPA, are allowed unchanged.

    Parameters
    ----------
    body : bytes
        An AdmissionReview.
    vpas : VpaIndex
        The VPAs of the cluster.
    controllers : Controllers, optional
        Controllers of pods. Default: none.
    limit_ranges : LimitRangeLookup, optional
        Limit ranges. Default: none.
    options : AdmissionOptions, optional
        Options of the admission controller.

    Returns
    -------
    ReviewResult
        The response.

    Raises
    ------
    ScaleNeededError
        If ``controllers`` lacks a scale that must be requested (:func:`review_steps` requests it).
    """
    steps = review_steps(body, vpas, now=ZERO_TIME, controllers=controllers, limit_ranges=limit_ranges, options=options)
    result, observations = run_without_requests(steps)
    return msgspec.structs.replace(result, observations=observations)


@typed
def review_steps(
    body: bytes,
    vpas: VpaIndex,
    *,
    now: datetime | Moment,
    controllers: Controllers | None = None,
    limit_ranges: LimitRangeLookup | None = None,
    options: AdmissionOptions | None = None,
) -> StepsOf[GetScale | Observe, ReviewResult]:
    """Run :func:`review` as a step machine, which requests unknown scales and yields observations."""
    known, progress = controllers if controllers is not None else Controllers(), Progress(moment(now))
    reviewed = yield from answer_review_steps(body, vpas, progress, known, limit_ranges, options)
    if reviewed.observations:
        yield from progress.observe(*reviewed.observations)
    return msgspec.structs.replace(reviewed, observations=[])


def answer_review_steps(
    body: bytes,
    vpas: VpaIndex,
    progress: Progress,
    controllers: Controllers,
    limit_ranges: LimitRangeLookup | None,
    options: AdmissionOptions | None,
    patches: PatchCache | None = None,
) -> StepsOf[GetScale, ReviewResult]:
    """Run :func:`review_steps` with arguments that need no check; its observations are in the result, not yielded.

    ``patches``: cache of the patches of pods reviewed before, which is read and filled; None: no cache.
    """
    read = read_review(body, options=options)
    if isinstance(read, ReviewResult):
        return read
    vpa, unmatched = None, list[str]()
    if isinstance(read.pod, Pod):
        vpa = yield from vpas.match_steps(read.pod, controllers, progress, unmatched)
    reviewed = review_pod(read, vpa, limit_ranges=limit_ranges, options=options, patches=patches)
    reviewed.messages = [*unmatched, *reviewed.messages]
    reviewed.observations = [reviewed.build_observation()]
    return reviewed


class PatchCache:
    """Patches of pods that were reviewed before: those of a workload differ in little that the patches depend on.

    Bounded. Single owner; all calls have the same options. Results with messages, which name the pod, are not cached.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: OrderedDict[bytes, tuple[VerticalPodAutoscaler, list[LimitRangeItem | None], _Patch]] = (
            OrderedDict()
        )

    def get(
        self,
        pod: Pod,
        vpa: VerticalPodAutoscaler,
        limit_ranges: LimitRangeLookup | None,
        options: AdmissionOptions | None,
    ) -> PodAdmission | _Patch:
        """Return the encoded patches of a pod by ``vpa``, which controls it, from the cache or computed and cached.

        If there are errors or diagnostics, or the limit ranges cannot be read, returns the admission instead and does
        not cache it.
        """
        # What patch_pod reads of a pod, but for the names in its messages. Not the volumes: the names of those of
        # service accounts are random.
        containers = [(each.name, each.resources) for each in pod.spec.containers]
        inputs = (vpa.key, pod.namespace, pod.metadata.annotations, containers, pod.spec.resources, pod.status)
        key = hashlib.blake2b(_INPUTS.encode(inputs), digest_size=32).digest()
        limits: list[LimitRangeItem | None] = []
        try:
            if limit_ranges is not None:
                limits = [limit_ranges.effective(pod.namespace, kind) for kind in (CONTAINER_LIMIT, POD_LIMIT)]
        except LimitRangeError:
            return patch_pod(pod, vpa, limit_ranges, options)
        entry = self._entries.get(key)
        if entry is not None and entry[0] is vpa and all(map(operator.is_, entry[1], limits)):
            self._entries.move_to_end(key)
            return entry[2]
        admitted = patch_pod(pod, vpa, limit_ranges, options)
        if admitted.errors or admitted.diagnostics:
            return admitted
        patch = _Patch(admitted.patches)
        self._entries[key] = vpa, limits, patch
        self._entries.move_to_end(key)
        if len(self._entries) > _CACHED_PATCHES:
            self._entries.popitem(last=False)
        return patch


class _Patch:
    """Encoded response to the review of a pod, but for the ``uid`` of the request."""

    __slots__ = ("_after", "_before", "is_empty")

    def __init__(self, patches: list[PatchOperation]) -> None:
        self.is_empty = not patches
        encoded = _encode_response({"uid": None, "allowed": True, **_encode_patch(patches)})
        self._before, _, self._after = encoded.partition(b"null")

    def build_body(self, uid: Any) -> bytes:
        """Return the AdmissionReview with the response to the request with this ``uid``, in JSON."""
        return b"%b%b%b" % (self._before, msgspec.json.encode(uid), self._after)


class PodReview(NamedTuple):
    """Review of a pod: the ``uid`` of the request, and the pod, or the response if the pod cannot be read."""

    uid: Any
    pod: Pod | PodAdmission


def read_review(
    body: bytes, *, options: AdmissionOptions | None = None, max_containers: int | None = None
) -> PodReview | ReviewResult:
    """Read a review.

    Returns a PodReview if the review is about a pod. Returns a ReviewResult, the response, if the review is about a VPA
    or another kind, if ``body`` cannot be read, or if it has more than 800 levels of nesting. A pod with more than
    ``max_containers`` containers (with init containers; None: no limit) also gets a response at once: it is allowed
    without a patch, and the result's ``messages`` say so.
    """
    if _projection.exceeds_depth(body, _DEEPEST):  # the interpreter's own limit differs between versions
        return allow_unpatched(_TOO_DEEP)
    usual = _read_usual(body) if max_containers is None else None
    if usual is not None:
        return usual
    try:
        try:
            request = _parse_request(body)
        except ValueError as error:
            return allow_unpatched(str(error))
        return _read_request(request, options, max_containers)
    except RecursionError:
        return allow_unpatched(_TOO_DEEP)


_DEEPEST: Final = 800
_TOO_DEEP: Final = "the review is nested too deeply"


def allow_unpatched(why: str, *, uid: Any = "", resource: str = "unknown") -> ReviewResult:
    """Build the response that allows an object as it is, counted as an error. ``why``: the message.

    ``uid``: that of the request. ``resource``: the metric's label for the kind of object.
    """
    body = _encode_response({"uid": uid, "allowed": True})
    return ReviewResult(body=body, status="error", resource=resource, messages=[why])


class _Resource(msgspec.Struct):
    group: str
    version: str
    resource: str


class _Request(msgspec.Struct):
    uid: str
    resource: _Resource
    object: Pod
    namespace: str = ""


class _Review(msgspec.Struct):
    request: _Request


_PODS: Final = _Resource("", "v1", "pods")


def _read_usual(body: bytes) -> PodReview | None:
    """Decode the review of a v1 Pod directly into structs.

    None if the body is anything else, is invalid, or is not ASCII: :func:`_read_request` reads such a body.
    """
    if not body.isascii():  # text that is skipped is not checked
        return None
    try:
        request = decoder(_Review).decode(body).request
    except (ValueError, RecursionError):
        return None
    pod = request.object
    if request.resource != _PODS or (pod.kind, pod.api_version) != ("Pod", "v1"):
        return None
    return PodReview(request.uid, read_review_pod(pod, request.namespace))


def _read_request(
    request: dict[str, Any], options: AdmissionOptions | None, max_containers: int | None
) -> PodReview | ReviewResult:
    """Read the request of a review; see :func:`read_review`."""
    uid, group, resource = request.get("uid", ""), *_get_resource(request)
    if (group, resource) == ("autoscaling.k8s.io", "verticalpodautoscalers"):
        return _review_vpa(uid, request, options)
    if (group, resource) != ("", "pods"):
        name = f"{resource}.{group}" if group else resource
        return allow_unpatched(f"not supported resource type: {name}", uid=uid)
    if _get_version(request) != "v1":
        return PodReview(uid, PodAdmission(diagnostics=["only v1 Pods are supported"]))
    pod = _get_object(request, "object") or {}
    count = _count_containers(pod)
    if max_containers is not None and count > max_containers:
        text = f"the pod has {count} containers, more than the {max_containers} that are looked at; it is not patched"
        return allow_unpatched(text, uid=uid, resource="Pod")
    return PodReview(uid, read_review_pod(pod, _get_text(request.get("namespace"))))


def _count_containers(pod: dict[str, Any]) -> int:
    """Return the number of containers and init containers of a pod in plain data."""
    spec = pod.get("spec")
    lists = [spec.get(name) for name in ("containers", "initContainers")] if isinstance(spec, dict) else []
    return sum(len(items) for items in lists if isinstance(items, list))


def review_pod(
    review: PodReview,
    vpa: VerticalPodAutoscaler | bytes | None,
    *,
    limit_ranges: LimitRangeLookup | None = None,
    options: AdmissionOptions | None = None,
    patches: PatchCache | None = None,
) -> ReviewResult:
    """Return the response to the review of a pod whose VPA is known.

    ``vpa``: None leaves the pod as it is; may be the JSON text that :func:`kscale.objects.decode.to_json` made of the
    VPA in another process. ``patches``: cache of the patches of pods reviewed before; None: no cache.
    """
    if isinstance(vpa, bytes):
        vpa = from_json(vpa, VerticalPodAutoscaler)
    admitted: PodAdmission | _Patch
    if isinstance(review.pod, PodAdmission):
        admitted = review.pod
    elif vpa is None:
        admitted = _NO_PATCH
    elif patches is not None:
        admitted = patches.get(review.pod, vpa, limit_ranges, options)
    else:
        admitted = patch_pod(review.pod, vpa, limit_ranges, options)
    messages: list[str] = []
    if isinstance(admitted, PodAdmission):
        messages = [*map(str, admitted.errors), *admitted.diagnostics]
        admitted = _Patch(admitted.patches)
    return ReviewResult(
        body=admitted.build_body(review.uid),
        status="skipped" if admitted.is_empty else "applied",  # errors never block a pod
        resource="Pod",
        messages=messages,
    )


def _review_vpa(uid: Any, request: dict[str, Any], options: AdmissionOptions | None) -> ReviewResult:
    """Return the response to the review of a VPA."""
    written = admit_vpa(
        _get_object(request, "object") or {},
        _get_object(request, "oldObject"),
        operation=_get_text(request.get("operation")) or "CREATE",
        name=_get_text(request.get("name")),
        kind=_get_kind(request),
        options=options,
    )
    answer: dict[str, Any] = {"uid": uid, "allowed": written.allowed, **_encode_patch(written.patches)}
    if written.status is not None:
        answer["status"] = written.status
    if written.warnings:
        answer["warnings"] = written.warnings
    return ReviewResult(
        body=_encode_response(answer),
        status="applied" if written.patches else "skipped",
        resource="VPA",
        messages=list(map(str, written.errors)),
    )


def _get_object(request: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Return a field of the request that is an object; None if it is anything else."""
    value = request.get(name)
    return value if isinstance(value, dict) else None


def _get_text(value: Any) -> str:
    """Return a text; empty for any other value."""
    return value if isinstance(value, str) else ""


def _get_kind(request: dict[str, Any]) -> str:
    """Return the kind that the request names, by default ``VerticalPodAutoscaler``."""
    request_kind = request.get("requestKind")
    return (_get_text(request_kind.get("kind")) if isinstance(request_kind, dict) else "") or "VerticalPodAutoscaler"


def _parse_request(body: bytes) -> dict[str, Any]:
    """Return the request of a review. Raises ValueError for invalid JSON, or without a request."""
    data = msgspec.json.decode(body)
    request = data.get("request") if isinstance(data, dict) else None
    if not isinstance(request, dict):
        raise ValueError("not an AdmissionReview with a request")
    return request


def _get_resource(request: dict[str, Any]) -> tuple[str, str]:
    """Return (group, resource) of the request; empty texts if they are missing."""
    resource = request.get("resource")
    if not isinstance(resource, dict):
        return "", ""
    return str(resource.get("group") or ""), str(resource.get("resource") or "")


def _get_version(request: dict[str, Any]) -> str:
    """Return the API version in which a review's object is; empty if it is missing."""
    return str(request["resource"].get("version") or "")


def _encode_patch(patches: list[PatchOperation]) -> dict[str, str]:
    """Return the fields of the response for a JSON patch, encoded in base64; empty without patches."""
    if not patches:
        return {}
    return {"patchType": "JSONPatch", "patch": base64.b64encode(to_json(patches)).decode()}


def _encode_response(response: dict[str, Any]) -> bytes:
    """Encode the response as an AdmissionReview."""
    return msgspec.json.encode(
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {"uid": "", **response}}
    )


_NO_PATCH: Final = _Patch([])
