"""RE2 patterns (the syntax of Go's ``regexp``) that answer ``MatchString`` in time linear in the text.

:mod:`syntax` reads a pattern as Go reads it, with Go's words for what is wrong; :mod:`classes` says which characters a
class holds; :mod:`nfa` runs the pattern on a text, all its possibilities at once, so that no pattern can make it
backtrack.
"""

from kscale.ca.expander.re2.errors import RE2Error
from kscale.ca.expander.re2.nfa import Pattern, compile_re2

__all__ = ["Pattern", "RE2Error", "compile_re2"]
