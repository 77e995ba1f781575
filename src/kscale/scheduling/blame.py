"""Which constraint or term says no, in which domain, by which counts, and because of whose pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscale.scheduling.devices.allocator import AllocationError
from kscale.scheduling.devices.claims import to_allocate, wanted
from kscale.scheduling.plugins.inter_pod_affinity import Term
from kscale.scheduling.plugins.node_volume_limits import limits
from kscale.scheduling.plugins.volume_restrictions import disks, exclusive_claims
from kscale.scheduling.session import Session
from kscale.scheduling.volumes import claim_names
from kscale.snapshot.interner import PodClass

__all__ = ["MOST_PODS", "blame"]

MOST_PODS = 5
"""So many pods are named; ``matching`` counts all."""

_PORTS, _DISKS, _LIMITS, _SPREAD, _INTER_POD, _DEVICES = 5, 7, 8, 11, 12, 13
_DISK_CONFLICT = 1
_MISSING_KEY, _AFFINITY, _OWN_ANTI, _EXISTING_ANTI = 2, 1, 2, 3


def blame(
    session: Session, ordinal: int, detail: int, which: int, pod: PodClass, node: int
) -> tuple[dict[str, Any], ...]:
    """Numbers behind a no of a plug-in that looks at other pods or at devices; empty for other plug-ins.

    Ports: ``port`` and the ``pods`` of the node that have it. Disks: ``disk`` or ``claim``, and the ``pods`` that use
    it.
    Limits: ``driver`` and its ``limit``. Devices: for each ``request`` of an open ``claim`` how many devices are
    ``wanted`` and how many of the node's are ``free`` (tainted ones and those in use are not).
    Spread: ``constraint`` (position among the hard ones), ``topologyKey``, ``domain``, ``matching`` pods there,
    ``self``, ``minimum``, ``maxSkew``. Affinity: ``rule``, ``term``, ``topologyKey``, ``domain``, ``matching``,
    ``pods`` (the first few).
    """
    if ordinal == _PORTS:
        return tuple(_ports(session, pod, node))
    if ordinal == _DISKS:
        return tuple(_disks(session, detail, pod, node))
    if ordinal == _DEVICES:
        return tuple(_devices(session, pod, node))
    if which < 0:
        return ()
    if ordinal == _LIMITS:
        return (_limit(session, which, node),)
    if ordinal == _SPREAD:
        return (_spread(session, detail, which, pod, node),)
    if ordinal == _INTER_POD:
        return (_inter_pod(session, detail, which, pod, node),)
    return ()


def _pods_on(session: Session, node: int, means: Callable[[PodClass], bool]) -> list[str]:
    """The pods of a node that are meant, in order of appearance."""
    snapshot = session.snapshot
    rows = np.flatnonzero(snapshot.placed_node == node).tolist()
    classes = snapshot.interner.classes
    return [snapshot.pods[row] for row in rows if means(classes[int(snapshot.placed_class[row])])]


def _ports(session: Session, pod: PodClass, node: int) -> Iterator[dict[str, Any]]:
    for ip, protocol, port in pod.ports:

        def clashes(other: PodClass, ip: str = ip, protocol: str = protocol, port: int = port) -> bool:
            return any(
                (taken[1], taken[2]) == (protocol, port) and (ip == taken[0] or "0.0.0.0" in (ip, taken[0]))
                for taken in other.ports
            )

        pods = _pods_on(session, node, clashes)
        if pods:
            yield {"port": f"{protocol} {ip}:{port}", "pods": pods[:MOST_PODS]}


def _disks(session: Session, detail: int, pod: PodClass, node: int) -> Iterator[dict[str, Any]]:
    if detail == _DISK_CONFLICT:
        for identity, read_only in disks(pod):

            def uses(other: PodClass, identity: tuple[str, ...] = identity, read_only: bool = read_only) -> bool:
                return any(of == identity and not (read_only and only) for of, only in disks(other))

            pods = _pods_on(session, node, uses)
            if pods:
                yield {"disk": "/".join(identity), "pods": pods[:MOST_PODS]}
        return
    snapshot = session.snapshot
    for name in exclusive_claims(pod, session.ctx):
        users = [
            key
            for key, of in zip(snapshot.pods, snapshot.placed_class.tolist(), strict=False)
            if snapshot.interner.classes[of].namespace == pod.namespace
            and any(used == name and not ephemeral for used, ephemeral in claim_names(snapshot.interner.classes[of]))
        ]
        if users:
            yield {"claim": f"{pod.namespace}/{name}", "pods": users[:MOST_PODS]}


def _limit(session: Session, which: int, node: int) -> dict[str, Any]:
    driver = session.driver(which)
    return {"driver": driver, "limit": limits(session.classes.facts(node).csi_node).get(driver)}


def _devices(session: Session, pod: PodClass, node: int) -> Iterator[dict[str, Any]]:
    ctx = session.ctx
    facts = session.classes.facts(node)
    offers = ctx.devices.offers(facts)
    for claim in to_allocate(wanted(pod, ctx), facts, ctx.informers.device_classes):
        for request in claim.spec.devices.requests:
            for exact in (request.exactly, *request.first_available):
                if exact is None:
                    continue
                try:
                    free = ctx.allocator.usable(claim, exact, offers)
                except AllocationError:
                    continue
                every = exact.allocation_mode == "All"
                yield {
                    "claim": claim.key if claim.namespace else "extended resources",
                    "request": request.name,
                    "deviceClass": exact.device_class_name,
                    "wanted": None if every else exact.count or 1,
                    "free": free,
                    "devices": len(offers),
                }


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
