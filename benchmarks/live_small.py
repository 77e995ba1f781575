"""CPU time of the live programs on a small cluster: until each leads, and per minute afterwards.

``PYTHONPATH=tests python benchmarks/live_small.py`` measures the programs of this tree. ``--source FOLDER`` (the
``src`` of another checkout with its kernels, repeatable) measures these, one after the other. The API server is the
fake one of the tests, over TLS, with 10 nodes, 100 pods, 5 HPAs and 15 VPAs. Every five seconds a pod is replaced and
a node sends a heartbeat. Flags are the defaults, so the programs use the periods that they have in a cluster.
``--short`` has loops every second or two instead, as in the tests beside upstream's programs.

``--upstream FOLDER``: on a real control plane (built with Go), the programs of FOLDER and of this tree, one side after
the other, with their memory.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import ssl
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp
import trustme

from e2e.control_plane import ControlPlane
from e2e.duel.programs import Player
from e2e.metrics_server import FakeMetrics
from hostile.http_server import Api, HostileServer
from hostile.programs import HPAS, METRICS, VPAS, free_port
from kscale.drivers.manifests.autoscalers import vpa_definitions
from kscale.effects import to_text
from kscale.world.clock import SystemClock
from kscale.world.kubernetes.resources import EVERYWHERE
from kscale.world.protocols import Clock
from unit.drivers.vpa_world import SERVED, autoscaler, running_pod, workload

HERE: Final = Path(__file__).parent
NODES: Final = 10
APPS: Final = 5
PODS: Final = 5
"""Pods of each app; each kind of program has apps of its own."""
LEASES: Final = "leases.coordination.k8s.io"
TURN: Final = 5.0
"""Seconds from one change of the cluster to the next."""
PROGRAMS: Final[dict[str, tuple[str, ...]]] = {
    "cluster-autoscaler": ("--cloud-provider=kwok", "--namespace=kube-system"),
    "horizontal": (),
    "vpa-recommender": ("--vpa-object-namespace=recommended", "--leader-elect=true"),
    "vpa-updater": ("--vpa-object-namespace=updated", "--leader-elect=true"),
    "vpa-admission": ("--vpa-object-namespace=admitted", "--register-webhook=false"),
}
SHORT: Final[dict[str, tuple[str, ...]]] = {
    "cluster-autoscaler": ("--scan-interval=1s",),
    "horizontal": ("--horizontal-pod-autoscaler-sync-period=2s",),
    "vpa-recommender": ("--recommender-interval=1s",),
    "vpa-updater": ("--updater-interval=2s",),
    "vpa-admission": ("--status-lease-update-interval=2s",),
}
_KWOK: Final = """readNodesFrom: configmap
configmap: {name: kwok-templates}
nodegroups: {fromNodeLabelKey: pool}
nodes: {skipTaint: true}
"""
_TARGET: Final = {"target": {"cpu": "100m"}, "lowerBound": {"cpu": "50m"}, "upperBound": {"cpu": "200m"}}
_RECOMMENDATION: Final = {"recommendation": {"containerRecommendations": [{"containerName": "c", **_TARGET}]}}


class Objects(Protocol):
    """The objects of an API server, by plural and group of their kind."""

    @property
    def clock(self) -> Clock: ...

    def put(self, plural: str, obj: Any, /) -> Any: ...
    def drop(self, plural: str, name: str, namespace: str = "", /) -> Any: ...
    def get(self, plural: str, name: str, namespace: str = "", /) -> Any: ...
    def all(self, plural: str, /) -> Any: ...


class PlaneObjects:
    """The objects of a control plane, which :meth:`put` writes into etcd, since nobody needs to check them."""

    def __init__(self, plane: ControlPlane) -> None:
        self.clock, self._plane = SystemClock(), plane
        self._kinds = {each.group_resource: each for each in EVERYWHERE}

    def put(self, plural: str, obj: Any) -> None:
        if plural == METRICS:
            return  # FakeMetrics tells the usage of every pod
        kind, metadata = self._kinds[plural], obj["metadata"]
        place = {"nodes": "minions"}.get(plural, f"{kind.group}/{kind.name}" if "." in kind.group else kind.name)
        created = {"uid": str(uuid.uuid4()), "creationTimestamp": to_text(self.clock.now()), **metadata}
        created.pop("resourceVersion", None)
        stored = {"apiVersion": kind.api_version, "kind": kind.kind, **obj, "metadata": created}
        name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
        self._plane.store([(f"{place}/{name}", stored)])

    def drop(self, plural: str, name: str, namespace: str = "") -> None:
        if plural != METRICS:
            self._plane.ask("DELETE", f"{self._path(plural, namespace)}/{name}?gracePeriodSeconds=0")

    def get(self, plural: str, name: str, namespace: str = "") -> Any:
        return self._plane.ask("GET", f"{self._path(plural, namespace)}/{name}")

    def all(self, plural: str) -> Any:
        return self._plane.ask("GET", self._path(plural))["items"]

    def _path(self, plural: str, namespace: str = "") -> str:
        kind = self._kinds[plural]
        space = f"/namespaces/{namespace}" if namespace else ""
        return f"/{'apis' if kind.group else 'api'}/{kind.api_version}{space}/{kind.name}"


class Cluster:
    """The objects of the small cluster, and its changes."""

    def __init__(self, api: Objects) -> None:
        self.api, self._numbers = api, itertools.count()
        for space in ("kube-system", "default", "hpa", "recommended", "updated", "admitted"):
            api.put("namespaces", {"metadata": {"name": space}})
        self._began = to_text(api.clock.now() - 3600 * 10**9)
        template = {"kind": "Node", "apiVersion": "v1", **self._node("template")}
        template["metadata"]["annotations"] = {"made": "by hand"}  # upstream's provider fails without any
        texts = {
            "kwok-provider-config": {"config": _KWOK},
            "kwok-templates": {"templates": json.dumps({"apiVersion": "v1", "kind": "List", "items": [template]})},
        }
        for name, data in texts.items():
            api.put("configmaps", {"metadata": {"name": name, "namespace": "kube-system"}, "data": data})
        for i in range(NODES):
            api.put("nodes", self._node(f"node-{i}"))
        self._pods = [
            self._pod(space, f"app-{i}")
            for space in ("hpa", "recommended", "updated", "admitted")
            for i in range(APPS)
            for _ in range(PODS)
        ]
        for i in range(APPS):
            name = f"app-{i}"
            deployment = workload(name, PODS, kind="Deployment")
            api.put("deployments.apps", {**deployment, "metadata": {"name": name, "namespace": "hpa"}})
            target = {"kind": "Deployment", "apiVersion": "apps/v1", "name": name}
            usage = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 100}}
            metrics = [{"type": "Resource", "resource": usage}]
            spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 10, "metrics": metrics}
            api.put(HPAS, {"metadata": {"name": name, "namespace": "hpa"}, "spec": spec})
            for space in ("recommended", "updated", "admitted"):
                replica_set = workload(name, PODS)
                api.put("replicasets.apps", {**replica_set, "metadata": {"name": name, "namespace": space}})
                vpa = autoscaler(name, updatePolicy={"updateMode": "Recreate"})
                vpa["metadata"]["namespace"] = space
                api.put(VPAS, vpa if space == "recommended" else {**vpa, "status": _RECOMMENDATION})

    def _node(self, name: str) -> dict[str, Any]:
        room = {"cpu": "4", "memory": "16Gi", "pods": "110"}
        ready = {
            "type": "Ready", "status": "True", "lastTransitionTime": self._began, "lastHeartbeatTime": self._began,
        }  # fmt: skip
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, "pool": "pool"}}
        return {"metadata": metadata, "status": {"allocatable": room, "capacity": room, "conditions": [ready]}}

    def _pod(self, space: str, app: str) -> tuple[str, str, str]:
        number = next(self._numbers)
        name = f"{app}-{number}"
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": self._began}
        pod = running_pod(name, app, status={"startTime": self._began, "conditions": [ready]})
        pod["metadata"]["namespace"] = space
        pod["spec"]["nodeName"] = f"node-{number % NODES}"
        self.api.put("pods", pod)
        usage = [{"name": "c", "usage": {"cpu": "100m", "memory": "50Mi"}}]
        metadata = {"name": name, "namespace": space, "labels": {"app": app}}
        self.api.put(METRICS, {"metadata": metadata, "timestamp": "", "window": "30s", "containers": usage})
        return space, app, name

    def change(self) -> None:
        """Replace a pod, and send the heartbeat of a node."""
        space, app, name = self._pods.pop(0)
        self.api.drop("pods", name, space)
        self.api.drop(METRICS, name, space)
        self._pods.append(self._pod(space, app))
        node = self.api.get("nodes", f"node-{next(self._numbers) % NODES}")
        node["status"]["conditions"][0]["lastHeartbeatTime"] = to_text(self.api.clock.now())
        self.api.put("nodes", node)

    def holders(self) -> set[str]:
        """Return the names of leases that somebody holds."""
        return {each["metadata"]["name"] for each in self.api.all(LEASES) if each["spec"].get("holderIdentity")}

    def check(self) -> None:
        """Check that the programs did their work."""
        statuses = [each.get("status", {}) for each in self.api.all(HPAS)]
        assert [each.get("desiredReplicas") for each in statuses] == [PODS] * APPS, statuses
        recommended = [each for each in self.api.all(VPAS) if each["metadata"]["namespace"] == "recommended"]
        assert all(each.get("status", {}).get("recommendation") for each in recommended), recommended
        status = self.api.get("configmaps", "cluster-autoscaler-status", "kube-system")["data"]["status"]
        assert "autoscalerStatus: Running" in status, status


class Process:
    """A program of one tree."""

    def __init__(self, name: str, source: Path, url: str, directory: Path, flags: Sequence[str]) -> None:
        self.name, self.log = name, directory / f"{name}.log"
        config = {
            "kind": "Config", "apiVersion": "v1", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": url, "certificate-authority": str(directory / "ca.pem")}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }  # fmt: skip
        kubeconfig = directory / "kubeconfig.json"
        kubeconfig.write_text(json.dumps(config))
        self.port = free_port()
        words = [*PROGRAMS[name], *flags, f"--kubeconfig={kubeconfig}", f"--address=127.0.0.1:{free_port()}"]
        if name == "vpa-admission":
            pem = directory / "server.pem"
            words += [f"--port={self.port}", f"--client-ca-file={directory / 'ca.pem'}"]
            words += [f"--tls-cert-file={pem}", f"--tls-private-key={pem}"]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"PYTHONPATH": str(source), "POD_NAMESPACE": "kube-system", "NAMESPACE": "kube-system"}
        code = "import sys; from kscale.cli import main; sys.exit(main())"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, "run", name, *words],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment,
            )  # fmt: skip

    def cpu_seconds(self) -> float:
        if (code := self._process.poll()) is not None:
            raise RuntimeError(f"{self.name} ended with {code}:\n{self.log.read_text()[-3000:]}")
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


async def listens(port: int) -> bool:
    """Return whether the webhook listens."""
    with suppress(aiohttp.ClientError, OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        return True
    return False


async def measure(
    source: Path, programs: Sequence[str], *, starts: int, seconds: float, short: bool
) -> dict[str, tuple[float, float]]:
    """Return the CPU seconds of each program until it leads (the minimum of some starts), and per minute afterwards."""
    authority = trustme.CA()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        authority.cert_pem.write_to_path(str(directory / "ca.pem"))
        issued = authority.issue_cert("127.0.0.1", "localhost")
        issued.private_key_and_cert_chain_pem.write_to_path(str(directory / "server.pem"))
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        issued.configure_cert(tls)
        cluster = Cluster(Api(SystemClock(), resources=SERVED))
        processes: dict[str, Process] = {}
        first: dict[str, list[float]] = {name: [] for name in programs}
        async with HostileServer(cluster.api) as server, await server.listen(tls) as listener:
            url = f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
            try:
                for name, last in itertools.product(programs, [False] * (starts - 1) + [True]):
                    for lease in list(cluster.api.all(LEASES)):
                        if not any(each in lease["metadata"]["name"] for each in processes):
                            cluster.api.drop(LEASES, lease["metadata"]["name"], "kube-system")
                    before = cluster.holders()
                    process = Process(name, source, url, directory, SHORT[name] if short else ())
                    try:
                        while not (
                            await listens(process.port) if name == "vpa-admission" else cluster.holders() - before
                        ):
                            process.cpu_seconds()
                            await asyncio.sleep(0.005)
                        first[name].append(process.cpu_seconds())
                        await asyncio.sleep(2 if last else 0)  # until the first work is done
                    finally:
                        if last:
                            processes[name] = process
                        else:
                            process.end()
                await asyncio.sleep(20)  # first loops, and what a program does once
                spent = {name: process.cpu_seconds() for name, process in processes.items()}
                for _ in range(round(seconds / TURN)):
                    cluster.change()
                    await asyncio.sleep(TURN)
                spent = {name: process.cpu_seconds() - spent[name] for name, process in processes.items()}
                if set(programs) == set(PROGRAMS):
                    cluster.check()
            finally:
                for process in processes.values():
                    process.end()
    minutes = round(seconds / TURN) * TURN / 60
    return {name: (min(first[name]), spent[name] / minutes) for name in programs}


def measure_beside(binaries: Path, programs: Sequence[str], *, starts: int, seconds: float, short: bool) -> None:
    """Print CPU and memory of upstream's programs and of this tree's on a control plane, one side after the other."""
    for side in (binaries, None):
        with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as plane:
            # What the kwok provider reads.
            os.environ |= {"POD_NAMESPACE": "kube-system", "KWOK_PROVIDER_MODE": "local"}
            os.environ["KUBECONFIG"] = str(plane.kubeconfig)
            plane.define(*vpa_definitions())
            cluster = Cluster(PlaneObjects(plane))
            figures = asyncio.run(
                _measure_side(plane, cluster, side, programs, starts=starts, seconds=seconds, short=short)
            )
        print(f"{'upstream' if side else 'kscale'}, load average {os.getloadavg()[0]:.1f}")
        for name, text in figures.items():
            print(f"  {name:20} {text}", flush=True)


async def _measure_side(
    plane: ControlPlane,
    cluster: Cluster,
    side: Path | None,
    programs: Sequence[str],
    *,
    starts: int,
    seconds: float,
    short: bool,
) -> dict[str, str]:
    players: dict[str, Player] = {}
    first: dict[str, float] = {}
    usage = {"cpu": "100m", "memory": "50Mi"}
    async with FakeMetrics(plane, lambda *_: usage) as metrics:
        metrics.now = lambda: to_text(SystemClock().now())
        try:
            for name in programs:
                flags = [*PROGRAMS[name], *(SHORT[name] if short else ()), *(("--v=0",) if side else ())]
                players[name] = player = await asyncio.to_thread(Player, name, plane, side, flags, plain=True)
                before = await asyncio.to_thread(cluster.holders)
                for start in range(starts):
                    player.start()
                    while not (
                        await listens(player.webhook_port)
                        if name == "vpa-admission"
                        else await asyncio.to_thread(cluster.holders) - before
                    ):
                        player.check()
                        await asyncio.sleep(0.005)
                    first[name] = min(first.get(name, float("inf")), player.cpu_seconds())
                    if start + 1 < starts:
                        player.kill()
                        for lease in await asyncio.to_thread(cluster.holders) - before:
                            await asyncio.to_thread(cluster.api.drop, LEASES, lease, "kube-system")
            await asyncio.sleep(25)  # first loops, and what a program does once
            spent = {name: player.cpu_seconds() for name, player in players.items()}
            for _ in range(round(seconds / TURN)):
                await asyncio.to_thread(cluster.change)
                await asyncio.sleep(TURN)
            for player in players.values():
                player.check()
            minutes = round(seconds / TURN) * TURN / 60
            figures = {}
            for name, player in players.items():
                steady = (player.cpu_seconds() - spent[name]) / minutes
                resident, anonymous, peak = map(player.memory, ("VmRSS", "RssAnon", "VmHWM"))
                figures[name] = (
                    f"leads after {first[name]:.2f} s of CPU, {spent[name]:.2f} s after 25 s, then {steady:.2f} s per "
                    f"minute; {resident:.0f} MiB ({anonymous:.0f} anonymous), peak {peak:.0f}"
                )
            if set(programs) == set(PROGRAMS):
                await asyncio.to_thread(cluster.check)
        finally:
            for player in players.values():
                player.kill()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, action="append", help="the src folder of a checkout; default: this one")
    parser.add_argument("--program", action="append", choices=[*PROGRAMS], help="default: all")
    parser.add_argument("--starts", type=int, default=3, help="starts of each program; the minimum is printed")
    parser.add_argument("--short", action="store_true", help="loops every second or two")
    parser.add_argument("--seconds", type=float, default=120.0, help="that the steady state is measured")
    parser.add_argument("--upstream", type=Path, help="folder of upstream's programs, measured beside this tree's")
    options = parser.parse_args()
    if options.upstream:
        programs = options.program or [*PROGRAMS]
        measure_beside(options.upstream, programs, starts=options.starts, seconds=options.seconds, short=options.short)
        return
    for source in options.source or [HERE.parent / "src"]:
        programs = options.program or [*PROGRAMS]
        figures = asyncio.run(
            measure(source, programs, starts=options.starts, seconds=options.seconds, short=options.short)
        )
        print(f"{source}, load average {os.getloadavg()[0]:.1f}")
        for name, (start, steady) in figures.items():
            print(f"  {name:20} leads after {start:.2f} s of CPU, then {steady:.2f} s of CPU per minute", flush=True)


if __name__ == "__main__":
    main()
