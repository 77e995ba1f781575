"""What is written into the status of a buffer (``capacitybuffer/common``)."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kscale.effects import Moment, to_text
from kscale.objects.capacity_buffers import CapacityBuffer, LocalObjectRef
from kscale.objects.conditions import with_condition
from kscale.objects.meta import Condition
from kscale.objects.names import go_quote

__all__ = ["ACTIVE_STRATEGY", "LIMITED_BY_QUOTAS", "PROVISIONING", "READY", "marked", "missing_template"]

ACTIVE_STRATEGY: Final = "buffer.x-k8s.io/active-capacity"
READY: Final = "ReadyForProvisioning"
PROVISIONING: Final = "Provisioning"
LIMITED_BY_QUOTAS: Final = "LimitedByQuotas"


def marked(
    buffer: CapacityBuffer,
    type_: str,
    holds: bool,
    reason: str,
    now: Moment,
    message: str = "",
    generation: int | None = None,
) -> CapacityBuffer:
    """The buffer with a condition, about that generation of it if one is given. The very same object if that is nothing
    new."""
    condition = Condition(
        type=type_,
        status=str(holds),
        reason=reason,
        message=message,
        last_transition_time=to_text(now),
        observed_generation=generation,
    )
    conditions = with_condition(buffer.status.conditions, condition)
    if conditions is buffer.status.conditions:
        return buffer
    return replace(buffer, status=replace(buffer.status, conditions=conditions))


def missing_template(reference: LocalObjectRef | None) -> str:
    """What is said of a template that is not there."""
    name = go_quote("" if reference is None else reference.name)
    return f"capacity buffer client can't get pod template: podtemplates {name} not found"
