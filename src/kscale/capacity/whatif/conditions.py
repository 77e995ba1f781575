"""Conditions on a row, as ``--fail-on`` has them: ``cost>+5%``, ``nodes>60``, ``homeless>0``. kscale's own."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass

from kscale.capacity.whatif.records import ScenarioRow
from kscale.errors import InputError
from kscale.objects.argument_types import typed

__all__ = ["METRICS", "Condition", "parse_condition"]

METRICS = ("nodes", "cost", "bound", "pending", "homeless", "waited")
_FIELDS = {"waited": "pending_seconds"}  # of a row, where it is called otherwise
_SIGNS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_TEXT = re.compile(r"\s*([a-z]+)\s*(>=|<=|>|<)\s*([+-]?)(\d+(?:\.\d+)?)(%?)\s*")


@dataclass(frozen=True, slots=True)
class Condition:
    """``metric`` is ``sign`` than ``amount``; ``relative``: what is compared is the change from the baseline, with
    ``percent`` in hundredths of it."""

    text: str
    """As it was written."""
    metric: str
    sign: str
    amount: float
    relative: bool
    percent: bool

    def known(self, row: ScenarioRow, baseline: ScenarioRow) -> bool:
        """Whether there is anything to compare in the ``row`` of a scenario and that of its ``baseline``."""
        compared = (row, baseline) if self.relative or self.percent else (row,)
        return all(self._of(each) is not None for each in compared)

    def _of(self, row: ScenarioRow) -> float | None:
        found: float | None = getattr(row, _FIELDS.get(self.metric, self.metric))
        return found

    def holds(self, row: ScenarioRow, baseline: ScenarioRow) -> bool:
        """Whether it is so of the ``row`` of a scenario, beside that of its ``baseline``. What is not known is not
        so."""
        value, before = self._of(row), self._of(baseline)
        if value is None:
            return False
        if self.relative or self.percent:
            if before is None:
                return False
            value = round(value - before, 9)  # without the noise of adding up
            if self.percent:
                if not before:
                    return bool(value) and bool(_SIGNS[self.sign](value, 0))
                value *= 100.0 / before
        return bool(_SIGNS[self.sign](value, self.amount))


@typed
def parse_condition(text: str) -> Condition:
    """What ``text`` asks (``cost>+5%``). Raises InputError for what is none."""
    found = _TEXT.fullmatch(text)
    if found is None or found[1] not in METRICS:
        raise InputError(
            f'"{text}" is no condition: one of {", ".join(METRICS)}, then > >= < <=, then a number; with + or - or % '
            "it is the change from the baseline"
        )
    amount = float(found[3] + found[4])
    return Condition(text, found[1], found[2], amount, bool(found[3]), bool(found[5]))
