"""Sweeps on a local Ray of two cpus, where the extra [ray] is installed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from pathlib import Path

import numpy as np
import pytest

from kscale.capacity.sweep import RayExecutor, sweep
from kscale.capacity.whatif.running import rows_of_base
from kscale.capacity.whatif.scenarios import combine_variations
from unit.capacity.sweep_functions import added, dies, dies_once
from unit.capacity.test_sweep import values
from unit.capacity.test_whatif import base

ray = pytest.importorskip("ray", reason="the extra [ray] is not installed")


@pytest.fixture(scope="module")
def executor() -> Iterator[RayExecutor]:
    """Workers find the functions of the tests by name."""
    paths = {"env_vars": {"PYTHONPATH": str(Path(__file__).parents[2])}}
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=80_000_000, runtime_env=paths
    )
    with RayExecutor() as created:
        yield created
    ray.shutdown()


def test_shared_base_uses_the_object_store(executor: RayExecutor) -> None:
    assert executor.workers == 2
    answers = list(
        sweep(added, range(10, 16), base=np.arange(4), executor=executor, workers=2, chunk=2, share=executor.share)
    )
    result = sorted((answer.index, answer.value) for answer in answers)
    assert result == [(0, 16), (1, 17), (2, 18), (3, None), (4, 20), (5, 21)]
    assert [str(answer.error) for answer in answers if answer.error is not None] == ["13"]


def test_scenarios_equal_a_single_process(executor: RayExecutor) -> None:
    scenarios = combine_variations(["flags.expander=price,least-waste", "groups.big.price=0.01..0.9:3"])
    result = sweep(rows_of_base, scenarios, base=base(), executor=executor, workers=2, chunk=2, share=executor.share)
    assert values(result) == list(rows_of_base(base(), scenarios))


def test_workers_that_are_lost(executor: RayExecutor, tmp_path: Path) -> None:
    again = sweep(dies_once, range(8), base=tmp_path / "lost", executor=executor, workers=2, share=executor.share)
    assert values(again) == list(range(8))
    with pytest.raises(BrokenExecutor):
        list(sweep(dies, [1], executor=executor, workers=1))


def test_error_of_a_call_is_raised(executor: RayExecutor) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        executor.submit(int, "x").result(timeout=60)
