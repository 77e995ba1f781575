"""The order in which machines of a simulated world run."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from builders import T0
from kscale.ca.scale_down.actuation import actions as do
from kscale.ca.scale_down.actuation.run import Simulation, run

SECOND = timedelta(seconds=1)


def nobody(action: do.Action, now: datetime) -> do.Outcome:
    raise AssertionError(action)


def sleeper(log: list[Any], name: str, naps: list[int], now: datetime) -> do.Steps[str]:
    p = do.Progress(now)
    log.append((name, (p.now - T0) // SECOND))
    for nap in naps:
        yield from p.wait(nap * SECOND)
        log.append((name, (p.now - T0) // SECOND))
    return name


def test_time_decides_and_then_the_turn() -> None:
    log: list[Any] = []

    def machine(now: datetime) -> do.Steps[list[str]]:
        p = do.Progress(now)
        yield from p.act(do.InBackground(partial(sleeper, log, "back", [2, 2])))
        names = yield from p.together([partial(sleeper, log, name, [n]) for n, name in ((3, "c"), (1, "a"), (2, "b"))])
        log.append(("joined", (p.now - T0) // SECOND))
        return names

    assert run(machine, nobody, now=T0) == ["c", "a", "b"]
    assert log == [
        ("back", 0), ("c", 0), ("a", 0), ("b", 0), ("a", 1), ("back", 2), ("b", 2),
        ("c", 3), ("joined", 3), ("back", 4),
    ]  # fmt: skip


@pytest.mark.parametrize(("at_most", "took"), [(None, 2), (1, 10), (2, 6), (5, 2), (9, 2)])
def test_so_many_at_a_time(at_most: int | None, took: int) -> None:
    log: list[Any] = []

    def machine(now: datetime) -> do.Steps[timedelta]:
        p = do.Progress(now)
        yield from p.together([partial(sleeper, log, str(i), [2]) for i in range(5)], at_most=at_most)
        return p.now - now

    assert run(machine, nobody, now=T0) == took * SECOND
    assert [name for name, when in log if when == 0] == [str(i) for i in range(at_most or 5)][:5]


def test_nobody_together() -> None:
    def machine(now: datetime) -> do.Steps[list[Any]]:
        return (yield from do.Progress(now).together([]))

    assert run(machine, nobody, now=T0) == []


def test_up_to_a_moment() -> None:
    log: list[Any] = []
    simulation = Simulation(nobody, now=T0)
    simulation.start(partial(sleeper, log, "a", [5, 5]))
    simulation.run(T0 + 5 * SECOND)
    assert (log, simulation.now, simulation.idle) == ([("a", 0), ("a", 5)], T0 + 5 * SECOND, False)
    simulation.run(T0 + 7 * SECOND)
    assert simulation.now == T0 + 7 * SECOND
    simulation.run()
    assert (log[-1], simulation.now, simulation.idle) == (("a", 10), T0 + 10 * SECOND, True)


def test_what_cannot_be() -> None:
    def too_few(now: datetime) -> do.Steps[Any]:
        return (yield from do.Progress(now).together([partial(sleeper, [], "a", [])], at_most=0))

    with pytest.raises(ValueError, match="0 machines at a time never end"):
        run(too_few, nobody, now=T0)

    def reader(now: datetime) -> do.Steps[Any]:
        return (yield from do.Progress(now).act(do.GetNode(name="n")))

    with pytest.raises(ValueError, match=r"GetNode ended at .*, before it began"):
        run(reader, lambda action, now: do.Outcome(at=now - SECOND), now=T0)
