"""What a calculation of replicas takes and comes to, and one row of the native kernel.

Upstream: ``pkg/controller/podautoscaler/replica_calculator.go``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _replicas
from kscale.effects import ZERO_TIME, GetMetric, List, Moment, StepsOf
from kscale.hpa.pod_groups import PodColumns, Sample, SampleColumns

__all__ = [
    "MODES",
    "PATHS",
    "Calculation",
    "MetricsError",
    "PodValues",
    "Replicas",
    "Tolerances",
    "calculate_row",
    "error_text",
    "wrap",
]

MODES: Final = ("utilization", "usage", "object_value", "object_per_pod", "external_value", "external_per_pod")
"""Which of upstream's functions a row is, by the kernel's code."""

_BAD_REQUEST: Final = 5
_ERRORS: Final = {
    3: "no pods returned by selector while calculating replica count",
    4: "did not receive metrics for targeted pods (pods might be unready)",
    6: "no metrics returned matched known pods",
}
_LEGACY_ERRORS: Final = {**_ERRORS, 4: "did not receive metrics for any ready pods"}
PATHS: Final = ((1, "hold_first_pass"), (2, "second_pass"), (4, "hold_second_pass"), (8, "hold_count_direction"))
"""The branches that a row may take, by the kernel's bits."""


class MetricsError(Exception):
    """A metrics client's error; the text is upstream's."""


@dataclass(frozen=True, slots=True)
class PodValues:
    """Values by pod name, and the time of the first of them."""

    samples: Mapping[str, Sample]
    timestamp: Moment = ZERO_TIME


@dataclass(frozen=True, slots=True)
class Tolerances:
    """How far the ratio of usage to target may be from 1 before anything changes, as a fraction, by direction:
    ``scale_down`` below 1, ``scale_up`` above.

    ``by_distance`` (legacy profile): the distance from 1 is compared with ``scale_up``, whichever the direction.
    """

    scale_down: float = 0.1
    scale_up: float = 0.1
    by_distance: bool = False

    def hold(self, ratio: float) -> bool:
        """Whether a ratio leaves the size as it is. Decided in ``hpa/replica_calculator.hpp``; for telling why."""
        if self.by_distance:
            return abs(1.0 - ratio) <= self.scale_up
        return 1.0 - self.scale_down <= ratio <= 1.0 + self.scale_up


class Replicas(msgspec.Struct, frozen=True, gc=False):
    """What a calculation came to.

    - ``replicas``: how many it asks for; 0 with an ``error`` (upstream's text);
    - ``utilization``: in percent, of resource utilisation only; ``usage``: in milli-units, the average of the pods, or
      the value; ``timestamp``: of the first value;
    - how it came: ``path`` (the branches taken), ``ratio`` of usage to target, ``second_ratio`` after what is missing
      was filled in, ``groups``: names of pods by :data:`~kscale.hpa.pod_groups.GROUPS`.
    """

    replicas: int = 0
    utilization: int | None = None
    usage: int = 0
    timestamp: Moment = ZERO_TIME
    error: str | None = None
    path: tuple[str, ...] = ()
    ratio: float = 0.0
    second_ratio: float = 0.0
    groups: Mapping[str, Sequence[str]] = {}


Calculation = StepsOf[GetMetric | List, Replicas]
"""A calculation under way: it asks for metrics and pods where upstream does."""

_EMPTY_PODS: Final = PodColumns.of(())
_EMPTY_SAMPLES: Final = SampleColumns.of((), {})
_EMPTY: Final = np.empty(0, np.int64)


def calculate_row(
    mode: int,
    current: int,
    target: int,
    tolerances: Tolerances,
    *,
    cpu: bool = False,
    pods: PodColumns = _EMPTY_PODS,
    samples: SampleColumns = _EMPTY_SAMPLES,
    requests: NDArray[np.int64] = _EMPTY,
    bad_request: tuple[int, str] = (-1, ""),
    extra: Sequence[int] = (),
    values: Sequence[int] = (),
    timestamp: Moment = ZERO_TIME,
    groups: Mapping[str, Sequence[str]] | None = None,
    terms: tuple[Moment, int, int, int],
) -> Replicas:
    """One row through the kernel (``kscale._native._replicas.calculate``).

    ``mode`` indexes :data:`MODES`; ``extra``: values of pods that are not listed; ``bad_request``: position of the
    first pod without a request, and its error; ``terms``: see :meth:`~kscale.hpa.options.HPAOptions.terms`.
    """
    given = _replicas.calculate(
        np.array([mode], np.uint8),
        np.array([cpu], np.uint8),
        np.zeros(1, np.uint8),
        np.array([current], np.int32),
        np.array([target], np.int64),
        np.array([tolerances.scale_down], np.float64),
        np.array([tolerances.scale_up], np.float64),
        np.zeros(1, np.int64),
        np.array([len(pods)], np.int64),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        np.array([bad_request[0]], np.int32),
        np.array([len(extra)], np.int64),
        np.array([wrap(sum(extra))], np.int64),
        np.zeros(1, np.int64),
        np.array([len(values)], np.int64),
        *pods.arrays,
        *samples.arrays,
        requests,
        np.array(values, np.int64),
        *terms,
    )
    replicas, utilization, usage, errors, paths, _, ratios = given
    return Replicas(
        replicas=int(replicas[0]),
        utilization=int(utilization[0]) if MODES[mode] == "utilization" else None,
        usage=int(usage[0]),
        timestamp=timestamp,
        error=error_text(int(errors[0]), bad_request[1], legacy=terms[3] != 0),
        path=tuple(name for bit, name in PATHS if paths[0] & bit),
        ratio=float(ratios[0, 0]),
        second_ratio=float(ratios[0, 1]),
        groups=groups or {},
    )


def error_text(code: int, bad_request: str, *, legacy: bool = False) -> str | None:
    """Upstream's text of the kernel's error code; ``bad_request`` is that of a pod without a request."""
    return bad_request if code == _BAD_REQUEST else (_LEGACY_ERRORS if legacy else _ERRORS).get(code)


def wrap(value: int) -> int:
    """The low 64 bits, signed: what Go's int64 leaves of a sum."""
    return (value + 2**63) % 2**64 - 2**63
