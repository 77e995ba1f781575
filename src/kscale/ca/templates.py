"""Node templates, built from a node of the group or from the group's own template.

Upstream: ``simulator/node_info_utils.go``, ``utils/daemonset``, ``utils/taints``. Upstream draws a random name suffix;
here the caller passes one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from kscale.ca.options import AutoscalingOptions
from kscale.objects.api.apps import DaemonSet
from kscale.objects.api.core import Node, Pod, PodStatus, Taint
from kscale.objects.api.meta import ObjectMeta, OwnerReference
from kscale.objects.api.resource import ResourceSlice
from kscale.objects.api.storage import CSINode
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.pod_owners import controller_of, is_daemonset_pod, is_mirror_pod
from kscale.objects.workloads import daemon_tolerations, should_run
from kscale.scheduling.devices.inventory import for_node

__all__ = [
    "TaintConfig",
    "build_daemon_set_pod",
    "build_template_from_group",
    "build_template_from_node",
    "copy_template",
]

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
TEMPLATE_NODE_LABEL: Final = "cluster-autoscaler.kubernetes.io/template-node"
_AUTOSCALER_TAINTS: Final = ("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler")
_CONDITION_TAINTS: Final = frozenset({
    "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/memory-pressure", "node.kubernetes.io/disk-pressure", "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/pid-pressure", "node.cloudprovider.kubernetes.io/uninitialized",
    "node.cloudprovider.kubernetes.io/shutdown", "cloud.google.com/impending-node-termination",
    "NodeWithImpairedVolumes",
})  # fmt: skip
_IGNORE_TAINT_PREFIX: Final = "ignore-taint.cluster-autoscaler.kubernetes.io/"
_STARTUP_TAINT_PREFIXES: Final = (_IGNORE_TAINT_PREFIX, "startup-taint.cluster-autoscaler.kubernetes.io/")
_STATUS_TAINT_PREFIX: Final = "status-taint.cluster-autoscaler.kubernetes.io/"
_DEPRECATED_LABELS: Final = (
    ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"),
    ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
)


class TaintConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Rules for the taints of an example node that a template leaves out. They match keys, not effects or values.

    ``startup_taints``, ``status_taints``, ``startup_taint_prefixes``: upstream's flags of these names.
    ``scale_from_unschedulable``: a template from a cordoned node is not cordoned.
    """

    startup_taints: frozenset[str] = frozenset()
    status_taints: frozenset[str] = frozenset()
    startup_taint_prefixes: tuple[str, ...] = ()
    scale_from_unschedulable: bool = False

    def drops(self, taint: Taint) -> bool:
        """Check whether a template built from a node leaves this taint of the node out."""
        return (
            taint.key in _AUTOSCALER_TAINTS
            or taint.key in _CONDITION_TAINTS
            or taint.key in self.status_taints
            or taint.key.startswith(_STATUS_TAINT_PREFIX)
            or self.is_startup(taint)
        )

    def is_startup(self, taint: Taint) -> bool:
        """Check whether the taint is a startup taint: a ready node with such a taint counts as not ready."""
        return taint.key in self.startup_taints or taint.key.startswith(
            (*_STARTUP_TAINT_PREFIXES, *self.startup_taint_prefixes)
        )

    def kind_of(self, taint: Taint) -> str:
        """Return the name of the taint's type in metrics.

        This is the key of a well-known taint, the prefix ``ignore-taint...`` of a taint whose key begins with it, or
        else ``startup-taint``, ``status-taint`` or ``other``.
        """
        key = taint.key
        if key.startswith(_IGNORE_TAINT_PREFIX):
            return _IGNORE_TAINT_PREFIX
        if key in _AUTOSCALER_TAINTS or key in _CONDITION_TAINTS:
            return key
        if self.is_startup(taint):
            return "startup-taint"
        is_status = key in self.status_taints or key.startswith(_STATUS_TAINT_PREFIX)
        return "status-taint" if is_status else "other"

    @staticmethod
    def from_options(options: AutoscalingOptions) -> TaintConfig:
        """Build the taint rules from the options."""
        return TaintConfig(
            startup_taints=frozenset((*options.ignore_taint, *options.startup_taint)),
            status_taints=frozenset(options.status_taint),
            startup_taint_prefixes=tuple(options.startup_taint_prefix),
            scale_from_unschedulable=options.scale_from_unschedulable,
        )


DEFAULT_TAINTS: Final = TaintConfig()


def build_template_from_node(
    node: Node,
    pods: Iterable[Pod],
    daemonsets: Iterable[DaemonSet],
    group: str,
    *,
    suffix: str,
    csi_node: CSINode | None = None,
    resource_slices: Iterable[ResourceSlice] = (),
    force_daemonsets: bool = False,
    taints: TaintConfig = DEFAULT_TAINTS,
) -> NodeTemplate:
    """Build a template from an existing node of the group, named ``template-node-for-<group>-<suffix>``.

    ``pods``, ``csi_node`` and ``resource_slices`` are those of this node only. Mirror pods and DaemonSet pods stay on
    the template, unless they are terminating. DaemonSets that should run on the node but have no pod there get one;
    without ``force_daemonsets`` only the system-node-critical ones do. ``taints``: rules for the taints that the
    template leaves out. Upstream: ``SanitizedTemplateNodeInfoFromNodeInfo``.
    """
    name = f"template-node-for-{group}-{suffix}"
    live_pods = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
    owners = [controller_of(pod.metadata) for pod in live_pods]
    running = {owner.uid for owner in owners if owner is not None and owner.kind == "DaemonSet"}
    new_node = _rename_node(node, name, taints)
    labels = {**(new_node.metadata.labels or {}), TEMPLATE_NODE_LABEL: "true"}
    new_node = msgspec.structs.replace(new_node, metadata=msgspec.structs.replace(new_node.metadata, labels=labels))
    new_pods = [_move_pod(pod, name, suffix) for pod in live_pods if is_mirror_pod(pod) or is_daemonset_pod(pod)]
    new_pods += [
        build_daemon_set_pod(daemonset, name, suffix)
        for daemonset in daemonsets
        if daemonset.metadata.uid not in running
        and (force_daemonsets or _is_critical_daemon_set(daemonset))
        and should_run(daemonset, new_node)
    ]
    slices = for_node(resource_slices, name, suffix)
    return NodeTemplate(node=new_node, pods=new_pods, csi_node=_rename_csi_node(csi_node, name), resource_slices=slices)


def build_template_from_group(
    template: NodeTemplate,
    daemonsets: Iterable[DaemonSet],
    group: str,
    *,
    suffix: str,
    taints: TaintConfig = DEFAULT_TAINTS,
) -> NodeTemplate:
    """Build a template from the group's own template; every DaemonSet that should run on it gets a pod.

    The labels of instance type, region and zone are copied to their deprecated names, too.

    The parameters are those of :func:`build_template_from_node`. Upstream: ``SanitizedTemplateNodeInfoFromNodeGroup``.
    """
    result = build_template_from_node(
        template.node,
        template.pods,
        daemonsets,
        group,
        suffix=suffix,
        csi_node=template.csi_node,
        resource_slices=template.resource_slices,
        force_daemonsets=True,
        taints=taints,
    )
    labels = dict(result.node.metadata.labels or {})
    labels.update({old: labels[new] for new, old in _DEPRECATED_LABELS if new in labels})
    metadata = msgspec.structs.replace(result.node.metadata, labels=labels)
    return msgspec.structs.replace(result, node=msgspec.structs.replace(result.node, metadata=metadata))


def copy_template(template: NodeTemplate, suffix: str) -> NodeTemplate:
    """Copy a template under the name ``<node name>-<suffix>``, with unchanged taints (upstream:
    ``SanitizedNodeInfo``).
    """
    name = f"{template.node.name}-{suffix}"
    return NodeTemplate(
        node=_rename_node(template.node, name, None),
        pods=[_move_pod(pod, name, suffix) for pod in template.pods],
        csi_node=_rename_csi_node(template.csi_node, name),
        resource_slices=for_node(template.resource_slices, name, suffix),
    )


def build_daemon_set_pod(daemonset: DaemonSet, node_name: str, suffix: str) -> Pod:
    """Build the pod that the DaemonSet controller would create on a node, without API defaulting, as upstream.

    ``suffix`` ends the name of the pod.
    """
    template = daemonset.spec.template
    owner = OwnerReference(
        api_version="apps/v1",
        kind="DaemonSet",
        name=daemonset.name,
        uid=daemonset.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
    metadata = ObjectMeta(
        name=f"{daemonset.name}-pod-{suffix}",
        namespace=daemonset.namespace,
        uid=f"{daemonset.name}-pod-{suffix}-{node_name}",
        labels=template.metadata.labels,
        annotations=template.metadata.annotations,
        owner_references=[owner],
    )
    tolerations = [*template.spec.tolerations, *daemon_tolerations(template.spec)]
    spec = msgspec.structs.replace(template.spec, node_name=node_name, tolerations=tolerations)
    return Pod(api_version="v1", kind="Pod", metadata=metadata, spec=spec, status=PodStatus())


def _is_critical_daemon_set(daemonset: DaemonSet) -> bool:
    """Check whether the pods of the DaemonSet are system-node-critical and may preempt others."""
    spec = daemonset.spec.template.spec
    return spec.priority_class_name == "system-node-critical" and spec.preemption_policy in (
        None,
        "PreemptLowerPriority",
    )


def _rename_node(node: Node, name: str, taints: TaintConfig | None) -> Node:
    """Return a copy of the node under another name.

    With ``taints`` the copy lacks the taints that :meth:`TaintConfig.drops` names, and the cordon if
    ``scale_from_unschedulable`` is set. Without ``taints`` (None) taints and cordon are copied.
    """
    labels = {**(node.metadata.labels or {}), HOSTNAME_LABEL: name}
    metadata = msgspec.structs.replace(node.metadata, name=name, uid=name, labels=labels)
    spec = node.spec
    if taints is not None:
        remaining: Sequence[Taint] = [taint for taint in spec.taints if not taints.drops(taint)]
        cordoned = spec.unschedulable and not taints.scale_from_unschedulable
        spec = msgspec.structs.replace(spec, taints=list(remaining), unschedulable=cordoned)
    return msgspec.structs.replace(node, metadata=metadata, spec=spec)


def _move_pod(pod: Pod, node_name: str, suffix: str) -> Pod:
    """Return a copy of the pod on another node, with ``suffix`` at the end of its name and a new UID."""
    name = f"{pod.name}-{suffix}"
    metadata = msgspec.structs.replace(pod.metadata, name=name, uid=f"{pod.metadata.uid}-{node_name}")
    spec = msgspec.structs.replace(pod.spec, node_name=node_name)
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec)


def _rename_csi_node(csi_node: CSINode | None, name: str) -> CSINode | None:
    """Return a copy of the CSINode under the name of its node; None if there is none."""
    if csi_node is None:
        return None
    return msgspec.structs.replace(csi_node, metadata=msgspec.structs.replace(csi_node.metadata, name=name, uid=name))
