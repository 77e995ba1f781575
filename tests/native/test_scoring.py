"""The kernel that runs a scorer over every pod and node, against a loop, on any number of threads."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kscale._native._engine import score_all
from kscale.errors import NativeError
from reference import scoring as reference

_INT64, _FLOAT64 = ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_double)


@ctypes.CFUNCTYPE(ctypes.c_int32, _INT64, _INT64, ctypes.c_int64, ctypes.c_int64, _FLOAT64)
def _row(request: Any, free: Any, nodes: int, columns: int, scores: Any) -> int:
    """What is left of everything, weighted by column; a pod that asks a negative amount of the last is a failure."""
    for node in range(nodes):
        scores[node] = _score(request[:columns], free[node * columns : (node + 1) * columns])
    return int(request[columns - 1] < 0)


def _score(request: list[int], free: list[int]) -> float:
    return float(sum((have - want) * weight for weight, (want, have) in enumerate(zip(request, free, strict=True), 1)))


SCORER = SimpleNamespace(name="left", address=ctypes.cast(_row, ctypes.c_void_p).value)


def amounts(rows: int, columns: int, least: int) -> st.SearchStrategy[NDArray[np.int64]]:
    row = st.lists(st.integers(least, 2**40), min_size=columns, max_size=columns)
    return st.lists(row, min_size=rows, max_size=rows).map(
        lambda amounts_: np.array(amounts_, np.int64).reshape(-1, columns)
    )


@given(st.data(), st.integers(0, 9), st.integers(0, 5), st.integers(1, 3), st.sampled_from([1, 2, 5]))
def test_scores_are_those_of_the_loop(data: st.DataObject, pods: int, nodes: int, columns: int, threads: int) -> None:
    request = data.draw(amounts(pods, columns, data.draw(st.sampled_from([0, -1, -(2**40)]))))
    free = data.draw(amounts(nodes, columns, -(2**40)))
    expected, failed = reference.score_all(request.tolist(), free.tolist(), _score)
    if nodes and failed is not None:
        with pytest.raises(NativeError, match=rf"plug-in 'left' failed on pod {failed}$"):
            score_all(request, free, SCORER, threads=threads)
    else:
        result = score_all(request, free, SCORER, threads=threads)
        assert result.shape == (pods, nodes)
        assert result.tolist() == expected
