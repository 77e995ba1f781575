"""What the VPA recommender asks Prometheus for at its start, and who asks (``pkg/recommender/input/history``).

Texts and numbers only: whoever has a client sends them, and reads the answers with
:func:`~kscale.series.read_prometheus`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
import numpy as np

from kscale.errors import InputError
from kscale.objects.times import moment
from kscale.series.columns import Series, SeriesKey

__all__ = [
    "LastLabels",
    "PrometheusHistory",
    "RangeQuery",
    "authorization",
    "container_keys",
    "last_labels",
    "parse_prometheus_duration",
]

_DURATION: Final = re.compile(
    r"(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?", re.ASCII
)
_MILLISECOND: Final = 10**6
_UNITS: Final = (31536000000, 604800000, 86400000, 3600000, 60000, 1000, 1)
"""Milliseconds of a year (365 days), week, day, hour, minute, second, millisecond."""


def parse_prometheus_duration(text: str) -> int:
    """Nanoseconds of ``8d``, ``1h30m``, ``0``. Raises ``ValueError`` with the text of Prometheus's own library."""
    if text == "0":
        return 0
    if not text:
        raise ValueError("empty duration string")
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f'not a valid duration string: "{text}"')
    total = sum(int(count or 0) * unit for count, unit in zip(match.groups(), _UNITS, strict=True)) * _MILLISECOND
    if total >= 1 << 63:
        raise ValueError("duration out of range")
    return total


class RangeQuery(NamedTuple):
    """A query over a range of time; times and step in nanoseconds."""

    query: str
    start: int
    end: int
    step: int


class PrometheusHistory(msgspec.Struct, kw_only=True, frozen=True):
    """The recommender's history: upstream's flags of the same names, with its defaults. ``namespace``: only this
    one."""

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
        """What picks the series of containers."""
        job = f'job="{self.prometheus_cadvisor_job_name}", ' if self.prometheus_cadvisor_job_name else ""
        name = self.container_name_label
        own = f', {self.container_namespace_label}="{self.namespace}"' if self.namespace else ""
        return f'{job}{self.container_pod_name_label}=~".+", {name}!="POD", {name}!=""{own}'

    @property
    def cpu_query(self) -> str:
        """CPU of all containers, in cores."""
        return f"rate({self.history_cpu_metric}{{{self.selector}}}[{self.history_resolution}])"

    @property
    def memory_query(self) -> str:
        """Memory of all containers, in bytes."""
        return f"{self.history_memory_metric}{{{self.selector}}}"

    @property
    def columns(self) -> dict[str, str]:
        """Which labels say what a series is of, for :func:`~kscale.series.read_prometheus`."""
        return {
            "namespace": self.container_namespace_label,
            "pod": self.container_pod_name_label,
            "container": self.container_name_label,
        }

    def range_queries(self, now: datetime | int) -> tuple[RangeQuery, RangeQuery]:
        """CPU and memory from ``now`` back; raises ``InputError`` for a flag that is no duration."""
        end = moment(now)
        length = self._duration("length", self.history_length)
        step = self._duration("resolution", self.history_resolution)
        return (
            RangeQuery(self.cpu_query, end - length, end, step),
            RangeQuery(self.memory_query, end - length, end, step),
        )

    @staticmethod
    def _duration(what: str, text: str) -> int:
        try:
            return parse_prometheus_duration(text)
        except ValueError as error:
            raise InputError(f"history {what} {text} is not a valid Prometheus duration: {error}") from None


def container_keys(options: PrometheusHistory, series: Series) -> tuple[SeriesKey, ...]:
    """The containers of an answer; one series without its three labels fails the whole import, as upstream."""
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
    """The labels that a pod had when it was last seen (nanoseconds since 1970)."""

    labels: dict[str, str]
    last_seen: int


def last_labels(options: PrometheusHistory, series: Series) -> dict[tuple[str, str], LastLabels]:
    """(namespace, pod) -> labels, of the series whose last point is the newest; the first of equals."""
    latest = np.zeros(len(series.keys), np.int64)
    np.maximum.at(latest, series.series, series.time)
    present = np.zeros(len(series.keys), np.bool_)
    present[series.series] = True
    found: dict[tuple[str, str], LastLabels] = {}
    for labels, time, has_points in zip(series.labels, latest.tolist(), present.tolist(), strict=True):
        if not has_points:
            continue
        for name in (options.pod_namespace_label, options.pod_name_label):
            if name not in labels:
                raise InputError(f"cannot read last labels: no {name} label")
        pod = labels[options.pod_namespace_label], labels[options.pod_name_label]
        if pod in found and found[pod].last_seen >= time:
            continue
        prefix = options.pod_label_prefix
        found[pod] = LastLabels({k.removeprefix(prefix): v for k, v in labels.items() if k.startswith(prefix)}, time)
    return found


def authorization(
    *, bearer_token: str = "", username: str = "", password: str = "", environment: Mapping[str, str] | None = None
) -> str:
    """The ``Authorization`` header: a token, else user and password, else those of the environment, else empty.

    ``environment`` is asked for ``PROMETHEUS_USERNAME`` and ``PROMETHEUS_PASSWORD``.
    """
    if bearer_token:
        return f"Bearer {bearer_token}"
    if not (username and password):
        given = environment or {}
        username, password = given.get("PROMETHEUS_USERNAME", ""), given.get("PROMETHEUS_PASSWORD", "")
    if not (username and password):
        return ""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
