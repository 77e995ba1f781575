"""The autoscalers of a scenario, each with its flags, and the VPA webhook at pod creation."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from kscale.ca.entry_points import check_scale_up_options
from kscale.ca.errors import AutoscalerError
from kscale.ca.flag_parsing import parse_flags
from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.legacy.metrics import LEGACY_GPU_LABEL
from kscale.ca.options import CURRENT_PROFILE, LEGACY_PROFILE, AutoscalingOptions
from kscale.drivers.cluster_autoscaler import AutoscalerProcess, ClusterAutoscaler, CurrentNodes
from kscale.drivers.driver import Driver
from kscale.drivers.horizontal_autoscaler import HorizontalAutoscaler
from kscale.drivers.process import HealthCheck, HealthCheckOptions
from kscale.drivers.vpa_admission import AdmissionController
from kscale.drivers.vpa_recommender import VpaRecommender
from kscale.drivers.vpa_registration import RegistrationOptions
from kscale.drivers.vpa_updater import VpaUpdater
from kscale.effects import Action, Moment, Outcome, run_virtually
from kscale.errors import InputError
from kscale.hpa.options import HPAOptions
from kscale.objects.api.core import Pod
from kscale.objects.decode import from_dict, to_dict
from kscale.simulation.karpenter import KarpenterState, karpenter_drivers
from kscale.simulation.scenario import CLUSTER_AUTOSCALER, ControllerFlags, Controllers, Values, options_of
from kscale.vpa.options import AdmissionOptions, RecommenderOptions, UpdaterOptions
from kscale.world.simulated.api_server import json_patch
from kscale.world.simulated.world import SimulatedWorld

__all__ = ["Admitting", "Autoscalers"]


class Admitting:
    """Passes every pod created in a world to an admission controller.

    The review takes no simulated time, as the pod's creation waits for it.
    """

    def __init__(self, controller: AdmissionController, world: SimulatedWorld) -> None:
        self._controller, self._world = controller, world

    def __call__(self, pod: Pod) -> Pod:
        """Return the pod as it is stored after the review."""
        if not self._world.api.get_all("VerticalPodAutoscaler"):
            return pod
        now = self._world.time.now
        data = to_dict(pod)
        request = {
            "uid": "simulated",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": pod.metadata.namespace,
            "operation": "CREATE",
            "object": data,
        }
        body = msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
        reviewed = run_virtually(partial(self._controller.review, body), self._perform, now=now)
        answer: Any = msgspec.json.decode(reviewed.body)["response"]
        patch = answer.get("patch")
        return from_dict(json_patch(data, msgspec.json.decode(base64.b64decode(patch))), Pod) if patch else pod

    def _perform(self, action: Action, now: Moment) -> Outcome:
        return msgspec.structs.replace(self._world.perform(action, now), at=now)


_T = TypeVar("_T", bound=msgspec.Struct)
_FREQUENT: Final = "frequent-loops-enabled"
_PROFILE: Final = "profile"


@dataclass(frozen=True, kw_only=True)
class Autoscalers:
    """The autoscalers that run in a world, as ``controllers`` configures them; mistakes are added to ``values``.

    ``given``: options of controllers (``cluster_autoscaler``, ``horizontal``, ...) that replace the scenario's;
    ``frequent_loops``: whether a Cluster Autoscaler with such options has frequent loops; ``karpenter``: the state of
    Karpenter's controllers if they run instead of a Cluster Autoscaler.
    """

    controllers: Controllers
    values: Values
    world: SimulatedWorld
    given: Mapping[str, Any]
    frequent_loops: bool
    provisioner: str
    karpenter: KarpenterState | None = None

    def drivers(self) -> list[Driver[Any]]:
        """Build the drivers, in the order of their ranks."""
        result: list[Driver[Any]] = []
        if (horizontal := self._options("horizontal", HPAOptions)) is not None:
            self._check_goes_on("horizontal", "horizontal-pod-autoscaler-sync-period", horizontal)
            result.append(HorizontalAutoscaler(horizontal, repeats=True, aligned=True))
        if (recommender := self._options("vpa_recommender", RecommenderOptions)) is not None:
            result.append(VpaRecommender(recommender))
        if (updater := self._options("vpa_updater", UpdaterOptions)) is not None:
            result.append(VpaUpdater(updater))
        if (admission := self._options("vpa_admission", AdmissionOptions)) is not None:
            controller = AdmissionController(admission, RegistrationOptions(register_webhook=False), holder="simulated")
            self.world.maker.admit = Admitting(controller, self.world)
            result.append(controller)
        autoscaling: AutoscalingOptions | None = self.given.get("cluster_autoscaler")
        flags = self.controllers.cluster_autoscaler
        frequent = self.frequent_loops
        if self.karpenter is not None:
            return [*result, *karpenter_drivers(self.karpenter)]
        if self.provisioner == CLUSTER_AUTOSCALER and flags is None:
            flags = ControllerFlags()
        if autoscaling is None and flags is not None:
            autoscaling, frequent = self._autoscaling_options(flags)
        if autoscaling is not None:
            self._check_goes_on("clusterAutoscaler", "scan-interval", autoscaling)
            health = HealthCheck(HealthCheckOptions(), self.world.time.now)
            gpu_label = LEGACY_GPU_LABEL if autoscaling.legacy else DEFAULT_GPU_LABEL
            process = AutoscalerProcess(dra=False, frequent_loops=frequent, gpu_label=gpu_label)
            driver = ClusterAutoscaler(autoscaling, process, self.world.clock, health, CurrentNodes(), repeats=True)
            driver.leads()
            result.append(driver)
        return result

    def _check_goes_on(self, controller: str, flag: str, options: msgspec.Struct) -> None:
        """Record a problem if an interval is zero, as time would not advance between rounds."""
        if getattr(options, flag.replace("-", "_")) <= timedelta():
            self.values.wrong(f"controllers.{controller}.flags.{flag}", "between two rounds no time would pass")

    def _options(self, controller: str, struct: type[_T]) -> _T | None:
        """Return the options of a controller; None if it does not run."""
        options: _T | None = self.given.get(controller)
        flags: ControllerFlags | None = getattr(self.controllers, controller)
        if options is not None or flags is None:
            return options
        first, *others = controller.split("_")
        name = first + "".join(map(str.capitalize, others))
        return options_of(struct, flags.flags, {}, self.values, f"controllers.{name}")

    def _autoscaling_options(self, given: ControllerFlags) -> tuple[AutoscalingOptions, bool]:
        """Return (options of the Cluster Autoscaler, whether it has frequent loops)."""
        field = "controllers.clusterAutoscaler.flags"
        flags = dict(given.flags)
        profile = flags.pop(_PROFILE, CURRENT_PROFILE)
        if profile == LEGACY_PROFILE and _FREQUENT in flags:
            self.values.wrong(f"{field}.{_FREQUENT}", "release 1.3 has no such flag")
        frequent = flags.pop(_FREQUENT, profile != LEGACY_PROFILE)
        if not isinstance(frequent, bool):
            self.values.wrong(f"{field}.{_FREQUENT}", f"{frequent!r} is neither true nor false")
        texts = [
            f"{name}={str(entry).lower() if isinstance(entry, bool) else entry}"
            for name, value in flags.items()
            for entry in (value if isinstance(value, list) else [value])
        ]
        try:
            parsed = parse_flags(texts)
            for name in parsed.idle:
                if name.replace("-", "_") not in AutoscalingOptions.__struct_fields__:
                    self.values.wrong(f"{field}.{name}", "has no effect in a simulated cluster")
            options = AutoscalingOptions.for_profile(str(profile), **parsed.values)
            for problem in (*options.problems(), *options.find_foreign_options(options.profile, parsed.values)):
                self.values.wrong(f"{field}.{problem.field.replace('_', '-')}", problem.message)
            if not options.problems():
                self._check_expander(f"{field}.expander", options)
            return options, frequent is True
        except InputError as error:
            for problem in error.problems:
                name = problem.field.replace("_", "-")
                self.values.wrong(f"{field}.{name}", problem.message)
            return AutoscalingOptions(), True

    def _check_expander(self, field: str, options: AutoscalingOptions) -> None:
        """Check that the profile's release has the expander, before a loop uses it."""
        try:
            check_scale_up_options(options)
        except AutoscalerError as error:
            release = " (profile legacy: release 1.3)" if options.legacy else ""
            self.values.wrong(field, f"{error.message}{release}")
