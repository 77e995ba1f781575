"""RE2 patterns: what they match, in the time of the text's length, and what Go says of those that are none.

``go_regexp.jsonl`` holds what ``regexp.Compile`` and ``MatchString`` of Go 1.26 say (Unicode 15): a program read
patterns and texts as JSON lines and wrote the error or the answers. The patterns are every construct of the syntax,
mistakes, limits of counts, and random combinations; the texts are random but for those that tell patterns apart.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale.ca.expander.re2 import Pattern, RE2Error, compile_re2, nfa

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
    assert bool(compile_re2(pattern).search(text)) is matches


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
        ("(?P<n>a)(?P<n>b)", "duplicate capture group name: `n`"),
        ("\\", "trailing backslash at end of expression: ``"),
    ],
)
def test_refused_in_the_words_of_go(pattern: str, message: str) -> None:
    with pytest.raises(RE2Error) as refused:
        compile_re2(pattern)
    assert str(refused.value) == f"error parsing regexp: {message}"


@pytest.mark.parametrize("case", RECORDED, ids=[str(i) for i in range(len(RECORDED))])
def test_says_what_go_says(case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(RE2Error) as refused:
            Pattern(case["pattern"])
        assert str(refused.value) == case["error"]
    else:
        pattern = Pattern(case["pattern"])
        assert {text: pattern.search(text) for text in case["texts"]} == case["texts"]


def _joined(parts: list[str]) -> str:
    return "".join(parts)


_atoms = st.sampled_from(
    ["a", "b", "-", "1", ".", "[ab]", "[^a]", "[a-c1]", r"\.", r"(?a:\d)", r"(?a:\w)", "(?:^)", r"(?a:\b)", r"(?a:\B)"]
)
_patterns = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(_joined),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{2,}", "{0}"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
        inner.map(lambda text: f"(?i:{text})"),
    ),
    max_leaves=8,
)


@given(_patterns, st.text("abAB-1._\n", max_size=8))
def test_matches_what_a_backtracking_search_finds(pattern: str, text: str) -> None:
    ours = pattern.replace("(?a:", "(?:")  # its classes are ASCII anyway
    assert Pattern(ours).search(text) is (re.search(pattern, text) is not None)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "^(a|a)*$", "^(a*)*$", "(.*)*$(?-s:x)", "(a?){30}a{30}$"])
def test_no_pattern_makes_it_backtrack(pattern: str) -> None:
    """A search that backtracks takes 2^n steps here and would not come back."""
    found = Pattern(pattern)
    assert not found.search("a" * 2000 + "b")
    assert found.search("a" * 2000) is ("x" not in pattern)


def test_steps_are_forgotten_when_they_become_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nfa, "_MAX_STEPS", 7)
    pattern, expected = Pattern("(a|b)*a(a|b){4}$"), re.compile("(a|b)*a(a|b){4}$")
    for number in range(64):
        text = f"{number:06b}".replace("0", "a").replace("1", "b") * 2
        assert pattern.search(text) is (expected.search(text) is not None)
        assert pattern._kept <= 7
