"""Short ways to make the objects of upstream's own tests."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from kscale.ca.errors import AutoscalerError
from kscale.effects import Action, ApiError, DryRun, Steps, duration, moment
from kscale.objects.api.core import Container, Node, NodeSpec, NodeStatus, Pod, PodSpec, PodStatus, ResourceRequirements
from kscale.objects.api.meta import Condition, ObjectMeta, OwnerReference
from kscale.objects.nodegroup import NodeGroupOptions, NodeTemplate
from kscale.objects.quantity import Quantity
from performing import performed

T0 = datetime(2020, 12, 18, 17, 0, tzinfo=UTC)
N0 = moment(T0)
GPU = "nvidia.com/gpu"
GPU_LABEL = "TestGPULabel/accelerator"


def at(**offset: float) -> str:
    """T0 plus an offset, as the API prints it."""
    return (T0 + timedelta(**offset)).isoformat().replace("+00:00", "Z")


def span(**units: float) -> int:
    """Nanoseconds of a timedelta."""
    return duration(timedelta(**units))


def resources(cpu_m: int, memory: int | str, **more: int | str) -> dict[str, Quantity]:
    named = {"cpu": f"{cpu_m}m", "memory": str(memory), "pods": "100"}
    named.update({name: str(amount) for name, amount in more.items()})
    return {name: Quantity(text) for name, text in named.items()}


def node(name: str, cpu_m: int, memory: int | str, *, ready: bool | None = None, **metadata: Any) -> Node:
    """Capacity = allocatable; the name is the provider id; without ``ready`` there is no Ready condition."""
    status = "Unknown" if ready is None else str(ready)
    conditions = [] if ready is None else [Condition(type="Ready", status=status, last_transition_time=at(minutes=-2))]
    amounts = resources(cpu_m, memory)
    return Node(
        metadata=ObjectMeta(name=name, **metadata),
        spec=NodeSpec(provider_id=name),
        status=NodeStatus(capacity=dict(amounts), allocatable=dict(amounts), conditions=conditions),
    )


def owner(kind: str, name: str = "owner", api_version: str = "extensions/v1beta1") -> list[OwnerReference]:
    return [OwnerReference(kind=kind, name=name, api_version=api_version, controller=True, uid=name)]


def container(cpu_m: int = -1, memory: int = -1, *, restart_policy: str | None = None) -> Container:
    requests = {}
    if cpu_m >= 0:
        requests["cpu"] = Quantity(f"{cpu_m}m")
    if memory >= 0:
        requests["memory"] = Quantity(str(memory))
    return Container(resources=ResourceRequirements(requests=requests), restart_policy=restart_policy)


def pod(name: str, cpu_m: int = -1, memory: int = -1, *, spec: dict[str, Any] | None = None, **metadata: Any) -> Pod:
    """A pod of namespace ``default`` unless said otherwise; -1 leaves the request out."""
    metadata = {"namespace": "default", "uid": name, **metadata}
    return Pod(
        api_version="v1",
        kind="Pod",
        metadata=ObjectMeta(name=name, **metadata),
        spec=PodSpec(**{"containers": [container(cpu_m, memory)], **(spec or {})}),
        status=PodStatus(),
    )


def template(node_: Node, *pods: Pod) -> NodeTemplate:
    return NodeTemplate(node=node_, pods=list(pods))


def group_options(**options: Any) -> NodeGroupOptions:
    """What a provider says that answers everything: what is not given is a zero."""
    zeros = {
        field.name: False if "bool" in str(field.type) else 0.0 for field in msgspec.structs.fields(NodeGroupOptions)
    }
    return NodeGroupOptions(**{**zeros, **options})


class Ran:
    """What a machine ``asked`` of the world and returned (these two, if it is unpacked), and what it said."""

    def __init__(self, done: DryRun[Any]) -> None:
        self.actions, self.value, self.events = done.actions, done.value, list(done.events)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.actions, self.value))


def run_steps(steps: Steps[Any], *answers: Any) -> Ran:
    """Runs a machine that is answered so, in order, and then with success. An :class:`AutoscalerError` is a refusal."""
    waiting = list(answers)

    def answer(action: Action) -> Any:
        result = waiting.pop(0) if waiting else None
        return ApiError(result.message, reason=result.type) if isinstance(result, AutoscalerError) else result

    return Ran(performed(steps, answer, now=N0))
