"""Runs a simulation as a question of what-if scenarios."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from kscale.ca.options import AutoscalingOptions
from kscale.capacity.whatif.questions import Simulated
from kscale.effects import Moment, from_text, to_text
from kscale.errors import InputError, Problem
from kscale.objects.nodegroup import NodeGroup
from kscale.simulation.building import build, read_scenario
from kscale.simulation.records import Decision
from kscale.simulation.running import simulate
from kscale.simulation.scenario import ControllerFlags, Scenario
from kscale.snapshot.cluster import Cluster

__all__ = ["Simulator"]

_HOUR = "1h"
_LONGEST = 120  # maximum of characters for a decision's arguments


def _for_an_hour() -> Scenario:
    return Scenario(api_version="kscale.dev/v1alpha1", kind="Simulation", horizon=_HOUR)


@dataclass(frozen=True)
class Simulator:
    """Simulates the cluster of a what-if scenario (``kscale.whatif``'s ``Base.simulate``).

    ``scenario`` sets the duration, the load, the behaviour of machines and pods, and further autoscalers; the cluster,
    its
    groups and the options of the Cluster Autoscaler are those of the what-if scenario. By default, only the Cluster
    Autoscaler changes anything, for an hour. ``source``, ``folder``: those of the scenario.
    """

    scenario: Scenario = field(default_factory=_for_an_hour)
    source: str = ""
    folder: str | os.PathLike[str] = "."

    def __post_init__(self) -> None:
        scenario, autoscaler = self.scenario, self.scenario.controllers.cluster_autoscaler
        taken = [name for name in ("cluster", "objects", "groups") if getattr(scenario, name)]
        problems = [Problem("it is that of the what-if scenario", self.source, field=name) for name in taken]
        if autoscaler is not None and autoscaler.flags:
            field = "controllers.clusterAutoscaler.flags"
            problems.append(Problem("flags are edits of the what-if scenario", self.source, field=field))
        if problems:
            raise InputError(problems)

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Simulator:
        """Create a simulator from a scenario file. Raises InputError if it cannot be read."""
        return cls(read_scenario(path), str(path), Path(path).parent)

    def __call__(
        self, cluster: Cluster, groups: Sequence[NodeGroup], options: AutoscalingOptions, now: Moment
    ) -> Simulated:
        """Run the scenario from ``now`` to its horizon. Raises InputError if it cannot be built."""
        controllers = replace(self.scenario.controllers, cluster_autoscaler=ControllerFlags())
        scenario = replace(self.scenario, begin=to_text(now) or "", controllers=controllers)
        setup = build(
            scenario,
            source=self.source,
            folder=self.folder,
            cluster=cluster,
            groups=groups,
            options={"cluster_autoscaler": options},
        )
        run = simulate(setup)
        pods = setup.world.api.get_all("Pod").values()
        pending = {pod.key for pod in pods if not pod.spec.node_name and pod.status.phase in ("", "Pending")}
        return Simulated(
            hours=run.report.seconds / 3600,
            node_hours={group.group: group.node_hours for group in run.report.groups},
            nodes=len(setup.world.api.get_all("Node")),
            waiting=frozenset(pending),
            pending_seconds=run.report.pending.pod_seconds,
            decisions=[_format_decision(entry, now) for entry in run.decisions.entries],
            change={group.group: group.added - group.removed - group.lost for group in run.report.groups},
        )


def _format_decision(entry: Decision, begin: Moment) -> str:
    """Format a decision: ``330 s: cluster-autoscaler IncreaseSize group=general delta=2``."""
    seconds = (from_text(entry.at) - begin) / 1e9
    about = " ".join(f"{name}={value}" for name, value in entry.arguments.items() if value is not False)
    if len(about) > _LONGEST:
        about = f"{about[:_LONGEST]}..."
    return f"{seconds:.0f} s: {entry.by} {entry.action} {about}" + (f", refused: {entry.error}" if entry.error else "")
