"""Whether the machines of a MachineDeployment are being replaced by those of a newer kind (upstream:
``IsMachineDeploymentAndRollingOut`` of ``cloudprovider/clusterapi``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kscale.objects.cluster_api import MachineDeployment, MachineOwner, MachineSet
from kscale.objects.selectors import parse_int64

__all__ = ["MachineSets"]

_DEPLOYMENT: Final = "cluster.x-k8s.io/deployment-name"
_REVISION: Final = "machinedeployment.clusters.x-k8s.io/revision"


class MachineSets:
    """The MachineSets of deployments, found by namespace and label as upstream finds them: not by their owners, and
    whatever the API group is called."""

    def __init__(self, owners: Iterable[MachineOwner]) -> None:
        self._of: dict[tuple[str, str], list[MachineSet]] = {}
        for each in owners:
            name = (each.metadata.labels or {}).get(_DEPLOYMENT)
            if isinstance(each, MachineSet) and name is not None:
                self._of.setdefault((each.namespace, name), []).append(each)

    def rolling_out(self, owner: MachineOwner) -> bool:
        """Whether some set of the owner, a MachineDeployment, still has or wants machines although there is one of a
        later revision; no other owner rolls out. Sets without a revision are old.

        Raises ValueError for a revision that is no int64.
        """
        if not isinstance(owner, MachineDeployment):
            return False
        sets = self._of.get((owner.namespace, owner.name), [])
        told = [(each.metadata.annotations or {}).get(_REVISION) for each in sets]
        newest = str(max((_number(each, text) for each, text in zip(sets, told, strict=True)), default=0))
        return any(
            text != newest and ((each.spec.replicas or 0) > 0 or (each.status.replicas or 0) > 0)
            for each, text in zip(sets, told, strict=True)
        )


def _number(each: MachineSet, revision: str | None) -> int:
    """At least 0, which is also what none counts as."""
    if revision is None:
        return 0
    found = parse_int64(revision)
    if found is None:
        raise ValueError(
            f"failed to parse current revision on MachineSet {each.namespace}/{each.name}: {revision!r} is no int64"
        )
    return max(0, found)
