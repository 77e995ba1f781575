"""``kscale run ... --world simulated``: the same program, with the same flags, in a simulated cluster."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kscale.cli.commands.simulate import simulation_view
from kscale.cli.go_flags import flags_given_of, idle_flags
from kscale.cli.options import OptionGroup
from kscale.cli.output import Answer, Show
from kscale.errors import InputError, Problem

__all__ = ["WorldFlags", "ran_simulated"]

_WORLDS: Final = ("live", "simulated")
_PANEL: Final = "Process"


@dataclass
class WorldFlags(OptionGroup):
    """Where the program runs."""

    world: Annotated[
        str,
        typer.Option(
            "--world",
            metavar="live|simulated",
            help="Run on a cluster, or on a simulated one in virtual time, which prints what happened at the end.",
            rich_help_panel=_PANEL,
        ),
    ] = "live"
    scenario: Annotated[
        str,
        typer.Option(
            "--scenario",
            metavar="FILE",
            help="Scenario of the simulated cluster (see kscale simulate); empty: the example that comes with kscale.",
            rich_help_panel=_PANEL,
        ),
    ] = ""


def ran_simulated(
    flags: WorldFlags,
    controller: str,
    options: Any,
    *,
    idle: Sequence[OptionGroup],
    heeded: Collection[str] = (),
    **more: Any,
) -> bool:
    """Runs a controller with these options in a simulated world and prints what came of it, if flags say so; whether
    they do. The other controllers of the scenario run as it says.

    ``idle``: groups of flags that mean nothing there, and are refused, but for those ``heeded``; ``more``: what else
    :func:`kscale.simulation.build` is told. Raises :class:`~kscale.InputError`.
    """
    if flags.world not in _WORLDS:
        raise InputError(Problem(f"{flags.world!r} is neither {' nor '.join(_WORLDS)}", field="--world"))
    if flags.world == "live":
        if flags.scenario:
            raise InputError(Problem("is of use with --world simulated only", field="--scenario"))
        return False
    meant = [flag for group in idle for flag in flags_given_of(group) if flag not in heeded]
    meant += idle_flags()
    if meant:
        raise InputError([Problem("has no effect with --world simulated", field=flag) for flag in meant])
    from kscale.simulation import BUNDLED, BUNDLED_VPA, build, read_scenario, simulate

    bundled = BUNDLED_VPA if controller.startswith("vpa") else BUNDLED
    path = Path(flags.scenario) if flags.scenario else bundled
    setup = build(read_scenario(path), source=str(path), folder=path.parent, options={controller: options}, **more)
    report = simulate(setup).report
    Show().emit(Answer(report, lambda: simulation_view(report)))
    return True
