"""Horizontal Pod Autoscaler decisions.

One reconcile can be followed in this order: :mod:`~kscale.hpa.reconcile` (the step machine),
:mod:`~kscale.hpa.selector_store`, :mod:`~kscale.hpa.metric_sources`, :mod:`~kscale.hpa.metrics_client`,
:mod:`~kscale.hpa.replica_calculator`, :mod:`~kscale.hpa.pod_groups`, :mod:`~kscale.hpa.behavior`,
:mod:`~kscale.hpa.conditions`, :mod:`~kscale.hpa.state`. :mod:`~kscale.hpa.decide` is the same over columns.
"""

from __future__ import annotations

from kscale.hpa.admission import Admission, admit
from kscale.hpa.batch import CurrentObjects, Reconciled, reconcile_all
from kscale.hpa.calculation import Replicas, Tolerances
from kscale.hpa.decide import decide
from kscale.hpa.decisions import Decisions, decide_columns
from kscale.hpa.defaults import apply_defaults
from kscale.hpa.dump import Dump
from kscale.hpa.dump_reading import read_dump
from kscale.hpa.memory import KeptStates
from kscale.hpa.metrics import METRICS
from kscale.hpa.options import FEATURE_GATES, HPAOptions
from kscale.hpa.queries import MetricLists
from kscale.hpa.reconcile import Reconciling, reconcile
from kscale.hpa.records import Reconciliation
from kscale.hpa.replay import Plant, Replay, replay
from kscale.hpa.replay_input import Load
from kscale.hpa.replay_report import ReplayReport, replay_report
from kscale.hpa.replica_calculator import ReplicaCalculator
from kscale.hpa.report import HPAReport, hpa_report
from kscale.hpa.selector_store import SelectorStore
from kscale.hpa.state import ControllerState, HPAState, settled
from kscale.hpa.v1_conversion import from_v1, to_v1
from kscale.hpa.validation import validate, validate_status

__all__ = [
    "FEATURE_GATES",
    "METRICS",
    "Admission",
    "ControllerState",
    "CurrentObjects",
    "Decisions",
    "Dump",
    "HPAOptions",
    "HPAReport",
    "HPAState",
    "KeptStates",
    "Load",
    "MetricLists",
    "Plant",
    "Reconciled",
    "Reconciliation",
    "Reconciling",
    "Replay",
    "ReplayReport",
    "ReplicaCalculator",
    "Replicas",
    "SelectorStore",
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
    "settled",
    "to_v1",
    "validate",
    "validate_status",
]
