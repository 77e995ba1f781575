"""Simulation: autoscalers in a simulated cluster, in virtual time.

``read_scenario`` reads a scenario file, ``build`` creates its world, ``simulate`` runs it. ``replay_decisions`` runs it
again and compares the decisions with a log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kscale.lazy import import_on_use

if TYPE_CHECKING:
    from kscale.simulation.building import BUNDLED as BUNDLED
    from kscale.simulation.building import BUNDLED_VPA as BUNDLED_VPA
    from kscale.simulation.building import Setup as Setup
    from kscale.simulation.building import build as build
    from kscale.simulation.building import read_scenario as read_scenario
    from kscale.simulation.comparing import ComparedDecision as ComparedDecision
    from kscale.simulation.comparing import ComparedRun as ComparedRun
    from kscale.simulation.comparing import ProfileComparison as ProfileComparison
    from kscale.simulation.comparing import ReleaseRule as ReleaseRule
    from kscale.simulation.comparing import compare_profiles as compare_profiles
    from kscale.simulation.records import Decision as Decision
    from kscale.simulation.records import DecisionLog as DecisionLog
    from kscale.simulation.records import SimulationReport as SimulationReport
    from kscale.simulation.replaying import DecisionReplay as DecisionReplay
    from kscale.simulation.replaying import read_decisions as read_decisions
    from kscale.simulation.replaying import replay_decisions as replay_decisions
    from kscale.simulation.running import Simulation as Simulation
    from kscale.simulation.running import Simulator as Simulator
    from kscale.simulation.running import Timeline as Timeline
    from kscale.simulation.running import simulate as simulate
    from kscale.simulation.scenario import Scenario as Scenario

__all__ = [
    "BUNDLED",
    "BUNDLED_VPA",
    "ComparedDecision",
    "ComparedRun",
    "Decision",
    "DecisionLog",
    "DecisionReplay",
    "ProfileComparison",
    "ReleaseRule",
    "Scenario",
    "Setup",
    "Simulation",
    "SimulationReport",
    "Simulator",
    "Timeline",
    "build",
    "compare_profiles",
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
        "records": ("Decision", "DecisionLog", "SimulationReport"),
        "replaying": ("DecisionReplay", "read_decisions", "replay_decisions"),
        "running": ("Simulation", "Simulator", "Timeline", "simulate"),
        "scenario": ("Scenario",),
    },
)
