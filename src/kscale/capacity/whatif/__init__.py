"""Decide what-if scenarios: ordered edits of a base cluster, each compared with the baseline."""

from __future__ import annotations

from kscale.capacity.whatif.running import Base, whatif
from kscale.capacity.whatif.scenarios import (
    Condition,
    Edit,
    Question,
    Scenario,
    ScenarioRow,
    WhatIfReport,
    parse_condition,
    read_scenarios,
    scenarios_from,
)

__all__ = [
    "Base",
    "Condition",
    "Edit",
    "Question",
    "Scenario",
    "ScenarioRow",
    "WhatIfReport",
    "parse_condition",
    "read_scenarios",
    "scenarios_from",
    "whatif",
]
