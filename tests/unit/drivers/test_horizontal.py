"""Facts of upstream's controller tests on its queue: what is due when, and what is counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kscale.drivers import HorizontalController, Tombstone
from kscale.effects import SECOND, ApiError, DryRun, GetScale, from_text
from kscale.hpa import ControllerState, HPAOptions, HPAState, reconcile
from kscale.hpa.controller.monitor import STALE_SYNC_SKIPS
from kscale.hpa.controller.reconcile import ReconcileResult
from kscale.hpa.controller.state import Recommendation, WrittenVersion
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler, Scale, ScaleSpec
from kscale.objects.decode import from_dict
from performing import performed

NOW = from_text("2026-03-01T12:00:00Z")
PERIOD = 15 * SECOND
KEY = "shop/web"


def autoscaler(name: str = "web", **metadata: Any) -> HorizontalPodAutoscaler:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    document = {
        "metadata": {"namespace": "shop", "name": name, "uid": "u", "generation": 1, **metadata},
        "spec": {"scaleTargetRef": reference, "maxReplicas": 3},
    }
    return from_dict(document, HorizontalPodAutoscaler)


def reconciled(
    controller: HorizontalController, hpa: HorizontalPodAutoscaler, *, now: int = NOW, seen_version: str | None = None
) -> DryRun[ReconcileResult]:
    """One reconcile of a target at zero replicas, whose status write makes version 5."""
    key = f"{hpa.metadata.namespace}/{hpa.metadata.name}"
    machine = reconcile(
        hpa,
        controller.state(key),
        now=now,
        options=controller.options,
        selectors=controller.selectors,
        seen_version=seen_version,
    )
    return performed(
        machine, lambda action: Scale(spec=ScaleSpec(replicas=0)) if isinstance(action, GetScale) else "5", now=now
    )


Event = Callable[[HorizontalController], None]
TOMBSTONE = Tombstone(namespace="shop", name="web")


def updating(old: HorizontalPodAutoscaler | Tombstone, new: HorizontalPodAutoscaler | Tombstone) -> Event:
    return lambda controller: controller.updated(old, new, now=NOW)


@pytest.mark.parametrize(
    ("event", "generation_gate", "at_once"),
    [
        pytest.param(lambda controller: controller.added(autoscaler(), now=NOW), True, True, id="add"),
        pytest.param(updating(autoscaler(), autoscaler(generation=2)), True, True, id="another generation"),
        pytest.param(updating(autoscaler(), autoscaler(resourceVersion="7")), True, False, id="same generation"),
        pytest.param(updating(TOMBSTONE, autoscaler(generation=2)), True, False, id="old unknown"),
        pytest.param(updating(autoscaler(), TOMBSTONE), True, False, id="new unknown"),
        pytest.param(updating(autoscaler(), autoscaler(generation=2)), False, False, id="gate off, other generation"),
        pytest.param(updating(autoscaler(), autoscaler()), False, False, id="gate off, same generation"),
    ],
)
def test_event_makes_its_hpa_due(event: Event, generation_gate: bool, at_once: bool) -> None:
    controller = HorizontalController(HPAOptions(feature_gates={"HPAGeneration": generation_gate}))
    event(controller)
    assert controller.due(KEY) == (None if at_once else NOW + PERIOD)
    assert controller.next_due() == controller.due(KEY)
    assert controller.take(NOW) == (KEY if at_once else None)
    assert controller.take(NOW + PERIOD - 1) is None
    assert controller.take(NOW + PERIOD) == (None if at_once else KEY)
    assert controller.next_due() is None


@pytest.mark.parametrize("generation", [1, 2], ids=["add", "another generation"])
def test_an_hpa_is_registered_before_it_is_due(generation: int) -> None:
    controller = HorizontalController()
    if generation == 1:
        controller.added(autoscaler(), now=NOW)
    else:
        controller.updated(autoscaler(), autoscaler(generation=2), now=NOW)
    assert controller.selectors.is_registered("shop", "web")
    assert controller.selectors.matching("shop", [{"app": "web"}]) == []  # a selector that matches nothing
    assert controller.num_horizontal_pod_autoscalers == 1
    controller.added(autoscaler(), now=NOW)
    assert controller.num_horizontal_pod_autoscalers == 1
    assert controller.take(NOW) == KEY


@pytest.mark.parametrize(
    "answer", [Scale(spec=ScaleSpec(replicas=0)), ApiError("no answer")], ids=["succeeding", "failing"]
)
def test_every_hpa_comes_up_once_a_period(answer: Any) -> None:
    controller = HorizontalController()
    hpa = autoscaler()
    controller.added(hpa, now=NOW)
    for now in (NOW, NOW + PERIOD, NOW + 2 * PERIOD):
        assert controller.take(now) == KEY
        machine = reconcile(hpa, controller.state(KEY), now=now, selectors=controller.selectors)
        record = performed(machine, lambda action: answer if isinstance(action, GetScale) else None, now=now).value
        assert (record.error is not None) == isinstance(answer, ApiError)
        controller.updated(hpa, hpa, now=now + SECOND)  # the status write comes back: no earlier, no later
        controller.done(KEY, record, now=now)
        assert controller.next_due() == now + PERIOD
        assert controller.take(now + PERIOD - 1) is None


def test_a_key_that_waits_keeps_its_time() -> None:
    controller = HorizontalController()
    controller.updated(autoscaler(), autoscaler(), now=NOW)
    controller.updated(autoscaler(), autoscaler(), now=NOW + SECOND)
    assert controller.next_due() == NOW + PERIOD
    controller.updated(autoscaler(), autoscaler(), now=NOW - SECOND)
    assert controller.next_due() == NOW + PERIOD - SECOND
    assert controller.take(NOW + PERIOD) == KEY
    assert controller.take(NOW + 10 * PERIOD) is None  # the later times are void


def test_a_key_in_work_runs_once_more_after_it() -> None:
    controller = HorizontalController()
    controller.added(autoscaler(), now=NOW)
    assert controller.take(NOW) == KEY
    controller.added(autoscaler(generation=2), now=NOW)
    controller.added(autoscaler(generation=3), now=NOW)
    assert controller.take(NOW) is None
    controller.done(KEY, reconciled(controller, autoscaler()).value, now=NOW)
    assert controller.take(NOW) == KEY
    assert controller.take(NOW) is None


@pytest.mark.parametrize(
    ("written", "seen_version", "skips"),
    [
        pytest.param(WrittenVersion("u", "5"), "1", 1, id="older"),
        pytest.param(WrittenVersion("u", "5"), "5", 0, id="the written one"),
        pytest.param(WrittenVersion("u", "5"), "6", 0, id="newer"),
        pytest.param(WrittenVersion("u", "5"), "", 0, id="unknown"),
        pytest.param(WrittenVersion("u", "5"), "abc", 0, id="not to be compared"),
        pytest.param(WrittenVersion("other", "5"), "1", 0, id="another object"),
        pytest.param(None, "1", 0, id="nothing written"),
    ],
)
def test_stale_objects_are_skipped_and_counted(written: WrittenVersion | None, seen_version: str, skips: int) -> None:
    controller = HorizontalController(state=ControllerState(hpas={KEY: HPAState(written=written)}))
    hpa = autoscaler()
    controller.added(hpa, now=NOW)
    assert controller.take(NOW) == KEY
    run = reconciled(controller, hpa, seen_version=seen_version)
    record = run.value
    controller.done(KEY, record, now=NOW)
    text = "read version: 1 is not as new as written version: 5 for group resource horizontalpodautoscalers.autoscaling"
    assert record.error == (text if skips else None)
    counted = [each.labels for each in run.observations if each.name == STALE_SYNC_SKIPS]
    assert counted == [{"group": "autoscaling", "resource": "horizontalpodautoscalers"}] * skips
    assert controller.due(KEY) == NOW + PERIOD  # it was there: it comes up again
    assert controller.take(NOW + PERIOD) == KEY
    assert (
        reconciled(controller, hpa, now=NOW + PERIOD, seen_version="5").value.error is None
    )  # the watch has caught up


@pytest.mark.parametrize(
    ("deleted", "written"),
    [
        pytest.param(autoscaler(), None, id="object"),
        pytest.param(Tombstone(namespace="shop", name="web", last=autoscaler()), None, id="tombstone"),
        pytest.param(autoscaler(uid="other"), WrittenVersion("u", "5"), id="another object"),
        pytest.param(TOMBSTONE, WrittenVersion("u", "5"), id="nobody knows which"),
    ],
)
def test_delete_event_clears_the_written_version(
    deleted: HorizontalPodAutoscaler | Tombstone, written: WrittenVersion | None
) -> None:
    controller = HorizontalController()
    hpa = autoscaler()
    controller.added(hpa, now=NOW)
    assert controller.take(NOW) == KEY
    controller.done(KEY, reconciled(controller, hpa).value, now=NOW)
    assert controller.state(KEY).written == WrittenVersion("u", "5")
    controller.deleted(deleted)
    controller.deleted(deleted)
    assert controller.num_horizontal_pod_autoscalers == 0
    state = controller.state(KEY)
    assert (state.written, state.registered) == (written, False)
    assert state.recommendations == (Recommendation(0, NOW),)  # kept until the key comes up
    assert controller.take(NOW + PERIOD) == KEY
    controller.done(KEY, None, now=NOW + PERIOD)
    assert controller.states() == ControllerState()
    assert controller.next_due() is None


def test_a_saved_selector_is_registered_again() -> None:
    state = ControllerState(hpas={KEY: HPAState(selector="app=web")})
    controller = HorizontalController(state=ControllerState.from_json(state.to_json()))
    assert not controller.state(KEY).registered
    controller.added(autoscaler(), now=NOW)
    assert controller.states() == state
    assert controller.selectors.matching("shop", [{"app": "web"}]) == ["web"]  # before it is reconciled


def test_recreated_hpa_is_registered_again() -> None:
    controller = HorizontalController(state=ControllerState(hpas={KEY: HPAState(selector="app=web")}))
    controller.added(autoscaler(), now=NOW)
    controller.deleted(autoscaler())
    controller.added(autoscaler(), now=NOW)
    assert controller.states() == ControllerState(hpas={KEY: HPAState(selector=None)})
    assert controller.selectors.matching("shop", [{"app": "web"}]) == []


@pytest.mark.parametrize("workers", [1, 5])
def test_a_thousand_hpas(workers: int) -> None:
    controller = HorizontalController(HPAOptions(concurrent_horizontal_pod_autoscaler_syncs=workers))
    hpas = {f"shop/web-{i}": autoscaler(f"web-{i}") for i in range(1000)}
    for hpa in hpas.values():
        controller.added(hpa, now=NOW)
    assert controller.num_horizontal_pod_autoscalers == 1000
    processed: list[str] = []
    while batch := [key for _ in range(workers) if (key := controller.take(NOW)) is not None]:
        assert len(batch) == min(workers, 1000 - len(processed))
        assert controller.take(NOW) is None  # every worker is busy
        for key in batch:
            controller.done(key, reconciled(controller, hpas[key]).value, now=NOW)
        processed += batch
    assert processed == list(hpas)
    assert controller.next_due() == NOW + PERIOD
    controller.deleted(hpas["shop/web-7"])
    assert controller.num_horizontal_pod_autoscalers == 999
    assert len(controller.selectors.namespaces()) == 1
