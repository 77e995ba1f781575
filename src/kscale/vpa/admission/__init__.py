"""The admission controller (upstream: ``pkg/admission-controller``)."""

from __future__ import annotations

from kscale.vpa.admission.pod_handler import PodAdmission, admit_pod
from kscale.vpa.admission.review import VpaIndex, review
from kscale.vpa.admission.vpa_handler import VpaAdmission, admit_vpa

__all__ = ["PodAdmission", "VpaAdmission", "VpaIndex", "admit_pod", "admit_vpa", "review"]
