"""How the devices of ready nodes differ from those of templates: upstream's tables, as far as they are counted."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from builders import N0, node
from kscale import ca
from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.template_devices import compare_devices
from kscale.effects import SECOND
from kscale.objects.api.core import Node
from kscale.objects.api.resource import ResourceSlice
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.snapshot.cluster import Cluster


def _slice(
    pool: str, *devices: str, on: str = "", driver: str = "gpu", generation: int = 1, of: int = 1
) -> ResourceSlice:
    """A device is what its attributes are called, letter by letter."""
    spec: dict[str, Any] = {
        "driver": driver,
        "nodeName": on,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": of},
        "devices": [
            {"name": f"d{i}", "attributes": {name: {"string": f"{on}{i}"} for name in names}}
            for i, names in enumerate(devices)
        ],
    }
    created = from_dict(
        {"metadata": {"name": f"{driver}-{pool}-{on}-{generation}-{devices}"}, "spec": spec}, ResourceSlice
    )
    return replace(created, api_version="resource.k8s.io/v1", kind="ResourceSlice")


@pytest.mark.parametrize(
    ("template", "there", "differs"),
    [
        ([], [], {}),
        ([_slice("t", "ab", "ab")], [_slice("n", "ba", "ab")], {}),
        ([_slice("t", "ab", "ab")], [_slice("n", "ab")], {"gpu": {"mismatch": 1}}),
        ([_slice("t", "ab")], [_slice("n", "abc")], {"gpu": {"mismatch": 1}}),
        ([_slice("t", "a"), _slice("u", "a")], [_slice("n", "a")], {"gpu": {"missing": 1}}),
        ([_slice("t", "a")], [_slice("n", "a"), _slice("o", "b")], {"gpu": {"extra": 1}}),
        ([_slice("t", "a")], [_slice("n", "a", driver="nic")], {"gpu": {"missing": 1}, "nic": {"extra": 1}}),
        ([_slice("t", "a", "b")], [_slice("n", "a"), _slice("o", "b")], {}),
        ([_slice("t", "a", "b", "c")], [_slice("n", "a", "a")], {"gpu": {"mismatch": 1, "missing": 2}}),
        ([_slice("t", "a", of=2), _slice("t", "a", of=2)], [_slice("n", "a", "a")], {}),
        ([_slice("t", "a")], [_slice("n", "b", of=2)], {}),
        ([_slice("t", "a")], [_slice("n", "b", of=2), _slice("n", "b", generation=2, of=2)], {}),
        ([_slice("t", "a")], [_slice("n", "b"), _slice("o", "b", driver="nic", of=2)], {"gpu": {"mismatch": 1}}),
        ([_slice("t", "a", of=2)], [], {"gpu": {"missing": 1}}),
        ([_slice("t")], [], {}),
    ],
)
def test_missing_devices_are_counted_per_driver_and_type(
    template: list[ResourceSlice], there: list[ResourceSlice], differs: dict[str, Any]
) -> None:
    result = compare_devices(template, there)
    assert {driver: {type_: n for type_, n in counts.items() if n} for driver, counts in result.items()} == differs


def _machine(name: str, **metadata: Any) -> Node:
    return replace(node(name, 1000, 1000, ready=True, **metadata), api_version="v1", kind="Node")


def _counted(report: ca.LoopReport) -> dict[tuple[str, str], float]:
    name = "cluster_autoscaler_dra_node_template_resources_mismatch"
    return {
        (labels["driver"], labels["mismatch_type"]): each.value
        for each in report.observations
        if each.name == name and (labels := dict(each.labels))
    }


def test_loops_report_missing_devices_until_they_appear() -> None:
    group = NodeGroup(
        id="g",
        max_size=9,
        nodes=["a", "b", "bare", "late", "off"],
        template=NodeTemplate(node=_machine("t"), resource_slices=[_slice("t", "ab", "ab")]),
    )
    waits = {DEFAULT_GPU_LABEL: "t4"}
    machines = [
        *map(_machine, ("a", "b", "bare", "stranger")),
        _machine("late", labels=waits),
        replace(_machine("off"), spec=replace(_machine("off").spec, unschedulable=True)),
    ]
    odd = [_slice("p", "abc", on=name) for name in ("a", "stranger", "late", "off")]
    complete_slice = _slice("p", "ab", "ab", on="b")

    def loop(slices: list[ResourceSlice], state: ca.LoopState, number: int) -> ca.LoopReport:
        cluster = Cluster([*machines, *slices])
        options = ca.AutoscalingOptions(scale_down_enabled=False)
        return ca.run_once(
            cluster, [group], now=N0 + number * 10 * SECOND, options=options, state=replace(state, templates={})
        )

    first = loop([*odd, complete_slice], ca.LoopState(), 0)
    nothing = {("gpu", type_): 0 for type_ in ("missing", "extra", "mismatch", "unknown")}
    assert _counted(first) == {**nothing, ("gpu", "mismatch"): 1}
    assert first.state.differing_drivers == ["gpu"]
    second = loop([complete_slice], ca.LoopState.from_json(first.state.to_json()), 1)
    assert _counted(second) == nothing
    third = loop([complete_slice], second.state, 2)
    assert (_counted(third), third.state.differing_drivers) == ({}, [])
