"""The programs of examples/programs, which embed kscale."""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kscale
from kscale.capacity.whatif import Base

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = sorted((EXAMPLES / "programs").glob("*.py"))
AMOUNTS = {"cpu": "4", "memory": "8Gi", "pods": "110"}


def load_program(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / "programs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # other tests compare the folder
    monkeypatch.setitem(sys.modules, name, module)  # worker processes import its functions by name
    spec.loader.exec_module(module)
    return module


def node(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": AMOUNTS}}


def pending_pod(name: str, cpu: str) -> dict[str, Any]:
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "7"},
        "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Pending", "conditions": [unschedulable]},
    }


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_is_short_and_uses_public_names(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 70
    for statement in ast.walk(ast.parse(text)):
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("kscale"):
            module = importlib.import_module(statement.module or "")
            assert {alias.name for alias in statement.names} <= set(module.__all__)


def test_watch_example_prints_needed_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    program = load_program("watch_pending_pods", monkeypatch)
    events = [
        {"type": "ADDED", "object": pending_pod("small", "1")},
        {"type": "ADDED", "object": pending_pod("large", "3500m")},
        {"type": "ADDED", "object": pending_pod("huge", "64")},
        {"type": "DELETED", "object": pending_pod("huge", "64")},
        {"type": "DELETED", "object": pending_pod("large", "3500m")},
    ]
    lines = [json.dumps(event).encode() + b"\n" for event in events]
    groups = [kscale.NodeGroup(id="web", max_size=5, nodes=["node-1"])]
    assert list(program.follow(kscale.load(node("node-1")), lines, groups)) == [
        "1 pods wait for a node: web 1 -> 2",
        "2 pods wait for a node: web 1 -> 2",
        "1 pods wait for a node: web 1 -> 2",
        "no pod waits for a node",
    ]


def test_service_example_answers_fit_and_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastapi.testclient import TestClient

    monkeypatch.setenv("KSCALE_DUMP", str(EXAMPLES / "cluster.json.gz"))
    monkeypatch.setenv("KSCALE_GROUPS", str(EXAMPLES / "groups.yaml"))
    client = TestClient(load_program("fit_service", monkeypatch).create_app())
    answer = client.post("/fit", content=(EXAMPLES / "web.yaml").read_bytes()).json()
    assert (answer["replicas"], answer["fit"]) == (80, 12)
    assert sum(answer["nodes"]["web"].values()) == 12
    assert answer["reasons"]["web"].startswith("0/40 nodes are available: 26 Insufficient cpu")
    assert answer["newNodes"]
    assert answer["costPerHour"] > 0
    refused = client.post("/fit", content=b"kind: ConfigMap")
    assert refused.status_code == 422


def test_variants_are_decided_in_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    program = load_program("request_variants", monkeypatch)
    base = Base(
        kscale.load(EXAMPLES / "cluster.json.gz"),
        kscale.read_groups(EXAMPLES / "groups.yaml"),
        datetime(2026, 7, 1, tzinfo=UTC),
    )
    rows = program.run(base, 16)
    assert len({row.name for row in rows}) == 16
    assert rows[0].pending <= rows[-1].pending
    assert min(row.pending for row in rows) < max(row.pending for row in rows)
