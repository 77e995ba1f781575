"""What goes wrong while the HPA and the three programs of the VPA scale, right-size and evict on a real API server:
nothing that was begun is lost, nothing is done twice, and what was learned stays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.control_plane import ControlPlane
from e2e.real_api import MERGE
from e2e.scaled_widget import PROGRAMS, ScaledWidget, played
from e2e.widgets import DEFINITION
from kscale.drivers.manifests.autoscalers import vpa_definitions

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LED = {
    "vpa-recommender": "vpa-recommender-lease",
    "vpa-updater": "vpa-updater",
    "horizontal": "kscale-horizontal-pod-autoscaler",
}
"""Who leads, and by which lease."""
SHORT = ("--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=1s")
Fault = Callable[[ScaledWidget], Awaitable[None]]


@contextmanager
def planned(directory: Path, *flags: str) -> Iterator[ControlPlane]:
    """``flags``: of the API server."""
    controllers = ("replicaset-controller", "garbage-collector-controller")
    with ControlPlane(directory, scheduler=True, controllers=controllers, audit=True, apiserver_flags=flags) as plane:
        plane.define(DEFINITION, *vpa_definitions())
        yield plane


def goes_on(fault: Fault) -> Fault:
    """The HPA and the updater begin, and meanwhile it happens: no size is written twice, no pod evicted twice, and what
    the recommender knew it still knows, and goes on learning."""

    async def script(scene: ScaledWidget) -> None:
        await scene.recommend()
        await scene.until(lambda: scene.samples() > 1)
        scene.start("horizontal", "vpa-updater")
        await fault(scene)
        await scene.until(scene.settled)
        sizes, evicted = await asyncio.to_thread(scene.done)
        assert (sizes[-1], sizes) == (4, sorted(set(sizes)))
        assert len(evicted) == len(set(evicted)) >= 2
        known = await asyncio.to_thread(scene.samples)
        await scene.until(lambda: scene.samples() > known)
        counted = await asyncio.to_thread(scene.counted)
        assert counted == sorted(counted)
        await admits(scene)

    return script


async def admits(scene: ScaledWidget) -> None:
    """The webhook says that it lives, and gives a pod that comes what is recommended: nobody evicts it for that."""
    before = await asyncio.to_thread(scene.done)
    lives = await asyncio.to_thread(scene.lives)
    await scene.until(lambda: scene.lives() != lives)
    lost = await asyncio.to_thread(scene.lose)
    await scene.until(lambda: lost not in scene.pods() and scene.settled())
    assert await asyncio.to_thread(scene.done) == before


async def grows(scene: ScaledWidget) -> None:
    """One pod more may be made, and is, with what is recommended."""
    await asyncio.to_thread(scene.allow, 5)
    await scene.until(lambda: scene.settled(5))
    sizes, evicted = await asyncio.to_thread(scene.done)
    assert sizes[-2:] == [4, 5]
    assert len(evicted) == len(set(evicted))


async def acting(scene: ScaledWidget) -> None:
    """A pod has been evicted, or the size written."""
    await scene.until(lambda: any(scene.done()))


def test_the_api_server_is_killed(tmp_path: Path) -> None:
    async def fault(scene: ScaledWidget) -> None:
        await acting(scene)
        await asyncio.to_thread(scene.plane.end, "apiserver", kill=True)
        await asyncio.to_thread(scene.plane.start_apiserver)

    with planned(tmp_path / "plane") as plane:
        played(plane, goes_on(fault))


def test_compaction_of_unseen_history_is_survived(tmp_path: Path) -> None:
    """The watches are cut, more may be made meanwhile, and the API server says that they begin too long ago (410)."""

    async def script(scene: ScaledWidget) -> None:
        await goes_on(lambda scene: asyncio.sleep(0))(scene)
        scene.api.wire.open = False
        scene.api.wire.cut()
        await asyncio.to_thread(scene.allow, 5)
        await asyncio.to_thread(scene.plane.compact)
        scene.api.wire.open = True
        await grows(scene)

    with planned(tmp_path / "plane", "--watch-cache=false") as plane:
        played(plane, script, wired=True)


def test_etcd_is_slow(tmp_path: Path) -> None:
    """It stands still for a second, again and again."""
    slow: list[asyncio.Task[None]] = []

    async def stumble(plane: ControlPlane) -> None:
        for _ in range(8):
            await asyncio.to_thread(plane.pause, "etcd")
            await asyncio.sleep(1)
            await asyncio.to_thread(plane.resume, "etcd")
            await asyncio.sleep(0.3)

    async def fault(scene: ScaledWidget) -> None:
        slow.append(asyncio.create_task(stumble(scene.plane)))
        await slow[0]

    with planned(tmp_path / "plane") as plane:
        played(plane, goes_on(fault))


def test_leases_are_taken_away(tmp_path: Path) -> None:
    """Who led ends; started again, it waits for the lease, and goes on. The one that nobody leads by is made anew."""

    async def steal(scene: ScaledWidget) -> None:
        await acting(scene)
        holder: dict[str, object] = {"holderIdentity": "another", "leaseDurationSeconds": 3600}
        free: dict[str, object] = {"holderIdentity": "", "leaseDurationSeconds": 1}
        for name, lease in LED.items():
            await asyncio.to_thread(scene.plane.ask, "PATCH", f"{LEASES}/{lease}", {"spec": holder}, content_type=MERGE)
            assert await asyncio.to_thread(scene.players[name].ended) == 1
        await asyncio.to_thread(scene.bury)
        await scene.until(lambda: bool(scene.lives()))
        for name, lease in LED.items():
            scene.start(name)
            await asyncio.to_thread(scene.plane.ask, "PATCH", f"{LEASES}/{lease}", {"spec": free}, content_type=MERGE)

    async def script(scene: ScaledWidget) -> None:
        await goes_on(steal)(scene)
        await grows(scene)

    flags = dict.fromkeys(LED, ("--leader-elect=true", *SHORT))
    with planned(tmp_path / "plane") as plane:
        played(plane, script, flags)


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_is_killed(tmp_path: Path, name: str) -> None:
    async def killed(scene: ScaledWidget) -> None:
        await acting(scene)
        scene.players[name].kill()
        scene.start(name)

    async def script(scene: ScaledWidget) -> None:
        await goes_on(killed)(scene)
        await grows(scene)

    with planned(tmp_path / "plane") as plane:
        played(plane, script)


def test_the_clock_is_set_an_hour_ahead_and_back(tmp_path: Path) -> None:
    """Nothing is done that would be done an hour later."""
    clock = tmp_path / "clock"

    async def script(scene: ScaledWidget) -> None:
        await goes_on(lambda scene: asyncio.sleep(0))(scene)
        before = await asyncio.to_thread(scene.done)
        for change in (clock.touch, clock.unlink):
            change()
            known = await asyncio.to_thread(scene.samples)
            await scene.until(lambda known=known: scene.samples() > known + 8)
            await admits(scene)
        assert await asyncio.to_thread(scene.done) == before
        assert await asyncio.to_thread(scene.settled)
        for name in PROGRAMS:
            assert "the clock has been set by" in scene.players[name].log.read_text(), name

    with planned(tmp_path / "plane") as plane:
        played(plane, script, clock=clock)
