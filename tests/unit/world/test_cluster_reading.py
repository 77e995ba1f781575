"""A live cluster, read at once, is what a simulation begins with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from kscale import InputError
from kscale.cli.context import read_context
from kscale.objects.decode import to_dict
from kscale.objects.meta import KubeObject
from kscale.world.clock import SystemClock
from kscale.world.kubernetes.client import Client
from kscale.world.kubernetes.cluster_reading import KINDS, ClusterUnreadableError, read_cluster
from kscale.world.kubernetes.transport import Answer
from unit.cli.support import kscale
from unit.simulation.test_simulation import scenario
from unit.world.fake_api_server import FakeApiServer
from unit.world.simulated_cases import node, workload


def filled() -> FakeApiServer:
    server = FakeApiServer(SystemClock())
    for i in range(3):
        server.put("nodes", to_dict(node(f"n{i}")))
    server.put("deployments.apps", workload("Deployment", "web", 4))
    for name in list(server.served):
        if name.endswith(".autoscaling.k8s.io"):
            del server.served[name]
    return server


def read(server: FakeApiServer, kinds: Sequence[tuple[str, str]] = KINDS) -> list[KubeObject]:
    clock = SystemClock()
    return asyncio.run(read_cluster(Client(server, clock, qps=-1), clock, kinds))


def test_what_is_served_is_read_and_the_rest_passed_over() -> None:
    found = read(filled())
    assert [(type(each).__name__, each.name) for each in found] == [
        ("Node", "n0"), ("Node", "n1"), ("Node", "n2"), ("Deployment", "web")
    ]  # fmt: skip
    refusing = filled()
    status = json.dumps(
        {"kind": "Status", "status": "Failure", "message": "not yours", "reason": "Forbidden", "code": 403}
    )
    refusing.fault = lambda call: Answer(403, {}, status.encode()) if "deployments" in call.path else None
    with pytest.raises(ClusterUnreadableError, match=r"^Deployment: not yours"):
        read(refusing)


def test_a_simulation_of_a_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = filled()

    def connect(access: Any, clock: Any, **options: Any) -> Client:
        assert access.server == "https://here.example.com"
        assert options["user_agent"].startswith("kscale/")
        return Client(server, clock, qps=-1)

    monkeypatch.setattr("kscale.world.kubernetes.aiohttp_transport.connect", connect)
    config = tmp_path / "config"
    cluster = {"name": "c", "cluster": {"server": "https://here.example.com"}}
    context = {"name": "here", "context": {"cluster": "c", "user": "u"}}
    config.write_text(
        yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context],
            "users": [{"name": "u", "user": {"token": "t"}}],
        })
    )  # fmt: skip
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump(scenario(objects=[], groups=[], controllers={})))
    words = ["simulate", str(file), f"--kubeconfig={config}", "-o", "json"]
    done = kscale(*words, "--context=here")
    assert done.code == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["mostNodes"], report["pending"]["pods"], report["podEvents"] > 0) == (3, 4, True)
    assert kscale(*words).code == 2
    with pytest.raises(InputError, match="there"):
        read_context("there", str(config))
