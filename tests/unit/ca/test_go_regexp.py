"""Patterns of the priority expander: what they match, and what Go says of those that are none.

``go_regexp.jsonl`` holds what ``regexp.Compile`` and ``MatchString`` of Go 1.26 say (Unicode 15): a program read
patterns and texts as JSON lines and wrote the error or the answers. The patterns are every construct of the syntax,
mistakes, limits of counts, and random combinations; the texts are random but for those that tell patterns apart.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kscale import ca
from kscale.ca.expander.priority import GoPattern, GoPatternError
from kscale.errors import MissingExtraError
from rows import each_row

RECORDED = [
    json.loads(line) for line in Path(__file__).with_name("go_regexp.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("(?i)SPOT", "a-spot-1", True),
        ("a(?i)b|c", "C", True),
        ("a(?i)b|c", "AB", False),
        ("((?i)a)b", "Ab", True),
        ("((?i)a)b", "AB", False),
        ("(?i:a)b", "AB", False),
        ("(?i)a(?-i)b", "AB", False),
        (r"\Apool", "pool", True),
        (r"gpu\z", "gpu", True),
        (r"pool-[ab]-\d+$", "pool-a-12", True),
        ("a$", "a\n", False),
        ("(?m)a$", "a\nb", True),
        ("a.b", "a\nb", False),
        ("(?s)a.b", "a\nb", True),
        ("^*x", "x", True),
        ("", "anything", True),
        ("[[:alpha:]]+x", "abx", True),
        ("[[:^alpha:]]", "a", False),
        ("a{,3}", "a{,3}", True),
        ("a{2}", "aa", True),
        ("[]a]", "]", True),
        ("[a-]", "-", True),
        (r"[^\d]", "5", False),
        (r"[\w.]+@", "a.b@", True),
        (r"\d", "٣", False),
        ("(?P<n>a)b", "ab", True),
        ("(?<n>a)b", "ab", True),
        ("(?P<n>a)(?P<n>b)", "ab", True),
        ("x(?:a|b)+?y", "xaby", True),
        ("(?U)a+b", "aab", True),
        (r"\Qa.b\E", "a.b", True),
        (r"\Qa.b\E", "axb", False),
        (r"\x41\x{42}\103", "ABC", True),
        (r"\pL", "é", True),
        (r"\P{Lu}", "A", False),
    ],
)
def test_accepted(pattern: str, text: str, matches: bool) -> None:
    assert GoPattern(pattern).search(text) is matches


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(?!a)", "invalid or unsupported Perl syntax: `(?!`"),
        ("(?<=a)", "invalid named capture: `(?<=a)`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a|*", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a++", "invalid nested repetition operator: `++`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{2,1}", "invalid repeat count: `{2,1}`"),
        ("[x", "missing closing ]: `[x`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        ("(a", "missing closing ): `(a`"),
        ("a)", "unexpected ): `a)`"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
        (r"\k", r"invalid escape sequence: `\k`"),
        ("\\", "trailing backslash at end of expression: ``"),
    ],
)
def test_refused_in_the_words_of_go(pattern: str, message: str) -> None:
    with pytest.raises(GoPatternError) as refused:
        GoPattern(pattern)
    assert str(refused.value) == f"error parsing regexp: {message}"


LACKING = {
    r"\p{ASCII}": "a class of Go 1.25 that RE2 does not have",
    r"\p{Assigned}": "a class of Go 1.25 that RE2 does not have",
    r"\P{LC}": "a class of Go 1.25 that RE2 does not have",
    "((a{600}){0}){1000}": "RE2 multiplies the counts although one of them is 0",
}
"""Patterns that Go takes and RE2 refuses."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.xfail(reason=LACKING[case["pattern"]], raises=GoPatternError))
        for case in RECORDED
        if case["pattern"] in LACKING
    ],
)
def test_patterns_unsupported_by_re2_match_as_in_go(case: dict[str, Any]) -> None:
    compare(case)


@each_row(case for case in RECORDED if case["pattern"] not in LACKING)
def test_patterns_match_as_in_go(case: dict[str, Any]) -> None:
    compare(case)


def compare(case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(GoPatternError) as refused:
            GoPattern(case["pattern"])
        assert str(refused.value) == case["error"]
    else:
        pattern = GoPattern(case["pattern"])
        assert {text: pattern.search(text) for text in case["texts"]} == case["texts"]


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"\p{Greek}+", "αβγ", True),
        (r"\p{Han}", "节点", True),
        (r"\p{Latin}", "α", False),
        (r"^\P{Latin}$", "α", True),
        (r"[\p{Greek}a]b", "γb", True),
        ("^.$", "\ud800", True),
    ],
)
def test_scripts(pattern: str, text: str, matches: bool) -> None:
    assert GoPattern(pattern).search(text) is matches


LARGE = "|".join([r"(\pL{1000}){1}"] * 50)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"a\C", r"invalid escape sequence: `\C`"),
        (r"(a\C)", r"invalid escape sequence: `\C`"),
        (r"*\C", "missing argument to repetition operator: `*`"),
        (r"[\C]", r"invalid escape sequence: `\C`"),
        ("(?P<α>x)", "invalid named capture: `(?P<α>`"),
        ("(?<!a>b)", "invalid named capture: `(?<!a>`"),
        pytest.param("(" * 1000 + ")" * 1000, f"expression nests too deeply: `{'(' * 1000}{')' * 1000}`", id="deep"),
        pytest.param(LARGE, f"expression too large: `{LARGE}`", id="large"),
    ],
)
def test_patterns_invalid_in_go_are_refused(pattern: str, message: str) -> None:
    with pytest.raises(GoPatternError) as refused:
        GoPattern(pattern)
    assert str(refused.value) == f"error parsing regexp: {message}"


@pytest.mark.parametrize("pattern", [r"\QC\C\E", r"\\C", "[(?P<é>]", r"\Q(?P<é>", "(a)" * 2000, "(" * 999 + ")" * 999])
def test_similar_valid_patterns_are_accepted(pattern: str) -> None:
    GoPattern(pattern)


def test_without_the_library_the_expander_refuses_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    options = [ca.Option(group=name, node_count=1, pods=[]) for name in "ab"]
    expander_input = ca.ExpanderInput(priorities={"priorities": "10: [a]"})
    with pytest.raises(MissingExtraError, match=r"the priority expander needs the extra \[regex\]"):
        ca.expand(options, "priority", expander_input)
