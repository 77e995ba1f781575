"""Why pods stay out of an estimate: the verdict of the scheduler on an empty new node, with upstream's reasons."""

from __future__ import annotations

from collections.abc import Iterable

from kscale._native import _engine
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.requests import to_integers
from kscale.scheduling.fit import DYNAMIC_STATUSES
from kscale.scheduling.plugins import BY_NAME, BY_ORDINAL, PROFILE
from kscale.scheduling.plugins.base import ERROR, UNRESOLVABLE
from kscale.scheduling.plugins.node_resources_fit import insufficient
from kscale.scheduling.session import Session
from kscale.scheduling.verdict import FAILING_PREDICATE, Verdict

__all__ = ["verdicts_on_new_node"]

_FIT = BY_NAME["NodeResourcesFit"]


def verdicts_on_new_node(
    session: Session, template: NodeTemplate, which: int, classes: Iterable[int], copy: int
) -> dict[int, Verdict]:
    """Class number -> verdict on copy number ``copy`` of ``session.templates[which]``, everything else as it was.

    ``pod`` is left empty: a class has many.
    """
    engine = session.engine
    engine.fork()
    try:
        node = engine.add(session.templates[which], copy)
        return {number: _verdict(session, template, which, number, node) for number in classes}
    finally:
        engine.revert()


def _verdict(session: Session, template: NodeTemplate, which: int, number: int, node: int) -> Verdict:
    code = session.engine.check(number, node)
    if code == 0:
        return Verdict(pod="", ok=True)
    outcome = session.outcomes[number]
    if code == _engine.PREFILTER_FAILED:
        assert outcome.failure is not None
        return _no(outcome.plugin, outcome.failure.code, outcome.failure.reasons)
    if code == _engine.FILTERED:
        names = sorted(outcome.choosers)
        reason = f"node(s) didn't satisfy plugin(s) [{' '.join(names)}]"
        return _no(", ".join(names), "UnschedulableAndUnresolvable", (reason,))
    plugin, detail = BY_ORDINAL[code & 0xFF], code >> 8
    if plugin.name == "NodeResourcesFit":
        free, slots = session.free_on(node)
        allocatable = to_integers(template.node.status.allocatable or {})
        status, short = insufficient(session.demand(number, allocatable), free, allocatable, slots)
        if status is None:  # only devices are short
            return _later(session, which, number, node)
        numbers = tuple({"resource": name, "asked": asked, "free": have} for name, asked, have in short)
        return _no(plugin.name, status.code, status.reasons, numbers)
    status = plugin.check(session.pods[number], session.template_facts(which), session.ctx)
    status = status or DYNAMIC_STATUSES.get((plugin.ordinal, detail))
    if status is None:
        return _no(plugin.name, ERROR, ())
    return _no(plugin.name, status.code, status.reasons)


def _later(session: Session, which: int, number: int, node: int) -> Verdict:
    """The first plug-in that says no behind NodeResourcesFit."""
    dynamic = session.engine.dynamic(number, node)
    for plugin in PROFILE[_FIT.ordinal :]:
        if plugin.name in session.outcomes[number].skipped or plugin.name in session.profile.disabled_filters:
            continue
        detail, _ = dynamic.get(plugin.ordinal, (-1, -1))
        status = plugin.check(session.pods[number], session.template_facts(which), session.ctx)
        status = status or DYNAMIC_STATUSES.get((plugin.ordinal, detail))
        if status is not None:
            return _no(plugin.name, status.code, status.reasons)
    return _no("DynamicResources", UNRESOLVABLE, ("cannot allocate all claims",))


def _no(plugin: str, code: str, reasons: tuple[str, ...], numbers: tuple[dict[str, object], ...] = ()) -> Verdict:
    return Verdict(pod="", ok=False, type=FAILING_PREDICATE, plugin=plugin, code=code, reasons=reasons, numbers=numbers)
