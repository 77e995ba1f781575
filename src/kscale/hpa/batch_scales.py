"""The scales of many targets as columns, as they are given or answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kscale._native import _names
from kscale.effects import ApiError, GetScale
from kscale.effects.outcomes import NOT_FOUND
from kscale.errors import InputError
from kscale.hpa.batch_specs import TargetReferences
from kscale.hpa.given import given_scale
from kscale.hpa.kept_rows import KeptRows
from kscale.objects.autoscaling import HorizontalPodAutoscaler, Scale

__all__ = ["ScaleRows", "Scales", "read_scales"]

Scales = Mapping[str, Any] | Callable[[GetScale], Any]
"""Scales by the HPA's ``namespace/name``, or who answers for them; an ``ApiError`` says why there is none."""

_numbers: Final = attrgetter("spec.replicas", "status.replicas", "status.selector")
_NOTHING: Final = (0, 0, "")


@dataclass(frozen=True, slots=True)
class ScaleRows:
    """One row an HPA.

    ``given``: as they were given, None: there is none; ``scales``: read, or why there is none; ``problems``: what of
    those given is no scale, by row; ``there`` bool[n], ``current`` and ``status`` int32[n]: replicas of the spec and
    of the status; ``texts``: selectors.
    """

    given: list[Any]
    scales: Sequence[Scale | ApiError]
    problems: Mapping[int, Exception]
    there: NDArray[np.bool_]
    current: NDArray[np.int32]
    status: NDArray[np.int32]
    texts: Sequence[str]


def read_scales(
    scales: Scales,
    hpas: Sequence[HorizontalPodAutoscaler],
    keys: Sequence[str],
    targets: TargetReferences,
    before: ScaleRows | None = None,
) -> ScaleRows:
    """The scale of every target. One that is the very same object as in the round ``before`` is not read again."""
    given = _given(scales, hpas, keys, targets)
    if before is None or before.problems:
        return _read(given, range(len(hpas)), hpas, targets)
    kept = KeptRows.of(given, before.given)
    there = _names.other_objects(given, [None] * len(given))
    if len(there) < len(given):  # what is missing is told by the name of each
        missing = np.ones(len(given), np.bool_)
        missing[there] = False
        kept = kept.also(missing)
    if kept.all:
        return before
    fresh = kept.fresh.tolist()
    new = _read([given[row] for row in fresh], fresh, hpas, targets)
    return ScaleRows(
        given,
        kept.list(before.scales, new.scales),
        new.problems,
        kept.array(before.there, new.there),
        kept.array(before.current, new.current),
        kept.array(before.status, new.status),
        kept.list(before.texts, new.texts),
    )


def _read(
    given: list[Any], rows: Sequence[int], hpas: Sequence[HorizontalPodAutoscaler], targets: TargetReferences
) -> ScaleRows:
    """What was given for some rows."""
    scales: list[Scale | ApiError] = []
    problems: dict[int, Exception] = {}
    for row, each in zip(rows, given, strict=True):
        found = each
        if type(found) is not Scale and not isinstance(found, Scale | ApiError):
            try:
                found = _missing(hpas[row], targets.resources[row]) if found is None else given_scale(found)
            except InputError as problem:
                problems[row], found = problem, ApiError(str(problem))
        scales.append(found)
    there = [isinstance(each, Scale) for each in scales]
    if all(there):
        found = list(map(_numbers, scales))
    else:
        found = [_numbers(each) if ok else _NOTHING for each, ok in zip(scales, there, strict=True)]
    return ScaleRows(
        given,
        scales,
        problems,
        np.array(there, np.bool_),
        np.array([current for current, _, _ in found], np.int32),
        np.array([status for _, status, _ in found], np.int32),
        [selector for _, _, selector in found],
    )


def _given(
    scales: Scales, hpas: Sequence[HorizontalPodAutoscaler], keys: Sequence[str], targets: TargetReferences
) -> list[Any]:
    """What there is for each target; nobody is asked for one whose reference says nothing."""
    out: list[Any]
    if isinstance(scales, Mapping):
        out = list(map(scales.get, keys))
        for row in np.flatnonzero(targets.error).tolist():
            out[row] = None
        return out
    return [
        _asked(scales, hpa, resources) if resources else None
        for hpa, resources in zip(hpas, targets.resources, strict=True)
    ]


def _query(hpa: HorizontalPodAutoscaler, resource: str) -> GetScale:
    return GetScale(namespace=hpa.metadata.namespace, resource=resource, name=hpa.spec.scale_target_ref.name)


def _missing(hpa: HorizontalPodAutoscaler, resources: tuple[str, ...]) -> ApiError:
    """Why there is none."""
    return _not_found(_query(hpa, resources[0])) if resources else ApiError("")


def _not_found(query: GetScale) -> ApiError:
    """The API server's answer for a target that does not exist."""
    return ApiError(f'{query.resource} "{query.name}" not found', code=404, reason=NOT_FOUND)


def _asked(ask: Callable[[GetScale], Any], hpa: HorizontalPodAutoscaler, resources: tuple[str, ...]) -> Any:
    """Every resource that the kind is served as is tried; the first error counts if none has it."""
    first: ApiError | None = None
    for resource in resources:
        query = _query(hpa, resource)
        found = ask(query)
        if found is None:
            found = _not_found(query)
        if not isinstance(found, ApiError):
            return found
        first = first or found
    return first
