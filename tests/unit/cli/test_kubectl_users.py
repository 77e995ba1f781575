"""What people who know kubectl type first, and what they want to hear next."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kscale.cli.inputs import kind_of
from kscale.cli.terminal import Terminal, object_name, on_nodes
from unit.cli.support import kscale
from unit.cli.test_answers import node, pod, write

BIN = Path(sys.executable).parent


def deployment(name: str, replicas: int, cpu: str = "1", **more: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "a"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
            **more,
        },
    }


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return write(tmp_path / "dump.json", node("n1"), node("n2"), pod("first", "3", priority=5), pod("second", "3"))


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    path = tmp_path / "groups.json"
    path.write_text(json.dumps([{"id": "big", "max": 9, "template": node("big", "8")}]))
    return path


def test_nodes_for_manifests_that_are_not_applied_yet(tmp_path: Path, dump: Path, groups: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    write(folder / "web.json", deployment("web", 10))
    write(folder / "more.json", {**deployment("etl", 2, "3"), "metadata": {"name": "etl"}})
    got = kscale("estimate", "-q", "-f", dump, "-g", groups, "--pod", folder, "-n", "b")
    lines = got.stdout.splitlines()
    assert got.code == 0
    assert lines[0] == "12 pods of the manifests: 4 fit on nodes that exist, 8 need new nodes, 0 fit nowhere."
    assert lines[3].split()[:4] == ["big", "1", "1", "8"]
    alone = kscale("estimate", "-q", "-f", dump, "-g", groups, "--pod", folder, "--ignore-existing").stdout
    assert alone.splitlines()[3].split()[:4] == ["big", "2", "2", "12"]
    empty = kscale("estimate", "-q", "-f", dump, "-g", groups, "--pod", write(tmp_path / "no.json", deployment("x", 0)))
    assert empty.stdout.startswith("No pods are of the manifests.")


def test_manifests_that_no_api_server_would_take(tmp_path: Path, dump: Path, groups: Path) -> None:
    ranged = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": "a"},
        "spec": {"limits": [{"type": "Container", "max": {"cpu": "500m"}}]},
    }
    path = write(tmp_path / "range.json", ranged)
    manifest = write(tmp_path / "web.json", deployment("web", 3))
    got = kscale("estimate", "-f", dump, "-f", path, "-g", groups, "--pod", manifest)
    message = "maximum cpu usage per Container is 500m.  No limit is specified"
    assert got.code == 2
    assert f"Deployment a/web: LimitRanger would refuse its pods: {message}" in got.stderr
    assert f"0 fit now, 3 do not: 3 {message}." in kscale("fit", "-f", dump, "-f", path, "--pod", manifest).stdout


def test_fit_shows_placements_and_the_next_obstacle(tmp_path: Path, dump: Path) -> None:
    web = write(tmp_path / "web.json", deployment("web", 8))
    got = kscale("fit", "-q", "-f", dump, "--pod", web).stdout.splitlines()
    assert got == [
        "a/web (Deployment, 8 replicas): all 8 fit now.",
        "",
        "Deployment/a/web lands on n1 (4), n2 (4).",
        "Deployment/a/web: one replica more would not fit: 0/2 nodes are available: 2 Insufficient cpu.",
    ]
    some = kscale("fit", "-q", "-f", dump, "--pod", write(tmp_path / "few.json", deployment("few", 3))).stdout
    assert "one replica more" not in some


def test_fit_says_that_a_workload_is_there_already(tmp_path: Path) -> None:
    web = deployment("web", 2)
    dump = write(tmp_path / "dump.json", node("n1"), web, pod("p"))
    there = "is in the input already: its replicas are asked about on top of its pods there."
    assert f"Deployment/a/web {there}" in kscale("fit", "-f", dump, "--pod", write(tmp_path / "w.json", web)).stdout
    assert f"Pod/a/p {there}" in kscale("fit", "-f", dump, "--pod", write(tmp_path / "p.json", pod("p"))).stdout
    assert there not in kscale("fit", "-f", dump, "--pod", write(tmp_path / "q.json", pod("q"))).stdout


def test_headroom_shows_placements_and_the_next_obstacle(tmp_path: Path, dump: Path) -> None:
    manifest = write(tmp_path / "p.json", pod("p", "2"))
    got = kscale("headroom", "-q", "-f", dump, "--pod", manifest).stdout
    assert got.startswith("4 more fit.")
    assert "They land on n1 (2), n2 (2)." in got
    assert "The next one does not fit: 0/2 nodes are available: 2 Insufficient cpu." in got
    text = " ".join(kscale("headroom", "--help").stdout.split())
    assert "Status 1 if some loss would leave a pod without a place" in text


def test_explain_names_pods_that_took_the_capacity(tmp_path: Path) -> None:
    dump = write(tmp_path / "dump.json", node("n1"), pod("second", "3"), pod("first", "3", priority=5))
    assert "1 pod fits nowhere" in kscale("estimate", "-f", dump).stdout
    got = kscale("explain", "-q", "-f", dump, "a/second")
    assert got.stdout.startswith(
        "a/second alone would fit on 1 of 1 node: n1. But pods that are placed before it take that room: a/first."
    )
    assert got.code == 1
    helped = kscale("explain", "-q", "-f", dump, "a/second", "--node", "n1")
    assert (helped.code, helped.stdout.splitlines()[-1]) == (0, "A new node of like-n1 (4 cpu) would take it.")
    first = kscale("explain", "-q", "-f", dump, "a/first")
    assert (first.code, first.stdout) == (0, "a/first fits on 1 of 1 node: n1.\n")


@pytest.mark.parametrize("name", ["pod/second", "pods/second", "po/second", "second", "a/second"])
def test_pods_are_named_as_kubectl_names_them(dump: Path, name: str) -> None:
    assert kscale("explain", "-q", "-f", dump, "-n", "a", name).stdout.startswith("a/second ")


def test_a_namespace_called_pod(tmp_path: Path) -> None:
    dump = write(tmp_path / "dump.json", node("n1"), pod("web", namespace="pod"))
    assert kscale("explain", "-q", "-f", dump, "pod/web").stdout.startswith("pod/web fits")


@pytest.mark.parametrize(
    "command", [("estimate",), ("fit", "--pod", "p.json"), ("explain", "x"), ("scale-up", "--node", "n1")]
)
def test_a_namespace_that_there_is_not(tmp_path: Path, dump: Path, command: tuple[str, ...]) -> None:
    write(tmp_path / "p.json", pod("p"))
    arguments = [tmp_path / word if word.endswith(".json") else word for word in command]
    assert 'warning: there is no namespace "aa" in the input; did you mean a?' in (
        kscale(*arguments, "-f", dump, "-n", "aa").stderr
    )


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        *[(text, "Deployment") for text in ("deployments", "Deployment", "deploy", "deployments.apps")],
        *[("sts", "StatefulSet"), ("jobs", "Job"), ("DaemonSets", "DaemonSet"), ("rollouts", "rollouts")],
    ],
)
def test_kinds_as_kubectl_takes_them(text: str, kind: str) -> None:
    assert kind_of(text) == kind


def test_names_have_one_shape() -> None:
    assert object_name("Deployment", "shop", "web") == "deployment/shop/web"
    assert object_name("Node", None, "n1") == "node/n1"
    assert on_nodes({"a": 1, "b": 3, "c": 2, "d": 1, "e": 1}) == "b (3), c (2), a (1) and 2 more"


def test_a_plugin_of_kubectl_suggests_itself(dump: Path) -> None:
    done = subprocess.run(
        [BIN / "kubectl-kscale", "estimate", "-q", "-f", dump, "--node", "n1", "--ignore-existing", "-n", "a"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "kubectl kscale explain" not in done.stdout  # all fit
    small = write(dump.parent / "small.json", node("n1", "1"), pod("p", "2"))
    command = [BIN / "kubectl-kscale", "estimate", "-q", "-f", small, "--node", "n1"]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert f"1 pod fits nowhere: kubectl kscale explain -f {small} --node n1 a/p" in output


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("kscale scale-up --expander least-waste,pri", {"least-waste,price", "least-waste,priority"}),
        ("kscale recommend --strategy v", {"vpa"}),
        ("kscale schema Scale", {"ScaleDownReport", "ScaleUpPlan"}),
        ("kscale explain h", {"hpa"}),
    ],
)
def test_completion(words: str, completed: set[str]) -> None:
    variables = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1), "_KSCALE_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [BIN / "kscale"], env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert set(done.stdout.split()) == completed


def test_generate_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels: list[str] = []

    @contextmanager
    def step(self: Terminal, label: str) -> Iterator[Callable[[str], None]]:
        labels.append(label)
        yield labels.append

    monkeypatch.setattr(Terminal, "step", step)
    kscale("generate", "--nodes", "5", "--pods", "600", "--to", tmp_path / "c.json")
    assert labels[:2] == ["generating", "generating: 512 objects"]
