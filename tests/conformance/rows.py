"""One row of a table about a single plug-in, and what it means for an engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from conformance.engines import Engine

Json = dict[str, Any]
Verdict = tuple[str, ...] | None  # code letter and reasons, or None for OK

CODES = {"U": "Unschedulable", "UAU": "UnschedulableAndUnresolvable", "E": "Error"}


@dataclass(frozen=True)
class Row:
    """The plug-in's own verdict on the pod, per node; `skip` and `fails` are about its PreFilter."""

    id: str
    plugin: str
    pod: Json
    nodes: list[Json]
    want: dict[str, Verdict] = field(default_factory=dict)
    objects: list[Json] = field(default_factory=list)
    options: Json = field(default_factory=dict)
    skip: bool = False
    fails: Verdict = None
    node_set: list[str] | None = None

    @property
    def problem(self) -> Json:
        return {"objects": self.nodes + self.objects, "pod": self.pod, "options": self.options}


def check(engine: Engine, row: Row) -> None:
    """Asserts the row; a failing PreFilter's reason may be given by its beginning, ending in `…`."""
    prefilter = engine.prefilter(row.problem)
    assert (row.plugin in prefilter["skipped"]) == row.skip, prefilter
    failures = {each["plugin"]: (each["code"], *each["reasons"]) for each in prefilter.get("failures", [])}
    if row.fails is None:
        assert row.plugin not in failures
    else:
        code, reason = failures[row.plugin]
        assert code == CODES[row.fails[0]]
        expected = row.fails[1]
        assert reason.startswith(expected[:-1]) if expected.endswith("…") else reason == expected
    if row.node_set is not None:
        sets = {each["plugin"]: each["nodes"] for each in prefilter.get("node_sets", [])}
        assert sets.get(row.plugin, []) == row.node_set
    for node, verdict in row.want.items():
        result = next((e for e in engine.all_failing(row.problem, node) if e["plugin"] == row.plugin), None)
        have = None if result is None else (result["code"], *result["reasons"])
        assert have == (None if verdict is None else (CODES[verdict[0]], *verdict[1:])), node
