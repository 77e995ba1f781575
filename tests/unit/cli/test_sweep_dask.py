"""``kscale sweep --executor dask://``: answers, workers that are lost, and Ctrl-C. All tests share one Dask cluster."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kscale.capacity.sweep
from kscale.capacity.sweep import sweep
from kscale.capacity.whatif.running import rows_of_base
from kscale.capacity.whatif.scenarios import combine_variations
from kscale.cli.commands.sweep import workers_of
from unit.capacity.sweep_functions import dies, dies_once
from unit.capacity.test_whatif import base
from unit.cli.support import kscale as run

distributed = pytest.importorskip("distributed", reason="the extra [dask] is not installed")

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def one_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Dask cluster of one worker on this machine, which is replaced when it ends; later tests add the second."""
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        host="127.0.0.1",
        local_directory=str(tmp_path_factory.mktemp("dask")),
    ) as created:
        yield created


@pytest.fixture
def cluster(one_worker: Any) -> Any:
    """The same Dask cluster with two workers. Each test starts with both, also after one that lost a worker."""
    one_worker.scale(2)
    one_worker.wait_for_workers(2, timeout=120)
    return one_worker


def address(cluster: Any) -> str:
    return f"dask://{cluster.scheduler_address.removeprefix('tcp://')}"


def test_loss_of_every_worker_that_had_the_shared_base(one_worker: Any, tmp_path: Path) -> None:
    """The one worker ends, and with it the only copy of the base: its successor gets the base again."""
    lost = tmp_path / "lost"
    assert len(one_worker.workers) == 1  # this test comes before those that add a second worker
    with workers_of(address(one_worker), None) as (executor, count, share):
        answers = list(sweep(dies_once, range(8), base=lost, executor=executor, workers=count, share=share))
    assert sorted(answer.value for answer in answers) == list(range(8))
    assert lost.exists()


def test_answers_of_two_workers_are_those_of_one_process(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scenarios = combine_variations(["flags.expander=price,least-waste", "groups.big.price=0.01..0.9:3"])
    with workers_of(address(cluster), None) as (executor, count, share):
        assert count == 2
        answers = sweep(rows_of_base, scenarios, base=base(), executor=executor, workers=2, chunk=2, share=share)
        values = [answer.value for answer in sorted(answers, key=lambda answer: answer.index)]
        assert share is not None
        # What is shared is not read through for a name that follows from it: that takes longer than to send it.
        monkeypatch.setattr("distributed.client.tokenize", None)
        share(np.arange(3))
    assert values == list(rows_of_base(base(), scenarios))


def test_interrupt_keeps_finished_answers(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second scenario reads a file that nobody has written yet; the press comes once the first is answered."""
    fifo = tmp_path / "pods.json"
    os.mkfifo(fifo)
    edits = [[], [{"pods": {"add": [fifo.name]}}]]
    scenarios = [{"name": name, "edits": each} for name, each in zip(("done", "waits"), edits, strict=True)]
    (tmp_path / "scenarios.json").write_text(json.dumps({"scenarios": scenarios}))
    real, one_done = kscale.capacity.sweep.sweep, threading.Event()

    def heard(*arguments: Any, **named: Any) -> Iterator[Any]:
        for answer in real(*arguments, **named):
            yield answer
            one_done.set()

    def press() -> None:
        with fifo.open("wb"):  # opens once a worker reads it
            one_done.wait(120)  # an answer that never comes is a failure here, not a wait without an end
            if not over.is_set():
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            over.wait()

    monkeypatch.setattr("kscale.capacity.sweep.sweep", heard)
    over = threading.Event()
    presser = threading.Thread(target=press)
    presser.start()
    dump = ("-f", EXAMPLES / "cluster.json.gz", "-g", EXAMPLES / "groups.yaml", "--now", "2026-07-01T00:00:00Z")
    try:
        got = run("sweep", tmp_path / "scenarios.json", *dump, "--executor", address(cluster), "-o", "json")
    finally:
        over.set()
        one_done.set()
        os.close(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK))  # where no worker came to read it
        presser.join()
    assert got.code == 130
    report = json.loads(got.stdout)
    assert ([row["scenario"] for row in report["rows"]], report["unfinished"]) == (["done"], 1)
    assert "interrupted: 1 scenario not decided" in got.stderr


def test_a_worker_that_is_lost(cluster: Any, tmp_path: Path) -> None:
    lost = tmp_path / "lost"
    with workers_of(address(cluster), None) as (executor, count, share):
        answers = list(sweep(dies_once, range(8), base=lost, executor=executor, workers=count, share=share))
    assert sorted(answer.value for answer in answers) == list(range(8))
    assert lost.exists()


def test_workers_that_are_lost_again_and_again(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)
    with (
        pytest.raises(kscale.KscaleError, match=r"^workers ended repeatedly without a result"),
        workers_of(address(cluster), None) as (executor, count, share),
    ):
        list(sweep(dies, [1], executor=executor, workers=count, share=share))
