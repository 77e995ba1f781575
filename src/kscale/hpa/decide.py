"""Reconcile many HPAs at once: the same decisions as :mod:`kscale.hpa.reconcile`, over columns.

:func:`decide` takes objects, :func:`decide_columns` what :mod:`kscale.hpa.encode` makes of them. Decisions are codes;
texts and objects of one HPA are made when asked for, by running the step machine on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kscale._native import _reconcile
from kscale.effects import Action, ApiError, DryRun, GetMetric, GetScale, List, Moment, as_if_done, moment
from kscale.hpa.columns import CalculatorColumns, calculate
from kscale.hpa.encode import Encoded, Observed, encode
from kscale.hpa.memory import Memory
from kscale.hpa.options import HPAOptions
from kscale.hpa.reconcile import reconcile
from kscale.hpa.records import Reconciliation
from kscale.hpa.selector_store import SelectorStore
from kscale.hpa.state import ControllerState
from kscale.objects.autoscaling import HorizontalPodAutoscaler, Scale
from kscale.objects.core import Pod
from kscale.objects.rest_mapping import RESTMapper

__all__ = ["BRANCHES", "REASONS", "Decisions", "decide", "decide_columns"]

BRANCHES: Final = ("no_scale", "disabled", "above_max", "below_min", "metrics", "failed")
REASONS: Final = ("none", "above_max", "below_min", "metric_above", "all_below")


@dataclass(frozen=True, slots=True)
class Decisions:
    """One row an HPA, in the order given.

    ``branch`` (:data:`BRANCHES`), ``desired``, ``proposal``, ``stabilized`` int32; ``best`` and ``first_invalid``: rows
    among the HPA's metrics or -1; ``invalid`` the number of failed metrics; ``rescaled``; ``reason``
    (:data:`REASONS`); ``events`` bits 1 FailedGetScale, 2 selector, 4 metric failed, 8 FailedComputeMetricsReplicas,
    16 SuccessfulRescale; ``error`` 0 none, 1 internal, 2 spec. ``memory`` is what to pass next time.
    """

    branch: NDArray[np.uint8]
    desired: NDArray[np.int32]
    proposal: NDArray[np.int32]
    stabilized: NDArray[np.int32]
    best: NDArray[np.int32]
    invalid: NDArray[np.int32]
    first_invalid: NDArray[np.int32]
    rescaled: NDArray[np.uint8]
    reason: NDArray[np.uint8]
    events: NDArray[np.uint8]
    error: NDArray[np.uint8]
    metrics: CalculatorColumns
    memory: Memory
    explain: Callable[[int], DryRun[Reconciliation]] | None = None

    def __len__(self) -> int:
        return len(self.desired)

    def __getitem__(self, row: int) -> DryRun[Reconciliation]:
        """Everything about one HPA, texts included; only for decisions made from objects."""
        if self.explain is None:
            raise TypeError("decisions made from columns alone have no texts")
        return self.explain(range(len(self))[row])


def decide_columns(
    given: Encoded, memory: Memory, *, now: datetime | Moment, options: HPAOptions | None = None, threads: int = 1
) -> Decisions:
    """Decide from columns. Nothing that is passed in is changed; the result does not depend on ``threads``."""
    options, time = options or HPAOptions(), moment(now)
    answers = calculate(
        given.rows, given.pods, given.samples, given.requests, given.values, options=options, now=time, threads=threads
    )
    error = (answers.error != 0).astype(np.uint8)
    np.copyto(error, 2, where=given.rows.invalid != 0)
    past, added, removed = memory.past.with_room(), memory.added.with_room(), memory.removed.with_room()
    conditions = memory.conditions.copy()
    columns = _reconcile.decide(
        replace(given.targets, fresh=memory.fresh),
        answers.replicas,
        error,
        given.up,
        given.down,
        past,
        added,
        removed,
        conditions.status,
        conditions.reason,
        conditions.time,
        time,
        options.downscale_stabilization_ns,
        options.enabled("HPAScaleToZero"),
        options.legacy,
        threads,
    )
    fresh = memory.fresh * (columns[0] == 0).astype(np.uint8)
    return Decisions(*columns, metrics=answers, memory=Memory(fresh, past, added, removed, conditions))


def decide(
    hpas: Sequence[HorizontalPodAutoscaler],
    scales: Mapping[str, Scale | ApiError],
    pods: Sequence[Pod],
    metrics: Callable[[GetMetric], Any],
    *,
    selectors: SelectorStore | None = None,
    options: HPAOptions | None = None,
    state: ControllerState | None = None,
    now: datetime | Moment,
    mapper: RESTMapper | None = None,
    threads: int = 1,
) -> Decisions:
    """Reconcile HPAs (v2, defaulted) once, every write succeeding.

    ``scales`` holds the scale of each HPA's target by the HPA's ``namespace/name``, or why it could not be read;
    ``metrics`` answers queries (:class:`~kscale.hpa.queries.MetricLists`). The selectors of all HPAs, and those in
    ``selectors`` (other HPAs), are known before the first is checked. ``decisions[i]`` explains one.
    """
    options, state, time = options or HPAOptions(), state or ControllerState(), moment(now)
    observed = Observed(hpas, scales, pods, metrics, selectors, mapper or RESTMapper())
    given, memory = encode(observed, state, options)
    out = decide_columns(given, memory, now=time, options=options, threads=threads)
    store = given.selectors

    def explain(row: int) -> DryRun[Reconciliation]:
        hpa = hpas[row]
        key = f"{hpa.metadata.namespace}/{hpa.metadata.name}"
        machine = reconcile(hpa, state.get(key), now=time, options=options, selectors=store, mapper=observed.mapper)
        return as_if_done(machine, now=time, respond=lambda action: _answer(action, key, observed, given))

    return replace(out, explain=explain)


def _answer(action: Action, key: str, observed: Observed, given: Encoded) -> Any:
    if isinstance(action, GetScale):
        return observed.scales.get(key) or observed.no_scale(action)
    if isinstance(action, List):
        return given.pods_of(action.namespace, action.selector)
    if isinstance(action, GetMetric):
        return observed.metrics(action)
    return None
