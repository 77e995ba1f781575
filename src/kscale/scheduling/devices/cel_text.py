"""CEL that cel-python does not read, as CEL that it does: ``cel.bind``, optional values, macros of two variables,
``map`` with a condition, last commas, functions of namespaces.

``cel.bind(v, e, body)`` becomes ``[e].map(v, body)[0]``; ``a.?f`` and ``a[?k]`` become ``a.optional__item(k)``,
``a.orValue(d)`` becomes a choice between the value of ``a`` and ``d``, and so on; ``[a, ?o]`` becomes a function of a
list of optional values; ``m.all(k, v, p)`` becomes the macro of one variable over the pairs of ``m``, with ``k`` and
``v`` bound to their parts; ``map(v, p, e)`` becomes ``filter(v, p).map(v, e)``; ``[a, ]`` becomes ``[a]``;
``sets.contains(a, b)`` becomes ``sets__contains(a, b)``.
"""

from __future__ import annotations

import re

__all__ = ["plain", "unclosed", "where"]

_TRIPLES = "|".join(rf"{q}{{3}}(?:[^{q}\\]|\\[\s\S]|{q}{{1,2}}(?!{q}))*{q}{{3}}" for q in "\"'")
_SINGLES = "|".join(rf"{q}(?!{q}{q})(?:[^{q}\\\n]|\\.)*{q}" for q in "\"'")
_LITERAL = re.compile(rf"[rRbB]{{0,2}}(?:{_TRIPLES}|{_SINGLES})")
_PASSED = re.compile(rf"{_LITERAL.pattern}|//[^\n]*")
_QUOTE = re.compile("[\"']")
_NAMESPACED = re.compile(r"(?<![\w.])(sets|optional|strings|ip)\s*\.\s*(\w+)\s*(?=\()")
_BIND = re.compile(r"\bcel\s*\.\s*bind\s*\(")
_FIELD = re.compile(r"\.\s*\?\s*(\w+)")
_ITEM = re.compile(r"(?<=[\w\])}\0])(?<!\bin)\s*\[\s*\?")
_INDEXED = re.compile(r"[\w\])}\0](?<!\bin)\s*\Z")
_LAST_COMMA = re.compile(r",(?=(?:\s|//[^\n]*\n)*[\]}])")
_MAP = re.compile(r"\.\s*map\s*\(")
_CHOICE = re.compile(r"\.\s*(orValue|or|optMap|optFlatMap)\s*\(")
_CHOICES = {
    "orValue": "([{0}].map({o}, {o}.hasValue() ? {o}.value() : ({1}))[0])",
    "or": "([{0}].map({o}, {o}.hasValue() ? {o} : ({1}))[0])",
    "optMap": "([{0}].map({o}, {o}.hasValue() ? optional__of([{o}.value()].map({1}, {2})[0]) : optional__none())[0])",
    "optFlatMap": "([{0}].map({o}, {o}.hasValue() ? [{o}.value()].map({1}, {2})[0] : optional__none())[0])",
}
_OPTIONAL = re.compile(r"[\[{,]\s*\?")
_PAIRS = re.compile(r"\.\s*(all|exists|existsOne|exists_one|transformList|transformMap|transformMapEntry)\s*\(")
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
_OPEN, _CLOSE = "([{", ")]}"


def plain(expression: str) -> str:
    """The expression without what is listed above; nothing else of it changes."""
    if "\0" in _LITERAL.sub("", expression):
        return expression  # no CEL: below, NUL marks the place of a literal
    literals: list[str] = []

    def keep(match: re.Match[str] | str) -> str:
        literals.append(match if isinstance(match, str) else match[0])
        return f"\0{len(literals) - 1}\0"

    text = _without_last_commas(_NAMESPACED.sub(r"\1__\2", _LITERAL.sub(keep, expression)))
    while (found := _BIND.search(text)) is not None:
        end = _closing(text, found.end())
        parts = _arguments(text[found.end() : end])
        if end < 0 or len(parts) != 3:
            break
        name, value, body = parts
        text = f"{text[: found.start()]}([{value}].map({name.strip()}, {body})[0]){text[end + 1 :]}"
    text = _FIELD.sub(lambda match: f".optional__item({keep(repr(match[1]))})", text)
    while (found := _ITEM.search(text)) is not None:
        end = _closing(text, found.end())
        if end < 0:
            break
        text = f"{text[: found.start()]}.optional__item({text[found.end() : end]}){text[end + 1 :]}"
    made = 0
    while (found := _CHOICE.search(text)) is not None:
        start, end = _operand(text, found.start()), _closing(text, found.end())
        parts = [text[start : found.start()], *(part.strip() for part in _arguments(text[found.end() : end]))]
        if end < 0 or start == found.start() or len(parts) != (3 if found[1].startswith("opt") else 2):
            break
        made += 1
        text = text[:start] + _CHOICES[found[1]].format(*parts, o=f"o__{made}") + text[end + 1 :]
    text = _over_pairs(_with_filters(_with_optional_elements(text)))
    return re.sub(r"\0(\d+)\0", lambda match: literals[int(match[1])], text)


def _without_last_commas(text: str) -> str:
    """Literals of lists and maps may end with a comma; what stands in brackets behind a value may not."""

    def last(match: re.Match[str]) -> str:
        start = _opening(text, match.start())
        return "," if start < 0 or (text[start] == "[" and _INDEXED.search(text[:start])) else ""

    return _LAST_COMMA.sub(last, text)


def _with_filters(text: str) -> str:
    """``map(v, p, e)`` as ``filter(v, p).map(v, e)``."""
    at = 0
    while (found := _MAP.search(text, at)) is not None:
        at, end = found.end(), _closing(text, found.end())
        parts = [part.strip() for part in _arguments(text[at:end])]
        if end >= 0 and len(parts) == 3 and _VARIABLE.fullmatch(parts[0]):
            name, condition, body = parts
            text = f"{text[: found.start()]}.filter({name}, {condition}).map({name}, {body}){text[end + 1 :]}"
    return text


def _with_optional_elements(text: str) -> str:
    """``[a, ?o]`` and ``{k: a, ?l: o}`` as functions of optional values: what is there for certain is made one."""
    while (found := _OPTIONAL.search(text)) is not None:
        start = found.start() if text[found.start()] in _OPEN else _opening(text, found.start())
        end = -1 if start < 0 else _closing(text, start + 1)
        if end < 0 or text[start] == "(":
            break
        elements = [_element(part.strip(), is_map=text[start] == "{") for part in _arguments(text[start + 1 : end])]
        name = "list" if text[start] == "[" else "map"
        text = f"{text[:start]}literal__{name}([{', '.join(elements)}]){text[end + 1 :]}"
    return text


def _element(text: str, *, is_map: bool) -> str:
    is_optional, text = text.startswith("?"), text.removeprefix("?")
    key, value = _entry(text) if is_map else ("", text)
    value = value if is_optional else f"optional__of({value})"
    return f"[{key}, {value}]" if is_map else value


def _entry(text: str) -> tuple[str, str]:
    """Key and value of an entry of a map: the colon of a choice is none of an entry."""
    depth = choices = 0
    for i, letter in enumerate(text):
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if depth == 0 and letter == ":" and not choices:
            return text[:i], text[i + 1 :]
        choices += depth == 0 and (letter == "?") - (letter == ":")
    return text, ""


def _over_pairs(text: str) -> str:
    """Macros of two variables as those of one."""
    at = made = 0
    while (found := _PAIRS.search(text, at)) is not None:
        start, end, name = _operand(text, found.start()), _closing(text, found.end()), found[1]
        parts = [part.strip() for part in _arguments(text[found.end() : end])]
        makes = name.startswith("transform")
        if end >= 0 and name == "existsOne" and len(parts) == 2:
            text = f"{text[: found.start()]}.exists_one({text[found.end() :]}"
        two = end >= 0 and len(parts) in ((3, 4) if makes else (3,)) and parts[0] != parts[1]
        if not two or not all(map(_VARIABLE.fullmatch, parts[:2])):
            at = found.start() + 1
            continue
        made += 1
        text = text[:start] + _macro(name, text[start : found.start()], f"p__{made}", *parts) + text[end + 1 :]
        at = start
    return text


def _macro(name: str, of: str, pair: str, key: str, value: str, *bodies: str) -> str:
    """A macro over the pairs of a list (its places and elements) or of a map."""
    *conditions, body = [f"[{pair}[0]].map({key}, [{pair}[1]].map({value}, {each})[0])[0]" for each in bodies]
    pairs = f"pairs__of({of})" + "".join(f".filter({pair}, {each})" for each in conditions)
    if name == "transformList":
        return f"{pairs}.map({pair}, {body})"
    if name == "transformMap":
        return f"pairs__map({pairs}.map({pair}, [{pair}[0], {body}]))"
    if name == "transformMapEntry":
        return f"pairs__merged({pairs}.map({pair}, {body}))"
    return f"{pairs}.{'exists_one' if name == 'existsOne' else name}({pair}, {body})"


def where(expression: str, name: str, *, called: bool) -> tuple[int, int]:
    """(line, column) of a name, or of the bracket behind it if it is ``called``, from 1 and 0: where upstream says that
    it does not know it."""
    blank = _LITERAL.sub(lambda match: " " * len(match[0]), expression)
    found = re.search(rf"(?<!\w){re.escape(name)}(?!\w)" + (r"\s*(?=\()" if called else ""), blank)
    at = 0 if found is None else found.end() if called else found.start()
    return _place(expression, at)


def unclosed(expression: str) -> tuple[int, int] | None:
    """(line, column) of a quote that begins a literal and has no end, from 1 and 0.

    No parser needs to see it, and that of cel-python needs time without end to look for one behind many backslashes.
    """
    found = _QUOTE.search(_PASSED.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), expression))
    return None if found is None else _place(expression, found.start())


def _place(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1)


def _closing(text: str, start: int) -> int:
    """Where the bracket that is open at ``start`` closes; -1 = nowhere."""
    depth = 1
    for i in range(start, len(text)):
        depth += (text[i] in _OPEN) - (text[i] in _CLOSE)
        if depth == 0:
            return i
    return -1


def _opening(text: str, end: int) -> int:
    """Where the bracket that is open at ``end`` opens; -1 = nowhere."""
    depth = 1
    for i in range(end - 1, -1, -1):
        depth += (text[i] in _CLOSE) - (text[i] in _OPEN)
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
