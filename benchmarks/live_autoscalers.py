"""The HPA and the VPA's recommender on a large cluster behind a real API server (built with Go), and upstream's beside
them.

``PYTHONPATH=tests python benchmarks/live_autoscalers.py --workloads 10000 --pods 10 --upstream FOLDER``: CPU time of
the start and of a round over all workloads, requests of the API included, and memory. Each workload has an HPA or a
VPA, which nobody has looked at yet when a program starts; nothing has to be scaled, checkpoints are written each round.
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
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from e2e.control_plane import ControlPlane
from e2e.duel.programs import Player
from e2e.metrics_server import FakeMetrics
from kscale.drivers.vpa_definitions import vpa_definitions
from kscale.effects import SECOND, to_text
from kscale.world.clock import SystemClock

NAMESPACES: Final = 200
HOUR: Final = 3600 * SECOND
NOW: Final = "<now>"
OF_VPA: Final = "autoscaling.k8s.io"
FAST: Final = ("--kube-api-qps=2000", "--kube-api-burst=2000", "--v=0")
PROGRAMS: Final = {
    "horizontal": ("horizontal_pod_autoscaler_controller_reconciliations_total", {}),
    "vpa-recommender": ("vpa_recommender_execution_latency_seconds_count", {"step": "total"}),
}
"""What counts its rounds: of the HPA those of one object, of the recommender those over all."""
FLAGS: Final = {
    "horizontal": ("--horizontal-pod-autoscaler-sync-period=15s", "--concurrent-horizontal-pod-autoscaler-syncs=100"),
    "vpa-recommender": ("--recommender-interval=1s", "--checkpoints-timeout=10m", "--update-worker-count=100"),
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
    parser.add_argument("--rounds", type=float, default=2.0, help="of the HPA also a part of one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, ControlPlane(Path(directory)) as plane:
        plane.define(*vpa_definitions())
        begun = time.monotonic()
        for i in range(NAMESPACES):
            plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": f"ns{i}"}})
        plane.store(objects(given.workloads, given.pods))
        there = f"{given.workloads} workloads of {given.pods} pods"
        print(f"{there}, stored in {time.monotonic() - begun:.0f} s", flush=True)
        for program in given.program or PROGRAMS:
            for binaries in dict.fromkeys((given.upstream, None)):
                print(asyncio.run(measured(plane, program, binaries, given)), flush=True)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


# -- what is there -----------------------------------------------------------------------------------------------


def place(i: int, name: str = "") -> str:
    return f"ns{i % NAMESPACES}/w{i}{name}"


def objects(workloads: int, pods: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Workloads, and pods that have been running and ready for an hour."""
    since = to_text(SystemClock().now() - HOUR)
    for i in range(workloads):
        labels = {"app": f"w{i}"}
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}}}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        spec = {"replicas": pods, "selector": {"matchLabels": labels}, "template": template}
        counts = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas", "updatedReplicas"), pods)
        yield f"deployments/{place(i)}", made("apps/v1", "Deployment", i, spec, {"observedGeneration": 1, **counts})
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"w{i}-x", "uid": "u", "controller": True}
        ready = [{"type": "Ready", "status": "True", "lastTransitionTime": since}]
        status = {"phase": "Running", "startTime": since, "conditions": ready}
        for k in range(pods):
            pod = made("v1", "Pod", i, {"containers": [container]}, status, f"-{k}")
            pod["metadata"] |= {"labels": labels, "ownerReferences": [owner]}
            yield f"pods/{place(i, f'-{k}')}", pod


def autoscalers(program: str, workloads: int, pods: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """One of each workload, as if nobody had looked at it yet."""
    for i in range(workloads):
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"w{i}"}
        if program == "horizontal":
            cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
            metrics = [{"type": "Resource", "resource": cpu}]
            spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 2 * pods, "metrics": metrics}
            counts = {"currentReplicas": 0, "desiredReplicas": 0}
            hpa = made("autoscaling/v2", "HorizontalPodAutoscaler", i, spec, counts)
            yield f"horizontalpodautoscalers/{place(i)}", hpa
        else:
            spec = {"targetRef": target, "updatePolicy": {"updateMode": "Off"}}
            vpa = made(f"{OF_VPA}/v1", "VerticalPodAutoscaler", i, spec, {})
            yield f"{OF_VPA}/verticalpodautoscalers/{place(i)}", vpa


def made(
    api_version: str, kind: str, i: int, spec: Mapping[str, Any], status: Mapping[str, Any], name: str = ""
) -> dict[str, Any]:
    """An object as etcd holds it."""
    namespace, _, name = place(i, name).partition("/")
    uid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{kind}/{name}"))
    created = to_text(SystemClock().now() - HOUR)
    metadata = {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": created, "generation": 1}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec, "status": status}


class Measured(FakeMetrics):
    """Answers without asking the API server: each pod uses half of what it requests. Texts are written before."""

    def __init__(self, plane: ControlPlane, workloads: int, pods: int) -> None:
        super().__init__(plane, lambda *_: None)
        self._by_namespace: dict[str, dict[str, bytes]] = {}
        usage = [{"name": "c", "usage": {"cpu": "250m", "memory": "200Mi"}}]
        for i in range(workloads):
            namespace, _, name = place(i).partition("/")
            labels = {"app": name}
            items = (
                {
                    "metadata": {"name": f"{name}-{k}", "namespace": namespace, "labels": labels},
                    "timestamp": NOW, "window": "30s", "containers": usage,
                }
                for k in range(pods)
            )  # fmt: skip
            self._by_namespace.setdefault(namespace, {})[name] = b",".join(map(msgspec.json.encode, items))

    async def _list(self, path: str, selector: str) -> bytes:
        self.listed += 1
        namespace = path.removesuffix("/pods").removeprefix("/namespaces/")
        there = [self._by_namespace[namespace]] if namespace else self._by_namespace.values()
        app = selector.removeprefix("app=")
        found = (items for each in there for name, items in each.items() if app in ("", name))
        items = b",".join(found).replace(NOW.encode(), self.now().encode())
        return b'{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[%s]}' % items


# -- what is measured --------------------------------------------------------------------------------------------


async def measured(plane: ControlPlane, program: str, binaries: Path | None, given: argparse.Namespace) -> Figures:
    """One program of one side: from its start to its end."""
    each = given.workloads if program == "horizontal" else 1
    clock = SystemClock()
    plane.wipe(f"{OF_VPA}/verticalpodautoscalercheckpoints/")
    plane.store(autoscalers(program, given.workloads, given.pods))
    async with Measured(plane, given.workloads, given.pods) as metrics:
        metrics.now = lambda: to_text(clock.now())
        player = Player(program, plane, binaries, [*FAST, *FLAGS[program]])
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
    async with asyncio.timeout(1800):
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
