"""Which pods each VPA controls (``GetControllingVPAForPod`` over all pods)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kscale.effects import GetScale, Progress, StepsOf
from kscale.objects.core import Pod
from kscale.objects.selectors import Selector
from kscale.objects.vpa import VerticalPodAutoscaler, update_mode
from kscale.vpa.controllers import ControllerKey, Controllers, TargetError
from kscale.vpa.startup_boost import has_startup_boost
from kscale.vpa.target import controlling_vpa, parent_of_steps, pod_owner, selector_of_target_steps

__all__ = ["Controlled", "Selected", "controlled_pods_steps", "is_acting", "live_pods", "select_steps"]

_ACTING_MODES: Final = frozenset({"Recreate", "Auto", "InPlaceOrRecreate", "InPlace"})

Selected = tuple[VerticalPodAutoscaler, Selector]
"""A VPA, and what its target selects."""
Controlled = tuple[VerticalPodAutoscaler, list[Pod]]
"""A VPA, and the pods that it controls."""


def is_acting(vpa: VerticalPodAutoscaler) -> bool:
    """Whether a VPA updates pods, or boosts their start."""
    return update_mode(vpa) in _ACTING_MODES or has_startup_boost(vpa)


def select_steps(
    vpas: Iterable[VerticalPodAutoscaler],
    controllers: Controllers,
    progress: Progress,
    diagnostics: list[str] | None = None,
) -> StepsOf[GetScale, list[Selected]]:
    """VPAs with what their targets select; those without a selector are left out, and ``diagnostics`` told why."""
    found: list[Selected] = []
    for vpa in vpas:
        try:
            found.append((vpa, (yield from selector_of_target_steps(vpa, controllers, progress))))
        except TargetError as error:
            if diagnostics is not None:
                diagnostics.append(f"{vpa.key}: {error}")
    return found


def live_pods(pods: Iterable[Pod]) -> list[Pod]:
    """Pods that are not being deleted."""
    return [pod for pod in pods if pod.metadata.deletion_timestamp is None]


def controlled_pods_steps(
    pods: Iterable[Pod], vpas: Sequence[Selected], controllers: Controllers, progress: Progress
) -> StepsOf[GetScale, list[Controlled]]:
    """The pods of each VPA that has some; VPAs by namespace and name (upstream walks a map), pods in listed order."""
    by_target: dict[tuple[str, str, str], list[Selected]] = {}
    for vpa, selector in vpas:
        target = vpa.spec.target_ref
        if target is not None:
            by_target.setdefault((vpa.namespace, target.kind, target.name), []).append((vpa, selector))
    parents: dict[ControllerKey | None, ControllerKey | None] = {None: None}
    found: dict[tuple[str, str], Controlled] = {}
    for pod in pods:
        owner = pod_owner(pod)
        if owner not in parents:
            try:
                parents[owner] = yield from parent_of_steps(pod, controllers, progress)
            except TargetError:
                parents[owner] = None
        parent = parents[owner]
        if parent is None:
            continue
        candidates = by_target.get((parent.namespace, parent.kind, parent.name), ())
        chosen = controlling_vpa(pod, parent, candidates)
        if chosen is not None:
            found.setdefault((chosen.namespace, chosen.name), (chosen, []))[1].append(pod)
    return [found[key] for key in sorted(found)]
