"""``LoadVPAs``: the VPAs that this recommender is in charge of, with what they select (``input/cluster_feeder.go``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kscale.effects import GetScale, Progress, StepsOf
from kscale.objects.owners import controller_of
from kscale.objects.selectors import NOTHING, Selector
from kscale.objects.vpa import VerticalPodAutoscaler
from kscale.vpa.controllers import ControllerKey, Controllers, TargetError
from kscale.vpa.model import RecommenderState
from kscale.vpa.model.vpa import CONFIG_DEPRECATED, CONFIG_UNSUPPORTED, Vpa
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.target import selector_of_target_steps, topmost_steps

__all__ = ["in_charge", "load_vpas_steps"]


def in_charge(vpa: VerticalPodAutoscaler, options: RecommenderOptions) -> bool:
    """Whether this recommender takes care of a VPA: by its recommender's name, and by namespace."""
    named, wanted = vpa.spec.recommenders, options.recommender_name
    if not (any(item.name == wanted for item in named) if named else wanted == "default"):
        return False
    return not options.ignores(vpa.metadata.namespace)


def load_vpas_steps(
    state: RecommenderState,
    vpas: Iterable[VerticalPodAutoscaler],
    controllers: Controllers,
    progress: Progress,
) -> StepsOf[GetScale, Sequence[Vpa]]:
    """Takes in VPAs, and forgets those that are gone. Those that are new, or select others than before, come back."""
    observed = []
    changed = []
    for item in vpas:
        if not in_charge(item, state.options):
            continue
        selector, problem = _known(state, item, controllers), ""
        if selector is None:
            selector, problem = yield from _resolve(item, controllers, progress)
            if not problem:
                _keep(state, item, controllers, selector)
        known = state.vpas.get((item.metadata.namespace, item.metadata.name))
        vpa = state.add_vpa(item, selector)
        vpa.conditions.pop(CONFIG_DEPRECATED, None)
        if problem:
            vpa.set_condition(CONFIG_UNSUPPORTED, True, "", problem, progress.now)
        else:
            vpa.conditions.pop(CONFIG_UNSUPPORTED, None)
        observed.append(vpa.key)
        if vpa is not known:
            changed.append(vpa)
    for key in sorted(set(state.vpas).difference(observed)):
        state.delete_vpa(key)
    state.observed = observed
    return changed


def _known(state: RecommenderState, vpa: VerticalPodAutoscaler, controllers: Controllers) -> Selector | None:
    """What :func:`_resolve` found of the same target the last time."""
    namespace = vpa.metadata.namespace
    found = state.targets.get((namespace, vpa.metadata.name))
    if found is None:
        return None
    target, controller, selector = found
    same = controllers.get(target.kind, namespace, target.name) is controller and (
        vpa.spec.target_ref is target or vpa.spec.target_ref == target
    )
    return selector if same else None


def _keep(state: RecommenderState, vpa: VerticalPodAutoscaler, controllers: Controllers, selector: Selector) -> None:
    """Remembers the selector of a target that is watched and has no owner: it depends on nothing else."""
    target = vpa.spec.target_ref
    controller = None if target is None else controllers.get(target.kind, vpa.namespace, target.name)
    if target is not None and controller is not None and controller_of(controller.metadata) is None:
        state.targets[vpa.namespace, vpa.name] = target, controller, selector


def _resolve(
    vpa: VerticalPodAutoscaler, controllers: Controllers, progress: Progress
) -> StepsOf[GetScale, tuple[Selector, str]]:
    """The selector of a VPA's target, or one that matches nothing and the text of the ConfigUnsupported condition."""
    try:
        selector = yield from selector_of_target_steps(vpa, controllers, progress)
    except TargetError as error:
        return NOTHING, f"Cannot read targetRef. Reason: {error}"
    target = vpa.spec.target_ref
    assert target is not None  # else there is no selector
    key = ControllerKey(vpa.namespace, target.kind, target.name, target.api_version)
    try:
        top = yield from topmost_steps(key, controllers, progress)
    except TargetError as error:
        return NOTHING, f"Error checking if target {key} is a topmost well-known or scalable controller: {error}"
    if top is None:
        return NOTHING, f"Unknown error during checking if target {key} is a topmost well-known or scalable controller"
    if top != key:
        should = "it should point to a topmost well-known or scalable controller"
        return NOTHING, f"The target {key} has a parent controller but {should}"
    return selector, ""
