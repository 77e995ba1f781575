"""Lists that are made when somebody looks at them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

__all__ = ["Deferred"]

_Item = TypeVar("_Item")


class Deferred(Sequence[_Item]):
    """What ``make()`` gives, once it is asked for. Equal to a list of the same items, and pickled as one."""

    __slots__ = ("_items", "_make")

    def __init__(self, make: Callable[[], Iterable[_Item]]) -> None:
        self._make = make
        self._items: list[_Item] | None = None

    def _list(self) -> list[_Item]:
        if self._items is None:
            self._items = list(self._make())
        return self._items

    def __len__(self) -> int:
        return len(self._list())

    def __iter__(self) -> Iterator[_Item]:
        return iter(self._list())

    def __getitem__(self, i: int) -> _Item:  # type: ignore[override]  # by number only
        return self._list()[i]

    def __eq__(self, other: object) -> bool:
        return self._list() == list(other) if isinstance(other, list | Deferred) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        return repr(self._list())

    def __reduce__(self) -> tuple[type[list[_Item]], tuple[list[_Item]]]:
        return list, (self._list(),)
