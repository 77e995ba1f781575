"""Rules by which the autoscalers of 2018 to 2020 decide otherwise than today's, each with both sources."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["RULES", "ReleaseRule"]


class ReleaseRule(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A rule that changed, by its name (``id``): what a program did then (``legacy``) and does now (``current``).

    ``legacy_source``, ``current_source``: upstream's files and functions that say so.
    """

    id: str
    legacy: str
    current: str
    legacy_source: str
    current_source: str


_OLD_LOOP: Final = "cluster-autoscaler 1.3: core/static_autoscaler.go RunOnce"
_NEW_LOOP: Final = "core/static_autoscaler.go RunOnce"


def _rule(name: str, legacy: str, current: str, legacy_source: str, current_source: str) -> ReleaseRule:
    return ReleaseRule(
        id=name, legacy=legacy, current=current, legacy_source=legacy_source, current_source=current_source
    )


RULES: Final = {
    rule.id: rule
    for rule in (
        _rule(
            "loop-start",
            "a loop starts one scan interval after the end of the last",
            "a loop starts as well when a pod becomes unschedulable, and at once after a loop that did something",
            "cluster-autoscaler 1.3: main.go run (time.After)",
            "loop/trigger.go LoopTrigger.Wait",
        ),
        _rule(
            "start-cooldown",
            "the cooldowns of scale-down begin when the process starts",
            "a process starts as if everything had happened an hour ago",
            "cluster-autoscaler 1.3: core/static_autoscaler.go NewStaticAutoscaler",
            "core/static_autoscaler.go NewStaticAutoscaler (initialScaleTime)",
        ),
        _rule(
            "scale-up-ends-loop",
            "a scale-up ends the loop: unneeded nodes are not looked at",
            "the loop goes on to its scale-down, in which the cooldown holds nodes back",
            _OLD_LOOP,
            _NEW_LOOP,
        ),
        _rule(
            "schedulable-pods",
            "a pending pod that fits a node forbids scale-down in this loop",
            "such pods are placed in the simulation, and scale-down goes on without the room they take",
            f"{_OLD_LOOP} (scaleDownForbidden)",
            "core/podlistprocessor/filter_out_schedulable.go",
        ),
        _rule(
            "delete-after-delete",
            "after empty nodes were deleted, scale-down waits for ten seconds (--scale-down-delay-after-delete)",
            "it does not wait",
            "cluster-autoscaler 1.3: main.go scaleDownDelayAfterDelete",
            "config/flags/flags.go scale-down-delay-after-delete",
        ),
        _rule(
            "one-drain",
            "one node is drained at a time, and no other node is deleted meanwhile",
            "empty nodes and nodes with pods are deleted side by side, within budgets",
            "cluster-autoscaler 1.3: core/scale_down.go TryToScaleDown",
            "core/scaledown/actuation/actuator.go StartDeletion",
        ),
        _rule(
            "delete-delay",
            "a node is deleted right after it was tainted",
            "a node is deleted five seconds after it was tainted (--node-delete-delay-after-taint)",
            "cluster-autoscaler 1.3: core/scale_down.go scheduleDeleteEmptyNodes",
            "core/scaledown/actuation/actuator.go deleteAsyncEmpty",
        ),
        _rule(
            "candidate-taints",
            "unneeded nodes carry no mark",
            "unneeded nodes carry a soft taint, DeletionCandidateOfClusterAutoscaler",
            _OLD_LOOP,
            "core/scaledown/actuation/softtaint.go UpdateSoftDeletionTaints",
        ),
        _rule(
            "unregistered-ends-loop",
            "machines that did not register are removed one by one, and their removal ends the loop",
            "they are removed group by group, and the loop goes on",
            "cluster-autoscaler 1.3: core/utils.go removeOldUnregisteredNodes",
            "core/static_autoscaler.go removeOldUnregisteredNodes",
        ),
        _rule(
            "health-formula",
            "machines that should long have registered count as unready",
            "only nodes that are unready count",
            "cluster-autoscaler 1.3: clusterstate/clusterstate.go IsClusterHealthy",
            "clusterstate/clusterstate.go IsClusterHealthy",
        ),
        _rule(
            "expander",
            "a random option by default (--expander=random)",
            "the option that wastes least by default (--expander=least-waste)",
            "cluster-autoscaler 1.3: main.go expanderFlag",
            "config/flags/flags.go expander",
        ),
        _rule(
            "estimator",
            "--estimator=basic sums requests; binpacking packs each pod first fit, nodes that are coming counted first",
            "binpacking alone: like pods are packed together, within limits of nodes and time",
            "cluster-autoscaler 1.3: estimator/basic_estimator.go, estimator/binpacking_estimator.go",
            "estimator/binpacking_estimator.go",
        ),
        _rule(
            "first-period",
            "a new HPA waits for one sync period",
            "a new HPA is reconciled at once",
            "kubernetes 1.20: pkg/controller/podautoscaler/horizontal.go enqueueHPA (AddRateLimited)",
            "pkg/controller/podautoscaler/horizontal.go enqueueHPA",
        ),
        _rule(
            "replica-calculator",
            "one tolerance by its distance from 1; missing pods at 100 % of their request; averages take any count",
            "a tolerance by direction; missing pods at their target where it is more; counts are checked",
            "kubernetes 1.20: pkg/controller/podautoscaler/replica_calculator.go",
            "pkg/controller/podautoscaler/replica_calculator.go",
        ),
        _rule(
            "admission-status",
            "pods are evicted whether the admission controller lives or not",
            "nothing is evicted unless the lease of the admission controller is fresh",
            "vertical-pod-autoscaler of 2020: pkg/updater/logic/updater.go RunOnce",
            "pkg/updater/logic/updater.go RunOnce (statusValidator)",
        ),
        _rule(
            "in-place",
            "pods are evicted in the modes Recreate and Auto; other modes are left alone",
            "pods are resized in place in the modes InPlaceOrRecreate and InPlace",
            "vertical-pod-autoscaler of 2020: pkg/updater/logic/updater.go RunOnce",
            "pkg/updater/logic/updater.go RunOnce",
        ),
        _rule(
            "empty-cluster",
            "a cluster without nodes, or without ready nodes, ends the loop: no group grows",
            "groups grow from such a cluster, too (--scale-up-from-zero=true)",
            "cluster-autoscaler 1.3: core/static_autoscaler.go RunOnce (actOnEmptyCluster)",
            "processors/actionablecluster/actionable_cluster_processor.go ShouldAbort",
        ),
        _rule(
            "expendable-cutoff",
            "pods of a priority below 0 get no nodes and keep none (--expendable-pods-priority-cutoff=0)",
            "only pods of a priority below -10 do not count (--expendable-pods-priority-cutoff=-10)",
            "cluster-autoscaler 1.3: main.go expendablePodsPriorityCutoff",
            "config/flags/flags.go expendable-pods-priority-cutoff",
        ),
        _rule(
            "utilization-threshold",
            "a node is underutilized below --scale-down-utilization-threshold",
            "a node is underutilized at the threshold, too",
            "cluster-autoscaler 1.3: core/scale_down.go UpdateUnneededNodes",
            "core/scaledown/eligibility/eligibility.go",
        ),
        _rule(
            "daemonset-eviction",
            "pods of DaemonSets are not evicted from a node that is drained",
            "they are evicted last (--daemonset-eviction-for-occupied-nodes=true)",
            "cluster-autoscaler 1.3: utils/drain/drain.go GetPodsForDeletionOnNodeDrain",
            "core/scaledown/actuation/drain.go DrainNode",
        ),
        _rule(
            "ambiguous-selector",
            "HPAs whose targets select the same pods all scale, each by all of the pods",
            "none of them scales (AmbiguousSelector)",
            "kubernetes 1.20: pkg/controller/podautoscaler/horizontal.go computeReplicasForMetrics",
            "pkg/controller/podautoscaler/horizontal.go validateAndParseSelector",
        ),
        _rule(
            "follows",
            "the cluster is another by then",
            "the cluster is another by then",
            "an earlier difference in this list",
            "an earlier difference in this list",
        ),
        _rule(
            "not-explained",
            "no report, no check and no run with a changed flag shows why",
            "no report, no check and no run with a changed flag shows why",
            "what both programs said is beside the row",
            "what both programs said is beside the row",
        ),
    )
}
"""The rules by their ids."""
