"""The functions that Kubernetes adds to CEL, for cel-python: strings, lists, sets, regular expressions, quantities,
versions and optional values (upstream: ``k8s.io/apiserver/pkg/cel/library``, cel-go's ``ext``)."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, cast

from kscale.objects.quantity import Quantity, QuantityError
from kscale.scheduling.devices import cel_networks
from kscale.scheduling.devices.cel_comparisons import equality

__all__ = ["NOT_HAD", "Version", "functions"]

NOT_HAD: Final = frozenset(
    {
        "format", "url", "isURL", "image", "isImage", "authorizer",
    }
)  # fmt: skip
"""Functions of upstream's that are not here."""

_VERSION = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(?:-((?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)


class Version:
    """A semantic version: a pre-release comes before its release, numbers before words; what was built does not count.
    Raises ValueError."""

    __slots__ = ("key", "text")

    def __init__(self, text: str) -> None:
        match = _VERSION.fullmatch(text)
        if match is None:
            raise ValueError(f"not a semantic version: {text}")
        words = match[4].split(".") if match[4] else []
        parts = tuple((0, int(word), "") if word.isdigit() else (1, 0, word) for word in words)
        self.text = text
        self.key: tuple[Any, ...] = int(match[1]), int(match[2]), int(match[3]), not parts, parts

    @classmethod
    def normal(cls, text: str) -> Version:
        """Of a text that may begin with ``v``, lack parts or have zeros in front. Raises ValueError."""
        parts = text.removeprefix("v").split(".", 2)
        parts = [re.sub(r"^0+(?=[0-9])", "", part) for part in parts]
        if len(parts) < 3 and re.search(r"[+-]", parts[-1]):
            raise ValueError("short version cannot contain PreRelease/Build meta data")
        return cls(".".join([*parts, "0", "0"][: max(3, len(parts))]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __lt__(self, other: Version) -> bool:
        return self.key < other.key

    def __gt__(self, other: Version) -> bool:
        return self.key > other.key


def functions(types: Any) -> dict[str, Callable[..., Any]]:
    """By name; ``types``: cel-python's. A function of a namespace has two underscores for the dot."""
    parts = _numbers, _strings, _pairs, _optionals, cel_networks.functions
    found = {name: function for part in parts for name, function in part(types).items()}
    return found | _lists(types, found)


def _numbers(types: Any) -> dict[str, Callable[..., Any]]:
    boolean, integer = types.BoolType, types.IntType

    def readable(read: Callable[..., Any]) -> Callable[..., Any]:
        def answer(*given: Any) -> Any:
            try:
                read(*given)
            except (ValueError, QuantityError):
                return boolean(False)
            return boolean(True)

        return answer

    def quantity(text: Any) -> Quantity:
        return Quantity(str(text))

    def version(text: Any, normalize: Any = False) -> Version:
        return Version.normal(str(text)) if normalize else Version(str(text))

    def whole(amount: Quantity) -> Any:
        found = amount.as_int64()
        if found is None:
            raise ValueError("cannot convert value to integer")
        return integer(found)

    return {
        "add": lambda a, b: a + (b if isinstance(b, Quantity) else quantity(b)),
        "sub": lambda a, b: a - (b if isinstance(b, Quantity) else quantity(b)),
        "sign": lambda a: integer(a.sign),
        "isInteger": lambda a: boolean(a.as_int64() is not None),
        "asInteger": whole,
        "asApproximateFloat": lambda a: types.DoubleType(a.approximate_float()),
        "major": lambda a: integer(a.key[0]),
        "minor": lambda a: integer(a.key[1]),
        "patch": lambda a: integer(a.key[2]),
        "quantity": quantity,
        "isQuantity": readable(quantity),
        "semver": version,
        "isSemver": readable(version),
        "compareTo": lambda a, b: integer((a > b) - (a < b)),
        "isGreaterThan": lambda a, b: boolean(a > b),
        "isLessThan": lambda a, b: boolean(a < b),
    }


def _strings(types: Any) -> dict[str, Callable[..., Any]]:
    text, many = types.StringType, types.ListType

    def within(value: Any, at: Any) -> int:
        if not 0 <= int(at) <= len(value):
            raise ValueError(f"index out of range: {at}")
        return int(at)

    def substring(value: Any, start: Any, end: Any = None) -> Any:
        stop = len(value) if end is None else int(end)
        if end is not None and int(start) > stop:
            raise ValueError(f"invalid substring range. start: {start}, end: {end}")
        return text(str(value)[within(value, start) : within(value, stop)])

    def split(value: Any, by: Any, most: Any = -1) -> Any:
        if most == 0:
            return many([])
        if by:
            parts = str(value).split(str(by), -1 if most < 0 else int(most) - 1)
        else:
            cut = len(value) if most < 0 else int(most) - 1
            parts = [*str(value)[:cut], *filter(None, [str(value)[cut:]])]
        return many([text(part) for part in parts])

    def last_index(value: Any, part: Any, before: int) -> Any:
        return types.IntType(str(value).rfind(str(part), 0, before + len(part)))

    def found(value: Any, pattern: Any, most: Any = -1) -> Any:
        matches = [text(match[0]) for match in re.finditer(str(pattern), str(value))]
        return many(matches if most < 0 else matches[: int(most)])

    def found_first(value: Any, pattern: Any) -> Any:
        match = re.search(str(pattern), str(value))
        return text(match[0] if match else "")

    return {
        "charAt": lambda a, at: text(str(a)[within(a, at) : int(at) + 1]),
        "lowerAscii": lambda a: text(_ascii(str(a), str.lower)),
        "upperAscii": lambda a: text(_ascii(str(a), str.upper)),
        "trim": lambda a: text(str(a).strip()),
        "replace": lambda a, old, new, n=-1: text(str(a).replace(str(old), str(new), int(n))),
        "split": split,
        "join": lambda a, by="": text(str(by).join(map(str, a))),
        "substring": substring,
        "find": found_first,
        "findAll": found,
        "strings__quote": lambda a: text('"' + str(a).translate(_ESCAPES) + '"'),
        "indexOf": lambda a, part, at=0: types.IntType(str(a).find(str(part), within(a, at))),
        "lastIndexOf": lambda a, part, at=None: last_index(a, part, len(a) if at is None else within(a, at)),
    }


_ESCAPES: Final = str.maketrans(
    {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v", "\\": r"\\", '"': r"\""}
)


def _lists(types: Any, others: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """``others``: functions, some of them of strings by the same name as of lists."""
    boolean = types.BoolType
    equal = equality(types, cast(type, others["optional_type"]))

    def index(name: str, at: int) -> Callable[..., Any]:
        def answer(of: Any, wanted: Any, *rest: Any) -> Any:
            if not isinstance(of, list):
                return others[name](of, wanted, *rest)
            found = [i for i, item in enumerate(of) if equal(item, wanted)]
            return types.IntType(found[at] if found else -1)

        return answer

    def extreme(choose: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
        def chosen(items: Any) -> Any:
            if not items:
                raise ValueError(f"{name} called on empty list")
            return choose(items)

        return chosen

    def total(items: Any) -> Any:
        first = items[0] if items else types.IntType(0)
        for item in items[1:]:
            first = first + item
        return first

    def contains(items: Any, wanted: Any) -> Any:
        return boolean(all(any(equal(item, each) for each in items) for item in wanted))

    return {
        "isSorted": lambda items: boolean(not any(b < a for a, b in pairwise(items))),
        "sum": total,
        "min": extreme(min, "min"),
        "max": extreme(max, "max"),
        "sets__contains": contains,
        "sets__equivalent": lambda a, b: boolean(contains(a, b) and contains(b, a)),
        "sets__intersects": lambda a, b: boolean(any(equal(item, each) for item in a for each in b)),
        "indexOf": index("indexOf", 0),
        "lastIndexOf": index("lastIndexOf", -1),
    }


def _pairs(types: Any) -> dict[str, Callable[..., Any]]:
    """What macros of two variables are made of; see :mod:`~kscale.scheduling.devices.cel_text`."""
    many, mapping = types.ListType, types.MapType

    def pairs(of: Any) -> Any:
        if isinstance(of, list):
            return many([many([types.IntType(i), item]) for i, item in enumerate(of)])
        if not isinstance(of, dict):
            raise TypeError("no such overload")
        return many([many([key, value]) for key, value in of.items()])

    def merged(maps: Any) -> Any:
        out = mapping()
        for each in maps:
            for key, value in each.items():
                if key in out:
                    raise ValueError(f"insert failed: key '{key}' already exists")
                out[key] = value
        return out

    return {
        "pairs__of": pairs,
        "pairs__map": lambda entries: mapping(dict(entries)),
        "pairs__merged": merged,
    }


def _optionals(types: Any) -> dict[str, Callable[..., Any]]:
    map_type: Any = types.MapType

    class Optional(map_type):  # type: ignore[misc]  # cel-python is not typed
        """A value that may be there. Fields and items of one that is are optional, too: to cel-python it is a map."""

        def __init__(self, *value: Any) -> None:
            super().__init__()
            self.there = bool(value)
            self.value = value[0] if value else None

        def __getitem__(self, key: Any) -> Any:
            return item(self.value, key) if self.there else self

    def item(of: Any, key: Any) -> Any:
        """``of.?key`` and ``of[?key]``."""
        if isinstance(of, Optional):
            return of[key]
        if isinstance(of, list):
            at = int(key)
            return Optional(of[at]) if 0 <= at < len(of) else Optional()
        if not isinstance(of, dict):
            raise TypeError("no such overload")
        try:
            return Optional(of[key])
        except KeyError:
            return Optional()

    def value(of: Any) -> Any:
        if not of.there:
            raise ValueError("optional.none() dereference")
        return of.value

    def there(of: Any) -> bool:
        if not isinstance(of, Optional):
            raise TypeError("no such overload")
        return of.there

    return {
        "literal__list": lambda items: types.ListType([each.value for each in items if there(each)]),
        "literal__map": lambda entries: map_type({key: each.value for key, each in entries if there(each)}),
        "optional_type": Optional,
        "optional__of": Optional,
        "optional__none": Optional,
        "optional__ofNonZeroValue": lambda given: Optional(given) if given else Optional(),
        "optional__item": item,
        "hasValue": lambda of: types.BoolType(of.there),
        "value": value,
    }


def _ascii(value: str, change: Callable[[str], str]) -> str:
    return "".join(change(letter) if letter.isascii() else letter for letter in value)
