"""The admission controller (upstream: ``pkg/admission-controller``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kscale.lazy import import_on_use

if TYPE_CHECKING:
    from kscale.vpa.admission.pod_handler import PodAdmission as PodAdmission
    from kscale.vpa.admission.pod_handler import admit_pod as admit_pod
    from kscale.vpa.admission.pod_handler import admit_pod_steps as admit_pod_steps
    from kscale.vpa.admission.review import ReviewResult as ReviewResult
    from kscale.vpa.admission.review import VpaIndex as VpaIndex
    from kscale.vpa.admission.review import review as review
    from kscale.vpa.admission.review import review_steps as review_steps
    from kscale.vpa.admission.vpa_handler import VpaAdmission as VpaAdmission
    from kscale.vpa.admission.vpa_handler import admit_vpa as admit_vpa

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
