"""The four kinds of Scale that servers speak, and the one that decisions read.

Upstream: ``k8s.io/client-go/scale`` and its scheme.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kscale.errors import InputError
from kscale.objects.autoscaling import Scale, ScaleSpec, ScaleStatus
from kscale.objects.base import ApiStruct
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta
from kscale.objects.names import go_quote
from kscale.objects.scale import ScaleError
from kscale.objects.selector_text import parse_selector
from kscale.objects.selectors import Selector, SelectorError, compile_selector, from_label_map

__all__ = ["SCALE_VERSIONS", "read_scale", "written_scale"]

CURRENT: Final = "autoscaling/v1"
OLD: Final = frozenset({"extensions/v1beta1", "apps/v1beta1", "apps/v1beta2"})
SCALE_VERSIONS: Final = frozenset({CURRENT, *OLD})

_API_OPERATORS: Final = {"in": "In", "notin": "NotIn", "exists": "Exists", "!": "DoesNotExist"}


class _OldStatus(ApiStruct):
    replicas: int = 0
    selector: dict[str, str] | None = None
    target_selector: str = ""


class _OldScale(ApiStruct):
    metadata: ObjectMeta | None = None
    spec: ScaleSpec | None = None
    status: _OldStatus | None = None


def read_scale(data: Mapping[str, Any]) -> Scale:
    """What a ``/scale`` endpoint answered (plain data) as autoscaling/v1.

    Raises :class:`~kscale.objects.scale.ScaleError` with upstream's text for what is none.
    """
    version, kind = str(data.get("apiVersion", "")), str(data.get("kind", ""))
    if kind != "Scale" or version not in SCALE_VERSIONS:
        raise ScaleError(f'no kind "{kind}" is registered for version "{version}"')
    try:
        if version == CURRENT:
            return from_dict(data, Scale)
        old = from_dict(data, _OldScale)
    except InputError as error:
        raise ScaleError(str(error)) from None
    status = old.status or _OldStatus()
    try:
        selector = _selector(status)
    except SelectorError as error:
        what = "received an object from a /scale endpoint which was not convertible to autoscaling Scale"
        raise ScaleError(f"{what}: {error}") from None
    return Scale(
        metadata=old.metadata or ObjectMeta(),
        spec=old.spec or ScaleSpec(),
        status=ScaleStatus(replicas=status.replicas, selector=selector),
    )


def _selector(status: _OldStatus) -> str:
    if status.target_selector:
        try:
            return str(compile_selector(_label_selector(parse_selector(status.target_selector))))
        except SelectorError as error:
            raise SelectorError(f"failed to parse target selector: {error}") from None
    return "" if status.selector is None else str(from_label_map(status.selector))


def _label_selector(selector: Selector) -> LabelSelector:
    """``ParseToLabelSelector``: what objects can say of a selector. Raises SelectorError for the rest."""
    labels: dict[str, str] = {}
    expressions: list[LabelSelectorRequirement] = []
    for each in selector.requirements:
        if each.operator in ("=", "=="):
            labels[each.key] = each.values[0]
        elif each.operator in ("gt", "lt"):
            raise SelectorError(f"{go_quote(each.operator)} isn't supported in label selectors")
        elif each.operator not in _API_OPERATORS:
            raise SelectorError(f"{go_quote(each.operator)} is not a valid label selector operator")
        else:
            operator = _API_OPERATORS[each.operator]
            expressions.append(LabelSelectorRequirement(key=each.key, operator=operator, values=list(each.values)))
    return LabelSelector(match_labels=labels, match_expressions=expressions)


def written_scale(scale: Scale, replicas: int, api_version: str = CURRENT) -> dict[str, Any]:
    """What is PUT into a ``/scale`` endpoint (plain data): a scale as it was read, with another size, as the kind that
    the endpoint takes. Raises :class:`~kscale.objects.scale.ScaleError` for a kind that is none, or a selector that the
    older kinds cannot hold."""
    if api_version not in SCALE_VERSIONS:
        raise ScaleError(f'no kind "Scale" is registered for version "{api_version}"')
    metadata = to_dict(scale.metadata)
    head = {"apiVersion": api_version, "kind": "Scale", "metadata": metadata, "spec": {"replicas": replicas}}
    status = scale.status
    if api_version == CURRENT:
        told: dict[str, Any] = {"replicas": status.replicas}
        if status.selector:
            told["selector"] = status.selector
        return {**head, "status": told}
    told = {"replicas": status.replicas}
    if status.selector:
        try:
            selector = _label_selector(parse_selector(status.selector))
        except SelectorError as error:
            text = f"could not convert scale update to external Scale: failed to parse target selector: {error}"
            raise ScaleError(text) from None
        if not selector.match_expressions:
            told["selector"] = selector.match_labels or {}
        told["targetSelector"] = str(compile_selector(selector))
    return {**head, "status": told}
