"""Node groups from a file, for a cloud that kscale has no provider for.

With a file of sizes the groups can be changed: kscale writes its decisions there, and another program (a job with
Terraform, an operator) creates and deletes the machines.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kscale.files import replace_file
from kscale.objects.api.core import Node
from kscale.objects.nodegroup import NOT_IMPLEMENTED, Groups, NodeGroup, ProviderError
from kscale.world.nodegroups.provider import CLOUD_ERROR, Nodes, Provider

__all__ = ["GroupSize", "StaticGroups"]

_MOST_BYTES: Final = 16 << 20


class GroupSize(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Entry of one group in the sizes file.

    ``target``: target number of machines. ``exists``: whether the group should exist. ``delete``: names of nodes (or
    IDs of machines that never registered) whose machines are to be deleted. None: the group's description applies.
    Names of nodes that no longer exist are removed from ``delete``.
    """

    target: int | None = None
    exists: bool | None = None
    delete: tuple[str, ...] = ()


class StaticGroups(Provider):
    """Groups that the user describes, with the nodes of the cluster.

    ``sizes``: path of the sizes file, to which changes are written. Empty: groups cannot be changed, and methods that
    change them raise ProviderError (``Not implemented``). ``nodes`` returns the nodes of the cluster.
    """

    name = "static"

    def __init__(self, groups: Sequence[NodeGroup], nodes: Nodes, *, sizes: str | os.PathLike[str] = "") -> None:
        self._groups = groups
        self._nodes = nodes
        self._sizes = Path(sizes) if sizes else None
        self._lock = threading.Lock()

    def refresh(self) -> Sequence[NodeGroup]:
        """Return the groups with their current nodes and the sizes of the sizes file.

        Removes nodes that no longer exist from the file. Raises :class:`~kscale.InputError` if a node belongs to more
        than one group or a group is invalid, and ProviderError if the file cannot be read or written.
        """
        nodes = self._nodes()
        with self._lock:
            sizes = self._read()
            names = {node.name for node in nodes}
            groups_of_cluster = {
                group: replace(size, delete=tuple(name for name in size.delete if name in names))
                for group, size in sizes.items()
            }
            if groups_of_cluster != sizes:
                self._write(groups_of_cluster)
        return list(Groups.of([_apply_size(group, groups_of_cluster.get(group.id)) for group in self._groups], nodes))

    def increase_size(self, group: str, delta: int, *, atomic: bool = False) -> None:
        """Increase the target size of ``group`` by ``delta``.

        ``atomic`` makes no difference. Raises ProviderError if the maximum size would be exceeded, there is no such
        group, or the sizes file is missing from the configuration or cannot be read or written; InputError as
        :meth:`refresh` does.
        """
        del atomic  # a change of the file is always atomic
        self._change(group, lambda current, size: _resize(current, size, current.size + delta))

    def decrease_target_size(self, group: str, delta: int) -> None:
        """Reduce the target size of ``group`` by ``delta`` (negative).

        Raises ProviderError if existing nodes would have to be deleted, there is no such group, or the sizes file is
        missing from the configuration or cannot be read or written; InputError as :meth:`refresh` does.
        """

        def lower(current: NodeGroup, size: GroupSize) -> GroupSize:
            if current.size + delta < len(current.nodes):
                sizes = f"targetSize: {current.size} delta: {delta} existingNodes: {len(current.nodes)}"
                text = f"attempt to delete existing nodes {sizes}"
                raise ProviderError(text, CLOUD_ERROR)
            return replace(size, target=current.size + delta)

        self._change(group, lower)

    def delete_nodes(self, group: str, nodes: Sequence[Node], *, force: bool = False) -> None:
        """Request the deletion of nodes and reduce the target size accordingly.

        Their names are added to ``delete`` in the sizes file. Raises ProviderError if the group would fall below its
        minimum size (unless ``force`` is set), there is no such group, or the sizes file is missing from the
        configuration or cannot be read or written; InputError as :meth:`refresh` does.
        """

        def remove(current: NodeGroup, size: GroupSize) -> GroupSize:
            target = current.size - len(nodes)
            if target < current.min_size and not force:
                raise ProviderError(f"min size reached, nodes will not be deleted from {group}", CLOUD_ERROR)
            names = dict.fromkeys([*size.delete, *(node.name for node in nodes)])
            return replace(size, target=max(0, target), delete=tuple(names))

        self._change(group, remove)

    def create_group(self, group: str, *, asynchronous: bool = False) -> Sequence[NodeGroup]:
        """Mark a group as existing in the sizes file, with target size 0. ``asynchronous`` is ignored.

        Returns a list with the group. Raises ProviderError if there is no such group, or the sizes file is missing from
        the configuration or cannot be read or written; InputError as :meth:`refresh` does.
        """
        del asynchronous
        self._change(group, lambda _, size: replace(size, exists=True, target=0))
        return [item for item in self.refresh() if item.id == group]

    def delete_group(self, group: str) -> None:
        """Request the deletion of a group: set ``exists`` to False and the target size to 0 in the sizes file.

        Raises ProviderError if there is no such group, or the sizes file is missing from the configuration or cannot be
        read or written; InputError as :meth:`refresh` does.
        """
        self._change(group, lambda _, size: replace(size, exists=False, target=0))

    def _change(self, group: str, change: Callable[[NodeGroup, GroupSize], GroupSize]) -> None:
        """Change the entry of a group in the sizes file. ``change`` gets (group, its entry) and returns the new entry.

        Raises ProviderError if there is no sizes file or no such group, or if the file cannot be read or written;
        InputError as :meth:`refresh` does.
        """
        if self._sizes is None:
            raise ProviderError(NOT_IMPLEMENTED)
        current = next((item for item in self.refresh() if item.id == group), None)
        if current is None:
            raise ProviderError(f"there is no node group {group}", CLOUD_ERROR)
        with self._lock:
            sizes = self._read()
            self._write({**sizes, group: change(current, sizes.get(group, GroupSize()))})

    def _read(self) -> dict[str, GroupSize]:
        """Read the sizes file: its entries by group.

        Empty if no file is configured, or if the file does not exist yet. Raises ProviderError if an existing file
        cannot be read, is too large, or is malformed.
        """
        if self._sizes is None:
            return {}
        try:
            with self._sizes.open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ProviderError(f"{self._sizes}: {error.strerror}", CLOUD_ERROR) from None
        if len(data) > _MOST_BYTES:
            raise ProviderError(f"{self._sizes}: more than {_MOST_BYTES} bytes", CLOUD_ERROR)
        try:
            return msgspec.json.decode(data, type=dict[str, GroupSize])
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
            raise ProviderError(f"{self._sizes}: {error}", CLOUD_ERROR) from None

    def _write(self, sizes: Mapping[str, GroupSize]) -> None:
        """Replace the sizes file atomically. Raises ProviderError if that fails."""
        assert self._sizes is not None
        text = msgspec.json.format(msgspec.json.encode(sizes), indent=2)
        try:
            replace_file(self._sizes, text + b"\n")
        except OSError as error:
            raise ProviderError(f"{self._sizes}: {error.strerror}", CLOUD_ERROR) from None


def _apply_size(group: NodeGroup, size: GroupSize | None) -> NodeGroup:
    """Return the group with the target size and existence of its entry ``size``; unchanged if there is no entry.

    A group that exists only by its entry is autoprovisioned.
    """
    if size is None:
        return group
    changes: dict[str, Any] = {}
    if size.target is not None:
        changes["target_size"] = size.target
    if size.exists is not None:
        changes["exists"] = size.exists
        changes["autoprovisioned"] = group.autoprovisioned or (size.exists and not group.exists)
    return replace(group, **changes) if changes else group


def _resize(group: NodeGroup, size: GroupSize, target: int) -> GroupSize:
    """Return the entry with another target. Raises ProviderError if ``target`` exceeds the maximum size."""
    if target > group.max_size:
        raise ProviderError(f"size increase too large, desired: {target} max: {group.max_size}", CLOUD_ERROR)
    return replace(size, target=target)
