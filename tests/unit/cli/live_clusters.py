"""Kubeconfigs whose clusters are servers in memory, behind the transport."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import kscale as library
from kscale.world.kubernetes.client import Client
from kscale.world.kubernetes.kubeconfig import Access
from kscale.world.kubernetes.transport import Answer, Call, ServerLimits
from kscale.world.protocols import Clock
from unit.world.fake_api_server import FakeApiServer, status


def serve(servers: dict[str, FakeApiServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, current: str) -> None:
    """``--context NAME`` asks these servers from now on."""

    def connect(access: Access, clock: Clock, *, user_agent: str, limits: ServerLimits, **_: Any) -> Client:
        assert user_agent == f"kscale/{library.__version__}"
        return Client(servers[access.server.removeprefix("http://")], clock, qps=-1, limits=limits)

    monkeypatch.setattr("kscale.world.kubernetes.aiohttp_transport.connect", connect)
    config = {
        "clusters": [{"name": name, "cluster": {"server": f"http://{name}"}} for name in servers],
        "users": [{"name": "me", "user": {"token": "secret"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "me"}} for name in servers],
        "current-context": current,
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))


def refusing(path: str, code: int, reason: str) -> Callable[[Call], Answer | None]:
    """A fault of a server: what ends with ``path`` is refused."""
    body = json.dumps(status(code, reason, f"{reason} at all")).encode()
    return lambda call: Answer(code, {}, body) if call.path.endswith(path) else None
