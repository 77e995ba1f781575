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
from kscale.hpa.batch_metrics import MetricTargets, ask_metrics, questions
from kscale.hpa.batch_pods import BatchPods, SelectedPods
from kscale.hpa.batch_samples import JoinedUsage, source_of_query
from kscale.hpa.batch_selectors import BatchSelectors
from kscale.hpa.batch_specs import SpecColumns, conditions_of, no_scale, read_specs, scale_columns, target_resources
from kscale.hpa.behavior import Rules
from kscale.hpa.columns import MetricRows, TargetColumns
from kscale.hpa.given import given_hpa, given_scale
from kscale.hpa.memory import Histories, KeptStates, Memory, StatesOf
from kscale.hpa.options import HPAOptions
from kscale.hpa.pod_groups import PodColumns, SampleColumns
from kscale.hpa.selector_store import SelectorStore
from kscale.hpa.state import ControllerState, HPAState
from kscale.objects.autoscaling import HorizontalPodAutoscaler, Scale
from kscale.objects.core import Pod
from kscale.objects.rest_mapping import RESTMapper

__all__ = ["Chosen", "Encoded", "Observed", "Scales", "choose", "encode", "keys_of"]

Scales = Mapping[str, Any] | Callable[[GetScale], Any]
"""Scales by the HPA's ``namespace/name``, or who answers for them; an ``ApiError`` says why there is none."""

_METRICS_BRANCH: Final = 4


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
    made: list[SelectorStore] = field(default_factory=list)

    def store(self) -> SelectorStore:
        """All selectors, for step machines: each puts there what is there already."""
        if not self.made:
            out = SelectorStore()
            for (namespace, name), selector in self.registered.items():
                out.put_if_absent(namespace, name, selector)
            self.made.append(out)
        return self.made[0]

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


@dataclass(frozen=True, slots=True)
class Chosen:
    """All but the metrics: whose are needed is known now.

    ``rest``: what is not kept as columns of the states before; ``at``: those whose metrics are looked at.
    """

    observed: Observed
    options: HPAOptions
    specs: SpecColumns
    targets: TargetColumns
    memory: Memory
    scales: Sequence[Scale | ApiError]
    problems: Mapping[int, Exception]
    rest: Sequence[HPAState]
    selected: SelectedPods
    at: MetricTargets
    selectors: BatchSelectors

    @property
    def group(self) -> NDArray[np.int64]:
        """Which selection is an HPA's; -1: none."""
        return self.selectors.group

    def selector(self, row: int) -> str:
        """The selector of an HPA that has a selection."""
        return self.selectors.texts[row]

    def questions(self) -> list[GetMetric]:
        """What the metrics APIs have to be asked; see :func:`~kscale.hpa.batch_metrics.questions`."""
        return questions(self.at, self.specs, self.selectors.wanted)

    def encoded(self, metrics: Callable[[GetMetric], Any]) -> Encoded:
        """The columns, with what ``metrics`` answers."""
        chosen, rows, at = self.selectors, self.at.row, self.at
        asked = ask_metrics(at, self.specs, chosen.wanted, self.observed.pods, self.selected, metrics, self.options)
        begin, end = np.zeros(len(self.rest), np.int64), np.zeros(len(self.rest), np.int64)
        begin[rows], end[rows] = asked.begin, asked.end
        problems = {**self.problems, **asked.problems}
        scale_error = self.targets.scale_error.copy()
        for row in problems:
            scale_error[row] = 2  # it is not decided, and nothing of it changes
        behavior = self.specs.behavior
        return Encoded(
            targets=replace(self.targets, scale_error=scale_error, metrics_begin=begin, metrics_end=end),
            rows=asked.rows,
            pods=self.selected.columns,
            samples=asked.samples,
            requests=asked.requests,
            values=asked.values,
            up=_rules_of(self.specs.up, behavior),
            down=_rules_of(self.specs.down, behavior),
            scales=self.scales,
            wanted=chosen.wanted,
            group=chosen.group,
            selected=self.selected,
            registered=chosen.registered,
            problems=problems,
            rest=chosen.next_states(self.observed.hpas, self.rest, problems),
            joined=asked.joined,
        )


def choose(observed: Observed, state: ControllerState, options: HPAOptions, before: Encoded | None = None) -> Chosen:
    """Reads specs, scales and states, and finds whose metrics are needed, of which pods. ``before``: the columns of the
    last round, of which whatever still holds is taken."""
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
    chosen = BatchSelectors(hpas, observed.selectors, rest, texts, metrics, targets.selector_error, options)
    selected = observed.pods.select(chosen.wanted, None if before is None else before.selected)
    chosen.find_rivals(selected)
    rows = metrics[targets.selector_error[metrics] == 0]
    at = MetricTargets(rows, chosen.group[rows], current[rows], status_replicas[rows])
    return Chosen(observed, options, specs, targets, memory, scales, problems, rest, selected, at, chosen)


def encode(
    observed: Observed, state: ControllerState, options: HPAOptions, before: Encoded | None = None
) -> tuple[Encoded, Memory]:
    """The columns of a batch, and what is remembered of each HPA; ``before`` as :func:`choose` takes it."""
    chosen = choose(observed, state, options, before)
    return chosen.encoded(observed.metrics), chosen.memory


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
    if isinstance(state.hpas, StatesOf | KeptStates):
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
