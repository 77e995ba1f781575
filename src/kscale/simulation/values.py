"""The values of a scenario file: durations, quantities, quantiles, signals, flags; every mistake with its field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, TypeVar, get_origin, get_type_hints

import msgspec
import numpy as np

from kscale.effects import Moment, timedelta_of
from kscale.errors import InputError, Problem
from kscale.objects.durations import parse_duration
from kscale.objects.quantity import Quantity, QuantityError
from kscale.series import bin_events, read
from kscale.simulation.scenario import Signal as SignalValue
from kscale.simulation.scenario import SignalEntry, Time
from kscale.world.simulated.draws import MILLION, Spread
from kscale.world.simulated.signals import Signal

__all__ = ["Values", "options_of"]

_T = TypeVar("_T", bound=msgspec.Struct)
_MOST: Final = 1 << 62
"""Thousandths; all that is added up of them has room in 64 bits."""
_PLAIN: Final = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,3}))?")  # far from too much, and nothing to round
_TOO_MUCH: Final = Quantity(str(_MOST // 1000))


class Values:
    """Reads values, and keeps what is wrong with them.

    ``source``: the file; ``folder``: where the files that it names are; ``begin``: when the simulation begins.
    """

    def __init__(self, source: str, folder: Path, begin: Moment) -> None:
        self.source, self.folder, self.begin = source, folder, begin
        self.problems: list[Problem] = []

    def wrong(self, field: str, message: str, step: int | None = None) -> None:
        """Something is; ``step``: of those of a signal."""
        where = field if step is None else f"{field}.steps[{step}]"
        self.problems.append(Problem(message, self.source, field=where))

    def duration(self, text: str, field: str, *, least: int = 0, step: int | None = None) -> int:
        """Nanoseconds of a Go duration; what is wrong counts as ``least``."""
        try:
            found = parse_duration(text)
        except ValueError as error:
            self.wrong(field, str(error), step)
            return least
        if found < least:
            self.wrong(field, f"{text} is too short" if least else f"{text} is negative", step)
            return least
        return found

    def spread(self, given: Time, field: str, *, least: int = 0) -> Spread:
        """A duration, or its quantiles."""
        if isinstance(given, str):
            return Spread.fixed(self.duration(given, field, least=least))
        points = []
        for name, text in given.items():
            share = name.removeprefix("p")
            try:
                place = int(Fraction(share) * MILLION // 100)
            except (ValueError, ZeroDivisionError):
                self.wrong(f"{field}.{name}", "a quantile is p0 to p100, as p50 or p99.9")
                return Spread.fixed(0)
            points.append((place, self.duration(text, f"{field}.{name}", least=least)))
        points.sort()
        if points and points[0][0] != 0:
            points.insert(0, (0, points[0][1]))
        try:
            return Spread(tuple(points))
        except ValueError:
            self.wrong(field, "quantiles go up to p100, and longer times belong to higher ones")
            return Spread.fixed(0)

    def milli(self, given: str | float, field: str, *, step: int | None = None) -> int:
        """A quantity in thousandths."""
        text = str(given)
        if (plain := _PLAIN.fullmatch(text)) is not None:  # as Quantity reads it: long lists are of these
            return int(plain[1]) * 1000 + int((plain[2] or "").ljust(3, "0"))
        try:
            found = Quantity(text)
        except QuantityError as error:
            self.wrong(field, f"{given!r} is not a quantity: {error}", step)
            return 0
        if found.sign < 0 or found.cmp(_TOO_MUCH) >= 0:  # before thousandths are made: Go's run over
            self.wrong(field, f"{given} is out of range", step)
            return 0
        return found.milli_value()

    def signal(self, given: SignalValue, field: str) -> Signal:
        """An amount over time, in thousandths."""
        if not isinstance(given, SignalEntry):
            return Signal.constant(self.milli(given, field))
        repeat = 0 if given.repeat is None else self.duration(given.repeat, f"{field}.repeat", least=1_000_000)
        if bool(given.steps) == (given.file is not None):
            self.wrong(field, "either steps or a file is needed")
            return Signal.constant(0)
        try:
            if given.file is not None:
                time, value = self._rows(given, field, repeat)
            else:
                time = [self.begin + self.duration(at, field, step=i) for i, (at, _) in enumerate(given.steps)]
                value = [self.milli(amount, field, step=i) for i, (_, amount) in enumerate(given.steps)]
            scale = Fraction(str(given.scale))
            if scale < 0:
                raise ValueError(f"scale {given.scale} is negative")
            scaled = [each * scale.numerator // scale.denominator for each in value] if scale != 1 else value
            if max(scaled) >= _MOST:
                raise ValueError(f"{max(scaled) // 1000} is out of range")
            return Signal(time, scaled, repeat=repeat)
        except InputError as error:
            self.problems += error.problems
        except (ValueError, ZeroDivisionError, OverflowError) as error:
            self.wrong(field, str(error))
        return Signal.constant(0)

    def _rows(self, given: SignalEntry, field: str, repeat: int) -> tuple[list[int], list[int]]:
        """(nanoseconds, thousandths) of a file; its first row is the beginning. Events end with the last bin, unless it
        is where the signal repeats."""
        path = self.folder / str(given.file)
        if given.bin is not None:
            counting = given.value == "count"
            rows = read(path, value="" if counting else given.value, time=given.time, unit=given.unit, events=True)
            width = self.duration(given.bin, f"{field}.bin", least=1_000_000)
            times, values = bin_events(rows.time, width, None if counting else rows.value)
            end = times[-1] + width
            if not repeat or end - times[0] < repeat:  # nothing comes after the last
                times, values = np.append(times, end), np.append(values, 0.0)
        else:
            series = read(path, value=given.value, time=given.time, unit=given.unit)
            if len(series.keys) != 1:
                raise ValueError(f"{path} holds {len(series.keys)} series, and one is needed")
            times, values = series.time, series.value
        if not len(times):
            raise ValueError(f"{path} is empty")
        if (np.asarray(values) < 0).any():
            raise ValueError(f"{path} holds a negative amount")
        milli = [int(Fraction(each) * 1000) for each in np.asarray(values).tolist()]
        return (np.asarray(times) - times[0] + self.begin).tolist(), milli


def options_of(struct: type[_T], flags: Mapping[str, Any], given: Mapping[str, Any], values: Values, field: str) -> _T:
    """An options struct from flags by upstream's names, on top of what is ``given``."""
    hints = get_type_hints(struct)
    found = dict(given)
    for name, value in flags.items():
        where, attribute = f"{field}.flags.{name}", name.replace("-", "_")
        kind = hints.get(attribute)
        if kind is None:
            values.wrong(where, "there is no such flag")
            continue
        try:
            if kind is timedelta:
                found[attribute] = timedelta_of(parse_duration(str(value)))
            elif kind is Quantity:
                found[attribute] = Quantity(str(value))
            elif get_origin(kind) in (dict, Mapping):
                found[attribute] = _gates(value)
            elif get_origin(kind) is list and isinstance(value, str):
                found[attribute] = [each for each in value.split(",") if each]
            else:
                found[attribute] = msgspec.convert(value, kind, strict=False)
        except (ValueError, TypeError) as error:
            values.wrong(where, str(error))
    try:
        made = struct(**found)
    except InputError as error:
        for problem in error.problems:
            values.wrong(f"{field}.flags.{problem.field.replace('_', '-')}", problem.message)
        return struct()
    for problem in getattr(made, "problems", list)():
        values.wrong(f"{field}.flags.{problem.field.replace('_', '-')}", problem.message)
    return made


def _gates(given: Any) -> dict[str, bool]:
    """Feature gates as Go's flags have them: ``A=true,B=false``, or a list of such texts. Raises ValueError."""
    found: dict[str, bool] = {}
    for part in ",".join(given if isinstance(given, list) else [str(given)]).split(","):
        name, _, value = part.partition("=")
        if value.strip().lower() not in ("true", "false"):
            raise ValueError(f"{part!r} is not NAME=true or NAME=false")
        found[name.strip()] = value.strip().lower() == "true"
    return found
