"""A list that replaces what is known of a kind: in pages, or as the initial events of a watch."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

import msgspec

from kscale.errors import InputError, Problem
from kscale.objects.base import Int64
from kscale.objects.kinds import item_kind
from kscale.snapshot.changes import ChangedKeys, Page, Watched
from kscale.snapshot.exclusive import Busy, exclusive
from kscale.snapshot.watching import Applying, Contents, decoded, watch

__all__ = ["Relist"]


class _ListMetadata(msgspec.Struct, rename={"resource_version": "resourceVersion", "continue_": "continue",
                                            "remaining": "remainingItemCount"}):  # fmt: skip
    resource_version: str = ""
    continue_: str = ""
    remaining: Int64 | None = None


class _List(msgspec.Struct, rename="camel"):
    """A list without items, or what is none."""

    kind: str = ""
    metadata: _ListMetadata | None = None
    items: msgspec.Raw = msgspec.Raw(b"null")
    message: str = ""


_LISTS: Final = msgspec.json.Decoder(_List)
_METADATA: Final = msgspec.json.Decoder(_ListMetadata | None)
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Relist:
    """A context manager, from :meth:`kscale.snapshot.cluster.Cluster.relist`.

    Leaving it removes the objects of the kind that were not seen inside; ``change.removed`` tells them then. Nothing is
    removed when an exception leaves it, nor when the list did not come to its end, which raises InputError. ``change``:
    all that is different since it was entered; ``version``: the resource version of the list, to watch from.
    """

    def __init__(self, kind: str, contents: Contents, busy: Busy) -> None:
        self.kind = kind
        self.version = ""
        self._changes: list[ChangedKeys] = []
        self._contents = contents
        self._busy = busy  # the cluster's
        self._complete = False

    @property
    def change(self) -> ChangedKeys:
        """All that is different since it was entered, up to now."""
        self._changes = [ChangedKeys.joined(self._changes)]
        return self._changes[0]

    @exclusive
    def __enter__(self) -> Self:
        self._contents.begin(self.kind)
        return self

    @exclusive
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        missing = self._contents.end(self.kind)
        if kind is not None:
            return
        if not self._complete:
            raise InputError(f"the list of {self.kind} did not come to its end: nothing was removed")
        self._contents.drop(self.kind, missing)
        self._contents.pods.tidy()
        self._changes.append(ChangedKeys(removed=missing))

    @exclusive
    def pages(self, data: bytes | bytearray | memoryview) -> Page:
        """Apply a page of the list (``data``), as the API server answers it; the last one has no ``continue``.

        Raises InputError for what is no list of this kind.
        """
        view = memoryview(data)
        scanned = self._contents.pods.reader.scan(view, "", "items")
        if scanned is None:
            return self._empty(view)
        self._check(scanned.kind)
        try:
            metadata = _METADATA.decode(scanned.metadata or b"null") or _ListMetadata()
        except _UNREADABLE as error:
            raise InputError(f"a list of {self.kind} with damaged metadata: {error}") from None
        applying = Applying(self._contents, view, scanned.items(), None, self.kind)
        own = item_kind(scanned.kind)

        def slowly(at: int, text: memoryview) -> None:
            found = decoded(text, scanned.api_version if own else "", own)
            if isinstance(found, str) or found.kind != self.kind:
                raise InputError(f"not a {self.kind}")
            applying.put(at, found, text)

        applying.run(slowly, "items[{at}]")
        self._contents.pods.tidy()
        return self._page(metadata, applying.change(self.kind), tuple(applying.problems))

    def _check(self, kind: str) -> None:
        """Refuse what is no list of this kind."""
        own = item_kind(kind)
        if not kind.endswith("List") or own not in ("", self.kind):
            raise InputError(f"not a list of {self.kind} but a {kind or 'text without a kind'}")

    def _empty(self, view: memoryview) -> Page:
        """A page that has no items, or is no page."""
        try:
            found = _LISTS.decode(view)
        except _UNREADABLE as error:
            raise InputError(f"not a list of {self.kind}: {error}") from None
        if found.kind == "Status":
            raise InputError(f"the API server answered with an error, not with a list: {found.message or 'no message'}")
        self._check(found.kind)
        if bytes(found.items) != b"null":
            raise InputError(f"a list of {self.kind} whose items are no list, or that has a key twice")
        return self._page(found.metadata or _ListMetadata(), ChangedKeys(), ())

    def _page(self, metadata: _ListMetadata, change: ChangedKeys, problems: tuple[Problem, ...]) -> Page:
        self.version = metadata.resource_version
        self._changes.append(change)
        self._complete = not metadata.continue_
        return Page(
            version=metadata.resource_version,
            continue_=metadata.continue_,
            remaining=metadata.remaining,
            change=change,
            problems=problems,
        )

    @exclusive
    def watched(self, lines: bytes | bytearray | memoryview) -> Watched:
        """Apply events of a streaming list (``sendInitialEvents=true``): it is complete with the bookmark that says so,
        and more events may follow. As :meth:`kscale.snapshot.cluster.Cluster.watched`."""
        view = memoryview(lines)
        found = watch(self._contents, view, self._contents.pods.reader.lines(view))
        self._contents.pods.tidy()
        self.version = found.version or self.version
        self._changes.append(found.changes.get(self.kind, ChangedKeys()))
        self._complete = self._complete or found.synced
        return found
