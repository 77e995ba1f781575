"""``kscale run vpa-updater``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kscale.cli.go_flags import GoCommand
from kscale.cli.options import OptionGroup
from kscale.cli.process import WorldFlags, print_record, ran_simulated, run_program
from kscale.cli.process_flags import (
    COMMON,
    IDLE,
    PANEL,
    Address,
    ApiFlags,
    LeaderElect,
    LeaseFlags,
    LeaseName,
    ProcessFlags,
    flags_of,
    struct_of,
)
from kscale.vpa.options import LEGACY, UpdaterOptions

__all__ = ["COMMAND", "command"]

_HELPS: Final = {
    **COMMON,
    "profile": "Updater to run as: current, 1.8.0, or legacy for that of 2020, which has fewer flags (listed in "
    "docs/programs-of-2018-2020.md; this help shows today's).",
    "updater_interval": "Time between two loops, and time limit of each.",
    "use_admission_controller_status": "Do nothing while the admission controller's status lease is stale.",
    "admission_controller_status_lease_name": "Name of the admission controller's status lease.",
    "admission_controller_status_lease_namespace": (
        "Namespace of the admission controller's status lease; empty: the environment "
        "variable NAMESPACE, or kube-system."
    ),
    "admission_controller_status_lease_timeout": "Age after which the admission controller's status lease is stale.",
    "min_replicas": "Minimum number of replicas of a workload whose pods are updated, unless its VPA names another.",
    "eviction_tolerance": "Fraction of a workload's replicas that may be evicted at once.",
    "eviction_rate_limit": "Maximum number of evictions per second; 0 or less: no limit.",
    "eviction_rate_burst": "Maximum number of evictions at once.",
    "in_place_skip_disruption_budget": "Resize pods in place without a disruption budget if no container restarts.",
    "pod_update_threshold": "Minimum relative change of a pod's requests that is worth an update.",
    "in_recommendation_bounds_eviction_lifetime_threshold": (
        "Minimum age of pods that are updated although their requests are within the bounds."
    ),
    "evict_after_oom_threshold": "Update a pod whose only container was killed for memory within this time after its "
    "start.",
}
UpdaterFlags: Any = flags_of("UpdaterFlags", UpdaterOptions, _HELPS, panel=PANEL)


class COMMAND(GoCommand):
    """The typer command, with upstream's flags."""

    idle = IDLE


@dataclass
class Process(ProcessFlags):
    """Process flags with the updater's port."""

    address: Address = ":8943"


@dataclass
class Lease(LeaseFlags):
    """Leader election flags with the updater's lease."""

    leader_elect: LeaderElect = False
    leader_elect_resource_name: LeaseName = "vpa-updater"


@dataclass
class PlanFlags(OptionGroup):
    """Flags for what is reported before a loop acts.

    Attributes
    ----------
    plan
        Before each loop: which pods it would update, and what that does to nodes, as a VPARoundPlan (one line of
        JSON on stdout) and an event. With --dry-run it stays at that.
    """

    plan: bool = False


def command(
    *, process: Process, api: ApiFlags, lease: Lease, flags: UpdaterFlags, planning: PlanFlags, world: WorldFlags
) -> None:
    """Resize and evict pods that are too far from what is recommended, as upstream's vpa-updater does.

    Evicted pods get other requests only if the admission controller runs. Runs instead of upstream's updater, never
    beside it.
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
