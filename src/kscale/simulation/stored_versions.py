"""Objects as the simulated API server stores them, whichever version of the API a controller writes."""

from __future__ import annotations

from msgspec.structs import replace

from kscale.effects import Action, Moment, Outcome, Perform, WriteStatus
from kscale.hpa.v1_conversion import from_v1
from kscale.objects.autoscaling import HorizontalPodAutoscalerV1

__all__ = ["storing_current_versions"]


def storing_current_versions(perform: Perform) -> Perform:
    """Return what carries actions out with objects converted to the version that the world stores.

    The HPA controller of older releases writes its status as autoscaling/v1; the world has HPAs as autoscaling/v2.
    """

    def performing(action: Action, now: Moment) -> Outcome:
        if isinstance(action, WriteStatus) and isinstance(action.object, HorizontalPodAutoscalerV1):
            action = replace(action, object=from_v1(action.object))
        return perform(action, now)

    return performing
