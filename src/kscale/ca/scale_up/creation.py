"""Making a group that does not exist yet (node auto-provisioning): an action and its outcome."""

from __future__ import annotations

import msgspec

from kscale.ca.groups import Group

__all__ = ["CreateGroup", "CreatedNodeGroups"]


class CreateGroup(msgspec.Struct, kw_only=True, frozen=True):
    """An action: make the group; ``asynchronous``: begin to, and return groups that are still being made.

    Its outcome is :class:`CreatedNodeGroups`, an :class:`kscale.ca.AutoscalerError`, or None: made as it was described.
    """

    group: str
    asynchronous: bool = False


class CreatedNodeGroups(msgspec.Struct, kw_only=True, frozen=True):
    """The group that was made, and others made along with it; their templates are what the provider now says."""

    main: Group
    extra: list[Group] = []
