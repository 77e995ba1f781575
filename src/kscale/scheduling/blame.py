"""Which constraint or term says no, in which domain, by which counts, and because of whose pods."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscale.scheduling.plugins.inter_pod_affinity import Term
from kscale.scheduling.session import Session
from kscale.snapshot.interner import PodClass

__all__ = ["MOST_PODS", "blame"]

MOST_PODS = 5
"""So many pods are named; ``matching`` counts all."""

_SPREAD, _INTER_POD = 11, 12
_MISSING_KEY, _AFFINITY, _OWN_ANTI, _EXISTING_ANTI = 2, 1, 2, 3


def blame(
    session: Session, ordinal: int, detail: int, which: int, pod: PodClass, node: int
) -> tuple[dict[str, Any], ...]:
    """Numbers behind a no of PodTopologySpread or InterPodAffinity; empty for other plug-ins.

    Spread: ``constraint`` (position among the hard ones), ``topologyKey``, ``domain``, ``matching`` pods there,
    ``self``, ``minimum``, ``maxSkew``. Affinity: ``rule``, ``term``, ``topologyKey``, ``domain``, ``matching``,
    ``pods`` (the first few).
    """
    if which < 0:
        return ()
    if ordinal == _SPREAD:
        return (_spread(session, detail, which, pod, node),)
    if ordinal == _INTER_POD:
        return (_inter_pod(session, detail, which, pod, node),)
    return ()


def _domain(session: Session, key: str, node: int) -> str | None:
    return session.classes.facts(node).labels.get(key)


def _spread(session: Session, detail: int, which: int, pod: PodClass, node: int) -> dict[str, Any]:
    constraint = session.counters.constraints[pod.index][which]
    key = constraint.row.key
    found: dict[str, Any] = {"constraint": which, "topologyKey": key, "domain": _domain(session, key, node)}
    if detail == _MISSING_KEY:
        return found
    row, number = session.counters.row(constraint.row)
    counts, registered, domains, least = row
    domain = session.engine.domain(number, node)
    known = domain < len(registered) and registered[domain] > 0
    return found | {
        "matching": int(counts[domain]) if known else 0,
        "self": int(constraint.self_match),
        "minimum": 0 if domains < constraint.min_domains else int(least),
        "maxSkew": constraint.max_skew,
    }


def _inter_pod(session: Session, detail: int, which: int, pod: PodClass, node: int) -> dict[str, Any]:
    near, apart = session.counters.terms.get(pod.index, ((), ()))
    if detail == _AFFINITY:
        keys = list(dict.fromkeys(term.key for term in near))
        key = keys[which]
        # A pod counts if it matches all terms of the pod's affinity list.
        pods = _placed(session, key, node, lambda other: all(term.means(other, None) for term in near))
        return {"rule": "affinity", "term": [term.key for term in near].index(key), **_where(session, key, node, pods)}
    if detail == _OWN_ANTI:
        term = apart[which]
        pods = _placed(session, term.key, node, lambda other: term.means(other, None))
        return {"rule": "anti-affinity", "term": which, **_where(session, term.key, node, pods)}
    blocker: Term = session.counters.blockers[pod.index][which]
    carriers = {session.snapshot.placed_classes[i].index for i in session.ctx.carried.get(blocker, ())}
    pods = _placed(session, blocker.key, node, lambda other: other.index in carriers)
    return {"rule": "anti-affinity of placed pods", "term": which, **_where(session, blocker.key, node, pods)}


def _where(session: Session, key: str, node: int, pods: list[str]) -> dict[str, Any]:
    return {
        "topologyKey": key,
        "domain": _domain(session, key, node),
        "matching": len(pods),
        "pods": pods[:MOST_PODS],
    }


def _placed(session: Session, key: str, node: int, means: Any) -> list[str]:
    """Placed pods that are meant and run in the node's domain, in order of appearance."""
    snapshot = session.snapshot
    ids = snapshot.columns.label(key).ids
    if ids[node] < 0:
        return []
    _, starts, order = snapshot.by_class
    chosen: list[NDArray[np.int64]] = []
    for i, other in enumerate(snapshot.placed_classes):
        if means(other):
            rows = order[starts[i] : starts[i + 1]]
            chosen.append(rows[ids[snapshot.placed_node[rows]] == ids[node]])
    names = snapshot.pods
    return [names[row] for row in np.sort(np.concatenate(chosen)).tolist()] if chosen else []
