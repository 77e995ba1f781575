"""The VPA that is in charge of a new pod (``admission-controller/resource/vpa/matcher.go``)."""

from __future__ import annotations

from collections.abc import Iterable

from kscale.objects.core import Pod
from kscale.objects.selectors import Selector
from kscale.objects.vpa import VerticalPodAutoscaler, update_mode
from kscale.vpa.startup_boost import has_startup_boost
from kscale.vpa.target import Controllers, TargetError, controlling_vpa

__all__ = ["VpaIndex"]


class VpaIndex:
    """VPAs by the controller that they target."""

    def __init__(self, vpas: Iterable[VerticalPodAutoscaler] = ()) -> None:
        self._by_target: dict[tuple[str, str, str], list[VerticalPodAutoscaler]] = {}
        for vpa in vpas:
            target = vpa.spec.target_ref
            if target is not None:
                self._by_target.setdefault((vpa.namespace, target.kind, target.name), []).append(vpa)

    def match(self, pod: Pod, controllers: Controllers) -> VerticalPodAutoscaler | None:
        """The strongest VPA whose target is the pod's topmost controller; Off counts only with a startup boost."""
        try:
            parent = controllers.parent_of(pod)
        except TargetError:
            return None
        if parent is None:
            return None
        candidates: list[tuple[VerticalPodAutoscaler, Selector]] = []
        for vpa in self._by_target.get((parent.namespace, parent.kind, parent.name), ()):
            if update_mode(vpa) == "Off" and not has_startup_boost(vpa):
                continue
            try:
                candidates.append((vpa, controllers.selector(vpa)))
            except TargetError:
                continue
        return controlling_vpa(pod, parent, candidates)
