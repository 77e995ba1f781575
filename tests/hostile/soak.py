"""Random faults for a long time: what a program holds does not grow, and every fault is counted."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from hostile.campaign import Campaign
from hostile.http_server import Api, HostileServer
from hostile.programs import PROGRAMS, Cluster
from hostile.scenarios import SCENARIOS, Scenario
from kscale.world.clock import SystemClock
from kscale.world.kubernetes.aiohttp_transport import _IDLE_SECONDS
from unit.drivers.vpa_world import SERVED

__all__ = ["soak"]

_GROWTH: Final = 1.05
_NOISE: Final = 8 << 20
"""Bytes that the memory of a process varies by from one moment to the next."""
_MOMENTS: Final = 8
_SETTLING: Final = _IDLE_SECONDS + 5
"""Seconds after which a program has closed the connections that only a fault needed."""
_FAILURES: Final = ("kscale_request_failures_total", "kscale_watch_failures_total", "kscale_unreadable_objects_total")


class Mark(NamedTuple):
    """What a program holds at a moment: its memory, its threads and its open files."""

    memory: int
    threads: Counter[str]
    files: Counter[str]


async def soak(directory: Path, *, minutes: float, seed: int, scale: float) -> int:
    """Let random faults happen while the programs work; returns the exit status.

    After the warm-up, a third of the time, memory may grow by 5 %, and threads and open files not at all.
    """
    seed = seed or time.time_ns() % 1_000_000
    print(f"seed {seed}", flush=True)
    rng = random.Random(seed)
    campaign = Campaign(directory, scale)
    api = Api(SystemClock(), resources=SERVED)
    campaign.cluster = Cluster(api)
    faults = [each for each in SCENARIOS if not each.start]
    async with HostileServer(api) as campaign.server:
        try:
            await campaign.start(PROGRAMS)
            failures = await _run(campaign, faults, rng, minutes * 60)
        finally:
            for program in campaign.programs.values():
                program.end()
    print(*failures, f"{len(failures)} failures", sep="\n")
    return 1 if failures else 0


async def _run(campaign: Campaign, faults: list[Scenario], rng: random.Random, seconds: float) -> list[str]:
    begin = time.monotonic()
    warm: dict[str, Mark] = {}
    failures: list[str] = []
    rounds = 0
    minute = 0
    while (passed := time.monotonic() - begin) < seconds:
        if passed >= minute * 60:
            memory = ", ".join(f"{name} {each.measured() / 2**20:.1f}" for name, each in campaign.programs.items())
            print(f"minute {minute}, {rounds} rounds, MiB: {memory}", flush=True)
            minute = int(passed // 60) + 1
        if not warm and passed >= seconds / 3:
            warm = await _marks(campaign, max)
            print(f"warm after {rounds} rounds", flush=True)
        failures += await _round(campaign, rng.choice(faults))
        rounds += 1
    print(f"{rounds} rounds in {seconds / 60:.0f} minutes", flush=True)
    for name, mark in (await _marks(campaign, min)).items():
        before = warm[name]
        print(f"{name:20}  {before} -> {mark}", flush=True)
        if mark.memory > before.memory * _GROWTH + _NOISE:
            failures.append(f"{name}: memory grew from {before.memory >> 20} to {mark.memory >> 20} MiB")
        for kind, old, new in (
            ("threads", before.threads, mark.threads),
            ("open files", before.files, mark.files),
        ):
            if new.total() > old.total():
                failures.append(f"{name}: {new.total() - old.total()} {kind} more: {dict(new - old)}")
    return failures


async def _round(campaign: Campaign, scenario: Scenario) -> list[str]:
    """One fault: what came of it that should not have."""
    before = {name: await program.counters() for name, program in campaign.programs.items()}
    await campaign.scenario(scenario)
    failures = [
        f"{scenario.name}: {name}: {outcome}"
        for name, outcome in campaign.outcomes[scenario.name].items()
        if outcome != "ok"
    ]
    if scenario.counts:
        for name, program in campaign.programs.items():
            if campaign.met[program.agent] < 2 or campaign.outcomes[scenario.name][name] != "ok":
                continue
            after = await program.counters()
            if not any(after.get(metric, 0) > before[name].get(metric, 0) for metric in _FAILURES):
                failures.append(f"{scenario.name}: {name}: it is not counted")
    return failures


async def _marks(campaign: Campaign, choose: Callable[..., Counter[str]]) -> dict[str, Mark]:
    """What each program holds while it works on a good server: of memory the least of some moments, of threads and open
    files what ``choose`` says. A connection that is being opened anew is missing at some moments, and is no leak later.
    The moments begin when the connections that are idle since the last fault are closed.
    """
    marks: dict[str, Mark] = {}
    settled = time.monotonic() + _SETTLING
    while time.monotonic() < settled:
        await campaign.check({})
        await asyncio.sleep(1)
    for _ in range(_MOMENTS):
        await campaign.check({})
        for name, program in campaign.programs.items():
            threads, files = program.handles()
            now = Mark(program.measured(), threads, files)
            before = marks.get(name, now)
            pairs = ((now.threads, before.threads), (now.files, before.files))
            marks[name] = Mark(min(now.memory, before.memory), *(choose(pair, key=Counter.total) for pair in pairs))
    return marks
