"""The time of a dump, at which a round of the VPA's programs is planned."""

from __future__ import annotations

from typing import Any

import pytest

import kscale
from kscale.capacity.vpa_round_plan import newest_time
from kscale.effects import to_text

OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T03:04:05Z"


def pod(name: str = "p", **status: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "n"}, "status": status}


def vpa(**fields: Any) -> dict[str, Any]:
    metadata = {"name": "v", "namespace": "n", "creationTimestamp": fields.pop("created", None)}
    return {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": metadata, **fields}


def terminated(time: str) -> dict[str, Any]:
    return {"name": "c", "lastState": {"terminated": {"exitCode": 0, "finishedAt": time}}}


@pytest.mark.parametrize(
    "newest",
    [
        pod(startTime=NEW),
        pod(conditions=[{"type": "Ready", "status": "True"}, {"type": "A", "status": "B", "lastTransitionTime": NEW}]),
        pod(containerStatuses=[{"name": "d"}, terminated(NEW)]),
        vpa(created=NEW),
        vpa(status={"conditions": [{"type": "A", "status": "B", "lastTransitionTime": NEW}]}),
    ],
    ids=["start", "condition", "terminated", "created", "condition of a VPA"],
)
def test_the_newest_time_of_a_dump(newest: dict[str, Any]) -> None:
    older = [pod("older", startTime=OLD, containerStatuses=[terminated(OLD)]), vpa(created=OLD)]
    older[1]["metadata"]["name"] = "older"
    for items in ([newest, *older], [*older, newest]):
        time = newest_time(kscale.load(items))
        assert time is not None
        assert to_text(time) == NEW


def test_a_dump_without_times() -> None:
    assert newest_time(kscale.load([pod(), vpa()])) is None
    assert newest_time(kscale.Cluster()) is None


def test_a_malformed_time_is_named() -> None:
    cluster = kscale.load([pod(containerStatuses=[terminated("yesterday")])])
    with pytest.raises(kscale.InputError, match=r"finishedAt"):
        newest_time(cluster)
