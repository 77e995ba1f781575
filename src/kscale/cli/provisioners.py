"""The option ``--provisioner``: the program whose rule decides where new nodes come from."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from kscale.capacity.karpenter.plan import PoolOffers
    from kscale.cli.groups import GroupSource

__all__ = ["Provisioner", "chosen_offers", "refuse_autoscaler_options"]

_HINT = "--provisioner"


class Provisioner(StrEnum):
    """Programs that add and remove nodes."""

    CLUSTER_AUTOSCALER = "cluster-autoscaler"
    KARPENTER = "karpenter"


def chosen_offers(groups: GroupSource, provisioner: Provisioner | None) -> PoolOffers | None:
    """Return the NodePools if Karpenter's rule decides: they are the groups, and no other rule was chosen.

    Call it after the groups were read. Raises BadParameter if Karpenter was chosen without NodePools.
    """
    if groups.node_pools is None or groups.pool_groups is None:
        if provisioner is Provisioner.KARPENTER:
            raise typer.BadParameter("karpenter needs NodePools: -g FILE --catalogue NAME", param_hint=_HINT)
        return None
    if provisioner is Provisioner.CLUSTER_AUTOSCALER:
        return None
    from kscale.capacity.karpenter.plan import PoolOffers

    return PoolOffers(groups.node_pools, groups.pool_groups)


def refuse_autoscaler_options(options: Sequence[tuple[str, Any]]) -> None:
    """Raise BadParameter if an option of the Cluster Autoscaler is set although Karpenter's rule decides."""
    for option, value in options:
        if value:
            text = "is an option of the Cluster Autoscaler, and Karpenter's rule decides for NodePools"
            raise typer.BadParameter(f"{text} (--provisioner cluster-autoscaler)", param_hint=option)
