"""The target of an HPA: its scale (found, read and written), its selector, and the other HPAs that select the same
pods.

Upstream: in ``horizontal.go`` ``scaleForResourceMappings``, the selector checks at the beginning of
``computeReplicasForMetrics`` and the end of ``reconcileAutoscaler``; ``BiMultimap``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kscale.effects import (
    DEADLINE_EXCEEDED,
    SECOND,
    ApiError,
    Emit,
    GetScale,
    List,
    Progress,
    PutScale,
    StepsOf,
    Wait,
    WriteStatus,
)
from kscale.hpa.controller.status import ReconcileContext
from kscale.objects.api.autoscaling import Scale
from kscale.objects.kinds import RESTMapper, RESTMappingError, parse_group_version
from kscale.objects.selectors import NOTHING, Selector, SelectorError, SelectorIndex, parse_selector

__all__ = ["NoScale", "SelectorStore", "TargetScale", "check_selector", "find_scale", "put_scale", "request_scale"]


class SelectorStore:
    """Selectors of registered HPAs by namespace and name. Not safe for concurrent use."""

    __slots__ = ("_index", "_namespaces", "version")

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, Selector]] = {}
        self._index: SelectorIndex[str] = SelectorIndex()
        self.version = 0
        """Number that changes with every modification."""

    def put_if_absent(self, namespace: str, name: str, selector: str | None = None) -> bool:
        """Register an HPA and its ``selector`` (None: no pods yet).

        Return False, without a change, if the HPA is already registered.
        """
        if self.is_registered(namespace, name):
            return False
        self._insert(namespace, name, _parse_or_nothing(selector))
        self.version += 1
        return True

    def put_if_present(self, namespace: str, name: str, selector: str | None) -> bool:
        """Set the selector of a registered HPA (None: no pods). Return False if the HPA is not registered."""
        if not self.is_registered(namespace, name):
            return False
        new, old = _parse_or_nothing(selector), self._namespaces[namespace][name]
        if new is not old:  # equal texts give the same cached object
            self._index.remove(namespace, old, name)
            self._insert(namespace, name, new)
            self.version += 1
        return True

    def delete(self, namespace: str, name: str) -> bool:
        """Remove an HPA. Return False if it was not registered."""
        if not self.is_registered(namespace, name):
            return False
        names = self._namespaces[namespace]
        self._index.remove(namespace, names.pop(name), name)
        self.version += 1
        if not names:
            del self._namespaces[namespace]
        return True

    def _insert(self, namespace: str, name: str, selector: Selector) -> None:
        """Add the selector of an HPA to the namespace's entries and to the index."""
        self._namespaces.setdefault(namespace, {})[name] = selector
        self._index.add(namespace, selector, name)

    def is_registered(self, namespace: str, name: str) -> bool:
        """Check whether the HPA ``namespace``/``name`` is registered."""
        return name in self.entries(namespace)

    def copy(self) -> SelectorStore:
        """Return an independent copy of the store."""
        other = SelectorStore()
        for namespace, names in self._namespaces.items():
            for name, selector in names.items():
                other._insert(namespace, name, selector)
        return other

    def namespaces(self) -> tuple[str, ...]:
        """Return the namespaces with a registered HPA."""
        return tuple(self._namespaces)

    def entries(self, namespace: str) -> Mapping[str, Selector]:
        """Return the selectors of a namespace by the HPA's name. It is the stored mapping: do not change it.

        An HPA without pods has a selector that matches nothing.
        """
        return self._namespaces.get(namespace, {})

    def matching(self, namespace: str, label_sets: Iterable[Mapping[str, str] | None], limit: int = 0) -> list[str]:
        """Return the sorted names of the HPAs of a namespace whose selector matches any of the ``label_sets``.

        At most ``limit`` names (0: all).
        """
        if namespace not in self._index:
            return []
        names: set[str] = set()
        for labels in {tuple(sorted((labels or {}).items())) for labels in label_sets}:
            names.update(self._index.matching(namespace, dict(labels)))
        return sorted(names)[: limit or None]


def _parse_or_nothing(selector: str | None) -> Selector:
    """Parse a selector; None gives a selector that matches nothing."""
    return NOTHING if selector is None else parse_selector(selector)


def check_selector(
    context: ReconcileContext, text: str, selectors: SelectorStore | None, *, alone: bool = False
) -> StepsOf[List | Emit, str]:
    """Store the selector ``text`` of the target, and check that no other HPA selects its pods.

    The selector is stored in ``selectors`` and in the HPA's state. Returns an empty text, or the error:

    - the selector is missing, invalid or ambiguous, which also sets a condition and emits an event;
    - the HPA is not registered any more;
    - the pods cannot be listed.

    ``alone``: it is already known that no other HPA selects the pods, so they are not listed. ``selectors`` None: other
    HPAs are not checked. The legacy profile only parses the selector.
    """
    if not text:
        yield from context.warn("SelectorRequired", "selector is required")
        context.set("ScalingActive", False, "InvalidSelector", "the HPA target's scale is missing a selector")
        return "selector is required"
    try:
        parse_selector(text)
    except SelectorError as error:
        message = f"couldn't convert selector into a corresponding internal selector object: {error}"
        yield from context.warn("InvalidSelector", message)
        context.set("ScalingActive", False, "InvalidSelector", message)
        return message
    if context.options.legacy:
        return ""  # overlapping HPAs both scale
    namespace, name = context.hpa.metadata.namespace, context.hpa.metadata.name
    stored = context.state.registered
    if stored and selectors is not None:
        stored = selectors.put_if_present(namespace, name, text)
    if not stored:
        return f"HPA {namespace}/{name} was deleted during reconciliation"
    context.remember(selector=text)
    if alone:
        return ""
    pods = yield from context.progress.act(List(kind="Pod", namespace=namespace, selector=text))
    if pods.error is not None:
        return pods.error.message
    if selectors is None:
        return ""
    limit = 2 if context.options.gates["HPAOptimizedSelectorStore"] else 0
    names = selectors.matching(namespace, [pod.metadata.labels for pod in pods.value], limit)
    if len(names) < 2:
        return ""
    rivals = " ".join(f"{namespace}/{each}" for each in names)
    message = f"pods by selector {text} are controlled by more than one HPA (e.g. [{rivals}])"
    yield from context.warn("AmbiguousSelector", message)
    context.set("ScalingActive", False, "AmbiguousSelector", message)
    return message


_ATTEMPTS: Final = 5
_RETRY_DELAY: Final = SECOND // 100
_JITTER: Final = 0.1


class TargetScale(msgspec.Struct, frozen=True, gc=False):
    """The scale of a target, and the group-resource that served it."""

    scale: Scale
    resource: str


@dataclass(frozen=True, slots=True)
class NoScale:
    """Error if the scale cannot be read: the error text of upstream's sync, and the error class for metrics."""

    error: str
    error_class: str


def find_scale(
    context: ReconcileContext, mapper: RESTMapper
) -> StepsOf[GetScale | WriteStatus | Emit, TargetScale | NoScale]:
    """Request the target's scale from the resources that serve the target's kind, until one has a scale.

    Returns NoScale if the reference is invalid, its kind is unknown, or no resource has a scale (with the first error).
    The condition is set, an event emitted and the status written before that.
    """
    reference, namespace = context.hpa.spec.scale_target_ref, context.hpa.metadata.namespace
    try:
        group, _ = parse_group_version(reference.api_version)
    except RESTMappingError as error:
        yield from _report_missing_scale(context, str(error))
        return NoScale(f"invalid API version in scale target reference: {error}", "spec")
    try:
        resources = mapper.resources(group, reference.kind)
    except RESTMappingError as error:
        yield from _report_missing_scale(context, str(error))
        return NoScale(f"unable to determine resource for scale target reference: {error}", "internal")
    response = yield from request_scale(context.progress, namespace, reference.name, resources)
    if isinstance(response, TargetScale):
        return response
    text = "unrecognized resource" if response is None else response.message
    yield from _report_missing_scale(context, text)
    target = f"{reference.kind}/{namespace}/{reference.name}"
    return NoScale(f"failed to query scale subresource for {target}: {text}", "internal")


def request_scale(
    progress: Progress, namespace: str, name: str, resources: Sequence[str]
) -> StepsOf[GetScale, TargetScale | ApiError | None]:
    """Request the scale from each resource in order, until one has a scale.

    Returns the first error if none has one, None if there is no resource. A timeout is returned at once.
    """
    first: ApiError | None = None
    for resource in resources:
        outcome = yield from progress.act(GetScale(namespace=namespace, resource=resource, name=name))
        if outcome.error is None:
            return TargetScale(outcome.value, resource)
        if outcome.error == DEADLINE_EXCEEDED:
            return outcome.error  # no time left for the other resources
        first = first or outcome.error
    return first


def _report_missing_scale(context: ReconcileContext, error: str) -> StepsOf[WriteStatus | Emit, None]:
    """Emit the event, set the condition and write the status of a target whose scale cannot be read."""
    yield from context.warn("FailedGetScale", error)
    text = f"the HPA controller was unable to get the target's current scale: {error}"
    context.set("AbleToScale", False, "FailedGetScale", text)
    yield from context.write_status()


def put_scale(
    context: ReconcileContext, target: TargetScale, replicas: int
) -> StepsOf[PutScale | GetScale | Wait, ApiError | None]:
    """Write the replicas. Returns the error of a permanent failure, or None.

    After any failure the scale is read again; after a conflict the same replicas are written again, in at most five
    attempts. The legacy profile writes once.
    """
    namespace, name = context.hpa.metadata.namespace, context.hpa.spec.scale_target_ref.name
    scale, resource = target.scale, target.resource
    for attempt in range(1, _ATTEMPTS + 1):
        written = PutScale(namespace=namespace, resource=resource, scale=scale, replicas=replicas)
        error: ApiError | None = (yield from context.progress.act(written)).error
        if error is None or context.options.legacy:
            return error  # legacy: after a conflict, wait for the next period
        query = GetScale(namespace=namespace, resource=resource, name=name, fresh=True)
        read = yield from context.progress.act(query)
        if read.error is None:
            scale = read.value
        if not error.is_conflict or attempt == _ATTEMPTS:
            break
        if (yield from context.progress.wait(_RETRY_DELAY, jitter=_JITTER)).error is not None:
            break  # the process ends, so return the last error
    return error
