"""Scenarios against all programs at once, and what becomes of each."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path

from hostile.commands import COMMANDS, Command
from hostile.http_server import Api, HostileServer
from hostile.programs import PROGRAMS, Cluster, Process
from hostile.provider import ROOM, HostileProvider, ProviderScenario
from hostile.scenarios import Scenario
from hostile.tls_front import SPOILT, TlsFront
from kscale.world.clock import SystemClock
from unit.drivers.vpa_world import SERVED

__all__ = ["Campaign"]

_WORK: float = 60.0
_START: float = 240.0
"""Seconds for five programs that start at once to do their first work."""
_FAULT: float = 4.0
_COMMANDS: float = 60.0
_ONLY_PROGRAMS = ("watch:", "metrics:", "scale:", "write:")
"""Faults that a command which only lists does not meet."""
_CLOCK_SET = "clock: an hour ahead, and back"
_WITH_PROVIDER = "cluster-autoscaler"
"""The program that asks a cloud behind gRPC."""


class Campaign:
    """Runs scenarios one after the other. ``outcomes``: by scenario and program: ok, ended, stuck or unbounded."""

    def __init__(self, directory: Path, scale: float, *, commands: bool = True) -> None:
        self.directory, self.scale, self._with_commands = directory, scale, commands
        self.outcomes: dict[str, dict[str, str]] = {}
        self.programs: dict[str, Process] = {}
        self.met: Counter[str] = Counter()
        self.url = ""  # of another way to the server
        self.ca: Path | None = None
        self.more_flags: tuple[str, ...] = ()
        self._number = 0
        self.clock = directory / "ahead"

    async def run(self, scenarios: Sequence[Scenario], of_provider: Sequence[ProviderScenario] = ()) -> int:
        """Run scenarios, and then those of a cloud behind gRPC; returns the exit status."""
        api = Api(SystemClock(), resources=SERVED)
        self.cluster = Cluster(api)
        async with HostileServer(api) as self.server:
            try:
                if scenarios:
                    await self.start(PROGRAMS)
                commands = self._commands(scenarios[0]) if scenarios else []
                for scenario, following in zip_longest(scenarios, scenarios[1:]):
                    began = time.monotonic()
                    commands = await self.scenario(scenario, commands, following)
                    self._print_outcome(scenario.name, began)
                if len(scenarios) > 1:
                    await self._set_clock()
                    await self._spoil_tls()
                if of_provider:
                    await self._spoil_provider(of_provider)
            finally:
                for program in self.programs.values():
                    program.end()
        return self._report()

    def _print_outcome(self, name: str, began: float) -> None:
        odd = {program: outcome for program, outcome in self.outcomes[name].items() if outcome != "ok"}
        print(f"{time.monotonic() - began:6.1f} s  {name}  {odd or 'ok'}", flush=True)

    # -- one scenario ------------------------------------------------------------------------------------------------

    def _commands(self, scenario: Scenario | None) -> list[Command]:
        """Start the commands that meet a scenario: they take long to start, and wait for it."""
        if scenario is None or not self._with_commands or scenario.name.startswith(_ONLY_PROGRAMS):
            return []
        self._number += 1
        return [Command(each, self.server, self.directory, self._number) for each in COMMANDS]

    async def scenario(
        self, scenario: Scenario, commands: Sequence[Command] = (), following: Scenario | None = None
    ) -> list[Command]:
        """Run a scenario with its commands; returns those that wait for the following one."""
        fault = scenario.fault()
        outcomes = self.outcomes.setdefault(scenario.name, {})
        if scenario.start:
            for program in self.programs.values():
                program.end()
        await self.server.begin(fault)
        for command in commands:
            self.server.admit(command.agent)
        if scenario.start:
            await self.start(PROGRAMS, healthy=False)
        began = time.monotonic()
        await self._until_hit(commands)
        while time.monotonic() - began < scenario.seconds:  # not stretched, as the timeouts of the programs are not
            self._measure()
            await asyncio.sleep(0.05)
        waiting = self._commands(following)
        if scenario.harmless:
            await self.check(outcomes)
        self.met = Counter(self.server.hits)
        self.server.end()
        if not scenario.harmless:
            await self.check(outcomes, _START if scenario.start else _WORK)
        for command in commands:
            outcomes[command.name] = await command.outcome(self._seconds(_WORK))
        await self._mend(outcomes)
        return waiting

    async def _until_hit(self, commands: Sequence[Command]) -> None:
        """Until programs and commands have met the fault, or are unlikely to: they do not ask for such a thing."""
        begin = time.monotonic()
        agents = {program.agent for program in self.programs.values() if program.alive}
        while (waited := time.monotonic() - begin) < self._seconds(_COMMANDS):
            self._measure()
            met = agents <= {name for name, count in self.server.hits.items() if count >= 2}
            all_hit = all(command.done or self.server.hits[command.agent] for command in commands)
            if (met or waited > self._seconds(_FAULT)) and all_hit:
                break
            await asyncio.sleep(0.05)
        if os.environ.get("KSCALE_HOSTILE_VERBOSE"):
            print(f"        met by {dict(self.server.hits)}", flush=True)

    async def check(self, outcomes: dict[str, str], seconds: float = _WORK, room: int = ROOM) -> None:
        """All programs are given work at once. ``room``: bytes that they may hold beyond what they held at first."""

        async def of(program: Process) -> None:
            done = await self.cluster.work(program, self._seconds(seconds))
            outcomes[program.name] = "ok" if done else "stuck" if program.alive else f"ended ({program.status})"

        measuring = asyncio.create_task(self._measuring())
        await asyncio.gather(*map(of, self.programs.values()))
        measuring.cancel()
        for program in self.programs.values():
            if program.baseline and program.highest > program.baseline + room:
                outcomes[program.name] = f"unbounded ({program.highest >> 20} MiB)"
        if os.environ.get("KSCALE_HOSTILE_VERBOSE"):
            more = {each.name: f"{(each.highest - each.baseline) >> 20} MiB" for each in self.programs.values()}
            print(f"        memory beyond the start: {more}", flush=True)

    async def _measuring(self) -> None:
        while True:
            self._measure()
            await asyncio.sleep(0.1)

    def _measure(self) -> None:
        for program in self.programs.values():
            program.measured()

    async def _mend(self, outcomes: dict[str, str]) -> None:
        """Start programs anew that are not well."""
        for name in [name for name, outcome in outcomes.items() if outcome != "ok" and name in self.programs]:
            print(f"---- {name}: {outcomes[name]}\n{self.programs[name].output()}\n----", flush=True)
        odd = [name for name, outcome in outcomes.items() if outcome != "ok" and name in PROGRAMS]
        if odd:
            await self.start(odd)
        for program in self.programs.values():
            program.highest = 0

    async def start(self, names: Iterable[str], *, healthy: bool = True) -> None:
        for name in names:
            if name in self.programs:
                self.programs[name].end()
            self.programs[name] = Process(
                name, self.url or self.server.url, self.directory, self.clock, self.ca, self.more_flags
            )
        if not healthy:
            return
        outcomes: dict[str, str] = {}
        await self.check(outcomes, _START)
        for name, outcome in outcomes.items():
            if outcome != "ok":
                raise RuntimeError(f"{name} does nothing on a good server: {outcome}\n{self.programs[name].output()}")
            self.programs[name].baseline = self.programs[name].measured()

    async def _set_clock(self) -> None:
        outcomes = self.outcomes.setdefault(_CLOCK_SET, {})
        self.clock.touch()
        await self.check(outcomes)
        self.clock.unlink()
        await self.check(outcomes)

    async def _spoil_tls(self) -> None:
        async with TlsFront(self.server, self.directory) as front:
            self.url, self.ca = front.url, front.ca
            await self.start(PROGRAMS)
            for name, answer in SPOILT.items():
                front.spoil(answer)
                end = time.monotonic() + self._seconds(_FAULT)
                while front.spoilt < 3 * len(PROGRAMS) and time.monotonic() < end:
                    await asyncio.sleep(0.05)
                front.behave()
                await self.check(self.outcomes.setdefault(name, {}))
                await self._mend(self.outcomes[name])
            for program in self.programs.values():
                program.end()

    async def _spoil_provider(self, scenarios: Sequence[ProviderScenario]) -> None:
        """Run the scenarios of a cloud behind gRPC, with the cluster autoscaler alone."""
        for program in self.programs.values():
            program.end()
        self.programs, self.url, self.ca = {}, "", None
        async with HostileProvider(self.cluster.api, self.directory, self.cluster.build_node) as provider:
            self.more_flags = (
                "--cloud-provider=externalgrpc", f"--cloud-config={provider.config}",
                "--node-info-cache-expire-time=1s",  # a node that was said to be of a group would stand for it
            )  # fmt: skip
            await self.start([_WITH_PROVIDER])
            for scenario in scenarios:
                began = time.monotonic()
                await self._provider_scenario(provider, scenario)
                self._print_outcome(scenario.name, began)
            self.more_flags = ()

    async def _provider_scenario(self, provider: HostileProvider, scenario: ProviderScenario) -> None:
        """Run a scenario: the loops go on while the cloud lies, also with a pod that needs a node; then it works."""
        outcomes = self.outcomes.setdefault(scenario.name, {})
        await provider.begin(scenario.fault())
        if scenario.start:
            await self.start([_WITH_PROVIDER], healthy=False)
        program = self.programs[_WITH_PROVIDER]
        pending = asyncio.create_task(self.cluster.work(program, self._seconds(_WORK)))
        loops = await self._until_loops(program, scenario.loops, _START if scenario.start else _WORK)
        pending.cancel()
        await asyncio.wait([pending])
        if os.environ.get("KSCALE_HOSTILE_VERBOSE"):
            print(f"        {loops} loops, met by {dict(provider.hits)}", flush=True)
        await provider.end()
        await self.check(outcomes, _START if scenario.start else _WORK, scenario.room)
        if outcomes[program.name] == "ok" and loops < scenario.loops:
            outcomes[program.name] = f"stuck meanwhile ({loops} loops)"
        await self._mend(outcomes)

    async def _until_loops(self, program: Process, loops_needed: int, seconds: float) -> int:
        """Wait until the program has begun some loops, or takes too long; returns the loops."""
        end = time.monotonic() + self._seconds(seconds)
        least = time.monotonic() + self._seconds(_FAULT)
        loops, last = 0, await program.last_loop()
        while program.alive and time.monotonic() < end:
            if loops >= loops_needed and time.monotonic() > least:
                break
            self._measure()
            await asyncio.sleep(0.05)
            now = await program.last_loop()
            loops += now > last
            last = max(now, last)
        return loops

    def _seconds(self, seconds: float) -> float:
        return seconds * self.scale

    # -- what came of it ---------------------------------------------------------------------------------------------

    def _report(self) -> int:
        columns = [*PROGRAMS, *(each.name for each in COMMANDS)]
        width = max(map(len, self.outcomes), default=8)
        print(f"\n{'SCENARIO':{width}}  {'  '.join(columns)}")
        for name, outcomes in self.outcomes.items():
            print(f"{name:{width}}  {'  '.join(f'{outcomes.get(each, chr(45)):{len(each)}}' for each in columns)}")
        bad = 0
        print()
        for each in columns:
            counted = Counter(result[each].partition(" ")[0] for result in self.outcomes.values() if each in result)
            reasons = ", ".join(f"{count} {what}" for what, count in counted.most_common())
            print(f"{each:{max(map(len, columns))}}  {reasons}")
            bad += counted.total() - counted["ok"] - counted["refused"]
        print(f"\n{len(self.outcomes)} scenarios, {bad} failures")
        return 1 if bad else 0
