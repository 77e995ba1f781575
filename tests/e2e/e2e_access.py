"""Who asks, how it is told, and what it may do: kubeconfigs and permissions against the real API server."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from e2e.control_plane import ControlPlane
from kscale.effects import ApiError, Create, Get, List, Patch
from kscale.objects.api.core import ConfigMap
from kscale.objects.api.meta import ObjectMeta
from kscale.world.clock import SystemClock
from kscale.world.kubernetes.aiohttp_transport import AiohttpTransport
from kscale.world.kubernetes.client import Client, RequestFailedError
from kscale.world.kubernetes.kubeconfig import Access, Secret, load_access
from kscale.world.kubernetes.performer import Performer
from kscale.world.kubernetes.transport import Call

WHO = Call(
    method="POST",
    path="/apis/authentication.k8s.io/v1/selfsubjectreviews",
    body=json.dumps({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}).encode(),
    content_type="application/json",
)


def call_as(access: Access, call: Call = WHO) -> dict[str, Any]:
    """As whom the server takes us; or, of another call, its answer."""

    async def main() -> dict[str, Any]:
        clock = SystemClock()
        client = Client(AiohttpTransport(access, clock), clock)
        try:
            result: dict[str, Any] = json.loads((await client.call(call)).body)
        finally:
            await client.close()
        return result["status"]["userInfo"] if call is WHO else result

    return asyncio.run(main())


def loaded(plane: ControlPlane, path: Path, *, cluster: Any = None, user: Any = None) -> Access:
    path.write_text(json.dumps(plane.config(cluster, user)))
    return load_access(str(path))


PLUGIN = """
import json, os, sys
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
assert info["kind"] == "ExecCredential" and info["spec"]["interactive"] is False
if sys.argv[1] == "cluster":
    cluster = info["spec"]["cluster"]
    assert cluster["server"].startswith("https://") and cluster["certificate-authority-data"]
status = json.loads(os.environ["STATUS"])
print(json.dumps({"kind": "ExecCredential", "apiVersion": info["apiVersion"], "status": status}))
"""


def plugin(version: str, status: dict[str, Any], *, cluster: bool = False) -> dict[str, Any]:
    return {
        "command": sys.executable,
        "args": ["-c", PLUGIN, "cluster" if cluster else ""],
        "env": [{"name": "STATUS", "value": json.dumps(status)}],
        "apiVersion": f"client.authentication.k8s.io/{version}",
        "interactiveMode": "Never",
        "provideClusterInfo": cluster,
    }


@pytest.mark.smoke
def test_every_kind_of_credentials_is_accepted(plane: ControlPlane, tmp_path: Path) -> None:
    path = tmp_path / "config"
    (tmp_path / "token").write_text(plane.token)
    pair = plane.certificate_of("carla", "system:masters")
    (tmp_path / "tls.crt").write_bytes(pair.certificate.read())
    (tmp_path / "tls.key").write_bytes(pair.key.read())
    data = {"clientCertificateData": pair.certificate.read().decode(), "clientKeyData": pair.key.read().decode()}
    users: list[tuple[dict[str, Any], str]] = [
        ({"token": plane.token}, "admin"),
        ({"tokenFile": "token"}, "admin"),
        ({"client-certificate": "tls.crt", "client-key": "tls.key"}, "carla"),
        ({"exec": plugin("v1", {"token": plane.token})}, "admin"),
        ({"exec": plugin("v1beta1", {"token": plane.token}, cluster=True)}, "admin"),
        ({"exec": plugin("v1", data)}, "carla"),
        ({"token": plane.token, "as": "jo", "as-groups": ["system:masters"], "as-user-extra": {"Why": ["x"]}}, "jo"),
    ]
    for user, name in users:
        assert call_as(loaded(plane, path, user=user))["username"] == name, user
    info = call_as(loaded(plane, path, user=users[-1][0]))
    assert set(info["groups"]) == {"system:masters", "system:authenticated"}
    assert info["extra"] == {"why": ["x"]}


def test_the_server(plane: ControlPlane, tmp_path: Path) -> None:
    path, user = tmp_path / "config", {"token": plane.token}
    name = {"tls-server-name": "kubernetes.default"}
    assert call_as(loaded(plane, path, cluster=name, user=user))["username"] == "admin"
    with pytest.raises(RequestFailedError, match="tls: "):
        call_as(loaded(plane, path, cluster={"tls-server-name": "other"}, user=user))
    insecure = {"certificate-authority": None, "insecure-skip-tls-verify": True, "disable-compression": True}
    assert call_as(loaded(plane, path, cluster=insecure, user=user))["username"] == "admin"
    with pytest.raises(RequestFailedError, match="tls: "):
        call_as(loaded(plane, path, cluster={"certificate-authority": None}, user=user))


def test_unknown_credentials_are_refused(plane: ControlPlane) -> None:
    with pytest.raises(RequestFailedError) as error:
        call_as(replace(plane.admin, token=Secret("wrong")), Call(method="GET", path="/api/v1/pods"))
    assert error.value.error.reason == "Unauthorized"
    assert "wrong" not in str(error.value)


@pytest.mark.smoke
def test_no_more_than_a_role_allows(plane: ControlPlane) -> None:
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
    ]
    access = plane.account("least", rules)
    plane.ask("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})

    async def main() -> list[ApiError | None]:
        clock = SystemClock()
        client = Client(AiohttpTransport(access, clock), clock)
        performer = Performer(client, clock)
        created = ConfigMap(metadata=ObjectMeta(name="c", namespace="default"))
        actions = (
            List(kind="Node", watched=False),
            Patch(kind="Node", name="n1", patch={"metadata": {"labels": {"a": "b"}}}),
            Create(created),
            Get(kind="ConfigMap", name="c", namespace="default"),
            List(kind="Pod", watched=False),
        )
        try:
            return [(await performer(action)).error for action in actions]
        finally:
            await client.close()

    *allowed, get, listed = asyncio.run(main())
    assert allowed == [None, None, None]
    assert get is not None
    assert listed is not None
    assert (get.code, get.reason, listed.reason) == (403, "Forbidden", "Forbidden")
    who = 'User "system:serviceaccount:kube-system:least" cannot'
    assert f'configmaps "c" is forbidden: {who} get resource "configmaps"' in get.message
