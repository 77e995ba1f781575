"""Reconcile many HPAs at once: the same decisions as :mod:`kscale.hpa.reconcile`, from objects over columns.

Upstream, one by one: ``pkg/controller/podautoscaler/horizontal.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from kscale.effects import GetMetric, Moment, moment
from kscale.hpa.batch_pods import PodsLike, batch_pods
from kscale.hpa.batch_scales import Scales
from kscale.hpa.decisions import Decisions, Origin, decide_columns
from kscale.hpa.encode import Observed, choose
from kscale.hpa.options import HPAOptions
from kscale.hpa.selector_store import SelectorStore
from kscale.hpa.state import ControllerState
from kscale.objects.argument_types import typed
from kscale.objects.rest_mapping import BUILT_IN_MAPPER, RESTMapper
from kscale.snapshot.collector import collector_paused

__all__ = ["decide"]


@collector_paused()
@typed
def decide(
    hpas: Sequence[Any],
    scales: Scales,
    pods: PodsLike,
    metrics: Callable[[GetMetric], Any],
    *,
    selectors: SelectorStore | None = None,
    options: HPAOptions | None = None,
    state: ControllerState | None = None,
    now: datetime | Moment,
    mapper: RESTMapper | None = None,
    threads: int = 1,
    previous: Decisions | None = None,
) -> Decisions:
    """Reconciles HPAs once. Objects may be structs, plain data or those of a Kubernetes client library.

    - ``hpas``: v2 structs defaulted; anything else is converted and defaulted (v1 too), not validated;
    - ``scales``: the scale of each HPA's target by the HPA's ``namespace/name``, or a function that answers
      :class:`~kscale.effects.GetScale`; an :class:`~kscale.effects.ApiError` says why there is none, and one that is
      missing is not found;
    - ``pods``: a :class:`~kscale.Cluster`, a snapshot or the index of one, or a list of pods;
    - ``metrics`` answers queries: :class:`~kscale.hpa.MetricLists` (many at once), or any function of a
      :class:`~kscale.effects.GetMetric`;
    - ``selectors``: of HPAs that are not in the batch. The selectors of all are known before the first is checked;
    - ``mapper``: what kinds of targets there are; without it those that Kubernetes has itself;
    - ``state``: what is remembered, ``decisions.state`` the next; ``now``: an aware datetime or nanoseconds since 1970;
    - ``previous``: the decisions of the last round, to save work: what is the very same object as then (an HPA, a
      scale, a pod of a cluster, a list of metrics) is not read again, so do not change objects that were passed. The
      answer is the same.

    Every write is taken to succeed; :meth:`Decisions.refused` tells of those that did not. Raises
    :class:`~kscale.errors.InputError` for HPAs and pods that cannot be read, and for an HPA that comes twice. What is
    malformed of one HPA's metrics or scale is an error of its own row.
    """
    options, time = options or HPAOptions(), moment(now)
    mapper = BUILT_IN_MAPPER if mapper is None else mapper
    state = (previous.state if previous is not None else ControllerState()) if state is None else state
    last = None if previous is None else previous.origin
    if last is not None and (last.options != options or last.observed.mapper is not mapper):
        last = None
    before, chosen_before = (None, None) if last is None else (last.given, last.chosen)
    observed = Observed.of(
        hpas, scales, batch_pods(pods), metrics, selectors, mapper, None if last is None else last.observed
    )
    chosen = choose(observed, state, options, chosen_before)
    given = chosen.encoded(metrics, before)
    out = decide_columns(given, chosen.memory, now=time, options=options, threads=threads)
    return replace(out, keys=observed.keys, origin=Origin(chosen, given, state, time, threads))
