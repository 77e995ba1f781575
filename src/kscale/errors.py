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
    """Input that no API server would hold or that cannot be read. ``problems`` lists everything found, in input order.

    ``total`` is the number of objects read, damaged ones included (0 = not known).
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
    """An argument of another type than the function takes. It is an InputError and a TypeError.

    ``problems[0].field`` names the argument; the message says what it may be and which type it has.
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
    """An object that was taken by what decisions read of it cannot be read whole."""


class StateError(KscaleError, ValueError):
    """A saved state that cannot be used: another version, another kind, or damaged."""


class ConcurrentUseError(KscaleError, RuntimeError):
    """A thread called an object that has one owner at a time while a call of another thread was under way.

    Nothing was changed by the call that raises it, and the other call goes on undisturbed.
    """


class NativeError(KscaleError, RuntimeError):
    """A kernel refused its arguments or a compiled plug-in failed; the interpreter is unharmed."""


class BoundError(KscaleError, AssertionError):
    """A proven bound contradicts a known solution: a bug in kscale. No number is given out."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}. This is a bug in kscale, please report it with the input.")


class MissingExtraError(KscaleError, ImportError):
    """A feature whose optional dependency is not installed; the text says which extra to install."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs the extra [{extra}]: pip install 'kscale-core[{extra}]'")
        self.extra = extra
