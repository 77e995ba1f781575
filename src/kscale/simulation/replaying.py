"""Replay a decision log: what autoscalers decide now, beside what they decided then.

kscale's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kscale.errors import InputError, Problem
from kscale.files import read_file
from kscale.records import Record
from kscale.simulation.building import Setup
from kscale.simulation.records import Decision
from kscale.simulation.running import simulate

__all__ = ["AutoscalerReplay", "DecisionReplay", "read_decisions", "replay_decisions"]


class AutoscalerReplay(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """The decisions of one autoscaler: how many were ``recorded``, how many are ``replayed``, and how many of those are
    the ``same`` before the first difference: ``recorded_first`` stood in the log where ``replayed_first`` was decided
    now. Both are absent where nothing differs, one of them where the other side had nothing left."""

    name: str
    recorded: int
    replayed: int
    same: int
    recorded_first: Decision | None = None
    replayed_first: Decision | None = None


class DecisionReplay(Record, frozen=True):
    """What a log of decisions and another run of its scenario have in common.

    ``name``: of the scenario; ``recorded``, ``replayed``, ``same``: the sums of those of ``autoscalers``. ``differs``:
    whether anything is another: what was asked for, when (to the nanosecond), or what came of it.
    """

    KIND = "DecisionReplay"

    name: str
    recorded: int
    replayed: int
    same: int
    differs: bool
    autoscalers: list[AutoscalerReplay]


def read_decisions(path: str | os.PathLike[str]) -> list[Decision]:
    """A log of decisions (``decisions.jsonl``). Raises InputError, with the line."""
    source = os.fspath(path)
    try:
        lines = read_file(path).splitlines()
    except OSError as error:
        raise InputError(Problem(error.strerror or str(error), source=source)) from None
    found: list[Decision] = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(msgspec.json.decode(line, type=Decision))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(Problem(f"no decision: {error}", source=source, object=f"line {number}")) from None
    return found


def replay_decisions(recorded: Sequence[Decision], setup: Setup, **more: Any) -> DecisionReplay:
    """Runs a scenario (``more``: what else :func:`~kscale.simulation.simulate` is told), and holds what is decided
    against what was ``recorded``. Raises InputError."""
    entries = simulate(setup, **more).decisions.entries
    replayed = [msgspec.convert(msgspec.json.decode(msgspec.json.encode(each)), Decision) for each in entries]
    before, now = _by_autoscaler(recorded), _by_autoscaler(replayed)
    found = [_replay(name, before.get(name, ()), now.get(name, ())) for name in dict.fromkeys((*before, *now))]
    return DecisionReplay(
        name=setup.scenario.name,
        recorded=len(recorded),
        replayed=len(replayed),
        same=sum(each.same for each in found),
        differs=any(each.recorded_first or each.replayed_first for each in found),
        autoscalers=found,
    )


def _by_autoscaler(decisions: Iterable[Decision]) -> Mapping[str, Sequence[Decision]]:
    found: dict[str, list[Decision]] = {}
    for each in decisions:
        found.setdefault(each.by, []).append(each)
    return found


def _replay(name: str, before: Sequence[Decision], now: Sequence[Decision]) -> AutoscalerReplay:
    shorter = min(len(before), len(now))
    same = next((i for i in range(shorter) if before[i] != now[i]), shorter)
    return AutoscalerReplay(
        name=name,
        recorded=len(before),
        replayed=len(now),
        same=same,
        recorded_first=before[same] if same < len(before) else None,
        replayed_first=now[same] if same < len(now) else None,
    )
