"""Plug-ins that compare a pod with fields of one node: NodeName, NodeUnschedulable, TaintToleration, NodeAffinity and
NodeDeclaredFeatures.

Upstream: ``plugins/nodename``, ``plugins/nodeunschedulable``, ``plugins/tainttoleration``, ``plugins/nodeaffinity`` and
``plugins/nodedeclaredfeatures``. ``inferred_features`` in ``snapshot/classes/facets.py`` lists the features.
"""

from __future__ import annotations

from functools import cache

from kscale.objects.api.core import NodeSelector, Taint
from kscale.objects.node_selectors import CompiledNodeSelector, compile_node_selector
from kscale.objects.taints import first_untolerated, tolerates
from kscale.scheduling.plugins.base import NOTHING, NodeFilter, Plugin, PreFilter
from kscale.scheduling.profile import CORDON, FEATURES, NAME, TAINTS, Context, NodeFacts, selector_columns
from kscale.scheduling.status import Status, unresolvable
from kscale.snapshot.classes.interner import PodClass

__all__ = [
    "NodeAffinity",
    "NodeDeclaredFeatures",
    "NodeName",
    "NodeUnschedulable",
    "TaintToleration",
    "selection_columns",
    "selects",
]


class NodeName(Plugin):
    """``spec.nodeName`` is empty, or the node's name."""

    name = "NodeName"
    checks_plain_pods = True

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        """Restrict the pod to the node of its ``spec.nodeName``; no restriction without it, or for a placed pod."""
        return PreFilter(nodes=frozenset({pod.node_name})) if pod.node_name else NOTHING

    def get_node_filter(self, pod: PodClass, ctx: Context) -> NodeFilter | None:
        """Return the check of the node's name; None without ``spec.nodeName``."""
        node_name = pod.node_name
        if not node_name:
            return None

        def check(node: NodeFacts) -> Status | None:
            return None if node_name == node.name else unresolvable("node(s) didn't match the requested node name")

        return NodeFilter(node_name, frozenset({NAME}), check)


_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class NodeUnschedulable(Plugin):
    """``spec.unschedulable`` is false, or the pod tolerates the taint of that name."""

    name = "NodeUnschedulable"
    checks_plain_pods = True

    def get_node_filter(self, pod: PodClass, ctx: Context) -> NodeFilter | None:
        """Return the check that the node is not cordoned; None if the pod tolerates cordoned nodes."""
        if any(tolerates(toleration, _TAINT) for toleration in pod.tolerations):
            return None
        return _CORDONED


def _check_cordon(node: NodeFacts) -> Status | None:
    """Return the failure on a cordoned node; None if the node is schedulable."""
    return unresolvable("node(s) were unschedulable") if node.unschedulable else None


_CORDONED = NodeFilter(None, frozenset({CORDON}), _check_cordon)


_TAINT_COLUMNS = frozenset({TAINTS})


class TaintToleration(Plugin):
    """Every NoSchedule and NoExecute taint of the node is tolerated."""

    name = "TaintToleration"
    checks_plain_pods = True

    def get_node_filter(self, pod: PodClass, ctx: Context) -> NodeFilter | None:
        """Return the check that the pod tolerates a node's NoSchedule and NoExecute taints; never None."""

        def check(node: NodeFacts) -> Status | None:
            if first_untolerated(pod.tolerations, node.taints) is None:
                return None
            return unresolvable("node(s) had untolerated taint(s)")

        return NodeFilter(pod.tolerations_id, _TAINT_COLUMNS, check)


def selects(pod: PodClass, node: NodeFacts) -> bool:
    """Check whether the pod's node selector and required node affinity both match a node."""
    return _matches_selector(pod, node) and (
        pod.node_affinity is None or compile_node_selector(pod.node_affinity).matches(node.labels, node.name)
    )


def _matches_selector(pod: PodClass, node: NodeFacts) -> bool:
    """Check whether the node has all labels of the pod's ``nodeSelector``."""
    return all(node.labels.get(key) == value for key, value in (pod.node_selector or {}).items())


def selection_columns(pod: PodClass) -> frozenset[str]:
    """Return the node columns that a pod's node selector and required node affinity read."""
    return selector_columns(pod.node_affinity) | frozenset(pod.node_selector or ())


def _named_nodes(selector: NodeSelector | None) -> frozenset[str] | None:
    """Return the names of the nodes that ``metadata.name In`` fields allow.

    None if names do not restrict the nodes: there is no selector, or one of its terms has no such field.
    """
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
        """Return the nodes that the pod's affinity names; a failure if its terms exclude all nodes by name."""
        names = _named_nodes(pod.node_affinity)
        if names is None:
            return NOTHING
        return PreFilter(nodes=names) if names else PreFilter(failure=unresolvable("pod affinity terms conflict"))

    def skips(self, pod: PodClass, ctx: Context) -> bool:
        """Return whether neither the pod nor the profile has a node selector or node affinity."""
        return pod.node_affinity is None and ctx.profile.added_affinity is None and pod.node_selector is None

    def get_node_filter(self, pod: PodClass, ctx: Context) -> NodeFilter | None:
        """Return the check of the node selector and the required node affinity; None if there are none."""
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

        return NodeFilter(pod.selection_id, selection_columns(pod) | selector_columns(added), check)


class NodeDeclaredFeatures(Plugin):
    """Every inferred feature is in ``status.declaredFeatures``."""

    name = "NodeDeclaredFeatures"
    checks_plain_pods = True

    def skips(self, pod: PodClass, ctx: Context) -> bool:
        """Return whether the pod requires no declared features of a node."""
        return not pod.features

    def get_node_filter(self, pod: PodClass, ctx: Context) -> NodeFilter | None:
        """Return the check of the features that the pod requires; None if it requires none."""
        required = pod.features
        if not required:
            return None

        def check(node: NodeFacts) -> Status | None:
            return None if required <= node.features else unresolvable("node(s) didn't match Pod's required features")

        return NodeFilter(required, frozenset({FEATURES}), check)
