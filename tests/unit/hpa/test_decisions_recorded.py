"""All recorded first reconciles in one batch: decisions over columns equal upstream's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import golden_support
from kscale.effects import from_text, to_text
from kscale.hpa.batch.decisions import decide
from kscale.hpa.controller.scale_target import SelectorStore
from kscale.hpa.controller.state import ControllerState
from kscale.hpa.options import HPAOptions
from kscale.objects.api.core import Pod
from kscale.objects.decode import from_dict
from kscale.objects.kinds import RESTMapper


def test_recorded_first_steps() -> None:
    adapter: Any = golden_support.adapter("hpa-reconcile")
    decided = 0
    for case in golden_support.cases(golden_support.VECTORS, ["hpa-reconcile"]):
        inputs, step, want = case["input"], case["input"]["steps"][0], case["want"]["steps"][0]
        if step.get("errors"):
            continue  # a batch takes every action to succeed
        limits = inputs["options"]
        options = HPAOptions(
            horizontal_pod_autoscaler_tolerance=limits["tolerance"],
            horizontal_pod_autoscaler_downscale_stabilization=timedelta(seconds=limits["downscale_stabilization_s"]),
            horizontal_pod_autoscaler_cpu_initialization_period=timedelta(
                seconds=limits["cpu_initialization_period_s"]
            ),
            horizontal_pod_autoscaler_initial_readiness_delay=timedelta(seconds=limits["initial_readiness_delay_s"]),
            feature_gates=inputs.get("gates") or {},
        )
        hpa, state, store = adapter._stored(inputs["hpa"]), adapter._state(inputs.get("state")), SelectorStore()
        for other in inputs.get("other_hpas") or []:
            store.put_if_absent(other["namespace"], other["name"], other["selector"])
        world, key = adapter.World(step, 10), f"{hpa.metadata.namespace}/{hpa.metadata.name}"
        result = decide(
            [hpa],
            {key: world._scale()},
            [from_dict(pod, Pod) for pod in step.get("pods") or []],
            world._metric,
            selectors=store,
            options=options,
            state=ControllerState(hpas={key: state}),
            now=from_text(step["now"]),
            mapper=RESTMapper(adapter.SERVED),
        )
        assert (int(result.desired[0]) if result.rescaled[0] else None) == want["scale_update"], case["name"]
        remembered = result.state.get(key).recommendations or ()
        assert [{"replicas": each.replicas, "time": to_text(each.time)} for each in remembered] == want["state"][
            "recommendations"
        ], case["name"]
        decided += 1
    assert decided > 500
