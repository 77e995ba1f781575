"""Series from Prometheus: range query responses, and the history that the VPA recommender loads at its start.

This module does no I/O: the caller sends the queries, and reads the responses with
:func:`~kscale.series.read_prometheus`. Not in upstream.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _usage_text
from kscale.errors import InputError, Problem
from kscale.imports import lazy_pattern
from kscale.objects.api.meta import shorten
from kscale.objects.argument_types import typed
from kscale.objects.times import moment
from kscale.series.columns import KEY_COLUMNS, Series, SeriesKey

__all__ = [
    "LastLabels",
    "PrometheusHistory",
    "RangeQuery",
    "authorization",
    "container_keys",
    "last_labels",
    "parse_prometheus_duration",
    "read_prometheus",
    "read_warnings",
]


_SHORTEST: Final = len('[0,"0"]')
_VALUE: Final = lazy_pattern(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[Ii]nf|NaN)")
_OLD_LABELS: Final = {"pod": "pod_name", "container": "container_name"}
_WARNINGS_BYTES: Final = 1 << 20
"""Limit on the text of all warnings of a response: in memory short ones take 15 times as much."""
_LONGEST_TEXT: Final = 2048
_FARTHEST: Final = 1 << 32
"""Limit in seconds; later times do not fit int64 nanoseconds."""


class _Result(msgspec.Struct):
    """One series of a response: its labels, and its points as JSON."""

    metric: dict[str, str]
    values: msgspec.Raw


class _Data(msgspec.Struct, rename="camel"):
    """Data of a response; ``result`` is JSON."""

    result_type: str
    result: msgspec.Raw


class _Answer(msgspec.Struct):
    """Response of the query API; ``warnings`` is JSON."""

    status: str = "success"
    data: _Data | None = None
    error: str = ""
    warnings: msgspec.Raw = msgspec.Raw()


@typed
def read_prometheus(
    data: bytes, *, columns: Mapping[str, str] | None = None, source: str = "<bytes>", finite: bool = True
) -> Series:
    """Read the matrix of a range query response.

    Parameters
    ----------
    data : bytes
        JSON text of the response.
    columns : mapping, optional
        Labels that contain ``namespace``, ``pod`` and ``container``. Without it, ``pod_name`` and ``container_name``
        (cAdvisor's labels before Kubernetes 1.16) are used where the others are absent.
    source : str
        Name of the source for error messages.
    finite : bool, default True
        Treat a value that is NaN or infinite as an error. Exclude such values in the query.

    Returns
    -------
    Series
        The series with all their labels, and the warnings of the response, each once (Thanos and Mimir warn that a
        response is partial).

    Raises
    ------
    InputError
        If the data is not such a response or reports an error, for a value that ``finite`` forbids, and for times that
        do not ascend within a series. The message names ``source``.
    """
    try:
        answer = msgspec.json.decode(data, type=_Answer)
        if answer.status == "success" and answer.data is None:
            raise InputError(Problem("not a Prometheus answer: there is no data in it", source))
        if answer.status != "success" or answer.data is None:
            message = f"Prometheus answered {shorten(answer.status)}: {shorten(answer.error, _LONGEST_TEXT)}"
            raise InputError(Problem(message, source))
        if answer.data.result_type != "matrix":
            raise InputError(
                Problem(
                    f"a {shorten(answer.data.result_type)}, not the matrix of a range query",
                    source,
                    field="data.resultType",
                )
            )
        results = msgspec.json.decode(answer.data.result, type=list[_Result])
        warnings = read_warnings(answer.warnings, source)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(Problem(f"not a Prometheus answer: {error}", source)) from None
    names = [_labels_of(name, columns or {}) for name in KEY_COLUMNS]
    keys = [
        SeriesKey(*(result.metric.get(name) or result.metric.get(old, "") for name, old in names)) for result in results
    ]
    texts = [memoryview(result.values) for result in results]
    counts = np.zeros(len(results), np.int64)
    room = sum(text.nbytes for text in texts) // _SHORTEST + len(texts)
    times, values = np.empty(room, np.int64), np.empty(room, np.float64)
    at = 0
    for number, text in enumerate(texts):
        number_of_points = _usage_text.points(text, times, values, at) if at < room else -1
        if number_of_points < 0:
            number_of_points = _read_unusual_points(
                bytes(text), f"data.result[{number}].values", source, times, values, at
            )
        counts[number] = number_of_points
        at += number_of_points
    times = times[:at]
    times *= 1_000_000  # Prometheus has milliseconds
    series = Series.of(
        keys,
        np.repeat(np.arange(len(keys), dtype=np.int32), counts),
        times,
        values[:at].copy(),
        labels=[result.metric for result in results],
        source=source,
        finite=finite,
    )
    return replace(series, warnings=tuple(warnings))


def read_warnings(raw: msgspec.Raw, source: str = "") -> list[str]:
    """Decode the warnings of a response and return each once; the list is empty if there are none.

    Raises InputError if they are no list of texts or too long. ``source``: name of the response in the message.
    """
    if len(memoryview(raw)) > _WARNINGS_BYTES:
        text = f"the warnings are longer than {_WARNINGS_BYTES:,} bytes"
        raise InputError(Problem(text, source, field="warnings"))
    try:
        texts = msgspec.json.decode(raw, type=list[str] | None) if memoryview(raw) else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(Problem(f"not a Prometheus answer: {error}", source, field="warnings")) from None
    return list(dict.fromkeys(texts or ()))


def _labels_of(name: str, columns: Mapping[str, str]) -> tuple[str, str]:
    """Return (label, fallback) of a key column (``namespace``, ...).

    The fallback is read if the label is absent or empty.

    ``columns`` may name another label for the column; then the fallback is the same label.
    """
    label = columns.get(name, name)
    return label, label if name in columns else _OLD_LABELS.get(name, label)


def _value(text: str) -> float:
    """Parse a number as Prometheus writes it.

    Raises ValueError for any other text, also for texts that Python's ``float`` accepts: ``1_0``, surrounding spaces
    and digits of other scripts.
    """
    if not _VALUE.fullmatch(text):
        raise ValueError(f"not a value of Prometheus: {text!r}")
    return float(text)


def _read_unusual_points(
    raw: bytes, place: str, source: str, times: NDArray[np.int64], values: NDArray[np.float64], at: int
) -> int:
    """Read the points of a series that the fast parser rejects into ``times`` (ms) and ``values``; return their number.

    ``raw``: JSON of the points; they are written from index ``at`` on. ``place``: JSON path for the error. Raises
    InputError if a point cannot be read.
    """
    try:
        pairs = msgspec.json.decode(raw, type=list[tuple[float, str]])
        points = np.array([(time, _value(text)) for time, text in pairs], np.float64).reshape(-1, 2)
    except (msgspec.DecodeError, ValueError) as error:
        raise InputError(Problem(str(error), source, field=place)) from None
    if not (np.abs(points[:, 0]) < _FARTHEST).all():
        raise InputError(Problem("a time that is too far from 1970", source, field=place))
    times[at : at + len(points)] = np.rint(points[:, 0] * 1000).astype(np.int64)
    values[at : at + len(points)] = points[:, 1]
    return len(points)


_DURATION: Final = lazy_pattern(
    r"(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?", re.ASCII
)
_MILLISECOND: Final = 10**6
_UNITS: Final = (31536000000, 604800000, 86400000, 3600000, 60000, 1000, 1)
"""Milliseconds of a year (365 days), week, day, hour, minute, second, millisecond."""


def parse_prometheus_duration(text: str) -> int:
    """Parse ``8d``, ``1h30m`` or ``0`` and return nanoseconds.

    Raises ``ValueError`` with the message of Prometheus's own library.
    """
    if text == "0":
        return 0
    if not text:
        raise ValueError("empty duration string")
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f'not a valid duration string: "{text}"')
    counts = [(count or "").lstrip("0") or "0" for count in match.groups()]
    if max(map(len, counts)) > 19:
        raise ValueError("duration out of range")
    total = sum(int(count) * unit for count, unit in zip(counts, _UNITS, strict=True)) * _MILLISECOND
    if total >= 1 << 63:
        raise ValueError("duration out of range")
    return total


class RangeQuery(NamedTuple):
    """Range query; times and step are in nanoseconds."""

    query: str
    start: int
    end: int
    step: int


class PrometheusHistory(msgspec.Struct, kw_only=True, frozen=True):
    """Options of the recommender's Prometheus history: upstream's flags of the same names, with its defaults.

    Attributes
    ----------
    prometheus_cadvisor_job_name
        Value of the job label of cAdvisor's series; empty: any.
    history_length
        Length of the history to load, as a Prometheus duration.
    history_resolution
        Time between two samples of the history, as a Prometheus duration.
    history_cpu_metric
        Name of the metric that counts CPU seconds.
    history_memory_metric
        Name of the metric of memory usage in bytes.
    metric_for_pod_labels
        Metric whose labels include the labels of pods.
    pod_label_prefix
        Prefix of the metric labels that are labels of the pod.
    pod_namespace_label
        Label of the pod-labels metric that names the pod's namespace.
    pod_name_label
        Label of the pod-labels metric that names the pod.
    container_namespace_label
        Label of usage series that names the namespace.
    container_pod_name_label
        Label of usage series that names the pod.
    container_name_label
        Label of usage series that names the container.
    namespace
        Namespace to which the queries are restricted; empty: all.
    """

    prometheus_cadvisor_job_name: str = "kubernetes-cadvisor"
    history_length: str = "8d"
    history_resolution: str = "1h"
    history_cpu_metric: str = "container_cpu_usage_seconds_total"
    history_memory_metric: str = "container_memory_working_set_bytes"
    metric_for_pod_labels: str = 'up{job="kubernetes-pods"}'
    pod_label_prefix: str = "pod_label_"
    pod_namespace_label: str = "kubernetes_namespace"
    pod_name_label: str = "kubernetes_pod_name"
    container_namespace_label: str = "namespace"
    container_pod_name_label: str = "pod_name"
    container_name_label: str = "name"
    namespace: str = ""

    @property
    def selector(self) -> str:
        """Return the label matchers that select the series of containers."""
        job = f'job="{self.prometheus_cadvisor_job_name}", ' if self.prometheus_cadvisor_job_name else ""
        name = self.container_name_label
        own = f', {self.container_namespace_label}="{self.namespace}"' if self.namespace else ""
        return f'{job}{self.container_pod_name_label}=~".+", {name}!="POD", {name}!=""{own}'

    @property
    def cpu_query(self) -> str:
        """Return the query for the CPU of all containers, in cores."""
        return f"rate({self.history_cpu_metric}{{{self.selector}}}[{self.history_resolution}])"

    @property
    def memory_query(self) -> str:
        """Return the query for the memory of all containers, in bytes."""
        return f"{self.history_memory_metric}{{{self.selector}}}"

    @property
    def columns(self) -> dict[str, str]:
        """Return the labels of namespace, pod and container for :func:`~kscale.series.read_prometheus`."""
        return {
            "namespace": self.container_namespace_label,
            "pod": self.container_pod_name_label,
            "container": self.container_name_label,
        }

    def range_queries(self, now: datetime | int) -> tuple[RangeQuery, RangeQuery]:
        """Return the range queries for CPU and memory up to ``now``.

        Raises ``InputError`` for a flag that is not a duration, and if ``now`` is not a time.
        """
        end = moment(now)
        length = self._duration("length", self.history_length)
        step = self._duration("resolution", self.history_resolution)
        return (
            RangeQuery(self.cpu_query, end - length, end, step),
            RangeQuery(self.memory_query, end - length, end, step),
        )

    @staticmethod
    def _duration(what: str, text: str) -> int:
        """Parse a Prometheus duration into nanoseconds. Raises InputError, which names ``what``, for any other text."""
        try:
            return parse_prometheus_duration(text)
        except ValueError as error:
            raise InputError(f"history {what} {text} is not a valid Prometheus duration: {error}") from None


def container_keys(options: PrometheusHistory, series: Series) -> tuple[SeriesKey, ...]:
    """Return the key (namespace, pod, container) of each series in a response.

    Raises InputError if any series lacks one of the three labels, which fails the whole import as in upstream.
    """
    for labels in series.labels:
        for name in (
            options.container_namespace_label,
            options.container_pod_name_label,
            options.container_name_label,
        ):
            if name not in labels:
                raise InputError(f"cannot get container ID from labels: no {name} label")
    return series.keys


class LastLabels(NamedTuple):
    """Labels of a pod when it was last seen (nanoseconds since 1970)."""

    labels: dict[str, str]
    last_seen: int


def last_labels(options: PrometheusHistory, series: Series) -> dict[tuple[str, str], LastLabels]:
    """Return the newest pod labels by (namespace, pod): those of the series whose last point is the newest.

    Only labels with ``options.pod_label_prefix`` are returned, without it.

    Of equally new series the first counts. Series without points are ignored. Raises InputError if a series with points
    lacks the namespace or pod label.
    """
    latest = np.zeros(len(series.keys), np.int64)
    np.maximum.at(latest, series.series, series.time)
    present = np.zeros(len(series.keys), np.bool_)
    present[series.series] = True
    labels_by_pod: dict[tuple[str, str], LastLabels] = {}
    for labels, time, has_points in zip(series.labels, latest.tolist(), present.tolist(), strict=True):
        if not has_points:
            continue
        for name in (options.pod_namespace_label, options.pod_name_label):
            if name not in labels:
                raise InputError(f"cannot read last labels: no {name} label")
        pod = labels[options.pod_namespace_label], labels[options.pod_name_label]
        if pod in labels_by_pod and labels_by_pod[pod].last_seen >= time:
            continue
        prefix = options.pod_label_prefix
        labels_by_pod[pod] = LastLabels(
            {k.removeprefix(prefix): v for k, v in labels.items() if k.startswith(prefix)}, time
        )
    return labels_by_pod


def authorization(
    *, bearer_token: str = "", username: str = "", password: str = "", environment: Mapping[str, str] | None = None
) -> str:
    """Return the value of the ``Authorization`` header: from the token, user and password, or the environment.

    The first of these that is complete is used. ``environment`` may have ``PROMETHEUS_USERNAME`` and
    ``PROMETHEUS_PASSWORD``. The result is empty if there are none.
    """
    if bearer_token:
        return f"Bearer {bearer_token}"
    if not (username and password):
        variables = environment or {}
        username, password = variables.get("PROMETHEUS_USERNAME", ""), variables.get("PROMETHEUS_PASSWORD", "")
    if not (username and password):
        return ""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
