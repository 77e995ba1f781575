"""kwok provider: nodes that exist only as API objects, which the kwok controller keeps ready.

Upstream: ``pkg/cloudprovider/kwok``.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from kscale.effects import Create, Delete, Get, List
from kscale.errors import InputError, Problem
from kscale.objects.api.core import Node
from kscale.objects.api.meta import shorten
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.go_numbers import parse_int64
from kscale.objects.nodegroup import NOT_IMPLEMENTED, NodeGroup, NodeTemplate, ProviderError
from kscale.snapshot.text.documents import only_document
from kscale.world.kubernetes.client import RequestFailedError
from kscale.world.nodegroups.provider import CLOUD_ERROR, Ask, Nodes, Provider, kube_proxy, value_of

__all__ = [
    "CONFIG_MAP",
    "FAKE",
    "KwokConfig",
    "KwokGroup",
    "KwokGroups",
    "group_name",
    "groups_of",
    "read_kwok_config",
    "read_nodes",
    "template_of",
]


FAKE: Final = "kwok.x-k8s.io/node"
"""Annotation of nodes that kwok simulates; its value is ``fake``."""

_NAME, _MIN, _MAX, _DESIRED = (
    f"cluster-autoscaler.kwok.nodegroup/{key}" for key in ("name", "min-count", "max-count", "desired-count")
)
_DEFAULT_MAX: Final = 200
_UNDEFINED: Final = "(currently empty or undefined)"


@dataclass(frozen=True, slots=True, kw_only=True)
class KwokConfig:
    """Settings of the provider.

    ``label`` or ``annotation``: key whose value names a node's group. ``templates``: ConfigMap with the templates
    (empty: the cluster's nodes are the templates). ``taint``: templates and nodes get kwok's taint.
    """

    label: str = ""
    annotation: str = ""
    templates: str = ""
    taint: bool = False
    gpu_label: str = ""
    gpu_types: tuple[str, ...] = ()
    """Keys of ``availableGPUTypes``: GPU types used as metric labels."""


@dataclass(slots=True, kw_only=True)
class KwokGroup:
    """Group and its target size."""

    id: str
    minimum: int
    maximum: int
    target: int
    template: Node


def read_kwok_config(text: str) -> KwokConfig:
    """Parse the key ``config`` of the provider's ConfigMap. Raises InputError with upstream's messages."""
    data = only_document(text.encode(), "the kwok provider's config")
    if not isinstance(data, dict):
        raise InputError("a map of settings is expected in kwok config")
    source = data.get("readNodesFrom")
    if source not in ("configmap", "cluster"):
        raise InputError(
            f"'readNodesFrom' in kwok config is invalid (expected: 'label' or 'annotation'): {source or ''}"
        )
    templates = ""
    if source == "configmap":
        section = _section(data, "configmap")
        if not section:
            raise InputError(f"please specify a value for 'configmap' in kwok config {_UNDEFINED}")
        templates = str(section.get("name") or "")
        if not templates:
            raise InputError(f"please specify 'configmap.name' in kwok config {_UNDEFINED}")
    groups = _section(data, "nodegroups")
    if not groups:
        raise InputError(f"please specify a value for 'nodegroups' in kwok config {_UNDEFINED}")
    label, annotation = str(groups.get("fromNodeLabelKey") or ""), str(groups.get("fromNodeAnnotationKey") or "")
    either = "please specify either 'nodegroups.fromNodeLabelKey' or 'nodegroups.fromNodeAnnotationKey'"
    if not label and not annotation:
        raise InputError(f"{either} in kwok provider config {_UNDEFINED}")
    if label and annotation:
        raise InputError(f"{either} in kwok provider config (you can't use both)")
    nodes = _section(data, "nodes")
    gpu = _section(nodes, "gpuConfig") if nodes.get("gpuConfig") is not None else None
    if gpu is not None and not (gpu.get("gpuLabelKey") and gpu.get("availableGPUTypes")):
        raise InputError("nodes.gpuConfig.gpuLabelKey or file.nodes.gpuConfig.availableGPUTypes is empty")
    return KwokConfig(
        label=label,
        annotation=annotation,
        templates=templates,
        taint=not nodes.get("skipTaint", False),
        gpu_label="" if gpu is None else str(gpu["gpuLabelKey"]),
        gpu_types=() if gpu is None else tuple(map(str, _section(gpu, "availableGPUTypes"))),
    )


def _section(data: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a nested map of settings, empty if absent. Raises InputError if it is not a map."""
    section = data.get(name)
    if not isinstance(section, dict | None):
        raise InputError(f"a map of settings is expected in '{name}' of kwok config")
    return section or {}


def read_nodes(text: str) -> list[Node]:
    """Parse the key ``templates`` of a ConfigMap, a list of nodes.

    Raises InputError if it is not a list, or an item is not a node.
    """
    data = only_document(text.encode(), "the templates of the kwok provider")
    items = data.get("items") if isinstance(data, dict) else None
    if not isinstance(items, list):
        raise InputError("the templates of the kwok provider are no list of nodes")
    return [from_dict(item, Node) for item in items]


def groups_of(nodes: list[Node], config: KwokConfig) -> list[KwokGroup]:
    """Return the groups that templates define, in the order of first occurrence.

    The first template of a group is its node template, and its annotations set the sizes (by default 0 to 200, target
    0). Each further template adds one to the target size. Raises InputError for a template without a group or with
    inconsistent sizes.
    """
    groups: dict[str, KwokGroup] = {}
    for node in nodes:
        name = group_name(node, config)
        if not name:
            raise InputError(Problem("the template belongs to no group", object=f"Node {node.name}"))
        if name in groups:
            groups[name].target += 1
            continue
        minimum, maximum, target = (
            _count(node, key, default) for key, default in ((_MIN, 0), (_MAX, _DEFAULT_MAX), (_DESIRED, 0))
        )
        for holds, key, text in (
            (maximum >= minimum, _MAX, f"max-count {maximum} is less than min-count {minimum}"),
            (minimum <= target <= maximum, _DESIRED, f"desired-count {target} is not between {minimum} and {maximum}"),
        ):
            if not holds:
                raise InputError(Problem(text, object=f"Node {node.name}", field=f"metadata.annotations[{key}]"))
        groups[name] = KwokGroup(
            id=name, minimum=minimum, maximum=maximum, target=target, template=_template(node, config)
        )
    return list(groups.values())


def group_name(node: Node, config: KwokConfig) -> str:
    """Return the group that a node's annotations or labels name; empty if there is none."""
    annotations = node.metadata.annotations or {}
    if annotations.get(_NAME):
        return annotations[_NAME]
    if config.annotation:
        return annotations.get(config.annotation, "")
    return (node.metadata.labels or {}).get(config.label, "")


def template_of(group: KwokGroup) -> NodeTemplate:
    """Return the node template of a group, with the kube-proxy pod that every node runs."""
    return NodeTemplate(node=group.template, pods=[kube_proxy(group.id)])


def _count(node: Node, key: str, default: int) -> int:
    """Return the number in an annotation, or ``default`` without it. Raises InputError if it is not an integer."""
    text = (node.metadata.annotations or {}).get(key)
    if text is None:
        return default
    count = parse_int64(text)
    if count is None:
        problem = f"{shorten(text)!r} is not an integer"
        raise InputError(Problem(problem, object=f"Node {node.name}", field=f"metadata.annotations[{key}]"))
    return count


def _template(node: Node, config: KwokConfig) -> Node:
    """Return a copy of a template node as the node template of its group. ``node`` is not changed.

    The copy is named ``kwok-fake-NAME``, has the annotation ``kwok.x-k8s.io/node: fake`` and the kubelet version
    ``fake``, and lacks what the API server sets (``uid``, ``resourceVersion``, ``creationTimestamp``,
    ``managedFields``). If ``config.taint`` is set, it also has the taint ``kwok-provider=true:NoSchedule``.
    """
    data: dict[str, Any] = to_dict(node)
    metadata = data["metadata"]
    for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        metadata.pop(key, None)
    metadata["name"] = f"kwok-fake-{node.name}"
    metadata["annotations"] = {**(metadata.get("annotations") or {}), FAKE: "fake"}
    if config.taint:
        spec = data.setdefault("spec", {})
        taint = {"key": "kwok-provider", "value": "true", "effect": "NoSchedule"}
        spec["taints"] = [*(spec.get("taints") or ()), taint]
    status = data.setdefault("status", {})
    status["nodeInfo"] = {**(status.get("nodeInfo") or {}), "kubeletVersion": "fake"}
    return from_dict(data, Node)


_log = logging.getLogger(__name__)
CONFIG_MAP: Final = "kwok-provider-config"
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"  # letters of generated names, as in the API server
_METRICS: Final = "metrics.k8s.io/resource-metrics-path"


class KwokGroups(Provider):
    """Groups of kwok nodes.

    ``ask`` performs actions on the API server; ``namespace`` and ``config_map`` name the settings. Settings and
    templates are read when the object is created. Raises InputError for missing or invalid settings, RequestFailedError
    if they cannot be read, ProviderError if the nodes cannot be listed.

    ``watched`` returns the watched nodes at the beginning of the loop. As in upstream, groups are refreshed from them
    without a request, unless they do not show yet what this object has created or deleted.
    """

    name = "kwok"

    def __init__(
        self,
        ask: Ask,
        *,
        namespace: str,
        config_map: str = CONFIG_MAP,
        rng: random.Random | None = None,
        watched: Nodes = tuple,
    ) -> None:
        self._ask = ask
        self._watched = watched
        self._changed: dict[str, bool] = {}
        """Nodes that were created (True) or deleted since the last list, and that the watch may not show yet."""
        self._namespace = namespace
        self._rng = rng or random.Random()
        self._config = read_kwok_config(self._data(config_map, "config"))
        self.gpu_label = self._config.gpu_label
        self.gpu_types = self._config.gpu_types
        if self._config.templates:
            templates = read_nodes(self._data(self._config.templates, "templates"))
        else:
            templates = [node for node in self._nodes() if group_name(node, self._config)]
        self._groups = {group.id: group for group in groups_of(templates, self._config)}
        # Built once: loops recognise an unchanged template by its identity.
        self._templates = {group.id: template_of(group) for group in self._groups.values()}

    def refresh(self) -> Sequence[NodeGroup]:
        """List the nodes from the API server, and return the groups with their current nodes.

        Sets each group's target size to the number of its nodes. Those without a provider ID of kwok count, but are
        listed as instances only. Raises ProviderError if the nodes cannot be listed.
        """
        changed = dict(self._changed)
        nodes = self._nodes()
        names = {node.name for node in nodes}
        for name, is_there in changed.items():
            if is_there != (name in names):  # it was refused, or changed again by somebody else
                self._changed.pop(name, None)
        return self._count_nodes(nodes)

    def refresh_locally(self) -> Sequence[NodeGroup] | None:
        """Return the groups with the watched nodes, without a request.

        None if there are no watched nodes, or if the watch does not show yet what this object has created or deleted.
        """
        nodes = self._watched()
        changed = dict(self._changed)  # other threads add to it
        if changed:
            names = {node.name for node in nodes}
            if any(is_there != (name in names) for name, is_there in changed.items()):
                return None
            for name in changed:
                self._changed.pop(name, None)
        return self._count_nodes(nodes) if nodes else None

    def _count_nodes(self, nodes: Sequence[Node]) -> Sequence[NodeGroup]:
        """Set each group's target size to the number of its nodes among ``nodes``, and return the groups.

        ``nodes`` of a group are those with a provider ID of kwok, ``instances`` the provider IDs of all.
        """
        members: dict[str, list[Node]] = {name: [] for name in self._groups}
        for node in nodes:
            members.get(group_name(node, self._config), []).append(node)
        groups = []
        for group in self._groups.values():
            group.target = len(members[group.id])
            kwok_nodes = [node for node in members[group.id] if (node.spec.provider_id or "").startswith("kwok")]
            groups.append(
                NodeGroup(
                    id=group.id,
                    min_size=group.minimum,
                    max_size=group.maximum,
                    target_size=group.target,
                    nodes=[node.name for node in kwok_nodes],
                    instances=[node.spec.provider_id or "" for node in members[group.id]],
                    template=self._templates[group.id],
                )
            )
        return groups

    def has_instance(self, node: Node) -> bool:
        """Return True: a kwok node has no machine that could be lost."""
        return True

    def increase_size(self, group: str, delta: int, *, atomic: bool = False) -> None:
        """Create ``delta`` node objects, one by one.

        Raises ProviderError if the group is unknown, ``delta`` is not positive, the maximum size would be exceeded,
        ``atomic`` is set, or a node cannot be created. In the last case, nodes that were created before the failure
        remain.
        """
        if atomic:
            raise ProviderError(NOT_IMPLEMENTED)
        kwok_group = self._group(group)
        if delta <= 0:
            raise ProviderError("size increase must be positive", CLOUD_ERROR)
        if kwok_group.target + delta > kwok_group.maximum:
            text = f"size increase too large, desired: {kwok_group.target + delta} max: {kwok_group.maximum}"
            raise ProviderError(text, CLOUD_ERROR)
        for _ in range(delta):
            node = self._build_node(kwok_group)
            self._changed[node.name] = True
            value_of(self._ask(Create(node)), f"couldn't create new node '{node.name}'")
            kwok_group.target += 1

    def delete_nodes(self, group: str, nodes: Sequence[Node], *, force: bool = False) -> None:
        """Delete node objects, one by one.

        Raises ProviderError if the group is unknown, is at its minimum size or would fall below it, if kwok does not
        simulate a node, if a node cannot be deleted, or if ``force`` is set. Nodes that were deleted before the failure
        stay deleted.
        """
        if force:
            raise ProviderError(NOT_IMPLEMENTED)
        kwok_group = self._group(group)
        if kwok_group.target <= kwok_group.minimum:
            raise ProviderError("min size reached, nodes will not be deleted", CLOUD_ERROR)
        if kwok_group.target - len(nodes) < kwok_group.minimum:
            raise ProviderError("can't delete nodes because nodegroup size would go below min size", CLOUD_ERROR)
        for node in nodes:
            if (node.metadata.annotations or {}).get(FAKE) != "fake":
                raise ProviderError(f"can't delete node '{node.name}' because it is not managed by kwok", CLOUD_ERROR)
            self._changed[node.name] = False
            value_of(self._ask(Delete(kind="Node", api_version="v1", name=node.name)))
            kwok_group.target -= 1

    def decrease_target_size(self, group: str, delta: int) -> None:
        """Reduce the target size by ``delta`` (negative).

        Raises ProviderError if the group is unknown, ``delta`` is not negative, existing nodes would be deleted, or the
        nodes cannot be listed.
        """
        kwok_group = self._group(group)
        if delta >= 0:
            raise ProviderError("size decrease must be negative", CLOUD_ERROR)
        existing = sum(group_name(node, self._config) == group for node in self._nodes())
        if kwok_group.target + delta < existing:
            text = "attempt to delete existing nodes, targetSize: {} delta: {} existingNodes: {}"
            raise ProviderError(text.format(kwok_group.target, delta, existing), CLOUD_ERROR)
        kwok_group.target += delta

    def close(self) -> None:
        """Delete every node that kwok simulates for a group. Failed deletions are logged.

        Raises ProviderError if the nodes cannot be listed.
        """
        for node in self._nodes():
            if (node.metadata.annotations or {}).get(FAKE) == "fake" and group_name(node, self._config) in self._groups:
                error = self._ask(Delete(kind="Node", api_version="v1", name=node.name)).error
                if error is not None:
                    _log.error("node %s was not deleted: %s", node.name, error.message)

    def _group(self, name: str) -> KwokGroup:
        """Return a group. Raises ProviderError if there is none."""
        if name not in self._groups:
            raise ProviderError(f"there is no node group {name}", CLOUD_ERROR)
        return self._groups[name]

    def _nodes(self) -> list[Node]:
        """List the nodes of the cluster. Raises ProviderError if the request fails."""
        nodes: list[Node] = value_of(
            self._ask(List(kind="Node", api_version="v1", watched=False)), "couldn't list nodes"
        )
        return nodes

    def _data(self, name: str, key: str) -> str:
        """Return the text under a key of a ConfigMap.

        Raises InputError if there is no such ConfigMap or text, RequestFailedError if the request fails.
        """
        outcome = self._ask(Get(kind="ConfigMap", api_version="v1", namespace=self._namespace, name=name))
        where = f"ConfigMap {self._namespace}/{name}"
        if outcome.error is not None and outcome.error.is_not_found:
            raise InputError(f"{where}: {outcome.error.message}")
        if outcome.error is not None:
            raise RequestFailedError(replace(outcome.error, message=f"{where}: {outcome.error.message}"))
        text = (getattr(outcome.value, "data", None) or {}).get(key)
        if not text:
            raise InputError(f"{where} has no key {key}")
        return str(text)

    def _build_node(self, group: KwokGroup) -> Node:
        """Build a node of a group, with a random name."""
        name = f"{group.id}-{''.join(self._rng.choice(_LETTERS) for _ in range(5))}"
        data: dict[str, Any] = to_dict(group.template)
        annotations = {**data["metadata"]["annotations"], _METRICS: f"/metrics/nodes/{name}/metrics/resource"}
        data["metadata"] = {**data["metadata"], "name": name, "annotations": annotations}
        data["spec"] = {**data.get("spec", {}), "providerID": f"kwok:{name}"}
        return from_dict(data, Node)
