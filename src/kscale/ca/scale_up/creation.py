"""Groups that are being made in the background, and the sizes that they shall get (node auto-provisioning)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from kscale.ca.balancing import ScaleUpInfo
from kscale.effects.moments import Count

__all__ = ["AsyncInitializer", "with_grown"]


class AsyncInitializer(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """Sizes of ``groups`` that are being made in the background together, by the id they have meanwhile.

    ``target_sizes`` are what the groups shall have once they exist, ``processed_sizes`` what was asked of the provider
    so far. ``pods`` triggered the first scale-up; ``atomic``: all of a size or nothing.
    """

    groups: list[str] = []
    pods: list[str] = []
    atomic: bool = False
    target_sizes: dict[str, Count] = {}
    processed_sizes: dict[str, Count] = {}

    def target_size(self, group: str) -> int:
        """What a group shall have; 0 if nobody said."""
        return self.target_sizes.get(group, 0)

    def with_target_size(self, group: str, size: int) -> AsyncInitializer:
        """The same, a group of that size."""
        return replace(self, target_sizes={**self.target_sizes, group: size})

    def with_changed_target_size(self, group: str, delta: int) -> AsyncInitializer:
        """The same, a group larger (or smaller) by ``delta``, never below 0."""
        return self.with_target_size(group, max(0, self.target_size(group) + delta))


def with_grown(
    initializers: Mapping[str, AsyncInitializer], resized: Iterable[ScaleUpInfo]
) -> dict[str, AsyncInitializer]:
    """The initializers, by the id of the group that is being made, after groups were resized; groups that are not being
    made do not count."""
    after = dict(initializers)
    for info in resized:
        for name, item in after.items():
            if info.group in item.groups:
                after[name] = item.with_changed_target_size(info.group, info.new - info.current)
    return after
