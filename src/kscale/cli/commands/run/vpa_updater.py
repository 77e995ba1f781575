"""``kscale run vpa-updater``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final

import typer

from kscale.cli.go_flags import GoCommand
from kscale.cli.options import OptionGroup
from kscale.cli.process import print_record, run_program
from kscale.cli.process_flags import LeaseFlags, ProcessFlags
from kscale.cli.simulated import WorldFlags, ran_simulated
from kscale.cli.struct_flags import flags_of, struct_of
from kscale.cli.vpa_flags import COMMON, OFF, PANEL, REFUSED, Address, ApiFlags, LeaderElect, LeaseName
from kscale.vpa.options import LEGACY, UpdaterOptions

__all__ = ["COMMAND", "command"]

_HELPS: Final = {
    **COMMON,
    "profile": "Whose updater: current, or legacy for that of 2020, which has fewer flags.",
    "updater_interval": "Between two loops, and how long each may take.",
    "use_admission_controller_status": "Do nothing unless the admission controller says that it lives.",
    "admission_controller_status_lease_name": "The lease by which it says so.",
    "admission_controller_status_lease_namespace": "Where it is; empty: NAMESPACE of the environment, or kube-system.",
    "admission_controller_status_lease_timeout": "How old it may be.",
    "min_replicas": "Fewer replicas than these are left alone, unless a VPA says otherwise.",
    "eviction_tolerance": "The part of the replicas that may be away at once.",
    "eviction_rate_limit": "Pods a second; 0 or less: any number.",
    "eviction_rate_burst": "So many at once.",
    "in_place_skip_disruption_budget": "Resizes that restart nothing need no budget.",
    "pod_update_threshold": "The least change that is worth an update, as a part of the requests.",
    "in_recommendation_bounds_eviction_lifetime_threshold": "Younger pods stay unless they are outside of the bounds.",
    "evict_after_oom_threshold": "A container that was killed for memory so soon after its start is due.",
}
UpdaterFlags: Any = flags_of("UpdaterFlags", UpdaterOptions, _HELPS, panel=PANEL)


class COMMAND(GoCommand):
    """Its flags are upstream's."""

    refused = REFUSED
    off = OFF


@dataclass
class Process(ProcessFlags):
    """With the updater's port."""

    address: Address = ":8943"


@dataclass
class Lease(LeaseFlags):
    """With the updater's lease."""

    leader_elect: LeaderElect = False
    leader_elect_resource_name: LeaseName = "vpa-updater"


@dataclass
class PlanFlags(OptionGroup):
    """What is told before a loop acts."""

    plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Before each loop: which pods it would update, and what that does to nodes, as a VPARoundPlan (one "
            "line of JSON on stdout) and an event. With --dry-run it stays at that.",
            rich_help_panel=PANEL,
        ),
    ] = False


def command(
    *, process: Process, api: ApiFlags, lease: Lease, flags: UpdaterFlags, planning: PlanFlags, world: WorldFlags
) -> None:
    """Resize and evict pods that are too far from what is recommended, as upstream's vpa-updater does.

    What is evicted comes back with other requests only where the admission controller lives. Runs instead of upstream's
    updater, never beside it.
    """
    if not flags.admission_controller_status_lease_namespace and flags.profile != LEGACY:
        flags.admission_controller_status_lease_namespace = os.environ.get("NAMESPACE", "")
    options = struct_of(flags, UpdaterOptions)
    if ran_simulated(world, "vpa_updater", options, idle=[process, api, lease, planning]):
        return
    from kscale.drivers.vpa_updater import updater_program

    run_program(
        "vpa-updater",
        process,
        partial(updater_program, options=options, plan=print_record if planning.plan else None),
        election=lease.election(),
        qps=api.kube_api_qps,
        burst=api.kube_api_burst,
    )
