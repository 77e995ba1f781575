"""Carrying out a plan: a step machine (``core/scaleup/orchestrator/executor.go``)."""

from __future__ import annotations

from collections.abc import Container, Generator, Sequence
from datetime import datetime

import msgspec

from kscale.ca.backoff import ScaleUpError
from kscale.ca.balancing import ScaleUpInfo
from kscale.ca.cluster_state import ClusterState, register_failed_scale_up, register_scale_up
from kscale.ca.errors import CLOUD_PROVIDER_ERROR, INTERNAL_ERROR, AutoscalerError, combine
from kscale.ca.events import Event
from kscale.ca.options import AutoscalingOptions
from kscale.objects.nodegroup import is_not_implemented
from kscale.objects.nodegroups import Groups

__all__ = ["Execution", "IncreaseSize", "execute_steps"]


class IncreaseSize(msgspec.Struct, kw_only=True, frozen=True):
    """An action: raise a group's target size by ``delta``, ``atomic``: all of it or nothing.

    Its outcome is None or an :class:`AutoscalerError`; a plain error has the type "". A provider that cannot do it
    atomically answers ``Not implemented`` and is asked again.
    """

    group: str
    delta: int
    atomic: bool = False


class Execution(msgspec.Struct, kw_only=True):
    """What came of it: the error if any, the groups that were not resized, events, and the cluster state after."""

    error: AutoscalerError | None
    failed_groups: list[str]
    events: list[Event]
    state: ClusterState


def execute_steps(
    plan: Sequence[ScaleUpInfo],
    groups: Groups,
    state: ClusterState,
    *,
    now: datetime,
    options: AutoscalingOptions,
    atomic: bool = False,
    known_templates: Container[str] | None = None,
) -> Generator[IncreaseSize, AutoscalerError | None, Execution]:
    """Yields an :class:`IncreaseSize` for each line of the plan and is sent its outcome.

    One after the other, the first error ends it; with ``parallel_scale_up`` all are tried and errors are combined.
    Increases are registered in the state, failures put the group in back-off if the state knew a template of it
    (``known_templates``; None: of all groups).
    """
    run = _Run(groups, state, now, options, known_templates)
    errors: list[AutoscalerError] = []
    failed: list[str] = []
    if options.parallel_scale_up:
        names = [info.group for info in plan]
        twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
        if twice is not None:
            error = AutoscalerError(INTERNAL_ERROR, f"assertion failure: detected group double scaling: {twice}")
            return Execution(error=error, failed_groups=names, events=[], state=state)
    for info in plan:
        error_of_one = yield from run.increase(info, atomic)
        if error_of_one is not None:
            errors.append(error_of_one)
            failed.append(info.group)
            if not options.parallel_scale_up:
                break
    return Execution(error=combine(errors), failed_groups=failed, events=run.events, state=run.state)


class _Run:
    def __init__(
        self,
        groups: Groups,
        state: ClusterState,
        now: datetime,
        options: AutoscalingOptions,
        known_templates: Container[str] | None,
    ) -> None:
        self.groups = groups
        self.state = state
        self.now = now
        self.options = options
        self.known_templates = known_templates
        self.events: list[Event] = []

    def say(self, kind: str, reason: str, message: str) -> None:
        where = f"ConfigMap/{self.options.namespace}/{self.options.status_config_map_name}"
        self.events.append(Event(object=where, type=kind, reason=reason, message=message))

    def increase(
        self, info: ScaleUpInfo, atomic: bool
    ) -> Generator[IncreaseSize, AutoscalerError | None, AutoscalerError | None]:
        sizes = f"{info.new} instead of {info.current} (max: {info.max})"
        self.say("Normal", "ScaledUpGroup", f"Scale-up: setting group {info.group} size to {sizes}")
        delta = info.new - info.current
        error = yield IncreaseSize(group=info.group, delta=delta, atomic=atomic)
        if atomic and error is not None and is_not_implemented(error.message):
            error = yield IncreaseSize(group=info.group, delta=delta)
        if error is not None:
            self.say("Warning", "FailedToScaleUpGroup", f"Scale-up failed for group {info.group}: {error.message}")
            failure = AutoscalerError(
                error.type or CLOUD_PROVIDER_ERROR, f"failed to increase node group size: {error.message}"
            )
            self._fail(info.group, failure, delta)
            return failure
        if delta < 0:
            text = f"increase in number of nodes cannot be negative, got: {delta}"
            return AutoscalerError(INTERNAL_ERROR, text)
        group = self.groups.get(info.group)
        if group is not None and (group.exists or not group.upcoming):
            self.state = register_scale_up(self.state, group, delta, self.now, self.options)
            self.say("Normal", "ScaledUpGroup", f"Scale-up: group {info.group} size set to {sizes}")
        return None

    def _fail(self, group: str, error: AutoscalerError, delta: int) -> None:
        self.state = register_failed_scale_up(
            self.state,
            group,
            ScaleUpError(class_="Other", code=error.type, message=error.message),
            delta,
            self.now,
            self.options,
            has_template=self.known_templates is None or group in self.known_templates,
        )
