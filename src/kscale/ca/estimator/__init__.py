"""Estimates how many copies of a node template pods need (upstream: ``estimator/``)."""

from __future__ import annotations

from kscale.ca.estimator.binpacking import estimate, estimate_many
from kscale.ca.estimator.result import EstimateOptions, EstimateResult, NodeGroupSize

__all__ = [
    "EstimateOptions",
    "EstimateResult",
    "NodeGroupSize",
    "estimate",
    "estimate_many",
]
