"""The PreFilter phase with made-up plug-ins (scheduler-predicates 8.1, FW-1 to FW-8)."""

from __future__ import annotations

from typing import Any

import pytest

import kscale
from kscale.scheduling.compile.pod_classes import prefilter_report, run_prefilters
from kscale.scheduling.plugins.base import NOTHING, Plugin, PreFilter
from kscale.scheduling.profile import Context, SchedulerProfile
from kscale.scheduling.status import error, unresolvable, unschedulable

Outcome = tuple[str, str, list[str]] | None
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "d"},
    "spec": {"containers": [{"name": "c"}]},
}


SKIP = "skip"
Answer = PreFilter | str


class MadeUp(Plugin):
    ordinal = 1

    def __init__(self, name: str, answer: Answer, called: list[str]) -> None:
        self.name = name
        self.answer = answer
        self.called = called

    def prefilter(self, pod: Any, ctx: Context) -> PreFilter:
        self.called.append(self.name)
        return self.answer if isinstance(self.answer, PreFilter) else NOTHING

    def skips(self, pod: Any, ctx: Context) -> bool:
        return self.answer == SKIP


def fails(status: Any) -> PreFilter:
    return PreFilter(failure=status)


def only(*nodes: str) -> PreFilter:
    return PreFilter(nodes=frozenset(nodes))


U, UAU = "Unschedulable", "UnschedulableAndUnresolvable"
BOTH = "node(s) didn't satisfy plugin(s) [A B] simultaneously"
ROWS: list[tuple[str, list[Answer], Outcome, str, str]] = [
    # id, answers of A, B, C; failure as (plugin, code, reasons); skipped; called
    ("FW-1", [NOTHING, NOTHING], None, "", "AB"),
    ("FW-2", [SKIP, fails(error("broken"))], ("B", "Error", ['running PreFilter plugin "B": broken']), "A", "AB"),
    ("FW-3", [fails(unschedulable("x")), SKIP], ("A", U, ["x"]), "B", "AB"),
    ("FW-4", [fails(unresolvable("x")), NOTHING], ("A", UAU, ["x"]), "", "A"),
    ("FW-5", [only(), NOTHING], ("", UAU, ["node(s) didn't satisfy plugin A"]), "", "A"),
    ("FW-6", [only("n1"), only("n2"), NOTHING], ("", UAU, [BOTH]), "", "AB"),
    ("FW-8", [fails(unschedulable("x")), fails(unschedulable("y"))], ("B", U, ["y"]), "", "AB"),
    (
        "an error after Unschedulable",
        [fails(unschedulable("x")), fails(unresolvable("y"))],
        ("B", UAU, ["y"]),
        "",
        "AB",
    ),
]


def run(answers: list[Answer]) -> tuple[Any, Any, str]:
    snapshot = kscale.load(POD).snapshot()
    (pod,) = snapshot.classify(snapshot.pending_records)
    called: list[str] = []
    plugins = [MadeUp(name, answer, called) for name, answer in zip("ABC", answers, strict=False)]
    ctx = Context(snapshot, SchedulerProfile())
    result, plugins_called = run_prefilters(pod, ctx, plugins), "".join(called)
    return result, prefilter_report(pod, ctx, plugins), plugins_called


@pytest.mark.parametrize(("answers", "failure", "skipped", "called"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_phase(answers: list[Answer], failure: Outcome, skipped: str, called: str) -> None:
    outcome, report, plugins_called = run(answers)
    assert plugins_called == called
    assert "".join(report.skipped) == skipped
    if failure is None:
        assert outcome.failure is None
    else:
        assert (outcome.plugin, outcome.failure.code, list(outcome.failure.reasons)) == failure


def test_node_sets_intersect() -> None:
    """FW-7."""
    outcome, _, _ = run([only("n1", "n2"), NOTHING, only("n2", "n3")])
    assert outcome.failure is None
    assert (outcome.nodes, outcome.choosers) == (frozenset({"n2"}), ("A", "C"))


def test_a_skipped_plugin_does_not_filter() -> None:
    """FW-11: NodePorts and InterPodAffinity skip a pod without ports and terms, and no verdict comes from them."""
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"pods": "0"}}, "kind": "Node", "apiVersion": "v1"}
    result = kscale.fit(kscale.load(POD, node).snapshot())
    skipped = set(result.prefilter("d/p").skipped)
    assert {"NodePorts", "InterPodAffinity"} <= skipped
    assert not skipped & {verdict.plugin for verdict in result.verdicts("d/p", "n")}
    assert result.verdict("d/p", "n").plugin == "NodeResourcesFit"
