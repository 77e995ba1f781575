"""most-pods: the options that take the most pods (``expander/mostpods``)."""

from __future__ import annotations

from collections.abc import Sequence

from kscale.ca.expander.types import ExpanderInput, Filtered, Option

__all__ = ["most_pods"]


def most_pods(options: Sequence[Option], given: ExpanderInput) -> Filtered:
    """Keeps the options with the largest number of pods; ``scores`` are the negated numbers."""
    del given
    counts = [option.pod_count for option in options]
    best = max(counts, default=0)
    return Filtered(
        survivors=[option for option, count in zip(options, counts, strict=True) if count == best],
        scores={option.group: -float(count) for option, count in zip(options, counts, strict=True)},
    )
