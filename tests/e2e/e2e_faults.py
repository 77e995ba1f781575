"""What goes wrong while ``kscale run cluster-autoscaler`` drains, deletes and adds nodes of a real API server: nothing
that was begun is lost, nothing is done twice."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from e2e.cloud import FakeCloud, Machines
from e2e.control_plane import ControlPlane, Refused, free_ports
from e2e.kubelet import FakeKubelet
from e2e.real_api import MERGE, RealApi, cleared, connected
from e2e.rights import installed
from kscale.world.nodegroups.external_server import ExternalServer

UPSTREAM = Path(os.environ.get("KSCALE_UPSTREAM", "nowhere"))
"""Upstream's binary, for those who have one."""
UPSTREAM_FLAGS = Path(__file__).parents[1] / "unit" / "cli" / "upstream_flags.txt"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cluster-autoscaler"
STATUS = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"
TAINT = "ToBeDeletedByClusterAutoscaler"
FLAGS = (
    "--cloud-provider=externalgrpc", "--scan-interval=1s", "--scale-down-unneeded-time=3s", "--v=4",
    "--scale-down-delay-after-add=2s", "--node-delete-delay-after-taint=1s", "--new-pod-scale-up-delay=0s",
    "--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=1s",
    "--address=127.0.0.1:0",
)  # fmt: skip

PATIENT = ("--leader-elect-lease-duration=120s", "--leader-elect-renew-deadline=100s")
"""Longer than the API server is away."""


@contextmanager
def planned(directory: Path, *flags: str) -> Iterator[ControlPlane]:
    """``flags``: of the API server."""
    with ControlPlane(directory, scheduler=True, controllers=True, audit=True, apiserver_flags=flags) as plane:
        access = installed(plane, "cluster-autoscaler")
        (plane.directory / "token").write_text(access.token.reveal())
        yield plane


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with planned(tmp_path_factory.mktemp("whole")) as plane:
        yield plane


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[ControlPlane]:
    """One for a test that ends its API server."""
    with planned(tmp_path / "plane") as plane:
        yield plane


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[ControlPlane]:
    """One whose API server remembers nothing itself: what etcd has forgotten is gone."""
    with planned(tmp_path / "plane", "--watch-cache=false") as plane:
        yield plane


class Scene:
    """A cluster with a cloud. ``calls``: what the cloud was asked that changes something."""

    def __init__(self, plane: ControlPlane, api: RealApi, cloud: FakeCloud, url: str, directory: Path) -> None:
        self.plane, self.api, self.cloud, self.url, self.directory = plane, api, cloud, url, directory
        self.programs: list[subprocess.Popen[bytes]] = []
        self.lives: set[subprocess.Popen[bytes]] = set()
        self._before = len(self._evictions())

    @property
    def calls(self) -> list[tuple[Any, ...]]:
        return self.cloud.calls

    def _evictions(self) -> list[str]:
        """The pods whose eviction was granted, in order, once for each time."""
        return [
            entry["objectRef"]["name"]
            for entry in self.plane.audit()
            if entry["objectRef"].get("subresource") == "eviction"
            and entry["stage"] == "ResponseComplete"
            and entry["responseStatus"]["code"] == 201
        ]

    def evicted(self) -> list[str]:
        """As above, of this scene."""
        return self._evictions()[self._before :]

    def done(self) -> list[tuple[Any, ...]]:
        """All that cannot be taken back: the evictions, and after them the calls of the cloud."""
        return [*(("Evict", name) for name in self.evicted()), *self.calls]

    def start(
        self, *flags: str, host: str = "one", port: int = 0, clock: Path | None = None, upstream: bool = False
    ) -> subprocess.Popen[bytes]:
        """Starts an autoscaler. ``port``: of another way to the API server; ``clock``: see ``program.py``."""
        at = self.directory
        number = len(self.programs)
        user = {"token": (self.plane.directory / "token").read_text()}
        server = {"server": f"https://127.0.0.1:{port}"} if port else None
        if upstream:
            user = {"token": self.plane.token}
        (at / f"kubeconfig-{number}").write_text(json.dumps(self.plane.config(server, user)))
        (at / f"cloud-{number}").write_text(json.dumps({"address": self.url, "grpc_timeout": "2s"}))
        words = [str(UPSTREAM)] if upstream else [
            sys.executable, str(Path(__file__).with_name("program.py")), "run", "cluster-autoscaler"
        ]  # fmt: skip
        where = [f"--kubeconfig={at / f'kubeconfig-{number}'}", f"--cloud-config={at / f'cloud-{number}'}"]
        environment = {**os.environ, "HOSTNAME": host, "E2E_CLOCK": str(clock or "")}
        with (at / f"log-{number}").open("wb") as log:
            program = subprocess.Popen(
                [*words, *where, *FLAGS, *flags], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment
            )
        self.programs.append(program)
        self.lives.add(program)
        return program

    async def until(self, holds: Callable[[], bool], seconds: float = 90) -> None:
        """Until it is so; an API server that is away tells nothing."""

        def safe() -> bool:
            with suppress(OSError, Refused):
                return holds()
            return False

        try:
            async with asyncio.timeout(seconds):
                while not await asyncio.to_thread(safe):
                    assert all(program.poll() is None for program in self.lives), self.tails()
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(self.tails()) from None

    async def ended(self, program: subprocess.Popen[bytes]) -> int:
        self.lives.discard(program)
        await self.until(lambda: program.poll() is not None, 30)
        return program.wait()

    def tails(self) -> str:
        """The ends of all logs."""
        return "\n".join(self.output(i)[-3000:] for i in range(len(self.programs)))

    def output(self, number: int = 0) -> str:
        return (self.directory / f"log-{number}").read_text(errors="replace")

    def nodes(self) -> list[str]:
        return sorted(each["metadata"]["name"] for each in self.plane.ask("GET", "/api/v1/nodes")["items"])

    def tainted(self) -> list[str]:
        return [
            each["metadata"]["name"]
            for each in self.plane.ask("GET", "/api/v1/nodes")["items"]
            if any(taint["key"] == TAINT for taint in each["spec"].get("taints") or ())
        ]

    def running(self) -> list[str]:
        pods = self.plane.ask("GET", "/api/v1/namespaces/default/pods")["items"]
        return sorted(
            each["metadata"]["name"]
            for each in pods
            if each["status"].get("phase") == "Running" and "deletionTimestamp" not in each["metadata"]
        )

    def homeless(self) -> list[str]:
        """The pods of which the scheduler has said that they fit nowhere."""
        pods = self.plane.ask("GET", "/api/v1/namespaces/default/pods")["items"]
        return sorted(
            each["metadata"]["name"]
            for each in pods
            if any(condition.get("reason") == "Unschedulable" for condition in each["status"].get("conditions", ()))
        )

    def rests(self) -> bool:
        """One node is left, nothing is marked, both pods run there."""
        return self.nodes() == ["small-0"] and not self.tainted() and self.running() == ["here-0", "there-0"]

    async def workload(
        self,
        name: str,
        *,
        cpu: str = "300m",
        on: str = "",
        replicas: int = 1,
        holds: bool = False,
        priority_class: str = "",
    ) -> None:
        """Pods with names that stay, on a node if it is there. ``holds``: they must not be evicted."""
        wish = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [on]}]}
        affinity = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": wish}]}
        spec = {
            "terminationGracePeriodSeconds": 1,
            "affinity": {"nodeAffinity": affinity} if on else {},
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}],
            **({"priorityClassName": priority_class} if priority_class else {}),
        }
        labels = {"app": name}
        annotations = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"} if holds else {}
        created = {
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "serviceName": name,
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec},
            },
        }
        await asyncio.to_thread(self.plane.ask, "POST", "/apis/apps/v1/namespaces/default/statefulsets", created)


def played(
    plane: ControlPlane, directory: Path, script: Callable[[Scene], Awaitable[None]], *, ending: float = 0.0
) -> None:
    """Two nodes, each with a small pod: the second will be drained. ``ending``: how many seconds a pod takes to go."""

    async def main() -> None:
        cleared(plane)
        cloud = FakeCloud(plane, Machines("small", cpu="2", least=1, most=5))
        async with connected(plane) as api:
            kubelet = asyncio.create_task(FakeKubelet(api.client, api.clock, ending=ending).run())
            with ExternalServer(cloud, "127.0.0.1:0") as server:
                scene = Scene(plane, api, cloud, server.url, directory)
                try:
                    await asyncio.to_thread(cloud.start, "small", 2)
                    await scene.workload("here", on="small-0", holds=True)
                    await scene.workload("there", on="small-1")
                    await scene.until(lambda: scene.running() == ["here-0", "there-0"])
                    await script(scene)
                finally:
                    for program in scene.programs:
                        if program.poll() is None:
                            program.kill()
                        program.wait()
            kubelet.cancel()
            await asyncio.wait([kubelet])
        cloud.close()

    asyncio.run(main())


def die(plane: ControlPlane) -> None:
    """The API server is killed and comes back, and with it the scheduler. That ends by itself where it has not seen
    that a pod went and another of the same name came: the longer the API server was away, the later it looks again."""
    plane.end("apiserver", kill=True)
    plane.end("scheduler")
    plane.start_apiserver()
    plane.start_scheduler()


ONCE = [("Evict", "there-0"), ("DeleteNodes", "small", "small-1")]


def test_the_api_server_is_killed_before_a_drain(mortal: ControlPlane, tmp_path: Path) -> None:
    async def script(scene: Scene) -> None:
        scene.start(*PATIENT)
        await scene.until(lambda: scene.tainted() == ["small-1"])
        await asyncio.to_thread(die, mortal)
        await scene.until(scene.rests)
        assert scene.done() == ONCE

    played(mortal, tmp_path, script, ending=3)


def test_the_api_server_is_killed_between_two_evictions_of_a_drain(mortal: ControlPlane, tmp_path: Path) -> None:
    """One pod is on its way, the other is evicted after it because it is more important."""
    important = {"metadata": {"name": "important"}, "value": 1000}

    async def script(scene: Scene) -> None:
        await asyncio.to_thread(mortal.ask, "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", important)
        await scene.workload("later", on="small-1", priority_class="important")
        await scene.until(lambda: len(scene.running()) == 3)
        program = scene.start("--drain-priority-config=0:60,1000:60", *PATIENT)
        await scene.until(lambda: scene.evicted() == ["there-0"])
        await asyncio.to_thread(die, mortal)
        assert (scene.evicted()[:1], scene.calls) == (["there-0"], [])
        await scene.until(lambda: scene.nodes() == ["small-0"] and len(scene.running()) == 3)
        assert scene.done() == [("Evict", "there-0"), ("Evict", "later-0"), ("DeleteNodes", "small", "small-1")]
        assert (scene.tainted(), program.poll()) == ([], None)

    played(mortal, tmp_path, script, ending=5)


def goes_on(plane: ControlPlane, directory: Path, forget: Callable[[], None]) -> None:
    """While nobody sees it, pods come that need two more nodes, and ``forget`` is done. All is listed anew then."""
    (port,) = free_ports(1)

    def lists() -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("kscale_lists_total{"))

    async def script(scene: Scene) -> None:
        flags = (*PATIENT, "--scale-down-enabled=false", f"--address=127.0.0.1:{port}")
        program = scene.start(*flags, port=scene.api.wire.port)
        await scene.until(lambda: "autoscalerStatus: Running" in plane.ask("GET", STATUS)["data"]["status"])
        before = await asyncio.to_thread(lists)
        scene.api.wire.open = False
        scene.api.wire.cut()
        await scene.workload("big", cpu="1900m", replicas=2)
        await scene.until(lambda: len(scene.homeless()) == 2)  # else a loop may see the first before the second
        await asyncio.to_thread(forget)
        scene.api.wire.open = True
        await scene.until(lambda: len(scene.running()) == 4)
        assert scene.calls == [("IncreaseSize", "small", 2)]
        assert program.poll() is None
        assert await asyncio.to_thread(lists) > before > 0

    played(plane, directory, script)


def test_cut_watches_and_lost_history_are_survived(mortal: ControlPlane, tmp_path: Path) -> None:
    """The API server that comes back does not know the events that nobody has seen."""
    goes_on(mortal, tmp_path, mortal.restart_apiserver)


def test_compaction_of_unseen_history_is_survived(forgetful: ControlPlane, tmp_path: Path) -> None:
    """The API server goes on, and says that a watch begins too long ago (410)."""
    goes_on(forgetful, tmp_path, forgetful.compact)


def test_etcd_is_slow(plane: ControlPlane, tmp_path: Path) -> None:
    """It stands still for a second, again and again, while a node is drained."""

    async def stumble() -> None:
        while True:
            await asyncio.to_thread(plane.pause, "etcd")
            await asyncio.sleep(1)
            await asyncio.to_thread(plane.resume, "etcd")
            await asyncio.sleep(0.3)

    async def script(scene: Scene) -> None:
        program = scene.start(*PATIENT)
        slow = asyncio.create_task(stumble())
        try:
            await scene.until(scene.rests)
        finally:
            slow.cancel()
            await asyncio.wait([slow])
            plane.resume("etcd")
        assert scene.done() == ONCE
        assert program.poll() is None

    played(plane, tmp_path, script)


def test_the_lease_is_taken_away_in_a_drain(plane: ControlPlane, tmp_path: Path) -> None:
    async def script(scene: Scene) -> None:
        first = scene.start("--node-delete-delay-after-taint=30s")
        await scene.until(lambda: scene.tainted() == ["small-1"])
        holder = {"spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600}}
        await asyncio.to_thread(plane.ask, "PATCH", LEASE, holder, content_type=MERGE)
        assert await scene.ended(first) == 1
        assert (scene.calls, scene.tainted()) == ([], ["small-1"])
        free = {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
        await asyncio.to_thread(plane.ask, "PATCH", LEASE, free, content_type=MERGE)
        scene.start()
        await scene.until(scene.rests)
        assert scene.done() == ONCE

    played(plane, tmp_path, script)


def test_kill_between_taint_and_delete_is_survived(plane: ControlPlane, tmp_path: Path) -> None:
    async def script(scene: Scene) -> None:
        first = scene.start("--node-delete-delay-after-taint=30s")
        await scene.until(lambda: scene.tainted() == ["small-1"])
        first.send_signal(signal.SIGKILL)
        await scene.ended(first)
        assert (scene.calls, scene.tainted()) == ([], ["small-1"])
        scene.start("--scale-down-enabled=false")
        await scene.until(lambda: scene.tainted() == [])  # the next start takes the taint away
        assert scene.calls == []
        scene.programs[-1].kill()
        await scene.ended(scene.programs[-1])
        scene.start()
        await scene.until(scene.rests)
        assert scene.done() == ONCE

    played(plane, tmp_path, script)


def late(cloud: FakeCloud, method: str) -> None:
    """A call does what is asked, but who asked waits in vain, once."""
    real = getattr(cloud, method)

    def call(*arguments: Any, **options: Any) -> None:
        setattr(cloud, method, real)
        real(*arguments, **options)
        time.sleep(4)  # longer than the client waits

    setattr(cloud, method, call)


def test_an_increase_that_times_out_has_happened(plane: ControlPlane, tmp_path: Path) -> None:
    async def script(scene: Scene) -> None:
        late(scene.cloud, "increase_size")
        scene.start("--scale-down-enabled=false")
        await scene.workload("big", cpu="1900m")
        await scene.until(lambda: "DeadlineExceeded" in scene.output())
        await scene.until(lambda: len(scene.running()) == 3)
        loops = scene.output().count("LoopReport")
        await scene.until(lambda: scene.output().count("LoopReport") > loops + 3)
        assert scene.calls == [("IncreaseSize", "small", 1)]
        assert scene.nodes() == ["small-0", "small-1", "small-2"]

    played(plane, tmp_path, script)


def test_a_deletion_that_times_out_has_happened(plane: ControlPlane, tmp_path: Path) -> None:
    async def script(scene: Scene) -> None:
        late(scene.cloud, "delete_nodes")
        scene.start()
        await scene.until(lambda: "DeadlineExceeded" in scene.output())
        await scene.until(scene.rests)
        loops = scene.output().count("LoopReport")
        await scene.until(lambda: scene.output().count("LoopReport") > loops + 5)
        assert scene.done() == ONCE

    played(plane, tmp_path, script)


def test_the_clock_is_set_an_hour_ahead_and_back(plane: ControlPlane, tmp_path: Path) -> None:
    """Nothing that waits for half an hour happens, and the lease stays."""

    async def script(scene: Scene) -> None:
        clock = tmp_path / "clock"
        program = scene.start("--scale-down-unneeded-time=30m", clock=clock)
        await scene.until(lambda: scene.output().count("LoopReport") > 2)
        for change in (clock.touch, clock.unlink):
            change()
            loops = scene.output().count("LoopReport")
            await scene.until(lambda loops=loops: scene.output().count("LoopReport") > loops + 5)
        assert program.poll() is None
        assert (scene.calls, scene.tainted()) == ([], [])
        assert [line for line in scene.output().splitlines() if line.startswith("E ")] == []
        assert scene.output().count("the clock has been set by") == 2
        program.terminate()
        assert await scene.ended(program) == 0

    played(plane, tmp_path, script)


def test_the_clock_is_set_while_nodes_come_and_go(plane: ControlPlane, tmp_path: Path) -> None:
    """A machine has been asked for and a node is marked for deletion, an hour passes in no time, and is taken back."""

    async def script(scene: Scene) -> None:
        clock = tmp_path / "clock"
        scene.cloud.slow_down("small", 15)
        program = scene.start("--node-delete-delay-after-taint=12s", clock=clock)
        await scene.until(lambda: scene.tainted() == ["small-1"])
        await scene.workload("big", cpu="1900m")
        grown = [("IncreaseSize", "small", 1)]
        await scene.until(lambda: scene.calls == grown)
        for change in (clock.touch, clock.unlink):
            change()
            loops = scene.output().count("LoopReport")
            await scene.until(lambda loops=loops: scene.output().count("LoopReport") > loops + 2)
            assert (scene.done(), scene.tainted()) == (grown, ["small-1"])
        await scene.until(lambda: scene.running() == ["big-0", "here-0", "there-0"] and not scene.tainted())
        assert sorted(scene.done()) == sorted([*ONCE, *grown])
        assert scene.nodes() == ["small-0", "small-2"]
        assert scene.output().count("the clock has been set by") == 2
        assert [line for line in scene.output().splitlines() if line.startswith("E ")] == []
        assert program.poll() is None

    played(plane, tmp_path, script)


def handed_over(first: dict[str, Any], second: dict[str, Any]) -> Callable[[Scene], Awaitable[None]]:
    async def script(scene: Scene) -> None:
        leading = scene.start("--node-delete-delay-after-taint=30s", **first)
        await scene.until(lambda: scene.tainted() == ["small-1"])
        waiting = scene.start(**second)
        leading.terminate()
        assert await scene.ended(leading) == 0
        assert scene.calls == []
        await scene.until(scene.rests)
        assert scene.done() == ONCE
        assert waiting.poll() is None

    return script


def test_a_rolling_upgrade(plane: ControlPlane, tmp_path: Path) -> None:
    """The second waits for the lease, cleans up what the first had begun, and does it."""
    played(plane, tmp_path, handed_over({"host": "old"}, {"host": "new"}))


@pytest.mark.skipif(not UPSTREAM.exists(), reason="KSCALE_UPSTREAM does not say where upstream's binary is")
@pytest.mark.parametrize("back", [False, True], ids=["from upstream", "back to upstream"])
def test_from_the_stock_autoscaler_and_back(plane: ControlPlane, tmp_path: Path, back: bool) -> None:
    """The same lease, the same taints: stopping the one and starting the other is all."""
    ours, theirs = {"host": "ours"}, {"upstream": True}
    played(plane, tmp_path, handed_over(ours, theirs) if back else handed_over(theirs, ours))


@pytest.mark.skipif(not UPSTREAM.exists(), reason="KSCALE_UPSTREAM does not say where upstream's binary is")
def test_the_list_of_upstreams_flags() -> None:
    helped = subprocess.run([UPSTREAM, "--help"], capture_output=True, text=True, check=False)
    listed = re.findall(r"^ +(?:-\w, )?--([\w.-]+)", helped.stdout + helped.stderr, re.MULTILINE)
    own = {name for name in listed if not name.startswith("ginkgo.")}  # of tests that are linked with it
    assert own | {"help"} == set(UPSTREAM_FLAGS.read_text().split())
