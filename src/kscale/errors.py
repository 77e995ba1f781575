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
    "UnknownNodeError",
    "show_value",
]


def show_value(value: object, limit: int = 60) -> str:
    """Return the repr of a value for an error message, cut to ``limit`` characters.

    A value whose repr fails, such as a list nested too deep, is shown as the name of its type. Upstream has no
    counterpart: this is kscale's own.
    """
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  # the repr of a caller's type may raise anything
        text = f"<{type(value).__name__}>"
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


class KscaleError(Exception):
    """Base of every error that kscale raises deliberately."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of the input: the file, the object in it, the field, and what is wrong (``message``).

    ``source`` is a path, ``-`` or ``<bytes>``; ``object`` is e.g. ``items[17] (Pod team-a/web-3)``; ``field`` a path
    such as ``spec.containers[0].resources.requests.cpu``. Any of them may be empty.
    """

    message: str
    source: str = ""
    object: str = ""
    field: str = ""

    @property
    def of_source(self) -> bool:
        """Return whether the problem names no object: it concerns the whole source, and reading cannot continue."""
        return not self.object

    def __str__(self) -> str:
        return ": ".join(part for part in (self.source, self.object, self.field, self.message) if part)


class InputError(KscaleError, ValueError):
    """Input that no API server would accept, or that cannot be read. ``problems`` lists all problems, in input order.

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
    """An argument of a type that the function does not accept. It is an InputError and a TypeError.

    ``problems[0].field`` names the argument; the message says what it may be and which type it has.
    """

    def __init__(self, name: str, value: str, expected: str, received: str) -> None:
        super().__init__(Problem(f"{name} is {value}, not {expected} (got {received})"))
        self.problems = (Problem(self.problems[0].message, field=name),)

    def __reduce__(self) -> tuple[object, ...]:
        return _restored_error, (str(self), self.problems)


def _restored_error(text: str, problems: tuple[Problem, ...]) -> ArgumentError:
    """Build an ArgumentError from its text and problems, for pickle. The attribute ``total`` becomes 0."""
    error = ArgumentError.__new__(ArgumentError, text)
    error.args = (text,)
    error.problems, error.total = problems, 0
    return error


class UnreadableObjectError(InputError):
    """An object cannot be decoded completely, although the fields that decisions read could be read."""


class UnknownNodeError(InputError, KeyError):
    """A node that does not exist. It is an InputError and a KeyError."""

    __str__ = Exception.__str__


class StateError(KscaleError, ValueError):
    """A saved state that cannot be used: it has another version or kind, or is damaged."""


class ConcurrentUseError(KscaleError, RuntimeError):
    """A thread used an object that only one thread at a time may use, during a call of another thread.

    The call that raises this error changed nothing, and the other call continues undisturbed.
    """


class NativeError(KscaleError, RuntimeError):
    """A kernel refused its arguments, or a compiled plug-in failed. The interpreter's state is intact."""


class BoundError(KscaleError, AssertionError):
    """A proven bound contradicts a known solution, which is a bug in kscale. No number is returned."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}. This is a bug in kscale, please report it with the input.")


class MissingExtraError(KscaleError, ImportError):
    """A feature whose optional dependency is not installed; the text says which extra to install."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs the extra [{extra}]: pip install 'kscale-core[{extra}]'")
        self.extra = extra
