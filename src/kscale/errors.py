"""Exceptions of kscale. Every class also derives from the built-in exception that fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "ArgumentError",
    "BoundError",
    "ConcurrentUseError",
    "InputError",
    "KscaleError",
    "MissingExtraError",
    "NativeError",
    "Problem",
    "StateError",
]


class KscaleError(Exception):
    """Base of every error that kscale raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of the input: ``source``, ``object``, ``field`` and ``message``.

    ``source`` is a path, ``-`` or ``<bytes>``; ``object`` is e.g. ``items[17] (Pod team-a/web-3)``;
    ``field`` a path such as ``spec.containers[0].resources.requests.cpu``. Any of them may be empty.
    """

    message: str
    source: str = ""
    object: str = ""
    field: str = ""

    @property
    def of_source(self) -> bool:
        """Return whether a source as a whole could not be read, rather than one object of it."""
        return not self.object

    def __str__(self) -> str:
        return ": ".join(part for part in (self.source, self.object, self.field, self.message) if part)


class InputError(KscaleError, ValueError):
    """Input that cannot be read or that no API server would store. ``problems`` lists all problems in input order.

    ``total`` is the number of objects read, including damaged ones (0: unknown).
    """

    def __init__(self, problems: Sequence[Problem] | Problem | str, *, total: int = 0) -> None:
        if isinstance(problems, str):
            problems = [Problem(problems)]
        elif isinstance(problems, Problem):
            problems = [problems]
        self.problems: tuple[Problem, ...] = tuple(problems)
        self.total = total
        super().__init__("\n".join(map(str, self.problems)))


class ArgumentError(InputError, TypeError):
    """An argument has another type than the function accepts. Derives from InputError and TypeError.

    ``problems[0].field`` names the argument; the message says which types are allowed and which type it has.
    """

    def __init__(self, name: str, value: str, expected: str, received: str) -> None:
        super().__init__(Problem(f"{name} is {value}, not {expected} (got {received})"))
        self.problems = (Problem(self.problems[0].message, field=name),)

    def __reduce__(self) -> tuple[object, ...]:
        return _restored_error, (str(self), self.problems)


def _restored_error(text: str, problems: tuple[Problem, ...]) -> ArgumentError:
    error = ArgumentError.__new__(ArgumentError, text)
    error.args = (text,)
    error.problems, error.total = problems, 0
    return error


class UnreadableObjectError(InputError):
    """An object was accepted after reading only the fields that decisions need, and cannot be decoded completely."""


class StateError(KscaleError, ValueError):
    """A saved state cannot be used: it has another version or kind, or is damaged."""


class ConcurrentUseError(KscaleError, RuntimeError):
    """A thread called an object with a single owner while a call of another thread was running.

    The failed call has changed nothing, and the other call is not affected.
    """


class NativeError(KscaleError, RuntimeError):
    """A kernel rejected its arguments or a compiled plug-in failed; the interpreter is not affected."""


class BoundError(KscaleError, AssertionError):
    """A proven bound contradicts a known solution: a bug in kscale. No result is returned."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}. This is a bug in kscale, please report it with the input.")


class MissingExtraError(KscaleError, ImportError):
    """An optional dependency of a feature is not installed; the message names the extra to install."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs the extra [{extra}]: pip install 'kscale-core[{extra}]'")
        self.extra = extra
