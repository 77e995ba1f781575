"""kwok: nodes that are only objects of the API server, kept ready by the kwok controller
(``pkg/cloudprovider/kwok``)."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import Any, Final

from kscale.effects import Create, Delete, Get, List
from kscale.errors import InputError
from kscale.objects.core import Node
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.nodegroup import NOT_IMPLEMENTED, NodeGroup, ProviderError
from kscale.world.nodegroups.api_cloud import Ask, value_of
from kscale.world.nodegroups.kwok_config import (
    FAKE,
    KwokGroup,
    group_name,
    groups_of,
    read_kwok_config,
    read_nodes,
    template_of,
)
from kscale.world.nodegroups.provider import CLOUD_ERROR, Provider

__all__ = ["CONFIG_MAP", "KwokGroups"]

_log = logging.getLogger(__name__)
CONFIG_MAP: Final = "kwok-provider-config"
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"  # of names that the API server makes
_METRICS: Final = "metrics.k8s.io/resource-metrics-path"


class KwokGroups(Provider):
    """Groups of nodes that kwok keeps. ``ask`` reaches the API server; ``namespace`` and ``config_map``: where the
    settings are. The templates are read once, when the cloud is first looked at.

    ``refresh`` raises InputError for settings that cannot be used.
    """

    name = "kwok"

    def __init__(
        self, ask: Ask, *, namespace: str, config_map: str = CONFIG_MAP, rng: random.Random | None = None
    ) -> None:
        self._ask = ask
        self._namespace = namespace
        self._rng = rng or random.Random()
        self._config = read_kwok_config(self._data(config_map, "config"))
        self.gpu_label = self._config.gpu_label
        self.gpu_types = self._config.gpu_types
        if self._config.templates:
            templates = read_nodes(self._data(self._config.templates, "templates"))
        else:
            templates = [each for each in self._nodes() if group_name(each, self._config)]
        self._groups = {group.id: group for group in groups_of(templates, self._config)}

    def refresh(self) -> Sequence[NodeGroup]:
        """Counts the nodes of each group: that is its target."""
        members: dict[str, list[Node]] = {name: [] for name in self._groups}
        for node in self._nodes():
            members.get(group_name(node, self._config), []).append(node)
        found = []
        for group in self._groups.values():
            group.target = len(members[group.id])
            kept = [node for node in members[group.id] if (node.spec.provider_id or "").startswith("kwok")]
            found.append(
                NodeGroup(
                    id=group.id,
                    min_size=group.minimum,
                    max_size=group.maximum,
                    target_size=group.target,
                    nodes=[node.name for node in kept],
                    instances=[node.spec.provider_id or "" for node in members[group.id]],
                    template=template_of(group),
                )
            )
        return found

    def has_instance(self, node: Node) -> bool:
        """Always."""
        return True

    def increase_size(self, group: str, delta: int, *, atomic: bool = False) -> None:
        """Makes node objects, one by one."""
        if atomic:
            raise ProviderError(NOT_IMPLEMENTED)
        of = self._group(group)
        if delta <= 0:
            raise ProviderError("size increase must be positive", CLOUD_ERROR)
        if of.target + delta > of.maximum:
            text = f"size increase too large, desired: {of.target + delta} max: {of.maximum}"
            raise ProviderError(text, CLOUD_ERROR)
        for _ in range(delta):
            node = self._new(of)
            value_of(self._ask(Create(node)), f"couldn't create new node '{node.name}'")
            of.target += 1

    def delete_nodes(self, group: str, nodes: Sequence[Node], *, force: bool = False) -> None:
        """Deletes node objects, one by one."""
        if force:
            raise ProviderError(NOT_IMPLEMENTED)
        of = self._group(group)
        if of.target <= of.minimum:
            raise ProviderError("min size reached, nodes will not be deleted", CLOUD_ERROR)
        if of.target - len(nodes) < of.minimum:
            raise ProviderError("can't delete nodes because nodegroup size would go below min size", CLOUD_ERROR)
        for node in nodes:
            if (node.metadata.annotations or {}).get(FAKE) != "fake":
                raise ProviderError(f"can't delete node '{node.name}' because it is not managed by kwok", CLOUD_ERROR)
            value_of(self._ask(Delete(kind="Node", api_version="v1", name=node.name)))
            of.target -= 1

    def decrease_target_size(self, group: str, delta: int) -> None:
        """Lowers the target, but never below the nodes that there are."""
        of = self._group(group)
        if delta >= 0:
            raise ProviderError("size decrease must be negative", CLOUD_ERROR)
        existing = sum(group_name(node, self._config) == group for node in self._nodes())
        if of.target + delta < existing:
            text = "attempt to delete existing nodes, targetSize: {} delta: {} existingNodes: {}"
            raise ProviderError(text.format(of.target, delta, existing), CLOUD_ERROR)
        of.target += delta

    def close(self) -> None:
        """Deletes every node that kwok keeps for a group."""
        for node in self._nodes():
            if (node.metadata.annotations or {}).get(FAKE) == "fake" and group_name(node, self._config) in self._groups:
                error = self._ask(Delete(kind="Node", api_version="v1", name=node.name)).error
                if error is not None:
                    _log.error("node %s was not deleted: %s", node.name, error.message)

    def _group(self, name: str) -> KwokGroup:
        if name not in self._groups:
            raise ProviderError(f"there is no node group {name}", CLOUD_ERROR)
        return self._groups[name]

    def _nodes(self) -> list[Node]:
        found: list[Node] = value_of(
            self._ask(List(kind="Node", api_version="v1", watched=False)), "couldn't list nodes"
        )
        return found

    def _data(self, name: str, key: str) -> str:
        found = self._ask(Get(kind="ConfigMap", api_version="v1", namespace=self._namespace, name=name))
        where = f"ConfigMap {self._namespace}/{name}"
        if found.error is not None:
            raise InputError(f"{where}: {found.error.message}")
        text = (getattr(found.value, "data", None) or {}).get(key)
        if not text:
            raise InputError(f"{where} has no key {key}")
        return str(text)

    def _new(self, group: KwokGroup) -> Node:
        name = f"{group.id}-{''.join(self._rng.choice(_LETTERS) for _ in range(5))}"
        data: dict[str, Any] = to_dict(group.template)
        annotations = {**data["metadata"]["annotations"], _METRICS: f"/metrics/nodes/{name}/metrics/resource"}
        data["metadata"] = {**data["metadata"], "name": name, "annotations": annotations}
        data["spec"] = {**data.get("spec", {}), "providerID": f"kwok:{name}"}
        return from_dict(data, Node)
