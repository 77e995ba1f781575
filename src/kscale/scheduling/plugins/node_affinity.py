"""NodeAffinity: node selector, required node affinity, and the profile's added affinity (``plugins/nodeaffinity``)."""

from __future__ import annotations

from functools import cache

from kscale.objects.api.core import NodeSelector
from kscale.objects.node_selectors import CompiledNodeSelector, compile_node_selector
from kscale.scheduling.plugins.base import NOTHING, Judge, Plugin, PreFilter
from kscale.scheduling.profile import Context, NodeFacts, selector_columns
from kscale.scheduling.status import Status, unresolvable
from kscale.snapshot.classes.interner import PodClass

__all__ = ["NodeAffinity", "selection_columns", "selects"]


def selects(pod: PodClass, node: NodeFacts) -> bool:
    """Check whether the pod's node selector and required node affinity both match a node."""
    return _matches_selector(pod, node) and (
        pod.node_affinity is None or compile_node_selector(pod.node_affinity).matches(node.labels, node.name)
    )


def _matches_selector(pod: PodClass, node: NodeFacts) -> bool:
    return all(node.labels.get(key) == value for key, value in (pod.node_selector or {}).items())


def selection_columns(pod: PodClass) -> frozenset[str]:
    """Return the node columns that a pod's node selector and required node affinity read."""
    return selector_columns(pod.node_affinity) | frozenset(pod.node_selector or ())


def _named_nodes(selector: NodeSelector | None) -> frozenset[str] | None:
    """Return the nodes that ``metadata.name In`` fields allow; None if some term allows all."""
    if selector is None or not selector.node_selector_terms:
        return None
    names: set[str] = set()
    for term in selector.node_selector_terms:
        of_term: set[str] | None = None
        for field in term.match_fields:
            if field.key == "metadata.name" and field.operator == "In":
                of_term = set(field.values) if of_term is None else of_term & set(field.values)
        if of_term is None:
            return None
        names |= of_term
    return frozenset(names)


class NodeAffinity(Plugin):
    """The pod and the profile select the node."""

    name = "NodeAffinity"
    checks_plain_pods = True

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        names = _named_nodes(pod.node_affinity)
        if names is None:
            return NOTHING
        return PreFilter(nodes=names) if names else PreFilter(failure=unresolvable("pod affinity terms conflict"))

    def skips(self, pod: PodClass, ctx: Context) -> bool:
        return pod.node_affinity is None and ctx.profile.added_affinity is None and pod.node_selector is None

    def judge(self, pod: PodClass, ctx: Context) -> Judge | None:
        added = ctx.profile.added_affinity
        if pod.node_affinity is None and added is None and not pod.node_selector:
            return None

        @cache  # compiled once, for the first node: a selector may have thousands of terms
        def affinity() -> CompiledNodeSelector | None:
            return None if pod.node_affinity is None else compile_node_selector(pod.node_affinity)

        def check(node: NodeFacts) -> Status | None:
            if added is not None and not compile_node_selector(added).matches(node.labels, node.name):
                return unresolvable("node(s) didn't match scheduler-enforced node affinity")
            required = affinity()
            if not _matches_selector(pod, node) or not (required is None or required.matches(node.labels, node.name)):
                return unresolvable("node(s) didn't match Pod's node affinity/selector")
            return None

        return Judge(pod.selection_id, selection_columns(pod) | selector_columns(added), check)
