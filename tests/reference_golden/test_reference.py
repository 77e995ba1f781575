"""The reference against the recorded answers of the kinds `fit`, `estimate` and `filter-schedulable`.

All cases run, except estimates tagged `large` whose pods times new nodes exceed LARGE (they take minutes in plain
Python); `--reference-all` runs those, too. Left out of the comparison: `debug`, and `message` from `debugInfo=` on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import golden_support
from reference_golden import recorded

KINDS = ["fit", "estimate", "filter-schedulable"]
LARGE = 50_000


def is_large(case: dict[str, Any]) -> bool:
    if "large" not in case["tags"]:
        return False
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
    chosen = []
    for case in golden_support.cases(directory, KINDS):
        if is_large(case) and not config.getoption("reference_all"):
            continue
        chosen.append(pytest.param(case, id=case["name"]))
    metafunc.parametrize("recorded_case", chosen)


def test_reference_gives_the_recorded_answer(recorded_case: dict[str, Any]) -> None:
    raw, want = recorded_case["input"], recorded_case["want"]
    match recorded_case["kind"]:
        case "fit":
            assert recorded.fit(raw) == recorded.fit_wanted(want)
        case "estimate":
            assert recorded.estimates(raw) == want
        case _:
            assert recorded.filter_rounds(raw) == want
