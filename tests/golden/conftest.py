"""One test per batch of recorded cases; `--golden-dir`, `--golden-kind` and `--golden-case` choose them.

15,000 tests of a millisecond would spend more time in pytest than in kscale.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import golden_support as harness

BATCH = 40
"""Cases of a kind in a test."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "golden_cases" not in metafunc.fixturenames:
        return
    config = metafunc.config
    directory = Path(config.getoption("golden_dir") or harness.VECTORS)
    kinds = config.getoption("golden_kind") or []
    missing = set(kinds) - {path.name.removesuffix(".jsonl.gz") for path in directory.glob("*.jsonl.gz")}
    if missing or not directory.is_dir():
        raise pytest.UsageError(f"no golden cases of kind {sorted(missing)} in {directory}")
    counts = config.stash.setdefault(harness.NOT_RUN, {"left out": Counter(), "without adapter": Counter()})
    name = config.getoption("golden_case")
    batches: list[list[harness.Recorded]] = []
    params = []
    for record in harness.records(directory, kinds):
        kind = record.kind
        module = harness.adapter(kind)
        if module is None:
            counts["without adapter"][kind] += 1
            continue
        uses = module.unsupported(record.case()) if hasattr(module, "unsupported") else None
        if uses:
            counts["left out"][f"{kind}: uses {uses}"] += 1
            continue
        if name is not None and name not in record.name:
            continue
        reason = getattr(module, "EXPECTED_FAILURES", {}).get(record.name)
        if reason or name is not None:
            marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
            params.append(pytest.param([record], id=record.name, marks=marks))
        elif batches and batches[-1][0].kind == kind and len(batches[-1]) < BATCH:
            batches[-1].append(record)
        else:
            batches.append([record])
    params += [pytest.param(batch, id=f"{batch[0].name}..{batch[-1].name}") for batch in batches]
    if not params:  # nothing to compare is no success
        raise pytest.UsageError(f"no golden case to run in {directory}: {harness.summarize(counts) or 'it has none'}")
    metafunc.parametrize("golden_cases", params)
