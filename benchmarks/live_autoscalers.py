"""The HPA and the VPA's recommender on a large cluster behind a real API server (built with Go), and upstream's beside
them.

``PYTHONPATH=tests python benchmarks/live_autoscalers.py --workloads 10000 --pods 10 --upstream FOLDER``: CPU time of
the start and of a round over all workloads, requests of the API included, and memory. Each workload has an HPA or a
VPA, which nobody has looked at yet when a program starts; nothing has to be scaled, checkpoints are written each round.
``--synthetic``: against an API server in memory (no etcd), which also says what it was asked. ``--without-http``: the
HPA's program in this process, on that server without a connection: CPU time but for the server's. ``--turns``: usage is
another each time, so that every round has every status to write. What was written is held against the library's own
answers in each (``autoscaler_answers.py``), upstream's too. ``--qps``: no round of N requests is over before N / QPS
seconds, and a client that waits for its turn is woken for each by itself, which costs CPU time, too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import ssl
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from autoscaled_workloads import NAMESPACES, OF_VPA, USED, Usage, autoscalers, objects
from autoscaler_answers import check_recommendations, check_statuses
from prometheus_client.parser import text_string_to_metric_families
from synthetic_autoscalers import SyntheticWorkloads, WorkloadsServer

from e2e.control_plane import ControlPlane
from e2e.duel.programs import Player
from e2e.metrics_server import FakeMetrics
from kscale.cli import inputs
from kscale.drivers.horizontal_autoscaler import HORIZONTAL_METRICS, HorizontalAutoscaler
from kscale.drivers.manifests.autoscalers import vpa_definitions
from kscale.drivers.process import ProcessOptions, Program, ProgramContext, run_process
from kscale.effects import to_text
from kscale.hpa.options import HPAOptions
from kscale.world.clock import SystemClock
from kscale.world.kubernetes.client import Client
from kscale.world.metrics_apis import RESTMetrics

SYNCS: Final = 100
STATUS_WRITES: Final = "PATCH horizontalpodautoscalers.autoscaling/status"
LOOKS: Final = 1.0
PROGRAMS: Final = {
    "horizontal": ("horizontal_pod_autoscaler_controller_reconciliations_total", {}),
    "vpa-recommender": ("vpa_recommender_execution_latency_seconds_count", {"step": "total"}),
}
"""What counts its rounds: of the HPA those of one object, of the recommender those over all."""
KINDS: Final = {
    "horizontal": "/apis/autoscaling/v2/horizontalpodautoscalers",
    "vpa-recommender": f"/apis/{OF_VPA}/v1/verticalpodautoscalers",
}
FLAGS: Final = {
    "horizontal": (
        "--horizontal-pod-autoscaler-sync-period=15s",
        f"--concurrent-horizontal-pod-autoscaler-syncs={SYNCS}",
    ),
    "vpa-recommender": ("--recommender-interval=1s", "--checkpoints-timeout=10m", "--update-worker-count=100"),
}


class Figures(msgspec.Struct, kw_only=True):
    """Of one program: seconds and CPU seconds until each workload had been looked at once, of a round over all
    afterwards, and the most memory (MiB). ``done``: rounds in all, where there was no time for more."""

    program: str
    side: str
    first: float
    first_cpu: float
    done: float
    round: float | None = None
    round_cpu: float | None = None
    memory: float

    def __str__(self) -> str:
        first = f"{self.program:15} {self.side:9} first round {self.first:.1f} s ({self.first_cpu:.2f} s CPU), "
        if self.round is None:
            return first + f"ended there with {self.done:.2f} of it done, memory {self.memory:.0f} MiB"
        return first + f"round {self.round:.1f} s ({self.round_cpu:.2f} s CPU), memory {self.memory:.0f} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description="The HPA and the VPA's recommender on a large cluster.")
    parser.add_argument("--upstream", type=Path, help="the folder of upstream's binaries, to be measured beside")
    parser.add_argument("--program", action="append", choices=[*PROGRAMS], help="default: both")
    parser.add_argument("--workloads", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=10, help="of each workload")
    parser.add_argument("--rounds", type=float, default=2.0, help="of the HPA also a part of one")
    parser.add_argument("--synthetic", action="store_true", help="against a server in memory, without etcd")
    parser.add_argument("--turns", action="store_true", help="synthetic: usage is another each time")
    parser.add_argument("--qps", type=int, default=2000, help="the programs' own limit: requests a second, and at once")
    parser.add_argument("--without-http", action="store_true", help="the HPA's program alone, without connections")
    parser.add_argument("--most", type=float, default=1800.0, metavar="SECONDS", help="for a program")
    arguments = parser.parse_args()
    print(f"{arguments.workloads} workloads of {arguments.pods} pods in {NAMESPACES} namespaces", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        if arguments.without_http:
            asyncio.run(without_http(arguments))
        else:
            (synthetic if arguments.synthetic else real)(Path(directory), arguments)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


class Measured(FakeMetrics):
    """Answers without asking the API server: each pod uses half of what it requests. Texts are written before."""

    def __init__(self, plane: ControlPlane, workloads: int, pods: int) -> None:
        super().__init__(plane, lambda *_: None)
        self._texts = Usage(workloads, pods, *USED[False])

    async def _list(self, path: str, selector: str) -> bytes:
        self.listed += 1
        return self._texts.listed(path, selector, self.now())


# -- what is measured --------------------------------------------------------------------------------------------


def real(directory: Path, arguments: argparse.Namespace) -> None:
    """An API server and etcd."""
    with ControlPlane(directory) as plane:
        plane.define(*vpa_definitions())
        begun = time.monotonic()
        for i in range(NAMESPACES):
            plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": f"ns{i}"}})
        plane.store(objects(arguments.workloads, arguments.pods))
        print(f"stored in {time.monotonic() - begun:.0f} s", flush=True)

        async def measure(program: str, binaries: Path | None) -> Figures:
            plane.wipe(f"{OF_VPA}/verticalpodautoscalercheckpoints/")
            plane.store(autoscalers(program, arguments.workloads, arguments.pods))
            async with Measured(plane, arguments.workloads, arguments.pods) as metrics:
                clock = SystemClock()
                metrics.now = lambda: to_text(clock.now())
                result = await measured(plane, plane.token, program, binaries, arguments)
            check(program, lambda path: plane.ask("GET", path), arguments)
            return result

        for program in arguments.program or PROGRAMS:
            for binaries in dict.fromkeys((arguments.upstream, None)):
                print(asyncio.run(measure(program, binaries)), flush=True)


def synthetic(directory: Path, arguments: argparse.Namespace) -> None:
    """A server in memory, anew for each program and side."""
    for program in arguments.program or PROGRAMS:
        for binaries in dict.fromkeys((arguments.upstream, None)):
            at = directory / f"{program}-{'upstream' if binaries else 'kscale'}"
            at.mkdir()
            with SyntheticWorkloads(at, program, arguments.workloads, arguments.pods, turns=arguments.turns) as plane:
                print(asyncio.run(measured(plane, plane.token, program, binaries, arguments)), flush=True)
                counts = plane.counts()
                print("   requests:", ", ".join(f"{count} {name}" for name, count in counts.most_common(8)))
                check(program, plane.ask, arguments)
                if program == "horizontal" and not arguments.turns:
                    assert counts[STATUS_WRITES] == arguments.workloads, "each status is written once"


def check(program: str, ask: Callable[[str], Mapping[str, Any]], arguments: argparse.Namespace) -> None:
    """What was written. ``ask`` reads a list of the API."""
    begun = SystemClock().now()
    items = ask(KINDS[program])["items"]
    statuses = {f"{each['metadata']['namespace']}/{each['metadata']['name']}": each["status"] for each in items}
    if program == "horizontal":
        usage = Usage(arguments.workloads, arguments.pods, *USED[arguments.turns])
        count = check_statuses(
            statuses, usage, range(len(USED[arguments.turns])), arguments.workloads, arguments.pods, begun
        )
    else:
        checkpoints = ask(f"/apis/{OF_VPA}/v1/verticalpodautoscalercheckpoints")["items"]
        count = check_recommendations(statuses, checkpoints, arguments.workloads, arguments.pods, begun)
    print(f"   answers: {len(statuses)} statuses, {count} of them as the library decides", flush=True)


async def measured(
    plane: ControlPlane | SyntheticWorkloads,
    token: str,
    program: str,
    binaries: Path | None,
    arguments: argparse.Namespace,
) -> Figures:
    """One program of one side: from its start to its end."""
    each = arguments.workloads if program == "horizontal" else 1
    # The server in memory reads JSON only, which upstream's controller has to be told.
    only_json = isinstance(plane, SyntheticWorkloads) and binaries and program == "horizontal"
    flags = ["--kube-api-content-type=application/json"] if only_json else []
    flags += [f"--kube-api-qps={arguments.qps}", f"--kube-api-burst={arguments.qps}", "--v=0"]
    player = Player(program, plane, binaries, [*FLAGS[program], *flags])
    begun = time.monotonic()
    player.start()
    try:
        look = _Looker(player, token, program, arguments.most)
        done, first, first_cpu = await look.until(each)
        second, before, cpu = await look.until(done + each)
        again, now, after = await look.until(second + arguments.rounds * each)
        out = Figures(
            program=program, side=player.side, first=first - begun, first_cpu=first_cpu, done=again / each,
            memory=player.memory("VmHWM"),
        )  # fmt: skip
        if not look.late:
            rounds = (again - second) / each
            out.round, out.round_cpu = (now - before) / rounds, (after - cpu) / rounds
        return out
    except Exception as error:
        raise RuntimeError(player.tail()) from error
    finally:
        player.kill()


class _Looker:
    """Looks how often it has been, and what that took, but for what looking costs: a program has thousands of series
    to tell. ``late``: the time was over first."""

    def __init__(self, player: Player, token: str, program: str, most: float) -> None:
        self._player, self._token, self._counted = player, token, PROGRAMS[program]
        self._end = time.monotonic() + most
        self._looks, self._cost = 0, float("inf")
        self.late = False

    async def until(self, count: float) -> tuple[float, float, float]:
        """How often it has been, once it is so often; when that was seen, and CPU seconds so far."""
        while True:
            self._player.check()
            before, begun = self._player.cpu_seconds(), time.monotonic()
            result = await asyncio.to_thread(counted, self._player.metrics_url, self._token, *self._counted)
            self.late = begun > self._end
            spent = self._looks * self._cost if self._looks else 0.0
            if result:
                self._looks, self._cost = self._looks + 1, min(self._cost, self._player.cpu_seconds() - before)
            if result >= count or self.late:
                return result, begun, before - spent
            await asyncio.sleep(LOOKS)


def counted(url: str, token: str, name: str, labels: dict[str, str]) -> float:
    """The sum of a metric's series that have these labels; 0 where nobody answers yet."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with contextlib.suppress(OSError):
        with urllib.request.urlopen(request, timeout=30, context=ssl._create_unverified_context()) as answer:
            lines = [line for line in answer.read().decode().splitlines() if line.startswith(name)]
        samples = (sample for family in text_string_to_metric_families("\n".join(lines)) for sample in family.samples)
        return sum(each.value for each in samples if each.name == name and labels.items() <= each.labels.items())
    return 0.0


async def without_http(arguments: argparse.Namespace) -> None:
    """CPU seconds of each round of the HPA's program, and what it asked for. The collector is as in a process of the
    command's own, and does not walk the server's objects: they would be in another."""
    inputs.start()
    server = WorkloadsServer("horizontal", arguments.workloads, arguments.pods, turns=arguments.turns)
    inputs.start_garbage_collector()
    client = Client(server, SystemClock(), qps=-1)
    options = HPAOptions(concurrent_horizontal_pod_autoscaler_syncs=SYNCS)
    surroundings: list[ProgramContext] = []
    written = 0

    def build(around: ProgramContext) -> Program:
        surroundings.append(around)
        return Program(
            driver=HorizontalAutoscaler(options),
            metrics=HORIZONTAL_METRICS,
            source=RESTMetrics(around.client, around.resources, around.steady),
        )

    stop = asyncio.Event()
    process = asyncio.create_task(run_process(build, client, ProcessOptions(), version="", stop=stop))
    spent, counts_before, begun = server.spent, server.counts.copy(), time.process_time()
    for number in range(1, 2 + round(arguments.rounds)):
        while not surroundings or (reconciled(surroundings[0]) or 0) < number * arguments.workloads:
            await asyncio.wait([process], timeout=0.1)
            if process.done():
                process.result()
        cpu = time.process_time() - begun - (server.spent - spent)
        print(f"round {number}: {cpu:.2f} s CPU; asked: {dict(server.counts - counts_before)}", flush=True)
        written = server.counts[STATUS_WRITES]
        expected = number if arguments.turns else 1
        assert expected * arguments.workloads <= written < (expected + 1) * arguments.workloads, written
        assert not any(name.endswith("/scale") and name.startswith("PUT") for name in server.counts), server.counts
        spent, counts_before, begun = server.spent, server.counts.copy(), time.process_time()
    stop.set()
    await process
    check("horizontal", lambda path: {"items": server.all(path.rpartition("/")[2] + ".autoscaling")}, arguments)


def reconciled(around: ProgramContext) -> float | None:
    """How many HPAs have been looked at."""
    return around.metrics.value(PROGRAMS["horizontal"][0], action="none", error="none")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
