"""What if: scenarios are ordered edits of a base, and what each changes of a decision."""

from __future__ import annotations

from kscale.capacity.whatif.conditions import Condition, parse_condition
from kscale.capacity.whatif.grammar import Edit, Question, Scenario, read_scenarios, scenarios_from
from kscale.capacity.whatif.records import ScenarioRow, WhatIfReport
from kscale.capacity.whatif.running import Base, whatif

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
