"""Multi-document YAML as plain data (extra ``[yaml]``), read as Kubernetes tools read it: times stay texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar, Final

from kscale.errors import InputError, Problem
from kscale.libraries import library

__all__ = ["documents", "only_document"]

_READING: Final = "reading YAML"


@cache
def _loader() -> Any:
    yaml = library("yaml", _READING)
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]  # the base is chosen at run time
        """The C loader without the conversions that the API's JSON does not have."""

        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
            first: [(tag, pattern) for tag, pattern in resolvers if tag not in _NOT_JSON]
            for first, resolvers in base.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            """Where a key comes twice, kubectl refuses the file, and PyYAML would take the last one."""
            seen = set()
            for key, _ in getattr(node, "value", ()):
                if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                    continue
                if (key.tag, key.value) in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value} comes twice", key.start_mark
                    )
                seen.add((key.tag, key.value))
            return super().construct_mapping(node, deep=deep)

    return Loader


_MERGE = "tag:yaml.org,2002:merge"
_TOO_DEEP = "nested too deeply to be read"
_DEEPEST = 500
_PARSERS_OWN = "exceeded maximum nesting depth"
"""What LibYAML says of a depth of 1,000, which it may read ahead to before it tells of the first collection."""
_FAR_TO_THE_RIGHT = re.compile(rb"[ \t?:-]{%d}" % _DEEPEST)
_LEAST_BUDGET = 1_000_000
_PER_BYTE = 10  # values that aliases may make of one byte
_NOT_JSON = frozenset({"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"})


def documents(text: bytes, source: str) -> Iterator[Any | Problem]:
    """Every document that is not empty; a syntax error ends the stream with a :class:`Problem`."""
    loader = _loader()
    yaml = library("yaml", _READING)

    try:
        if _is_too_deep(text):
            yield Problem(_TOO_DEEP, source)
            return
        for document in yaml.load_all(text, Loader=loader):
            if document is None:
                continue
            if b"*" in text and _size(document, {}) > max(_LEAST_BUDGET, _PER_BYTE * len(text)):
                yield Problem("the aliases stand for too many values", source)
                return
            yield document
    except RecursionError:  # an alias that holds itself, too
        yield Problem(_TOO_DEEP, source)
    except yaml.MarkedYAMLError as error:
        if error.problem == _PARSERS_OWN:
            yield Problem(_TOO_DEEP, source)
            return
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        what = error.problem or error.context
        if b"{{" in text:
            what = "it looks like a template: render it first (helm template)"
        yield Problem(f"{place}malformed YAML: {what}", source)
    except (yaml.YAMLError, ValueError) as error:
        yield Problem(f"malformed YAML: {error}", source)


def only_document(text: bytes, source: str) -> Any:
    """The document of a text that has one; None where there is nothing in it. Raises InputError."""
    found = list(documents(text, source))
    for document in found:
        if isinstance(document, Problem):
            raise InputError(document)
    if len(found) > 1:
        raise InputError(Problem(f"one YAML document expected, {len(found)} found", source))
    return found[0] if found else None


def _is_too_deep(text: bytes) -> bool:
    """Whether collections nest deeper than objects of an API do. The C loader builds them by recursion, and there is no
    Python frame that could raise RecursionError before its stack is full: so it is asked event by event first, where
    the text has as many brackets, or a line begins so far to the right."""
    if text.count(b"[") + text.count(b"{") <= _DEEPEST and _FAR_TO_THE_RIGHT.search(text) is None:
        return False
    yaml = library("yaml", _READING)

    depth = 0
    for event in yaml.parse(text, Loader=_loader()):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                return True
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return False


def _size(value: Any, known: dict[int, int]) -> int:
    """How many values there are when every alias is written out; ``known``: of those met, by identity."""
    if not isinstance(value, (dict, list)):
        return 1
    found = known.get(id(value))
    if found is None:
        inner = value.values() if isinstance(value, dict) else value
        found = known[id(value)] = 1 + sum(_size(each, known) for each in inner)
    return found
