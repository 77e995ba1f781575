"""Load on the VPA's webhook: kscale's, and upstream's beside it, each on the same control plane (built with Go).

``PYTHONPATH=tests python benchmarks/webhook_load.py --upstream FOLDER``: requests come when they are due, however long
the ones before take (an open loop), over connections that are kept for a while, while certificates are replaced. A
latency counts from when the request was due. CPU time is that of the webhook's process. Each answer must allow the pod
and change its resources as the first one did, and both sides must change them alike.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import gc
import json
import os
import ssl
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from e2e.control_plane import ControlPlane
from e2e.duel.programs import Player
from kscale.drivers.manifests.autoscalers import vpa_definitions

NAMESPACE = "/namespaces/default"
VPA = f"/apis/autoscaling.k8s.io/v1{NAMESPACE}/verticalpodautoscalers"
CERTIFICATE_SECONDS = 2.0
REQUESTS_PER_CONNECTION = 100
"""So many requests go over a connection; then it is made anew, with the certificate of that moment."""


class Load(msgspec.Struct, kw_only=True):
    """What came of it; latencies in milliseconds. ``patch``: what each answer changes of the pod; ``late``: by how much
    the load itself was behind at most, which counts as latency, too, and is nothing that a webhook did."""

    side: str
    patch: list[dict[str, Any]]
    requests: int
    failures: int
    certificates: int
    median: float
    p99: float
    longest: float
    late: float
    cpu_seconds: float

    def __str__(self) -> str:
        return (
            f"{self.side:9} {self.requests} requests, {self.failures} failures, {self.certificates} certificates; "
            f"median {self.median:.2f} ms, p99 {self.p99:.2f}, longest {self.longest:.1f} "
            f"(the load itself late by up to {self.late:.1f}); "
            f"{self.requests / self.cpu_seconds:,.0f} requests a CPU second"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Load on the webhook of the VPA.")
    parser.add_argument("--upstream", type=Path, help="the folder of upstream's binaries, to be measured beside")
    parser.add_argument("--rate", type=float, default=400.0, help="requests a second")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    for _ in range(arguments.rounds):
        loads = []
        for binaries in dict.fromkeys((arguments.upstream, None)):
            loads.append(measured(binaries, arguments))
            print(loads[-1], flush=True)
            assert loads[-1].failures == 0
            assert loads[-1].patch == loads[0].patch
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


def measured(binaries: Path | None, arguments: argparse.Namespace) -> Load:
    """The webhook of one side (None: kscale's) on a control plane of its own."""
    with tempfile.TemporaryDirectory() as directory, ControlPlane(Path(directory)) as plane:
        body = scene(plane)
        flags = ["--reload-cert=true", "--register-webhook=false", "--v=1"]
        player = Player("vpa-admission", plane, binaries, flags)
        player.start()
        try:
            return asyncio.run(_Loader(plane, player, body, arguments).run())
        except Exception as error:
            raise RuntimeError(player.tail()) from error
        finally:
            player.kill()


def scene(plane: ControlPlane) -> bytes:
    """A VPA over a StatefulSet; gives a review of one of its pods."""
    plane.define(*vpa_definitions())
    labels = {"app": "web"}
    container = {
        "name": "c",
        "image": "x",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1"}},
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    workload = {"serviceName": "web", "selector": {"matchLabels": labels}, "template": template, "replicas": 0}
    created = plane.ask(
        "POST", f"/apis/apps/v1{NAMESPACE}/statefulsets", {"metadata": {"name": "web"}, "spec": workload}
    )
    target = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"}
    owner = {**target, "uid": created["metadata"]["uid"], "controller": True}
    vpa = {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler"}
    plane.ask("POST", VPA, {**vpa, "metadata": {"name": "web"}, "spec": {"targetRef": target}})
    bounds = {name: {"cpu": "700m", "memory": "512Mi"} for name in ("target", "lowerBound", "upperBound")}
    status = {"recommendation": {"containerRecommendations": [{"containerName": "c", **bounds}]}}
    merge = "application/merge-patch+json"
    plane.ask("PATCH", f"{VPA}/web/status", {"status": status}, content_type=merge)
    pod = {
        "apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
        "metadata": {"name": "web-0", "namespace": "default", "labels": labels, "ownerReferences": [owner]},
    }  # fmt: skip
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    request = {
        "uid": "u", "operation": "CREATE", "dryRun": False, "namespace": "default", "name": "web-0", "object": pod,
        "kind": kind, "requestKind": kind, "resource": resource, "requestResource": resource,
    }  # fmt: skip
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def changed(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """What an answer changes of a pod's spec, in an order of its own: annotations tell it in the order of a Go map."""
    response = answer["response"]
    assert response["allowed"], response
    operations = msgspec.json.decode(base64.b64decode(response.get("patch", "")) or b"[]")
    result = [each for each in operations if each["path"].startswith("/spec/")]
    return sorted(result, key=lambda each: each["path"])


class _Loader:
    def __init__(self, plane: ControlPlane, player: Player, body: bytes, arguments: argparse.Namespace) -> None:
        self.player, self.arguments, self.plane = player, arguments, plane
        lines = ["POST / HTTP/1.1", "Host: localhost", "Content-Type: application/json", f"Content-Length: {len(body)}"]
        self.request = "\r\n".join([*lines, "", ""]).encode() + body
        self.tls = ssl.create_default_context(cadata=plane.authority.cert_pem.bytes().decode())
        self.replaced = 0
        self.patch: list[dict[str, Any]] = []
        self.latencies: list[float] = []
        self.late = 0.0
        self.failures: list[str] = []
        self.due: asyncio.Queue[float | None] = asyncio.Queue()

    async def run(self) -> Load:
        await self._ready()
        # A pass of the load's own collector over all that is imported here would be counted as the webhook's.
        gc.collect()
        gc.disable()
        try:
            return await self._load()
        finally:
            gc.enable()

    async def _load(self) -> Load:
        replacing = asyncio.create_task(self._replace())
        workers = [asyncio.create_task(self._work()) for _ in range(self.arguments.connections)]
        before = self.player.cpu_seconds()
        begun = time.perf_counter()
        for i in range(int(self.arguments.rate * self.arguments.seconds)):
            due = begun + i / self.arguments.rate
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            self.late = max(self.late, time.perf_counter() - due)
            self.due.put_nowait(due)
        for _ in workers:
            self.due.put_nowait(None)
        await asyncio.gather(*workers)
        used = self.player.cpu_seconds() - before
        replacing.cancel()
        for text in self.failures[:3]:
            print(text)
        median, p99, longest = 1000 * np.quantile(self.latencies, [0.5, 0.99, 1.0])
        return Load(
            side=self.player.side, patch=self.patch, requests=len(self.latencies), failures=len(self.failures),
            certificates=self.replaced, median=median, p99=p99, longest=longest,
            late=1000 * self.late, cpu_seconds=used,
        )  # fmt: skip

    async def _ready(self) -> None:
        """Until a review is answered with what is recommended."""
        async with asyncio.timeout(60):
            while True:
                self.player.check()
                try:
                    reader, writer = await self._connect()
                except OSError:
                    await asyncio.sleep(0.1)
                    continue
                self.patch = changed(await self._ask(reader, writer))
                writer.close()
                if self.patch:
                    return

    async def _work(self) -> None:
        """One connection after the other, each for some requests."""
        writer: asyncio.StreamWriter | None = None
        sent = 0
        while (due := await self.due.get()) is not None:
            try:
                if writer is None:
                    reader, writer = await self._connect()
                answer = await self._ask(reader, writer)
                assert changed(answer) == self.patch, answer
            except (OSError, AssertionError, asyncio.IncompleteReadError) as error:
                self.failures.append(repr(error))
                writer = None
                continue
            self.latencies.append(time.perf_counter() - due)
            sent += 1
            if sent % REQUESTS_PER_CONNECTION == 0:
                writer.close()
                writer = None
        if writer is not None:
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            "127.0.0.1", self.player.webhook_port, ssl=self.tls, server_hostname="localhost"
        )

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
        writer.write(self.request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert head.startswith("http/1.1 200"), head
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        return msgspec.json.decode(await reader.readexactly(length))

    async def _replace(self) -> None:
        """Another certificate, every two seconds."""
        while True:
            await asyncio.sleep(CERTIFICATE_SECONDS)
            await asyncio.to_thread(self.player.issue_certificate)
            self.replaced += 1


if __name__ == "__main__":
    main()
