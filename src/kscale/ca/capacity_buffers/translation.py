"""What the controller of buffers makes of one (``capacitybuffer/translators``)."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from kscale.ca.capacity_buffers.conditions import ACTIVE_STRATEGY, READY, marked, missing_template
from kscale.ca.capacity_buffers.replicas import CapacityBufferError, buffer_replicas
from kscale.effects import Moment, moment
from kscale.objects.capacity_buffers import CapacityBuffer, LocalObjectRef
from kscale.objects.core import PodTemplate

__all__ = ["translate"]


def translate(
    buffer: CapacityBuffer,
    template: PodTemplate | None,
    *,
    scale: int | None = None,
    problem: str = "",
    now: datetime | Moment,
) -> CapacityBuffer:
    """The buffer with the status of its spec: so many pods of that template, at its generation.

    ``template``: what its pods are like, with requests filled in: the one that it refers to, or the one kept for its
    workload, whose replicas are ``scale``. None: there is none, and the buffer is not ready, for ``problem`` if that is
    given. Without news the very same object.
    """
    now = moment(now)
    replicas, why = None, ""
    if template is None:
        why = problem or missing_template(buffer.spec.pod_template_ref)
    else:
        try:
            replicas = buffer_replicas(buffer.spec, template.template, scale)
        except CapacityBufferError as error:
            why = f"couldn't get number of replicas for buffer: {error}"
    strategy = buffer.spec.provisioning_strategy
    status = replace(
        buffer.status,
        pod_template_ref=None if template is None else LocalObjectRef(name=template.name),
        pod_template_generation=None if template is None else template.metadata.generation or 0,
        replicas=replicas,
        provisioning_strategy=ACTIVE_STRATEGY if strategy == "" else strategy,
    )
    if status != buffer.status:
        buffer = replace(buffer, status=status)
    if why:
        return marked(buffer, READY, False, "error", now, f"Buffer not ready for provisioning: {why}")
    return marked(buffer, READY, True, "AttributesSetSuccessfully", now, "ready")
