"""The HPA and the VPA's recommender on a large cluster behind a real API server (built with Go), and upstream's beside
them.

``PYTHONPATH=tests python benchmarks/live_autoscalers.py --workloads 1000 --pods 10 --upstream FOLDER``: CPU time of the
start and of a round over all workloads, requests of the API included, and memory. Each workload has an HPA and a VPA;
nothing has to be scaled, checkpoints are written each round.
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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import msgspec
from live_scale import together
from prometheus_client.parser import text_string_to_metric_families

from e2e.control_plane import ControlPlane
from e2e.duel.programs import Player
from e2e.metrics_server import FakeMetrics
from e2e.real_api import connected
from kscale.drivers.vpa_definitions import vpa_definitions
from kscale.effects import to_text
from kscale.world.clock import SystemClock

NAMESPACES: Final = 20
FAST: Final = ("--kube-api-qps=2000", "--kube-api-burst=2000", "--v=0")
PROGRAMS: Final = {
    "horizontal": ("horizontal_pod_autoscaler_controller_reconciliations_total", {}),
    "vpa-recommender": ("vpa_recommender_execution_latency_seconds_count", {"step": "total"}),
}
"""What counts its rounds: of the HPA those of one object, of the recommender those over all."""
FLAGS: Final = {
    "horizontal": ("--horizontal-pod-autoscaler-sync-period=15s", "--concurrent-horizontal-pod-autoscaler-syncs=5"),
    "vpa-recommender": ("--recommender-interval=1s", "--checkpoints-timeout=10m"),
}


class Figures(msgspec.Struct, kw_only=True):
    """Of one program: seconds and CPU seconds until each workload had been looked at once, of a round over all
    afterwards, and the most memory (MiB)."""

    program: str
    side: str
    first: float
    first_cpu: float
    round: float
    round_cpu: float
    memory: float

    def __str__(self) -> str:
        return (
            f"{self.program:15} {self.side:9} first round {self.first:.1f} s ({self.first_cpu:.2f} s CPU), "
            f"round {self.round:.1f} s ({self.round_cpu:.2f} s CPU), memory {self.memory:.0f} MiB"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="The HPA and the VPA's recommender on a large cluster.")
    parser.add_argument("--upstream", type=Path, help="the folder of upstream's binaries, to be measured beside")
    parser.add_argument("--program", action="append", choices=[*PROGRAMS], help="default: both")
    parser.add_argument("--workloads", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=10, help="of each workload")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, ControlPlane(Path(directory)) as plane:
        plane.define(*vpa_definitions())
        begun = time.monotonic()
        asyncio.run(fill(plane, given))
        made = f"{given.workloads} workloads with an HPA, a VPA and {given.pods} pods each"
        print(f"{made}, made in {time.monotonic() - begun:.0f} s", flush=True)
        for program in given.program or PROGRAMS:
            for binaries in dict.fromkeys((given.upstream, None)):
                print(asyncio.run(measured(plane, program, binaries, given)), flush=True)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


# -- what is there -----------------------------------------------------------------------------------------------


def place(i: int) -> str:
    return f"/namespaces/ns{i % NAMESPACES}"


async def fill(plane: ControlPlane, given: argparse.Namespace) -> None:
    """Workloads, their pods that run and are ready, and who scales them."""
    all_ = range(given.workloads)
    pods = [(i, k) for i in all_ for k in range(given.pods)]
    async with connected(plane) as api:
        names = (("POST", "/api/v1/namespaces", {"metadata": {"name": f"ns{i}"}}) for i in range(NAMESPACES))
        await together(api.client, names)
        await together(api.client, (made for i in all_ for made in scaled(i, given.pods)))
        await together(api.client, (("POST", f"/api/v1{place(i)}/pods", pod(i, k)) for i, k in pods))
        now = to_text(api.clock.now())
        ready = [{"type": "Ready", "status": "True", "lastTransitionTime": now}]
        status = {"status": {"phase": "Running", "startTime": now, "conditions": ready}}
        await together(api.client, (("PATCH", f"/api/v1{place(i)}/pods/w{i}-{k}/status", status) for i, k in pods))


def scaled(i: int, pods: int) -> Iterator[tuple[str, str, Any]]:
    target = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"w{i}"}
    template = {"metadata": {"labels": {"app": f"w{i}"}}, "spec": pod(i, 0)["spec"]}
    spec = {"replicas": pods, "selector": {"matchLabels": {"app": f"w{i}"}}, "template": template}
    metadata = {"name": f"w{i}"}
    yield "POST", f"/apis/apps/v1{place(i)}/replicasets", {"metadata": metadata, "spec": spec}
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    limits = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 2 * pods}
    hpa = {"metadata": metadata, "spec": {**limits, "metrics": [{"type": "Resource", "resource": cpu}]}}
    yield "POST", f"/apis/autoscaling/v2{place(i)}/horizontalpodautoscalers", hpa
    kind = {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler"}
    vpa = {**kind, "metadata": metadata, "spec": {"targetRef": target, "updatePolicy": {"updateMode": "Off"}}}
    yield "POST", f"/apis/autoscaling.k8s.io/v1{place(i)}/verticalpodautoscalers", vpa


def pod(i: int, k: int) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"w{i}", "uid": "u", "controller": True}
    requests = {"cpu": "500m", "memory": "256Mi"}
    return {
        "metadata": {"name": f"w{i}-{k}", "labels": {"app": f"w{i}"}, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}]},
    }


class Measured(FakeMetrics):
    """Answers without asking the API server: each pod uses half of what it requests."""

    def __init__(self, plane: ControlPlane, workloads: int, pods: int) -> None:
        super().__init__(plane, lambda *_: None)
        self._by_place: dict[str, dict[str, list[dict[str, Any]]]] = {}
        usage = [{"name": "c", "usage": {"cpu": "250m", "memory": "200Mi"}}]
        for i in range(workloads):
            labels = {"app": f"w{i}"}
            self._by_place.setdefault(place(i), {})[f"w{i}"] = [
                {
                    "metadata": {"name": f"w{i}-{k}", "namespace": f"ns{i % NAMESPACES}", "labels": labels},
                    "window": "30s",
                    "containers": usage,
                }
                for k in range(pods)
            ]

    async def _answer(self, target: str) -> tuple[int, dict[str, Any]]:
        parts = urlsplit(target)
        if not parts.path.endswith("/pods"):
            return await super()._answer(target)
        where = parts.path.removesuffix("/pods").partition("v1beta1")[2]
        app = parse_qs(parts.query).get("labelSelector", [""])[0].removeprefix("app=")
        places = [self._by_place[where]] if where else [*self._by_place.values()]
        groups: Iterable[list[dict[str, Any]]] = (
            (each[app] for each in places if app in each) if app else (one for each in places for one in each.values())
        )
        now = {"timestamp": self.now()}
        items = [item | now for group in groups for item in group]
        return 200, {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items}


# -- what is measured --------------------------------------------------------------------------------------------


async def measured(plane: ControlPlane, program: str, binaries: Path | None, given: argparse.Namespace) -> Figures:
    """One program of one side: from its start to its end."""
    each = given.workloads if program == "horizontal" else 1
    clock = SystemClock()
    async with Measured(plane, given.workloads, given.pods) as metrics:
        metrics.now = lambda: to_text(clock.now())
        more = ["--take-over"] if program == "horizontal" and binaries is None else []  # upstream's ran just before
        player = Player(program, plane, binaries, [*FAST, *FLAGS[program], *more])
        begun = time.monotonic()
        player.start()
        try:
            done, first = await until(player, plane, program, each)
            begun_again, first_cpu = time.monotonic(), player.cpu_seconds()
            again, now = await until(player, plane, program, done + given.rounds * each)
            rounds = (again - done) / each
            return Figures(
                program=program, side=player.side, first=first - begun, first_cpu=first_cpu,
                round=(now - begun_again) / rounds, round_cpu=(player.cpu_seconds() - first_cpu) / rounds,
                memory=player.memory("VmHWM"),
            )  # fmt: skip
        except Exception as error:
            raise RuntimeError(player.tail()) from error
        finally:
            player.kill()


async def until(player: Player, plane: ControlPlane, program: str, count: float) -> tuple[float, float]:
    """How often it has been, once it is so often, and when that was seen."""
    async with asyncio.timeout(900):
        while True:
            player.check()
            found = await asyncio.to_thread(counted, player.metrics_url, plane.token, *PROGRAMS[program])
            if found >= count:
                return found, time.monotonic()
            await asyncio.sleep(1)  # each look costs it some milliseconds


def counted(url: str, token: str, name: str, labels: dict[str, str]) -> float:
    """The sum of a metric's series that have these labels; 0 where nobody answers yet."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with contextlib.suppress(OSError):
        with urllib.request.urlopen(request, timeout=30, context=ssl._create_unverified_context()) as answer:
            text = answer.read().decode()
        samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
        return sum(each.value for each in samples if each.name == name and labels.items() <= each.labels.items())
    return 0.0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
