"""``InitFromHistoryProvider``: what Prometheus remembers, before the first round (``input/cluster_feeder.go``)."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import numpy as np
import numpy.typing as npt

from kscale.effects import Moment, Observe, Outcome, Progress, QueryPrometheus, StepsOf, Within, moment
from kscale.errors import InputError
from kscale.objects.argument_types import typed
from kscale.series.columns import Series
from kscale.series.prometheus_history import LastLabels, PrometheusHistory, container_keys, last_labels
from kscale.series.prometheus_reader import read_prometheus
from kscale.vpa.metrics import observation
from kscale.vpa.model import CPU_SAMPLE, MEMORY_SAMPLE, RecommenderState, Usage, add_usage
from kscale.vpa.model.usage import ContainerName

__all__ = ["ask_steps", "init_from_prometheus_steps"]

_REQUESTS: Final = "vpa_recommender_prometheus_client_api_requests_count"
_DURATIONS: Final = "vpa_recommender_prometheus_client_api_requests_duration_seconds"
_MOST: Final = 1e14
_NO_NUMBER: Final = -(2**63)
_Amounts = npt.NDArray[np.int64]


class _HistoryError(Exception):
    """Why there is no history, in upstream's words."""


@typed
def init_from_prometheus_steps(
    state: RecommenderState, history: PrometheusHistory, *, timeout: int, now: datetime | Moment
) -> StepsOf[Within | Observe, list[str]]:
    """Asks Prometheus for usage and labels by the questions of ``history``, and takes them in; each question may take
    ``timeout`` nanoseconds.

    Texts of what went wrong come back: without an answer to each question nothing is taken in; one that is a part of
    the whole, as Prometheus warns then, is. Pods are taken in
    by name, the samples of each container by time; pods that are not there any more go with the first round.
    """
    progress = Progress(moment(now))
    try:
        questions = history.range_queries(progress.now)
        found = []
        for question in questions:
            asked = QueryPrometheus(query=question.query, start=question.start, end=question.end, step=question.step)
            try:
                series = yield from ask_steps(asked, history, progress, timeout)
                container_keys(history, series)
            except InputError as error:
                raise _HistoryError(f"cannot get usage history: {error}") from None
            found.append(series)
        try:
            asked = QueryPrometheus(query=history.metric_for_pod_labels, end=progress.now)
            told = yield from ask_steps(asked, history, progress, timeout)
            labels = last_labels(history, told)
        except InputError as error:
            raise _HistoryError(f"cannot read last labels: {error}") from None
    except (_HistoryError, InputError) as error:
        return [f"Cannot get cluster history: {error}"]
    cpu, memory = found
    warnings = dict.fromkeys(text for series in (cpu, memory, told) for text in series.warnings)
    return [
        *(f"Prometheus warns of the cluster history: {text}" for text in warnings),
        *_take_in(state, cpu, memory, labels, progress.now),
    ]


def ask_steps(
    question: QueryPrometheus, history: PrometheusHistory, progress: Progress, timeout: int
) -> StepsOf[Within | Observe, Series]:
    """Prometheus's answer to one question, which may take ``timeout`` nanoseconds, counted under upstream's names.

    Raises :class:`~kscale.errors.InputError`.
    """
    begun = progress.now

    def ask(at: Moment) -> StepsOf[QueryPrometheus, Outcome]:
        return (yield from Progress(at).act(question))

    outcome: Outcome = yield from progress.within(timeout, ask)
    error = outcome.error
    if error is None or error.code:
        labels = {"code": str(200 if error is None else error.code), "method": "post"}
        took = (progress.now - begun) / 1e9
        yield from progress.observe(observation(_REQUESTS, labels), observation(_DURATIONS, labels, took))
    if error is not None:
        raise InputError(error.message)
    return read_prometheus(outcome.value, columns=history.columns, source="Prometheus", finite=False)


def _take_in(
    state: RecommenderState,
    cpu: Series,
    memory: Series,
    labels: dict[tuple[str, str], LastLabels],
    now: Moment,
) -> list[str]:
    names: dict[ContainerName, int] = {
        name: i
        for i, name in enumerate(
            sorted({(key.namespace, key.pod, key.container) for s in (cpu, memory) for key in s.keys})
        )
    }
    pods = sorted({*((namespace, pod) for namespace, pod, _ in names), *labels})
    for key in pods:
        state.add_pod(*key, labels[key].labels if key in labels else {}, "Unknown", now)
    for namespace, pod, name in names:
        state.add_container(state.pods[namespace, pod], name, now)
    whose, times, amounts, kinds = [], [], [], []
    for series, resource, factor in ((cpu, CPU_SAMPLE, 1000.0), (memory, MEMORY_SAMPLE, 1.0)):
        place = np.array([names[key.namespace, key.pod, key.container] for key in series.keys], np.int32)
        whose.append(place[series.series] if len(place) else np.zeros(0, np.int32))
        times.append(series.time)
        amounts.append(_amounts(series.value * factor))
        kinds.append(np.full(len(series.time), resource, np.uint8))
    container, time, kind = np.concatenate(whose), np.concatenate(times), np.concatenate(kinds)
    order = np.lexsort((kind, time, container))  # CPU before memory, as they were asked for
    usage = Usage(list(names), container[order], time[order], np.concatenate(amounts)[order], kind[order])
    refused = add_usage(state, usage, now)
    return [f"Error adding metric sample for container {each.namespace}/{each.pod}/{each.container}: {each.error}"
            for each in refused]  # fmt: skip


def _amounts(values: npt.NDArray[np.float64]) -> _Amounts:
    """``ResourceAmount`` of floats: cut off, from 0 to 10^14; what is no number is less than any, and refused."""
    known = ~np.isnan(values)
    cut = np.clip(np.where(known, values, 0.0), 0.0, _MOST).astype(np.int64)
    return np.where(known, cut, _NO_NUMBER)
