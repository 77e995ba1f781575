"""``kscale top``: one view of a dump or of a live cluster, and a view that follows the cluster on a terminal."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import os
import re
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from json_schemas import validate
from kscale.cli.commands.cluster import live_view
from kscale.cli.commands.cluster.live_view import draw_frame
from kscale.cli.output import Column, Show, Table, View
from kscale.cli.terminal import Terminal
from kscale.schemas import schema
from kscale.world.clock import SystemClock
from unit.cli.live_clusters import refusing, serve
from unit.cli.support import kscale
from unit.cli.test_output_schemas import strict
from unit.world.fake_api_server import FakeApiServer

NOW = ("--now", "2026-07-01T01:00:00Z")
GROUPS = [
    {"id": "pool", "nodeSelector": {"pool": "a"}, "max": 3},
    {"id": "few", "nodeSelector": {"pool": "b"}, "max": 1},
]


def node(name: str, pool: str, *, cpu: str = "4", ready: str = "True", **spec: Any) -> dict[str, Any]:
    allocatable = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"pool": pool, "kubernetes.io/hostname": name}},
        "spec": spec,
        "status": {
            "allocatable": allocatable,
            "capacity": allocatable,
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def pod(name: str, cpu: str, on: str = "", *, message: str = "no room", **spec: Any) -> dict[str, Any]:
    spec["containers"] = [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "creationTimestamp": "2026-07-01T00:00:00Z",
            "ownerReferences": [owner],
        },
        "spec": {**spec, **({"nodeName": on} if on else {})},
        "status": {"phase": "Running" if on else "Pending", "conditions": [] if on else conditions},
    }


OBJECTS = [
    {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "shop", "uid": "1"},
        "spec": {
            "replicas": 5,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "c"}]}},
        },
    },
    node("a-1", "a"),
    node("b-1", "b", ready="False", unschedulable=True),
    pod("runs", "3", "a-1"),
    pod("fits", "1"),
    pod("grows", "2"),
    pod("huge", "32"),
    pod("pinned", "2", nodeSelector={"pool": "b"}),
]
UNNEEDED = "unneeded since 2026-07-01 01:00:00, not yet longer than 20m0s"
NO_MATCH = "node(s) didn't match Pod's node affinity/selector"
PLURALS = {"Node": "nodes", "Pod": "pods", "ReplicaSet": "replicasets.apps"}


@pytest.fixture
def files(tmp_path: Path) -> list[object]:
    (tmp_path / "dump.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": OBJECTS}))
    (tmp_path / "groups.json").write_text(json.dumps(GROUPS))
    return ["-f", tmp_path / "dump.json", "-g", tmp_path / "groups.json"]


def test_a_view_of_a_dump(files: list[object]) -> None:
    answer = kscale("top", "-q", *files, *NOW)
    assert (answer.code, answer.stderr) == (1, "")
    assert answer.stdout.splitlines() == [
        "2 nodes (1 not ready), 1 pod on them: requested CPU 38% of 8 cores, memory 6% of 16 GiB; 4 pods pending.",
        "Next: Scale up pool 1 -> 2 (1 node) for 1 of 3 pods.",
        "Next: 0 of 2 nodes can go now; 1 is unneeded.",
        "",
        "Nodes",
        "NODE  GROUP  PODS  CPU CORES        MEMORY  STATE                SCALE-DOWN",
        f"a-1   pool      1   75% of 4  12% of 8 GiB  {'ready':19}  stays: 75% of its cpu is requested, more than 50%",
        f"b-1   few       0    0% of 4   0% of 8 GiB  not ready, cordoned  unneeded: {UNNEEDED}",
        "",
        "Pending pods",
        "PODS  AGE  PENDING      PROSPECT       WHY",
        "   1   1h  shop/huge    stays pending  1 Insufficient cpu, 1 max node group size reached",
        f"   1   1h  shop/pinned  stays pending  1 max node group size reached, 1 {NO_MATCH}",
        "   1   1h  shop/grows   new node       of pool",
        "   1   1h  shop/fits    fits           on a node that exists or is coming",
    ]


def test_the_view_of_a_cluster_without_pending_pods(tmp_path: Path, files: list[object]) -> None:
    items = [item for item in OBJECTS if item["kind"] != "Pod" or item["spec"].get("nodeName")]
    (tmp_path / "calm.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    answer = kscale("top", "-q", "-f", tmp_path / "calm.json", *NOW)
    assert answer.code == 0
    assert answer.stdout.splitlines()[0].endswith("; 0 pods pending.")
    assert "Pending pods" not in answer.stdout


def test_an_interval_has_to_be_long_enough(files: list[object]) -> None:
    answer = kscale("top", *files, "--interval", "1ms")
    assert (answer.code, "at least 100ms is expected" in answer.stderr) == (2, True)


def test_flags_of_the_autoscaler_hold(files: list[object]) -> None:
    words = ("--flag", "max-nodes-total=2", "--flag", "scale-down-unready-time=0s")
    record = json.loads(kscale("top", "-q", *files, *NOW, *words, "-o", "json").stdout)
    assert (record["scaleUp"], record["growth"]) == ("ScaleUpNoOptionsAvailable", [])


def test_the_record_has_nodes_pending_pods_and_the_next_loop(files: list[object]) -> None:
    record = json.loads(kscale("top", *files, *NOW, "-o", "json").stdout)
    assert record["kind"] == "ClusterOverview"
    validate(record, strict(schema("ClusterOverview")))
    prospects = [(item["pod"], item["prospect"]) for item in record["pendingSummaries"]]
    assert prospects == [
        ("shop/huge", "stays pending"),
        ("shop/pinned", "stays pending"),
        ("shop/grows", "new node"),
        ("shop/fits", "fits"),
    ]
    assert record["growth"] == [{"group": "pool", "current": 1, "new": 2}]


def test_csv_has_a_row_per_node(files: list[object]) -> None:
    lines = kscale("top", *files, *NOW, "-o", "csv").stdout.splitlines()
    assert lines[0].split(",")[:5] == ["node", "group", "pods", "cpu_milli", "allocatable_cpu_milli"]
    assert lines[1].split(",")[:5] == ["a-1", "pool", "1", "3000", "4000"]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeApiServer:
    """An API server with the objects, which is that of the current context."""
    result = FakeApiServer(SystemClock())
    for item in OBJECTS:
        result.put(PLURALS[item["kind"]], item)
    serve({"here": result}, tmp_path, monkeypatch, current="here")
    return result


def test_one_view_of_a_live_cluster_is_that_of_its_dump(server: FakeApiServer, files: list[object]) -> None:
    later = ("--now", "2040-01-01T00:00:00Z", "-o", "json")
    records = []
    for words in (("--once", *files[2:]), files, files[2:]):  # without a terminal, the view is printed once, too
        answer = kscale("top", *words, *later)
        assert answer.code == 1
        record = json.loads(answer.stdout)
        for item in record["pendingSummaries"]:
            item["since"] = None  # the server's time
        records.append(record)
    assert records[0] == records[1] == records[2]
    assert {call.method for call in server.calls} == {"GET"}
    assert not any(dict(call.query).get("watch") for call in server.calls)


class Screen(io.StringIO):
    """A terminal as far as a program can tell."""

    def isatty(self) -> bool:
        return True


def run_on_terminal(
    monkeypatch: pytest.MonkeyPatch, wait: Callable[[live_view.Keys, str], None], *words: object
) -> tuple[int, str]:
    """Run ``kscale top`` on a terminal of 120 columns. ``wait`` is called between two frames with what was drawn."""
    screen, keys = Screen(), live_view.Keys()
    waits = itertools.count()

    async def next_frame(seconds: float) -> None:
        assert next(waits) < 1000, "the view does not end"
        drawn = screen.getvalue()
        screen.seek(0)
        screen.truncate()
        wait(keys, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn))
        await asyncio.sleep(0.01)

    @contextmanager
    def read_keys() -> Iterator[live_view.Keys]:
        yield keys

    monkeypatch.setattr(keys, "wait", next_frame)
    monkeypatch.setattr(live_view, "read_keys", read_keys)
    monkeypatch.setattr(Show, "terminal", Terminal(stdout=screen, environ={}))
    for name, value in {"COLUMNS": "120", "LINES": "40", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    answer = kscale("top", *words)
    return answer.code, answer.stdout + answer.stderr


def test_the_view_follows_the_cluster(
    server: FakeApiServer, files: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    frames: list[str] = []

    def wait(keys: live_view.Keys, drawn: str) -> None:
        if not frames or "5 pods pending" in drawn:
            frames.append(drawn)
        if len(frames) == 1:
            server.put("pods", pod("late", "64"))
        keys.ended = len(frames) == 2

    assert run_on_terminal(monkeypatch, wait, *files[2:]) == (0, "")
    assert "4 pods pending" in frames[0]
    assert "context here, every 2 s. q: quit, space: pause" in frames[0]
    assert re.search(r"b-1 +few +0 +0% of 4 +0% of 8 GiB +not ready, cordoned +unneeded", frames[0])
    assert any(dict(call.query).get("watch") for call in server.calls)
    assert {call.method for call in server.calls} == {"GET"}


def test_space_pauses_the_view(server: FakeApiServer, files: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    frames: list[str] = []

    def wait(keys: live_view.Keys, drawn: str) -> None:
        frames.append(drawn)
        keys.press(" " if len(frames) in (1, 4) else "")
        keys.ended = len(frames) == 6

    assert run_on_terminal(monkeypatch, wait, *files[2:])[0] == 0
    assert ["pods pending" in frame for frame in frames[:6]] == [True, False, False, False, True, True]


def test_interrupting_is_a_way_to_end(
    server: FakeApiServer, files: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(keys: live_view.Keys, drawn: str) -> None:
        raise KeyboardInterrupt

    assert run_on_terminal(monkeypatch, wait, *files[2:]) == (0, "")


def test_a_watch_that_fails_is_named_in_the_view(
    server: FakeApiServer, files: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.fault = refusing("/storageclasses", 403, "Forbidden")
    frames: list[str] = []

    def wait(keys: live_view.Keys, drawn: str) -> None:
        frames.append(drawn)
        keys.ended = True

    assert run_on_terminal(monkeypatch, wait, *files[2:])[0] == 0
    assert "StorageClass: Forbidden at all" in frames[0]
    assert "4 pods pending" in frames[0]


def test_without_the_right_to_list_pods_there_is_no_view(
    server: FakeApiServer, files: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.fault = refusing("/pods", 403, "Forbidden")

    def wait(keys: live_view.Keys, drawn: str) -> None:
        pytest.fail("a view is drawn")

    assert run_on_terminal(monkeypatch, wait, *files[2:])[0] == 2


def test_keys_are_read_without_echo_and_the_mode_of_the_terminal_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = os.openpty()
    before = termios.tcgetattr(slave)

    async def press() -> live_view.Keys:
        with live_view.read_keys() as keys:
            assert not termios.tcgetattr(slave)[3] & (termios.ECHO | termios.ICANON)
            os.write(master, b" q")
            await keys.wait(30)
        return keys

    with os.fdopen(slave, "r") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        keys = asyncio.run(press())
        assert termios.tcgetattr(slave) == before
    os.close(master)
    assert (keys.ended, keys.paused) == (True, True)


@pytest.mark.parametrize(("height", "nodes", "pending"), [(60, 30, 8), (30, 11, 8), (12, 3, 4)])
def test_a_frame_fills_the_screen(height: int, nodes: int, pending: int) -> None:
    console = Console(file=io.StringIO(), width=80, height=height)
    tables = [
        Table([Column("NODE"), Column("WHY")], [[f"node-{i}", "long " * 40] for i in range(30)], "Nodes", limit=5),
        Table([Column("POD")], [[f"pod-{i}"] for i in range(8)], "Pending pods"),
    ]
    console.print(draw_frame(View("All.\nNext.", tables), "now", [], console))
    text = console.file.getvalue()
    assert [text.count("node-"), text.count("pod-")] == [nodes, pending]
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) <= max(height, 18)
