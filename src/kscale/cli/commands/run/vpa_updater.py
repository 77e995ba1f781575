"""``kscale run vpa-updater``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial

from kscale.cli.commands.run import run_if_simulated
from kscale.cli.go_flags import GoCommand, StructFlags, struct_flags, struct_of
from kscale.cli.options import OptionGroup, Switch
from kscale.cli.process import print_record, run_program
from kscale.cli.process_flags import IDLE, ApiFlags, LeaseFlags, ProcessFlags, WorldFlags
from kscale.vpa.options import LEGACY, UpdaterOptions

__all__ = ["COMMAND", "command"]


@struct_flags(UpdaterOptions)
class UpdaterFlags(StructFlags):
    """Flags of the updater's decisions.

    Attributes
    ----------
    profile
        Updater to run as: current, 1.8.0, or legacy for that of 2020, which has fewer flags (listed in
        docs/programs-of-2018-2020.md; this help shows today's).
    admission_controller_status_lease_namespace
        Namespace of the admission controller's status lease; empty: the environment variable NAMESPACE, or kube-system.
    """

    title = "Decisions"
    common = ("updater_interval", "min_replicas")


class COMMAND(GoCommand):
    """The typer command, with upstream's flags."""

    idle = IDLE


@dataclass(eq=False, repr=False, init=False)
class Process(ProcessFlags):
    """Process flags with the updater's port."""

    address: str = ":8943"


@dataclass(eq=False, repr=False, init=False)
class Lease(LeaseFlags):
    """Leader election flags with the updater's lease."""

    leader_elect: Switch = False
    leader_elect_resource_name: str = "vpa-updater"


@dataclass(eq=False, repr=False, init=False)
class PlanFlags(OptionGroup):
    """Flags for what is reported before a loop acts.

    Attributes
    ----------
    plan
        Before each loop: print a VPARoundPlan (one line of JSON on stdout) with the pods that the loop would update and
        the effect on nodes, and emit an event. With --dry-run nothing else is done.
    """

    title = "Process"
    common = ("plan",)

    plan: bool = False


def command(
    *, process: Process, api: ApiFlags, lease: Lease, flags: UpdaterFlags, planning: PlanFlags, world: WorldFlags
) -> None:
    """Resize and evict pods whose requests differ from the recommendation, as upstream's vpa-updater does.

    Evicted pods get other requests only if the admission controller runs. Runs instead of upstream's updater, never
    beside it.

    Raises
    ------
    InputError
        If flags cannot be used.
    """
    own = "" if flags.profile == LEGACY else os.environ.get("NAMESPACE", "")
    namespace = flags.admission_controller_status_lease_namespace or own
    options = struct_of(flags, UpdaterOptions, admission_controller_status_lease_namespace=namespace)
    if run_if_simulated(world, "vpa_updater", options, idle=[process, api, lease, planning]):
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
