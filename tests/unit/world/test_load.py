"""kscale.load(context=...) reads a live cluster, also inside a running event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import kscale
from kscale.errors import InputError
from kscale.world.clock import SystemClock
from unit.cli.live_clusters import refusing, serve
from unit.world.fake_api_server import FakeApiServer

NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeApiServer:
    one = FakeApiServer(SystemClock())
    one.put("nodes", NODE)
    serve({"prod": one}, tmp_path, monkeypatch, current="prod")
    return one


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("arguments", [{"context": "prod"}, {"context": ""}])
def test_a_live_cluster_is_read(arguments: dict[str, str]) -> None:
    assert kscale.load(**arguments).keys("Node") == ["n1"]


@pytest.mark.usefixtures("server")
def test_the_kubeconfig_can_be_named_and_files_are_added(tmp_path: Path) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}
    cluster = kscale.load(pod, kubeconfig=str(tmp_path / "config"))
    assert (cluster.keys("Node"), cluster.keys("Pod")) == (["n1"], ["default/web"])


@pytest.mark.usefixtures("server")
def test_load_works_inside_a_running_event_loop() -> None:
    async def cell() -> kscale.Cluster:
        return kscale.load(context="prod")

    assert asyncio.run(cell()).keys("Node") == ["n1"]


def test_kinds_that_may_not_be_listed_are_reported(server: FakeApiServer) -> None:
    server.fault = refusing("/services", 403, "Forbidden")
    report = kscale.load(context="prod").report
    assert [problem.object for problem in report.problems] == ["Service"]
    assert "Forbidden at all" in report.problems[0].message


@pytest.mark.usefixtures("server")
def test_an_unknown_context_is_an_input_error() -> None:
    with pytest.raises(InputError, match="staging"):
        kscale.load(context="staging")
