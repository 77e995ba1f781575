"""Horizontal Pod Autoscaler decisions.

One reconcile can be followed in this order: :mod:`~kscale.hpa.controller.reconcile` (the step machine),
:mod:`~kscale.hpa.controller.scale_target`, :mod:`~kscale.hpa.controller.metric_proposals`,
:mod:`~kscale.hpa.controller.replica_calculator`,
:mod:`~kscale.hpa.controller.behavior`, :mod:`~kscale.hpa.controller.status`, :mod:`~kscale.hpa.controller.state`.
:mod:`~kscale.hpa.batch.decisions` makes the same decisions over columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kscale.imports import import_on_use

if TYPE_CHECKING:
    from kscale.hpa.api.admission import Admission, admit
    from kscale.hpa.api.v1_conversion import from_v1, to_v1
    from kscale.hpa.api.validation import apply_defaults, validate, validate_status
    from kscale.hpa.batch.columns import StateStore
    from kscale.hpa.batch.decisions import Decisions, decide, decide_columns
    from kscale.hpa.batch.reconcile_all import BatchResult, CurrentObjects, reconcile_all
    from kscale.hpa.batch.requests import MetricLists
    from kscale.hpa.controller.monitor import METRICS
    from kscale.hpa.controller.reconcile import ReconcileResult, ReconcileSteps, reconcile
    from kscale.hpa.controller.replica_calculator import CalculatedReplicas, ReplicaCalculator, Tolerances
    from kscale.hpa.controller.scale_target import SelectorStore
    from kscale.hpa.controller.state import ControllerState, HPAState, stable_state
    from kscale.hpa.dump.dump import Dump
    from kscale.hpa.dump.reader import read_dump
    from kscale.hpa.dump.report import HPAReport, hpa_report
    from kscale.hpa.options import FEATURE_GATES, HPAOptions
    from kscale.hpa.replay import Load, Plant, Replay, ReplayReport, replay, replay_report

__all__ = [
    "FEATURE_GATES",
    "METRICS",
    "Admission",
    "BatchResult",
    "CalculatedReplicas",
    "ControllerState",
    "CurrentObjects",
    "Decisions",
    "Dump",
    "HPAOptions",
    "HPAReport",
    "HPAState",
    "Load",
    "MetricLists",
    "Plant",
    "ReconcileResult",
    "ReconcileSteps",
    "Replay",
    "ReplayReport",
    "ReplicaCalculator",
    "SelectorStore",
    "StateStore",
    "Tolerances",
    "admit",
    "apply_defaults",
    "decide",
    "decide_columns",
    "from_v1",
    "hpa_report",
    "read_dump",
    "reconcile",
    "reconcile_all",
    "replay",
    "replay_report",
    "stable_state",
    "to_v1",
    "validate",
    "validate_status",
]


import_on_use(
    __name__,
    {
        "api.admission": ("Admission", "admit"),
        "api.v1_conversion": ("from_v1", "to_v1"),
        "api.validation": ("apply_defaults", "validate", "validate_status"),
        "batch.columns": ("StateStore",),
        "batch.decisions": ("Decisions", "decide", "decide_columns"),
        "batch.reconcile_all": ("BatchResult", "CurrentObjects", "reconcile_all"),
        "batch.requests": ("MetricLists",),
        "controller.monitor": ("METRICS",),
        "controller.reconcile": ("ReconcileResult", "ReconcileSteps", "reconcile"),
        "controller.replica_calculator": ("CalculatedReplicas", "ReplicaCalculator", "Tolerances"),
        "controller.scale_target": ("SelectorStore",),
        "controller.state": ("ControllerState", "HPAState", "stable_state"),
        "dump.dump": ("Dump",),
        "dump.reader": ("read_dump",),
        "dump.report": ("HPAReport", "hpa_report"),
        "options": ("FEATURE_GATES", "HPAOptions"),
        "replay": ("Load", "Plant", "Replay", "ReplayReport", "replay", "replay_report"),
    },
)
