"""Scenarios by their product: ``flags.expander=price,least-waste`` times ``groups.spot.price=0.1..0.4:7``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

from kscale.capacity.whatif.grammar import Scenario, scenarios_from
from kscale.errors import InputError

__all__ = ["varied"]

_NUMBERS = frozenset({"min", "max", "target"})
_MOST = 1_000_000


def varied(texts: Iterable[str], scenarios: Iterable[Scenario] = ()) -> list[Scenario]:
    """Every combination of the values, on top of each of ``scenarios`` (none: of the base).

    ``groups.ID.FIELD=...`` (min, max, target, price, instanceType), ``flags.NAME=...``, ``prices.ID=x0.5,...``,
    ``pods.NAMESPACE/KIND/NAME=...`` (a size, or a factor), ``requests.cpu=x0.8,...``. Values are separated by commas;
    ``A..B:N`` are N numbers from A to B. Raises InputError for what is none of it.
    """
    axes = [list(_axis(text)) for text in texts]
    if math.prod(len(axis) for axis in axes) > _MOST:
        raise InputError(f"more than {_MOST:,} combinations")
    starts: list[Scenario | None] = list(scenarios)
    found = []
    for start in starts or [None]:
        for chosen in itertools.product(*axes):
            label = " ".join(name for name, _ in chosen)
            name = " ".join(part for part in (start.name if start is not None else "", label) if part)
            made = scenarios_from([{"name": name, "edits": [edit for _, edit in chosen]}], source="--vary")[0]
            if start is not None:
                made = Scenario(name=name, edits=[*start.edits, *made.edits], question=start.question)
            found.append(made)
    return found


def _axis(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(what is said of a value, its edit)."""
    path, equals, values = text.partition("=")
    kind, dot, rest = path.partition(".")
    if not equals or not dot or not rest or not values:
        raise InputError(f'--vary: "{text}" is not PATH=VALUES, such as flags.expander=price,least-waste')
    seen: set[str] = set()
    for value in _values(values, text):
        if value in seen:
            raise InputError(f'--vary: "{value}" occurs twice in "{text}"')
        seen.add(value)
        yield f"{path}={value}", _edit(kind, rest, value, text)


def _values(text: str, whole: str) -> Iterator[str]:
    for part in text.split(","):
        if ".." not in part:
            yield part
            continue
        ends, _, count = part.partition(":")
        first, _, last = ends.partition("..")
        try:
            low, high, number = float(first), float(last), int(count or "2")
        except ValueError:
            raise InputError(f'--vary: "{part}" in "{whole}" is not A..B:N') from None
        if number < 2:
            raise InputError(f'--vary: "{part}" in "{whole}": at least 2 numbers')
        for i in range(number):
            yield f"{low + (high - low) * i / (number - 1):.10g}"


def _edit(kind: str, rest: str, value: str, text: str) -> dict[str, Any]:
    match kind:
        case "flags":
            return {"flags": {rest: value}}
        case "groups":
            group, dot, field = rest.rpartition(".")
            if not dot or field not in (*_NUMBERS, "price", "instanceType"):
                wrong = f'--vary: "{text}": groups.ID.FIELD with min, max, target, price or instanceType'
                raise InputError(wrong)
            return {"groups": {"set": {group: {field: _number(value, field, text)}}}}
        case "prices":
            return {"prices": {"scale": {rest: value}}}
        case "pods":
            return {"pods": {"scale": {rest: int(value) if value.isdigit() else value}}}
        case "requests" if rest in ("cpu", "memory"):
            return {"requests": {rest: value}}
    raise InputError(f'--vary: "{text}": there are flags, groups, prices, pods, requests.cpu and requests.memory')


def _number(value: str, field: str, text: str) -> Any:
    if field == "instanceType":
        return value
    try:
        return int(value) if field in _NUMBERS else float(value)
    except ValueError:
        raise InputError(f'--vary: "{value}" in "{text}" is no number') from None
