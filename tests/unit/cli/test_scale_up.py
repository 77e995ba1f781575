"""``kscale scale-up``: the answer, and every mistake by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kscale.capacity.generate import generate
from kscale.cli.output import Format
from kscale.schemas import schema
from unit.cli.support import Run
from unit.cli.support import kscale as run

NOW = "2026-05-04T12:00:00Z"


def node(name: str) -> dict[str, Any]:
    amounts = {"cpu": "1", "memory": "1Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-05-01T00:00:00Z"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def pod(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "creationTimestamp": "2026-05-04T11:00:00Z"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec},
        "status": {"phase": "Pending", "conditions": [condition]},
    }


def group(name: str, cpu: str = "4", **fields: Any) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    return {"id": name, "max": 10, "template": {"status": {"capacity": amounts, "allocatable": amounts}}, **fields}


PODS = [pod("small", "500m"), *(pod(f"web-{i}", "2") for i in range(4)), pod("huge", "64")]


def scale_up(tmp_path: Path, groups: list[dict[str, Any]], *arguments: object, pods: Any = PODS) -> Run:
    (tmp_path / "dump.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [node("n"), *pods]}))
    (tmp_path / "groups.json").write_text(json.dumps(groups))
    return run("scale-up", "-f", tmp_path / "dump.json", "-g", tmp_path / "groups.json", "--now", NOW, *arguments)


def test_the_answer(tmp_path: Path) -> None:
    got = scale_up(tmp_path, [group("a"), group("b", "2"), group("full", max=0)])
    assert got.code == 1  # one pod stays without
    first, _, header, *lines = got.stdout.splitlines()
    assert first == "Scale up a 0 -> 2 (2 nodes) for 4 of 5 pods."
    assert header.split() == ["OPTION", "NODES", "PODS", "SCORE", "CHOSEN", "SKIPPED", "BECAUSE"]
    assert lines[0].split() == ["a", "2", "4", "least-waste", "1.000", "yes"]
    assert lines[2].endswith("max node group size reached")
    assert "shop/huge" in got.stdout
    assert "1 max node group size reached, 2 Insufficient cpu" in got.stdout
    assert "1 pod needs no new node: it fits on" in got.stdout


@pytest.mark.parametrize("form", list(Format))
def test_every_format(tmp_path: Path, form: Format) -> None:
    got = scale_up(tmp_path, [group("a")], "-o", form.value)
    assert got.code == 1
    if form is Format.JSON:
        plan = json.loads(got.stdout)
        jsonschema.validate(plan, schema("ScaleUpPlan"))
        assert plan["pending"][0]["rejected"]["a"]["numbers"] == [{"resource": "cpu", "asked": 64000, "free": 4000}]
    elif form is Format.NAME:
        assert got.stdout == "nodegroup/a\n"
    else:
        assert "a" in got.stdout


def test_all_groups_side_by_side(tmp_path: Path) -> None:
    tiny = group("tiny", "1")
    assert "tiny" not in scale_up(tmp_path, [group("a"), tiny]).stdout.split("PODS  STILL")[0]
    got = scale_up(tmp_path, [group("a"), tiny], "--all-groups").stdout
    assert "no pod fits its nodes" in got
    assert any(line.split() == ["POD", "a", "tiny"] for line in got.splitlines())


def test_the_chain_and_the_shares(tmp_path: Path) -> None:
    groups = [group("a", price=1), group("b", "8", price=1)]
    assert scale_up(tmp_path, groups, "--expander", "least-nodes").stdout.startswith("Scale up b 0 -> 1")
    assert scale_up(tmp_path, groups, "--expander", "price").code == 1
    twins = [group("a"), group("b")]
    got = scale_up(tmp_path, twins, "--balance-similar-node-groups").stdout
    assert got.startswith("Scale up a 0 -> 1 and b 0 -> 1 (2 nodes, balanced) for 4 of 5 pods.")


def test_what_is_remembered(tmp_path: Path) -> None:
    kept = tmp_path / "state.json"
    scale_up(tmp_path, [group("a")], "--save-state", kept)
    got = scale_up(tmp_path, [group("a", target=2)], "--state", kept)
    assert "Nodes that are coming already: a 2." in got.stdout
    assert got.stdout.startswith("No node group can grow for 1 pod.")


def test_pods_of_one_namespace(tmp_path: Path) -> None:
    got = scale_up(tmp_path, [group("a")], "-n", "elsewhere")
    assert (got.code, got.stdout) == (0, "No scale-up is needed.\n")


@pytest.mark.parametrize(
    ("groups", "arguments", "said"),
    [
        ([group("a", min=5, max=2)], [], "min 5 is more than max 2"),
        ([group("a"), group("a")], [], "the id is that of groups[0]"),
        ([{"id": "a"}], [], "no template"),
        ([{"id": "a", "nodeSelector": {"no": "such"}}], [], "node group a"),
        ([group("a", max=-1)], [], "groups[0] (a): max"),
        ([group("a", target=11)], [], "target"),
        ([group("a")], ["--expander", "cheapest"], "Expander cheapest not supported"),
        ([group("a")], ["--expander", "random,price"], "came after an expander random"),
        ([group("a")], ["--expander", "price"], "node group a: price"),
        ([group("a")], ["--expander", "priority"], "--priority-config"),
        ([group("a")], ["--max-nodes-total", "-1"], "--max-nodes-total"),
        ([group("a")], ["--now", "noon"], "--now"),
    ],
)
def test_mistakes_by_name(tmp_path: Path, groups: list[dict[str, Any]], arguments: list[str], said: str) -> None:
    got = scale_up(tmp_path, groups, *arguments)
    assert (got.code, got.stdout) == (2, "")
    assert said in got.stderr
    assert "internal error" not in got.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "PriorityConfigMapInvalid: Wrong configuration for priority expander"),
        ("kind: ConfigMap\ndata: {other: x}\n", "doesn't contain priorities key"),
        ("10: [nothing]\n", "PriorityConfigMapNotMatchedGroup"),
    ],
)
def test_a_broken_priority_map_is_upstreams_event(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "map.yaml").write_text(text)
    got = scale_up(tmp_path, [group("a")], "--expander", "priority", "--priority-config", tmp_path / "map.yaml")
    assert got.stdout.startswith("Scale up a 0 -> 2")
    assert said in got.stderr


def test_without_a_groups_file_the_bounds_are_unknown_and_every_pod_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    items = list(generate(60, 1200).objects())
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    got = run("scale-up", "-f", file, "-o", "json")
    plan = json.loads(got.stdout)
    assert "sizes have no limit" in got.stderr
    assert plan["lists"]["asked"] == len(plan["triggered"]) + sum(len(found["pods"]) for found in plan["pending"])
    for found in plan["pending"]:
        assert found["why"]
        skipped = {choice["group"] for choice in plan["options"] if choice["skipped"]}
        assert {*found["rejected"], *found["takenBy"], *skipped} == {choice["group"] for choice in plan["options"]}
    assert "is not known: no limit was applied" in run("scale-up", "-f", file).stdout
