"""HPAs of a batch as columns: specs, target references, conditions, scales, selectors, and HPAs that select the same
pods. Equal parts are read once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _api_text, _names
from kscale.effects import ApiError, GetMetric, GetScale, from_text
from kscale.effects.outcomes import NOT_FOUND
from kscale.errors import InputError
from kscale.hpa.api.admission import coerce_scale
from kscale.hpa.batch.columns import CONDITION_REASONS, CONDITION_TYPES, ConditionColumns, UnchangedRows
from kscale.hpa.batch.pods import SelectedPods
from kscale.hpa.controller.behavior import ScalingRuleColumns
from kscale.hpa.controller.metric_proposals import (
    get_metric_source,
    get_resource_target,
    get_tolerances,
    get_value_target,
)
from kscale.hpa.controller.replica_calculator import CALCULATION_MODES, Tolerances, format_metric_selector
from kscale.hpa.controller.scale_target import SelectorStore
from kscale.hpa.controller.state import HPAState
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import (
    ContainerResourceMetricSource,
    ExternalMetricSource,
    HorizontalPodAutoscaler,
    MetricSpec,
    ObjectMetricSource,
    PodsMetricSource,
    ResourceMetricSource,
    Scale,
)
from kscale.objects.rest_mapping import RESTMapper, RESTMappingError, parse_group_version
from kscale.objects.selectors import SelectorError, parse_selector

__all__ = [
    "BatchSelectors",
    "ScaleColumns",
    "ScaleSource",
    "SpecColumns",
    "SpecMetric",
    "TargetReferences",
    "read_condition_columns",
    "read_scales",
    "read_specs",
    "read_target_references",
]


_MODE_NUMBERS: Final = {name: number for number, name in enumerate(CALCULATION_MODES)}
_encode_key = msgspec.msgpack.Encoder(enc_hook=str).encode


@dataclass(frozen=True, slots=True)
class SpecMetric:
    """One metric of a spec, as far as it does not depend on whose it is.

    ``source`` None: of a type that is not known, or malformed (``problem``). ``mode`` indexes ``CALCULATION_MODES``;
    ``target`` None: there is none; ``selector`` None: it cannot be sent.
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
    metric_lists: list[list[SpecMetric]]
    object_metric: NDArray[np.uint8]
    behavior: NDArray[np.int32]
    has_behavior: NDArray[np.uint8]
    up: ScalingRuleColumns
    down: ScalingRuleColumns
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
    kept: UnchangedRows | None = None,
) -> SpecColumns:
    """The specs of HPAs in their order; those of the round ``before`` that were ``kept`` are not read again."""
    if before is None or kept is None or before.crowded:
        return _build_spec_columns(hpas, options)
    if kept.all:
        return before
    fresh = kept.fresh.tolist()
    changed = [hpas[row] for row in fresh]
    metrics, metric_numbers, lists = _number_equal_values([hpa.spec.metrics for hpa in changed], before.metric_numbers)
    behavior, behavior_numbers, first = _number_equal_values(
        [hpa.spec.behavior for hpa in changed], before.behavior_numbers
    )
    new = _build_spec_columns([changed[row] for row in first], options)
    more = _build_spec_columns([changed[row] for row in lists], options)
    return SpecColumns(
        minimum=kept.array(before.minimum, _min_replicas_column(changed)),
        maximum=kept.array(before.maximum, _max_replicas_column(changed)),
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


def _build_spec_columns(hpas: Sequence[HorizontalPodAutoscaler], options: HPAOptions) -> SpecColumns:
    metrics, metric_numbers, lists = _number_equal_values([hpa.spec.metrics for hpa in hpas], {})
    behavior, behavior_numbers, first = _number_equal_values([hpa.spec.behavior for hpa in hpas], {})
    whose = [hpas[row] for row in first]
    behaviors = [hpa.spec.behavior for hpa in whose]
    window = options.downscale_stabilization_seconds
    metric_lists = [hpas[row].spec.metrics or [] for row in lists]
    return SpecColumns(
        minimum=_min_replicas_column(hpas),
        maximum=_max_replicas_column(hpas),
        metrics=metrics,
        metric_lists=[[_read_spec_metric(spec, options) for spec in each] for each in metric_lists],
        object_metric=np.array(
            [any(spec.type in ("Object", "External") for spec in each) for each in metric_lists], np.uint8
        ),
        behavior=behavior,
        has_behavior=np.array([each is not None for each in behaviors], np.uint8),
        up=ScalingRuleColumns.of([None if each is None else each.scale_up for each in behaviors], 0),
        down=ScalingRuleColumns.of([None if each is None else each.scale_down for each in behaviors], window),
        tolerances=[get_tolerances(hpa, options) for hpa in whose],
        metric_numbers=metric_numbers,
        behavior_numbers=behavior_numbers,
    )


def _min_replicas_column(hpas: Sequence[HorizontalPodAutoscaler]) -> NDArray[np.int32]:
    found = [hpa.spec.min_replicas for hpa in hpas]
    return np.array([1 if each is None else each for each in found], np.int32)


def _max_replicas_column(hpas: Sequence[HorizontalPodAutoscaler]) -> NDArray[np.int32]:
    return np.array([hpa.spec.max_replicas for hpa in hpas], np.int32)


def _number_equal_values(
    values: Sequence[Any], known: dict[bytes, int]
) -> tuple[NDArray[np.int32], dict[bytes, int], list[int]]:
    """(number of each, all numbers, the first row of each number that was not ``known``): equal ones have equal
    numbers. ``known`` itself does not change."""
    numbers, out, first = known, [], list[int]()
    for row, text in enumerate(map(_encode_key, values)):
        number = numbers.get(text)
        if number is None:
            if numbers is known:
                numbers = dict(known)
            number = numbers[text] = len(numbers)
            first.append(row)
        out.append(number)
    return np.array(out, np.int32), numbers, first


def _read_spec_metric(spec: MetricSpec, options: HPAOptions) -> SpecMetric:
    try:
        source = get_metric_source(spec, options)
    except InputError as error:
        return SpecMetric(_MODE_NUMBERS["usage"], None, problem=error)
    if source is None:
        return SpecMetric(_MODE_NUMBERS["usage"], None)
    if isinstance(source, (ResourceMetricSource, ContainerResourceMetricSource)):
        mode, target = get_resource_target(source.target)
        container = source.container if isinstance(source, ContainerResourceMetricSource) else ""
        return SpecMetric(_MODE_NUMBERS[mode], source, target, source.name, container)
    try:
        selector: str | None = format_metric_selector(source.metric.selector)
    except ValueError:
        selector = None
    if isinstance(source, PodsMetricSource):
        assert source.target.average_value is not None  # source_of has looked
        return SpecMetric(_MODE_NUMBERS["usage"], source, source.target.average_value.milli_value(), selector=selector)
    mode, target = get_value_target(source)
    return SpecMetric(_MODE_NUMBERS[mode], source, target, selector=selector)


def is_value_metric(metric: SpecMetric) -> bool:
    """Whether it is not of pods."""
    return isinstance(metric.source, (ObjectMetricSource, ExternalMetricSource))


# -- targets -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TargetReferences:
    """What the references to targets come to, one row an HPA: ``error`` uint8[n] 0 none, 1 internal, 2 spec;
    ``resources``: the group-resources to ask."""

    error: NDArray[np.uint8]
    resources: Sequence[tuple[str, ...]]


def read_target_references(
    hpas: Sequence[HorizontalPodAutoscaler],
    mapper: RESTMapper,
    before: TargetReferences | None = None,
    kept: UnchangedRows | None = None,
) -> TargetReferences:
    """The targets of HPAs; those of the round ``before`` that were ``kept`` are not looked at again."""
    if before is not None and kept is not None:
        if kept.all:
            return before
        new = read_target_references([hpas[row] for row in kept.fresh.tolist()], mapper)
        return TargetReferences(kept.array(before.error, new.error), kept.list(before.resources, new.resources))
    known = _ResourceCache(mapper)
    found = [known[reference] for reference in map(_get_reference, hpas)]
    return TargetReferences(np.array([error for error, _ in found], np.uint8), [resources for _, resources in found])


_get_reference = attrgetter("spec.scale_target_ref.api_version", "spec.scale_target_ref.kind")


class _ResourceCache(dict[tuple[str, str], tuple[int, tuple[str, ...]]]):
    """What a reference comes to, worked out once."""

    def __init__(self, mapper: RESTMapper) -> None:
        self._mapper = mapper

    def __missing__(self, key: tuple[str, str]) -> tuple[int, tuple[str, ...]]:
        found = self[key] = _find_resources(*key, self._mapper)
        return found


def _find_resources(api_version: str, kind: str, mapper: RESTMapper) -> tuple[int, tuple[str, ...]]:
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

_CONDITION_TYPE_NUMBERS: Final = {name: number for number, name in enumerate(CONDITION_TYPES)}
_SCALING_ACTIVE: Final = _CONDITION_TYPE_NUMBERS["ScalingActive"]
_REASON_CODES: Final[Mapping[str, int]] = {reason: code for code, reason in enumerate(CONDITION_REASONS)}
_METRIC_FAILED: Final = _REASON_CODES["MetricFailed"]
_STATUS_CODES: Final = {"True": 1, "False": 2}


class _ConditionCodes(dict[tuple[str, str, str], int]):
    """Type, status and reason of a condition as one number; -1: of a type that is none of ours."""

    def __missing__(self, key: tuple[str, str, str]) -> int:
        type_, status, reason = key
        number = _CONDITION_TYPE_NUMBERS.get(type_)
        if number is None:
            out = -1
        else:
            code = _REASON_CODES.get(reason, 0)
            code = _METRIC_FAILED if number == _SCALING_ACTIVE and not code else code
            out = number << 16 | _STATUS_CODES.get(status, 3) << 8 | code
        if len(self) < 1 << 16:
            self[key] = out
        return out


_CONDITION_CODES: Final = _ConditionCodes()
_get_condition_key = attrgetter("type", "status", "reason")
_get_transition_time = attrgetter("last_transition_time")


def read_condition_columns(
    hpas: Sequence[HorizontalPodAutoscaler], before: ConditionColumns | None = None, kept: UnchangedRows | None = None
) -> ConditionColumns:
    """The conditions in the status of each HPA; those of the round ``before`` that were ``kept`` are not read again."""
    if before is not None and kept is not None:
        if kept.all:
            return before
        new = read_condition_columns([hpas[row] for row in kept.fresh.tolist()])
        return ConditionColumns(
            kept.array(before.status, new.status),
            kept.array(before.reason, new.reason),
            kept.array(before.time, new.time),
        )
    n = len(hpas)
    lists = [hpa.status.conditions or () for hpa in hpas]
    flat = list(chain.from_iterable(lists))
    codes = np.fromiter(map(_CONDITION_CODES.__getitem__, map(_get_condition_key, flat)), np.int64, len(flat))
    of = np.repeat(np.arange(n), np.fromiter(map(len, lists), np.int64, n))
    ours = codes >= 0
    codes, where = codes[ours], of[ours] * len(CONDITION_TYPES) + (codes[ours] >> 16)
    out = ConditionColumns(np.zeros((n, 4), np.uint8), np.zeros((n, 4), np.uint8), np.zeros((n, 4), np.int64))
    out.status.reshape(-1)[where] = codes >> 8 & 255
    out.reason.reshape(-1)[where] = codes & 255
    out.time.reshape(-1)[where] = _parse_moments(list(map(_get_transition_time, flat)))[ours]
    return out


def _parse_moments(texts: list[str | None]) -> NDArray[np.int64]:
    """Times; what is written in another way than the API writes it is read by :func:`~kscale.effects.from_text`."""
    out, odd = _api_text.moments(texts)
    for place in odd:
        out[place] = from_text(texts[place])
    return out


ScaleSource = Mapping[str, Any] | Callable[[GetScale], Any]
"""Scales by the HPA's ``namespace/name``, or who answers for them; an ``ApiError`` says why there is none."""

_get_replicas_and_selector: Final = attrgetter("spec.replicas", "status.replicas", "status.selector")
_NO_SCALE_VALUES: Final = (0, 0, "")


@dataclass(frozen=True, slots=True)
class ScaleColumns:
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
    scales: ScaleSource,
    hpas: Sequence[HorizontalPodAutoscaler],
    keys: Sequence[str],
    targets: TargetReferences,
    before: ScaleColumns | None = None,
) -> ScaleColumns:
    """The scale of every target. One that is the very same object as in the round ``before`` is not read again."""
    given = _collect_scales(scales, hpas, keys, targets)
    if before is None or before.problems:
        return _read_scale_rows(given, range(len(hpas)), hpas, targets)
    kept = UnchangedRows.of(given, before.given)
    there = _names.other_objects(given, [None] * len(given))
    if len(there) < len(given):  # what is missing is told by the name of each
        missing = np.ones(len(given), np.bool_)
        missing[there] = False
        kept = kept.also(missing)
    if kept.all:
        return before
    fresh = kept.fresh.tolist()
    new = _read_scale_rows([given[row] for row in fresh], fresh, hpas, targets)
    return ScaleColumns(
        given,
        kept.list(before.scales, new.scales),
        new.problems,
        kept.array(before.there, new.there),
        kept.array(before.current, new.current),
        kept.array(before.status, new.status),
        kept.list(before.texts, new.texts),
    )


def _read_scale_rows(
    given: list[Any], rows: Sequence[int], hpas: Sequence[HorizontalPodAutoscaler], targets: TargetReferences
) -> ScaleColumns:
    """What was given for some rows."""
    scales: list[Scale | ApiError] = []
    problems: dict[int, Exception] = {}
    for row, each in zip(rows, given, strict=True):
        found = each
        if type(found) is not Scale and not isinstance(found, Scale | ApiError):
            try:
                found = (
                    _missing_scale_error(hpas[row], targets.resources[row]) if found is None else coerce_scale(found)
                )
            except InputError as problem:
                problems[row], found = problem, ApiError(str(problem))
        scales.append(found)
    there = [isinstance(each, Scale) for each in scales]
    if all(there):
        found = list(map(_get_replicas_and_selector, scales))
    else:
        found = [
            _get_replicas_and_selector(each) if ok else _NO_SCALE_VALUES for each, ok in zip(scales, there, strict=True)
        ]
    return ScaleColumns(
        given,
        scales,
        problems,
        np.array(there, np.bool_),
        np.array([current for current, _, _ in found], np.int32),
        np.array([status for _, status, _ in found], np.int32),
        [selector for _, _, selector in found],
    )


def _collect_scales(
    scales: ScaleSource, hpas: Sequence[HorizontalPodAutoscaler], keys: Sequence[str], targets: TargetReferences
) -> list[Any]:
    """What there is for each target; nobody is asked for one whose reference says nothing."""
    out: list[Any]
    if isinstance(scales, Mapping):
        out = list(map(scales.get, keys))
        for row in np.flatnonzero(targets.error).tolist():
            out[row] = None
        return out
    return [
        _request_first_scale(scales, hpa, resources) if resources else None
        for hpa, resources in zip(hpas, targets.resources, strict=True)
    ]


def _build_scale_request(hpa: HorizontalPodAutoscaler, resource: str) -> GetScale:
    return GetScale(namespace=hpa.metadata.namespace, resource=resource, name=hpa.spec.scale_target_ref.name)


def _missing_scale_error(hpa: HorizontalPodAutoscaler, resources: tuple[str, ...]) -> ApiError:
    """Why there is none."""
    return _not_found_error(_build_scale_request(hpa, resources[0])) if resources else ApiError("")


def _not_found_error(query: GetScale) -> ApiError:
    """The API server's answer for a target that does not exist."""
    return ApiError(f'{query.resource} "{query.name}" not found', code=404, reason=NOT_FOUND)


def _request_first_scale(
    ask: Callable[[GetScale], Any], hpa: HorizontalPodAutoscaler, resources: tuple[str, ...]
) -> Any:
    """Every resource that the kind is served as is tried; the first error counts if none has it."""
    first: ApiError | None = None
    for resource in resources:
        query = _build_scale_request(hpa, resource)
        found = ask(query)
        if found is None:
            found = _not_found_error(query)
        if not isinstance(found, ApiError):
            return found
        first = first or found
    return first


_get_namespace_and_name = attrgetter("metadata.namespace", "metadata.name")

_SELECTOR_REQUIRED, _SELECTOR_INVALID, _HPA_DELETED, _SELECTOR_AMBIGUOUS = 1, 2, 3, 5


class BatchSelectors:
    """Whose pods they are: the selector of every target, and who else selects the same pods.

    ``wanted``: selections, those of ``group`` int64[n] (-1: none) first, then other HPAs'; ``registered``: the selector
    of every HPA by (namespace, name), as the store has it once all of the batch are in it.
    """

    def __init__(
        self,
        hpas: Sequence[HorizontalPodAutoscaler],
        keys: Sequence[str],
        selectors: SelectorStore | None,
        rest: Sequence[HPAState],
        texts: Sequence[str],
        metrics: NDArray[np.int64],
        options: HPAOptions,
    ) -> None:
        self.legacy, self.texts = options.legacy, texts
        self._error = np.zeros(len(texts), np.uint8)
        self._keys, self._metrics, self._others = keys, metrics, selectors
        self._version = None if selectors is None else selectors.version
        self._rests = [rest]
        self._errors: tuple[SelectedPods, NDArray[np.uint8]] | None = None
        self.asked: tuple[object, NDArray[np.int64], NDArray[np.int32], list[GetMetric]] | None = None
        """Which metrics were asked for last: of which lists of metrics, groups, and list of each."""
        names = list(map(_get_namespace_and_name, hpas))
        error, legacy = self._error, self.legacy
        numbers: dict[tuple[str, str], int] = {}
        groups = [-1] * len(texts)
        for row in metrics.tolist():
            text = texts[row]
            if not text:
                error[row] = _SELECTOR_REQUIRED
                continue
            where = (names[row][0], text)
            number = numbers.get(where)
            if number is None and not _is_valid_selector(text):
                error[row] = _SELECTOR_INVALID
                continue
            if not (legacy or rest[row].registered):
                error[row] = _HPA_DELETED
                continue
            if number is None:
                number = numbers[where] = len(numbers)
            groups[row] = number
        self.group = np.array(groups, np.int64)
        self.registered = self._registered(names, groups, rest)
        self.groups = len(numbers)
        self.names = np.bincount(self.group[self.group >= 0], minlength=self.groups)
        self.wanted: list[tuple[str, str]] = list(numbers)
        if not legacy:
            self._add_others(names, groups)

    def still(
        self,
        keys: Sequence[str],
        selectors: SelectorStore | None,
        rest: Sequence[HPAState],
        texts: Sequence[str],
        metrics: NDArray[np.int64],
    ) -> bool:
        """Whether that is what would come of these."""
        return (
            keys is self._keys
            and selectors is self._others
            and (selectors is None or selectors.version == self._version)
            and (any(rest is each for each in self._rests) or self._says_the_same(rest))
            and np.array_equal(metrics, self._metrics)
            and (texts is self.texts or texts == self.texts)
        )

    def _says_the_same(self, rest: Sequence[HPAState]) -> bool:
        """Whether states say of selectors what those did that this came of."""
        known = self._rests[0]
        return len(rest) == len(known) and all(
            rest[row].registered == known[row].registered and rest[row].selector == known[row].selector
            for row in _names.other_objects([*rest], [*known]).tolist()
        )

    def _registered(
        self, names: Sequence[tuple[str, str]], groups: Sequence[int], rest: Sequence[HPAState]
    ) -> dict[tuple[str, str], str | None]:
        out: dict[tuple[str, str], str | None] = {}
        if self._others is not None:
            for namespace in self._others.namespaces():
                for name, selector in self._others.entries(namespace).items():
                    out[namespace, name] = None if selector.nothing else str(selector)
        for key, state, group, text in zip(names, rest, groups, self.texts, strict=True):
            if not state.registered:
                continue
            if group >= 0 and not self.legacy:
                out[key] = text
            elif key not in out:
                out[key] = state.selector
        return out

    def _add_others(self, names: Sequence[tuple[str, str]], groups: Sequence[int]) -> None:
        """Selections of HPAs whose own metrics are not looked at now."""
        if len(self.registered) == len(groups) - groups.count(-1):  # who has a group is registered
            return
        mine = {key for key, group in zip(names, groups, strict=True) if group >= 0}
        namespaces = {namespace for namespace, _ in self.wanted}
        others = [
            (key[0], text)
            for key, text in self.registered.items()
            if text is not None and key not in mine and key[0] in namespaces
        ]
        self.wanted += others
        self.names = np.concatenate([self.names, np.ones(len(others), np.int64)])

    def errors(self, selected: SelectedPods) -> NDArray[np.uint8]:
        """Why the selector of an HPA is of no use, by code: HPAs that share a pod with another block each other."""
        if self._errors is None or self._errors[0].rows is not selected.rows:
            self._errors = selected, self._with_rivals(selected)
        return self._errors[1]

    def _with_rivals(self, selected: SelectedPods) -> NDArray[np.uint8]:
        error = self._error.copy()
        if self.legacy or not len(selected.rows):
            return error
        ends = selected.ends
        names = np.repeat(self.names, np.diff(ends))
        total = np.bincount(selected.rows, weights=names)
        shared = total[selected.rows] > 1
        if shared.any():
            blocked = np.diff(np.append(0, np.cumsum(shared))[ends])[: self.groups] > 0
            group = self.group
            error[(group >= 0) & np.append(blocked, False)[group]] = _SELECTOR_AMBIGUOUS
        return error

    def next_states(
        self, hpas: Sequence[HorizontalPodAutoscaler], rest: Sequence[HPAState], undecided: Collection[int]
    ) -> Sequence[HPAState]:
        """What is not kept as columns of the states, afterwards; of rows that are ``undecided`` nothing changes."""
        if not undecided and len(self._rests) > 1 and rest is self._rests[1]:
            return rest
        out = list(rest)
        plain: dict[str | None, HPAState] = {}
        settled = True
        for row, (state, group, text) in enumerate(zip(rest, self.group.tolist(), self.texts, strict=True)):
            if (state.written is None and (group < 0 or state.selector == text)) or row in undecided:
                continue
            written = state.written
            if written is not None and written.uid == hpas[row].metadata.uid:
                written = None
            selector = state.selector if group < 0 or self.legacy else text
            if written is None and state.registered:
                found = plain.get(selector)
                if found is None:
                    found = plain[selector] = HPAState(selector=selector)
                out[row] = found
            else:
                settled = settled and written is None
                out[row] = HPAState(selector=selector, registered=state.registered, written=written)
        if not undecided and settled:  # of what came of them the same comes again
            self._rests[1:] = [out]
        return out


def _is_valid_selector(selector: str) -> bool:
    if _api_text.plain_label(selector) is None:
        try:
            parse_selector(selector)
        except SelectorError:
            return False
    return True
