"""Which requests an autoscaler looks at (``provisioningrequest/supported_classes.go``)."""

from __future__ import annotations

from typing import Final

from kscale.objects.provisioning_requests import ProvisioningRequest

__all__ = ["BEST_EFFORT_ATOMIC", "CHECK_CAPACITY", "checks_capacity", "is_supported"]

CHECK_CAPACITY: Final = "check-capacity.autoscaling.x-k8s.io"
BEST_EFFORT_ATOMIC: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
_INSTANCE: Final = "processorInstance"


def is_supported(request: ProvisioningRequest, instance: str = "") -> bool:
    """``instance`` is ``--check-capacity-processor-instance``: with a name it only checks capacity."""
    if request.spec.provisioning_class_name == BEST_EFFORT_ATOMIC:
        return not instance
    return checks_capacity(request, instance)


def checks_capacity(request: ProvisioningRequest, instance: str = "") -> bool:
    """Whether it is of the class that checks capacity, for this very instance.

    The instance stands in a parameter, or (the old form) before the name of the class.
    """
    name, wanted = request.spec.provisioning_class_name, (request.spec.parameters or {}).get(_INSTANCE, "")
    if wanted:
        return wanted == instance and name == CHECK_CAPACITY
    return name == instance + CHECK_CAPACITY
