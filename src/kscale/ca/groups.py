"""The cloud provider's node groups as one decision sees them: answers already given, errors included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from kscale.ca.errors import NOT_IMPLEMENTED, AutoscalerError, is_not_implemented
from kscale.ca.options import NodeGroupAutoscalingOptions
from kscale.objects.nodegroup import NodeTemplate

__all__ = ["Group", "Groups"]


class Group(msgspec.Struct, kw_only=True):
    """One node group. An ``..._error`` text says that the provider failed to answer that question.

    - ``nodes``: names of the nodes that belong to it; ``instances``: provider ids of what the cloud runs for it.
    - ``template``: what ``TemplateNodeInfo`` returns; with neither it nor an error the provider does not implement it.
    - ``options``: None = the group has none of its own; the defaults hold.
    - ``exists``: False for a candidate of node auto-provisioning; ``async_upcoming``: being created.
    """

    id: str
    min_size: int = 0
    max_size: int = 0
    target_size: int = 0
    target_size_error: str | None = None
    nodes: list[str] = []
    instances: list[str] = []
    template: NodeTemplate | None = None
    template_error: str | None = None
    options: NodeGroupAutoscalingOptions | None = None
    options_error: str | None = None
    exists: bool = True
    autoprovisioned: bool = False
    async_upcoming: bool = False

    def options_or(self, defaults: NodeGroupAutoscalingOptions) -> NodeGroupAutoscalingOptions:
        """The group's options, or the defaults. Raises :class:`AutoscalerError` (of no type) if the look-up fails.

        An error that says ``Not implemented`` counts as having none.
        """
        if self.options_error is not None and not is_not_implemented(self.options_error):
            raise AutoscalerError("", self.options_error)
        return self.options if self.options is not None and self.options_error is None else defaults

    @property
    def node_template(self) -> NodeTemplate:
        """``TemplateNodeInfo()``. Raises :class:`AutoscalerError` (of no type) if there is none."""
        if self.template is None or self.template_error is not None:
            raise AutoscalerError("", self.template_error if self.template_error is not None else NOT_IMPLEMENTED)
        return self.template


class Groups:
    """Node groups in the provider's order, and which node belongs to which.

    ``node_errors`` (node name -> text) are the nodes for which the provider fails to tell the group.
    """

    __slots__ = ("_by_id", "_by_node", "node_errors")

    def __init__(self, groups: Iterable[Group] = (), node_errors: Mapping[str, str] | None = None) -> None:
        self._by_id = {group.id: group for group in groups}
        self.node_errors = dict(node_errors or {})
        self._by_node: dict[str, Group] = {}
        for group in self._by_id.values():
            for name in group.nodes:
                self._by_node.setdefault(name, group)

    def __iter__(self) -> Iterator[Group]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._by_id

    def __getitem__(self, group_id: str) -> Group:
        return self._by_id[group_id]

    def get(self, group_id: str) -> Group | None:
        return self._by_id.get(group_id)

    def of_node(self, name: str) -> Group | None:
        """The group of a node, None if it belongs to none. Raises :class:`AutoscalerError` if the provider fails."""
        error = self.node_errors.get(name)
        if error is not None:
            raise AutoscalerError("", error)
        return self._by_node.get(name)
