"""How the scheduler of a scenario is configured, kscale's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from kscale.capacity.plain_files import read_plain_file
from kscale.errors import InputError
from kscale.scheduling.preemption import Candidates
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.scheduler_config import preemption_candidates, scheduler_profile
from kscale.scheduling.scores.configuration import score_options
from kscale.scheduling.scores.options import ScoreOptions
from kscale.simulation.scenario import WorldEntry
from kscale.simulation.values import Values

__all__ = ["Scheduling", "scheduling_of"]

_FIELD = "world.schedulerConfiguration"
_WHAT = "KubeSchedulerConfiguration"


class Scheduling(NamedTuple):
    """Options of a simulated world by their names."""

    scores: ScoreOptions | None = None
    profile: SchedulerProfile | None = None
    candidates: Candidates = Candidates()


def scheduling_of(world: WorldEntry, values: Values) -> Scheduling:
    """What a scenario says of its scheduler. What is wrong ``values`` keeps."""
    given = world.scheduler_configuration
    if given is None:
        return Scheduling(ScoreOptions() if world.scheduler == "scores" else None)
    if world.scheduler != "scores":
        values.wrong(_FIELD, "is of use with scheduler: scores only")
        return Scheduling()
    try:
        data = given if isinstance(given, Mapping) else read_plain_file(values.folder / given, _WHAT, "one")
        return Scheduling(score_options(data), scheduler_profile(data), preemption_candidates(data))
    except InputError as error:
        values.problems += [
            each if each.source else replace(each, source=values.source, field=_FIELD) for each in error.problems
        ]
        return Scheduling()
