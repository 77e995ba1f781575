"""Runs one scenario with each provisioner: the Cluster Autoscaler, and Karpenter. Not in upstream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from kscale.objects.argument_types import typed
from kscale.records import Record
from kscale.simulation.building import build
from kscale.simulation.records import GroupUse, SimulationReport
from kscale.simulation.running import Simulation, simulate
from kscale.simulation.scenario import CLUSTER_AUTOSCALER, KARPENTER, Scenario

__all__ = ["ProvisionerComparison", "ProvisionerRun", "compare_provisioners"]


class ProvisionerRun(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """The run with one ``provisioner``.

    ``node_hours``: hours of all machines. ``cost`` is in the currency of the prices, absent if a group that had
    machines has no price. ``most_nodes``: the maximum number of nodes at once. ``pending_p50``, ``pending_p95`` and
    ``pending_max``: how many seconds pods waited for a node; ``pending_at_end``: pods that still wait. ``evictions``:
    pods that were evicted. ``over_provisioned``: core-hours of nodes that no pod requested. ``added``, ``removed``:
    machines that were requested, and that the provisioner deleted. ``groups``: groups with machines. ``warnings``: what
    was not simulated, and why.
    """

    provisioner: str
    node_hours: float
    cost: float | None
    most_nodes: int
    pending_p50: float
    pending_p95: float
    pending_max: float
    pending_at_end: int
    evictions: int
    over_provisioned: float
    added: int
    removed: int
    groups: list[GroupUse]
    warnings: list[str] = []


class ProvisionerComparison(Record, frozen=True):
    """Results of one scenario (``name``, from ``begin`` on, for ``seconds``) with each provisioner.

    ``runs``: the Cluster Autoscaler's run, then Karpenter's; ``interrupted``: whether a run ended early.
    """

    KIND = "ProvisionerComparison"
    ROWS = "runs"

    name: str
    begin: str
    seconds: float
    interrupted: bool
    runs: list[ProvisionerRun]

    def summary(self) -> str:
        """Return the cost of each run."""
        return ", ".join(
            f"{run.provisioner}: {run.node_hours:,.1f} node-hours" + ("" if run.cost is None else f", ${run.cost:,.2f}")
            for run in self.runs
        )


@typed
def compare_provisioners(
    scenario: Scenario,
    *,
    source: str = "",
    folder: Path | str = ".",
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[ProvisionerComparison, list[Simulation]]:
    """Run a scenario once with the Cluster Autoscaler and once with Karpenter.

    Parameters
    ----------
    scenario : Scenario
        A scenario with ``controllers.karpenter``. Without ``groups``, the Cluster Autoscaler has one group for each
        offering of the NodePools.
    source, folder : str, optional
        The name of the file in errors, and the folder at which its relative names start.
    stop : callable, optional
        Polled; the runs end early if it returns True.
    progress : callable, optional
        Called with the name of each provisioner before its run.

    Returns
    -------
    ProvisionerComparison
        Totals of both runs.
    list of Simulation
        The runs, in the same order.

    Raises
    ------
    InputError
        If the scenario has no NodePools or cannot be built.
    """
    runs = []
    for name in (CLUSTER_AUTOSCALER, KARPENTER):
        progress(name)
        setup = build(replace(scenario, provisioner=name), source=source, folder=folder)
        runs.append(simulate(setup, stop=stop))
    reports = [run.report for run in runs]
    comparison = ProvisionerComparison(
        name=scenario.name,
        begin=reports[0].begin,
        seconds=min(report.seconds for report in reports),
        interrupted=any(report.interrupted for report in reports),
        runs=_summarize((CLUSTER_AUTOSCALER, KARPENTER), reports),
    )
    return comparison, runs


def _summarize(names: Sequence[str], reports: Sequence[SimulationReport]) -> list[ProvisionerRun]:
    """Build the record of each run."""
    return [
        ProvisionerRun(
            provisioner=name,
            node_hours=report.node_hours,
            cost=report.cost,
            most_nodes=report.most_nodes,
            pending_p50=report.pending_pods.p50,
            pending_p95=report.pending_pods.p95,
            pending_max=report.pending_pods.max,
            pending_at_end=report.pending_pods.at_end,
            evictions=report.evictions,
            over_provisioned=report.cores.over_provisioned,
            added=sum(group.added for group in report.groups),
            removed=sum(group.removed for group in report.groups),
            groups=report.groups,
            warnings=report.warnings,
        )
        for name, report in zip(names, reports, strict=True)
    ]
