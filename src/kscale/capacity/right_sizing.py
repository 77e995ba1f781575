"""Effect of recommended requests on the number of nodes: packs the pods before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from kscale.ca.estimator import EstimateOptions, estimate
from kscale.capacity.losses import make_pending
from kscale.capacity.mix import ALL, mix
from kscale.objects.api.core import Container, ContainerStatus, Node, Pod
from kscale.objects.api.meta import ResourceList
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.pod_owners import is_daemonset_pod, is_mirror_pod
from kscale.objects.pod_resources import CPU, MEMORY, demand, resize_infeasible
from kscale.objects.quantity import Quantity
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot
from kscale.vpa.advice.records import ContainerAdvice, Effect, PackedPools, RecommendationReport
from kscale.vpa.controllers import Controllers, TargetError, read_controllers
from kscale.vpa.target import find_topmost_owner

__all__ = [
    "Advised",
    "advice_of",
    "apply_advice",
    "compare_packing",
    "effect_of",
    "effect_on_pools",
    "replace_requests",
]


def replace_requests(
    pod: Pod,
    of_container: Callable[[Container], ResourceList | None],
    of_pod: Callable[[ResourceList], ResourceList] | None = None,
) -> Pod:
    """Return the pod with other requests.

    ``of_container`` is called with each container, init containers included, and returns its requests (None: none).
    ``of_pod`` is called with the requests of the pod level, if the pod has any, and returns those to set. Granted
    resources that the kubelet reported are removed, as they refer to the old requests; so is the condition of an
    infeasible resize.
    """
    spec, status = pod.spec, pod.status

    def changed(container: Container) -> Container:
        """Return the container with its new requests."""
        resources = msgspec.structs.replace(container.resources, requests=of_container(container))
        return msgspec.structs.replace(container, resources=resources)

    resources = spec.resources
    if resources is not None and resources.requests is not None and of_pod is not None:
        resources = msgspec.structs.replace(resources, requests=of_pod(resources.requests))
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(
            spec,
            containers=[changed(item) for item in spec.containers],
            init_containers=[changed(item) for item in spec.init_containers],
            resources=resources,
        ),
        status=msgspec.structs.replace(
            status,
            conditions=[item for item in status.conditions if item.type != "PodResizePending"]
            if resize_infeasible(pod)
            else status.conditions,
            container_statuses=[_clear_allocated_resources(item) for item in status.container_statuses],
            init_container_statuses=[_clear_allocated_resources(item) for item in status.init_container_statuses],
            allocated_resources=None,
            resources=None,
        ),
    )


def _clear_allocated_resources(status: ContainerStatus) -> ContainerStatus:
    """Return the status without the resources that the kubelet has granted."""
    return msgspec.structs.replace(status, allocated_resources=None, resources=None)


Advised = dict[tuple[str, str, str], ContainerAdvice]
"""By namespace, workload (``Kind/name``) and container."""


def effect_of(
    cluster: Any, report: RecommendationReport, *, price: Callable[[Node], float | None] | None = None
) -> Effect:
    """Pack the running pods of a cluster onto empty nodes of its most common shape, as they are and as recommended.

    DaemonSet pods of one such node run on every node; mirror pods are left out. Pods that fit no empty node are
    counted, not packed. ``price`` is called with that node and returns its $/h, see
    :func:`kscale.capacity.cost.price_of`. Returns the numbers of nodes and of pods that fit none, before and after; an
    empty effect without nodes.
    """
    controllers = read_controllers(cluster)
    advised = advice_of(report)
    return compare_packing(cluster, lambda pod: apply_advice(pod, controllers, advised), price=price)


def compare_packing(
    cluster: Any, changed: Callable[[Pod], Pod], *, price: Callable[[Node], float | None] | None = None
) -> Effect:
    """Pack pods like :func:`effect_of`, before and after any change of pods.

    ``changed`` is called with each pod that is packed, and with the DaemonSet pods that run on every node; it returns
    the pod after the change. Returns an empty effect if the cluster has no nodes.
    """
    nodes = list(cluster.nodes())
    pods = [pod for pod in cluster.pods() if pod.spec.node_name and pod.status.phase in ("Running", "")]
    if not nodes:
        return Effect()
    model = _find_most_common_node(nodes)
    movable = [pod for pod in pods if not is_daemonset_pod(pod) and not is_mirror_pod(pod)]
    daemonset_pods = [pod for pod in pods if pod.spec.node_name == model.name and is_daemonset_pod(pod)]
    empty = Cluster(item for item in cluster if not isinstance(item, (Node, Pod))).snapshot()
    before = _nodes_for(empty, model, daemonset_pods, movable)
    after = _nodes_for(empty, model, [changed(pod) for pod in daemonset_pods], [changed(pod) for pod in movable])
    node_price = price(model) if price is not None else None
    return Effect(
        node=model.name,
        pods=len(movable),
        nodes_before=before[0],
        nodes_after=after[0],
        homeless_before=len(before[1]),
        homeless_after=len(after[1]),
        no_longer_fit=sorted(after[1] - before[1]),
        node_price=node_price,
        saved_per_hour=None if node_price is None else (before[0] - after[0]) * node_price,
    )


def effect_on_pools(
    cluster: Cluster, report: RecommendationReport, groups: Sequence[NodeGroup]
) -> tuple[PackedPools, PackedPools]:
    """Compute the cheapest mix of ``groups`` for the running pods: return (as they are, as recommended).

    ``groups`` have templates and prices. Raises InputError for a group without a price. See :func:`kscale.mix`.
    """
    controllers = read_controllers(cluster)
    advised = advice_of(report)
    before, after = cluster.copy(), cluster.copy()
    for pod in cluster.pods():
        if pod.spec.node_name and pod.status.phase in ("Running", ""):
            after.apply(apply_advice(pod, controllers, advised))
        else:
            before.remove(pod)
            after.remove(pod)
    # DaemonSet pods of new nodes get their recommended requests, too.
    new = [_template_resized(group, controllers, advised) for group in groups]
    return _on_pools(before, groups), _on_pools(after, new)


def _template_resized(group: NodeGroup, controllers: Controllers, advised: Advised) -> NodeGroup:
    """Return the group with the recommended requests for the pods of its template; unchanged without a template."""
    if group.template is None:
        return group
    pods = [apply_advice(pod, controllers, advised) for pod in group.template.pods]
    return msgspec.structs.replace(group, template=msgspec.structs.replace(group.template, pods=pods))


def _on_pools(cluster: Cluster, groups: Sequence[NodeGroup]) -> PackedPools:
    """Compute the cheapest mix of ``groups`` for all pods of a cluster, with the sums of the pods' requests.

    Requests of pods that the mix does not place, such as those of DaemonSets, count as well.
    """
    plan = mix(cluster, groups, pods=ALL)
    requests = [demand(pod) for pod in cluster.pods()]
    return PackedPools(
        cost=plan.cost,
        bound=plan.bound.cost,
        nodes=plan.offers,
        unschedulable_count=plan.unschedulable_count,
        millicores=sum(amounts[CPU].milli_value() for amounts in requests if CPU in amounts),
        bytes=sum(amounts[MEMORY].value() for amounts in requests if MEMORY in amounts),
    )


def _find_most_common_node(nodes: Iterable[Node]) -> Node:
    """Return the first node of the most common shape (allocatable resources)."""
    shapes: Counter[tuple[tuple[str, str], ...]] = Counter()
    first: dict[tuple[tuple[str, str], ...], Node] = {}
    for node in nodes:
        shape = tuple(sorted((name, str(amount)) for name, amount in (node.status.allocatable or {}).items()))
        shapes[shape] += 1
        first.setdefault(shape, node)
    return first[shapes.most_common(1)[0][0]]


def advice_of(report: RecommendationReport) -> Advised:
    """Return the report's recommendations by (namespace, workload, container)."""
    return {(entry.namespace, entry.workload, entry.container): entry for entry in report.containers}


def apply_advice(pod: Pod, controllers: Controllers, advised: Advised) -> Pod:
    """Return the pod with its containers' recommended requests; the pod itself if there is no recommendation.

    ``advised``: recommendations by namespace, workload and container. Init containers count, too.
    """
    try:
        parent = find_topmost_owner(pod, controllers)
    except TargetError:
        return pod
    if parent is None:
        return pod
    containers = [*pod.spec.containers, *pod.spec.init_containers]
    workload = parent.namespace, f"{parent.kind}/{parent.name}"
    recommendations = {
        item.name: entry for item in containers if (entry := advised.get((*workload, item.name))) is not None
    }
    if not recommendations:
        return pod

    def recommended(container: Container) -> ResourceList | None:
        """Return the container's requests, with recommended amounts in place of its own where there are any."""
        advice = recommendations.get(container.name)
        if advice is None:
            return container.resources.requests
        requests = dict(container.resources.requests or {})
        if advice.cpu.target is not None:
            requests[CPU] = Quantity(f"{advice.cpu.target}m")
        if advice.memory.target is not None:
            requests[MEMORY] = Quantity(str(advice.memory.target))
        return requests

    return replace_requests(pod, recommended)


def _nodes_for(empty: Snapshot, model: Node, daemons: list[Pod], pods: list[Pod]) -> tuple[int, set[str]]:
    """Return (number of nodes like ``model`` that the pods need, names of the pods that fit none of them).

    ``daemons``: pods that run on each of these nodes.
    """
    template = NodeTemplate(node=model, pods=daemons)
    result = estimate(empty, [make_pending(pod) for pod in pods], template=template, options=EstimateOptions())
    return result.node_count, set(result.unschedulable)
