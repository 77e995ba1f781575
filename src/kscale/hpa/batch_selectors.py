"""Whose pods they are, for a batch of HPAs: the selector of every target, and who else selects the same pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kscale.hpa.batch_pods import SelectedPods
from kscale.hpa.options import HPAOptions
from kscale.hpa.selector_store import SelectorStore
from kscale.hpa.state import HPAState
from kscale.objects.autoscaling import HorizontalPodAutoscaler
from kscale.objects.selector_text import parse_selector
from kscale.objects.selectors import SelectorError

__all__ = ["BatchSelectors"]

_REQUIRED, _INVALID, _DELETED, _AMBIGUOUS = 1, 2, 3, 5


class BatchSelectors:
    """Whose pods they are: the selector of every target, and who else selects the same pods.

    Writes what is of no use into ``error``. ``wanted``: selections, those of ``group`` first, then other HPAs'.
    """

    def __init__(
        self,
        hpas: Sequence[HorizontalPodAutoscaler],
        selectors: SelectorStore | None,
        rest: Sequence[HPAState],
        texts: Sequence[str],
        metrics: NDArray[np.int64],
        error: NDArray[np.uint8],
        options: HPAOptions,
    ) -> None:
        self.error, self.legacy, self.texts = error, options.legacy, texts
        self.group = np.full(len(texts), -1, np.int64)
        self._hpas, self._others = hpas, selectors
        numbers: dict[tuple[str, str], int] = {}
        group = self.group
        for row in metrics.tolist():
            text = texts[row]
            if not text:
                error[row] = _REQUIRED
                continue
            where = (hpas[row].metadata.namespace, text)
            number = numbers.get(where)
            if number is None:
                try:
                    parse_selector(text)
                except SelectorError:
                    error[row] = _INVALID
                    continue
            if not (self.legacy or rest[row].registered):
                error[row] = _DELETED
                continue
            if number is None:
                number = numbers[where] = len(numbers)
            group[row] = number
        self.registered = self._registered(rest)
        self.groups = len(numbers)
        self.names = np.bincount(group[group >= 0], minlength=self.groups)
        self.wanted: list[tuple[str, str]] = list(numbers)
        if not self.legacy:
            self._add_others()

    def _registered(self, rest: Sequence[HPAState]) -> dict[tuple[str, str], str | None]:
        """The selector of every HPA by (namespace, name), as the store has it once all of the batch are in it."""
        out: dict[tuple[str, str], str | None] = {}
        if self._others is not None:
            for namespace in self._others.namespaces():
                for name, selector in self._others.entries(namespace).items():
                    out[namespace, name] = None if selector.nothing else str(selector)
        for hpa, state, group, text in zip(self._hpas, rest, self.group.tolist(), self.texts, strict=True):
            if not state.registered:
                continue
            key = (hpa.metadata.namespace, hpa.metadata.name)
            if group >= 0 and not self.legacy:
                out[key] = text
            elif key not in out:
                out[key] = state.selector
        return out

    def _add_others(self) -> None:
        """Selections of HPAs whose own metrics are not looked at now."""
        mine = {
            (hpa.metadata.namespace, hpa.metadata.name)
            for hpa, group in zip(self._hpas, self.group.tolist(), strict=True)
            if group >= 0
        }
        if len(mine) == len(self.registered):
            return
        namespaces = {namespace for namespace, _ in self.wanted}
        others = [
            (key[0], text)
            for key, text in self.registered.items()
            if text is not None and key not in mine and key[0] in namespaces
        ]
        self.wanted += others
        self.names = np.concatenate([self.names, np.ones(len(others), np.int64)])

    def find_rivals(self, selected: SelectedPods) -> None:
        """HPAs that share a pod with another block each other."""
        if self.legacy or not len(selected.rows):
            return
        ends = selected.ends
        names = np.repeat(self.names, np.diff(ends))
        total = np.bincount(selected.rows, weights=names)
        shared = total[selected.rows] > 1
        if not shared.any():
            return
        blocked = np.diff(np.append(0, np.cumsum(shared))[ends])[: self.groups] > 0
        group = self.group
        self.error[(group >= 0) & np.append(blocked, False)[group]] = _AMBIGUOUS

    def next_states(
        self, hpas: Sequence[HorizontalPodAutoscaler], rest: Sequence[HPAState], problems: Mapping[int, Exception]
    ) -> list[HPAState]:
        """What is not kept as columns of the states, afterwards."""
        out = list(rest)
        plain: dict[str, HPAState] = {}
        for row, group in enumerate(self.group.tolist()):
            state = out[row]
            if (state.written is None and (group < 0 or state.selector == self.texts[row])) or row in problems:
                continue
            written = state.written
            if written is not None and written.uid == hpas[row].metadata.uid:
                written = None
            selector = state.selector if group < 0 or self.legacy else self.texts[row]
            if written is None and state.registered:
                found = plain.get(selector or "") if selector is not None else None
                if found is None:
                    found = HPAState(selector=selector)
                    if selector is not None:
                        plain[selector] = found
                out[row] = found
            else:
                out[row] = HPAState(selector=selector, registered=state.registered, written=written)
        return out
