"""The VPA that is in charge of a new pod (``admission-controller/resource/vpa/matcher.go``)."""

from __future__ import annotations

from collections.abc import Iterable

from kscale.effects import GetScale, Progress, StepsOf
from kscale.objects.core import Pod
from kscale.objects.selectors import Selector
from kscale.objects.vpa import VerticalPodAutoscaler, update_mode
from kscale.vpa.controllers import ControllerKey, Controllers, TargetError
from kscale.vpa.startup_boost import has_startup_boost
from kscale.vpa.target import controlling_vpa, parent_of_steps, selector_of_target_steps

__all__ = ["VpaIndex"]

_Target = tuple[str, str, str]  # namespace, kind, name


class VpaIndex:
    """VPAs by the controller that they target.

    ``vpas``: the first ones; :meth:`apply` and :meth:`remove` take what changes. Single owner.
    """

    __slots__ = ("_by_target", "_target_of")

    def __init__(self, vpas: Iterable[VerticalPodAutoscaler] = ()) -> None:
        self._by_target: dict[_Target, dict[tuple[str, str], VerticalPodAutoscaler]] = {}
        self._target_of: dict[tuple[str, str], _Target] = {}
        for vpa in vpas:
            self.apply(vpa)

    def __len__(self) -> int:
        return len(self._target_of)

    def __repr__(self) -> str:
        return f"<VpaIndex: {len(self)} VPAs with a target>"

    def apply(self, vpa: VerticalPodAutoscaler) -> None:
        """A VPA is there, or has changed: it takes the place of the one of its name."""
        key, target = (vpa.namespace, vpa.name), vpa.spec.target_ref
        place = None if target is None else (vpa.namespace, target.kind, target.name)
        if self._target_of.get(key) != place:
            self.remove(*key)
        if place is not None:
            self._by_target.setdefault(place, {})[key] = vpa
            self._target_of[key] = place

    def remove(self, namespace: str, name: str) -> None:
        """A VPA is gone; one that was not there is no error."""
        place = self._target_of.pop((namespace, name), None)
        if place is not None:
            known = self._by_target[place]
            del known[namespace, name]
            if not known:
                del self._by_target[place]

    def targeting(self, controller: ControllerKey) -> list[VerticalPodAutoscaler]:
        """The VPAs whose target is a controller, whatever its ``apiVersion``."""
        return list(self._by_target.get((controller.namespace, controller.kind, controller.name), {}).values())

    def match_steps(
        self, pod: Pod, controllers: Controllers, progress: Progress, diagnostics: list[str] | None = None
    ) -> StepsOf[GetScale, VerticalPodAutoscaler | None]:
        """The strongest VPA whose target is the pod's topmost controller; Off counts only with a startup boost. Asks
        by way of ``progress``. ``diagnostics`` takes what upstream logs where it finds no controller or selector."""
        diagnostics = [] if diagnostics is None else diagnostics
        try:
            parent = yield from parent_of_steps(pod, controllers, progress)
        except TargetError as error:
            diagnostics.append(f"Failed to get parent controller for pod {pod.key}: {error}")
            return None
        if parent is None:
            return None
        candidates: list[tuple[VerticalPodAutoscaler, Selector]] = []
        for vpa in self.targeting(parent):
            if update_mode(vpa) == "Off" and not has_startup_boost(vpa):
                continue
            try:
                candidates.append((vpa, (yield from selector_of_target_steps(vpa, controllers, progress))))
            except TargetError as error:
                diagnostics.append(f"Skipping VPA object {vpa.key} because we cannot fetch selector: {error}")
        return controlling_vpa(pod, parent, candidates)
