"""Label selectors, node selectors and their texts (spec 4.2, 4.3)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kscale.objects.api.core import NodeSelector
from kscale.objects.api.meta import LabelSelector
from kscale.objects.decode import from_dict
from kscale.objects.node_selectors import compile_node_selector
from kscale.objects.selectors import (
    SelectorError,
    compile_selector,
    from_label_map,
    parse_selector,
    requirement,
)

VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


REQUIREMENT = "unable to parse requirement"
INTEGER = "for 'Gt', 'Lt' operators, the value must be an integer"
LABEL_KEY = (
    "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' "
    "(e.g. 'example.com/MyName')"
)


def selector(*expressions: tuple[str, str, list[str]], labels: dict[str, str] | None = None) -> LabelSelector:
    items = [{"key": key, "operator": operator, "values": values} for key, operator, values in expressions]
    return from_dict({"matchLabels": labels, "matchExpressions": items}, LabelSelector)


def test_absent_and_empty() -> None:
    assert not compile_selector(None).matches({})
    assert not compile_selector(None).empty
    assert compile_selector(LabelSelector()).matches(None)
    assert compile_selector(LabelSelector()).empty
    assert from_label_map(None).matches({"a": "b"})


@pytest.mark.parametrize(
    ("operator", "values", "labels", "want"),
    [("In", ["a", "b"], {"k": "a"}, True), ("In", ["a"], {"k": "c"}, False), ("In", ["a"], {}, False),
     ("In", [""], {"k": ""}, True), ("In", [""], {}, False), ("NotIn", ["a"], {"k": "a"}, False),
     ("NotIn", ["a"], {"k": "b"}, True), ("NotIn", ["a"], None, True), ("Exists", [], {"k": ""}, True),
     ("Exists", [], {}, False), ("DoesNotExist", [], {}, True), ("DoesNotExist", [], {"k": ""}, False)],
)  # fmt: skip
def test_expressions(operator: str, values: list[str], labels: dict[str, str] | None, want: bool) -> None:
    assert compile_selector(selector(("k", operator, values))).matches(labels) is want


def test_all_parts_must_hold() -> None:
    both = compile_selector(selector(("k", "Exists", []), labels={"a": "b"}))
    assert both.matches({"k": "", "a": "b"})
    assert not both.matches({"k": ""})
    assert str(both) == "a=b,k"


@pytest.mark.parametrize(
    ("bad_selector", "message"),
    [
        (selector(("k", "Near", [])), '"Near" is not a valid label selector operator'),
        (
            selector(("k", "In", [])),
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            selector(("verb", "Exists", ["GET"])),
            'values: Invalid value: ["GET"]: values set must be empty for exists and does not exist',
        ),
        (selector(("app", "In", ["not valid!"])), f'values[0][app]: Invalid value: "not valid!": {VALUE_TEXT}'),
        (selector(labels={"team": "not valid!"}), f'values[0][team]: Invalid value: "not valid!": {VALUE_TEXT}'),
    ],
)
def test_errors(bad_selector: LabelSelector, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        compile_selector(bad_selector)
    assert str(caught.value) == message


def test_several_errors_are_listed() -> None:
    with pytest.raises(SelectorError) as caught:
        requirement("a b", "in", [])
    assert str(caught.value).startswith('[key: Invalid value: "a b": name part must consist of alphanumeric')
    assert str(caught.value).endswith(", values: Invalid value: null: for 'in', 'notin' operators, "
                                      "values set can't be empty]")  # fmt: skip


@pytest.mark.parametrize(
    ("text", "printed"),
    [("a=b", "a=b"), ("a==b,c!=d", "a==b,c!=d"), ("x in (b, a), !y,z", "x in (a,b),!y,z"), ("", ""),
     ("a notin (b)", "a notin (b)"), ("n>5,m<3", "m<3,n>5"), ("a=", "a="), ("a in (,)", "a in (,)"),
     ("a in ()", "a in ()"), ("a notin ( )", "a notin ()"), ("a in (b,,)", "a in (,b)"), ("a in (b,,c)", "a in (,b,c)"),
     ("in in (in,notin)", "in in (in,notin)"), ("example.com/a", "example.com/a")],
)  # fmt: skip
def test_parsing_and_printing(text: str, printed: str) -> None:
    assert str(parse_selector(text)) == ("a in ()" if text == "a in (,)" else printed)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,", "found '', expected: identifier after ','"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("(", "found '(', expected: !, identifier, or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        (
            "a>x",
            f'{REQUIREMENT}: values[0]: Invalid value: "x": {INTEGER}',
        ),
        ("a=" + "b" * 64, f'{REQUIREMENT}: values[0][a]: Invalid value: "{"b" * 64}": must be no more than 63 bytes'),
        ("a/b/c=d", f'{REQUIREMENT}: <nil>: Invalid value: "a/b/c": {LABEL_KEY}'),
    ],
)
def test_parse_errors(text: str, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_selector(text)
    assert str(caught.value) == message


def test_parsed_selectors_match() -> None:
    parsed = parse_selector("tier in (web,api),!old,n>5,env!=dev")
    assert parsed.matches({"tier": "web", "n": "6"})
    assert not parsed.matches({"tier": "web", "n": "5"})
    assert not parsed.matches({"tier": "web", "n": "6", "old": ""})
    assert not parsed.matches({"tier": "web", "n": "6", "env": "dev"})


def node_selector(*terms: dict[str, Any]) -> NodeSelector:
    return from_dict({"nodeSelectorTerms": list(terms)}, NodeSelector)


def term(*expressions: tuple[Any, ...], fields: list[tuple[Any, ...]] | None = None) -> dict[str, Any]:
    def items(rows: Any) -> list[dict[str, Any]]:
        return [{"key": key, "operator": operator, "values": list(values)} for key, operator, *values in rows]

    return {"matchExpressions": items(expressions), "matchFields": items(fields or [])}


NAME = "metadata.name"


@pytest.mark.parametrize(
    ("terms", "labels", "want"),
    [
        ([], {"a": "b"}, False),
        ([term()], {"a": "b"}, False),
        ([term(), term(("a", "In", "b"))], {"a": "b"}, True),
        ([term(("n", "Gt", "0204"))], {"n": "0206"}, True),
        ([term(("n", "Gt", "0204"))], {"n": "204"}, False),
        ([term(("n", "Lt", "5"))], {"n": "x"}, False),
        ([term(("n", "Lt", "5"))], {}, False),
        ([term(("n", "Lt", "five"))], {"n": "1"}, False),
        ([term(("n", "Gt", "1", "2"))], {"n": "3"}, False),
        ([term(("n", "Lt", "9" * 20))], {"n": "3"}, False),
        ([term(("a", "NotIn", "invalid value: ___@#$%^"))], {"a": "b"}, False),
        ([term(("a", "Near", "b"))], {"a": "b"}, False),
        ([term(("a", "NotIn", "!")), term(("a", "In", "b"))], {"a": "b"}, True),
        ([term(fields=[(NAME, "In", "node-1")])], {}, True),
        ([term(fields=[(NAME, "NotIn", "node-1")])], {}, False),
        ([term(fields=[(NAME, "In", "node-1", "node-2")])], {}, False),
        ([term(fields=[("spec.x", "NotIn", "y")])], {}, True),
        ([term(fields=[("spec.x", "In", "")])], {}, True),
        ([term(("a", "In", "c"), fields=[(NAME, "In", "node-1")])], {"a": "b"}, False),
    ],
)
def test_node_selectors(terms: list[dict[str, Any]], labels: dict[str, str], want: bool) -> None:
    assert compile_node_selector(node_selector(*terms)).matches(labels, "node-1") is want


def test_fields_are_ignored_without_a_name() -> None:
    assert compile_node_selector(node_selector(term(fields=[(NAME, "In", "x")]))).matches({}, "")


def test_values_in_messages_are_escaped_as_go_does() -> None:
    with pytest.raises(SelectorError, match=re.escape(r'values: Invalid value: ["\u003cb\u003e"]: values set must')):
        requirement("k", "exists", ["<b>"])
