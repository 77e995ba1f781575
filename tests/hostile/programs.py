"""The five programs as processes, and how one sees that each does its work."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import aiohttp

from hostile.http_server import COMMAND, Api
from kscale.effects import to_text
from unit.drivers.vpa_world import autoscaler, meta, running_pod, workload

__all__ = ["PROGRAMS", "REQUEST_TIMEOUT", "Cluster", "Process", "free_port", "write_kubeconfig"]

Object = dict[str, Any]
VPAS: Final = "verticalpodautoscalers.autoscaling.k8s.io"
HPAS: Final = "horizontalpodautoscalers.autoscaling"
METRICS: Final = "pods.metrics.k8s.io"
HPA_SPACE, RECOMMENDED, UPDATED, ADMITTED = "hpa", "recommended", "updated", "admitted"
REQUEST_TIMEOUT: Final = 5
"""Seconds that a program waits for a response of the server."""
LIMITS: Final = (
    "--kube-api-max-response-bytes=8388608", "--kube-api-max-buffered-bytes=16777216",
    "--kube-api-max-line-bytes=1048576", f"--kube-api-request-timeout={REQUEST_TIMEOUT}s",
    "--kube-api-max-retry-after=2s",
)  # fmt: skip
PROGRAMS: Final[dict[str, tuple[str, ...]]] = {
    "cluster-autoscaler": (
        "--cloud-provider=kwok", "--scan-interval=1s", "--scale-down-enabled=false", "--new-pod-scale-up-delay=0s",
        "--kube-client-qps=-1", "--namespace=kube-system",
        # A failed write lets the group back off; the next scale-up must not wait for five minutes.
        "--initial-node-group-backoff-duration=1s", "--max-node-group-backoff-duration=1s",
    ),
    "horizontal": ("--horizontal-pod-autoscaler-sync-period=1s", "--kube-api-qps=-1"),
    "vpa-recommender": (
        "--recommender-interval=1s", f"--vpa-object-namespace={RECOMMENDED}", "--kube-api-qps=-1",
    ),
    "vpa-updater": (
        "--updater-interval=1s", f"--vpa-object-namespace={UPDATED}", "--use-admission-controller-status=false",
        "--kube-api-qps=-1", "--eviction-rate-limit=-1",
    ),
    "vpa-admission": (
        f"--vpa-object-namespace={ADMITTED}", "--register-webhook=false", "--kube-api-qps=-1",
    ),
}  # fmt: skip
AGENTS: Final = {
    "cluster-autoscaler": "cluster-autoscaler", "horizontal": "kscale-horizontal-pod-autoscaler",
    "vpa-recommender": "vpa-recommender", "vpa-updater": "vpa-updater", "vpa-admission": "vpa-admission-controller",
}  # fmt: skip
"""The user agent of each program."""
_KWOK: Final = """readNodesFrom: configmap
configmap: {name: kwok-templates}
nodegroups: {fromNodeLabelKey: pool}
nodes: {skipTaint: true}
"""


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def write_kubeconfig(url: str, directory: Path, command: str = "", ca: Path | None = None) -> Path:
    """Write a kubeconfig for the programs, or for a command, which the server knows by its path."""
    cluster = {"server": f"{url}{COMMAND}{command}" if command else url}
    if ca is not None:
        cluster["certificate-authority"] = str(ca)
    config = {
        "kind": "Config", "apiVersion": "v1", "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }  # fmt: skip
    path = directory / f"kubeconfig-{command or 'programs'}.json"
    path.write_text(json.dumps(config))
    return path


def within(space: str, obj: Object) -> Object:
    """An object of the VPA's world in another namespace."""
    return {**obj, "metadata": {**obj["metadata"], "namespace": space}}


class Cluster:
    """What is in the API server, and the work that each program is given."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._number = 0
        put = api.put
        for space in ("kube-system", HPA_SPACE, RECOMMENDED, UPDATED, ADMITTED, "default"):
            put("namespaces", {"metadata": {"name": space}})
        self.now = to_text(api.clock.now() - 3600 * 10**9)
        put("nodes", self.build_node("n", {}))
        template = {"kind": "Node", "apiVersion": "v1", **self.build_node("template", {"pool": "pool"})}
        texts = {
            "kwok-provider-config": {"config": _KWOK},
            "kwok-templates": {"templates": json.dumps({"items": [template]})},
        }
        for name, data in texts.items():
            put("configmaps", {"metadata": {"name": name, "namespace": "kube-system"}, "data": data})
        put("deployments.apps", within(HPA_SPACE, workload("web", 2, kind="Deployment")))
        for i in range(2):
            self._pod(HPA_SPACE, f"web-{i}", "web")
        target = {"kind": "Deployment", "apiVersion": "apps/v1", "name": "web"}
        rules = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 1000, "periodSeconds": 1}]}
        utilization = {"type": "Utilization", "averageUtilization": 50}
        spec = {
            "scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 10, "behavior": {"scaleUp": rules},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": utilization}}],
        }  # fmt: skip
        put(HPAS, {"metadata": {"name": "web", "namespace": HPA_SPACE}, "spec": spec})
        for space in (RECOMMENDED, UPDATED, ADMITTED):
            put("replicasets.apps", within(space, workload("web")))
            for i in range(2):
                self._pod(space, f"web-{i}", "web")
        put(VPAS, within(RECOMMENDED, autoscaler("web")))
        put(
            VPAS,
            within(UPDATED, autoscaler("web", status=_recommendation("900m"), updatePolicy={"updateMode": "Recreate"})),
        )
        put(
            VPAS,
            within(ADMITTED, autoscaler("web", status=_recommendation("1m"), updatePolicy={"updateMode": "Recreate"})),
        )

    def build_node(self, name: str, labels: dict[str, str]) -> Object:
        room = {"cpu": "2", "memory": "8Gi", "pods": "110"}
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": self.now, "lastHeartbeatTime": self.now}
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
        return {"metadata": metadata, "status": {"allocatable": room, "capacity": room, "conditions": [ready]}}

    def _pod(self, space: str, name: str, app: str) -> None:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": self.now}
        pod = within(space, running_pod(name, app, status={"startTime": self.now, "conditions": [ready]}))
        self.api.put("pods", pod)
        usage = [{"name": "c", "usage": {"cpu": "100m", "memory": "100Mi"}}]
        metadata = {**meta(name, labels={"app": app}), "namespace": space}
        item = {"metadata": metadata, "timestamp": self.now, "window": "30s", "containers": usage}
        self.api.put(METRICS, item)

    # -- work: what is asked for, and what shows that it was done --------------------------------------------------

    async def work(self, program: Process, seconds: float) -> bool:
        """Give a program something to do; whether it did it in time."""
        self._number += 1
        give: Callable[[int], Callable[[], Any]] = {
            "cluster-autoscaler": self._scale_up,
            "horizontal": self._resize,
            "vpa-recommender": self._recommend,
            "vpa-updater": self._evict,
            "vpa-admission": lambda number: self._review(number, program),
        }[program.name]
        done = give(self._number)
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end and program.alive:
            result = done()
            if await result if isinstance(result, Awaitable) else result:
                self._clean(program.name)
                return True
            await asyncio.sleep(0.05)
        self._clean(program.name)
        return False

    def _scale_up(self, number: int) -> Callable[[], bool]:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "lastTransitionTime": self.now,
        }
        pod = running_pod(
            f"pending-{number}", "batch", cpu="1500m", phase="Pending", status={"conditions": [condition]}
        )
        pod = within("default", pod)
        del pod["spec"]["nodeName"]
        pod["spec"]["nodeSelector"] = {"pool": "pool"}
        self.api.put("pods", pod)
        return lambda: any(each["metadata"]["labels"].get("pool") for each in self._raw("nodes"))

    def _resize(self, number: int) -> Callable[[], bool]:
        deployment = self.api.get("deployments.apps", "web", HPA_SPACE)
        deployment["spec"]["replicas"] = 2
        self.api.put("deployments.apps", deployment)
        return lambda: self.api.get("deployments.apps", "web", HPA_SPACE)["spec"]["replicas"] == 4

    def _recommend(self, number: int) -> Callable[[], bool]:
        vpa = self.api.get(VPAS, "web", RECOMMENDED)
        vpa.pop("status", None)
        self.api.put(VPAS, vpa)
        return lambda: bool(self.api.get(VPAS, "web", RECOMMENDED).get("status", {}).get("recommendation"))

    def _evict(self, number: int) -> Callable[[], bool]:
        for old in [each for each in self._raw("pods") if each["metadata"].get("namespace") == UPDATED]:
            self.api.drop("pods", old["metadata"]["name"], UPDATED)
        names = {f"web-{number}-{i}" for i in range(2)}
        for name in sorted(names):
            self._pod(UPDATED, name, "web")
        self.api.put(VPAS, self.api.get(VPAS, "web", UPDATED))
        return lambda: not names <= {each["metadata"]["name"] for each in self._raw("pods")}

    def _review(self, number: int, program: Process) -> Callable[[], Awaitable[bool]]:
        """The webhook knows the newest recommendation."""
        vpa = self.api.get(VPAS, "web", ADMITTED)
        cpu = f"{2 * number + 1}m"  # odd, because 1000m is written as 1
        vpa["status"] = _recommendation(cpu)
        self.api.put(VPAS, vpa)
        pod = within(ADMITTED, running_pod("new", "web"))
        request = {
            "uid": f"{number}", "kind": {"version": "v1", "kind": "Pod"}, "operation": "CREATE", "namespace": ADMITTED,
            "resource": {"group": "", "version": "v1", "resource": "pods"}, "object": pod,
        }  # fmt: skip
        review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}

        async def answered() -> bool:
            try:
                timeout = aiohttp.ClientTimeout(total=5)
                async with aiohttp.ClientSession(timeout=timeout) as session:
                    url = f"https://127.0.0.1:{program.port}/"
                    async with session.post(url, json=review, ssl=program.trusts) as answer:
                        patch = base64.b64decode((await answer.json())["response"].get("patch") or "")
            except (aiohttp.ClientError, OSError, TimeoutError):
                return False
            return f'"{cpu}"'.encode() in patch

        return answered

    def _clean(self, program: str) -> None:
        if program == "cluster-autoscaler":
            for each in [each for each in self._raw("nodes") if each["metadata"]["labels"].get("pool")]:
                self.api.drop("nodes", each["metadata"]["name"])
            for each in [each for each in self._raw("pods") if each["metadata"]["name"].startswith("pending-")]:
                self.api.drop("pods", each["metadata"]["name"], "default")
        for each in self._raw("events"):
            self.api.drop("events", each["metadata"]["name"], each["metadata"]["namespace"])

    def _raw(self, plural: str) -> list[Object]:
        return list(self.api.kinds.get(plural, {}).values())


def _recommendation(cpu: str) -> Object:
    amounts = {"target": {"cpu": cpu}, "lowerBound": {"cpu": cpu}, "upperBound": {"cpu": cpu}}
    return {"recommendation": {"containerRecommendations": [{"containerName": "c", **amounts}]}}


def _port(address: str) -> int:
    """Return the port of an address in ``/proc/net/tcp``."""
    return int(address.rpartition(":")[2], 16)


class Process:
    """One program."""

    def __init__(
        self, name: str, url: str, directory: Path, clock: Path, ca: Path | None = None, flags: tuple[str, ...] = ()
    ) -> None:
        self.name, self.agent = name, AGENTS[name]
        self.log = directory / f"{name}.log"
        self.port, self.metrics_port = free_port(), free_port()
        self.trusts: ssl.SSLContext | bool = False
        kubeconfig = write_kubeconfig(url, directory, ca=ca)
        words = [
            *PROGRAMS[name],
            *LIMITS,
            *flags,
            f"--kubeconfig={kubeconfig}",
            f"--address=127.0.0.1:{self.metrics_port}",
        ]
        if name == "vpa-admission":
            words += [f"--port={self.port}", *self._certificate(directory)]
        else:
            words.append("--leader-elect=false")
        script = Path(__file__).with_name("program.py")
        environ = {
            **os.environ,
            "HOSTILE_CLOCK": str(clock),
            "POD_NAMESPACE": "kube-system",
            "OMP_NUM_THREADS": "1",
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(script), "run", name, *words], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env=environ,
            )  # fmt: skip
        self.baseline = 0
        self.highest = 0

    def _certificate(self, directory: Path) -> list[str]:
        import trustme

        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1")
        files = {"ca": directory / "ca.pem", "cert": directory / "cert.pem", "key": directory / "key.pem"}
        authority.cert_pem.write_to_path(files["ca"])
        certificate.cert_chain_pems[0].write_to_path(files["cert"])
        certificate.private_key_pem.write_to_path(files["key"])
        self.trusts = ssl.create_default_context(cafile=str(files["ca"]))
        return [
            f"--client-ca-file={files['ca']}", f"--tls-cert-file={files['cert']}", f"--tls-private-key={files['key']}"
        ]  # fmt: skip

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        return self._process.poll()

    def measured(self) -> int:
        """Its memory in bytes now, which is remembered if it is the highest so far."""
        try:
            text = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return 0
        kib = next((line.split()[1] for line in text.splitlines() if line.startswith("VmRSS:")), "0")
        self.highest = max(self.highest, int(kib) << 10)
        return int(kib) << 10

    def handles(self) -> tuple[Counter[str], Counter[str]]:
        """Return the program's threads by name and its open files by kind. Threads of one pool share a name."""
        process = Path(f"/proc/{self._process.pid}")
        threads, files = Counter[str](), Counter[str]()
        peers = {}
        for line in (process / "net" / "tcp").read_text().splitlines()[1:]:
            _, local, remote, *rest = line.split()
            # A listening socket, a request to one of its ports, or a connection to the server.
            own = _port(local) in (self.port, self.metrics_port)
            peers[rest[6]] = f"of port {_port(local)}" if own else f"to port {_port(remote)}"
        for each in (process / "task").iterdir():
            with suppress(OSError):  # it has ended meanwhile
                threads[re.sub(r"[\d_-]+$", "", (each / "comm").read_text().strip())] += 1
        for each in (process / "fd").iterdir():
            with suppress(OSError):
                target = os.readlink(each)
                inode = target.removeprefix("socket:[").removesuffix("]")
                files[f"socket {peers[inode]}" if inode in peers else re.sub(r"\d+", "", target)] += 1
        return threads, files

    async def counters(self) -> dict[str, float]:
        """The sums of its counters, by name."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self.metrics_port}/metrics") as answer,
        ):
            text = await answer.text()
        sums: dict[str, float] = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                name = name.partition("{")[0]
                sums[name] = sums.get(name, 0.0) + float(value)
        return sums

    async def last_loop(self) -> float:
        """Return when a loop of the cluster autoscaler last began; 0 if that is not known."""
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
                session.get(f"http://127.0.0.1:{self.metrics_port}/metrics") as answer,
            ):
                text = await answer.text()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return 0.0
        line = re.search(r'^cluster_autoscaler_last_activity\{activity="main"\} (\S+)$', text, re.MULTILINE)
        return float(line[1]) if line else 0.0

    def end(self) -> None:
        if self.alive:
            self._process.kill()
        self._process.wait()

    def output(self, most: int = 2000) -> str:
        return self.log.read_text(errors="replace")[-most:]
