"""`karpenter`: nodes and node claims of pending pods. Left out: the order of claims, and texts of errors.

Upstream takes any of several equally good domains of a topology. kscale takes the one that upstream took, as far as the
answer tells; else the first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import kscale
from kscale import InputError
from kscale.capacity.catalogue import InstanceType
from kscale.capacity.group_templates import with_templates
from kscale.capacity.karpenter import groups_of_pools, node_pools_from
from kscale.capacity.karpenter.node_claim import OfferedPools, PlannedClaim
from kscale.capacity.karpenter.requirements import Requirement
from kscale.capacity.karpenter.scheduler import place_pods
from kscale.objects.quantity import Quantity


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    cluster = kscale.load(inputs["objects"])
    snapshot = cluster.snapshot()
    pools = node_pools_from(inputs["pools"])
    kinds = [_type(each) for each in inputs["types"]]
    nodes = snapshot.columns.objects
    if want["skipped"]:
        with pytest.raises(InputError, match="its requirements allow none"):
            groups_of_pools(pools, kinds, zones=inputs["zones"], nodes=nodes)
        return
    converted = groups_of_pools(pools, kinds, zones=inputs["zones"], nodes=nodes)
    offered = OfferedPools(pools, converted, with_templates(cluster, snapshot, converted.groups))
    taken_domains = _domains(want, nodes)
    names = snapshot.pending

    def choose(number: int, key: str, domains: Sequence[str]) -> str:
        return min(domains, key=lambda domain: (domain not in taken_domains.get((names[number], key), ()), domain))

    placement = place_pods(snapshot, names, offered, choose=choose)
    claims = sorted((_claim(claim) for claim in placement.claims), key=lambda claim: claim["pods"][0])
    errors = {
        pod: _classes([_class(reason.partition(": ")[2]) for reason in text.split("; ")])
        for pod, text in zip(placement.unschedulable, placement.reasons, strict=True)
    }
    filtered = len(want["filtered"])
    got = {"existing": placement.existing, "claims": claims, "errors": errors}
    expected = {
        "existing": want["existing"],
        "claims": want["claims"],
        "errors": {
            pod: _classes([*(each for each in classes if each != "no NodePool"), *["minValues"] * filtered])
            for pod, classes in want["errors"].items()
        },
    }
    assert got == expected


def _classes(classes: list[str]) -> list[str]:
    """Return what the NodePools' reasons are about. Upstream has an error for each taint, not for each NodePool."""
    return sorted([*(each for each in classes if each != "taints"), *{"taints"}.intersection(classes)])


def _type(fields: dict[str, Any]) -> InstanceType:
    return InstanceType(
        name=fields["name"],
        arch=fields["arch"],
        capacity={name: Quantity(amount) for name, amount in fields["capacity"].items()},
        allocatable={name: Quantity(amount) for name, amount in fields["allocatable"].items()},
        prices={"here": fields["price"]},
        spot_prices={} if fields["spot"] is None else {"here": fields["spot"]},
    )


def _domains(want: dict[str, Any], nodes: Sequence[Any]) -> dict[tuple[str, str], list[str]]:
    """Return the values of the labels of each pod's node, by pod and label."""
    result = {}
    for claim in want["claims"]:
        for pod in claim["pods"]:
            for key, requirement in claim["requirements"].items():
                if not requirement["complement"]:
                    result[pod, key] = requirement["values"]
    labels = {node.name: node.metadata.labels or {} for node in nodes}
    for pod, node in want["existing"].items():
        for key, value in labels[node].items():
            result[pod, key] = [value]
    return result


def _claim(claim: PlannedClaim) -> dict[str, Any]:
    cheapest: dict[str, float] = {}
    for each in claim.offerings:
        cheapest.setdefault(each.kind.name, each.price or 0.0)
    return {
        "pool": claim.pool,
        "pods": claim.pods,
        "types": sorted(claim.types),
        "requirements": {key: _requirement(each) for key, each in claim.requirements.items()},
        "capacity_type": claim.offerings[0].capacity_type,
        "offerings": [{"type": each.kind.name, "zone": each.zone, "price": each.price} for each in claim.offerings],
    }


def _requirement(each: Requirement) -> dict[str, Any]:
    return {
        "complement": each.complement,
        "values": sorted(each.values),
        "least": None if each.least is None else str(each.least),
        "most": None if each.most is None else str(each.most),
        "min_values": each.min_values,
    }


_CLASSES = {
    "does not tolerate": "taints",
    "conflict on": "requirements",
    "spread over or affinity": "topology",
    "its limits leave no node that": "types",
    "its limits leave no node": "limits",
    "minValues": "minValues",
    "its types cannot meet minValues": "minValues",
    "no type": "types",
    "its host ports": "types",
}


def _class(reason: str) -> str:
    return next(of for begin, of in _CLASSES.items() if reason.startswith(begin))
