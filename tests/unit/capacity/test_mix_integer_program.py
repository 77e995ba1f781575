"""The integer program over the fillings of a dive: it closes gaps that the dive leaves."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kscale
from kscale.capacity.catalogue import read_catalogue
from kscale.capacity.mix import exact, heuristics, solve
from kscale.scheduling.bounds.master import Master
from unit.capacity.test_mix import offer, pods

EXAMPLES = Path(__file__).parents[3] / "examples"


pytest.importorskip("highspy", reason="the extra [solver] is not installed")


@pytest.fixture(scope="module")
def offers() -> list[kscale.Offer]:
    return [
        kscale.Offer(
            name=f"{kind.name}-{zone}",
            type=kind.name,
            zone=zone,
            template=kind.template(zone=zone, region="us-east-1"),
            price=kind.price() or 0.0,
        )
        for kind in read_catalogue(EXAMPLES / "data" / "aws.csv").values()
        if kind.arch == "amd64"
        for zone in ("us-east-1a", "us-east-1b", "us-east-1c")
    ]


def test_a_small_mix_is_cheaper_than_a_dive_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the searches that find as good a plan by themselves: all contents of all nodes, and first fit."""
    monkeypatch.setattr(exact.SmallMix, "plan", lambda small, effort, max_types=None: None)
    monkeypatch.setattr(heuristics, "_list_promising_kinds", lambda packing: [])
    sizes = ((2, 8), (4, 16), (8, 32), (16, 32), (4, 32))
    offers = [offer(f"t{cpu}-{gib}", cpu, gib, round(0.04 * cpu + 0.005 * gib, 4)) for cpu, gib in sizes]
    draw = random.Random(19)
    objects = []
    for s in range(8):
        count, cpu = draw.randint(1, 6), draw.choice([700, 1300, 1900, 2600, 3100])
        memory = draw.choice([900, 2600, 5000, 7000, 11000])
        objects += pods(count, f"{cpu}m", f"{memory}Mi", prefix=f"s{s}-")
    cluster = kscale.load(objects)
    complete_mix = kscale.mix(cluster, offers)
    monkeypatch.setattr(solve, "cheaper", lambda kinds, master, packed, effort: packed)
    dived = kscale.mix(cluster, offers)
    assert complete_mix.cost < dived.cost * 0.97
    assert (complete_mix.pods, complete_mix.unschedulable_count, complete_mix.bound.cost) == (
        dived.pods,
        dived.unschedulable_count,
        dived.bound.cost,
    )
    assert complete_mix.bound.cost is not None
    assert complete_mix.bound.cost <= complete_mix.cost


def test_time_that_is_up_ends_the_program(offers: list[kscale.Offer], monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is up once the first program runs."""
    result = []
    polls = 0

    def integral(self: Master, most_nodes: int, stop: Callable[[], bool]) -> tuple[Any, int]:
        nonlocal up
        up = True
        result.append(of_master(self, most_nodes, stop)[0])
        return result[-1], 0

    def stop() -> bool:
        nonlocal polls
        polls += up
        return up

    of_master, up = Master.integral, False
    monkeypatch.setattr(Master, "integral", integral)
    plan = kscale.mix(kscale.load(EXAMPLES / "cluster.json.gz"), offers, stop=(None, stop))
    assert (result, polls) == ([None], 1), "it ends when it hears so, and the later ones do not begin"
    assert plan.pods > plan.unschedulable_count
    assert plan.cost < 20
