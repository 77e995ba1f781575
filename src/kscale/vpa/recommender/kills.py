"""Kills for memory that strategies go by: of the pods that a VPA selects, also those that are gone."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from kscale.effects import Moment
from kscale.objects.core import Pod
from kscale.vpa.model import RecommenderState, Vpa
from kscale.vpa.model.pods import LabelSet
from kscale.vpa.model.usage import ContainerName
from kscale.vpa.oom import OutOfMemory, last_out_of_memory

__all__ = ["Kills"]


class _Kill(NamedTuple):
    time: Moment
    memory: int


class Kills:
    """What was seen of kills since the start. Single owner.

    They are kept by the labels that the pod had: a pod that was killed is often gone when it matters. Of the kills of
    one container with the same labels those are kept that no later one outdoes: the first is the greatest.
    """

    def __init__(self) -> None:
        self._by_container: dict[tuple[str, str], dict[str, tuple[LabelSet, list[_Kill]]]] = {}
        """(namespace, container) -> key of the label set."""
        self._seen: dict[ContainerName, Moment] = {}
        """The last kill of containers of pods that are there: a pod tells of it on and on, with what it requests by
        then."""

    def __len__(self) -> int:
        return sum(len(kills) for own in self._by_container.values() for _, kills in own.values())

    def notice(self, state: RecommenderState, pods: Iterable[Pod], ooms: Iterable[OutOfMemory]) -> list[str]:
        """Kills, and pods that may tell of some, while ``state`` knows the pods; texts of what cannot be read come
        back."""
        problems: list[str] = []
        for one in sorted((*ooms, *last_out_of_memory(pods, problems)), key=attrgetter("time")):
            namespace, pod, container = one.container
            known = state.pods.get((namespace, pod))
            seen = self._seen.get(one.container)
            if known is None or (seen is not None and one.time <= seen):
                continue
            self._seen[one.container] = one.time
            own = self._by_container.setdefault((namespace, container), {})
            _, kills = own.get(known.label_set.key, (None, []))
            own[known.label_set.key] = (known.label_set, _with(kills, _Kill(one.time, one.memory)))
        return problems

    def forget(self, state: RecommenderState, before: Moment) -> None:
        """Kills that are older, and those of pods that are gone and that no VPA selects."""
        self._seen = {name: at for name, at in self._seen.items() if name[:2] in state.pods}
        for where, own in list(self._by_container.items()):
            left = {}
            for key, (label_set, kills) in own.items():
                newer = [kill for kill in kills if kill.time >= before]
                if newer and (label_set.pods or state.is_selected(label_set.namespace, label_set.labels)):
                    left[key] = (label_set, newer)
            if left:
                self._by_container[where] = left
            else:
                del self._by_container[where]

    def most(self, vpa: Vpa, container: str) -> int:
        """Bytes of the greatest kill of a container of the pods that a VPA selects; 0: there was none."""
        own = self._by_container.get((vpa.namespace, container), {})
        return max(
            (kills[0].memory for label_set, kills in own.values() if vpa.selector.matches(label_set.labels)), default=0
        )


def _with(kills: list[_Kill], new: _Kill) -> list[_Kill]:
    """In order of time, which leaves memory in falling order."""
    kept = [kill for kill in kills if kill.time > new.time or kill.memory > new.memory]
    if any(kill.time > new.time and kill.memory >= new.memory for kill in kept):
        return kept
    return sorted((*kept, new))
