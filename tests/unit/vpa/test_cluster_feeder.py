"""VPAs of a round are taken as loaded only if the controllers did not change since all VPAs were loaded."""

from __future__ import annotations

from typing import Any

from kscale.effects import GetScale, Progress
from kscale.objects.api.autoscaling import Scale, ScaleStatus
from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.objects.kinds import BUILT_IN, RESTMapper, ServedResource
from kscale.vpa import RecommenderState
from kscale.vpa.controllers import Controllers, ScaleCache
from kscale.vpa.model.vpa import StableRound
from kscale.vpa.recommender.cluster_feeder import load_vpas_steps
from unit.vpa.builders import controller, recommendation, vpa
from unit.vpa.worlds import World, refusing

T0 = 1767571200 * 10**9


def of(kind: str, name: str, api: str = "apps/v1") -> VerticalPodAutoscaler:
    item = vpa(targetRef={"apiVersion": api, "kind": kind, "name": name})
    item.metadata.name = name
    return item


def load(state: RecommenderState, vpas: list[VerticalPodAutoscaler], known: Controllers, world: World) -> None:
    """A round that changes no status."""
    world.run(load_vpas_steps(state, vpas, known, Progress(T0)), T0)
    for each in state.vpas.values():
        assert each.item is not None
        each.stable = StableRound(each.item, recommendation(), {}, each.pod_count, None, ())


def replica_set(app: str, owner: tuple[str, str] | None = None) -> Any:
    return controller("ReplicaSet", "b", owner, selector={"matchLabels": {"app": app}})


CUSTOM = RESTMapper([*BUILT_IN, ServedResource("argo", "v1", "Rollout", "rollouts", scale="autoscaling/v1")])


def test_a_round_that_ends_at_a_request_leaves_no_outdated_vpa() -> None:
    """The target of ``b`` has another selector. The round that would load it ends before, at the scale of ``a``."""
    known = Controllers([replica_set("x")], mapper=CUSTOM, scales=ScaleCache())
    state, world = RecommenderState(), World(refusing(GetScale))
    vpas = [of("Rollout", "a", "argo/v1"), of("ReplicaSet", "b")]
    load(state, vpas, known, world)
    known.apply(replica_set("y"))
    steps = load_vpas_steps(state, vpas, known, Progress(T0))
    assert isinstance(next(steps), GetScale)
    steps.close()
    load(state, vpas, known, world)
    assert state.vpas["default", "b"].selector_text == "app=y"


def test_a_scale_is_requested_after_the_target_becomes_a_custom_kind() -> None:
    """The new target selects the same pods as the old one, and later others."""
    known, state = Controllers([replica_set("x")], mapper=CUSTOM, scales=ScaleCache()), RecommenderState()
    load(state, [of("ReplicaSet", "b")], known, World())
    vpas = [of("Rollout", "b", "argo/v1")]
    for selector in ("app=x", "app=x", "app=y"):
        scale = Scale(status=ScaleStatus(selector=selector))
        load(state, vpas, known, World(answer=lambda _, scale=scale: scale))
        assert state.vpas["default", "b"].selector_text == selector
