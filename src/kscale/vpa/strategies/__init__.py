"""Ways to turn usage into requests. A strategy is a small class; its settings become flags of the command line."""

from __future__ import annotations

from kscale.vpa.strategies.base import (
    Advised,
    ContainerUsage,
    Strategy,
    checked_advice,
    find_strategy,
    register,
    strategies,
)
from kscale.vpa.strategies.compiled import CompiledStrategy
from kscale.vpa.strategies.percentile import Percentile, PercentileLimit
from kscale.vpa.strategies.recommender import Recommender

__all__ = [
    "Advised",
    "CompiledStrategy",
    "ContainerUsage",
    "Percentile",
    "PercentileLimit",
    "Recommender",
    "Strategy",
    "checked_advice",
    "find_strategy",
    "register",
    "strategies",
]
