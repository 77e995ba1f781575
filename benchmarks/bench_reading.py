"""Reading a dump, and what it costs a pod: decode, check, digest. One thread, warm caches, JSON in memory.

What says "kernel" is a part that no user calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kscale import Quantity
from kscale.objects.api.core import Pod
from kscale.objects.decode import from_dict
from kscale.objects.pod_equivalence import Digester, digest
from kscale.objects.pod_resources import demand, to_integers
from kscale.snapshot.loading import load_objects
from kscale.snapshot.text.sources import read

PODS = 5000


def pod(number: int) -> dict[str, Any]:
    """A pod as an API server returns it: token volume, default tolerations, a status."""
    token = f"kube-api-access-{number:05d}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"web-{number}",
            "namespace": f"team-{number % 50}",
            "uid": f"uid-{number}",
            "labels": {"app": f"web-{number % 100}", "pod-template-hash": "5d8f"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web-5d8f", "uid": "u", "controller": True}],
        },
        "spec": {
            "containers": [
                {
                    "name": "app",
                    "image": "example.com/web:1",
                    "env": [{"name": f"VARIABLE_{i}", "value": "x" * 20} for i in range(10)],
                    "resources": {
                        "requests": {"cpu": f"{100 + number % 9}m", "memory": "512Mi"},
                        "limits": {"memory": "1Gi"},
                    },
                    "volumeMounts": [{"name": token, "mountPath": "/var/run/secrets"}],
                }
            ],
            "nodeName": f"node-{number % 300}",
            "tolerations": [
                {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
                for key in ("not-ready", "unreachable")
            ],
            "volumes": [{"name": token, "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


@pytest.fixture(scope="module")
def dump() -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [pod(i) for i in range(PODS)]}, indent=4).encode()


@pytest.fixture(scope="module")
def texts() -> list[bytes]:
    return [json.dumps(pod(i)).encode() for i in range(PODS)]


def test_kernel_split_into_records(benchmark: Any, dump: bytes) -> None:
    assert benchmark(lambda: sum(1 for _ in read(dump))) == PODS


def test_load_and_check(benchmark: Any, dump: bytes) -> None:
    assert benchmark(lambda: sum(1 for _ in load_objects(dump))) == PODS


def test_load_without_checks(benchmark: Any, dump: bytes) -> None:
    assert benchmark(lambda: sum(1 for _ in load_objects(dump, validate=False))) == PODS


def test_kernel_digest_of_many_pods(benchmark: Any, texts: list[bytes]) -> None:
    digests = benchmark(lambda: set(map(Digester().digest, texts)))
    assert len(digests) == len({(i % 100, i % 9, i % 300) for i in range(PODS)})


def test_kernel_digest_of_one_pod(benchmark: Any, texts: list[bytes]) -> None:
    assert len(benchmark(digest, texts[0])) == 16


def test_kernel_demand(benchmark: Any) -> None:
    read_pod = from_dict(pod(0), Pod)
    assert benchmark(lambda: to_integers(demand(read_pod))) == {"cpu": 100, "memory": 512 << 20}


def test_quantity(benchmark: Any) -> None:
    assert benchmark(Quantity, "1500m").milli_value() == 1500
