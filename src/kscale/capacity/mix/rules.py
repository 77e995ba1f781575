"""Which pods exclude each other on one node, as limits on sums: at most so many of these classes, with weights.

What predicates say about pairs of pods on one node becomes knapsack rows: host ports and required anti-affinity exactly
(a *rule* that every plan obeys, so that a bound may use it), spread over nodes as something that is enough for it
(``strict``: a plan uses it, a bound does not).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kscale.objects.selectors import SelectorError
from kscale.scheduling.context import Context
from kscale.scheduling.facts import HOSTNAME
from kscale.scheduling.plugins.inter_pod_affinity import Term, carried_terms
from kscale.scheduling.plugins.pod_topology_spread import hard_constraints
from kscale.snapshot.interner import PodClass

__all__ = ["Rule", "rules_of"]

_ANY = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class Rule:
    """On one node: the sum of ``weights`` (class -> weight of one pod) is at most ``most``."""

    weights: dict[int, int]
    most: int
    strict: bool = False


def rules_of(classes: Sequence[PodClass], counts: Sequence[int], ctx: Context) -> list[Rule]:
    """The rules among classes of pods, of which there are ``counts``."""
    rules = [*_ports(classes), *_anti_affinity(classes, ctx)]
    apart = max((sum(counts[c] for c in rule.weights) for rule in rules if rule.most == 1), default=0)
    return rules + _spread(classes, counts, ctx, apart)


def _ports(classes: Sequence[PodClass]) -> list[Rule]:
    """One rule for each port on each address; a pod that wants it on every address counts for all of them."""
    users: dict[tuple[str, int], dict[str, list[int]]] = {}
    for c, pod in enumerate(classes):
        for ip, protocol, port in pod.ports:
            users.setdefault((protocol, port), {}).setdefault(ip, []).append(c)
    rules = []
    for by_address in users.values():
        everywhere = by_address.pop(_ANY, [])
        rules += [Rule(dict.fromkeys([*everywhere, *members], 1), 1) for members in by_address.values() or [[]]]
    return rules


def _anti_affinity(classes: Sequence[PodClass], ctx: Context) -> list[Rule]:
    """One rule for each term with the host name as key whose carriers are meant by it themselves."""
    carriers: dict[Term, list[int]] = {}
    for c, pod in enumerate(classes):
        for term in carried_terms(pod):
            if term.key == HOSTNAME:
                carriers.setdefault(term, []).append(c)
    rules = []
    for term, carrying in carriers.items():
        meant = {c for c, pod in enumerate(classes) if term.means(pod, ctx.namespace_labels(pod.namespace))}
        own = [c for c in carrying if c in meant]
        if not own:
            continue
        others = meant - set(carrying)
        # One carrier fills the whole; the others, as many of them as a node may ever hold, only a part each.
        whole = 1 << 20 if others else 1
        rules.append(Rule({**dict.fromkeys(own, whole), **dict.fromkeys(sorted(others), 1)}, whole))
    return rules


def _spread(classes: Sequence[PodClass], counts: Sequence[int], ctx: Context, apart: int) -> list[Rule]:
    """For each hard constraint over host names: no more of the pods that have such constraints, and count for it, than
    its skew. Enough as long as they are placed before other pods, and some node has none.

    ``apart``: pods that cannot share a node anyway. Where there are no more with constraints than that, one for each
    node is enough for all constraints, and one rule does.
    """
    rows: dict[object, tuple[int, list[int]]] = {}
    carriers: list[int] = []
    for c, pod in enumerate(classes):
        try:
            constraints = hard_constraints(pod, ctx)
        except SelectorError:
            continue
        mine = [each for each in constraints if each.row.key == HOSTNAME]
        if mine:
            carriers.append(c)
        for each in mine:
            skew, _ = rows.get(each.row, (each.max_skew, []))
            rows[each.row] = min(skew, each.max_skew), []
    if not carriers:
        return []
    if len(rows) > 1 and sum(counts[c] for c in carriers) <= apart:
        return [Rule(dict.fromkeys(carriers, 1), 1, strict=True)]
    rules = []
    for row, (skew, _) in rows.items():
        members = [c for c in carriers if row.counts(classes[c])]  # type: ignore[attr-defined]  # a SpreadRow
        if members:
            rules.append(Rule(dict.fromkeys(members, 1), skew, strict=True))
    return rules
