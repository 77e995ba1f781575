"""Whose pods they are, for a batch of HPAs: the selector of every target, and who else selects the same pods."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from kscale._native import _api_text, _names
from kscale.effects import GetMetric
from kscale.hpa.batch_pods import SelectedPods
from kscale.hpa.options import HPAOptions
from kscale.hpa.selector_store import SelectorStore
from kscale.hpa.state import HPAState
from kscale.objects.autoscaling import HorizontalPodAutoscaler
from kscale.objects.selector_text import parse_selector
from kscale.objects.selectors import SelectorError

__all__ = ["BatchSelectors"]

_name = attrgetter("metadata.namespace", "metadata.name")

_REQUIRED, _INVALID, _DELETED, _AMBIGUOUS = 1, 2, 3, 5


class BatchSelectors:
    """Whose pods they are: the selector of every target, and who else selects the same pods.

    ``wanted``: selections, those of ``group`` int64[n] (-1: none) first, then other HPAs'; ``registered``: the selector
    of every HPA by (namespace, name), as the store has it once all of the batch are in it.
    """

    def __init__(
        self,
        hpas: Sequence[HorizontalPodAutoscaler],
        keys: Sequence[str],
        selectors: SelectorStore | None,
        rest: Sequence[HPAState],
        texts: Sequence[str],
        metrics: NDArray[np.int64],
        options: HPAOptions,
    ) -> None:
        self.legacy, self.texts = options.legacy, texts
        self._error = np.zeros(len(texts), np.uint8)
        self._keys, self._metrics, self._others = keys, metrics, selectors
        self._version = None if selectors is None else selectors.version
        self._rests = [rest]
        self._errors: tuple[SelectedPods, NDArray[np.uint8]] | None = None
        self.asked: tuple[object, NDArray[np.int64], NDArray[np.int32], list[GetMetric]] | None = None
        """Which metrics were asked for last: of which lists of metrics, groups, and list of each."""
        names = list(map(_name, hpas))
        error, legacy = self._error, self.legacy
        numbers: dict[tuple[str, str], int] = {}
        groups = [-1] * len(texts)
        for row in metrics.tolist():
            text = texts[row]
            if not text:
                error[row] = _REQUIRED
                continue
            where = (names[row][0], text)
            number = numbers.get(where)
            if number is None and not _is_valid(text):
                error[row] = _INVALID
                continue
            if not (legacy or rest[row].registered):
                error[row] = _DELETED
                continue
            if number is None:
                number = numbers[where] = len(numbers)
            groups[row] = number
        self.group = np.array(groups, np.int64)
        self.registered = self._registered(names, groups, rest)
        self.groups = len(numbers)
        self.names = np.bincount(self.group[self.group >= 0], minlength=self.groups)
        self.wanted: list[tuple[str, str]] = list(numbers)
        if not legacy:
            self._add_others(names, groups)

    def still(
        self,
        keys: Sequence[str],
        selectors: SelectorStore | None,
        rest: Sequence[HPAState],
        texts: Sequence[str],
        metrics: NDArray[np.int64],
    ) -> bool:
        """Whether that is what would come of these."""
        return (
            keys is self._keys
            and selectors is self._others
            and (selectors is None or selectors.version == self._version)
            and (any(rest is each for each in self._rests) or self._says_the_same(rest))
            and np.array_equal(metrics, self._metrics)
            and (texts is self.texts or texts == self.texts)
        )

    def _says_the_same(self, rest: Sequence[HPAState]) -> bool:
        """Whether states say of selectors what those did that this came of."""
        known = self._rests[0]
        return len(rest) == len(known) and all(
            rest[row].registered == known[row].registered and rest[row].selector == known[row].selector
            for row in _names.other_objects([*rest], [*known]).tolist()
        )

    def _registered(
        self, names: Sequence[tuple[str, str]], groups: Sequence[int], rest: Sequence[HPAState]
    ) -> dict[tuple[str, str], str | None]:
        out: dict[tuple[str, str], str | None] = {}
        if self._others is not None:
            for namespace in self._others.namespaces():
                for name, selector in self._others.entries(namespace).items():
                    out[namespace, name] = None if selector.nothing else str(selector)
        for key, state, group, text in zip(names, rest, groups, self.texts, strict=True):
            if not state.registered:
                continue
            if group >= 0 and not self.legacy:
                out[key] = text
            elif key not in out:
                out[key] = state.selector
        return out

    def _add_others(self, names: Sequence[tuple[str, str]], groups: Sequence[int]) -> None:
        """Selections of HPAs whose own metrics are not looked at now."""
        if len(self.registered) == len(groups) - groups.count(-1):  # who has a group is registered
            return
        mine = {key for key, group in zip(names, groups, strict=True) if group >= 0}
        namespaces = {namespace for namespace, _ in self.wanted}
        others = [
            (key[0], text)
            for key, text in self.registered.items()
            if text is not None and key not in mine and key[0] in namespaces
        ]
        self.wanted += others
        self.names = np.concatenate([self.names, np.ones(len(others), np.int64)])

    def errors(self, selected: SelectedPods) -> NDArray[np.uint8]:
        """Why the selector of an HPA is of no use, by code: HPAs that share a pod with another block each other."""
        if self._errors is None or self._errors[0].rows is not selected.rows:
            self._errors = selected, self._with_rivals(selected)
        return self._errors[1]

    def _with_rivals(self, selected: SelectedPods) -> NDArray[np.uint8]:
        error = self._error.copy()
        if self.legacy or not len(selected.rows):
            return error
        ends = selected.ends
        names = np.repeat(self.names, np.diff(ends))
        total = np.bincount(selected.rows, weights=names)
        shared = total[selected.rows] > 1
        if shared.any():
            blocked = np.diff(np.append(0, np.cumsum(shared))[ends])[: self.groups] > 0
            group = self.group
            error[(group >= 0) & np.append(blocked, False)[group]] = _AMBIGUOUS
        return error

    def next_states(
        self, hpas: Sequence[HorizontalPodAutoscaler], rest: Sequence[HPAState], undecided: Collection[int]
    ) -> Sequence[HPAState]:
        """What is not kept as columns of the states, afterwards; of rows that are ``undecided`` nothing changes."""
        if not undecided and len(self._rests) > 1 and rest is self._rests[1]:
            return rest
        out = list(rest)
        plain: dict[str | None, HPAState] = {}
        settled = True
        for row, (state, group, text) in enumerate(zip(rest, self.group.tolist(), self.texts, strict=True)):
            if (state.written is None and (group < 0 or state.selector == text)) or row in undecided:
                continue
            written = state.written
            if written is not None and written.uid == hpas[row].metadata.uid:
                written = None
            selector = state.selector if group < 0 or self.legacy else text
            if written is None and state.registered:
                found = plain.get(selector)
                if found is None:
                    found = plain[selector] = HPAState(selector=selector)
                out[row] = found
            else:
                settled = settled and written is None
                out[row] = HPAState(selector=selector, registered=state.registered, written=written)
        if not undecided and settled:  # of what came of them the same comes again
            self._rests[1:] = [out]
        return out


def _is_valid(selector: str) -> bool:
    if _api_text.plain_label(selector) is None:
        try:
            parse_selector(selector)
        except SelectorError:
            return False
    return True
