"""Reads recorded cases and finds the adapter of a kind."""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent / "golden"
VECTORS = HERE / "vectors"
ADAPTERS = HERE / "adapters"

Case = dict[str, Any]


@cache
def adapter(kind: str) -> ModuleType | None:
    """The adapter module of a kind, or None while there is none."""
    path = ADAPTERS / f"{kind.replace('-', '_')}.py"
    if not path.exists():
        return None
    spec = importlib.util.spec_from_file_location(f"golden_adapters.{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cases(directory: Path, kinds: list[str]) -> Iterator[Case]:
    """All cases of the files of a directory, in file and line order; the file's stem is the kind."""
    for path in sorted(directory.glob("*.jsonl.gz")):
        kind = path.name.removesuffix(".jsonl.gz")
        if kinds and kind not in kinds:
            continue
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)
