"""Reads recorded cases and finds the adapter of a kind."""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

HERE = Path(__file__).parent / "golden"
VECTORS = HERE / "vectors"
ADAPTERS = HERE / "adapters"

Case = dict[str, Any]

NOT_RUN: pytest.StashKey[dict[str, Counter[str]]] = pytest.StashKey()
"""Cases that were collected and are not run: why -> what -> how many."""


def summarize(by_title: dict[str, Counter[str]]) -> str:
    """Return the counts as one line of text."""
    return "; ".join(
        f"{number} {what} {title}" for title, counts in by_title.items() for what, number in sorted(counts.items())
    )


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


class _Header(msgspec.Struct):
    name: str
    tags: list[str] = []


_HEADERS = msgspec.json.Decoder(_Header)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded case as text: collecting decodes its name and its tags, and the test that runs it decodes the rest."""

    kind: str
    name: str
    tags: tuple[str, ...]
    line: bytes

    def case(self) -> Case:
        case: Case = json.loads(self.line)
        return case


def records(directory: Path, kinds: list[str]) -> Iterator[Recorded]:
    """Yield the cases of the files of a directory, in file and line order; the file's stem is the kind."""
    for path in sorted(directory.glob("*.jsonl.gz")):
        kind = path.name.removesuffix(".jsonl.gz")
        if kinds and kind not in kinds:
            continue
        for line in gzip.decompress(path.read_bytes()).splitlines():
            header = _HEADERS.decode(line)
            yield Recorded(kind, header.name, tuple(header.tags), line)


def cases(directory: Path, kinds: list[str]) -> Iterator[Case]:
    """Yield the decoded cases of the files of a directory, in file and line order."""
    return (record.case() for record in records(directory, kinds))


def decoded(data: dict[str, Any]) -> Any:
    """One recorded object as a struct."""
    from kscale.objects.decode import from_dict
    from kscale.objects.kinds import find_kind

    type_ = find_kind(data["apiVersion"], data["kind"])
    assert type_ is not None, data["kind"]
    return from_dict(data, type_)


def world(objects: list[dict[str, Any]], options: dict[str, Any]) -> Any:
    """A snapshot of recorded objects."""
    from kscale.snapshot.cluster import Cluster

    cluster = Cluster(objects, finished=True)
    return cluster.snapshot(csi=options.get("csi", False), dra=options.get("dra", False))


def profile_of(options: dict[str, Any]) -> Any:
    """The scheduler profile that a case's options describe."""
    from kscale.objects.api.core import NodeAffinity, TopologySpreadConstraint
    from kscale.objects.decode import from_dict
    from kscale.scheduling.profile import SchedulerProfile

    added = options.get("added_affinity")
    constraints = options.get("default_constraints")
    return SchedulerProfile(
        added_affinity=from_dict(added, NodeAffinity).required if added else None,
        default_constraints=None
        if constraints is None
        else tuple(from_dict(item, TopologySpreadConstraint) for item in constraints),
        ignored_resources=frozenset(options.get("ignored_resources", ())),
        ignored_resource_groups=frozenset(options.get("ignored_resource_groups", ())),
        disabled_filters=frozenset(options.get("disabled_filters", ())),
    )
