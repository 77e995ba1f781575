"""The reference against the recorded answers of the kinds `fit`, `estimate` and `filter-schedulable`.

A case of each pair of tags runs. `--reference most` runs all cases but the estimates tagged `large` whose pods
times new nodes exceed LARGE, which take minutes in plain Python; `--reference all` runs those, too. Left out of the
comparison: `debug`, and `message` from `debugInfo=` on.
"""

from __future__ import annotations

from itertools import combinations_with_replacement
from pathlib import Path

import pytest

import golden_support
from golden_support import Recorded
from reference_golden import recorded

KINDS = ["fit", "estimate", "filter-schedulable"]
LARGE = 50_000


def is_large(record: Recorded) -> bool:
    if "large" not in record.tags:
        return False
    case = record.case()
    size = 0
    for estimate, want in zip(case["input"]["estimates"], case["want"]["estimates"], strict=True):
        pods = sum(
            element.get("count", 1) for group in estimate.get("groups") or [estimate["pods"]] for element in group
        )
        size += pods * want["nodes_added"]
    return size > LARGE


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    config = metafunc.config
    directory = Path(config.getoption("golden_dir") or golden_support.VECTORS)
    how = config.getoption("reference")
    chosen = []
    covered: set[tuple[str, ...]] = set()
    for record in golden_support.records(directory, KINDS):
        pairs = {(record.kind, *pair) for pair in combinations_with_replacement(sorted(record.tags), 2)}
        if (how == "sample" and pairs <= covered) or (how != "all" and is_large(record)):
            continue
        covered |= pairs
        chosen.append(pytest.param(record, id=record.name))
    metafunc.parametrize("recorded_case", chosen)


def test_reference_gives_the_recorded_answer(recorded_case: Recorded) -> None:
    decoded = recorded_case.case()
    raw, want = decoded["input"], decoded["want"]
    match recorded_case.kind:
        case "fit":
            assert recorded.fit(raw) == recorded.expected_fit(want)
        case "estimate":
            assert recorded.estimates(raw) == want
        case _:
            assert recorded.filter_rounds(raw) == want
