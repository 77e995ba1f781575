"""Runs a case once, with upstream's binaries or with kscale, on a control plane of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

from e2e.cloud import FakeCloud
from e2e.control_plane import CONTROLLERS, ControlPlane, Refused, free_ports
from e2e.duel.case import Case, Samples, Step, Until
from e2e.duel.facts import CloudCall, EventSeen, Log, changes_of, plain
from e2e.duel.meddler import Meddler
from e2e.duel.programs import CLUSTER_AUTOSCALER, PROGRAMS, READS_METRICS, USER, Player, StuckError
from e2e.kubelet import FakeKubelet
from e2e.metrics_server import FakeMetrics
from e2e.real_api import MERGE, SERVED, connected
from e2e.widgets import DEFINITION, WIDGETS
from kscale.drivers.manifests.autoscalers import vpa_definitions
from kscale.objects.quantity import Quantity
from kscale.world.nodegroups.external_server import ExternalServer

__all__ = ["run_case"]

STATUS = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"
WATCHED = (
    "nodes", "pods", "configmaps", "statefulsets.apps", "deployments.apps", "poddisruptionbudgets.policy",
    "horizontalpodautoscalers.autoscaling",
)  # fmt: skip
WATCHED_VPA = (
    "verticalpodautoscalers.autoscaling.k8s.io", "verticalpodautoscalercheckpoints.autoscaling.k8s.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
)  # fmt: skip
NOT_OURS = (
    "kube-root-ca.crt", "extension-apiserver-authentication", "kube-apiserver-legacy-service-account-token-tracking"
)  # fmt: skip
_BY_KIND = {served.kind: served for served in SERVED.values()}
_OTHER_CONTROLLERS = tuple(name for name in CONTROLLERS if not name.startswith("horizontal"))


def run_case(case: Case, directory: Path, upstream: Path | None = None) -> Log:
    """Runs upstream's programs, which are in the folder ``upstream``, else kscale's. ``directory`` gets the logs."""
    with ControlPlane(directory, scheduler=True, controllers=_OTHER_CONTROLLERS, audit=True) as plane:
        return asyncio.run(_Run(case, plane, upstream).run())


class _Run:
    def __init__(self, case: Case, plane: ControlPlane, upstream: Path | None) -> None:
        self.case, self.plane, self.upstream = case, plane, upstream
        self.cloud = FakeCloud(plane, *(group.machines() for group in case.groups))
        self.calls: list[CloudCall] = []
        self.remaining = [rule.times for rule in case.refuse]
        self.begun = time.monotonic()
        self.refusals: list[str] = []
        self.players: dict[str, Player] = {}
        self.metrics = FakeMetrics(plane, self._usage)
        self.samples: Samples | None = None
        self.sample = 0
        self.of_vpa = any(name.startswith("vpa-") for name in case.programs)

    async def run(self) -> Log:
        definitions = [*(vpa_definitions() if self.of_vpa else ()), *([DEFINITION] if self.case.custom else ())]
        await asyncio.to_thread(self.plane.define, *definitions)
        for group in self.case.groups:
            if group.start:
                await asyncio.to_thread(self.cloud.start, group.name, group.start)
        self.cloud.refuse = self._called
        async with connected(self.plane) as api, contextlib.AsyncExitStack() as around:
            if READS_METRICS & self.case.programs.keys():
                await around.enter_async_context(self.metrics)
            if self.case.meddle is not None:
                await around.enter_async_context(Meddler(self.plane, self.case.meddle))
            room = Quantity(self.case.room) if self.case.room else None
            kubelet = asyncio.create_task(FakeKubelet(api.client, api.clock, room=room).run())
            await self._create(self.case.objects)
            async with self._playing():
                for step in self.case.steps:
                    await self._step(step)
                await asyncio.sleep(self.case.rest)
                plays = CLUSTER_AUTOSCALER in self.case.programs
                status = (await self._ask("GET", STATUS))["data"]["status"] if plays else ""
                for player in self.players.values():
                    await asyncio.to_thread(player.stop)
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
            refusals=self.refusals,
        )

    # -- who plays ---------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _playing(self) -> AsyncIterator[None]:
        later = {name for step in self.case.steps for name in step.start}
        with contextlib.ExitStack() as around:
            for name, flags in self.case.programs.items():
                more = around.enter_context(self._surrounded()) if name == CLUSTER_AUTOSCALER else ()
                player = Player(name, self.plane, self.upstream, [*more, *flags])
                around.callback(player.kill)
                self.players[name] = player
                if name not in later:
                    player.start()
            yield

    @contextlib.contextmanager
    def _surrounded(self) -> Iterator[Sequence[str]]:
        """A cloud, and an expander if there is one; gives the flags by which they are found."""
        cloud = self.plane.directory / "cloud.yaml"
        with ExternalServer(self.cloud, "127.0.0.1:0") as server, self._expander() as flags:
            cloud.write_text(json.dumps({"address": server.url}))
            yield f"--cloud-config={cloud}", *flags

    def _called(self, call: tuple[Any, ...]) -> str:
        what, group, *rest = call
        refusal = ""
        for i, rule in enumerate(self.case.refuse):
            if rule.call == what and rule.group in ("", group) and self.remaining[i]:
                self.remaining[i] -= 1
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

    # -- what happens ------------------------------------------------------------------------------------------------

    async def _step(self, step: Step) -> None:
        try:
            await self._write(step)
        except Refused as error:
            if not step.refused:
                raise
            self.refusals.append(str(error))
        else:
            if step.refused:
                raise StuckError(f"it was not refused: {step.create or step.patch}")
        for name in step.restart:
            await asyncio.to_thread(self.players[name].stop)
        for name in (*step.start, *step.restart):
            self.players[name].start()
        if step.samples is not None:
            await self._feed(step.samples, step.within)
        if step.until is not None:
            await self._wait(step.until, step.within)
        await asyncio.sleep(step.wait)

    async def _write(self, step: Step) -> None:
        await self._create(step.create)
        if step.patch is not None:
            await self._ask("PATCH", step.path, step.patch, content_type=MERGE)
        if step.delete:
            await self._ask("DELETE", step.path)

    async def _wait(self, until: Until, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not await asyncio.to_thread(self._holds, until):
                    self._check()
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise StuckError(f"not within {seconds:.0f} s: {until}\n{self._tails()}") from None

    async def _feed(self, samples: Samples, seconds: float) -> None:
        """Each sample is there until it has been read twice: then all that follows from the first reading is done."""
        started = time.time_ns()
        longest = max(len(usage) for containers in samples.usage.values() for usage in containers.values())
        for i in range(longest):
            self.samples, self.sample = samples, i
            self.metrics.sampled(samples.sampled_at(i, started), window=samples.window)
            before = self.metrics.listed
            try:
                async with asyncio.timeout(seconds):
                    while self.metrics.listed < before + 2:
                        self._check()
                        await asyncio.sleep(0.05)
            except TimeoutError:
                raise StuckError(f"sample {i} was not read within {seconds:.0f} s\n{self._tails()}") from None

    def _usage(self, pod: dict[str, Any], container: str) -> dict[str, str] | None:
        if self.samples is None:
            return None
        usage = self.samples.usage
        metadata = pod["metadata"]
        containers = usage.get(metadata["name"]) or usage.get((metadata.get("labels") or {}).get("app", "")) or {}
        series = containers.get(container)
        if not series:
            return None
        cpu, memory = series[min(self.sample, len(series) - 1)].split()
        return {"cpu": cpu, "memory": memory}

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
        if not all(self._says(path, pattern) for path, pattern in until.says.items()):
            return False
        return not until.status or until.status in ask("GET", STATUS)["data"]["status"]

    def _says(self, path: str, pattern: str) -> bool:
        try:
            return re.search(pattern, json.dumps(self.plane.ask("GET", path))) is not None
        except Refused as error:
            if error.code != 404:
                raise
            return False

    def _check(self) -> None:
        for player in self.players.values():
            player.check()

    def _tails(self) -> str:
        return "\n".join(f"--- {name}\n{player.tail()}" for name, player in self.players.items())

    # -- what came of it ---------------------------------------------------------------------------------------------

    async def _create(self, objects: Sequence[dict[str, Any]]) -> None:
        for obj in objects:
            served = WIDGETS if obj["kind"] == WIDGETS.kind else _BY_KIND[obj["kind"]]
            namespace = obj["metadata"].get("namespace", "default") if served.namespaced else ""
            await self._ask("POST", served.path(namespace), obj)

    async def _events(self) -> list[EventSeen]:
        components = {PROGRAMS[name].component for name in self.case.programs}
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
            if each["source"].get("component") in components
            for at in (each["involvedObject"],)
        ]

    async def _objects(self) -> dict[str, Any]:
        result = {}
        watched = [SERVED[plural] for plural in (*WATCHED, *(WATCHED_VPA if self.of_vpa else ()))]
        for served in (*watched, *([WIDGETS] if self.case.custom else ())):
            for each in (await self._ask("GET", served.path("")))["items"]:
                fields = plain(each)
                metadata = fields["metadata"]
                name = "/".join(filter(None, (served.group_resource, metadata.get("namespace", ""), metadata["name"])))
                if name.rpartition("/")[2] not in NOT_OURS:
                    result[name] = fields
        return result

    async def _ask(self, *words: Any, **options: Any) -> Any:
        return await asyncio.to_thread(self.plane.ask, *words, **options)

    def _version(self) -> str:
        if self.upstream is None:
            return "this"
        lines = [line for player in self.players.values() for line in player.log.read_text().splitlines()]
        return next((line for line in lines if "Autoscaler" in line), "").partition("] ")[2]
