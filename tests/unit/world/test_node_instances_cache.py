"""When a cloud is asked anew for what it runs, in time that a test sets."""

from __future__ import annotations

import pytest

from kscale.effects import SECOND
from kscale.objects.nodegroup import InstanceStatus, ProviderError
from kscale.world.nodegroups.provider import Instances, NodeInstancesCache


class Cloud:
    """``asked``: the groups, in the order of the questions."""

    def __init__(self) -> None:
        self.now = 0
        self.growing: list[str] = []
        self.running = {"a": ["a-1"], "b": ["b-1"]}
        self.down: set[str] = set()
        self.requests: list[str] = []
        self.cache = NodeInstancesCache(lambda: self.now, lambda: self.growing)

    def fetch(self, group: str) -> Instances:
        self.requests.append(group)
        if group in self.down:
            raise ProviderError("it is down")
        return [(name, InstanceStatus() if name.endswith("1") else None) for name in self.running[group]]

    def look(self, after: int = 10) -> dict[str, list[str]]:
        self.now += after * SECOND
        result = self.cache.instances([*self.running], self.fetch)
        return {group: [name for name, _ in instances] for group, instances in result.items()}


def test_every_group_is_refreshed_every_two_minutes() -> None:
    cloud = Cloud()
    assert cloud.look() == {"a": ["a-1"], "b": ["b-1"]}
    cloud.running["a"] = []
    assert [cloud.look(after) for after in (10, 100, 9)] == [{"a": ["a-1"], "b": ["b-1"]}] * 3
    assert cloud.requests == ["a", "b"]
    assert cloud.look(1) == {"a": [], "b": ["b-1"]}
    assert cloud.requests == ["a", "b"] * 2


def test_growing_new_and_invalidated_groups_are_refreshed_immediately() -> None:
    cloud = Cloud()
    cloud.look()
    cloud.growing = ["b"]
    cloud.running |= {"a": [], "b": ["b-1", "b-2"], "c": ["c-1"]}
    assert cloud.look() == {"a": ["a-1"], "b": ["b-1", "b-2"], "c": ["c-1"]}
    assert cloud.requests == ["a", "b", "b", "c"]
    cloud.growing = []
    cloud.cache.invalidate("a")
    assert cloud.look()["a"] == []
    assert cloud.requests == ["a", "b", "b", "c", "a"]


def test_deleted_group_is_dropped_by_the_next_refresh() -> None:
    """Until then its machines are known, should it come back."""
    cloud = Cloud()
    cloud.look()
    before = cloud.running.pop("b")
    assert cloud.look() == {"a": ["a-1"]}
    assert cloud.look(120) == {"a": ["a-1"]}
    assert cloud.requests == ["a", "b", "a"]
    cloud.running["b"] = before
    assert cloud.look() == {"a": ["a-1"], "b": ["b-1"]}
    assert cloud.requests == ["a", "b", "a", "b"]  # nothing was left of it


def test_failed_refresh_keeps_the_cached_instances() -> None:
    """A refresh takes it that nothing runs; a question for one group is refused."""
    cloud = Cloud()
    cloud.down = {"a"}
    assert cloud.look() == {"a": [], "b": ["b-1"]}
    assert cloud.look() == {"a": [], "b": ["b-1"]}
    cloud.growing = ["a"]
    with pytest.raises(ProviderError, match="it is down"):
        cloud.look()
    cloud.down, cloud.growing = set(), []
    assert cloud.look() == {"a": ["a-1"], "b": ["b-1"]}


def test_too_many_machines_fail_the_refresh_and_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of earlier looks count as well: a cloud that names other groups each time fills no memory."""
    monkeypatch.setattr("kscale.world.nodegroups.provider.MOST_NODES", 3)
    cloud = Cloud()
    cloud.look()
    cloud.running = {"c": ["c-1", "c-2"]}
    with pytest.raises(ProviderError, match="the provider has more than 3 instances"):
        cloud.look()
    assert cloud.look() == {"c": ["c-1", "c-2"]}
    cloud.running = {"d": ["d-1", "d-2", "d-3", "d-4"]}
    for _ in range(2):
        with pytest.raises(ProviderError, match="the provider has more than 3 instances"):
            cloud.look()
