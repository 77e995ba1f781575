"""Scores: one pod and one node after the other."""

from __future__ import annotations

from collections.abc import Callable


def score_all(
    request: list[list[int]], free: list[list[int]], score: Callable[[list[int], list[int]], float]
) -> tuple[list[list[float]], int | None]:
    """The scores by pod and node, and the first pod that asks a negative amount of the last resource (None: no one)."""
    failed = next((pod for pod, row in enumerate(request) if row[-1] < 0), None)
    return [[score(request_row, have) for have in free] for request_row in request], failed
