"""Specs of many HPAs as columns. What many have in common is read once: metrics and behaviors by what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _api_text
from kscale.effects import from_text
from kscale.errors import InputError
from kscale.hpa.behavior import Rules
from kscale.hpa.calculation import MODES, Tolerances
from kscale.hpa.kept_rows import KeptRows
from kscale.hpa.memory import CONDITION_REASONS, CONDITION_TYPES, ConditionColumns
from kscale.hpa.metric_sources import resource_target, source_of, tolerances_of, value_target
from kscale.hpa.options import HPAOptions
from kscale.hpa.replica_calculator import selector_text
from kscale.objects.autoscaling import (
    ContainerResourceMetricSource,
    ExternalMetricSource,
    HorizontalPodAutoscaler,
    MetricSpec,
    ObjectMetricSource,
    PodsMetricSource,
    ResourceMetricSource,
)
from kscale.objects.rest_mapping import RESTMapper, RESTMappingError, parse_group_version

__all__ = ["Metric", "SpecColumns", "TargetReferences", "conditions_of", "read_specs", "target_references"]

_MODE: Final = {name: number for number, name in enumerate(MODES)}
_encode = msgspec.msgpack.Encoder(enc_hook=str).encode


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of a spec, as far as it does not depend on whose it is.

    ``source`` None: of a type that is not known, or malformed (``problem``). ``mode`` indexes ``MODES``; ``target``
    None: there is none; ``selector`` None: it cannot be sent.
    """

    mode: int
    source: Any
    target: int | None = None
    resource: str = ""
    container: str = ""
    selector: str | None = ""
    problem: InputError | None = None

    @property
    def of_usage(self) -> bool:
        """Whether it is answered by a list of pod metrics."""
        return bool(self.resource) and self.target is not None


@dataclass(frozen=True, slots=True)
class SpecColumns:
    """One row an HPA; the rest by number of what HPAs have in common.

    ``minimum``, ``maximum`` int32[n]; ``metrics`` int32[n] into ``metric_lists``; ``behavior`` int32[n] into ``rules``
    (up, down), ``tolerances`` and ``has_behavior`` uint8; ``object_metric`` uint8 by metric list. ``metric_numbers``,
    ``behavior_numbers``: the numbers by what the parts of the spec say.
    """

    minimum: NDArray[np.int32]
    maximum: NDArray[np.int32]
    metrics: NDArray[np.int32]
    metric_lists: list[list[Metric]]
    object_metric: NDArray[np.uint8]
    behavior: NDArray[np.int32]
    has_behavior: NDArray[np.uint8]
    up: Rules
    down: Rules
    tolerances: list[Tolerances]
    metric_numbers: dict[bytes, int]
    behavior_numbers: dict[bytes, int]

    @property
    def crowded(self) -> bool:
        """Whether most of the numbers may be of what no HPA says any more."""
        return len(self.metric_numbers) + len(self.behavior_numbers) > 4 * len(self.metrics) + 16


def read_specs(
    hpas: Sequence[HorizontalPodAutoscaler],
    options: HPAOptions,
    before: SpecColumns | None = None,
    kept: KeptRows | None = None,
) -> SpecColumns:
    """The specs of HPAs in their order; those of the round ``before`` that were ``kept`` are not read again."""
    if before is None or kept is None or before.crowded:
        return _read(hpas, options)
    if kept.all:
        return before
    fresh = kept.fresh.tolist()
    changed = [hpas[row] for row in fresh]
    metrics, metric_numbers, lists = _numbered([hpa.spec.metrics for hpa in changed], before.metric_numbers)
    behavior, behavior_numbers, first = _numbered([hpa.spec.behavior for hpa in changed], before.behavior_numbers)
    new = _read([changed[row] for row in first], options)
    more = _read([changed[row] for row in lists], options)
    return SpecColumns(
        minimum=kept.array(before.minimum, _minimum(changed)),
        maximum=kept.array(before.maximum, _maximum(changed)),
        metrics=kept.array(before.metrics, metrics),
        metric_lists=[*before.metric_lists, *more.metric_lists] if lists else before.metric_lists,
        object_metric=np.concatenate([before.object_metric, more.object_metric]),
        behavior=kept.array(before.behavior, behavior),
        has_behavior=np.concatenate([before.has_behavior, new.has_behavior]),
        up=before.up.joined(new.up),
        down=before.down.joined(new.down),
        tolerances=[*before.tolerances, *new.tolerances] if first else before.tolerances,
        metric_numbers=metric_numbers,
        behavior_numbers=behavior_numbers,
    )


def _read(hpas: Sequence[HorizontalPodAutoscaler], options: HPAOptions) -> SpecColumns:
    metrics, metric_numbers, lists = _numbered([hpa.spec.metrics for hpa in hpas], {})
    behavior, behavior_numbers, first = _numbered([hpa.spec.behavior for hpa in hpas], {})
    whose = [hpas[row] for row in first]
    behaviors = [hpa.spec.behavior for hpa in whose]
    window = options.downscale_stabilization_seconds
    metric_lists = [hpas[row].spec.metrics or [] for row in lists]
    return SpecColumns(
        minimum=_minimum(hpas),
        maximum=_maximum(hpas),
        metrics=metrics,
        metric_lists=[[_metric(spec, options) for spec in each] for each in metric_lists],
        object_metric=np.array(
            [any(spec.type in ("Object", "External") for spec in each) for each in metric_lists], np.uint8
        ),
        behavior=behavior,
        has_behavior=np.array([each is not None for each in behaviors], np.uint8),
        up=Rules.of([None if each is None else each.scale_up for each in behaviors], 0),
        down=Rules.of([None if each is None else each.scale_down for each in behaviors], window),
        tolerances=[tolerances_of(hpa, options) for hpa in whose],
        metric_numbers=metric_numbers,
        behavior_numbers=behavior_numbers,
    )


def _minimum(hpas: Sequence[HorizontalPodAutoscaler]) -> NDArray[np.int32]:
    found = [hpa.spec.min_replicas for hpa in hpas]
    return np.array([1 if each is None else each for each in found], np.int32)


def _maximum(hpas: Sequence[HorizontalPodAutoscaler]) -> NDArray[np.int32]:
    return np.array([hpa.spec.max_replicas for hpa in hpas], np.int32)


def _numbered(values: Sequence[Any], known: dict[bytes, int]) -> tuple[NDArray[np.int32], dict[bytes, int], list[int]]:
    """(number of each, all numbers, the first row of each number that was not ``known``): equal ones have equal
    numbers. ``known`` itself does not change."""
    numbers, out, first = known, [], list[int]()
    for row, text in enumerate(map(_encode, values)):
        number = numbers.get(text)
        if number is None:
            if numbers is known:
                numbers = dict(known)
            number = numbers[text] = len(numbers)
            first.append(row)
        out.append(number)
    return np.array(out, np.int32), numbers, first


def _metric(spec: MetricSpec, options: HPAOptions) -> Metric:
    try:
        source = source_of(spec, options)
    except InputError as error:
        return Metric(_MODE["usage"], None, problem=error)
    if source is None:
        return Metric(_MODE["usage"], None)
    if isinstance(source, (ResourceMetricSource, ContainerResourceMetricSource)):
        mode, target = resource_target(source.target)
        container = source.container if isinstance(source, ContainerResourceMetricSource) else ""
        return Metric(_MODE[mode], source, target, source.name, container)
    try:
        selector: str | None = selector_text(source.metric.selector)
    except ValueError:
        selector = None
    if isinstance(source, PodsMetricSource):
        assert source.target.average_value is not None  # source_of has looked
        return Metric(_MODE["usage"], source, source.target.average_value.milli_value(), selector=selector)
    mode, target = value_target(source)
    return Metric(_MODE[mode], source, target, selector=selector)


def is_value(metric: Metric) -> bool:
    """Whether it is not of pods."""
    return isinstance(metric.source, (ObjectMetricSource, ExternalMetricSource))


# -- targets -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TargetReferences:
    """What the references to targets come to, one row an HPA: ``error`` uint8[n] 0 none, 1 internal, 2 spec;
    ``resources``: the group-resources to ask."""

    error: NDArray[np.uint8]
    resources: Sequence[tuple[str, ...]]


def target_references(
    hpas: Sequence[HorizontalPodAutoscaler],
    mapper: RESTMapper,
    before: TargetReferences | None = None,
    kept: KeptRows | None = None,
) -> TargetReferences:
    """The targets of HPAs; those of the round ``before`` that were ``kept`` are not looked at again."""
    if before is not None and kept is not None:
        if kept.all:
            return before
        new = target_references([hpas[row] for row in kept.fresh.tolist()], mapper)
        return TargetReferences(kept.array(before.error, new.error), kept.list(before.resources, new.resources))
    known = _Resources(mapper)
    found = [known[reference] for reference in map(_reference, hpas)]
    return TargetReferences(np.array([error for error, _ in found], np.uint8), [resources for _, resources in found])


_reference = attrgetter("spec.scale_target_ref.api_version", "spec.scale_target_ref.kind")


class _Resources(dict[tuple[str, str], tuple[int, tuple[str, ...]]]):
    """What a reference comes to, worked out once."""

    def __init__(self, mapper: RESTMapper) -> None:
        self._mapper = mapper

    def __missing__(self, key: tuple[str, str]) -> tuple[int, tuple[str, ...]]:
        found = self[key] = _resources(*key, self._mapper)
        return found


def _resources(api_version: str, kind: str, mapper: RESTMapper) -> tuple[int, tuple[str, ...]]:
    try:
        group, _ = parse_group_version(api_version)
    except RESTMappingError:
        return 2, ()
    try:
        resources = mapper.resources(group, kind)
    except RESTMappingError:
        return 1, ()
    return (0, resources) if resources else (1, ())


# -- conditions ----------------------------------------------------------------------------------------------------

_TYPE: Final = {name: number for number, name in enumerate(CONDITION_TYPES)}
_ACTIVE: Final = _TYPE["ScalingActive"]
_REASON: Final[Mapping[str, int]] = {reason: code for code, reason in enumerate(CONDITION_REASONS)}
_FAILED: Final = _REASON["MetricFailed"]
_STATUS: Final = {"True": 1, "False": 2}


class _Codes(dict[tuple[str, str, str], int]):
    """Type, status and reason of a condition as one number; -1: of a type that is none of ours."""

    def __missing__(self, key: tuple[str, str, str]) -> int:
        type_, status, reason = key
        number = _TYPE.get(type_)
        if number is None:
            out = -1
        else:
            code = _REASON.get(reason, 0)
            code = _FAILED if number == _ACTIVE and not code else code
            out = number << 16 | _STATUS.get(status, 3) << 8 | code
        if len(self) < 1 << 16:
            self[key] = out
        return out


_CODES: Final = _Codes()
_what = attrgetter("type", "status", "reason")
_when = attrgetter("last_transition_time")


def conditions_of(
    hpas: Sequence[HorizontalPodAutoscaler], before: ConditionColumns | None = None, kept: KeptRows | None = None
) -> ConditionColumns:
    """The conditions in the status of each HPA; those of the round ``before`` that were ``kept`` are not read again."""
    if before is not None and kept is not None:
        if kept.all:
            return before
        new = conditions_of([hpas[row] for row in kept.fresh.tolist()])
        return ConditionColumns(
            kept.array(before.status, new.status),
            kept.array(before.reason, new.reason),
            kept.array(before.time, new.time),
        )
    n = len(hpas)
    lists = [hpa.status.conditions or () for hpa in hpas]
    flat = list(chain.from_iterable(lists))
    codes = np.fromiter(map(_CODES.__getitem__, map(_what, flat)), np.int64, len(flat))
    of = np.repeat(np.arange(n), np.fromiter(map(len, lists), np.int64, n))
    ours = codes >= 0
    codes, where = codes[ours], of[ours] * len(CONDITION_TYPES) + (codes[ours] >> 16)
    out = ConditionColumns(np.zeros((n, 4), np.uint8), np.zeros((n, 4), np.uint8), np.zeros((n, 4), np.int64))
    out.status.reshape(-1)[where] = codes >> 8 & 255
    out.reason.reshape(-1)[where] = codes & 255
    out.time.reshape(-1)[where] = _moments(list(map(_when, flat)))[ours]
    return out


def _moments(texts: list[str | None]) -> NDArray[np.int64]:
    """Times; what is written in another way than the API writes it is read by :func:`~kscale.effects.from_text`."""
    out, odd = _api_text.moments(texts)
    for place in odd:
        out[place] = from_text(texts[place])
    return out
