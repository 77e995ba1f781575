"""The admission controller (upstream: ``pkg/admission-controller``)."""

from __future__ import annotations

from kscale.vpa.admission.pod_handler import PodAdmission, admit_pod, admit_pod_steps
from kscale.vpa.admission.review import ReviewResult, VpaIndex, review, review_steps
from kscale.vpa.admission.vpa_handler import VpaAdmission, admit_vpa

__all__ = [
    "PodAdmission",
    "ReviewResult",
    "VpaAdmission",
    "VpaIndex",
    "admit_pod",
    "admit_pod_steps",
    "admit_vpa",
    "review",
    "review_steps",
]
