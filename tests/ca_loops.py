"""A small cluster with a cloud in virtual time, and whole loops of the Cluster Autoscaler in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from ca_world import NOT_FOUND, World
from kscale import ca
from kscale.effects import (
    Action,
    ApiError,
    Create,
    CreateGroup,
    DecreaseTargetSize,
    Delete,
    DeleteGroup,
    DeleteNodes,
    Emit,
    Get,
    HasInstances,
    IncreaseSize,
    Moment,
    Observe,
    Outcome,
    Patch,
    Refresh,
    VirtualTime,
    WriteStatus,
)
from kscale.objects.api.core import ConfigMap, Node, Pod
from kscale.objects.api.meta import KubeObject
from kscale.objects.nodegroup import NodeGroup
from kscale.snapshot.cluster import Cluster

__all__ = ["Cloud", "Life"]

Fate = Callable[[Action, Moment], tuple[ApiError | None, int, bool]]
"""What becomes of an action: why it is refused if it is, how many nanoseconds it takes, whether it happens."""


def smoothly(action: Action, now: Moment) -> tuple[None, int, bool]:
    """Everything succeeds at once."""
    return None, 0, True


class Cloud(World):
    """A world with node groups. ``calls``: what was asked of the cloud, as upstream's tests write it down.

    ``members``: the machines of each group, whether they have a node object or not; ``grown(group, count)`` is told of
    every raised size. ``objects``: those of which a loop writes the status, by ``namespace/name``.
    """

    def __init__(self, groups: Iterable[NodeGroup], nodes: Iterable[Node], pods: Iterable[Pod] = ()) -> None:
        super().__init__(nodes, pods)
        self.groups = {group.id: group for group in groups}
        self.members: dict[str, list[str]] = {group.id: list(group.nodes) for group in self.groups.values()}
        self.targets = {
            group.id: len(group.nodes) if group.target_size is None else group.target_size
            for group in self.groups.values()
        }
        self.calls: list[tuple[Any, ...]] = []
        self.config_maps: dict[str, ConfigMap] = {}
        self.objects: dict[str, KubeObject] = {}
        self.tells_machines = True
        self.fate: Fate = smoothly
        self.grown: Callable[[str, int], None] = lambda group, count: None

    def view(self) -> list[NodeGroup]:
        """The groups as the cloud tells them."""
        return [
            replace(
                group,
                target_size=self.targets[name],
                nodes=[member for member in self.members[name] if member in self.nodes],
                instances=list(self.members[name]),
            )
            for name, group in self.groups.items()
        ]

    def perform(self, action: Action, now: Moment) -> Outcome:
        if isinstance(action, Emit | Observe):
            return super().perform(action, now)
        error, takes, happens = self.fate(action, now)
        value, refusal = self._do(action, now) if happens else (None, None)
        if error is not None:
            value, refusal = None, error
        refusal = ApiError(refusal) if isinstance(refusal, str) else refusal
        return Outcome(at=now + takes, value=value, error=refusal)

    def _do(self, action: Action, now: Moment) -> tuple[Any, ApiError | str | None]:
        match action:
            case Refresh():
                return self.view(), None
            case HasInstances(nodes=names):
                every = {member for members in self.members.values() for member in members}
                return ({name: name in every for name in names}, None) if self.tells_machines else ({}, None)
            case IncreaseSize(group=group, delta=delta):
                if self.targets[group] + delta > self.groups[group].max_size:
                    return None, "size increase too large"
                self.calls.append(("up", group, delta))
                self.targets[group] += delta
                self.grown(group, delta)
            case DecreaseTargetSize(group=group, delta=delta):
                if self.targets[group] + delta < len(self.members[group]):
                    return None, "attempt to delete existing nodes"
                self.calls.append(("target", group, delta))
                self.targets[group] += delta
            case DeleteNodes(group=group, nodes=names, force=force):
                return None, self._delete(group, names, force)
            case CreateGroup(group=group):
                self.calls.append(("create", group))
                self.groups[group] = replace(self.groups[group], exists=True)
            case DeleteGroup(group=group):
                self.calls.append(("delete", group))
                del self.groups[group]
            case WriteStatus(object=written):
                self.objects[written.key] = written
            case Delete(kind="ProvisioningRequest", namespace=namespace, name=name):
                del self.objects[f"{namespace}/{name}"]
            case Get(kind="ConfigMap", name=name):
                result = self.config_maps.get(name)
                return result, None if result is not None else NOT_FOUND
            case Create(object=ConfigMap() as made):
                self.config_maps[made.name] = made
            case Patch(kind="ConfigMap", name=name, patch=dict() as patch):
                old = self.config_maps[name]
                metadata = replace(old.metadata, annotations=patch["metadata"]["annotations"])
                self.config_maps[name] = replace(old, metadata=metadata, data=patch["data"])
            case _:
                return super()._do(action, now)
        return None, None

    def _delete(self, group: str, names: tuple[str, ...], force: bool) -> str | None:
        missing = [name for name in names if name not in self.members[group]]
        if missing:
            return f"{missing[0]} is no machine of {group}"
        if not force and self.targets[group] - len(names) < self.groups[group].min_size:
            return "min size reached, nodes will not be deleted"
        for name in names:
            self.calls.append(("down", group, name))
            self.members[group].remove(name)
            self.targets[group] -= 1
        return None


class Life:
    """Loop after loop of one process in a cloud. ``others``: objects besides nodes and pods; ``saved``: the state goes
    through JSON between loops."""

    def __init__(self, cloud: Cloud, now: Moment, *, saved: bool = True, **flags: Any) -> None:
        self.cloud = cloud
        self.options = ca.AutoscalingOptions(**flags)
        self.actuator = ca.Actuator(self.options)
        self.state = ca.LoopState()
        self.others: list[KubeObject] = []
        self.saved = saved
        self.time = VirtualTime(cloud.perform, now=now)
        self.trace: list[tuple[Moment, Action]] = []

    def cluster(self, objects: Sequence[KubeObject]) -> Cluster:
        """What the loop looks at."""
        return Cluster(objects)

    def loop(self, at: Moment, **inputs: Any) -> ca.LoopReport:
        """One loop, begun at a moment; what it started goes on in the time until the next one begins."""
        self.time.run(until=at)
        cloud = self.cloud
        pods = [pod for key, pod in cloud.pods.items() if not cloud._is_gone(key, at)]
        cluster = self.cluster([*cloud.nodes.values(), *pods, *cloud.objects.values(), *self.others])
        snapshot = cluster.snapshot(dra=True)
        inputs.setdefault("expander_input", ca.ExpanderInput(ask_prices=True))  # by who goes by prices
        loop_inputs = ca.LoopInputs(actuator=self.actuator, **inputs)
        running = self.time.start(
            lambda now: ca.run_once_steps(
                snapshot, cloud.view(), now=now, options=self.options, state=self.state, inputs=loop_inputs
            )
        )
        while not running.ended:
            self.time.step()
        report: ca.LoopReport = running.value
        if self.saved:
            self.state = ca.LoopState.from_json(report.state.to_json())
            assert self.state == report.state
        else:
            self.state = report.state
        return report

    def called(self) -> list[tuple[Any, ...]]:
        """What was asked of the cloud since this was last asked."""
        result, self.cloud.calls = self.cloud.calls, []
        return result
