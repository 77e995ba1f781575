"""A custom resource whose number is the horizontal pod autoscaler's and whose memory is the vertical one's: four of our
programs, each with its own rights, at the same time."""

from __future__ import annotations

import asyncio
from pathlib import Path

from e2e.control_plane import ControlPlane
from e2e.scaled_widget import ScaledWidget, played
from e2e.widgets import DEFINITION
from kscale.drivers.manifests.autoscalers import vpa_definitions


def test_a_custom_resource_is_scaled_and_right_sized(tmp_path: Path) -> None:
    async def script(scene: ScaledWidget) -> None:
        await scene.recommend()
        target = await asyncio.to_thread(scene.target)
        assert set(target) == {"memory"}
        assert int(target["memory"]) > 600 * 2**20
        assert {each["memory"] for each in await asyncio.to_thread(scene.requests)} == {"100Mi"}
        scene.start("horizontal", "vpa-updater")
        await scene.until(scene.settled)
        assert {each["cpu"] for each in await asyncio.to_thread(scene.requests)} == {"500m"}
        assert await asyncio.to_thread(scene.size) == (4, 4)

    with ControlPlane(tmp_path / "plane", scheduler=True, controllers=("replicaset-controller",)) as plane:
        plane.define(DEFINITION, *vpa_definitions())
        played(plane, script)
