"""Holds a log of kscale's against logs of upstream's runs of the same case.

What was the same in all of upstream's runs must be the same here. What differed between them is compared as a set, with
all that has the same name but for its number (``web-1``, ``web-2``): each element, without these numbers, must be there
at least as often as in the run of upstream's that had it least, and at most as often as in the run that had it most. Of
how many pods ``NotTriggerScaleUp`` tells the same is no matter where upstream's own runs differ in that: each loop may
tell it of another.

Moments of the run do not count (those before 2026 are a case's own, and do), nor ports, certificates, and an order that
is a Go map's.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from e2e.duel.case import Case
from e2e.duel.facts import Change, Log

__all__ = ["Comparison", "compared", "facets"]

_MOMENT = re.compile(
    r"20(2[6-9]|[3-9]\d)-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( ?Z| ?[+-]\d\d:?\d\d)?( UTC)?( m=[+-][\d.]+)?"
)
_SECONDS = re.compile(r"\b1[789]\d{8}\b")
_PORT = re.compile(r"(?<=localhost:)\d+|(?<=127\.0\.0\.1:)\d+")
_BUNDLE = re.compile(r'(?<="caBundle": ")[^"]+')
_NUMBERED = re.compile(r"\b([a-z][a-z-]*)-\d+\b")
_INDEX = re.compile(r'("apps\.kubernetes\.io/pod-index": )"\d+"')
_UPDATES = re.compile(r'(?<="vpaUpdates": ")[^"]+')
_CONTAINER = re.compile(r"(container \d+: )([^;]*)")
_WAITING = re.compile(r"^Pod/[^:]*: Normal NotTriggerScaleUp: ")
"""An event, as :func:`facets` tells it, that each loop tells of the pods that it finds no place for."""
_ABANDONED = 504
"""What the API server notes of a request whose client has gone."""
_STATUS = "configmaps/kube-system/cluster-autoscaler-status"
"""Written by every loop; what it says at rest is compared line by line."""

Facet = dict[str, list[str]]


class Comparison(msgspec.Struct, kw_only=True):
    """What came of it, a line each: ``same`` in all runs, ``varied`` in upstream's but within what they had,
    ``explained`` (line and why), and ``differences``."""

    same: list[str] = []
    varied: list[str] = []
    explained: list[tuple[str, str]] = []
    differences: list[str] = []

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"same {len(self.same)}, varied {len(self.varied)}, explained {len(self.explained)}"
        yield from (f"  varied: {each}" for each in self.varied)
        yield from (f"  explained: {each}\n    because {why}" for each, why in self.explained)
        yield from (f"  DIFFERENCE: {each}" for each in self.differences)


def facets(log: Log) -> dict[str, Facet]:
    """A log as what is compared: facet -> key -> elements in their order."""
    calls: Facet = {}
    for call in log.calls:
        calls.setdefault(call.group, []).append(_text(f"{call.what} {call.refused}".strip()))
    changes = {
        name: lasting
        for name, created in log.changes.items()
        if name != _STATUS and (lasting := [text for each in created if (text := _change(each))])
    }
    events: Facet = {}
    for event in log.events:
        message = _text(f"{event.type} {event.reason}: {event.message}")
        events.setdefault(event.about, []).append(message)
    counts = {
        _text(f"{event.about} {event.type} {event.reason}: {event.message}"): [str(event.count)] for event in log.events
    }
    return {
        "cloud": calls,
        "changes": changes,
        "events": {about: sorted(message) for about, message in events.items()},
        "times told": counts,
        "objects": {name: [_text(obj)] for name, obj in log.objects.items()},
        "refusals": {"of the case": log.refusals} if log.refusals else {},
        "status": {"document": [_text(line) for line in log.status.splitlines()]},
    }


def compared(case: Case, ours: Log, upstream: Sequence[Log]) -> Comparison:
    """The judgement."""
    result = Comparison()
    mine, theirs = facets(ours), [facets(log) for log in upstream]
    loose: list[str] = []
    for name, facet in mine.items():
        varied = _facet(name, facet, [each[name] for each in theirs], loose, case, result)
        loose = [f"{about} " for about in varied] if name == "events" else []  # how often goes with what
    return result


def _facet(
    name: str, mine: Facet, theirs: Sequence[Facet], loose: Sequence[str], case: Case, result: Comparison
) -> list[str]:
    """Compares one facet; gives the keys of what varies. Keys that begin as one of ``loose`` do."""
    keys = sorted({*mine, *(key for each in theirs for key in each)})
    families = {
        _numbered(key)
        for key in keys
        if key.startswith(tuple(loose)) or any(each.get(key) != theirs[0].get(key) for each in theirs)
    }
    varied = [key for key in keys if _numbered(key) in families]
    for key in keys:
        if key in varied:
            continue
        had = theirs[0].get(key)
        if mine.get(key) == had:
            result.same.append(f"{name} of {key}")
        else:
            _differ(f"{name} of {key}", mine.get(key), had, case, result)
    if not varied:
        return varied
    if name == "times told":  # how often depends on how many loops there were
        result.varied.append(f"{name}: {len(varied)}")
        return varied
    ours, others = _counted(mine, varied), [_counted(each, varied) for each in theirs]
    at_fault = len(result.differences)
    for element in sorted({*ours, *(element for each in others for element in each)}):
        least, most = min(each[element] for each in others), max(each[element] for each in others)
        if name == "events" and least < most and ours[element] >= min(least, 1) and _WAITING.search(element):
            continue  # of how many pods the same is told depends on how many loops there were
        if not least <= ours[element] <= most:
            range_ = f"{least}" if least == most else f"{least} to {most}"
            line = f"{name}: {ours[element]} times here, {range_} times with upstream: {element}"
            _judge(line, case, result)
    if len(result.differences) == at_fault:
        result.varied.append(f"{name} of {', '.join(varied)}")
    return varied


def _counted(facet: Facet, keys: Sequence[str]) -> Counter[str]:
    return Counter(_numbered(f"{key}: {element}") for key in keys for element in facet.get(key) or ())


def _differ(what: str, mine: Sequence[str] | None, had: Sequence[str] | None, case: Case, result: Comparison) -> None:
    if mine is not None and had is not None:
        removed, come = Counter(had) - Counter(mine), Counter(mine) - Counter(had)
        if not removed and not come:
            _judge(f"{what}: another order: {list(mine)}, with upstream {list(had)}", case, result)
            return
        for sign, counts in (("only upstream", removed), ("only here", come)):
            for element in counts.elements():
                _judge(f"{what}: {sign}: {element}", case, result)
    elif mine is None:
        _judge(f"{what}: only upstream: {list(had or ())}", case, result)
    else:
        _judge(f"{what}: only here: {list(mine)}", case, result)


def _judge(line: str, case: Case, result: Comparison) -> None:
    why = case.explanation(line)
    if why:
        result.explained.append((line, why))
    else:
        result.differences.append(line)


def _change(change: Change) -> str:
    """What lasts of a change; nothing, if only moments changed, or if its writer was ended meanwhile."""
    changed = {path: both for path, both in change.changed.items() if _text(both[0]) != _text(both[1])}
    if change.refused == _ABANDONED or (not changed and change.changed):
        return ""
    return _text(msgspec.to_builtins(msgspec.structs.replace(change, changed=changed)))


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    for pattern, instead in ((_MOMENT, "<time>"), (_SECONDS, "<time>"), (_PORT, "<port>"), (_BUNDLE, "<certificate>")):
        text = pattern.sub(instead, text)
    return _UPDATES.sub(lambda match: _sorted(match[0]), text)


def _sorted(updates: str) -> str:
    """The updates of each container by their texts: upstream goes through a map."""
    return _CONTAINER.sub(lambda match: match[1] + ", ".join(sorted(match[2].split(", "))), updates)


def _numbered(text: str) -> str:
    return _INDEX.sub(r'\1"#"', _NUMBERED.sub(r"\1-#", text))
