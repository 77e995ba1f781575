"""The VPA's admission webhook where pods are made: what an API server asks it, and what it makes of the answer."""

from __future__ import annotations

import base64
from functools import partial
from typing import Any

import msgspec

from kscale.drivers.vpa_admission import AdmissionController
from kscale.effects import Action, Moment, Outcome, run_virtually
from kscale.objects.core import Pod
from kscale.objects.decode import from_dict, to_dict
from kscale.world.simulated.patches import json_patch
from kscale.world.simulated.world import SimulatedWorld

__all__ = ["Admitting"]


class Admitting:
    """Lets a controller review every pod that is made in a world. It takes no time, as pods go that wait for it."""

    def __init__(self, controller: AdmissionController, world: SimulatedWorld) -> None:
        self._controller, self._world = controller, world

    def __call__(self, pod: Pod) -> Pod:
        """The pod as it is stored."""
        if not self._world.api.of("VerticalPodAutoscaler"):
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
        reviewed = run_virtually(partial(self._controller.review, body), self._at_once, now=now)
        answer: Any = msgspec.json.decode(reviewed.body)["response"]
        patch = answer.get("patch")
        return from_dict(json_patch(data, msgspec.json.decode(base64.b64decode(patch))), Pod) if patch else pod

    def _at_once(self, action: Action, now: Moment) -> Outcome:
        return msgspec.structs.replace(self._world.perform(action, now), at=now)
