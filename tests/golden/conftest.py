"""One test per recorded case; `--golden-dir` and `--golden-kind` choose them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import golden_support as harness


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "golden_case" not in metafunc.fixturenames:
        return
    config = metafunc.config
    directory = Path(config.getoption("golden_dir") or harness.VECTORS)
    kinds = config.getoption("golden_kind") or []
    missing = set(kinds) - {path.name.removesuffix(".jsonl.gz") for path in directory.glob("*.jsonl.gz")}
    if missing or not directory.is_dir():
        raise pytest.UsageError(f"no golden cases of kind {sorted(missing)} in {directory}")
    counts = config.stash.setdefault(harness.NOT_RUN, {"left out": Counter(), "without adapter": Counter()})
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
        reason = getattr(module, "EXPECTED_FAILURES", {}).get(record.name)
        marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
        params.append(pytest.param(record, id=record.name, marks=marks))
    if not params:  # nothing to compare is no success
        raise pytest.UsageError(f"no golden case to run in {directory}: {harness.told(counts) or 'it has none'}")
    metafunc.parametrize("golden_case", params)
