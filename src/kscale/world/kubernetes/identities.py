"""UIDs of objects that a program has read or made by name, for events about them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from kscale.objects.core import ObjectReference

__all__ = ["KnownIdentities"]

_MOST: Final = 1024


class KnownIdentities:
    """The last that was seen of some objects; of very many the least recent ones are forgotten. Single owner."""

    def __init__(self) -> None:
        self._uids: OrderedDict[tuple[str, str, str], str] = OrderedDict()

    def note(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Remember the UID of an object; empty: it is gone."""
        key = kind, namespace, name
        self._uids.pop(key, None)
        if uid:
            self._uids[key] = uid
            if len(self._uids) > _MOST:
                self._uids.popitem(last=False)

    def uid_of(self, about: ObjectReference) -> str:
        """Return the UID of the object of a reference; empty if it is not known."""
        return self._uids.get((about.kind, about.namespace, about.name), "")
