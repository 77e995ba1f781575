"""``kscale run``: programs on a cluster, or a program's controller in a simulated one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final

from kscale.cli.go_flags import flags_given_of, idle_flags
from kscale.cli.options import OptionGroup
from kscale.cli.output import Answer, Show
from kscale.cli.process_flags import WorldFlags
from kscale.errors import InputError, Problem

__all__ = ["run_if_simulated"]

_WORLDS: Final = ("live", "simulated")


def run_if_simulated(
    flags: WorldFlags,
    controller: str,
    options: Any,
    *,
    idle: Sequence[OptionGroup],
    allowed: Collection[str] = (),
    **more: Any,
) -> bool:
    """Run a controller in a simulated cluster and print the result, if the flags request it.

    Parameters
    ----------
    flags : WorldFlags
        Say whether the cluster is simulated, and name the scenario.
    controller : str
        Field of the controller in the scenario.
    options : struct
        Options of the controller. Other controllers of the scenario run as the scenario says.
    idle : sequence of OptionGroup
        Flags that have no effect in a simulation and are refused, except those in ``allowed``.
    **more
        Further arguments of :func:`kscale.simulation.build`.

    Returns
    -------
    bool
        Whether the flags requested a simulation. If not, nothing was done.

    Raises
    ------
    InputError
        If ``--world`` is unknown, a flag has no effect, or the scenario has errors.
    """
    if flags.world not in _WORLDS:
        raise InputError(Problem(f"{flags.world!r} is neither {' nor '.join(_WORLDS)}", field="--world"))
    if flags.world == "live":
        if flags.scenario:
            raise InputError(Problem("has an effect only with --world simulated", field="--scenario"))
        return False
    useless = [flag for group in idle for flag in flags_given_of(group) if flag not in allowed]
    useless += idle_flags()
    if useless:
        raise InputError([Problem("has no effect with --world simulated", field=flag) for flag in useless])
    from kscale.simulation import BUNDLED, BUNDLED_VPA, build, read_scenario, simulate

    bundled = BUNDLED_VPA if controller.startswith("vpa") else BUNDLED
    path = Path(flags.scenario) if flags.scenario else bundled
    setup = build(read_scenario(path), source=str(path), folder=path.parent, options={controller: options}, **more)
    report = simulate(setup).report
    from kscale.cli.commands.simulate import simulation_view

    Show().emit(Answer(report, lambda: simulation_view(report)))
    return True
