"""CEL that cel-python does not read, as CEL that it does: ``cel.bind``, and optional fields with a default.

``cel.bind(v, e, body)`` becomes ``[e].map(v, body)[0]``; ``a.?f.orValue(d)`` becomes ``(has(a.f) ? a.f : (d))`` and
``a.?f.hasValue()`` becomes ``has(a.f)``. Other uses of optionals stay as they are, and do not compile.
"""

from __future__ import annotations

import re

__all__ = ["plain"]

_LITERAL = re.compile(r"""[rR]?(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")
_BIND = re.compile(r"\bcel\s*\.\s*bind\s*\(")
_OPTIONAL = re.compile(r"\.\?\s*(\w+)\s*\.\s*(orValue|hasValue)\s*\(")
_OPEN, _CLOSE = "([{", ")]}"


def plain(expression: str) -> str:
    """The expression without what is listed above; nothing else of it changes."""
    if "bind" not in expression and ".?" not in expression:
        return expression
    literals: list[str] = []

    def keep(match: re.Match[str]) -> str:
        literals.append(match[0])
        return f"\0{len(literals) - 1}\0"

    text = _LITERAL.sub(keep, expression)
    while (found := _BIND.search(text)) is not None:
        end = _closing(text, found.end())
        parts = _arguments(text[found.end() : end])
        if end < 0 or len(parts) != 3:
            break
        name, value, body = parts
        text = f"{text[: found.start()]}([{value}].map({name.strip()}, {body})[0]){text[end + 1 :]}"
    while (found := _OPTIONAL.search(text)) is not None:
        start, end = _operand(text, found.start()), _closing(text, found.end())
        if end < 0 or start == found.start():
            break
        field = f"{text[start : found.start()]}.{found[1]}"
        default = text[found.end() : end]
        made = f"has({field})" if found[2] == "hasValue" else f"(has({field}) ? {field} : ({default}))"
        text = text[:start] + made + text[end + 1 :]
    return re.sub(r"\0(\d+)\0", lambda match: literals[int(match[1])], text)


def _closing(text: str, start: int) -> int:
    """Where the bracket that is open at ``start`` closes; -1 = nowhere."""
    depth = 1
    for i in range(start, len(text)):
        depth += (text[i] in _OPEN) - (text[i] in _CLOSE)
        if depth == 0:
            return i
    return -1


def _arguments(text: str) -> list[str]:
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _operand(text: str, end: int) -> int:
    """Where the member expression that ends before ``end`` begins."""
    i = end
    while i > 0:
        letter = text[i - 1]
        if letter in _CLOSE:
            depth = 0
            while i > 0:
                i -= 1
                depth += (text[i] in _CLOSE) - (text[i] in _OPEN)
                if depth == 0:
                    break
        elif letter.isalnum() or letter in "_.\0":
            i -= 1
        else:
            break
    return i
