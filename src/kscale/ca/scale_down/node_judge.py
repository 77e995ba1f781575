"""Which nodes of a snapshot are worth simulating: eligibility with sums that are worked out once for all nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kscale.ca.gpu import gpu_config
from kscale.ca.scale_down.eligibility import Eligibility, eligibility
from kscale.ca.scale_down.node_devices import claims_of, local_slices
from kscale.ca.scale_down.planner_input import PlannerInput
from kscale.ca.scale_down.removal import RemovalSimulator
from kscale.ca.scale_down.usage_columns import UsageColumns
from kscale.ca.scale_down.utilization import Usage
from kscale.objects.core import Pod
from kscale.objects.nodegroup import NodeGroupAutoscalingOptions
from kscale.objects.resource import ResourceSlice

__all__ = ["NodeJudge"]


class NodeJudge:
    """Verdicts of :func:`~.eligibility.eligibility` on nodes as they are when the judge is made.

    ``changed``: nodes that have other pods than the snapshot says; these are summed up pod by pod.
    """

    __slots__ = ("_changed", "_columns", "_given", "_gpu_label", "_index", "_simulator", "_skips_mirror", "_slices")

    def __init__(
        self, given: PlannerInput, simulator: RemovalSimulator, changed: Collection[str], gpu_label: str
    ) -> None:
        self._given = given
        self._simulator = simulator
        self._changed = changed
        self._gpu_label = gpu_label
        self._index = given.snapshot.columns.index
        self._columns = UsageColumns(simulator.pods, len(given.nodes), given.now)
        self._skips_mirror = given.options.ignore_mirror_pods_utilization
        self._slices: dict[str, list[ResourceSlice]] = {}
        if given.options.enable_dynamic_resource_allocation:
            self._slices = local_slices(given.snapshot)

    def judge(self, name: str, *, recently_unremovable: bool) -> Eligibility:
        """One node of the snapshot."""
        given, columns = self._given, self._columns
        n = self._index[name]
        node = given.nodes[n]
        slices = self._slices.get(name, ())
        gpu = gpu_config(self._gpu_label, node)
        summed = name not in self._changed and columns.knows(n)
        pods: Sequence[Pod] = ()
        if slices or gpu is not None or not summed:
            pods = self._simulator.pods_on(name)

        def sums(own: NodeGroupAutoscalingOptions) -> Usage | None:
            return columns.usage(
                n,
                skip_daemon_set_pods=own.ignore_daemonsets_utilization,
                skip_mirror_pods=self._skips_mirror,
            )

        return eligibility(
            node,
            pods,
            groups=given.groups,
            options=given.options,
            now_ns=given.now,
            gpu=gpu,
            recently_unremovable=recently_unremovable,
            dra_slices=slices,
            dra_claims=claims_of(pods, given.snapshot) if slices else (),
            sums=sums if summed else None,
        )
