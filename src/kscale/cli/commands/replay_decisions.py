"""``kscale replay decisions``: what is decided in a scenario now, beside what was decided when the log was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kscale.cli.commands.simulate import HorizonOption, SeedOption, setup_of
from kscale.cli.live_inputs import BeginningCluster
from kscale.cli.output import Answer, Column, Show, Table, View
from kscale.errors import InputError, Problem

if TYPE_CHECKING:
    from kscale.simulation.decisions import Decision
    from kscale.simulation.replaying import DecisionReplay

__all__ = ["command"]

_DIFFERS = "differs"
_LONGEST = 90  # characters of what a decision was about


def command(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="The scenario of the run, YAML or JSON.")],
    decisions: Annotated[
        Path,
        typer.Argument(
            metavar="DECISIONS", help="File of its decisions, decisions.jsonl, as `kscale simulate --to` writes it."
        ),
    ],
    *,
    source: BeginningCluster,
    horizon: HorizonOption = "",
    seed: SeedOption = None,
    fail_on: Annotated[
        str, typer.Option("--fail-on", metavar=_DIFFERS, help="Exit with status 1 if a decision differs.")
    ] = "",
    show: Show,
) -> Answer:
    """Would autoscalers still decide what they did? Runs a scenario again, and tells the first decision that differs.

    What is to be compared is up to you: a later kscale, other flags in the scenario, slower machines. Options that the
    run had (-f, --horizon, --seed) are needed again.
    """
    from kscale.simulation.replaying import read_decisions, replay_decisions

    if fail_on not in ("", _DIFFERS):
        raise InputError(Problem(f"{fail_on!r} is not {_DIFFERS}", field="--fail-on"))
    source.check()
    recorded = read_decisions(decisions)
    setup = setup_of(scenario, source, horizon, seed, show)
    with show.terminal.step("replaying") as tell:
        found = replay_decisions(recorded, setup, progress=lambda done, of: tell(f"replaying: {done * 100 // of} %"))
    return Answer(found, lambda: _view(found), exit_code=int(bool(fail_on) and found.differs))


def _view(found: DecisionReplay) -> View:
    name = f"{found.name}: " if found.name else ""
    rows = [
        [
            each.name,
            each.recorded,
            each.replayed,
            each.same,
            _text_of(each.recorded_first, each.replayed_first),
            _text_of(each.replayed_first, each.recorded_first),
        ]
        for each in found.autoscalers
    ]
    whole = "some differ" if found.differs else "all are the same"
    return View(
        headline=f"{name}{found.recorded:,} decisions recorded, {found.replayed:,} made now: {whole}.",
        tables=[
            Table(
                [
                    Column("AUTOSCALER"),
                    Column("RECORDED", "right"),
                    Column("NOW", "right"),
                    Column("SAME", "right"),
                    Column("FIRST THAT DIFFERS"),
                    Column("NOW"),
                ],
                rows,
            )
        ],
        names=[each.name for each in found.autoscalers if each.recorded_first or each.replayed_first],
    )


def _text_of(decision: Decision | None, other: Decision | None) -> str | None:
    """Return ``2026-05-04T00:05:30Z IncreaseSize group=general delta=2``.

    A long decision names the values that ``other`` does not have, whole, and leaves out values that both have.
    """
    if decision is None:
        return None
    ending = f", refused: {decision.error}" if decision.error else ""
    about = " ".join(f"{name}={value}" for name, value in decision.arguments.items() if value is not False)
    text = f"{decision.at} {decision.action} {about}{ending}"
    if len(text) <= _LONGEST or other is None or other.action != decision.action:
        return text
    values, others = dict(_values(decision.arguments)), dict(_values(other.arguments))
    parts, room = [], _LONGEST
    for path, value in values.items():
        part = f"{path}={value}"
        room -= len(part)
        if room >= 0 or path not in others or others[path] != value:
            parts.append(part)
        elif parts[-1:] != ["..."]:
            parts.append("...")
    missing = [path for path in others if path not in values]
    without = f" (without {', '.join(missing)})" if missing else ""
    return f"{decision.at} {decision.action} {' '.join(parts)}{without}{ending}"


def _values(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value in nested data with the path to it (``patch.spec.taints[0].key``)."""
    if isinstance(data, dict) and data:
        for name, value in data.items():
            if path or value is not False:
                yield from _values(value, f"{path}.{name}" if path else name)
    elif isinstance(data, list) and data:
        for number, value in enumerate(data):
            yield from _values(value, f"{path}[{number}]")
    else:
        yield path, data
