"""Kind ``removal``: everything is compared."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import kscale
from golden_support import world
from kscale import ca
from kscale.objects.times import to_datetime

_TIMEOUT = "blocking_system_pod_disruption_timeout_s"


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    options = {name: value for name, value in (inputs.get("options") or {}).items() if value is not None}
    persist, charge = options.pop("persist", True), options.pop("charge_pdbs", True)
    if _TIMEOUT in options:
        options["blocking_system_pod_distruption_timeout"] = timedelta(seconds=options.pop(_TIMEOUT))
    upcoming = inputs.get("upcoming_nodes") or []
    late = [item for item in inputs["objects"] if item["kind"] == "Node" and item["metadata"]["name"] in upcoming]
    snapshot = world([item for item in inputs["objects"] if item not in late] + late, {})
    state = kscale.PlaceState(
        cursor=inputs.get("last_index") or 0, hints=inputs.get("hints") or {}, old_hints=inputs.get("old_hints") or {}
    )

    def start(now: str, state: kscale.PlaceState) -> ca.RemovalSimulator:
        return ca.RemovalSimulator(
            snapshot,
            now=to_datetime(now),
            options=ca.AutoscalingOptions(**options),
            listers=ca.Listers(snapshot.informers.workloads),
            pdbs=ca.RemainingPdbTracker(snapshot.informers.budgets),
            state=state,
        )

    def run(step: dict[str, Any]) -> dict[str, Any]:
        destinations = step.get("destinations")
        if destinations is None:
            destinations = [name for name in snapshot.nodes if name not in upcoming]
        return _answer(simulator.run(step["candidates"], destinations, persist=persist, charge_pdbs=charge))

    simulator = start(inputs["now"], state)
    got = run(inputs)
    if inputs.get("more_passes"):
        got["more_passes"] = []
    for step in inputs.get("more_passes") or []:
        if step.get("drop_old_hints") is not False:
            simulator.drop_old_hints()
        if step.get("reload") is not False:
            simulator = start(step["now"], simulator.state)
        else:
            simulator.set_time(to_datetime(step["now"]))
        got["more_passes"].append(run(step))
    assert got == want


def _answer(result: ca.RemovalResult) -> dict[str, Any]:
    return {
        "removable": [
            {
                "node": item.node,
                "pods_to_reschedule": item.pods_to_reschedule,
                "daemonset_pods": item.daemon_set_pods,
                "on_completion_pods": item.on_completion_pods,
                "is_risky": item.risky,
                "placement": item.placement,
            }
            for item in result.removable
        ],
        "unremovable": [
            {
                "node": item.node,
                "reason": item.reason,
                "blocking_pod": item.blocking_pod
                and {"pod": item.blocking_pod.pod, "reason": item.blocking_pod.reason},
            }
            for item in result.unremovable
        ],
        "hints": result.state.hints,
        "old_hints": result.state.old_hints,
        "last_index": result.state.cursor,
        "remaining_pdbs": [
            {"pdb": pdb.key, "disruptions_allowed": pdb.disruptions_allowed} for pdb in result.pdbs.pdbs
        ],
    }
