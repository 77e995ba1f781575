"""Sweeps: order, errors, workers that are lost, and that they say what one process says."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, ThreadPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import kscale
from kscale import InputError
from kscale.capacity.groups import groups_from
from kscale.capacity.sweep import Shared, sweep
from kscale.capacity.whatif import Base, Scenario, scenarios_from, whatif
from kscale.capacity.whatif.running import Fleet, rows_of_base, rows_of_fleet
from kscale.capacity.whatif.scenarios import combine_variations
from kscale.capacity.whatif.world import World
from unit.capacity.sweep_functions import added, dies, dies_once
from unit.capacity.test_whatif import base


def pool(count: int = 2) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"))


def values(answers: Iterator[Any]) -> list[Any]:
    return [answer.value for answer in sorted(answers, key=lambda answer: answer.index)]


def sized(base: Any, part: list[int]) -> list[int]:
    del base
    return [len(part)] * len(part)


@pytest.mark.parametrize(
    ("scenarios", "workers", "expected"),
    [
        (range(3), 1, [1] * 3),
        (range(40), 1, [10] * 40),
        (range(43), 2, [5] * 40 + [3] * 3),
        (range(4000), 1, [500] * 4000),
        (iter(range(15)), 1, [1] * 4 + [2] * 8 + [3] * 3),
        (iter(range(10)), 2, [1] * 8 + [2] * 2),
        ([], 1, []),
    ],
)
def test_scenarios_share_calls_by_default(scenarios: Any, workers: int, expected: list[int]) -> None:
    with ThreadPoolExecutor(workers) as threads:
        executor = None if workers == 1 else threads
        done = sorted(sweep(sized, scenarios, executor=executor, workers=workers), key=lambda answer: answer.index)
    assert [answer.value for answer in done] == expected


def test_the_baseline_is_decided_once_for_all_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    scenarios = combine_variations(["groups.pool.price=0.1..0.4:6", "flags.expander=price,most-pods"])
    created: list[Base] = []
    world = Base.world

    def counted(self: Base) -> World:
        created.append(self)
        return world(self)

    monkeypatch.setattr(Base, "world", counted)
    together = [answer.value for answer in sweep(rows_of_base, scenarios, base=whatif_base())]
    assert len(created) == 1
    alone = [answer.value for answer in sweep(rows_of_base, scenarios, base=whatif_base(), chunk=1)]
    assert len(created) == 2, "once for each base"
    assert together == alone == [row for one in scenarios for row in rows_of_base(whatif_base(), [one])]


def test_changed_cluster_or_group_changes_the_baseline() -> None:
    base = whatif_base()
    (scenario,) = combine_variations(["groups.pool.price=0.5"])

    def baseline() -> float | None:
        return whatif(base, [scenario]).baselines[0].cost

    before = baseline()
    base.cluster.apply(node("n2"))
    after = baseline()
    assert before is not None
    assert after == pytest.approx(before + 0.2)
    assert isinstance(base.groups, list)
    base.groups[0] = msgspec.structs.replace(base.groups[0], price=1.0)
    assert baseline() == pytest.approx(after * 5)
    assert pickle.loads(pickle.dumps(base)).cache == []


def node(name: str) -> dict[str, Any]:
    room = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"capacity": room, "allocatable": room, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"pool": "p"}}, "status": status}


def whatif_base() -> Base:
    container = {"name": "c", "resources": {"requests": {"cpu": "3"}}}
    specs = {"p0": {"containers": [container], "nodeName": "n1"}, "p1": {"containers": [container]}}
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "a"}, "spec": spec}
        for name, spec in specs.items()
    ]
    groups = groups_from([{"id": "pool", "max": 10, "nodeSelector": {"pool": "p"}, "price": 0.2}])
    cluster = kscale.load([node("n1"), *pods])
    return Base(cluster, groups, datetime(2027, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_inline_and_threaded_sweeps_are_equal(chunk: int) -> None:
    shared = np.arange(4)
    assert values(sweep(added, range(10), base=shared, chunk=chunk)) == [n + 6 for n in range(10)]
    with ThreadPoolExecutor(2) as threads:
        assert values(sweep(added, range(10), base=shared, executor=threads, workers=2, chunk=chunk)) == [
            n + 6 for n in range(10)
        ]


def test_error_affects_only_its_scenario() -> None:
    answers = list(sweep(added, range(10, 16), base=np.zeros(1, int), chunk=6))
    assert [answer.value for answer in answers] == [10, 11, 12, None, 14, 15]
    assert [str(answer.error) for answer in answers if answer.error] == ["13"]


def test_processes_and_a_worker_that_is_lost(tmp_path: Path) -> None:
    lost = tmp_path / "lost"
    assert values(sweep(dies_once, range(8), base=lost, executor=pool, workers=2, chunk=2)) == list(range(8))
    assert lost.exists()


def test_workers_that_are_lost_again_and_again() -> None:
    with pytest.raises(BrokenExecutor):
        list(sweep(dies, [1], executor=lambda: pool(1), workers=1))


def test_shared_file_is_deleted(tmp_path: Path) -> None:
    shared = Shared({"a": np.arange(1000)})
    assert Path(shared.path).exists()
    shared.close()
    assert not Path(shared.path).exists()


def test_closed_sweep_keeps_finished_answers() -> None:
    answers = sweep(added, iter(range(1_000_000)), base=np.zeros(1, int))
    assert [next(answers).value for _ in range(3)] == [0, 1, 2]
    answers.close()


def test_scenarios_in_processes_equal_a_single_process() -> None:
    scenarios = combine_variations(["flags.expander=price,least-waste", "groups.big.price=0.01..0.9:3"])
    there = list(rows_of_base(base(), scenarios))
    result = values(sweep(rows_of_base, scenarios, base=base(), executor=pool, workers=2, chunk=2))
    assert result == there


def test_a_fleet(tmp_path: Path) -> None:
    import msgspec

    from kscale.ca.options import AutoscalingOptions
    from kscale.capacity.generate import generate

    paths = []
    for seed in (1, 2):
        paths.append(str(tmp_path / f"{seed}.json"))
        items = list(generate(5, 20, seed=seed).objects())
        Path(paths[-1]).write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}))
    fleet = Fleet(None, None, datetime(2027, 1, 1, tzinfo=UTC), AutoscalingOptions())
    tasks = [(path, [Scenario(name="as-it-is")]) for path in (*paths, str(tmp_path / "none.json"))]
    answers = sorted(sweep(rows_of_fleet, tasks, base=fleet), key=lambda answer: answer.index)
    assert [row.cluster for answer in answers[:2] for row in answer.value or []] == paths
    assert isinstance(answers[2].error, InputError)


def test_every_combination() -> None:
    result = combine_variations(
        ["flags.expander=price,least-waste", "pods.shop/ReplicaSet/web=4,x1.5", "requests.cpu=x0.5"]
    )
    assert len(result) == 4
    assert result[0].name == "flags.expander=price pods.shop/ReplicaSet/web=4 requests.cpu=x0.5"
    assert [edit.kind for edit in result[0].edits] == ["flags", "pods", "requests"]
    on_top = combine_variations(
        ["prices.big=x0.5"], scenarios_from([{"name": "lost", "edits": [{"lose": {"node": ["a1"]}}]}])
    )
    assert (on_top[0].name, [edit.kind for edit in on_top[0].edits]) == ("lost prices.big=x0.5", ["lose", "prices"])
    numbers = [each.name for each in combine_variations(["groups.a.b.price=0.1..0.4:4"])]
    assert numbers == [f"groups.a.b.price={price}" for price in ("0.1", "0.2", "0.3", "0.4")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flags", "is not PATH=VALUES"),
        ("flags.x=", "is not PATH=VALUES"),
        ("nodes.a=1", "there are flags, groups, prices"),
        ("requests.gpu=1", "there are flags, groups, prices"),
        ("groups.a.colour=1", "groups.ID.FIELD with"),
        ("groups.a.max=few", '"few" in "groups.a.max=few" is no number'),
        ("groups.a.price=1..2:1", "at least 2 numbers"),
        ("groups.a.price=1..b", "is not A..B:N"),
    ],
)
def test_invalid_variations_are_an_input_error(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        combine_variations([text])
    assert message in str(error.value)


def doubled(problem: tuple[str, str, list[int]], part: list[int]) -> list[tuple[str, int]]:
    return [(problem[0], 2 * each) for each in part]


def test_any_object_may_be_shared() -> None:
    assert [done.value for done in sweep(doubled, [1, 2], base=("a", "b", [3]))] == [("a", 2), ("a", 4)]


_SWEEPING = """
import sys
import numpy as np
from kscale.capacity.sweep import sweep
from unit.capacity.sweep_functions import never_ends
if __name__ == "__main__":
    list(sweep(never_ends, [1, 2], base=(sys.argv[1], np.arange(100_000)), executor=2, chunk=1))
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the shared file is seen in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_parent(tmp_path: Path, number: signal.Signals) -> None:
    """Also in the middle of a task; and SIGTERM leaves no shared file behind."""
    pipe, script = tmp_path / "pipe", tmp_path / "sweeping.py"
    os.mkfifo(pipe)
    script.write_text(_SWEEPING)
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    process = subprocess.Popen([sys.executable, script, pipe], env=environment)
    with process, open(pipe, "rb") as workers:
        shared = Path(workers.readline().decode().strip())
        assert workers.readline().decode().strip() == str(shared)  # both are in their task
        process.send_signal(number)
        assert workers.read() == b""  # the end of the pipe: both have ended
    assert process.returncode == -number
    if number == signal.SIGKILL:
        shared.unlink()
    assert not shared.exists()
