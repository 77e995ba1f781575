"""Making a group that does not exist yet (node auto-provisioning): an action and its outcome."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from kscale.objects.nodegroup import NodeGroup

__all__ = ["AsyncInitializer", "CreateGroup", "CreatedNodeGroups"]


class AsyncInitializer(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """Sizes of groups that are being made in the background, by the id they have meanwhile.

    ``target_sizes`` are what the groups shall have once they exist, ``processed_sizes`` what was asked of the provider
    so far. ``pods`` triggered the first scale-up; ``atomic``: all of a size or nothing.
    """

    pods: list[str] = []
    atomic: bool = False
    target_sizes: dict[str, int] = {}
    processed_sizes: dict[str, int] = {}

    def target_size(self, group: str) -> int:
        """What a group shall have; 0 if nobody said."""
        return self.target_sizes.get(group, 0)

    def with_target_size(self, group: str, size: int) -> AsyncInitializer:
        """The same, a group of that size."""
        return replace(self, target_sizes={**self.target_sizes, group: size})

    def with_changed_target_size(self, group: str, delta: int) -> AsyncInitializer:
        """The same, a group larger (or smaller) by ``delta``, never below 0."""
        return self.with_target_size(group, max(0, self.target_size(group) + delta))


class CreateGroup(msgspec.Struct, kw_only=True, frozen=True):
    """An action: make the group; ``asynchronous``: begin to, and return groups that are still being made.

    Its outcome is :class:`CreatedNodeGroups`, an :class:`kscale.ca.AutoscalerError`, or None: made as it was described.
    ``initializer`` comes with ``asynchronous``: it collects the sizes that the groups shall get when they are there
    (:func:`kscale.ca.initialize_steps`).
    """

    group: str
    asynchronous: bool = False
    initializer: AsyncInitializer | None = None


class CreatedNodeGroups(msgspec.Struct, kw_only=True, frozen=True):
    """The group that was made, and others made along with it; their templates are what the provider now says."""

    main: NodeGroup
    extra: list[NodeGroup] = []
