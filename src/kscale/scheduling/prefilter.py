"""The PreFilter phase: runs every plug-in once per pod class (upstream: ``RunPreFilterPlugins``)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kscale.scheduling.plugins import PROFILE, implementing
from kscale.scheduling.plugins.base import NOTHING, Plugin
from kscale.scheduling.profile import Context
from kscale.scheduling.status import ERROR, UNRESOLVABLE, UNSCHEDULABLE, Status
from kscale.snapshot.classes.interner import PodClass

__all__ = ["PreFilterOutcome", "PreFilterReport", "prefilter_report", "run_prefilters"]


class PreFilterOutcome(msgspec.Struct, frozen=True):
    """Combined result of the PreFilters. ``failure``: the pod fits no node; ``plugin`` may be empty then. ``nodes``:
    the only nodes to check, if not None, as selected by the plug-ins ``choosers``.
    """

    plugin: str = ""
    failure: Status | None = None
    nodes: frozenset[str] | None = None
    choosers: tuple[str, ...] = ()


PASSED = PreFilterOutcome()

_WITH_PREFILTER = implementing("prefilter")


class PreFilterReport(msgspec.Struct):
    """Results of all PreFilters, each run alone, even after one that fails: skipped (sorted), failures and node sets in
    order.
    """

    skipped: list[str] = msgspec.field(default_factory=list)
    failures: list[tuple[str, Status]] = msgspec.field(default_factory=list)
    node_sets: list[tuple[str, frozenset[str]]] = msgspec.field(default_factory=list)


def run_prefilters(pod: PodClass, ctx: Context, plugins: Iterable[Plugin] = _WITH_PREFILTER) -> PreFilterOutcome:
    """Run PreFilters in profile order, and return the combined outcome.

    The first failure that is not Unschedulable ends the phase. Otherwise the last Unschedulable failure is reported.
    """
    pending: tuple[str, Status] | None = None
    nodes: frozenset[str] | None = None
    choosers: list[str] = []
    disabled = ctx.profile.disabled_prefilters
    for plugin in plugins:
        result = NOTHING if plugin.name in disabled else plugin.prefilter(pod, ctx)
        if result is NOTHING:
            continue
        status = result.failure
        if status is not None and status.code == UNSCHEDULABLE:
            pending = plugin.name, status
            continue
        if status is not None:
            if status.code == ERROR:
                status = Status(ERROR, (f'running PreFilter plugin "{plugin.name}": {status.reasons[0]}',))
            return PreFilterOutcome(plugin.name, status)
        if result.nodes is not None:
            choosers.append(plugin.name)
            nodes = result.nodes if nodes is None else nodes & result.nodes
            if not nodes:
                return PreFilterOutcome("", Status(UNRESOLVABLE, (_format_no_nodes_left(choosers),)))
    if pending is None and nodes is None:
        return PASSED
    plugin_name, failure = pending or ("", None)
    return PreFilterOutcome(plugin_name, failure, nodes, tuple(choosers))


def _format_no_nodes_left(choosers: list[str]) -> str:
    if len(choosers) == 1:
        return f"node(s) didn't satisfy plugin {choosers[0]}"
    return f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(choosers))}] simultaneously"


def prefilter_report(pod: PodClass, ctx: Context, plugins: Iterable[Plugin] = PROFILE) -> PreFilterReport:
    """Run all enabled PreFilters one by one, and return what each decided."""
    report = PreFilterReport()
    for plugin in plugins:
        if plugin.name in ctx.profile.disabled_prefilters:
            continue
        result = plugin.prefilter(pod, ctx)
        if result.failure is not None:
            report.failures.append((plugin.name, result.failure))
        elif plugin.skips(pod, ctx):
            report.skipped.append(plugin.name)
        elif result.nodes is not None:
            report.node_sets.append((plugin.name, result.nodes))
    report.skipped.sort()
    return report
