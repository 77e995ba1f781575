"""Series from the JSON that Prometheus answers to a range query (``/api/v1/query_range``). kscale's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _usage_text
from kscale.errors import InputError, Problem
from kscale.series.columns import KEY_COLUMNS, Series, SeriesKey

__all__ = ["read_prometheus"]

_SHORTEST: Final = len('[0,"0"]')
_VALUE: Final = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[Ii]nf|NaN)")
_OLD_LABELS: Final = {"pod": "pod_name", "container": "container_name"}
_FARTHEST: Final = 1 << 32
"""Seconds; nanoseconds beyond that do not fit."""


class _Result(msgspec.Struct):
    metric: dict[str, str]
    values: msgspec.Raw


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Answer(msgspec.Struct):
    status: str = "success"
    data: _Data | None = None
    error: str = ""
    warnings: list[str] | None = None


def read_prometheus(
    data: bytes, *, columns: Mapping[str, str] | None = None, source: str = "<bytes>", finite: bool = True
) -> Series:
    """The matrix of a range query, whose answer is ``data`` (JSON).

    ``columns`` says which labels are ``namespace``, ``pod`` and ``container``; without it ``pod_name`` and
    ``container_name`` (cAdvisor's labels before Kubernetes 1.16) are read where the others are absent. All labels are
    kept with each series,
    and what the answer warns of (Thanos and Mimir say there that it is a part of the whole), each text once. Unless
    ``finite`` is False a value that is NaN or infinite is an error: leave it out in the query.

    Raises InputError, which names ``source``, for what is no such answer, an answer that is an error, and such values.
    """
    try:
        answer = msgspec.json.decode(data, type=_Answer)
        if answer.status == "success" and answer.data is None:
            raise InputError(Problem("not a Prometheus answer: there is no data in it", source))
        if answer.status != "success" or answer.data is None:
            raise InputError(Problem(f"Prometheus answered {answer.status}: {answer.error}", source))
        if answer.data.result_type != "matrix":
            raise InputError(
                Problem(
                    f"a {answer.data.result_type}, not the matrix of a range query", source, field="data.resultType"
                )
            )
        results = msgspec.json.decode(answer.data.result, type=list[_Result])
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
        found = _usage_text.points(text, times, values, at) if at < room else -1
        if found < 0:
            found = _odd_points(bytes(text), f"data.result[{number}].values", source, times, values, at)
        counts[number] = found
        at += found
    times = times[:at]
    times *= 1_000_000  # Prometheus keeps milliseconds
    series = Series.of(
        keys,
        np.repeat(np.arange(len(keys), dtype=np.int32), counts),
        times,
        values[:at].copy(),
        labels=[result.metric for result in results],
        source=source,
        finite=finite,
    )
    return replace(series, warnings=tuple(dict.fromkeys(answer.warnings or ())))


def _labels_of(name: str, columns: Mapping[str, str]) -> tuple[str, str]:
    """The label of a key column, and the one that is read if it is absent."""
    label = columns.get(name, name)
    return label, label if name in columns else _OLD_LABELS.get(name, label)


def _value(text: str) -> float:
    """A number as Prometheus writes it; Python takes more: ``1_0``, spaces, digits of other scripts."""
    if not _VALUE.fullmatch(text):
        raise ValueError(f"not a value of Prometheus: {text!r}")
    return float(text)


def _odd_points(
    raw: bytes, place: str, source: str, times: NDArray[np.int64], values: NDArray[np.float64], at: int
) -> int:
    """Points that are written in another way than Prometheus writes them."""
    try:
        pairs = msgspec.json.decode(raw, type=list[tuple[float, str]])
        found = np.array([(time, _value(text)) for time, text in pairs], np.float64).reshape(-1, 2)
    except (msgspec.DecodeError, ValueError) as error:
        raise InputError(Problem(str(error), source, field=place)) from None
    if not (np.abs(found[:, 0]) < _FARTHEST).all():
        raise InputError(Problem("a time that is too far from 1970", source, field=place))
    times[at : at + len(found)] = np.rint(found[:, 0] * 1000).astype(np.int64)
    values[at : at + len(found)] = found[:, 1]
    return len(found)
