"""Groups that release 1.3 could make (``processors/nodegroups/autoprovisioning_node_group_list_processor.go``).

A group that does not exist stands for a machine type: the labels that its nodes would get are those that most of the
pods ask for, and for every type of GPU that pods request there is a variant of it with such GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.options import AutoscalingOptions
from kscale.objects.core import Pod
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.nodegroups import Groups
from kscale.objects.quantity import Quantity
from kscale.objects.requests import CPU

__all__ = ["Candidates", "best_label_set", "legacy_candidates"]

DEFAULT_GPU_TYPE: Final = "nvidia-tesla-k80"
_GPU: Final = "nvidia.com/gpu"
_DEFAULT_MILLI: Final = 50
"""What a pod without CPU request counts for."""
_INFRASTRUCTURE: Final = ("kubernetes.io", "cloud.google.com")


class Candidates(msgspec.Struct, kw_only=True):
    """Groups that could be made, with their templates, and what was logged about others."""

    groups: list[NodeGroup] = []
    templates: dict[str, NodeTemplate] = {}
    warnings: list[str] = []


def best_label_set(pods: Iterable[Pod]) -> dict[str, str]:
    """The labels that let the pods with the most CPU run, and others besides (``utils/labels``: BestLabelSet).

    The node selector whose pods ask for the most CPU; then, in that order, those that agree with what was chosen and
    bring no new label of the infrastructure. Without pods there are none.
    """
    selectors: dict[tuple[tuple[str, str], ...], int] = {}
    for pod in pods:
        key = tuple(sorted((pod.spec.node_selector or {}).items()))
        selectors[key] = selectors.get(key, 0) + (_requested(pod, CPU).milli_value() or _DEFAULT_MILLI)
    ranked = sorted(selectors, key=selectors.__getitem__, reverse=True)
    chosen = dict(ranked[0]) if ranked else {}
    for selector in ranked[1:]:
        if all(chosen[key] == value if key in chosen else not _of_infrastructure(key) for key, value in selector):
            chosen.update(selector)
    return chosen


def _of_infrastructure(key: str) -> bool:
    return any(part in key for part in _INFRASTRUCTURE)


def _requested(pod: Pod, resource: str) -> Quantity:
    """The sum over the regular containers."""
    asked = (container.resources.requests or {} for container in pod.spec.containers)
    return Quantity.sum(requests[resource] for requests in asked if resource in requests)


def legacy_candidates(
    machines: Sequence[NodeGroup],
    templates: Mapping[str, NodeTemplate],
    existing: Groups,
    pods: Sequence[Pod],
    options: AutoscalingOptions,
    gpu_label: str = DEFAULT_GPU_LABEL,
) -> Candidates:
    """What could be made of the machine types for these pods; ``templates``: of what a machine type is, by its id.

    Nothing without ``--node-autoprovisioning-enabled``, or once there are so many groups of that kind as there may be.
    A machine type with other labels than the pods want is left out.
    """
    found = Candidates()
    made = sum(group.autoprovisioned for group in existing)
    if not options.node_autoprovisioning_enabled or made >= options.max_autoprovisioned_node_group_count:
        return found
    devices: dict[str, list[tuple[Pod, Quantity]]] = {}
    for pod in pods:
        count = _requested(pod, _GPU)
        if not count.is_zero:
            kind = (pod.spec.node_selector or {}).get(gpu_label, DEFAULT_GPU_TYPE)
            devices.setdefault(kind, []).append((pod, count))
    for machine in machines:
        base = templates.get(machine.id)
        if base is None:
            continue
        _add(found, machine, base, best_label_set(pods), {})
        if _GPU in (base.node.status.capacity or {}):
            continue
        for kind, asking in devices.items():
            labels = {**best_label_set([pod for pod, _ in asking]), gpu_label: kind}
            variant = replace(machine, id=f"{machine.id}-{kind}")
            _add(found, variant, base, labels, {_GPU: max((count for _, count in asking), key=Quantity.value)})
    return found


def _add(
    found: Candidates, group: NodeGroup, base: NodeTemplate, labels: Mapping[str, str], devices: Mapping[str, Quantity]
) -> None:
    node = base.node
    own = node.metadata.labels or {}
    wrong = sorted(key for key, value in labels.items() if own.get(key, value) != value)
    if wrong:
        pairs = ", ".join(f"{key}={labels[key]} (it has {own[key]})" for key in wrong)
        found.warnings.append(f"node group {group.id} could not be made with the labels that pods want: {pairs}")
        return
    status = replace(
        node.status,
        capacity={**(node.status.capacity or {}), **devices},
        allocatable={**(node.status.allocatable or {}), **devices},
    )
    metadata = replace(node.metadata, labels={**own, **labels})
    made = replace(base, node=replace(node, metadata=metadata, status=status))
    found.groups.append(replace(group, template=made))
    found.templates[group.id] = made
