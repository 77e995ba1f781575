"""What the recommender remembers between rounds (upstream: ``pkg/recommender/model``).

Modules by noun, each leaning only on those before it: ``store`` (columns), ``aggregates``, ``pods``, ``vpa``, ``state``
(all of them, linked); then what is done with a state: ``intake`` (samples and OOMs), ``merged`` (what a VPA knows per
container), ``garbage``, ``saved``.
"""

from __future__ import annotations

from kscale.vpa.model.aggregates import Aggregate, AggregateKey
from kscale.vpa.model.intake import UsageError, add_usage, slot_of
from kscale.vpa.model.pods import ContainerState, LabelSet, PodState
from kscale.vpa.model.saved import fork_state, load_state, save_state
from kscale.vpa.model.state import RecommenderState
from kscale.vpa.model.store import Store
from kscale.vpa.model.usage import CPU_SAMPLE, MEMORY_SAMPLE, OOM, Usage
from kscale.vpa.model.vpa import Vpa

__all__ = [
    "CPU_SAMPLE",
    "MEMORY_SAMPLE",
    "OOM",
    "Aggregate",
    "AggregateKey",
    "ContainerState",
    "LabelSet",
    "PodState",
    "RecommenderState",
    "Store",
    "Usage",
    "UsageError",
    "Vpa",
    "add_usage",
    "fork_state",
    "load_state",
    "save_state",
    "slot_of",
]
