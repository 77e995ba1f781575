"""``kscale manifests reader``: what may be read is what is asked for."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from kscale.drivers.manifests.autoscalers import reader_rules
from kscale.world.clock import SystemClock
from kscale.world.kubernetes.transport import Call
from unit.cli.live_clusters import serve
from unit.cli.support import kscale
from unit.cli.test_live_hpas import CUSTOM, WIDGETS, metrics, objects
from unit.world.fake_api_server import FakeApiServer

Right = tuple[str, str, str]


def right_of(call: Call) -> Right | None:
    """(group, resource, verb) that a request needs, as the API server's RequestInfo has it; None: it is discovery,
    which everybody may do."""
    assert call.method == "GET"
    parts = [unquote(part) for part in call.path.strip("/").split("/")]
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1] if len(parts) > 1 else "", parts[3:])
    if len(rest) > 2 and rest[0] == "namespaces":
        rest = rest[2:]
    if not rest:
        return None
    resource = "/".join([rest[0], *rest[2:]])
    return group, resource, "get" if len(rest) > 1 else "list"


def allows(rule: dict[str, list[str]], right: Right) -> bool:
    group, resource, verb = right
    base_resource, _, sub = resource.partition("/")
    resources = {"*", resource, *([f"*/{sub}"] if sub and base_resource else [])}
    named = group in rule["apiGroups"] or rule["apiGroups"] == ["*"]
    return named and verb in rule["verbs"] and not resources.isdisjoint(rule["resources"])


@pytest.fixture
def east(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeApiServer:
    result = FakeApiServer(SystemClock(), resources=[WIDGETS, CUSTOM])
    serve({"east": result}, tmp_path, monkeypatch, current="east")
    for plural, item in objects():
        result.put(plural, item)
    node = {"metadata": {"name": "alone"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}}}
    result.put("nodes", {"apiVersion": "v1", "kind": "Node", **node})
    result.fault = metrics
    return result


def test_reader_role_allows_every_request(east: FakeApiServer, tmp_path: Path) -> None:
    groups, pod = tmp_path / "groups.yaml", tmp_path / "pod.yaml"
    groups.write_text(yaml.safe_dump([{"id": "a", "min": 0, "max": 3, "fromNode": "alone"}]))
    new = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    pod.write_text(yaml.safe_dump(new))
    for command in (
        ("estimate", "-g", groups),
        ("explain", "shop/web-0"),
        ("fit", "--pod", pod),
        ("scale-up", "-g", groups),
        ("scale-down", "-g", groups),
        ("headroom",),
        ("hpa",),
    ):
        result = kscale(*command, "--context", "east")
        assert result.code in (0, 1), (command, result.stderr)
        assert "not read" not in result.stderr
    rights = {right for call in east.calls if (right := right_of(call)) is not None}
    rules = reader_rules()
    assert not {right for right in rights if not any(allows(rule, right) for rule in rules)}
    each = [
        {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
        for rule in rules for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]
    ]  # fmt: skip
    assert not [one for one in each if not any(allows(one, right) for right in rights)]
    assert not [one for one in each if {"secrets", "configmaps"} & set(one["resources"])]


def test_printed_reader_role_is_complete() -> None:
    result = kscale("manifests", "reader", "-n", "ops")
    account, role, binding = yaml.safe_load_all(result.stdout)
    assert (account["kind"], account["metadata"]["namespace"]) == ("ServiceAccount", "ops")
    assert (role["kind"], role["rules"]) == ("ClusterRole", reader_rules())
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account["metadata"]["name"], "namespace": "ops"}]
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list"}
