"""Whose pods they are: the target's selector, and who else selects the same pods.

Upstream: the beginning of ``computeReplicasForMetrics`` in ``horizontal.go``.
"""

from __future__ import annotations

from kscale.effects import Emit, List, StepsOf
from kscale.hpa.reconcile_pass import Pass
from kscale.hpa.selector_store import SelectorStore
from kscale.objects.selector_text import parse_selector
from kscale.objects.selectors import SelectorError

__all__ = ["check_selector"]


def check_selector(
    now: Pass, text: str, selectors: SelectorStore | None, *, alone: bool = False
) -> StepsOf[List | Emit, str]:
    """Registers the selector of the target, and lists its pods; an error where they cannot be told or are not this
    HPA's alone. ``alone``: it is known that they are."""
    if not text:
        yield from now.warn("SelectorRequired", "selector is required")
        now.set("ScalingActive", False, "InvalidSelector", "the HPA target's scale is missing a selector")
        return "selector is required"
    try:
        parse_selector(text)
    except SelectorError as error:
        message = f"couldn't convert selector into a corresponding internal selector object: {error}"
        yield from now.warn("InvalidSelector", message)
        now.set("ScalingActive", False, "InvalidSelector", message)
        return message
    if now.options.legacy:
        return ""  # HPAs that overlap fight each other
    namespace, name = now.hpa.metadata.namespace, now.hpa.metadata.name
    stored = now.state.registered
    if stored and selectors is not None:
        stored = selectors.put_if_present(namespace, name, text)
    if not stored:
        return f"HPA {namespace}/{name} was deleted during reconciliation"
    now.remember(selector=text)
    if alone:
        return ""
    pods = yield from now.progress.act(List(kind="Pod", namespace=namespace, selector=text))
    if pods.error is not None:
        return pods.error.message
    if selectors is None:
        return ""
    limit = 2 if now.options.enabled("HPAOptimizedSelectorStore") else 0
    names = selectors.matching(namespace, [pod.metadata.labels for pod in pods.value], limit)
    if len(names) < 2:
        return ""
    rivals = " ".join(f"{namespace}/{each}" for each in names)
    message = f"pods by selector {text} are controlled by more than one HPA (e.g. [{rivals}])"
    yield from now.warn("AmbiguousSelector", message)
    now.set("ScalingActive", False, "AmbiguousSelector", message)
    return message
