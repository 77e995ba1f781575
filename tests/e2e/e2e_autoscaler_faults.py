"""What goes wrong while the HPA and the three programs of the VPA scale, right-size and evict on a real API server:
nothing that was begun is lost, nothing is done twice, and what was learned stays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.control_plane import ControlPlane
from e2e.scaled_widget import ScaledWidget, played
from e2e.widgets import DEFINITION
from kscale.drivers.vpa_definitions import vpa_definitions

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
    the recommender knew it still knows."""

    async def script(scene: ScaledWidget) -> None:
        await scene.recommend()
        await scene.until(lambda: scene.samples() > 1)
        known = await asyncio.to_thread(scene.samples)
        scene.start("horizontal", "vpa-updater")
        await fault(scene)
        await scene.until(scene.settled)
        sizes, evicted = await asyncio.to_thread(scene.done)
        assert (sizes[-1], sizes) == (4, sorted(set(sizes)))
        assert len(evicted) == len(set(evicted)) >= 2
        assert await asyncio.to_thread(scene.samples) > known

    return script


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


def test_etcd_forgets_what_nobody_has_seen(tmp_path: Path) -> None:
    """The watches are cut, more may be made meanwhile, and the API server says that they begin too long ago (410)."""

    async def script(scene: ScaledWidget) -> None:
        await goes_on(lambda scene: asyncio.sleep(0))(scene)
        scene.api.wire.open = False
        scene.api.wire.cut()
        await asyncio.to_thread(scene.allow, 5)
        await asyncio.to_thread(scene.plane.compact)
        scene.api.wire.open = True
        await scene.until(lambda: scene.settled(5))
        sizes, evicted = await asyncio.to_thread(scene.done)
        assert sizes[-2:] == [4, 5]
        assert len(evicted) == len(set(evicted))

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
