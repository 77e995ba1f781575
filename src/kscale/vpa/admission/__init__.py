"""The admission controller (upstream: ``pkg/admission-controller``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kscale.imports import import_on_use

if TYPE_CHECKING:
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


import_on_use(
    __name__,
    {
        "pod_handler": ("PodAdmission", "admit_pod", "admit_pod_steps"),
        "review": ("ReviewResult", "VpaIndex", "review", "review_steps"),
        "vpa_handler": ("VpaAdmission", "admit_vpa"),
    },
)
