"""Find the pods that a VPA targets and the VPA that controls a pod (upstream: ``pkg/target``,
``pkg/utils/vpa/api.go``).

If an unknown scale is needed, the plain functions raise :class:`~kscale.vpa.controllers.ScaleNeededError`; their
``*_steps`` request it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kscale.effects import GetScale, Moment, Progress, StepsOf, from_text
from kscale.errors import InputError, Problem
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import ObjectMeta, OwnerReference
from kscale.objects.api.vpa import VerticalPodAutoscaler, update_mode
from kscale.objects.pod_owners import controller_of
from kscale.objects.selectors import Selector, SelectorError, compile_selector, parse_selector
from kscale.vpa.container_resources import has_startup_boost
from kscale.vpa.controllers import (
    WELL_KNOWN_KINDS,
    ControllerKey,
    Controllers,
    ScaleLookup,
    ScaleRefusedError,
    TargetError,
    UnknownKindError,
    evaluate_with_scales_steps,
    get_pod_selector,
)

__all__ = [
    "ControlledPods",
    "VpaWithSelector",
    "filter_live_pods",
    "find_controlled_pods_steps",
    "find_controlling_vpa",
    "find_topmost_controller",
    "find_topmost_controller_steps",
    "find_topmost_owner",
    "find_topmost_owner_steps",
    "get_pod_owner",
    "is_active_vpa",
    "is_stronger_vpa",
    "resolve_target_selector",
    "resolve_target_selector_steps",
    "resolve_vpa_selectors_steps",
]


_NODE_KIND = "Node"

# -- selected pods ---------------------------------------------------------------------------------------------


def resolve_target_selector(
    vpa: VerticalPodAutoscaler, controllers: Controllers, scales: ScaleLookup | None = None
) -> Selector:
    """Return the selector of a VPA's target (``VpaTargetSelectorFetcher``).

    ``scales``: a lookup to use in place of that of ``controllers``. Raises :class:`TargetError` with upstream's text if
    the target does not exist or has no selector, and :class:`~kscale.vpa.controllers.ScaleNeededError` if its scale was
    not requested yet.
    """
    target = vpa.spec.target_ref
    if target is None:
        raise TargetError("targetRef not defined. If this is a v1beta1 object, switch to v1")
    key = ControllerKey(vpa.namespace, target.kind, target.name, target.api_version)
    if key.kind in WELL_KNOWN_KINDS:
        try:
            return compile_selector(get_pod_selector(controllers.existing(key)))
        except SelectorError as error:
            raise TargetError(str(error)) from None
    try:
        scale = controllers.scale(key, scales)
        if not scale.status.selector:
            text = f"resource {key.namespace}/{key.name} has an empty selector for scale sub-resource"
            raise _build_unhandled_target_error(key, text)
        return parse_selector(scale.status.selector)
    except (SelectorError, UnknownKindError, ScaleRefusedError) as error:
        raise _build_unhandled_target_error(key, str(error)) from None


def resolve_target_selector_steps(
    vpa: VerticalPodAutoscaler, controllers: Controllers, progress: Progress
) -> StepsOf[GetScale, Selector]:
    """Return the selector of a VPA's target; the scale is requested each time, as upstream does.

    Raises :class:`TargetError` as :func:`resolve_target_selector` does.
    """
    return (
        yield from evaluate_with_scales_steps(
            progress,
            controllers.scales,
            lambda scales: resolve_target_selector(vpa, controllers, scales),
            remember=False,
        )
    )


# -- owners ----------------------------------------------------------------------------------------------------


def find_topmost_controller(key: ControllerKey | None, controllers: Controllers) -> ControllerKey | None:
    """Follow the owners of a controller; return the last one that is well known or scalable.

    None if ``key`` is None or there is no such controller. Raises :class:`TargetError` if ``key`` or an owner cannot be
    resolved, or for a cycle of owners, and :class:`~kscale.vpa.controllers.ScaleNeededError` if a scale was not
    requested yet.
    """
    if key is None:
        return None
    topmost = key if _is_well_known_or_scalable(key, controllers) else None
    visited = {key}
    while (owner := _get_owner_of_controller(key, controllers)) is not None:
        if _is_well_known_or_scalable(owner, controllers):
            topmost = owner
        if owner in visited:
            raise TargetError("cycle detected in ownership chain")
        visited.add(owner)
        key = owner
    return topmost


def find_topmost_controller_steps(
    key: ControllerKey | None, controllers: Controllers, progress: Progress
) -> StepsOf[GetScale, ControllerKey | None]:
    """Run :func:`find_topmost_controller` as a step machine, which requests unknown scales.

    Returns the controller, or None, and raises TargetError as that function does.
    """
    return (
        yield from evaluate_with_scales_steps(
            progress, controllers.scales, lambda _: find_topmost_controller(key, controllers)
        )
    )


def get_pod_owner(pod: Pod) -> ControllerKey | None:
    """Return the controller that owns a pod; None if there is none.

    As upstream, the last reference with ``controller: true`` counts.
    """
    owners = [owner for owner in pod.metadata.owner_references if owner.controller]
    return _get_owner_key(pod.namespace, owners[-1]) if owners else None


def find_topmost_owner(pod: Pod, controllers: Controllers) -> ControllerKey | None:
    """Return the topmost controller of a pod that is well known or scalable (``find_topmost_controller``).

    None if there is none, and for a pod owned by a node. Raises :class:`TargetError` if an owner cannot be resolved,
    and :class:`~kscale.vpa.controllers.ScaleNeededError` if a scale was not requested yet.
    """
    owner = get_pod_owner(pod)
    return None if owner is None or owner.kind == _NODE_KIND else find_topmost_controller(owner, controllers)


def find_topmost_owner_steps(
    pod: Pod, controllers: Controllers, progress: Progress
) -> StepsOf[GetScale, ControllerKey | None]:
    """Run :func:`find_topmost_owner` as a step machine, which requests unknown scales.

    Returns the controller, or None, and raises TargetError as that function does.
    """
    return (
        yield from evaluate_with_scales_steps(
            progress, controllers.scales, lambda _: find_topmost_owner(pod, controllers)
        )
    )


def _is_well_known_or_scalable(key: ControllerKey, controllers: Controllers) -> bool:
    """Check whether a controller is of a well-known kind or has a scale (``isWellKnownOrScalable``).

    Raises ScaleNeededError if the scale was not requested yet.
    """
    if key.kind in WELL_KNOWN_KINDS:
        return True
    if key.kind == _NODE_KIND:
        return False
    try:
        controllers.scale(key)
    except (TargetError, LookupError):
        return False
    return True


def _get_owner_of_controller(key: ControllerKey, controllers: Controllers) -> ControllerKey | None:
    """Return the owner of a controller; None if it has none, or no scale exists (``getParentOfController``).

    Raises TargetError if the controller cannot be read or is of an unknown kind, and ScaleNeededError if its scale was
    not requested yet.
    """
    if key.kind in WELL_KNOWN_KINDS:
        reference = controller_of(controllers.existing(key).metadata)
    else:
        try:
            if key.kind == _NODE_KIND:  # mirror pods are owned by their node
                raise UnknownKindError("node is not a valid owner")
            owners = controllers.scale(key).metadata.owner_references
        except ScaleRefusedError as error:
            if error.error.is_not_found:
                return None
            raise _build_unhandled_target_error(key, str(error)) from None
        except UnknownKindError as error:
            raise _build_unhandled_target_error(key, str(error)) from None
        reference = controller_of(ObjectMeta(owner_references=owners))
    return _get_owner_key(key.namespace, reference) if reference is not None else None


def _build_unhandled_target_error(key: ControllerKey, text: str) -> TargetError:
    """Build upstream's error of a target that it cannot handle."""
    return TargetError(f"unhandled targetRef {key.api_version} / {key.kind} / {key.name}, last error {text}")


def _get_owner_key(namespace: str, reference: OwnerReference) -> ControllerKey:
    """Return the key of the controller that an owner reference names."""
    return ControllerKey(namespace, reference.kind, reference.name, reference.api_version)


# -- matching VPAs ---------------------------------------------------------------------------------------------


def is_stronger_vpa(a: VerticalPodAutoscaler, b: VerticalPodAutoscaler) -> bool:
    """Check whether ``a`` takes precedence over ``b``: older, or equally old with the smaller name.

    Raises InputError for a malformed creation time.
    """
    mine, theirs = _parse_creation_time(a), _parse_creation_time(b)
    return mine < theirs if mine != theirs else a.name < b.name


def _parse_creation_time(vpa: VerticalPodAutoscaler) -> Moment:
    """Return the creation time in nanoseconds; the zero time if it is missing. Raises InputError if it is malformed."""
    try:
        return from_text(vpa.metadata.creation_timestamp)
    except ValueError as error:
        where = f"VerticalPodAutoscaler {vpa.key}"
        raise InputError(Problem(str(error), object=where, field="metadata.creationTimestamp")) from None


def find_controlling_vpa(
    pod: Pod, parent: ControllerKey | None, vpas: Iterable[tuple[VerticalPodAutoscaler, Selector]]
) -> VerticalPodAutoscaler | None:
    """Return the strongest VPA whose target is ``parent`` and whose selector matches the pod; None if there is none.

    ``parent``: the pod's topmost controller, compared with targets by namespace, kind and name. Raises InputError if
    several VPAs match and the creation time of one is malformed.
    """
    if parent is None:
        return None
    best: VerticalPodAutoscaler | None = None
    for vpa, selector in vpas:
        target = vpa.spec.target_ref
        if target is None or vpa.namespace != parent.namespace:
            continue
        if (target.kind, target.name) != (parent.kind, parent.name) or not selector.matches(pod.metadata.labels):
            continue
        if best is None or is_stronger_vpa(vpa, best):
            best = vpa
    return best


_ACTIVE_MODES: Final = frozenset({"Recreate", "Auto", "InPlaceOrRecreate", "InPlace"})

VpaWithSelector = tuple[VerticalPodAutoscaler, Selector]
"""A VPA, and what its target selects."""
ControlledPods = tuple[VerticalPodAutoscaler, list[Pod]]
"""A VPA, and the pods that it controls."""


def is_active_vpa(vpa: VerticalPodAutoscaler) -> bool:
    """Check whether a VPA updates running pods (a mode other than Off and Initial), or boosts the start of pods."""
    return update_mode(vpa) in _ACTIVE_MODES or has_startup_boost(vpa)


def resolve_vpa_selectors_steps(
    vpas: Iterable[VerticalPodAutoscaler],
    controllers: Controllers,
    progress: Progress,
    diagnostics: list[str] | None = None,
) -> StepsOf[GetScale, list[VpaWithSelector]]:
    """Return the VPAs with their selectors.

    VPAs whose target cannot be resolved are left out; the errors are added to ``diagnostics``.
    """
    resolved: list[VpaWithSelector] = []
    for vpa in vpas:
        try:
            resolved.append((vpa, (yield from resolve_target_selector_steps(vpa, controllers, progress))))
        except TargetError as error:
            if diagnostics is not None:
                diagnostics.append(f"{vpa.key}: {error}")
    return resolved


def filter_live_pods(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods that are not being deleted."""
    return [pod for pod in pods if pod.metadata.deletion_timestamp is None]


def find_controlled_pods_steps(
    pods: Iterable[Pod], vpas: Sequence[VpaWithSelector], controllers: Controllers, progress: Progress
) -> StepsOf[GetScale, list[ControlledPods]]:
    """Return each VPA that controls pods, with these pods.

    VPAs are sorted by namespace and name; pods are in list order. Pods that no VPA controls, or whose owners cannot be
    resolved, are left out. Raises InputError if several VPAs match a pod and the creation time of one is malformed.
    """
    by_target: dict[tuple[str, str, str], list[VpaWithSelector]] = {}
    for vpa, selector in vpas:
        target = vpa.spec.target_ref
        if target is not None:
            by_target.setdefault((vpa.namespace, target.kind, target.name), []).append((vpa, selector))
    parents: dict[ControllerKey | None, ControllerKey | None] = {None: None}
    controlled: dict[tuple[str, str], ControlledPods] = {}
    for pod in pods:
        owner = get_pod_owner(pod)
        if owner not in parents:
            try:
                parents[owner] = yield from find_topmost_owner_steps(pod, controllers, progress)
            except TargetError:
                parents[owner] = None
        parent = parents[owner]
        if parent is None:
            continue
        candidates = by_target.get((parent.namespace, parent.kind, parent.name), ())
        chosen = find_controlling_vpa(pod, parent, candidates)
        if chosen is not None:
            controlled.setdefault((chosen.namespace, chosen.name), (chosen, []))[1].append(pod)
    return [controlled[key] for key in sorted(controlled)]
