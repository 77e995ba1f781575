"""Replays a decision log: compares what autoscalers decide now with what they decided then.

Not in upstream.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kscale.errors import InputError, Problem
from kscale.files import read_file
from kscale.objects.argument_types import typed
from kscale.records import Record
from kscale.simulation.building import Setup
from kscale.simulation.records import Decision
from kscale.simulation.running import simulate

__all__ = ["AutoscalerReplay", "DecisionReplay", "read_decisions", "replay_decisions"]


class AutoscalerReplay(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """The decisions of one autoscaler: how many were ``recorded``, how many are ``replayed``, and how many of those are
    the
    ``same`` before the first difference.

    At the first difference, the log has ``recorded_first`` and the replay ``replayed_first``. Both are absent if
    nothing
    differs, one of them if that side had no more decisions.
    """

    name: str
    recorded: int
    replayed: int
    same: int
    recorded_first: Decision | None = None
    replayed_first: Decision | None = None


class DecisionReplay(Record, frozen=True):
    """Comparison of a log of decisions with another run of its scenario.

    ``name``: of the scenario; ``recorded``, ``replayed``, ``same``: sums over ``autoscalers``. ``differs``: whether any
    request, its time (to the nanosecond), or its result differs.
    """

    KIND = "DecisionReplay"
    ROWS = "autoscalers"

    name: str
    recorded: int
    replayed: int
    same: int
    differs: bool
    autoscalers: list[AutoscalerReplay]


@typed
def read_decisions(path: str | os.PathLike[str]) -> list[Decision]:
    """Read a log of decisions (``decisions.jsonl``).

    Raises InputError if the file cannot be read, or for a line that is not a decision, with its number.
    """
    source = os.fspath(path)
    try:
        lines = read_file(path).splitlines()
    except OSError as error:
        raise InputError(Problem(error.strerror or str(error), source=source)) from None
    decisions: list[Decision] = []
    for number, line in enumerate(lines, 1):
        try:
            decisions.append(msgspec.json.decode(line, type=Decision))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(Problem(f"no decision: {error}", source=source, object=f"line {number}")) from None
    return decisions


@typed
def replay_decisions(recorded: Sequence[Decision], setup: Setup, **more: Any) -> DecisionReplay:
    """Run a scenario and compare its decisions with a log.

    Parameters
    ----------
    recorded : sequence of Decision
        The log.
    setup : Setup
        The world of the same scenario.
    **more
        Further parameters of :func:`~kscale.simulation.simulate`.

    Returns
    -------
    DecisionReplay
        Numbers of equal decisions and the first difference of each autoscaler.

    Raises
    ------
    InputError
        If the simulation fails.
    """
    entries = simulate(setup, **more).decisions.entries
    replayed = [msgspec.convert(msgspec.json.decode(msgspec.json.encode(item)), Decision) for item in entries]
    old, new = _group_by_autoscaler(recorded), _group_by_autoscaler(replayed)
    replays = [_replay(name, old.get(name, ()), new.get(name, ())) for name in dict.fromkeys((*old, *new))]
    return DecisionReplay(
        name=setup.scenario.name,
        recorded=len(recorded),
        replayed=len(replayed),
        same=sum(item.same for item in replays),
        differs=any(item.recorded_first or item.replayed_first for item in replays),
        autoscalers=replays,
    )


def _group_by_autoscaler(decisions: Iterable[Decision]) -> Mapping[str, Sequence[Decision]]:
    """Return the decisions by autoscaler, in order."""
    result: dict[str, list[Decision]] = {}
    for decision in decisions:
        result.setdefault(decision.by, []).append(decision)
    return result


def _replay(name: str, old: Sequence[Decision], now: Sequence[Decision]) -> AutoscalerReplay:
    """Compare the decisions of one autoscaler up to the first difference."""
    shorter = min(len(old), len(now))
    same = next((i for i in range(shorter) if old[i] != now[i]), shorter)
    return AutoscalerReplay(
        name=name,
        recorded=len(old),
        replayed=len(now),
        same=same,
        recorded_first=old[same] if same < len(old) else None,
        replayed_first=now[same] if same < len(now) else None,
    )
