"""Rejections of a pod by plug-ins as records, with shortages and causes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kscale.capacity.records import PluginVerdict, Shortage
from kscale.objects.api.core import Node, Pod
from kscale.objects.pod_resources import CPU
from kscale.objects.quantity import Quantity
from kscale.objects.taints import first_untolerated
from kscale.scheduling.fit import FitResult
from kscale.scheduling.status import Verdict

__all__ = ["describe_use", "find_first_rejection", "list_rejections", "prefilter_failure"]


def prefilter_failure(fit: FitResult, name: str, nodes: Sequence[Node]) -> str:
    """Return the message of a PreFilter plug-in that rejects the pod ``name`` before any node is checked.

    Empty if none does, or if there are no nodes.
    """
    if not nodes:
        return ""
    verdict = fit.verdict(name, nodes[0].name)
    return ", ".join(verdict.reasons) if verdict.unexpected == "PreFilter failed" else ""


def list_rejections(fit: FitResult, pod: Pod, name: str, node: Node) -> list[PluginVerdict]:
    """Return the rejection by every plug-in that rejects the pod on this node; empty if the pod fits.

    The plug-in at which upstream stops comes first. ``name``: of the pod in ``fit``.
    """
    first = fit.verdict(name, node.name)
    if first.ok:
        return []
    others = [no for no in fit.verdicts(name, node.name) if no.plugin != first.plugin]
    return [_plugin_verdict(no, pod, node) for no in (first, *others)]


def find_first_rejection(fit: FitResult, pod: Pod, name: str, node: Node) -> PluginVerdict:
    """Return the rejection at which upstream stops, for a pod that does not fit the node.

    ``name``: of the pod in ``fit``.
    """
    return _plugin_verdict(fit.verdict(name, node.name), pod, node)


def _plugin_verdict(verdict: Verdict, pod: Pod, node: Node) -> PluginVerdict:
    """Convert a verdict to its record, with shortages as quantities and the details of the failure."""
    return PluginVerdict(
        plugin=verdict.plugin,
        reasons=list(verdict.why),
        shortages=[
            Shortage(
                resource=number["resource"],
                asked=_format_amount(number["resource"], number["asked"]),
                free=_format_amount(number["resource"], number["free"]),
                short=_format_amount(number["resource"], number["asked"] - number["free"]),
            )
            for number in verdict.numbers
            if "resource" in number
        ],
        detail=_describe_failure(verdict, pod, node),
    )


def _format_amount(resource: str, value: int) -> str:
    """Format an integer of the scheduler (milli-units of cpu, else units) as a quantity: ``1650m``, ``3584Mi``."""
    if resource == CPU:
        return str(Quantity(f"{value}m"))
    for power, unit in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if value and value % 1024**power == 0:
            return f"{value // 1024**power}{unit}"
    return str(value)


def _domain_detail(number: dict[str, Any]) -> str:
    """Describe a topology failure (a verdict's ``numbers`` entry): the domain, the counts and the matching pods."""
    key, domain = number["topologyKey"], number["domain"]
    if domain is None:
        return f"the node has no label {key}"
    place = f"{key}={domain}"
    if "constraint" in number:
        if "matching" not in number:
            return place
        extra = " and itself" if number["self"] else ""
        limits = f"the least is {number['minimum']}, maxSkew {number['maxSkew']}"
        return f"{number['matching']} matching pods{extra} in {place}, {limits}"
    if number["rule"] == "affinity":
        return f"no matching pod in {place}" if not number["matching"] else f"{number['matching']} matching in {place}"
    more = number["matching"] - len(number["pods"])
    names = ", ".join(number["pods"]) + (f" and {more} more" if more else "")
    return f"{names} in {place}" if names else place


def describe_use(number: dict[str, Any]) -> str:
    """Describe why a volume, port, disk, claim, driver or device request does not fit (a verdict's ``numbers`` entry).

    The text says what is in use by which pods, which limit is reached, or which nodes a volume can be used on.
    """
    if "volume" in number:
        bound = f"claim {number['claim']} is bound to volume {number['volume']}"
        if "wanted" not in number:
            return f"{bound}, which is not in the input"
        note = "" if number["reachedFrom"] else "; the cluster has no such node"
        return f"{bound}, usable only on nodes with {number['wanted']}{note}"
    if "driver" in number:
        return f"limit {number['limit']} of {number['driver']}"
    if "request" in number:
        wanted = "all" if number["wanted"] is None else number["wanted"]
        free = f"{number['free']} of {number['devices']} devices can be had"
        return f"{number['claim']}, request {number['request']}: {wanted} of {number['deviceClass']} wanted, {free}"
    subject = number.get("port") or number.get("disk") or f"claim {number['claim']}"
    return f"{subject} in use by {', '.join(number['pods'])}"


def _describe_failure(verdict: Verdict, pod: Pod, node: Node) -> str:
    """Return a text on the cause of a failure; empty if there is nothing to add to the reasons.

    The text contains no annotations and no environment values.
    """
    plugin = verdict.plugin
    for number in verdict.numbers:
        if "topologyKey" in number:
            return _domain_detail(number)
    used = [describe_use(number) for number in verdict.numbers if "resource" not in number]
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
