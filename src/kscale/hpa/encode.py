"""From objects to the columns that a batch of reconciles takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kscale._native import _reconcile
from kscale.effects import ApiError, GetMetric, GetScale
from kscale.errors import InputError
from kscale.hpa.batch_metrics import MetricTargets, ask_metrics
from kscale.hpa.batch_pods import BatchPods, SelectedPods
from kscale.hpa.batch_samples import JoinedUsage, source_of_query
from kscale.hpa.batch_specs import conditions_of, no_scale, read_specs, scale_columns, target_resources
from kscale.hpa.behavior import Rules
from kscale.hpa.columns import MetricRows, TargetColumns
from kscale.hpa.given import given_hpa, given_scale
from kscale.hpa.memory import Histories, Memory, StatesOf
from kscale.hpa.options import HPAOptions
from kscale.hpa.pod_groups import PodColumns, SampleColumns
from kscale.hpa.selector_store import SelectorStore
from kscale.hpa.state import ControllerState, HPAState
from kscale.objects.autoscaling import HorizontalPodAutoscaler, Scale
from kscale.objects.core import Pod
from kscale.objects.rest_mapping import RESTMapper
from kscale.objects.selector_text import parse_selector
from kscale.objects.selectors import SelectorError

__all__ = ["Encoded", "Observed", "Scales", "encode", "keys_of"]

Scales = Mapping[str, Any] | Callable[[GetScale], Any]
"""Scales by the HPA's ``namespace/name``, or who answers for them; an ``ApiError`` says why there is none."""

_METRICS_BRANCH: Final = 4
_REQUIRED, _INVALID, _DELETED, _AMBIGUOUS = 1, 2, 3, 5


@dataclass(frozen=True, slots=True)
class Observed:
    """What is decided from: see :func:`kscale.hpa.decide.decide`. ``keys``: ``namespace/name`` of each HPA."""

    hpas: Sequence[HorizontalPodAutoscaler]
    keys: Sequence[str]
    scales: Scales
    pods: BatchPods
    metrics: Callable[[GetMetric], Any]
    selectors: SelectorStore | None
    mapper: RESTMapper

    @classmethod
    def of(
        cls,
        hpas: Sequence[Any],
        scales: Scales,
        pods: BatchPods,
        metrics: Callable[[GetMetric], Any],
        selectors: SelectorStore | None,
        mapper: RESTMapper,
    ) -> Observed:
        """HPAs of any shape. Raises :class:`~kscale.errors.InputError` for one that cannot be read or comes twice."""
        known = [each if type(each) is HorizontalPodAutoscaler else given_hpa(each) for each in hpas]
        return cls(known, keys_of(known), scales, pods, metrics, selectors, mapper)


@dataclass(frozen=True, slots=True)
class Encoded:
    """Columns of one moment. Those who ask for texts find the rest here.

    - ``scales``: the scale of every target, or why there is none;
    - ``wanted``: (namespace, selector) of every selection, ``group`` int64[n]: which one is an HPA's, -1: none;
    - ``registered``: the selector of every HPA that has one, by (namespace, name), this batch's included;
    - ``problems``: what of an HPA is malformed so that it cannot be decided, by its row;
    - ``rest``: what is not kept as columns of the states afterwards; ``joined``: usage by pod, by what was asked.
    """

    targets: TargetColumns
    rows: MetricRows
    pods: PodColumns
    samples: SampleColumns
    requests: NDArray[np.int64]
    values: NDArray[np.int64]
    up: Rules
    down: Rules
    scales: Sequence[Scale | ApiError] = ()
    wanted: Sequence[tuple[str, str]] = ()
    group: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    selected: SelectedPods | None = None
    registered: Mapping[tuple[str, str], str | None] = field(default_factory=dict)
    problems: Mapping[int, Exception] = field(default_factory=dict)
    rest: Sequence[HPAState] = ()
    joined: Mapping[tuple[object, ...], JoinedUsage] = field(default_factory=dict)

    def store(self) -> SelectorStore:
        """All selectors, for the step machine."""
        out = SelectorStore()
        for (namespace, name), selector in self.registered.items():
            out.put_if_absent(namespace, name, selector)
        return out

    def pods_of(self, row: int, pods: BatchPods) -> Sequence[Pod]:
        """The pods of an HPA's selection."""
        group = int(self.group[row])
        if group < 0 or self.selected is None:
            return ()
        ends = self.selected.ends
        return [pods.pod(number) for number in self.selected.rows[ends[group] : ends[group + 1]].tolist()]

    def answer(self, row: int, asked: GetMetric, metrics: Callable[[GetMetric], Any]) -> Any:
        """What a query of an HPA was answered."""
        source = source_of_query(asked)
        joined = None if source is None else self.joined.get(source)
        if joined is None or self.selected is None:
            return metrics(asked)
        return joined.answer(self.selected, int(self.group[row]), asked)


def keys_of(hpas: Sequence[HorizontalPodAutoscaler]) -> list[str]:
    """``namespace/name`` of each. Raises :class:`~kscale.errors.InputError` for one that comes twice."""
    metadata = [hpa.metadata for hpa in hpas]
    keys = [f"{each.namespace}/{each.name}" for each in metadata]
    if len(set(keys)) != len(keys):
        again = [key for key, count in Counter(keys).items() if count > 1]
        raise InputError(f"HorizontalPodAutoscaler {again[0]} comes more than once")
    return keys


def encode(
    observed: Observed, state: ControllerState, options: HPAOptions, before: Encoded | None = None
) -> tuple[Encoded, Memory]:
    """The columns of a batch, and what is remembered of each HPA. ``before``: those of the last round, of which
    whatever still holds is taken."""
    hpas, keys, n = observed.hpas, observed.keys, len(observed.hpas)
    specs = read_specs(hpas, options)
    error, resources = target_resources(hpas, observed.mapper)
    scales, problems = _scales(observed, error, resources)
    there, current, status_replicas, texts = scale_columns(scales)
    histories, rest = _remembered(keys, state)
    memory = Memory(histories, conditions_of(hpas))
    nothing = np.zeros(n, np.int64)
    targets = TargetColumns(
        scale_error=np.where(error != 0, error, ~there).astype(np.uint8),
        current=current,
        minimum=specs.minimum,
        maximum=specs.maximum,
        object_metric=specs.object_metric[specs.metrics],
        behavior=specs.has_behavior[specs.behavior],
        selector_error=np.zeros(n, np.uint8),
        refused=np.zeros(n, np.uint8),
        fresh=histories.fresh,
        metrics_begin=nothing,
        metrics_end=nothing,
    )
    branches = _reconcile.branches(targets, memory.conditions.status, options.enabled("HPAScaleToZero"), options.legacy)
    metrics = np.flatnonzero(branches == _METRICS_BRANCH)
    chosen = _Selectors(observed, rest, texts, metrics, targets.selector_error, options)
    selected = observed.pods.select(chosen.wanted, None if before is None else before.selected)
    chosen.find_rivals(selected)
    rows = metrics[targets.selector_error[metrics] == 0]
    at = MetricTargets(rows, chosen.group[rows], current[rows], status_replicas[rows])
    asked = ask_metrics(at, specs, chosen.wanted, observed.pods, selected, observed.metrics, options)
    begin, end = nothing.copy(), nothing.copy()
    begin[rows], end[rows] = asked.begin, asked.end
    problems |= asked.problems
    for row in problems:
        targets.scale_error[row] = 2  # it is not decided, and nothing of it changes
    behavior = specs.behavior
    return Encoded(
        targets=replace(targets, metrics_begin=begin, metrics_end=end),
        rows=asked.rows,
        pods=selected.columns,
        samples=asked.samples,
        requests=asked.requests,
        values=asked.values,
        up=_rules_of(specs.up, behavior),
        down=_rules_of(specs.down, behavior),
        scales=scales,
        wanted=chosen.wanted,
        group=chosen.group,
        selected=selected,
        registered=chosen.registered,
        problems=problems,
        rest=chosen.next_states(hpas, rest, problems),
        joined=asked.joined,
    ), memory


def _rules_of(rules: Rules, which: NDArray[np.int32]) -> Rules:
    return replace(
        rules,
        select=rules.select[which],
        window=rules.window[which],
        begin=rules.begin[which],
        end=rules.end[which],
    )


def _remembered(keys: Sequence[str], state: ControllerState) -> tuple[Histories, Sequence[HPAState]]:
    """(histories, the rest of the states) of HPAs in their order."""
    if isinstance(state.hpas, StatesOf):
        found = state.hpas.of(keys)
        if found is not None:
            return found
    fresh = HPAState()
    states = [state.hpas.get(key) or fresh for key in keys]
    return Histories.of(states), states


def _scales(
    observed: Observed, error: NDArray[np.uint8], resources: Sequence[tuple[str, ...]]
) -> tuple[list[Scale | ApiError], dict[int, Exception]]:
    """The scale of every target, and what of those given is none."""
    given = observed.scales
    out: list[Scale | ApiError] = []
    problems: dict[int, Exception] = {}
    for row, (hpa, key, wrong) in enumerate(zip(observed.hpas, observed.keys, error.tolist(), strict=True)):
        found: Any = None
        if not wrong:
            found = given.get(key) if isinstance(given, Mapping) else _asked(given, hpa, resources[row])
            if found is None:
                found = no_scale(_query(hpa, resources[row][0]))
        if not isinstance(found, Scale | ApiError):
            try:
                found = ApiError("") if found is None else given_scale(found)
            except InputError as problem:
                problems[row], found = problem, ApiError(str(problem))
        out.append(found)
    return out, problems


def _query(hpa: HorizontalPodAutoscaler, resource: str) -> GetScale:
    return GetScale(namespace=hpa.metadata.namespace, resource=resource, name=hpa.spec.scale_target_ref.name)


def _asked(ask: Callable[[GetScale], Any], hpa: HorizontalPodAutoscaler, resources: tuple[str, ...]) -> Any:
    """Every resource that the kind is served as is tried; the first error counts if none has it."""
    first: ApiError | None = None
    for resource in resources:
        query = _query(hpa, resource)
        found = ask(query)
        if found is None:
            found = no_scale(query)
        if not isinstance(found, ApiError):
            return found
        first = first or found
    return first


class _Selectors:
    """Whose pods they are: the selector of every target, and who else selects the same pods.

    Writes what is of no use into ``error``. ``wanted``: selections, those of ``group`` first, then other HPAs'.
    """

    def __init__(
        self,
        observed: Observed,
        rest: Sequence[HPAState],
        texts: Sequence[str],
        metrics: NDArray[np.int64],
        error: NDArray[np.uint8],
        options: HPAOptions,
    ) -> None:
        self.error, self.legacy, self.texts = error, options.legacy, texts
        self.group = np.full(len(texts), -1, np.int64)
        hpas = observed.hpas
        numbers: dict[tuple[str, str], int] = {}
        group = self.group
        for row in metrics.tolist():
            text = texts[row]
            if not text:
                error[row] = _REQUIRED
                continue
            where = (hpas[row].metadata.namespace, text)
            number = numbers.get(where)
            if number is None:
                try:
                    parse_selector(text)
                except SelectorError:
                    error[row] = _INVALID
                    continue
            if not (self.legacy or rest[row].registered):
                error[row] = _DELETED
                continue
            if number is None:
                number = numbers[where] = len(numbers)
            group[row] = number
        self.registered = self._registered(observed, rest)
        self.groups = len(numbers)
        self.names = np.bincount(group[group >= 0], minlength=self.groups)
        self.wanted: list[tuple[str, str]] = list(numbers)
        if not self.legacy:
            self._add_others(observed)

    def _registered(self, observed: Observed, rest: Sequence[HPAState]) -> dict[tuple[str, str], str | None]:
        """The selector of every HPA by (namespace, name), as the store has it once all of the batch are in it."""
        out: dict[tuple[str, str], str | None] = {}
        if observed.selectors is not None:
            for namespace in observed.selectors.namespaces():
                for name, selector in observed.selectors.entries(namespace).items():
                    out[namespace, name] = None if selector.nothing else str(selector)
        for hpa, state, group, text in zip(observed.hpas, rest, self.group.tolist(), self.texts, strict=True):
            if not state.registered:
                continue
            key = (hpa.metadata.namespace, hpa.metadata.name)
            if group >= 0 and not self.legacy:
                out[key] = text
            elif key not in out:
                out[key] = state.selector
        return out

    def _add_others(self, observed: Observed) -> None:
        """Selections of HPAs whose own metrics are not looked at now."""
        mine = {
            (hpa.metadata.namespace, hpa.metadata.name)
            for hpa, group in zip(observed.hpas, self.group.tolist(), strict=True)
            if group >= 0
        }
        if len(mine) == len(self.registered):
            return
        namespaces = {namespace for namespace, _ in self.wanted}
        others = [
            (key[0], text)
            for key, text in self.registered.items()
            if text is not None and key not in mine and key[0] in namespaces
        ]
        self.wanted += others
        self.names = np.concatenate([self.names, np.ones(len(others), np.int64)])

    def find_rivals(self, selected: SelectedPods) -> None:
        """HPAs that share a pod with another block each other."""
        if self.legacy or not len(selected.rows):
            return
        ends = selected.ends
        names = np.repeat(self.names, np.diff(ends))
        total = np.bincount(selected.rows, weights=names)
        shared = total[selected.rows] > 1
        if not shared.any():
            return
        blocked = np.diff(np.append(0, np.cumsum(shared))[ends])[: self.groups] > 0
        group = self.group
        self.error[(group >= 0) & np.append(blocked, False)[group]] = _AMBIGUOUS

    def next_states(
        self, hpas: Sequence[HorizontalPodAutoscaler], rest: Sequence[HPAState], problems: Mapping[int, Exception]
    ) -> list[HPAState]:
        """What is not kept as columns of the states, afterwards."""
        out = list(rest)
        plain: dict[str, HPAState] = {}
        for row, group in enumerate(self.group.tolist()):
            state = out[row]
            if (state.written is None and (group < 0 or state.selector == self.texts[row])) or row in problems:
                continue
            written = state.written
            if written is not None and written.uid == hpas[row].metadata.uid:
                written = None
            selector = state.selector if group < 0 or self.legacy else self.texts[row]
            if written is None and state.registered:
                found = plain.get(selector or "") if selector is not None else None
                if found is None:
                    found = HPAState(selector=selector)
                    if selector is not None:
                        plain[selector] = found
                out[row] = found
            else:
                out[row] = HPAState(selector=selector, registered=state.registered, written=written)
        return out
