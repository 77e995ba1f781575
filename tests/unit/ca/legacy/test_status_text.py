"""The status of release 1.3: its words, and when it is written."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

import kscale
from builders import N0, at, node, template
from kscale import ca
from kscale.effects import SECOND, Create
from kscale.objects.api.core import Node
from kscale.objects.api.meta import Condition
from kscale.objects.nodegroup import NodeGroup

LEGACY = ca.AutoscalingOptions.for_profile("legacy", scale_down_unneeded_time=timedelta(minutes=10))
NOW = "2020-12-18 17:00:00 +0000 UTC"
SIZES = "cloudProviderTarget=3 (minSize=0, maxSize=10)"
NOBODY = "ready=0 unready=0 notStarted=0 longNotStarted=0 registered=0 longUnregistered=0"
LATER = "2020-12-18 17:00:10.5 +0000 UTC"


def _starting(name: str, created: str) -> Node:
    result = node(name, 1000, 1000, ready=False, creation_timestamp=created)
    result.status.conditions = [Condition(type="Ready", status="False", last_transition_time=created)]
    return result


def _loop(nodes: list[Node], now: int, state: ca.LoopState | None = None) -> ca.LoopReport:
    names = [each.metadata.name for each in nodes]
    groups = [
        NodeGroup(id="g", max_size=10, nodes=names, template=template(node("like", 1000, 1000))),
        NodeGroup(id="none", max_size=4, template=template(node("like", 1000, 1000))),
    ]
    return ca.run_once(kscale.Cluster(nodes), groups, now=now, options=LEGACY, state=state)


def _status_text(report: ca.LoopReport) -> str:
    [created] = [
        action.object for action in report.actions if isinstance(action, Create) if action.object.kind == "ConfigMap"
    ]
    return str(created.data["status"])


def test_words_and_moments() -> None:
    nodes = [node("n", 1000, 1000, ready=True), _starting("s", at(minutes=-5)), _starting("l", at(minutes=-50))]
    first = _loop(nodes, N0)
    assert (
        _status_text(first)
        == f"""Cluster-autoscaler status at {NOW}:
Cluster-wide:
  Health:      Healthy (ready=1 unready=0 notStarted=1 longNotStarted=1 registered=3 longUnregistered=0)
               LastProbeTime:      {NOW}
               LastTransitionTime: {NOW}
  ScaleUp:     NoActivity (ready=1 registered=3)
               LastProbeTime:      {NOW}
               LastTransitionTime: {NOW}
  ScaleDown:   CandidatesPresent (candidates=3)
               LastProbeTime:      {NOW}
               LastTransitionTime: {NOW}

NodeGroups:
  Name:        g
  Health:      Healthy (ready=1 unready=0 notStarted=1 longNotStarted=1 registered=3 longUnregistered=0 {SIZES})
               LastProbeTime:      {NOW}
               LastTransitionTime: {NOW}
  ScaleUp:     NoActivity (ready=1 cloudProviderTarget=3)
               LastProbeTime:      {NOW}
               LastTransitionTime: {NOW}
  ScaleDown:   CandidatesPresent (candidates=3)
               LastProbeTime:      {NOW}
               LastTransitionTime: {NOW}

  Name:        none
  Health:      Healthy ({NOBODY} cloudProviderTarget=0 (minSize=0, maxSize=4))
               LastProbeTime:      0001-01-01 00:00:00 +0000 UTC
               LastTransitionTime: 0001-01-01 00:00:00 +0000 UTC
  ScaleUp:     NoActivity (ready=0 cloudProviderTarget=0)
               LastProbeTime:      0001-01-01 00:00:00 +0000 UTC
               LastTransitionTime: 0001-01-01 00:00:00 +0000 UTC
  ScaleDown:   NoCandidates (candidates=0)
               LastProbeTime:      {NOW}
               LastTransitionTime: {NOW}

"""
    )
    second = _status_text(_loop(nodes, N0 + 10 * SECOND + SECOND // 2, first.state))
    assert f"LastProbeTime:      {LATER}\n               LastTransitionTime: {NOW}" in second
    assert f"status at {LATER}:" in second


def test_status_reports_a_loop_without_ready_nodes() -> None:
    report = _loop([_starting("s", at(minutes=-5))], N0)
    assert report.ended == "Cluster has no ready nodes."
    assert _status_text(report) == f"Cluster-autoscaler status at {NOW}:\nCluster has no ready nodes."
    assert report.status is None


def test_nothing_is_written_where_that_is_turned_off() -> None:
    quiet = replace(LEGACY, write_status_configmap=False)
    for each in (node("n", 1000, 1000, ready=True), _starting("s", at())):
        report = ca.run_once(kscale.Cluster([each]), [], now=N0, options=quiet)
        assert not [action for action in report.actions if isinstance(action, Create)]
