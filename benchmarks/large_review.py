"""Small reviews beside a large one at the VPA's webhook: ``PYTHONPATH=tests python benchmarks/large_review.py``.

The webhook is ``kscale run vpa-admission`` as a process, over TLS. Small reviews come when they are due, however long
the ones before take (an open loop), first alone, then while another process sends large reviews one after the other. A
latency counts from when the request was due; the worst one beside large reviews must stay below ``--most`` ms.

This process only sends small reviews. A latency includes the delay with which a review was sent. That delay, and the
time since the review was sent, are printed as well.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import os
import ssl
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Self

import aiohttp
import numpy as np

from hostile.http_server import Api, HostileServer
from hostile.programs import ADMITTED, VPAS, Cluster, Process, within
from kscale.world.clock import SystemClock
from unit.drivers.vpa_world import SERVED, autoscaler, running_pod, workload

JSON = {"Content-Type": "application/json"}
OPTIONS = ("--review-timeout=5m", "--kube-api-max-line-bytes=16777216", "--kube-api-max-response-bytes=268435456")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--containers", type=int, nargs="+", default=[12_000, 40_000], help="of the large reviews")
    parser.add_argument("--rate", type=float, default=50.0, help="small reviews a second")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--most", type=float, default=100.0, help="milliseconds that a small review may take")
    arguments = parser.parse_args()
    gc.disable()  # a pass over what is imported here would count as the webhook's
    with tempfile.TemporaryDirectory() as directory:
        worst = asyncio.run(measure(Path(directory), arguments))
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    assert worst <= arguments.most, f"a small review took {worst:.0f} ms beside a large one"


async def measure(directory: Path, arguments: argparse.Namespace) -> float:
    api = Api(SystemClock(), resources=SERVED)
    cluster = Cluster(api)
    async with HostileServer(api) as server:
        process = Process("vpa-admission", server.url, directory, directory / "no", flags=OPTIONS)
        try:
            if not await cluster.work(process, 120):
                raise RuntimeError(process.said())
            webhook = Webhook(process)
            api.put("replicasets.apps", within(ADMITTED, workload("large")))
            api.put(VPAS, recommended(max(arguments.containers)))
            while not await webhook.patches(2):  # until the watch has brought it
                await asyncio.sleep(0.1)
            await webhook.small(arguments.rate, 1.0, "to begin with")
            await webhook.small(arguments.rate, arguments.seconds, "alone")
            worst = 0.0
            for count in arguments.containers:
                with LargeReviews(process.port, directory / "ca.pem", count) as large:
                    await asyncio.to_thread(large.wait)
                    worst = max(
                        worst, await webhook.small(arguments.rate, arguments.seconds, f"beside {count:,} containers")
                    )
            return worst
        finally:
            process.end()


def recommended(containers: int) -> dict[str, Any]:
    """Return a VPA that recommends and caps something for each container of the large pod."""
    names = [f"c{i}" for i in range(containers)]
    status = [{"containerName": name, "target": {"cpu": "1"}} for name in names]
    policies = [{"containerName": name, "maxAllowed": {"cpu": "300m"}} for name in names]
    vpa = autoscaler(
        "large",
        status={"recommendation": {"containerRecommendations": status}},
        resourcePolicy={"containerPolicies": policies},
        updatePolicy={"updateMode": "Recreate"},
    )
    return within(ADMITTED, vpa)


def review(containers: int) -> bytes:
    pod = within(ADMITTED, running_pod("new", "web" if containers == 1 else "large"))
    pod["spec"]["containers"] = [
        {"name": f"c{i}" if containers > 1 else "c", "resources": {"requests": {"cpu": "100m"}}}
        for i in range(containers)
    ]
    request = {
        "uid": "u", "kind": {"version": "v1", "kind": "Pod"}, "operation": "CREATE", "namespace": ADMITTED,
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "object": pod,
    }  # fmt: skip
    return json.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}).encode()


class Webhook:
    """The webhook of a process."""

    def __init__(self, process: Process) -> None:
        self._url = f"https://127.0.0.1:{process.port}/"
        assert isinstance(process.trusts, ssl.SSLContext)
        self._tls = process.trusts

    async def patches(self, containers: int) -> bool:
        """Whether a review is answered with patches."""
        async with (
            aiohttp.ClientSession() as session,
            session.post(self._url, data=review(containers), ssl=self._tls, headers=JSON) as answer,
        ):
            return b'"patch"' in await answer.read()

    async def small(self, rate: float, seconds: float, label: str) -> float:
        """Send small reviews at a rate; returns the longest time that one took, in milliseconds."""
        body, times, sent, late = review(1), list[float](), list[float](), 0.0

        async def one(session: aiohttp.ClientSession, due: float) -> None:
            begun = time.perf_counter()
            async with session.post(self._url, data=body, ssl=self._tls, headers=JSON) as answer:
                assert b'"patch"' in await answer.read()
            now = time.perf_counter()
            times.append(1000 * (now - due))
            sent.append(1000 * (now - begun))

        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
            begun = time.perf_counter()
            for i in range(int(rate * seconds)):
                due = begun + i / rate
                if (wait := due - time.perf_counter()) > 0:
                    await asyncio.sleep(wait)
                late = max(late, time.perf_counter() - due)
                tasks.create_task(one(session, due))
        median, p99, worst = np.quantile(times, [0.5, 0.99, 1.0])
        print(
            f"{len(times)} small reviews {label}: median {median:.1f} ms, p99 {p99:.1f}, worst {worst:.1f} "
            f"(the load itself late by up to {1000 * late:.1f}; since sent: p99 {np.quantile(sent, 0.99):.1f}, "
            f"worst {max(sent):.1f})",
            flush=True,
        )
        return float(worst)


class LargeReviews:
    """A process that sends large reviews one after the other while the context is open."""

    def __init__(self, port: int, authority: Path, containers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._begun, self._stop = context.Event(), context.Event()
        self._process = context.Process(
            target=send_large, args=(port, str(authority), containers, self._begun, self._stop), daemon=True
        )

    def wait(self) -> None:
        """Wait until the first review is about to be sent."""
        if not self._begun.wait(60):
            raise RuntimeError("the process that sends large reviews did not begin")

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._process.join()
        if error == (None, None, None) and self._process.exitcode:
            raise RuntimeError(f"the process that sends large reviews ended with {self._process.exitcode}")


def send_large(port: int, authority: str, containers: int, begun: threading.Event, stop: threading.Event) -> None:
    """Send large reviews until ``stop`` is set. Runs in a process of its own."""
    body, tls = review(containers), ssl.create_default_context(cafile=authority)
    asyncio.run(send_each(f"https://127.0.0.1:{port}/", body, tls, f"{containers:,} containers", begun, stop))


async def send_each(
    url: str, body: bytes, tls: ssl.SSLContext, label: str, begun: threading.Event, stop: threading.Event
) -> None:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as session:
        begun.set()
        while not stop.is_set():
            start = time.perf_counter()
            async with session.post(url, data=body, ssl=tls, headers=JSON) as answer:
                text = await answer.read()
            assert b'"patch"' in text, text[:1000]
            print(f"  {label}: {len(text):,} bytes after {time.perf_counter() - start:.2f} s", flush=True)


if __name__ == "__main__":
    main()
