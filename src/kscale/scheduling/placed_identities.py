"""Placed pods by what selectors see of a pod: namespace, labels and whether it is being deleted.

Counter rows ask many selectors about all placed pods. Hundreds of thousands of pods have thousands of identities, and a
selector that demands a label, or a namespace, has to look at few of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from kscale.objects.selectors import Selector
    from kscale.scheduling.plugins.inter_pod_affinity import Term
    from kscale.scheduling.plugins.pod_topology_spread import SpreadRow
    from kscale.snapshot.interner import PodClass
    from kscale.snapshot.snapshot import Snapshot

__all__ = ["PlacedIdentities"]


class PlacedIdentities:
    """``pods``: one class of each identity that some placed pod has; a position in it is an identity's number."""

    def __init__(self, snapshot: Snapshot) -> None:
        classes, starts, order = snapshot.by_class
        of_class = np.fromiter((pod.identity_id for pod in snapshot.placed_classes), np.int64, len(classes))
        identity = np.repeat(of_class, np.diff(starts))
        by_identity = np.argsort(identity, kind="stable")
        ids, first = np.unique(identity[by_identity], return_index=True)
        self.pods: list[PodClass] = [snapshot.interner.identities[i] for i in ids.tolist()]
        self._starts: list[int] = [*first.tolist(), len(identity)]
        self._nodes: NDArray[np.int32] = snapshot.placed_node[order[by_identity]]
        self._by_label: dict[tuple[str, str], list[int]] = {}
        self._by_namespace: dict[str, list[int]] = {}
        for number, pod in enumerate(self.pods):
            self._by_namespace.setdefault(pod.namespace, []).append(number)
            for item in (pod.labels or {}).items():
                self._by_label.setdefault(item, []).append(number)

    @classmethod
    def of(cls, snapshot: Snapshot) -> PlacedIdentities:
        """Those of a snapshot; made once."""
        return snapshot.memo.of(cls, lambda: cls(snapshot))

    def _candidates(self, selector: Selector) -> Sequence[int]:
        label = selector.exact_label()
        return range(len(self.pods)) if label is None else self._by_label.get(label, ())

    def counted(self, row: SpreadRow) -> list[int]:
        """The identities that a spread constraint counts."""
        inside = self._by_namespace.get(row.namespace, ())
        labelled = self._candidates(row.selector)
        fewer = labelled if len(labelled) < len(inside) else inside
        return [number for number in fewer if row.counts(self.pods[number])]

    def meant(self, terms: Sequence[Term]) -> list[int]:
        """The identities that every one of the terms means, whatever labels a namespace has."""
        fewest = min((self._candidates(term.selector) for term in terms), key=len)
        return [number for number in fewest if all(term.means(self.pods[number], None) for term in terms)]

    def nodes(self, numbers: Iterable[int]) -> NDArray[np.int32]:
        """The nodes of the placed pods of some identities, one entry a pod."""
        chosen = [self._nodes[self._starts[number] : self._starts[number + 1]] for number in numbers]
        return np.concatenate(chosen) if chosen else np.zeros(0, dtype=np.int32)
