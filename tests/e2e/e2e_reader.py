"""Questions about a live cluster, asked by the account of ``kscale manifests reader``, with exactly its role."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.control_plane import ControlPlane, Refused
from e2e.metrics_server import FakeMetrics
from e2e.widgets import DEFINITION, GROUP
from unit.cli.support import Run, kscale
from unit.world.informer_cases import pod

MERGE = "application/merge-patch+json"
NAMESPACE = "/namespaces/default"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLE = f"{RBAC}/clusterroles/kscale-reader"
APPS = f"/apis/apps/v1{NAMESPACE}"
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
QPS = {"type": "Pods", "pods": {"metric": {"name": "qps"}, "target": {"type": "AverageValue", "averageValue": "1"}}}
LAG = {"type": "External", "external": {"metric": {"name": "lag"}, "target": {"type": "Value", "value": "1"}}}
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def workload(plane: ControlPlane, path: str, api_version: str, kind: str, name: str, *metrics: Any) -> None:
    """Two replicas with two pods of 1 cpu, and an HPA."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template, "serviceName": name}
    if kind != "StatefulSet":
        del spec["serviceName"]
    plane.ask("POST", path, {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})
    status = {"replicas": 2, "selector": f"app={name}"}
    plane.ask("PATCH", f"{path}/{name}/status", {"status": status}, content_type=MERGE)
    for number in range(2):
        created = pod(f"{name}-{number}", node="n1", app=name)
        created["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
        plane.ask("POST", f"/api/v1{NAMESPACE}/pods", created)
        phase = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "conditions": [READY]}
        plane.ask("PATCH", f"/api/v1{NAMESPACE}/pods/{name}-{number}/status", {"status": phase}, content_type=MERGE)
    target = {"apiVersion": api_version, "kind": kind, "name": name}
    hpa = {"metadata": {"name": name}, "spec": {"maxReplicas": 10, "scaleTargetRef": target, "metrics": metrics}}
    plane.ask("POST", f"/apis/autoscaling/v2{NAMESPACE}/horizontalpodautoscalers", hpa)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster with a node, HPAs, and a pod that waits; the reader's account is there."""
    with ControlPlane(tmp_path_factory.mktemp("reader")) as plane:
        plane.define(DEFINITION)
        amounts = {"cpu": "8", "memory": "16Gi", "pods": "110"}
        plane.ask("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
        ready = {"conditions": [{"type": "Ready", "status": "True"}], "capacity": amounts, "allocatable": amounts}
        plane.ask("PATCH", "/api/v1/nodes/n1/status", {"status": ready}, content_type=MERGE)
        plane.ask("POST", f"/api/v1{NAMESPACE}/pods", pod("waits"))
        widget = (f"{GROUP}{NAMESPACE}/widgets", "duel.example.com/v1", "Widget", "widget")
        workload(plane, f"{APPS}/deployments", "apps/v1", "Deployment", "web", CPU)
        workload(plane, f"{APPS}/statefulsets", "apps/v1", "StatefulSet", "queue", QPS, LAG)
        workload(plane, *widget, CPU)
        plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "ops"}})
        paths = {
            "ServiceAccount": "/api/v1/namespaces/ops/serviceaccounts",
            "ClusterRole": f"{RBAC}/clusterroles",
            "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
        }
        for each in yaml.safe_load_all(kscale("manifests", "reader", "-n", "ops").stdout):
            plane.ask("POST", paths[each["kind"]], each)
        yield plane


@pytest.fixture
def token(filled: ControlPlane) -> str:
    """Of the reader (``kubectl create token``)."""
    request = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {"expirationSeconds": 3600}}
    path = "/api/v1/namespaces/ops/serviceaccounts/kscale-reader/token"
    result: str = filled.ask("POST", path, request)["status"]["token"]
    return result


Ask = Callable[..., Run]


@pytest.fixture
def ask(filled: ControlPlane, token: str, tmp_path: Path) -> Ask:
    """A command as the reader, while a metrics server tells that every container uses 0.9 cpu."""
    (tmp_path / "config").write_text(json.dumps(filled.config(None, {"token": token})))

    async def run_words(*words: object) -> Run:
        async with FakeMetrics(filled, lambda *_: {"cpu": "900m"}):
            while not await asyncio.to_thread(served):
                await asyncio.sleep(0.1)
            return await asyncio.to_thread(kscale, *words, "--kubeconfig", tmp_path / "config", "--context", "c")

    def served() -> bool:
        try:
            filled.ask("GET", "/apis/metrics.k8s.io/v1beta1/pods")
        except Refused:
            return False
        return True

    return lambda *words: asyncio.run(run_words(*words))


def test_the_role_is_enough(filled: ControlPlane, ask: Ask, token: str, tmp_path: Path) -> None:
    groups = tmp_path / "groups.yaml"
    groups.write_text(yaml.safe_dump([{"id": "a", "min": 0, "max": 3, "fromNode": "n1"}]))
    for words in (("estimate", "-g", groups), ("headroom",), ("scale-down", "-g", groups)):
        result = ask(*words)
        assert result.code in (0, 1), result.stderr
        assert result.stderr.startswith("read context c: ")
        assert "warning" not in result.stderr
    result = ask("hpa", "-o", "json")
    assert result.code == 0, result.stderr
    hpas = {each["name"]: each for each in json.loads(result.stdout)["hpas"]}
    assert (hpas["web"]["desiredReplicas"], hpas["widget"]["desiredReplicas"]) == (4, 4)
    assert "forbidden" not in json.dumps(hpas)
    lists = [line.partition(": ")[2] for line in result.stderr.splitlines() if line.startswith("missing: ")]
    nowhere = "the server could not find the requested resource (get lag.external.metrics.k8s.io)"
    assert lists == [
        "1 of 1 answers of custom.metrics.k8s.io: no custom metrics API (custom.metrics.k8s.io) registered",
        f"1 of 1 answers of external.metrics.k8s.io: {nowhere}",
    ]
    # The rights come before what is not there.
    for path, code in (
        (f"/apis/custom.metrics.k8s.io/v1beta2{NAMESPACE}/pods/*/qps", 404),
        (f"/apis/external.metrics.k8s.io/v1beta1{NAMESPACE}/lag", 404),
        (f"/api/v1{NAMESPACE}/secrets", 403),
        (f"/api/v1{NAMESPACE}/configmaps", 403),
        (f"/api/v1{NAMESPACE}/pods/web-0", 403),
    ):
        with pytest.raises(Refused) as refused:
            filled.ask("GET", path, token=token)
        assert refused.value.code == code, path


@pytest.mark.parametrize(
    ("resource", "words", "code", "message"),
    [
        ("nodes", ("headroom",), 2, 'cannot list resource "nodes" in API group "" at the cluster scope'),
        ("limitranges", ("headroom",), 1, 'cannot list resource "limitranges" in API group "" at the cluster scope'),
        ("*/scale", ("hpa", "-o", "json"), 0, 'cannot get resource "widgets/scale" in API group "duel.example.com"'),
        (
            "horizontalpodautoscalers", ("hpa",), 2,
            'cannot list resource "horizontalpodautoscalers" in API group "autoscaling" at the cluster scope',
        ),
    ],
)  # fmt: skip
def test_missing_permission_is_reported(
    filled: ControlPlane, ask: Ask, resource: str, words: tuple[str, ...], code: int, message: str
) -> None:
    rules = filled.ask("GET", ROLE)["rules"]
    less = [{**rule, "resources": [each for each in rule["resources"] if each != resource]} for rule in rules]
    filled.ask("PATCH", ROLE, {"rules": [rule for rule in less if rule["resources"]]}, content_type=MERGE)
    try:
        result = ask(*words)
    finally:
        filled.ask("PATCH", ROLE, {"rules": rules}, content_type=MERGE)
    assert result.code == code, result.stderr
    who = 'User "system:serviceaccount:ops:kscale-reader"'
    assert f"{who} {message}" in (result.stderr + result.stdout).replace('\\"', '"')
