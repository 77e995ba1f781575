"""Simulation: autoscalers in a simulated cluster, in virtual time.

``read_scenario`` reads a scenario file, ``build`` creates its world, ``simulate`` runs it. ``replay_decisions`` runs it
again and compares the decisions with a log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kscale.imports import import_on_use

if TYPE_CHECKING:
    from kscale.simulation.building import BUNDLED, BUNDLED_VPA, Setup, build, read_scenario
    from kscale.simulation.compared_runs import ProvisionerComparison, ProvisionerRun, compare_provisioners
    from kscale.simulation.comparing import (
        ComparedDecision,
        ComparedRun,
        ProfileComparison,
        ReleaseRule,
        compare_profiles,
    )
    from kscale.simulation.records import Decision, DecisionLog, SimulationReport
    from kscale.simulation.running import (
        DecisionReplay,
        Simulation,
        Simulator,
        Timeline,
        read_decisions,
        replay_decisions,
        simulate,
    )
    from kscale.simulation.scenario import Scenario

__all__ = [
    "BUNDLED",
    "BUNDLED_VPA",
    "ComparedDecision",
    "ComparedRun",
    "Decision",
    "DecisionLog",
    "DecisionReplay",
    "ProfileComparison",
    "ProvisionerComparison",
    "ProvisionerRun",
    "ReleaseRule",
    "Scenario",
    "Setup",
    "Simulation",
    "SimulationReport",
    "Simulator",
    "Timeline",
    "build",
    "compare_profiles",
    "compare_provisioners",
    "read_decisions",
    "read_scenario",
    "replay_decisions",
    "simulate",
]


import_on_use(
    __name__,
    {
        "building": ("BUNDLED", "BUNDLED_VPA", "Setup", "build", "read_scenario"),
        "comparing": ("ComparedDecision", "ComparedRun", "ProfileComparison", "ReleaseRule", "compare_profiles"),
        "compared_runs": ("ProvisionerComparison", "ProvisionerRun", "compare_provisioners"),
        "records": ("Decision", "DecisionLog", "SimulationReport"),
        "running": (
            "DecisionReplay",
            "Simulation",
            "Simulator",
            "Timeline",
            "read_decisions",
            "replay_decisions",
            "simulate",
        ),
        "scenario": ("Scenario",),
    },
)
