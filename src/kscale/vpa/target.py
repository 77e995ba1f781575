"""Which pods a VPA means, and which VPA a pod belongs to (upstream: ``pkg/target``, ``pkg/utils/vpa/api.go``).

The plain functions look things up; where that needs a scale that is not known they raise
:class:`~kscale.vpa.scales.ScaleNeededError`, and their ``*_steps`` ask for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from kscale.effects import GetScale, Moment, Progress, StepsOf, from_text
from kscale.objects.core import Pod
from kscale.objects.meta import ObjectMeta, OwnerReference
from kscale.objects.owners import controller_of
from kscale.objects.selector_text import parse_selector
from kscale.objects.selectors import Selector, SelectorError, compile_selector
from kscale.objects.vpa import VerticalPodAutoscaler
from kscale.vpa.controllers import (
    WELL_KNOWN,
    ControllerKey,
    Controllers,
    TargetError,
    UnknownKindError,
    selector_of,
)
from kscale.vpa.scales import ScaleRefusedError, Scales, with_scales

__all__ = [
    "controlling_vpa",
    "parent_of",
    "parent_of_steps",
    "pod_owner",
    "selector_of_target",
    "selector_of_target_steps",
    "stronger",
    "topmost",
    "topmost_steps",
]

_NODE = "Node"

# -- which pods ------------------------------------------------------------------------------------------------


def selector_of_target(vpa: VerticalPodAutoscaler, controllers: Controllers, scales: Scales | None = None) -> Selector:
    """The selector of a VPA's target (``VpaTargetSelectorFetcher``); ``scales``: where to look for scales instead.

    Raises :class:`TargetError` with upstream's text.
    """
    target = vpa.spec.target_ref
    if target is None:
        raise TargetError("targetRef not defined. If this is a v1beta1 object, switch to v1")
    key = ControllerKey(vpa.namespace, target.kind, target.name, target.api_version)
    if key.kind in WELL_KNOWN:
        try:
            return compile_selector(selector_of(controllers.existing(key)))
        except SelectorError as error:
            raise TargetError(str(error)) from None
    try:
        scale = controllers.scale(key, scales)
        if not scale.status.selector:
            text = f"resource {key.namespace}/{key.name} has an empty selector for scale sub-resource"
            raise _unhandled(key, text)
        return parse_selector(scale.status.selector)
    except (SelectorError, UnknownKindError, ScaleRefusedError) as error:
        raise _unhandled(key, str(error)) from None


def selector_of_target_steps(
    vpa: VerticalPodAutoscaler, controllers: Controllers, progress: Progress
) -> StepsOf[GetScale, Selector]:
    """The same; a scale is asked for each time, as upstream does."""
    return (
        yield from with_scales(
            progress,
            controllers.scales,
            lambda scales: selector_of_target(vpa, controllers, scales),
            remember=False,
        )
    )


# -- who owns --------------------------------------------------------------------------------------------------


def topmost(key: ControllerKey | None, controllers: Controllers) -> ControllerKey | None:
    """The last well-known or scalable controller up the chain of owners; raises :class:`TargetError`."""
    if key is None:
        return None
    found = key if _is_known(key, controllers) else None
    visited = {key}
    while (owner := _owner(key, controllers)) is not None:
        if _is_known(owner, controllers):
            found = owner
        if owner in visited:
            raise TargetError("cycle detected in ownership chain")
        visited.add(owner)
        key = owner
    return found


def topmost_steps(
    key: ControllerKey | None, controllers: Controllers, progress: Progress
) -> StepsOf[GetScale, ControllerKey | None]:
    """The same, with the scales asked for that are not known."""
    return (yield from with_scales(progress, controllers.scales, lambda _: topmost(key, controllers)))


def pod_owner(pod: Pod) -> ControllerKey | None:
    """The controller that owns a pod. Upstream takes the last reference with ``controller: true`` here."""
    owners = [owner for owner in pod.metadata.owner_references if owner.controller]
    return _key_of(pod.namespace, owners[-1]) if owners else None


def parent_of(pod: Pod, controllers: Controllers) -> ControllerKey | None:
    """The topmost controller of a pod; None for bare pods and those of a node. Raises :class:`TargetError`."""
    owner = pod_owner(pod)
    return None if owner is None or owner.kind == _NODE else topmost(owner, controllers)


def parent_of_steps(pod: Pod, controllers: Controllers, progress: Progress) -> StepsOf[GetScale, ControllerKey | None]:
    """The same, with the scales asked for that are not known."""
    return (yield from with_scales(progress, controllers.scales, lambda _: parent_of(pod, controllers)))


def _is_known(key: ControllerKey, controllers: Controllers) -> bool:
    """Well known, or scalable (``isWellKnownOrScalable``)."""
    if key.kind in WELL_KNOWN:
        return True
    if key.kind == _NODE:
        return False
    try:
        controllers.scale(key)
    except (TargetError, LookupError):
        return False
    return True


def _owner(key: ControllerKey, controllers: Controllers) -> ControllerKey | None:
    """``getParentOfController``."""
    if key.kind in WELL_KNOWN:
        reference = controller_of(controllers.existing(key).metadata)
    else:
        try:
            if key.kind == _NODE:  # mirror pods are owned by their node
                raise UnknownKindError("node is not a valid owner")
            owners = controllers.scale(key).metadata.owner_references
        except ScaleRefusedError as error:
            if error.error.is_not_found:
                return None
            raise _unhandled(key, str(error)) from None
        except UnknownKindError as error:
            raise _unhandled(key, str(error)) from None
        reference = controller_of(ObjectMeta(owner_references=owners))
    return _key_of(key.namespace, reference) if reference is not None else None


def _unhandled(key: ControllerKey, text: str) -> TargetError:
    return TargetError(f"unhandled targetRef {key.api_version} / {key.kind} / {key.name}, last error {text}")


def _key_of(namespace: str, reference: OwnerReference) -> ControllerKey:
    return ControllerKey(namespace, reference.kind, reference.name, reference.api_version)


# -- which VPA -------------------------------------------------------------------------------------------------


def stronger(a: VerticalPodAutoscaler, b: VerticalPodAutoscaler) -> bool:
    """Whether ``a`` wins over ``b``: older, or equally old with the smaller name."""
    mine, theirs = _created(a), _created(b)
    return mine < theirs if mine != theirs else a.name < b.name


def _created(vpa: VerticalPodAutoscaler) -> Moment:
    return from_text(vpa.metadata.creation_timestamp)


def controlling_vpa(
    pod: Pod, parent: ControllerKey | None, vpas: Iterable[tuple[VerticalPodAutoscaler, Selector]]
) -> VerticalPodAutoscaler | None:
    """The strongest of the VPAs whose target is the pod's topmost controller and whose selector matches the pod."""
    if parent is None:
        return None
    best: VerticalPodAutoscaler | None = None
    for vpa, selector in vpas:
        target = vpa.spec.target_ref
        if target is None or vpa.namespace != parent.namespace:
            continue
        if (target.kind, target.name) != (parent.kind, parent.name) or not selector.matches(pod.metadata.labels):
            continue
        if best is None or stronger(vpa, best):
            best = vpa
    return best
