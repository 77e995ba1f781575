"""The reading kernels against the slow reference, and the arguments they refuse."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale._native import _names, _projection
from kscale.errors import NativeError
from reference.projection import copied, events, grouped, is_of_kind, parsed, reduced, rows_of, selected

KEYS = ("a", "b", "kind", "type", "apiVersion")
SCALARS = st.sampled_from([
    "null", "true", "0", "-1.5e3", '""', '"x"', '"Pod"', '"v1"', '"é"', '"q\\n"', '"]},{["', '"a-1.B"',
    f'"{"long" * 20}"',
])  # fmt: skip


def texts(depth: int) -> st.SearchStrategy[str]:
    """JSON texts, keys twice and escaped ones included."""
    if not depth:
        return SCALARS
    key = st.sampled_from((*KEYS, "other", "\\u0061"))
    inner = texts(depth - 1)
    gap = st.sampled_from(("", " ", "\n"))

    def joined(parts: list[str], of: str, space: str) -> str:
        return f"{of[0]}{space}{f'{space},'.join(parts)}{space}{of[1]}"

    members = st.lists(st.tuples(key, gap, inner).map(lambda m: f'"{m[0]}"{m[1]}:{m[1]}{m[2]}'), max_size=4)
    return st.one_of(
        SCALARS,
        st.tuples(members, st.just("{}"), gap).map(lambda of: joined(*of)),
        st.tuples(members, st.just("{}"), gap).map(lambda of: joined(*of)),
        st.tuples(st.lists(inner, max_size=3), st.just("[]"), gap).map(lambda of: joined(*of)),
    )


@st.composite
def rules(draw: st.DrawFn, depth: int = 3, slots: Any = None, facets: Any = None) -> Any:
    slots = itertools.count() if slots is None else slots
    facets = itertools.count() if facets is None else facets
    kinds = ["keep", "equals", "blank", "capture", "mark", "note", "span"]
    if depth:
        kinds += ["object", "object", "object", "array", "switch", "alike"] + (["facet"] if facets is not False else [])
    kind = draw(st.sampled_from(kinds))

    def objects(inside: Any) -> Any:
        keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True))
        need = tuple(draw(st.lists(st.sampled_from(keys), max_size=2)))
        return "object", {key: draw(rules(depth - 1, slots, inside)) for key in keys}, need

    if kind == "equals":
        return kind, draw(SCALARS)
    if kind == "blank":
        return draw(st.sampled_from([(kind, '"', '"', '"NAME"'), (kind, '{"b":["', '"]}', "[1]")]))
    if kind in ("capture", "note", "span"):
        return kind, next(slots) % 8
    if kind == "mark":
        return kind, next(slots) % 8, '"MARK"'
    if kind == "object":
        return objects(facets)
    if kind == "array":
        return kind, draw(rules(depth - 1, slots, facets))
    if kind == "alike":
        return kind, ("array", draw(rules(depth - 1, slots, facets))) if draw(st.booleans()) else objects(facets)
    if kind == "facet":
        number = next(facets)
        return (kind, number, draw(rules(depth - 1, slots, False))) if number < 3 else "keep"
    if kind == "switch":
        return kind, "type", {draw(SCALARS): objects(facets) for _ in range(2)}
    return kind


def notes_in_lists(rule: Any, inside: bool = False) -> bool:
    """Whether a slot or facet is noted several times by one rule: the last one counts, or it is odd."""
    if isinstance(rule, str):
        return False
    if rule[0] in ("span", "facet") and inside:
        return True
    below = {"object": lambda: rule[1].values(), "switch": lambda: rule[2].values(), "array": lambda: [rule[1]],
             "alike": lambda: [rule[1]], "facet": lambda: [rule[2]]}.get(rule[0], list)()  # fmt: skip
    return any(notes_in_lists(each, inside or rule[0] == "array") for each in below)


@given(rules().filter(lambda rule: not notes_in_lists(rule)), st.lists(texts(3), max_size=4))
def test_projection(rule: Any, items: list[str]) -> None:
    text = f'{{"kind":"L","items":[{",".join(items)}],"metadata":{{"a":1}}}}'.encode()
    projector = _projection.Projector(rule, 8, 3)
    scanned = projector.scan(text)
    assert scanned is not None
    begin, size, combined, places, _, kind, metadata = scanned
    at, length = places.part(0, len(items))
    assert (kind, metadata) == ("L", b'{"a":1}')
    assert [text[b : b + n].decode() for b, n in zip(begin.tolist(), size.tolist(), strict=True)] == [
        parsed(each).text for each in items
    ]
    for i, item in enumerate(items):
        expected = reduced(rule, parsed(item))
        assert (combined[i] < 0) == (expected.odd or expected.absent)
        if combined[i] < 0:
            continue
        *facets, rest = projector.combinations()[combined[i]].tolist()
        assert json.loads(projector.text(rest)) == expected.rest
        result = {
            number: json.loads(projector.facet_text(number, each)) for number, each in enumerate(facets) if each >= 0
        }
        assert result == expected.facets
        for slot in range(8):
            noted = None if length[slot, i] < 0 else text[at[slot, i] : at[slot, i] + length[slot, i]].decode()
            expected_note = expected.slots.get(slot)
            assert noted == expected_note or (noted or "").replace(" ", "").endswith(
                (expected_note or "\0").replace(" ", "")
            )


def without_alike(rule: Any) -> Any:
    """A rule that compares no values, but for spans."""
    if isinstance(rule, str):
        return rule
    if rule[0] == "alike":
        return without_alike(rule[1])
    parts = [{k: without_alike(v) for k, v in each.items()} if isinstance(each, dict) else each for each in rule]
    return (*parts[:-1], without_alike(parts[-1])) if rule[0] in ("array", "facet") else tuple(parts)


def with_alike_members(rule: Any) -> Any:
    """The rule of an object with patterns for its members: items may share what stands around these."""

    def wrapped(inner: Any) -> Any:
        return ("alike", inner) if inner[0] in ("object", "array") else inner

    return ("object", {key: wrapped(inner) for key, inner in rule[1].items()}, rule[2])


CHANGED = st.one_of(
    st.sampled_from(('"x"', '""', '"abc"', '"é"', '"q\\n"', "7", "-12.5", "true", "null", '"type"', '"Pod"', "{}")),
    # Long strings, which kernels compare and read many bytes at once, with something special at any place.
    st.builds(
        lambda before, special, after: f'"{"x" * before}{special}{"y" * after}"',
        st.integers(0, 70), st.sampled_from(("", "é", "\\n", "\\\\", '\\"', "\\u0041", "\\x", "\x01", '"', "\x7f")),
        st.integers(0, 70),
    ),
)  # fmt: skip
SCALAR = re.compile(r'"(?:[^"\\]|\\.)*"(?!\s*:)|-?[0-9][0-9.e]*|true|false|null')


@given(
    rules(),
    st.lists(texts(3), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 30), CHANGED), max_size=12),
    st.booleans(),
)
def test_similar_items_are_read_as_others(
    rule: Any, items: list[str], changes: list[tuple[int, str]], framed: bool
) -> None:
    """A projector that has seen values like one before says of it what one says that compares none."""
    if framed and rule[0] == "object":
        wrapped = with_alike_members(rule)
    else:
        wrapped = ("alike", rule) if rule[0] in ("object", "array") else rule
    inputs = [*items, *items]
    for i, (at, scalar) in enumerate(changes):
        places = list(SCALAR.finditer(before := inputs[i % len(items)]))
        if places:
            place = places[at % len(places)]
            inputs.append(before[: place.start()] + scalar + before[place.end() :])
    known = _projection.Projector(wrapped, 8, 3)
    for _ in range(2):
        for item in inputs:
            text = f'{{"items":[{item}]}}'.encode()
            answers = []
            for projector in (known, _projection.Projector(without_alike(rule), 8, 3)):
                scanned = projector.scan(text)
                if scanned is None:
                    answers.append(None)
                    continue
                begin, size, combined = (column.tolist() for column in scanned[:3])
                at, length = (column.tolist() for column in scanned[3].part(0, 1))
                *facets, rest = projector.combinations()[combined[0]].tolist() if combined[0] >= 0 else [-1] * 4
                noted = [(a, n) if n >= 0 else None for (a,), (n,) in zip(at, length, strict=True)]
                facet_texts = [projector.facet_text(i, each) if each >= 0 else None for i, each in enumerate(facets)]
                answers.append(
                    (begin, size, combined[0] < 0, noted, facet_texts, projector.text(rest) if rest >= 0 else None)
                )
            assert answers[0] == answers[1]


def test_a_facet_is_that_of_the_value_in_every_branch() -> None:
    """A value may equal the first pattern in a facet and then follow a branch whose own facet differs."""
    rule = ("object", {"m": ("alike", ("object", {"f": ("facet", 0, "keep"), "k": "keep"}, ()))}, ())
    projector = _projection.Projector(rule, 1, 1)
    pairs = [("a", "x"), ("b", "y"), ("a", "y"), ("b", "x"), ("b", "y"), ("a", "x"), ("c", "x"), ("c", "y"), ("c", "x")]

    def check(pairs: list[tuple[str, str]]) -> None:
        items = ",".join(f'{{"m":{{"f":{{"n":"{facet}"}},"k":"{value}"}}}}' for facet, value in pairs)
        scanned = projector.scan(f'{{"items":[{items}]}}'.encode())
        assert scanned is not None
        rows = projector.combinations()[scanned[2]].tolist()
        texts = [(projector.facet_text(0, facet).decode(), projector.text(rest).decode()) for facet, rest in rows]
        assert texts == [(f'{{"n":"{facet}"}}', f'{{"m":{{"k":"{value}"}}}}') for facet, value in pairs]

    check(pairs)
    check(pairs)
    projector.retain(np.arange(projector.combination_count, dtype=np.uint8) % 2)
    check([("d", "x"), *pairs, ("d", "x"), ("d", "y")])  # texts that were forgotten get other numbers
    projector.retain(np.zeros(projector.combination_count, dtype=np.uint8))
    check([("e", "y"), *reversed(pairs)])


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.sampled_from("xyz"), st.sampled_from("xyz"), st.sampled_from("-xy"), st.booleans()
        ),
        max_size=20,
    ),
    st.integers(1, 3),
    st.sampled_from(("", f'"start":"{"-" * 40}",', '"start":"pods-1",')),
    st.integers(0, 1),
)
def test_items_with_the_same_frame(
    pods: list[tuple[int, str, str, str, bool]], threads: int, start: str, slot: int
) -> None:
    """Items that differ in values with patterns alone, in lists and in lines, also after texts were forgotten.

    Items whose first value begins alike (``start``) are guessed to follow the same patterns. ``slot``: that of the
    facet of their second value, which may be that of the first.
    """
    metadata = ("object", {"n": ("capture", 0), "f": ("facet", 0, "keep"), "k": "keep"}, ())
    spec = ("object", {"k": "keep", "f": ("facet", slot, "keep")}, ("k",))
    members = {"kind": "keep", "e": ("equals", '"e"'), "m": ("alike", metadata), "s": ("alike", spec)}
    rule = ("object", members, ())
    rule_alone = without_alike(rule)
    frames = (
        '{{"kind":"Pod","apiVersion":"v1","m":{m},"e":"e","other":[1],"s":{s}}}',
        '{{"kind":"Pod","apiVersion":"v1","m":{m},"e":"x","s":{s} }}',
        '{{"m":{m},"s":{s}}}',
    )
    facet_of_spec = {"-": "", "x": ',"f":{"g":"x"}', "y": ',"f":{"g":"y"}'}
    items = [
        frames[frame].format(
            m=f'{{{start}"n":"{facet * 3}","f":{{"g":"{facet}"}},"k":"{value}"}}',
            s=f'{{"{"k" if full else "l"}":"{value}"{facet_of_spec[of_spec]}}}',
        )
        for frame, facet, value, of_spec, full in pods
    ]
    events_of = [
        f'{{"type":"{("ADDED", "DELETED")[full]}","object":{item}}}'
        for item, (*_, full) in zip(items, pods, strict=True)
    ]
    known, alone = (_projection.Projector(each, 1, 2) for each in (rule, rule_alone))
    for round_ in range(3):
        answers = []
        for projector in (known, alone):
            scanned = projector.scan(f'{{"items":[{",".join(items)}]}}'.encode(), threads, 64, (b"v1", b"Pod"))
            lines = projector.lines("\n".join(events_of).encode(), threads, 64, (b"v1", b"Pod")).columns()
            assert scanned is not None
            texts_of = []
            for number in [*scanned[2].tolist(), *lines[3].tolist()]:
                *facets, rest = projector.combinations()[number].tolist() if number >= 0 else (-1, -1, -1)
                facet_texts = [at >= 0 and projector.facet_text(facet, at) for facet, at in enumerate(facets)]
                texts_of.append((number, facets, facet_texts, rest >= 0 and projector.text(rest)))
            places = [column.tolist() for column in scanned[3].part(0, len(items))]
            answers.append((texts_of, places, [column.tolist() for column in lines[4:]]))
        assert answers[0] == answers[1]
        if round_:
            for projector in (known, alone):
                projector.retain(np.arange(projector.combination_count, dtype=np.uint8) % 2)


HEADS = st.tuples(st.sampled_from(("Pod", "Pod", "Node")), st.sampled_from(("v1", "v1", "v2")), texts(1)).map(
    lambda of: f'{{"kind":"{of[0]}","apiVersion":"{of[1]}","a":{of[2]}}}'
)
LINES = st.one_of(
    texts(2).map(lambda text: text.replace("\n", " ")),
    st.tuples(st.sampled_from(("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "X", "\\u0041")), texts(2) | HEADS,
              st.sampled_from(("", ',"other":[1]', ',"type":"ADDED"')))
    .map(lambda of: f'{{"type":"{of[0]}","object":{of[1]}{of[2]}}}'.replace("\n", " ")),
    st.sampled_from(("", " ", "{", '{"type":"ADDED","object":{', '{"type":"ADDED","object":{}}}', "\r")),
)  # fmt: skip
TYPES = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")


@given(st.lists(LINES, max_size=6), st.integers(0, 40), st.integers(1, 4))
def test_watch_lines_are_split_and_projected(lines: list[str], cut: int, threads: int) -> None:
    data = "\n".join(lines).encode()
    data = data[: len(data) - cut]
    rule = ("object", {"kind": "keep", "a": ("capture", 0)}, ())
    projector = _projection.Projector(rule, 1, 0)
    lines_read = projector.lines(data, threads, 1, (b"v1", b"Pod"))
    line, begin, size, combined, _, length = lines_read.columns()
    used, types = lines_read.used, np.frombuffer(lines_read.types, np.int8)
    expected_used, expected = events(data)
    result = [(int(t), data[b : b + n]) for t, b, n in zip(types, begin.tolist(), size.tolist(), strict=True)]
    code = {None: -1, **{name: number for number, name in enumerate(TYPES)}}
    assert (used, result) == (expected_used, [(code.get(type_, 5), text) for type_, text in expected])
    assert sorted(line.tolist()) == line.tolist()
    for i, (type_, text) in enumerate(expected):
        if type_ is None or code.get(type_, 5) > 2:
            assert combined[i] == -1
        else:
            item = parsed(text.decode())
            is_expected_kind = is_of_kind(item, "v1", "Pod")
            noted = type_ == "DELETED" and is_expected_kind is True
            own = reduced(rule, item, complete=not noted)
            odd = is_expected_kind is False or own.odd or own.absent
            assert (min(0, combined[i])) == (-1 if odd else -2 if noted else 0)
            assert (length[0, i] >= 0) <= (0 in own.slots)
    assert projector.lines(data, 1, 1 << 20, (b"v1", b"Pod")).used == used


@st.composite
def members(draw: st.DrawFn) -> tuple[bytes, tuple[int, int] | None, tuple[int, int] | None]:
    """(an object's text, where one of its members is, where a part of another member is)."""
    names = draw(st.lists(st.sampled_from("abcd"), unique=True, max_size=4))
    gap = draw(st.sampled_from(("", " ", "\n\t")))
    text, spans = "{", {}
    for i, name in enumerate(names):
        text += gap if i == 0 else f"{gap},{gap}"
        begin = len(text)
        text += f'"{name}":{gap}"value-{name}"'
        spans[name] = begin, len(text) - begin
    text += f"{gap}}}"
    cut = draw(st.none() | st.sampled_from(names)) if names else None
    mark = draw(st.none() | st.sampled_from([each for each in names if each != cut])) if set(names) - {cut} else None
    at = None if mark is None else (spans[mark][0] + spans[mark][1] - 8, 7)
    return text.encode(), None if cut is None else spans[cut], at


@given(st.lists(st.tuples(members(), st.booleans()), max_size=6), st.integers(0, 3))
def test_kept_texts_are_copied(given_texts: list[Any], gap: int) -> None:
    data, columns, keep = b"#" * gap, [], []
    for (text, cut, mark), rest in given_texts:
        at = len(data)
        columns.append((at, len(text), *((at + cut[0], cut[1]) if cut else (0, -1)),
                        *((at + mark[0], mark[1]) if mark else (0, -1))))  # fmt: skip
        keep.append(rest)
        data += text + b"#" * gap
    table = np.array(columns, dtype=np.int64).reshape(-1, 6).T.copy()
    block = bytearray()

    def room(size: int) -> bytearray:
        block.extend(bytes(size))
        return block

    used, (at, size, mark_at) = _projection.copy_texts(data, table, np.array(keep, dtype=np.uint8), room)
    assert used <= len(block)
    for i, ((text, cut, mark), rest) in enumerate(given_texts):
        expected = copied(text, cut) if rest else b""
        assert bytes(block[at[i] : at[i] + size[i]]) == expected
        if mark:
            marked = text[mark[0] : mark[0] + mark[1]]
            assert bytes(block[mark_at[i] : mark_at[i] + len(marked)]) == marked
        if rest:
            assert json.loads(expected) == {
                key: value
                for key, value in json.loads(text).items()
                if not cut or f'"{key}"'.encode() not in text[cut[0] : cut[0] + cut[1]]
            }


@pytest.mark.parametrize(
    "columns",
    [
        ([0], [9], [0], [-1], [0], [-1], [1]),
        ([0], [-1], [0], [-1], [0], [-1], [1]),
        ([0], [2], [2], [2], [0], [-1], [1]),
        ([2], [2], [0], [-1], [0], [1], [1]),
        ([0], [2], [0], [-1], [0], [-1], [1, 1]),
        ([0], [2], [0], [-1], [1]),
        ([0], [2], [0], [-1], [9], [1], [0]),
    ],
)
def test_refused_copies(columns: tuple[list[int], ...]) -> None:
    *spans, keep = columns
    with pytest.raises(NativeError):
        _projection.copy_texts(b"abcd", np.array(spans, np.int64), np.array(keep, np.uint8), bytearray)


@pytest.mark.parametrize(
    "rule",
    [("mark", 1, '""'), ("span", 1), ("switch", "t", {}), ("switch", "t", {'"x"': "keep"}), ("mark", -1, "")],
)
def test_refused_rules(rule: Any) -> None:
    with pytest.raises(NativeError):
        _projection.Projector(("object", {"a": rule}, ()), 1, 1)


WORDS = st.text("ab\xe9", max_size=3)


@given(st.lists(WORDS, max_size=150), st.lists(WORDS, max_size=150), st.booleans())
def test_rows_by_name(table: list[str], names: list[str], in_order: bool) -> None:
    names = table + names if in_order else names
    assert _names.NameTable(table).rows(names).tolist() == rows_of(table, names)


@given(
    st.lists(st.integers(-1, 4), max_size=30),
    st.lists(st.lists(st.integers(0, 4), max_size=4, unique=True), max_size=4),
)
def test_rows_by_number(numbers: list[int], chosen: list[list[int]]) -> None:
    starts, rows = _names.group_rows(np.array(numbers, dtype=np.int32), 5)
    expected = grouped(numbers, 5)
    assert [rows[starts[i] : starts[i + 1]].tolist() for i in range(5)] == expected
    begin = np.append(0, np.cumsum([len(each) for each in chosen])).astype(np.int64)
    ends, result = _names.select_rows(
        starts, rows, begin, np.array([group for each in chosen for group in each], dtype=np.int64)
    )
    assert [result[ends[i] : ends[i + 1]].tolist() for i in range(len(chosen))] == [
        selected(expected, each) for each in chosen
    ]


def test_refused_groups() -> None:
    starts, rows = _names.group_rows(np.array([0, 1], dtype=np.int32), 2)
    with pytest.raises(NativeError):
        _names.group_rows(np.array([2], dtype=np.int32), 2)
    with pytest.raises(NativeError):
        _names.group_rows(np.array([], dtype=np.int32), -1)
    for begin, groups in (([0, 2], [0]), ([1, 0], [0]), ([0, 1], [2]), ([0, 1], [-1]), ([], [])):
        with pytest.raises(NativeError):
            _names.select_rows(starts, rows, np.array(begin, dtype=np.int64), np.array(groups, dtype=np.int64))
    with pytest.raises(NativeError):
        _names.select_rows(np.array([0, 5]), rows, np.array([0, 1]), np.array([0]))


@pytest.mark.parametrize("member", ["kind", "apiVersion"])
def test_a_list_whose_kind_or_version_is_not_utf8_is_none(member: str) -> None:
    projector = _projection.Projector(("object", {"a": "keep"}, ()), 1, 0)
    text = b'{"%s":"?","items":[{"a":1}]}' % member.encode()
    assert projector.scan(text) is not None
    assert projector.scan(text.replace(b"?", b"v\xff")) is None
    assert projector.scan(text.replace(b"?", "ü".encode())) is not None


def test_released_text_gets_a_new_number() -> None:
    projector = _projection.Projector(("object", {"a": "keep"}, ()), 1, 0)
    for _ in range(2):  # the second time it is the last one that was asked for before
        scanned = projector.scan(b'{"items":[{"a":1},{"a":1}]}')
        assert scanned is not None
        assert projector.text(projector.combinations()[scanned[2][1]][-1]) == b'{"a":1}'
        assert not any(there.any() for there in projector.retain(np.zeros(projector.combination_count, dtype=np.uint8)))
