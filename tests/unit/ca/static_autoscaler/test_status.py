"""The status that a loop shows, and where it is written."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from builders import N0, node, span
from kscale.ca.cluster_state import (
    ClusterStateRegistry,
    build_cluster_status,
    build_initializing_status,
    register_scale_up,
    update_nodes,
    update_scale_down_candidates,
)
from kscale.ca.cluster_state.health import truncate_message
from kscale.ca.options import AutoscalingOptions
from kscale.ca.status_config_map import LAST_UPDATED_ANNOTATION, format_go_time, format_status, write_status_config_map
from kscale.effects import ApiError, Create, Get, Patch, Progress
from kscale.objects.api.core import ConfigMap
from kscale.objects.nodegroup import Groups, NodeGroup
from performing import performed

MINUTE = span(minutes=1)
OPTIONS = AutoscalingOptions(ok_total_unready_count=1, max_total_unready_percentage=10)
GROUPS = Groups(
    [
        NodeGroup(id="g1", max_size=10, target_size=1, nodes=["g1-1"], instances=["g1-1"]),
        NodeGroup(id="g2", max_size=10, target_size=1, nodes=["g2-1"], instances=["g2-1"]),
        NodeGroup(id="made", upcoming=True, target_size=1),
    ]
)
NODES = [node("g1-1", 1000, 1000, ready=True), node("g2-1", 1000, 1000, ready=True)]


def updated(now: int, state: ClusterStateRegistry | None = None, groups: Groups = GROUPS) -> ClusterStateRegistry:
    return update_nodes(state or ClusterStateRegistry(), NODES, groups, now=now, options=OPTIONS).state


def conditions(status: Any) -> list[tuple[Any, ...]]:
    return [
        (each.name, each.health.status, each.scale_up.status, each.scale_down.status) for each in status.node_groups
    ]


def test_candidates() -> None:
    state = update_scale_down_candidates(updated(N0), ["g1-1", "nobody's"], GROUPS, N0)
    status = build_cluster_status(state, GROUPS, now=N0, options=OPTIONS)
    assert conditions(status) == [
        ("g1", "Healthy", "NoActivity", "CandidatesPresent"),
        ("g2", "Healthy", "NoActivity", "NoCandidates"),
    ]
    cluster_wide = status.cluster_wide
    assert (cluster_wide.health.status, cluster_wide.scale_up.status, cluster_wide.scale_down.status) == (
        "Healthy", "NoActivity", "CandidatesPresent",
    )  # fmt: skip
    assert cluster_wide.scale_down.candidates == 1


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    state = updated(N0)
    first = build_cluster_status(state, GROUPS, now=N0, options=OPTIONS)
    grown = GROUPS.with_targets({"g1": 3})
    state = register_scale_up(replace(state, last_status=first), grown["g1"], 2, N0 + MINUTE, OPTIONS)
    state = updated(N0 + MINUTE, state, grown)
    second = build_cluster_status(state, grown, now=N0 + MINUTE, options=OPTIONS)
    assert isinstance(second.node_groups, list)
    one, two = second.node_groups
    assert (one.scale_up.status, one.scale_up.last_transition_time) == ("InProgress", "2020-12-18T17:01:00Z")
    assert (two.scale_up.status, two.scale_up.last_transition_time) == ("NoActivity", "2020-12-18T17:00:00Z")
    assert two.scale_up.last_probe_time == "2020-12-18T17:01:00Z"
    assert second.cluster_wide.scale_up.status == "InProgress"
    saved = msgspec.json.decode(msgspec.json.encode(second), type=type(second))
    assert saved == second


def test_backoff_status_has_the_error() -> None:
    options = replace(OPTIONS, max_node_provision_time=timedelta(minutes=1))
    grown = GROUPS.with_targets({"g1": 3})
    state = register_scale_up(updated(N0), grown["g1"], 2, N0, options)
    state = update_nodes(state, NODES, grown, now=N0 + 2 * MINUTE, options=options).state
    lowered = GROUPS
    state = update_nodes(state, NODES, lowered, now=N0 + 2 * MINUTE, options=options).state
    status = build_cluster_status(state, lowered, now=N0 + 2 * MINUTE, options=options)
    assert isinstance(status.node_groups, list)
    scale_up = status.node_groups[0].scale_up
    assert scale_up.status == "Backoff"
    assert scale_up.backoff_info.error_code == "timeout"
    assert scale_up.backoff_info.error_message == "Scale-up timed out for node group g1 after 2m0s"


@pytest.mark.parametrize(
    ("text", "most", "want"),
    [
        ("Some message", 12, "Some message"),
        ("Some long message", 16, "Some <truncated>"),
        ("msg", 3, "msg"),
        ("msg", 2, "ms"),
        ("\N{GREEK SMALL LETTER ALPHA}" * 9, 12, "<truncated>"),
    ],
)
def test_truncated(text: str, most: int, want: str) -> None:
    assert truncate_message(text, most) == want


def test_the_text_is_yaml_with_sorted_keys() -> None:
    status = build_cluster_status(updated(N0), GROUPS, now=N0, options=OPTIONS)
    text = format_status(status, N0 + 120)
    result = yaml.safe_load(text)
    assert result == {"time": "2020-12-18 17:00:00.00000012 +0000 UTC", **msgspec.to_builtins(status)}
    assert [line.partition(":")[0] for line in text.splitlines() if line[0] not in " -"] == sorted(result)
    assert result["nodeGroups"][0]["scaleUp"]["backoffInfo"] == {}
    assert "candidates" not in result["clusterWide"]["scaleDown"]
    early = yaml.safe_load(format_status(build_initializing_status("Cluster has no nodes."), N0))
    assert (early["autoscalerStatus"], early["message"]) == ("Initializing", "Cluster has no nodes.")
    assert early["clusterWide"]["health"]["lastProbeTime"] is None
    assert "nodeGroups" not in early


def test_config_map_is_created_or_updated() -> None:
    status = build_initializing_status()
    name = {"kind": "ConfigMap", "namespace": "kube-system", "name": "cluster-autoscaler-status"}

    def written(answers: dict[type, Any]) -> tuple[list[Any], str | None]:
        ran = performed(
            write_status_config_map(Progress(N0), format_status(status, N0), OPTIONS, N0),
            lambda action: answers.get(type(action)),
            now=N0,
        )
        return ran.actions, ran.value

    actions, problem = written({Get: ApiError("gone", reason="NotFound")})
    assert problem is None
    created = actions[1].object
    assert isinstance(actions[1], Create)
    assert created.metadata.annotations == {LAST_UPDATED_ANNOTATION: format_go_time(N0)}
    assert created.data == {"status": format_status(status, N0)}
    actions, problem = written({Get: ConfigMap()})
    assert problem is None
    patch = {
        "metadata": {"annotations": {LAST_UPDATED_ANNOTATION: format_go_time(N0)}},
        "data": {"status": format_status(status, N0)},
    }
    assert actions[1] == Patch(**name, patch=patch)
    assert written({Get: ApiError("no")})[1] == "Failed to retrieve status configmap for update: no"
    assert written({Get: ConfigMap(), Patch: ApiError("no")})[1] == "Failed to write status configmap: no"
