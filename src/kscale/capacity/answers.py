"""What the capacity reports ask of the library, in the shapes that they need: names, counts, reasons, quantities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from kscale.ca.estimator import EstimateOptions, estimate_many
from kscale.capacity.records import PluginVerdict, Shortage
from kscale.errors import InputError, Problem
from kscale.objects.core import Node, Pod
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.quantity import Quantity
from kscale.objects.requests import CPU
from kscale.objects.taints import first_untolerated
from kscale.scheduling.fit import FitResult
from kscale.scheduling.verdict import Verdict
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "Estimated",
    "No",
    "amount",
    "estimates",
    "find_pod",
    "first_no",
    "prefilter_failure",
    "template",
    "verdicts",
]


class No(NamedTuple):
    """Why a pod stays without: the plug-in, its reasons, and the volume that is in the way."""

    plugin: str
    reasons: Sequence[str]
    detail: str = ""


class Estimated(msgspec.Struct, frozen=True):
    """One group's estimate by names. ``groups``: pods that no predicate can tell apart, together."""

    nodes: int
    scheduled: set[str]
    unscheduled: Mapping[str, No]
    groups: Sequence[Sequence[str]]
    placement: Mapping[str, str]
    bound: int
    bound_method: str
    unmodelled: Sequence[str]

    def scheduled_of(self, names: Sequence[str]) -> list[str]:
        """Those of ``names`` that were scheduled."""
        return [name for name in names if name in self.scheduled]


def estimates(
    snapshot: Snapshot,
    names: Sequence[str | Pod],
    groups: Sequence[NodeGroup],
    *,
    cursor: int = 0,
    bound_effort: int = 0,
    threads: int = 1,
) -> Iterator[Estimated]:
    """Upstream's estimate for each group that takes the pods alone, without a cap; every scan starts at ``cursor``.

    ``bound_effort``: of the bound of one group, see :meth:`~kscale.ca.estimator.EstimateResult.bound`.
    """
    options = [EstimateOptions(max_nodes=0)] * len(groups)
    results = estimate_many(
        snapshot,
        names,
        templates=[template(group) for group in groups],
        options=options,
        cursor=cursor,
        fresh_cursor=True,
    )
    for result in results:
        bound = result.bound(effort=bound_effort, threads=threads) if result.scheduled else None
        yield Estimated(
            nodes=result.node_count,
            scheduled=set(result.scheduled),
            unscheduled=_noes(result.verdicts),
            groups=result.groups,
            placement=result.placement,
            bound=bound.value if bound is not None else 0,
            bound_method=bound.method if bound is not None else "",
            unmodelled=result.unmodelled,
        )


def _noes(verdicts: Mapping[str, Verdict]) -> dict[str, No]:
    """What verdicts say, by pod: pods of one class have the very same."""
    made = {id(verdict): verdict for verdict in verdicts.values()}
    said = {number: _no(verdict) for number, verdict in made.items()}
    return {name: said[id(verdict)] for name, verdict in verdicts.items()}


def _no(verdict: Verdict) -> No:
    if verdict.ok:
        return No("", ["would fit an empty node, but not beside the pods placed first"])
    volumes = [_use_detail(number) for number in verdict.numbers if "volume" in number]
    return No(verdict.plugin, verdict.why, "; ".join(volumes))


def template(group: NodeGroup) -> NodeTemplate:
    """The group's template; raises InputError for a group that has none."""
    if group.template is None:
        raise InputError(Problem("has no template node", object=f"node group {group.id}"))
    return group.template


def find_pod(snapshot: Snapshot, name: str) -> Pod:
    """A pod by ``namespace/name``; raises InputError, with near names, for one that is not there."""
    try:
        pod: Pod = snapshot.pod(name)
    except KeyError:
        if where := snapshot.whereabouts(name):
            raise InputError(Problem(f"is not asked about: it {where}", object=f"Pod {name}")) from None
        from difflib import get_close_matches

        near = get_close_matches(name, snapshot.pending, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise InputError(Problem(f"no such pod in the input{hint}", object=f"Pod {name}")) from None
    return pod


def prefilter_failure(fit: FitResult, name: str, nodes: Sequence[Node]) -> str:
    """The message of a PreFilter that fails the pod before any node is looked at; empty if none does."""
    if not nodes:
        return ""
    verdict = fit.verdict(name, nodes[0].name)
    return ", ".join(verdict.reasons) if verdict.unexpected == "PreFilter failed" else ""


def verdicts(fit: FitResult, pod: Pod, name: str, node: Node) -> list[PluginVerdict]:
    """Every plug-in that says no to the pod on this node, the one where upstream stops first; empty if it fits."""
    first = fit.verdict(name, node.name)
    if first.ok:
        return []
    others = [no for no in fit.verdicts(name, node.name) if no.plugin != first.plugin]
    return [_plugin_verdict(no, pod, node) for no in (first, *others)]


def first_no(fit: FitResult, pod: Pod, name: str, node: Node) -> PluginVerdict:
    """The no where upstream stops, of a pod that does not fit the node."""
    return _plugin_verdict(fit.verdict(name, node.name), pod, node)


def _plugin_verdict(verdict: Verdict, pod: Pod, node: Node) -> PluginVerdict:
    return PluginVerdict(
        plugin=verdict.plugin,
        reasons=list(verdict.why),
        shortages=[
            Shortage(
                resource=number["resource"],
                asked=amount(number["resource"], number["asked"]),
                free=amount(number["resource"], number["free"]),
                short=amount(number["resource"], number["asked"] - number["free"]),
            )
            for number in verdict.numbers
            if "resource" in number
        ],
        detail=_detail(verdict, pod, node),
    )


def amount(resource: str, value: int) -> str:
    """An integer of the scheduler (milli-units of cpu, else units) as a quantity: ``1650m``, ``3584Mi``."""
    if resource == CPU:
        return str(Quantity(f"{value}m"))
    for power, unit in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if value and value % 1024**power == 0:
            return f"{value // 1024**power}{unit}"
    return str(value)


def _domain_detail(number: dict[str, Any]) -> str:
    """Which domain, which counts, whose pods."""
    key, domain = number["topologyKey"], number["domain"]
    if domain is None:
        return f"the node has no label {key}"
    where = f"{key}={domain}"
    if "constraint" in number:
        if "matching" not in number:
            return where
        extra = " and itself" if number["self"] else ""
        limits = f"the least is {number['minimum']}, maxSkew {number['maxSkew']}"
        return f"{number['matching']} matching pods{extra} in {where}, {limits}"
    if number["rule"] == "affinity":
        return f"no matching pod in {where}" if not number["matching"] else f"{number['matching']} matching in {where}"
    more = number["matching"] - len(number["pods"])
    names = ", ".join(number["pods"]) + (f" and {more} more" if more else "")
    return f"{names} in {where}" if names else where


def _use_detail(number: dict[str, Any]) -> str:
    """Which port, disk, claim, driver or device request, how much of it, and whose pods have it."""
    if "volume" in number:
        bound = f"claim {number['claim']} is bound to volume {number['volume']}"
        if "wanted" not in number:
            return f"{bound}, which is not in the input"
        there = "" if number["reachedFrom"] else "; the cluster has no such node"
        return f"{bound}, usable only on nodes with {number['wanted']}{there}"
    if "driver" in number:
        return f"limit {number['limit']} of {number['driver']}"
    if "request" in number:
        wanted = "all" if number["wanted"] is None else number["wanted"]
        free = f"{number['free']} of {number['devices']} devices can be had"
        return f"{number['claim']}, request {number['request']}: {wanted} of {number['deviceClass']} wanted, {free}"
    what = number.get("port") or number.get("disk") or f"claim {number['claim']}"
    return f"{what} in use by {', '.join(number['pods'])}"


def _detail(verdict: Verdict, pod: Pod, node: Node) -> str:
    """What exactly was in the way, where the reason does not say it. No annotation and no environment value."""
    plugin = verdict.plugin
    for number in verdict.numbers:
        if "topologyKey" in number:
            return _domain_detail(number)
    used = [_use_detail(number) for number in verdict.numbers if "resource" not in number]
    if used:
        return "; ".join(used)
    if plugin == "TaintToleration":
        taint = first_untolerated(tuple(pod.spec.tolerations), node.spec.taints)
        if taint is not None:
            value = f"={taint.value}" if taint.value else ""
            return f"{taint.key}{value}:{taint.effect} not tolerated"
    if plugin == "NodeAffinity":
        labels = node.metadata.labels or {}
        for key, wanted in (pod.spec.node_selector or {}).items():
            if labels.get(key) != wanted:
                has = f"{key}={labels[key]}" if key in labels else "no such label"
                return f"{key}={wanted} wanted, the node has {has}"
    return ""
