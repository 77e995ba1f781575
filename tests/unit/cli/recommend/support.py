"""A small dump, histories of it, and what the command says to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import kscale.vpa
from unit.cli.support import Run, kscale

START = 1767571200  # 2026-01-05T00:00:00Z


HEADER = "time,namespace,pod,container,cpu_cores,memory_bytes\n"


MIB = 2**20


def dump() -> dict[str, Any]:
    labels = {"app": "web"}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [{"name": "app", "image": "x", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]
        },
    }
    owner = {"apiVersion": "apps/v1", "controller": True, "uid": "u"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
    replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": "web-5d4f8", "namespace": "shop",
            "ownerReferences": [{**owner, "kind": "Deployment", "name": "web"}],
        },
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }  # fmt: skip
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-5d4f8-abcde", "namespace": "shop", "labels": labels,
            "ownerReferences": [{**owner, "kind": "ReplicaSet", "name": "web-5d4f8"}],
        },
        "spec": {"nodeName": "n1", **template["spec"]},
        "status": {"phase": "Running"},
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "List", "items": [deployment, replica_set, pod]}


def rows(
    count: int, *, pod: str = "web-5d4f8-abcde", cpu: object = 0.1, memory: object = 300 * MIB, container: str = "app"
) -> list[str]:
    return [f"{START + 60 * i},shop,{pod},{container},{cpu},{memory}\n" for i in range(count)]


def recommend(cluster: Path, lines: list[str], *more: object) -> Run:
    history = cluster.parent / "usage.csv"
    history.write_text(HEADER + "".join(lines))
    return kscale("recommend", "-f", cluster, "--history", history, *more)


def answer(run: Run) -> dict[str, Any]:
    assert run.code == 0, run.stderr
    result: dict[str, Any] = json.loads(run.stdout)
    return result


def node() -> dict[str, Any]:
    amounts = {"cpu": "1", "memory": "4Gi", "pods": "110"}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": status}


def refused(cluster: Path, name: str, content: bytes, *more: object) -> str:
    path = cluster.parent / name
    path.write_bytes(content)
    run = kscale("recommend", "-f", cluster, "--history", path, *more)
    assert (run.code, run.stdout) == (2, ""), run.stdout
    assert "internal error" not in run.stderr
    return run.stderr


def written(cluster: Path, lines: list[str]) -> bytes:
    """The rows as Parquet, one row group."""
    parts = [line.strip().split(",") for line in lines]
    names = HEADER.strip().split(",")
    columns = {name: [p[i] for p in parts] for i, name in enumerate(names)}
    columns |= {name: [float(x) for x in columns[name]] for name in ("cpu_cores", "memory_bytes")}
    columns["time"] = [int(x) for x in columns["time"]]
    path = cluster.parent / "whole.parquet"
    pq.write_table(pa.table(columns), path, compression="none", use_dictionary=False)
    return path.read_bytes()


def vpa(name: str, created: str = "2026-01-01T00:00:00Z", target: str = "web", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": {"name": name, "namespace": "shop", "creationTimestamp": created},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}, **spec},
    }  # fmt: skip


def at_least(cpu: str) -> dict[str, Any]:
    return {"resourcePolicy": {"containerPolicies": [{"containerName": "*", "minAllowed": {"cpu": cpu}}]}}


def with_items(cluster: Path, *items: dict[str, Any]) -> None:
    document = dump()
    cluster.write_text(json.dumps({**document, "items": [*document["items"], *items]}))
