"""What scenarios have in common: known before the first is decided, so nothing is kept that no later one asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from kscale.capacity.whatif.edits import ground_of
from kscale.capacity.whatif.grammar import Question, Scenario
from kscale.capacity.whatif.texts import text_of
from kscale.errors import InputError

__all__ = ["Ahead", "beginnings", "question_of"]


def question_of(scenario: Scenario) -> Question:
    """What it asks."""
    return scenario.question or Question.SCALE_UP


def beginnings(scenario: Scenario) -> Iterator[tuple[str, ...]]:
    """For each edit: it and those before it, as text. Scenarios that begin alike agree in them."""
    done: tuple[str, ...] = ()
    for edit in scenario.edits:
        done = (*done, text_of(edit.kind, getattr(edit, edit.kind)))
        yield done


class Ahead:
    """How often scenarios that are still to come will have a digest, or begin with the same edits. The base, without
    edits, is asked for each question once, before the first scenario that asks it."""

    def __init__(self, scenarios: Iterable[Scenario]) -> None:
        self._digests: Counter[tuple[str, ...]] = Counter()
        self._beginnings: Counter[tuple[str, ...]] = Counter()
        asked: set[Question] = set()
        for scenario in scenarios:
            question = question_of(scenario)
            if question not in asked:
                asked.add(question)
                self._digests[()] += 1
            self._beginnings.update(beginnings(scenario))
            try:
                digest = tuple(filter(None, (ground_of(edit, question) for edit in scenario.edits)))
            except InputError:  # of flags: said when it is this scenario's turn, and no digest comes of it
                continue
            self._digests[digest] += 1

    def begun(self, beginning: tuple[str, ...]) -> bool:
        """One scenario has come as far as that: whether a later one will."""
        return _one_less(self._beginnings, beginning)

    def decided(self, digest: tuple[str, ...]) -> bool:
        """One world of that digest has its answer: whether a later one will have the digest."""
        return _one_less(self._digests, digest)


def _one_less(ahead: Counter[tuple[str, ...]], key: tuple[str, ...]) -> bool:
    ahead[key] -= 1
    if ahead[key] > 0:
        return True
    del ahead[key]
    return False
