"""RE2 patterns in Python's terms."""

from __future__ import annotations

import pytest

from kscale.ca.expander.re2 import RE2Error, compile_re2


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
        ("(?<=a)", "invalid or unsupported Perl syntax: `(?<`"),
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
        ("\\", "trailing backslash at end of expression"),
    ],
)
def test_refused_in_the_words_of_go(pattern: str, message: str) -> None:
    with pytest.raises(RE2Error) as refused:
        compile_re2(pattern)
    assert str(refused.value) == f"error parsing regexp: {message}"
