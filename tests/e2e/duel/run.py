"""Runs a case once, with upstream's binary or with kscale, on a control plane of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from e2e.cloud import FakeCloud
from e2e.control_plane import ControlPlane, free_ports
from e2e.duel.case import Case, Step, Until
from e2e.duel.facts import CloudCall, EventSeen, Log, changes_of, plain
from e2e.kubelet import FakeKubelet
from e2e.real_api import MERGE, SERVED, connected
from kscale.drivers.manifests import cluster_autoscaler_roles
from kscale.world.nodegroups.external_server import ExternalServer

__all__ = ["FLAGS", "StuckError", "run_case"]

FLAGS = (
    "--cloud-provider=externalgrpc", "--scan-interval=1s", "--scale-down-unneeded-time=5s",
    "--scale-down-delay-after-add=3s", "--scale-down-delay-after-delete=0s", "--node-delete-delay-after-taint=1s",
    "--new-pod-scale-up-delay=0s", "--expander=least-waste", "--v=4",
)  # fmt: skip
"""Of every case; a case may say the same flag again."""
USER = "duellist"
STATUS = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"
COMPONENT = "cluster-autoscaler"
SHOWN = ("nodes", "pods", "configmaps", "statefulsets.apps", "deployments.apps", "poddisruptionbudgets.policy")
NOT_OURS = (
    "kube-root-ca.crt", "extension-apiserver-authentication", "kube-apiserver-legacy-service-account-token-tracking"
)  # fmt: skip
_BY_KIND = {served.kind: served for served in SERVED.values()}


class StuckError(RuntimeError):
    """A step did not come to its end."""


def run_case(case: Case, directory: Path, upstream: Path | None = None) -> Log:
    """Runs ``upstream``, a Cluster Autoscaler's binary, else kscale. ``directory`` gets the logs of all programs."""
    with ControlPlane(directory, scheduler=True, controllers=True, audit=True) as plane:
        return asyncio.run(_Run(case, plane, upstream).run())


class _Run:
    def __init__(self, case: Case, plane: ControlPlane, upstream: Path | None) -> None:
        self.case, self.plane, self.upstream = case, plane, upstream
        self.cloud = FakeCloud(plane, *(group.machines() for group in case.groups))
        self.calls: list[CloudCall] = []
        self.left = [rule.times for rule in case.refuse]
        self.begun = time.monotonic()
        self.log = plane.directory / "log" / "autoscaler.log"

    async def run(self) -> Log:
        for group in self.case.groups:
            if group.start:
                await asyncio.to_thread(self.cloud.start, group.name, group.start)
        self.cloud.refuse = self._called
        async with connected(self.plane) as api:
            kubelet = asyncio.create_task(FakeKubelet(api.client, api.clock).run())
            await self._create(self.case.objects)
            with (
                ExternalServer(self.cloud, "127.0.0.1:0") as server,
                self._expander() as flags,
                self._autoscaler(server.url, flags) as process,
            ):
                self.process = process
                for step in self.case.steps:
                    await self._step(step)
                await asyncio.sleep(self.case.rest)
                status = (await self._ask("GET", STATUS))["data"]["status"]
                process.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(process.wait, 30) == 0
            kubelet.cancel()
            await asyncio.wait([kubelet])
        self.cloud.close()
        return Log(
            case=self.case.name,
            side="upstream" if self.upstream else "kscale",
            version=self._version(),
            seconds=round(time.monotonic() - self.begun, 1),
            calls=self.calls,
            changes=changes_of(self.plane.audit(), USER),
            events=sorted(await self._events(), key=lambda event: (event.about, event.reason, event.message)),
            objects=await self._objects(),
            status=status,
        )

    def _called(self, call: tuple[Any, ...]) -> str:
        what, group, *rest = call
        refusal = ""
        for i, rule in enumerate(self.case.refuse):
            if rule.call == what and rule.group in ("", group) and self.left[i]:
                self.left[i] -= 1
                refusal = rule.message
        text = f"{what} {' '.join(map(str, rest))}"
        at = round(time.monotonic() - self.begun, 3)
        self.calls.append(CloudCall(at=at, group=group, what=text, refused=refusal))
        return refusal

    @contextlib.contextmanager
    def _expander(self) -> Iterator[Sequence[str]]:
        """Gives the flags by which it is asked."""
        if not self.case.expander:
            yield ()
            return
        at = self.plane.directory
        issued = self.plane.authority.issue_cert("127.0.0.1")
        (at / "expander.crt").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        (at / "expander.key").write_bytes(issued.private_key_pem.bytes())
        groups = [
            {"id": group.name, "price": group.price, "template": {"status": {"allocatable": {"cpu": group.cpu}}}}
            for group in self.case.groups
        ]
        (at / "groups.json").write_text(json.dumps(groups))
        (port,) = free_ports(1)
        words = [word.replace("{groups}", str(at / "groups.json")) for word in self.case.expander]
        files = [f"--tls-cert-file={at / 'expander.crt'}", f"--tls-private-key-file={at / 'expander.key'}"]
        command = [sys.executable, "-m", "kscale", "serve", "expander", *words, f"--address=127.0.0.1:{port}", *files]
        with (at / "log" / "expander.log").open("wb") as log:
            process = subprocess.Popen([*command, "-v=4"], stderr=log, stdin=subprocess.DEVNULL)
        try:
            while b"listens" not in (at / "log" / "expander.log").read_bytes():
                if process.poll() is not None:
                    raise StuckError((at / "log" / "expander.log").read_text())
                time.sleep(0.1)
            where = f"--grpc-expander-url=127.0.0.1:{port}"
            yield "--expander=grpc", where, f"--grpc-expander-cert={at / 'ca.crt'}"
        finally:
            process.terminate()
            process.wait()

    @contextlib.contextmanager
    def _autoscaler(self, url: str, more: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
        rules: Sequence[Any] = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
        if self.upstream is None:
            wide, own = cluster_autoscaler_roles()
            rules = [*wide, *own]
        access = self.plane.account(USER, rules)
        config = self.plane.directory / "autoscaler.kubeconfig"
        config.write_text(json.dumps(self.plane.config(user={"token": access.token.reveal()})))
        cloud = self.plane.directory / "cloud.yaml"
        cloud.write_text(json.dumps({"address": url}))
        words = [sys.executable, "-m", "kscale", "run", "cluster-autoscaler"]
        if self.upstream is not None:
            words = [str(self.upstream)]
        (port,) = free_ports(1)
        where = [f"--kubeconfig={config}", f"--cloud-config={cloud}", f"--address=127.0.0.1:{port}"]
        environment = {name: value for name, value in os.environ.items() if name != "HOSTNAME"}
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                [*words, *where, *FLAGS, *more, *self.case.flags],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=environment,
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    async def _step(self, step: Step) -> None:
        await self._create(step.create)
        if step.patch is not None:
            await self._ask("PATCH", step.path, step.patch, content_type=MERGE)
        if step.delete:
            await self._ask("DELETE", step.path)
        if step.until is not None:
            try:
                async with asyncio.timeout(step.within):
                    while not await asyncio.to_thread(self._holds, step.until):
                        if self.process.poll() is not None:
                            raise StuckError(f"the autoscaler ended:\n{self._tail()}")
                        await asyncio.sleep(0.1)
            except TimeoutError:
                raise StuckError(f"not within {step.within:.0f} s: {step.until}\n{self._tail()}") from None
        await asyncio.sleep(step.wait)

    def _holds(self, until: Until) -> bool:
        ask = self.plane.ask
        if until.nodes is not None and len(ask("GET", "/api/v1/nodes")["items"]) != until.nodes:
            return False
        if until.calls is not None and len(self.calls) < until.calls:
            return False
        phases = [each["status"].get("phase") for each in ask("GET", "/api/v1/namespaces/default/pods")["items"]]
        if until.running is not None and phases.count("Running") != until.running:
            return False
        if until.pending is not None and phases.count("Pending") != until.pending:
            return False
        if until.event and until.event not in {each["reason"] for each in ask("GET", "/api/v1/events")["items"]}:
            return False
        return not until.status or until.status in ask("GET", STATUS)["data"]["status"]

    async def _create(self, objects: Sequence[dict[str, Any]]) -> None:
        for obj in objects:
            served = _BY_KIND[obj["kind"]]
            namespace = obj["metadata"].get("namespace", "default") if served.namespaced else ""
            await self._ask("POST", served.path(namespace), obj)

    async def _events(self) -> list[EventSeen]:
        items = (await self._ask("GET", "/api/v1/events"))["items"]
        return [
            EventSeen(
                about="/".join(filter(None, (at["kind"], at.get("namespace", ""), at["name"]))),
                type=each["type"],
                reason=each["reason"],
                message=each["message"].replace(socket.gethostname(), "HOST"),
                count=each.get("count", 1),
            )
            for each in items
            if each["source"].get("component") == COMPONENT
            for at in (each["involvedObject"],)
        ]

    async def _objects(self) -> dict[str, Any]:
        found = {}
        for plural in SHOWN:
            for each in (await self._ask("GET", SERVED[plural].path("")))["items"]:
                kept = plain(each)
                metadata = kept["metadata"]
                name = "/".join(filter(None, (plural, metadata.get("namespace", ""), metadata["name"])))
                if name.rpartition("/")[2] not in NOT_OURS:
                    found[name] = kept
        return found

    async def _ask(self, *words: Any, **options: Any) -> Any:
        return await asyncio.to_thread(self.plane.ask, *words, **options)

    def _version(self) -> str:
        if self.upstream is None:
            return "this"
        line = next((line for line in self.log.read_text().splitlines() if "Cluster Autoscaler" in line), "")
        return line.partition("] ")[2]

    def _tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]
