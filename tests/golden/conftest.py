"""One test per recorded case; `--golden-dir` and `--golden-kind` choose them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import golden_support as harness

_summary: pytest.StashKey[dict[str, Counter[str]]] = pytest.StashKey()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "golden_case" not in metafunc.fixturenames:
        return
    config = metafunc.config
    directory = Path(config.getoption("golden_dir") or harness.VECTORS)
    kinds = config.getoption("golden_kind") or []
    missing = set(kinds) - {path.name.removesuffix(".jsonl.gz") for path in directory.glob("*.jsonl.gz")}
    if missing or not directory.is_dir():
        raise pytest.UsageError(f"no golden cases of kind {sorted(missing)} in {directory}")
    counts = config.stash.setdefault(_summary, {"left out": Counter(), "without adapter": Counter()})
    params = []
    for case in harness.cases(directory, kinds):
        kind = case["kind"]
        module = harness.adapter(kind)
        if module is None:
            counts["without adapter"][kind] += 1
            continue
        uses = module.unsupported(case) if hasattr(module, "unsupported") else None
        if uses:
            counts["left out"][f"{kind}: uses {uses}"] += 1
            continue
        reason = getattr(module, "EXPECTED_FAILURES", {}).get(case["name"])
        marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
        params.append(pytest.param(case, id=case["name"], marks=marks))
    if not params:  # nothing to compare is no success
        raise pytest.UsageError(f"no golden case to run in {directory}: {_told(counts) or 'it has none'}")
    metafunc.parametrize("golden_case", params)


def _told(counts: dict[str, Counter[str]]) -> str:
    return "; ".join(
        f"{number} {what} {title}" for title, counter in counts.items() for what, number in sorted(counter.items())
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Under xdist the workers collect: each hands over what it left out."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["golden"] = {title: dict(counter) for title, counter in session.config.stash.get(_summary, {}).items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker collects every case: the last one's word will do."""
    counts = getattr(node, "workeroutput", {}).get("golden")
    if counts:
        node.config.stash[_summary] = {title: Counter(counter) for title, counter in counts.items()}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The cases that were not run are counted, and the count is printed."""
    counts = config.stash.get(_summary, None)
    if counts is not None:
        terminalreporter.write_line(f"golden cases not run: {_told(counts) or 'none'}")
