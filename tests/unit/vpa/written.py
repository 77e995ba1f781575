"""What a round wrote, as objects."""

from __future__ import annotations

from collections.abc import Iterable

from kscale.effects import Action, Create, Patch
from kscale.objects.api.vpa import VerticalPodAutoscalerCheckpoint
from kscale.objects.decode import from_dict, to_dict


def checkpoints(actions: Iterable[Action]) -> list[VerticalPodAutoscalerCheckpoint]:
    """Checkpoints that were patched or made, in order; a container's name is what follows the last dash."""
    result = []
    for action in actions:
        if isinstance(action, Create) and isinstance(action.object, VerticalPodAutoscalerCheckpoint):
            result.append(action.object)
        if not isinstance(action, Patch) or action.kind != "VerticalPodAutoscalerCheckpoint":
            continue
        (operation,) = action.patch
        vpa, _, container = action.name.rpartition("-")
        body = {
            "metadata": {"namespace": action.namespace, "name": action.name},
            "spec": {"vpaObjectName": vpa, "containerName": container},
            "status": to_dict(operation.value),
        }
        result.append(from_dict(body, VerticalPodAutoscalerCheckpoint))
    return result
