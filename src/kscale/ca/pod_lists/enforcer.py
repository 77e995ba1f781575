"""What opens the gate although it would be shut (``scaleup_enforcer.go`` in ``processors/pods``
and ``processors/provreq``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kscale.objects.core import Pod
from kscale.objects.pod_annotations import (
    CONSUME_PROVISIONING_REQUEST,
    DEPRECATED_CONSUME_PROVISIONING_REQUEST,
    pod_annotation,
)

__all__ = ["CONSUME_ANNOTATIONS", "ScaleUpEnforcer", "any_consumes_provisioning_request"]

ScaleUpEnforcer = Callable[[Sequence[Pod]], bool]
"""Asked about the pods that need nodes; True: scale up whatever else stands against it."""

CONSUME_ANNOTATIONS: Final = (CONSUME_PROVISIONING_REQUEST, DEPRECATED_CONSUME_PROVISIONING_REQUEST)


def any_consumes_provisioning_request(pods: Iterable[Pod]) -> bool:
    """The enforcer of provisioning requests: some pod says, in the new form or the old one, that it consumes one."""
    return any(pod_annotation(pod, key) is not None for pod in pods for key in CONSUME_ANNOTATIONS)
