"""What a loop asks when it is run as if everything succeeded: answered from the snapshot it began with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kscale.effects import Action, ApiError, Get, HasInstances, List, Respond
from kscale.effects.outcomes import NOT_FOUND
from kscale.snapshot.snapshot import Snapshot

__all__ = ["answering"]


def answering(snapshot: Snapshot, has_instance: Mapping[str, bool], others: Respond) -> Respond:
    """Answers from a snapshot: nodes and pods as they stand there, no ConfigMap, evicted pods gone at once."""

    def answer(action: Action) -> Any:
        match action:
            case HasInstances(nodes=names):
                return {name: has_instance[name] for name in names if name in has_instance}
            case Get(kind="Node", name=name) if name in snapshot.columns.index:
                return snapshot.columns.objects[snapshot.columns.index[name]]
            case Get(kind=kind, name=name):
                return ApiError(f'{kind.lower()} "{name}" not found', code=404, reason=NOT_FOUND)
            case List(kind="Pod", nodes=nodes) if nodes is not None:
                wanted = [snapshot.columns.index[name] for name in nodes if name in snapshot.columns.index]
                where = np.flatnonzero(np.isin(snapshot.placed_node, wanted)).tolist()
                return [snapshot.placed[at].pod for at in where]
            case List(kind="PodDisruptionBudget"):
                return snapshot.informers.budgets
            case List(kind=kind):
                return [each for each in snapshot.informers.workloads if type(each).__name__ == kind]
        return others(action)

    return answer
