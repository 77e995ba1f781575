"""Namespace selectors in a dump without Namespace objects: what cannot be judged is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kscale.scheduling.plugins.inter_pod_affinity import format_namespace_warning
from unit.cli.support import kscale

BY_LABEL = {"matchLabels": {"team": "a"}}
BY_EXPRESSION = {"matchExpressions": [{"key": "team", "operator": "Exists"}]}


def pod(name: str, selector: dict[str, Any] | None, kind: str = "podAntiAffinity", **status: Any) -> dict[str, Any]:
    term = {"topologyKey": "zone", "labelSelector": {}, **({} if selector is None else {"namespaceSelector": selector})}
    affinity = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    spec = {"containers": [{"name": "c"}], "affinity": affinity}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec, "status": status}


def dump(path: Path, *objects: dict[str, Any]) -> Path:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    metadata = {"name": "n", "labels": {"zone": "z"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": amounts}}
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node, *objects]}))
    return path


NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}


def output_of(*arguments: object) -> str:
    run = kscale(*arguments)
    return " ".join((run.stdout + run.stderr).split())


@pytest.mark.parametrize("command", [["validate"], ["estimate", "--instance-type", "m5.large"]])
def test_pods_of_the_dump(command: list[str], tmp_path: Path) -> None:
    asking = [pod("a", BY_LABEL), pod("b", BY_EXPRESSION, "podAffinity")]
    others = [pod("c", {}), pod("d", None), pod("e", BY_LABEL, phase="Succeeded")]
    lacking = dump(tmp_path / "lacking.json", *asking, *others)
    assert format_namespace_warning(2) in output_of(*command, "-f", lacking)
    assert "2 pods choose namespaces" in format_namespace_warning(2)
    complete = dump(tmp_path / "whole.json", *asking, *others, NAMESPACE)
    assert "namespaceSelector" not in output_of(*command, "-f", complete)
    plain = dump(tmp_path / "plain.json", *others)
    assert "namespaceSelector" not in output_of(*command, "-f", plain)


def test_pods_of_a_manifest(tmp_path: Path) -> None:
    manifest = tmp_path / "pod.json"
    manifest.write_text(json.dumps(pod("a", BY_LABEL)))
    assert format_namespace_warning(1) in output_of("fit", "--pod", manifest, "-f", dump(tmp_path / "lacking.json"))
    assert "namespaceSelector" not in output_of(
        "fit", "--pod", manifest, "-f", dump(tmp_path / "whole.json", NAMESPACE)
    )
