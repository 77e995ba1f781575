"""Templates of release 1.3 (``core/utils.go``: GetNodeInfosForGroups)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from kscale.ca.nodes import TO_BE_DELETED_TAINT, is_ready
from kscale.ca.templates import daemonset_pod
from kscale.objects.apps import DaemonSet
from kscale.objects.core import Node, Pod
from kscale.objects.daemon_sets import should_run
from kscale.objects.nodegroup import NodeGroup, NodeTemplate, ProviderError
from kscale.objects.nodegroups import Groups
from kscale.objects.owners import controller_of, is_mirror_pod
from kscale.scheduling.facts import HOSTNAME
from kscale.scheduling.session import Session
from kscale.snapshot.cluster import Cluster

__all__ = ["legacy_templates"]

_DROPPED = ("CriticalAddonsOnly", TO_BE_DELETED_TAINT)


def legacy_templates(
    nodes: Sequence[Node],
    example_of: Callable[[Node], NodeTemplate],
    daemonsets: Iterable[DaemonSet],
    groups: Groups,
    cache: Mapping[str, NodeTemplate],
) -> tuple[dict[str, NodeTemplate], dict[str, NodeTemplate]]:
    """(templates by group id, the examples to remember).

    A group's first ready and schedulable node is its example, without waiting for it to settle; else what is
    remembered, for however long; else the group's own description with every DaemonSet pod that fits it, resources
    included; else any node.
    """
    found: dict[str, NodeTemplate] = {}
    examples = {name: template for name, template in cache.items() if name in groups}
    others: list[tuple[Node, NodeGroup]] = []
    for node in nodes:
        try:
            group = groups.of_node(node.name)
        except ProviderError:
            continue
        if group is None or group.id in found:
            continue
        if is_ready(node) and not node.spec.unschedulable:
            found[group.id] = examples[group.id] = _from_node(example_of(node), group.id)
        else:
            others.append((node, group))
    for group in groups:
        if group.id in found:
            continue
        if group.id in examples:
            found[group.id] = examples[group.id]
        elif group.template is not None and group.template_error is None:
            found[group.id] = _from_group(group.template, daemonsets, group.id)
    for node, group in others:
        if group.id not in found:
            found[group.id] = _from_node(example_of(node), group.id)
    return found, examples


def _sanitized(node: Node, group: str) -> Node:
    name = f"template-node-for-{group}-0"
    labels = node.metadata.labels
    if labels is not None and HOSTNAME in labels:
        labels = {**labels, HOSTNAME: name}
    taints = [taint for taint in node.spec.taints if taint.key not in _DROPPED]
    metadata = replace(node.metadata, name=name, uid=name, labels=labels)
    return replace(node, metadata=metadata, spec=replace(node.spec, taints=taints))


def _from_node(example: NodeTemplate, group: str) -> NodeTemplate:
    def stays(pod: Pod) -> bool:
        owner = controller_of(pod.metadata)
        return is_mirror_pod(pod) or (owner is not None and owner.kind == "DaemonSet")

    return replace(example, node=_sanitized(example.node, group), pods=[pod for pod in example.pods if stays(pod)])


def _from_group(template: NodeTemplate, daemonsets: Iterable[DaemonSet], group: str) -> NodeTemplate:
    node = _sanitized(template.node, group)
    pods = [daemonset_pod(item, node.name, "0") for item in daemonsets if should_run(item, node)]
    if not pods:
        return replace(template, node=node)
    snapshot = Cluster().snapshot()
    classes = [snapshot.interner.classify(pod, placed=True) for pod in pods]
    bare = replace(template, node=node)
    session = Session(snapshot, dict.fromkeys(classes), [bare])
    copy = session.engine.add(session.templates[0], 0)
    numbers = session.classes_of(classes).tolist()
    fitting = [pod for pod, number in zip(pods, numbers, strict=True) if session.engine.check(number, copy) == 0]
    return replace(bare, pods=[*template.pods, *fitting])
