"""HPAs of a batch as columns: specs, target references, conditions, scales, selectors, and HPAs that select the same
pods.

Equal parts are read once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _names, _projection
from kscale.effects import ApiError, GetMetric, GetScale, from_text
from kscale.effects.actions import NOT_FOUND
from kscale.errors import InputError
from kscale.hpa.api.admission import coerce_scale
from kscale.hpa.batch.columns import CONDITION_REASONS, CONDITION_TYPES, ConditionColumns, UnchangedRows
from kscale.hpa.batch.pods import SelectedPods
from kscale.hpa.controller.behavior import ScalingRuleColumns, build_rule_columns
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
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerCondition,
    MetricSpec,
    PodsMetricSource,
    ResourceMetricSource,
    Scale,
)
from kscale.objects.kinds import RESTMapper, RESTMappingError, parse_group_version
from kscale.objects.selectors import SelectorError, parse_selector
from kscale.objects.times import moment_in

__all__ = [
    "BatchSelectors",
    "HPAColumns",
    "ScaleColumns",
    "ScaleSource",
    "SpecColumns",
    "SpecMetric",
    "TargetReferences",
    "read_target_references",
]


_MODE_NUMBERS: Final = {name: number for number, name in enumerate(CALCULATION_MODES)}
_encode_key = msgspec.msgpack.Encoder(enc_hook=str).encode


@dataclass(frozen=True, slots=True)
class SpecMetric:
    """One metric of a spec, without anything that depends on the HPA.

    ``source`` is None if the type is unknown or the metric malformed (``problem``). ``mode`` indexes
    ``CALCULATION_MODES``. ``target`` (milli-units or percent) is None if it is unset, ``selector`` None if it is
    invalid. ``usage_key``: which pod usage the metric reads: ``("resource", name, container)`` or ``("custom", name,
    selector)``. None if its values are requested one by one.
    """

    mode: int
    source: Any
    target: int | None = None
    resource: str = ""
    container: str = ""
    selector: str | None = ""
    problem: InputError | None = None
    usage_key: tuple[str, str, str] | None = None

    @property
    def is_usage_metric(self) -> bool:
        """Whether the metric is read from the resource metrics API, which lists the usage of pods."""
        return self.usage_key is not None and self.usage_key[0] == "resource"


@dataclass(frozen=True, slots=True)
class SpecColumns:
    """Specs with one row per HPA. Shared parts are stored once and referenced by number.

    ``minimum``, ``maximum`` int32[n]; ``metrics`` int32[n] into ``metric_lists``; ``behavior`` int32[n] into ``rules``
    (up, down), ``tolerances`` and ``has_behavior`` uint8; ``object_metric`` uint8 by metric list. ``metric_numbers``,
    ``behavior_numbers``: the numbers by encoded part of the spec.
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
    def is_mostly_unused(self) -> bool:
        """Return True if most of the stored metric lists and behaviors may belong to no HPA any more."""
        return len(self.metric_numbers) + len(self.behavior_numbers) > 4 * len(self.metrics) + 16


def _update_spec_columns(
    hpas: Sequence[HorizontalPodAutoscaler], options: HPAOptions, before: SpecColumns, unchanged_rows: UnchangedRows
) -> SpecColumns:
    """Return the columns of ``hpas``: unchanged rows are copied from ``before``, others are read.

    All rows are read if most of what ``before`` stores may be unused.
    """
    if before.is_mostly_unused:
        return _build_spec_columns(hpas, options)
    if unchanged_rows.all:
        return before
    fresh = unchanged_rows.fresh.tolist()
    changed = [hpas[row] for row in fresh]
    metrics, metric_numbers, lists = _number_equal_values([hpa.spec.metrics for hpa in changed], before.metric_numbers)
    behavior, behavior_numbers, first = _number_equal_values(
        [hpa.spec.behavior for hpa in changed], before.behavior_numbers
    )
    new = _build_spec_columns([changed[row] for row in first], options)
    more = _build_spec_columns([changed[row] for row in lists], options)
    return SpecColumns(
        minimum=unchanged_rows.array(before.minimum, _min_replicas_column(changed)),
        maximum=unchanged_rows.array(before.maximum, _max_replicas_column(changed)),
        metrics=unchanged_rows.array(before.metrics, metrics),
        metric_lists=[*before.metric_lists, *more.metric_lists] if lists else before.metric_lists,
        object_metric=np.concatenate([before.object_metric, more.object_metric]),
        behavior=unchanged_rows.array(before.behavior, behavior),
        has_behavior=np.concatenate([before.has_behavior, new.has_behavior]),
        up=before.up.concatenate(new.up),
        down=before.down.concatenate(new.down),
        tolerances=[*before.tolerances, *new.tolerances] if first else before.tolerances,
        metric_numbers=metric_numbers,
        behavior_numbers=behavior_numbers,
    )


def _build_spec_columns(hpas: Sequence[HorizontalPodAutoscaler], options: HPAOptions) -> SpecColumns:
    """Build the columns of the HPAs' specs; equal metrics and equal behaviors are stored once."""
    metrics, metric_numbers, lists = _number_equal_values([hpa.spec.metrics for hpa in hpas], {})
    behavior, behavior_numbers, first = _number_equal_values([hpa.spec.behavior for hpa in hpas], {})
    examples = [hpas[row] for row in first]
    behaviors = [hpa.spec.behavior for hpa in examples]
    up, down = build_rule_columns(behaviors, options)
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
        up=up,
        down=down,
        tolerances=[get_tolerances(hpa, options) for hpa in examples],
        metric_numbers=metric_numbers,
        behavior_numbers=behavior_numbers,
    )


def _min_replicas_column(hpas: Sequence[HorizontalPodAutoscaler]) -> NDArray[np.int32]:
    """Return the minimum replicas of each spec, by default 1."""
    minimums = [hpa.spec.min_replicas for hpa in hpas]
    return np.array([1 if each is None else each for each in minimums], np.int32)


def _max_replicas_column(hpas: Sequence[HorizontalPodAutoscaler]) -> NDArray[np.int32]:
    """Return the maximum replicas of each spec."""
    return np.array([hpa.spec.max_replicas for hpa in hpas], np.int32)


def _number_equal_values(
    values: Sequence[Any], known: dict[bytes, int]
) -> tuple[NDArray[np.int32], dict[bytes, int], list[int]]:
    """Assign numbers to values, so that equal values have equal numbers.

    ``known``: earlier numbers by encoded value; it is not changed. Returns the number of each value, a mapping of all
    earlier and new numbers, and the first row of each new number.
    """
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
    """Read one metric. A malformed one has its error in ``problem``; one of an unknown type has no source."""
    try:
        source = get_metric_source(spec, options)
    except InputError as error:
        return SpecMetric(_MODE_NUMBERS["usage"], None, problem=error)
    if source is None:
        return SpecMetric(_MODE_NUMBERS["usage"], None)
    if isinstance(source, (ResourceMetricSource, ContainerResourceMetricSource)):
        mode, target = get_resource_target(source.target)
        container = source.container if isinstance(source, ContainerResourceMetricSource) else ""
        key = ("resource", source.name, container) if source.name and target is not None else None
        return SpecMetric(_MODE_NUMBERS[mode], source, target, source.name, container, usage_key=key)
    try:
        selector: str | None = format_metric_selector(source.metric.selector)
    except ValueError:
        selector = None
    if isinstance(source, PodsMetricSource):
        assert source.target.average_value is not None  # checked by get_metric_source
        target, key = source.target.average_value.milli_value(), None
        if selector is not None:
            key = ("custom", source.metric.name, selector)
        return SpecMetric(_MODE_NUMBERS["usage"], source, target, selector=selector, usage_key=key)
    mode, target = get_value_target(source)
    return SpecMetric(_MODE_NUMBERS[mode], source, target, selector=selector)


# -- targets -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TargetReferences:
    """Resolved references to targets, one row per HPA.

    ``error`` uint8[n]: 0 none, 1 internal, 2 spec; ``resources``: the group-resources to request.
    """

    error: NDArray[np.uint8]
    resources: Sequence[tuple[str, ...]]


def read_target_references(hpas: Sequence[HorizontalPodAutoscaler], mapper: RESTMapper) -> TargetReferences:
    """Find the group-resources of each HPA's target."""
    find = cache(partial(_find_resources, mapper))  # many HPAs have targets of few kinds
    errors_and_resources = [find(*reference) for reference in map(_get_reference, hpas)]
    return TargetReferences(
        np.array([error for error, _ in errors_and_resources], np.uint8),
        [resources for _, resources in errors_and_resources],
    )


_get_reference = attrgetter("spec.scale_target_ref.api_version", "spec.scale_target_ref.kind")


def _find_resources(mapper: RESTMapper, api_version: str, kind: str) -> tuple[int, tuple[str, ...]]:
    """Return a code and the group-resources of a kind.

    The code is 0 if the kind is known, 1 if it is unknown, 2 if ``api_version`` is malformed.
    """
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
    """Cache of conditions as one number of type, status and reason; -1 for an unknown type."""

    def __missing__(self, key: tuple[str, str, str]) -> int:
        """Return the number of (type, status, reason): type << 16 | status << 8 | reason."""
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


def _read_condition_columns(hpas: Sequence[HorizontalPodAutoscaler]) -> ConditionColumns:
    """Return the status conditions of HPAs as columns.

    Conditions of other types than :data:`CONDITION_TYPES` are left out; of several of one type the last counts. Raises
    InputError, which names the HPA and the field, for a malformed transition time of any condition.
    """
    n = len(hpas)
    lists = [hpa.status.conditions or () for hpa in hpas]
    flat = list(chain.from_iterable(lists))
    codes = np.fromiter(map(_CONDITION_CODES.__getitem__, map(_get_condition_key, flat)), np.int64, len(flat))
    rows = np.repeat(np.arange(n), np.fromiter(map(len, lists), np.int64, n))
    is_known = codes >= 0
    codes, positions = codes[is_known], rows[is_known] * len(CONDITION_TYPES) + (codes[is_known] >> 16)
    out = ConditionColumns(np.zeros((n, 4), np.uint8), np.zeros((n, 4), np.uint8), np.zeros((n, 4), np.int64))
    out.status.reshape(-1)[positions] = codes >> 8 & 255
    out.reason.reshape(-1)[positions] = codes & 255
    out.time.reshape(-1)[positions] = _parse_transition_times(hpas, flat)[is_known]
    return out


def _parse_transition_times(
    hpas: Sequence[HorizontalPodAutoscaler], flat: Sequence[HorizontalPodAutoscalerCondition]
) -> NDArray[np.int64]:
    """Parse the transition times of all conditions of the HPAs (``flat``) to nanoseconds.

    Raises InputError, which names the HPA and the field, for a malformed time.
    """
    texts = list(map(_get_transition_time, flat))
    out, unparsed = _projection.moments(texts)
    for index in unparsed:
        try:
            out[index] = from_text(texts[index])
        except ValueError:
            for hpa in hpas:
                for place, each in enumerate(hpa.status.conditions or ()):
                    moment_in(hpa, each.last_transition_time, f"status.conditions[{place}].lastTransitionTime")
            raise
    return out


ScaleSource = Mapping[str, Any] | Callable[[GetScale], Any]
"""Scales by the HPA's ``namespace/name``, or a function that returns them; an ``ApiError`` for a missing one."""

_get_replicas_and_selector: Final = attrgetter("spec.replicas", "status.replicas", "status.selector")
_NO_SCALE_VALUES: Final = (0, 0, "")


@dataclass(frozen=True, slots=True)
class ScaleColumns:
    """Scales of the targets, one row per HPA.

    ``passed``: scales as passed, None if missing; ``scales``: the scales, or their errors; ``problems``: by row, why a
    passed object is no scale; ``there`` bool[n]; ``current`` and ``status`` int32[n]: replicas of the spec and of the
    status; ``texts``: selectors.
    """

    passed: list[Any]
    scales: Sequence[Scale | ApiError]
    problems: Mapping[int, Exception]
    there: NDArray[np.bool_]
    current: NDArray[np.int32]
    status: NDArray[np.int32]
    texts: Sequence[str]


def _read_scales(
    scales: ScaleSource,
    hpas: Sequence[HorizontalPodAutoscaler],
    keys: Sequence[str],
    targets: TargetReferences,
    before: ScaleColumns | None = None,
) -> ScaleColumns:
    """Return the scale of every target.

    A scale that is the same object as in ``before`` is not read again, unless some scale in ``before`` was unreadable.
    """
    inputs = _collect_scales(scales, hpas, keys, targets)
    if before is None or before.problems:
        return _read_scale_rows(inputs, range(len(hpas)), hpas, targets)
    unchanged = UnchangedRows.compare(inputs, before.passed)
    present = _names.other_objects(inputs, [None] * len(inputs))
    if len(present) < len(inputs):  # the error of a missing scale contains its name
        missing = np.ones(len(inputs), np.bool_)
        missing[present] = False
        unchanged = unchanged.also(missing)
    if unchanged.all:
        return before
    fresh = unchanged.fresh.tolist()
    new = _read_scale_rows([inputs[row] for row in fresh], fresh, hpas, targets)
    return ScaleColumns(
        inputs,
        unchanged.list(before.scales, new.scales),
        new.problems,
        unchanged.array(before.there, new.there),
        unchanged.array(before.current, new.current),
        unchanged.array(before.status, new.status),
        unchanged.list(before.texts, new.texts),
    )


def _read_scale_rows(
    inputs: list[Any], rows: Sequence[int], hpas: Sequence[HorizontalPodAutoscaler], targets: TargetReferences
) -> ScaleColumns:
    """Build the columns of some rows from their scales, of any type, or errors (``inputs``; None: no scale).

    ``rows``: their numbers among ``hpas`` and ``targets``. An object that is no scale is recorded in ``problems``.
    """
    scales: list[Scale | ApiError] = []
    problems: dict[int, Exception] = {}
    for row, each in zip(rows, inputs, strict=True):
        value = each
        if type(value) is not Scale and not isinstance(value, Scale | ApiError):
            try:
                value = (
                    _missing_scale_error(hpas[row], targets.resources[row]) if value is None else coerce_scale(value)
                )
            except InputError as problem:
                problems[row], value = problem, ApiError(str(problem))
        scales.append(value)
    is_scale = [isinstance(each, Scale) for each in scales]
    if all(is_scale):
        value = list(map(_get_replicas_and_selector, scales))
    else:
        value = [
            _get_replicas_and_selector(each) if ok else _NO_SCALE_VALUES
            for each, ok in zip(scales, is_scale, strict=True)
        ]
    return ScaleColumns(
        inputs,
        scales,
        problems,
        np.array(is_scale, np.bool_),
        np.array([current for current, _, _ in value], np.int32),
        np.array([status for _, status, _ in value], np.int32),
        [selector for _, _, selector in value],
    )


def _collect_scales(
    scales: ScaleSource, hpas: Sequence[HorizontalPodAutoscaler], keys: Sequence[str], targets: TargetReferences
) -> list[Any]:
    """Return what ``scales`` has for each target: a scale, an error, or None if there is none.

    Nothing is requested if the reference to the target is invalid; the result is None then.
    """
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
    """Build the request of a target's scale from a group-resource."""
    return GetScale(namespace=hpa.metadata.namespace, resource=resource, name=hpa.spec.scale_target_ref.name)


def _missing_scale_error(hpa: HorizontalPodAutoscaler, resources: tuple[str, ...]) -> ApiError:
    """Return the NotFound error of a target without a scale; an error without a text if its kind is unknown."""
    return _not_found_error(_build_scale_request(hpa, resources[0])) if resources else ApiError("")


def _not_found_error(query: GetScale) -> ApiError:
    """Return the API server's response for a target that does not exist."""
    return ApiError(f'{query.resource} "{query.name}" not found', code=404, reason=NOT_FOUND)


def _request_first_scale(
    ask: Callable[[GetScale], Any], hpa: HorizontalPodAutoscaler, resources: tuple[str, ...]
) -> Any:
    """Request the scale from each group-resource of the kind until one has a scale.

    ``ask`` is called with each request, and returns a scale, an error, or None if there is none. Returns the scale, or
    the first error if there is no scale; None without ``resources``.
    """
    first: ApiError | None = None
    for resource in resources:
        query = _build_scale_request(hpa, resource)
        response = ask(query)
        if response is None:
            response = _not_found_error(query)
        if not isinstance(response, ApiError):
            return response
        first = first or response
    return first


_get_spec = attrgetter("spec")
_get_conditions = attrgetter("status.conditions")


@dataclass(frozen=True, slots=True)
class HPAColumns:
    """HPAs (``objects``) as columns: their specs, their targets' references and scales, and their conditions."""

    objects: Sequence[HorizontalPodAutoscaler]
    specs: SpecColumns
    references: TargetReferences
    scales: ScaleColumns
    conditions: ConditionColumns

    @classmethod
    def read(
        cls,
        hpas: Sequence[HorizontalPodAutoscaler],
        keys: Sequence[str],
        scales: ScaleSource,
        mapper: RESTMapper,
        options: HPAOptions,
        unchanged: UnchangedRows | None = None,
        before: HPAColumns | None = None,
    ) -> HPAColumns:
        """Read HPAs and the scales of their targets.

        ``before``: columns of the last batch with the same options and mapper, from which ``unchanged`` parts are
        copied.
        """
        if before is None or unchanged is None:
            references = read_target_references(hpas, mapper)
            return cls(
                hpas,
                _build_spec_columns(hpas, options),
                references,
                _read_scales(scales, hpas, keys, references),
                _read_condition_columns(hpas),
            )
        unchanged_specs, unchanged_conditions = (  # an HPA with a new status mostly has its old spec
            unchanged.of_part(part, hpas, before.objects) for part in (_get_spec, _get_conditions)
        )
        references = unchanged_specs.update(
            before.references, lambda rows: read_target_references([hpas[row] for row in rows], mapper)
        )
        return cls(
            hpas,
            _update_spec_columns(hpas, options, before.specs, unchanged_specs),
            references,
            _read_scales(scales, hpas, keys, references, before.scales),
            unchanged_conditions.update(
                before.conditions, lambda rows: _read_condition_columns([hpas[row] for row in rows])
            ),
        )


_get_namespace_and_name = attrgetter("metadata.namespace", "metadata.name")

_SELECTOR_REQUIRED, _SELECTOR_INVALID, _HPA_DELETED, _SELECTOR_AMBIGUOUS = 1, 2, 3, 5


class BatchSelectors:
    """Selectors of all targets, and HPAs that select the same pods.

    ``selections``: first the selections that ``group`` int64[n] numbers by HPA (-1 for none), then the selections of
    other HPAs. ``registered``: the selector of every HPA by (namespace, name), as in the store once the batch is
    registered.
    """

    def __init__(
        self,
        hpas: Sequence[HorizontalPodAutoscaler],
        keys: Sequence[str],
        selectors: SelectorStore | None,
        plain_states: Sequence[HPAState],
        texts: Sequence[str],
        metrics: NDArray[np.int64],
        options: HPAOptions,
    ) -> None:
        self.legacy, self.texts = options.legacy, texts
        self._error = np.zeros(len(texts), np.uint8)
        self._keys, self._metrics, self._others = keys, metrics, selectors
        self._version = None if selectors is None else selectors.version
        self._known_states = [plain_states]
        self._errors: tuple[SelectedPods, NDArray[np.uint8]] | None = None
        self.cached_requests: tuple[object, NDArray[np.int64], NDArray[np.int32], list[GetMetric]] | None = None
        """The last metric requests, with the metric lists, groups and list numbers that they were built from."""
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
            if not (legacy or plain_states[row].registered):
                error[row] = _HPA_DELETED
                continue
            if number is None:
                number = numbers[where] = len(numbers)
            groups[row] = number
        self.group = np.array(groups, np.int64)
        self.registered = self._get_registered_selectors(names, groups, plain_states)
        self.groups = len(numbers)
        self.names = np.bincount(self.group[self.group >= 0], minlength=self.groups)
        self.selections: list[tuple[str, str]] = list(numbers)
        if not legacy:
            self._add_others(names, groups)

    def is_unchanged(
        self,
        keys: Sequence[str],
        selectors: SelectorStore | None,
        plain_states: Sequence[HPAState],
        texts: Sequence[str],
        metrics: NDArray[np.int64],
    ) -> bool:
        """Return True if these inputs, compared with those of the constructor, would lead to the same selectors.

        ``keys`` and ``selectors`` must be the identical objects, and ``selectors`` must not have changed.
        ``texts``: the target's selector of each HPA; ``metrics``: rows of HPAs that need metrics.
        """
        return (
            keys is self._keys
            and selectors is self._others
            and (selectors is None or selectors.version == self._version)
            and (any(plain_states is each for each in self._known_states) or self._has_equal_selectors(plain_states))
            and np.array_equal(metrics, self._metrics)
            and (texts is self.texts or texts == self.texts)
        )

    def _has_equal_selectors(self, plain_states: Sequence[HPAState]) -> bool:
        """Return True if selector and ``registered`` of each state equal those that this object was built from."""
        previous = self._known_states[0]
        return len(plain_states) == len(previous) and all(
            plain_states[row].registered == previous[row].registered
            and plain_states[row].selector == previous[row].selector
            for row in _names.other_objects([*plain_states], [*previous]).tolist()
        )

    def _get_registered_selectors(
        self, names: Sequence[tuple[str, str]], groups: Sequence[int], plain_states: Sequence[HPAState]
    ) -> dict[tuple[str, str], str | None]:
        """Return the selector of every registered HPA by (namespace, name), as after this batch; None: no pods.

        ``names``: (namespace, name) of each HPA; ``groups``: the number of its selection, -1 for none.
        """
        out: dict[tuple[str, str], str | None] = {}
        if self._others is not None:
            for namespace in self._others.namespaces():
                for name, selector in self._others.entries(namespace).items():
                    out[namespace, name] = None if selector.nothing else str(selector)
        for key, state, group, text in zip(names, plain_states, groups, self.texts, strict=True):
            if not state.registered:
                continue
            if group >= 0 and not self.legacy:
                out[key] = text
            elif key not in out:
                out[key] = state.selector
        return out

    def _add_others(self, names: Sequence[tuple[str, str]], groups: Sequence[int]) -> None:
        """Append the selections of registered HPAs that need no metrics in this batch to ``selections``.

        Only namespaces in which some HPA of the batch selects pods are considered. ``names``: (namespace, name) of each
        HPA; ``groups``: the number of its selection, -1 for none.
        """
        if len(self.registered) == len(groups) - groups.count(-1):  # every HPA with a group is registered
            return
        mine = {key for key, group in zip(names, groups, strict=True) if group >= 0}
        namespaces = {namespace for namespace, _ in self.selections}
        others = [
            (key[0], text)
            for key, text in self.registered.items()
            if text is not None and key not in mine and key[0] in namespaces
        ]
        self.selections += others
        self.names = np.concatenate([self.names, np.ones(len(others), np.int64)])

    def errors(self, selected: SelectedPods) -> NDArray[np.uint8]:
        """Return the selector error of each HPA, by the codes of ``TargetColumns.selector_error``.

        HPAs that share a pod block each other. The result is cached while the pods are the same.
        """
        if self._errors is None or self._errors[0].rows is not selected.rows:
            self._errors = selected, self._find_ambiguous_selectors(selected)
        return self._errors[1]

    def _find_ambiguous_selectors(self, selected: SelectedPods) -> NDArray[np.uint8]:
        """Return the code of each HPA's selector error (``_SELECTOR_...``; 0: none).

        A selection that shares a pod with another HPA's is an error, too, except under legacy rules.
        """
        error = self._error.copy()
        if self.legacy or not len(selected.rows):
            return error
        ends = selected.ends
        if np.bincount(selected.rows).max() == self.names.max() == 1:
            return error  # each pod is selected once, by a single HPA
        names = np.repeat(self.names, np.diff(ends))
        total = np.bincount(selected.rows, weights=names)
        shared = total[selected.rows] > 1
        if shared.any():
            blocked = np.diff(np.append(0, np.cumsum(shared))[ends])[: self.groups] > 0
            group = self.group
            error[(group >= 0) & np.append(blocked, False)[group]] = _SELECTOR_AMBIGUOUS
        return error

    def next_states(
        self, hpas: Sequence[HorizontalPodAutoscaler], plain_states: Sequence[HPAState], undecided: Collection[int]
    ) -> Sequence[HPAState]:
        """Return ``plain_states`` (states without histories) as they are after the decisions.

        A decided HPA that needs metrics has its current selector, except in the legacy controller, and a write that has
        been observed is dropped. ``undecided`` rows do not change.
        """
        if not undecided and len(self._known_states) > 1 and plain_states is self._known_states[1]:
            return plain_states
        out, fixed = list(plain_states), plain_states
        plain: dict[str | None, HPAState] = {}
        is_stable, groups, texts = True, self.group.tolist(), self.texts
        rows: Sequence[int] = range(len(out))
        if not undecided and len(self._known_states) > 1:
            fixed = self._known_states[1]
            rows = _names.other_objects(out, [*fixed]).tolist()
        for row in rows:
            state, group, text = plain_states[row], groups[row], texts[row]
            if (state.written is None and (group < 0 or state.selector == text)) or row in undecided:
                continue
            written = state.written
            if written is not None and written.uid == hpas[row].metadata.uid:
                written = None
            selector = state.selector if group < 0 or self.legacy else text
            if written is None and state.registered:
                if selector not in plain:
                    known = fixed[row]
                    is_same = known.selector == selector and known.registered and known.written is None
                    plain[selector] = known if is_same else HPAState(selector=selector)
                out[row] = plain[selector]
            else:
                is_stable = is_stable and written is None
                out[row] = HPAState(selector=selector, registered=state.registered, written=written)
        if not undecided and is_stable:  # these states are fixed points of the next batch
            if fixed is not plain_states and not len(_names.other_objects(out, [*fixed])):
                return fixed
            self._known_states[1:] = [out]
        return out


def _is_valid_selector(selector: str) -> bool:
    """Check whether the text is a valid label selector."""
    if _projection.plain_label(selector) is None:
        try:
            parse_selector(selector)
        except SelectorError:
            return False
    return True
