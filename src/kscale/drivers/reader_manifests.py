"""What ``kscale`` needs in a cluster to answer questions about it (``--context``), as plain data: an account that may
read what is asked for, and nothing else."""

from __future__ import annotations

from typing import Final

from kscale.drivers.autoscaler_manifests import METRICS_RULES
from kscale.drivers.program_manifests import ApiObject, account_manifests, rule
from kscale.world.kubernetes.listing import READ
from kscale.world.kubernetes.resources import EVERYWHERE

__all__ = ["NAME", "reader_manifests", "reader_rules"]

NAME: Final = "kscale-reader"


def reader_rules() -> list[ApiObject]:
    """The rules for the whole cluster: kinds are listed; scales of HPAs' targets and metrics are asked for one by one.

    Discovery (``/api``, ``/apis``) is open to every account.
    """
    served = {each.kind: each for each in reversed(EVERYWHERE)}
    groups: dict[str, list[str]] = {}
    for kind in READ:
        groups.setdefault(served[kind].group, []).append(served[kind].name)
    lists = [rule(group, names, ["list"]) for group, names in groups.items()]
    return [*lists, rule("*", ["*/scale"], ["get"]), *METRICS_RULES]


def reader_manifests(namespace: str = "kube-system") -> list[ApiObject]:
    """The account in ``namespace``, its ClusterRole and the binding, in the order in which they are to be applied."""
    return account_manifests(NAME, reader_rules(), namespace=namespace, labels={"app.kubernetes.io/name": NAME})
