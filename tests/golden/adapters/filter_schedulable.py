"""`filter-schedulable`: kscale.ca.filter_out_schedulable, round by round. Nothing is left out."""

from __future__ import annotations

from typing import Any

import kscale
from golden_support import profile_of, world

_WORKLOAD = ("Node", "Pod")


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    options = inputs.get("options", {})
    informed: list[dict[str, Any]] = []
    present: list[dict[str, Any]] = []
    state = kscale.PlaceState(cursor=options.get("cursor", 0))
    for i, (step, expected) in enumerate(zip(inputs["rounds"], want["rounds"], strict=True)):
        if "objects" in step:
            present = [item for item in step["objects"] if item["kind"] in _WORKLOAD]
            if i == 0:
                informed = [item for item in step["objects"] if item["kind"] not in _WORKLOAD]
        result = kscale.ca.filter_out_schedulable(
            world(present + informed, options),
            step["pods"],
            state=state,
            profile=profile_of(options),
            unacceptable_nodes=step.get("unacceptable_nodes", ()),
            max_looks=step.get("max_looks"),
        )
        state = result.state
        got = {
            "unschedulable": result.unschedulable,
            "placement": result.placed,
            "placed_in_order": result.placed_in_order,
            "cursor": state.cursor,
        }
        assert got == {key: value for key, value in expected.items() if key != "error"}
