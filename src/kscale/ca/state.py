"""What a loop of the autoscaler hands to the next one, as one JSON document.

Upstream keeps it in the fields of its objects: ``core/static_autoscaler.go`` above all, and what hangs on it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

from kscale.ca.cluster_state import ClusterStateRegistry
from kscale.ca.legacy.usage_tracker import UsageTracker
from kscale.ca.provisioning_requests.state import ProvisioningState
from kscale.ca.scale_down.actuation.deletion_tracker import Deletions
from kscale.ca.scale_down.candidates import GroupChanges, register_change
from kscale.ca.scale_down.max_skip import MaxNodeSkipEvalTime
from kscale.ca.scale_down.node_latency import NodeLatencyTracker
from kscale.ca.scale_up.creation import AsyncInitializer
from kscale.ca.state_version_1 import upgraded
from kscale.effects import Moment, moment
from kscale.effects.moments import Count, Nanoseconds
from kscale.errors import StateError

__all__ = [
    "LoopState",
    "RememberedTarget",
    "RememberedTemplate",
    "ScaleDownState",
    "ScaleUpState",
    "cleared",
    "register_group_change",
    "restarted",
]

_KIND: Final = "LoopState"
_VERSION: Final = 2


class ScaleDownState(
    msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """What scale-down remembers.

    - ``unneeded_since``, ``unremovable_until``: by node; ``previous_candidates``: what was unneeded last time.
    - ``hints``, ``injected_hints``: pod UID -> node, for pods of removed nodes and for pods evicted of late (of the
      legacy profile: ``namespace/name`` -> node).
    - ``update_interval``: the shortest time between two loops so far, in nanoseconds; ``last_update``: the last loop.
    - ``changes``: when each group last changed; ``last_scale_up``, ``last_scale_down``, ``last_failure``: when
      anything did. Scale-ups set theirs; of deletions :func:`kscale.ca.run_once` does, or whoever acts on a plan.
    - ``started``: the taints of an earlier process have been looked at.
    - ``usage``: only of the legacy profile: which nodes counted on which.
    """

    unneeded_since: dict[str, Moment] = {}
    unremovable_until: dict[str, Moment] = {}
    previous_candidates: list[str] = []
    hints: dict[str, str] = {}
    injected_hints: dict[str, str] = {}
    update_interval: Annotated[Nanoseconds, msgspec.Meta(ge=0)] | None = None
    last_update: Moment | None = None
    changes: GroupChanges = msgspec.field(default_factory=GroupChanges)
    last_scale_up: Moment | None = None
    last_scale_down: Moment | None = None
    last_failure: Moment | None = None
    started: bool = False
    usage: UsageTracker = msgspec.field(default_factory=UsageTracker)


class ScaleUpState(
    msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """What scale-up remembers.

    - ``hints``, ``old_hints``: where pods would go on nodes that exist (pod UID -> node), in two generations.
    - ``degraded_loops``: loops in a row that had no time for every pod (graceful degradation); 0 = it has time. Whether
      scale-down may run meanwhile, :func:`kscale.ca.may_scale_down` says.
    """

    hints: dict[str, str] = {}
    old_hints: dict[str, str] = {}
    degraded_loops: Count = 0


class RememberedTemplate(
    msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """A template that was made from a real node (as JSON data, without what may be secret), and when."""

    template: dict[str, Any]
    added: Moment


class RememberedTarget(
    msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """The target size that a loop left to a group, and the one that the group's description had (None: it had none)."""

    target: int
    described: int | None = None


class LoopState(
    msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """``cursor``: where the scan over nodes stands; scale-up and scale-down of one loop share it.

    ``scale_up``, ``scale_down``: what each of the two remembers besides.

    ``cluster``: readiness, requests under way and back-off. ``templates``: what nodes of each group looked like when
    there was a good one. ``initializers``: what groups that are still being made shall get, by the id that they have
    meanwhile. ``deletions``: nodes that are being deleted. ``taints_cleaned``: marks that an earlier process left on
    nodes have been removed. ``latencies``, ``skipped``: for how long nodes wait to go, and to be looked at, where that
    is tracked. ``provisioning``: about provisioning requests. ``differing_drivers``: of which devices were other than
    templates said when they were last compared. ``targets``: the target sizes of groups whose new nodes have not all
    come, by id; until then they count for a caller who describes these groups as before.
    """

    cursor: Annotated[Count, msgspec.Meta(ge=0, lt=1 << 62)] = 0
    cluster: ClusterStateRegistry = msgspec.field(default_factory=ClusterStateRegistry)
    scale_up: ScaleUpState = msgspec.field(default_factory=ScaleUpState)
    scale_down: ScaleDownState = msgspec.field(default_factory=ScaleDownState)
    templates: dict[str, RememberedTemplate] = {}
    initializers: dict[str, AsyncInitializer] = {}
    deletions: Deletions = Deletions()
    taints_cleaned: bool = False
    latencies: NodeLatencyTracker = NodeLatencyTracker()
    skipped: MaxNodeSkipEvalTime | None = None
    provisioning: ProvisioningState = ProvisioningState()
    differing_drivers: list[str] = []
    targets: dict[str, RememberedTarget] = {}

    def to_json(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode({"kind": _KIND, "version": _VERSION, **msgspec.to_builtins(self)})

    @staticmethod
    def from_json(text: bytes | str) -> LoopState:
        """From JSON (``text``), of this version or the last, whose times were texts. Raises StateError for anything
        else than what :meth:`to_json` wrote."""
        try:
            data = msgspec.json.decode(text, type=dict)
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as problem:
            raise StateError(f"not a saved loop state: {problem}") from None
        except RecursionError:
            raise StateError("not a saved loop state: nested too deeply") from None
        kind, version = data.pop("kind", None), data.pop("version", None)
        if kind != _KIND:
            raise StateError(f"not a saved loop state: its kind is {kind!r}")
        if type(version) is not int or version not in (_VERSION - 1, _VERSION):
            raise StateError(f"a loop state of version {version!r}; this is version {_VERSION}")
        try:
            state: LoopState = msgspec.convert(upgraded(data) if version < _VERSION else data, LoopState)
        except (msgspec.ValidationError, ValueError) as problem:
            raise StateError(f"not a saved loop state: {problem}") from None
        return state


def cleared(state: LoopState) -> LoopState:
    """A state in which no node is unneeded: what an unhealthy cluster leaves. Taints of old say nothing any more."""
    memory = msgspec.structs.replace(state.scale_down, unneeded_since={}, started=True)
    return msgspec.structs.replace(state, scale_down=memory)


def restarted(state: LoopState) -> LoopState:
    """What a new process may go on with: nobody carries on deletions that an earlier one began, and the marks that it
    left on nodes are to be removed."""
    return msgspec.structs.replace(state, deletions=Deletions(), taints_cleaned=False)


def register_group_change(state: LoopState, kind: str, group: str, time: datetime | Moment) -> LoopState:
    """After a group changed at ``time``; ``kind``: ``scale_up``, ``scale_down`` or ``scale_down_failure`` (for local
    delays)."""
    memory = state.scale_down
    changes = register_change(memory.changes, kind, group, moment(time, "time"))
    return msgspec.structs.replace(state, scale_down=msgspec.structs.replace(memory, changes=changes))
