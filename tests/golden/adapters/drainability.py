"""Kind ``drainability``: everything is compared."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import golden_ca
from kscale import ca
from kscale.effects import moment
from kscale.objects.api.core import Pod
from kscale.objects.api.policy import PodDisruptionBudget
from kscale.objects.decode import from_dict
from kscale.objects.selectors import SelectorError
from kscale.objects.times import to_datetime


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    pods = [from_dict(pod, Pod) for pod in inputs["pods"]]
    objects = [golden_ca.read(item) for item in inputs.get("objects") or []]
    given_options = dict(inputs.get("options") or {})
    with_listers = given_options.pop("listers", True) is not False
    options = _options(given_options)
    now = to_datetime(inputs["now"])
    listers = ca.Listers(objects) if with_listers else None
    try:
        pdbs = ca.RemainingPdbTracker(golden_ca.of_type(objects, PodDisruptionBudget) if with_listers else [])
    except SelectorError as error:
        assert {"pdb_error": str(error)} == want
        return
    result = ca.check_drainability(pods, now=now, options=options, listers=listers, pdbs=pdbs)
    context = ca.DrainContext(moment(now), options, listers, pdbs)
    rules = ca.get_default_rules(options)
    statuses = [(pod, ca.get_drain_status(pod, context, rules)) for pod in pods]
    judge = ca.DrainabilityChecker(context)
    assert [judge.status(pod) for _ in range(2) for pod in pods] == [status for _, status in statuses] * 2
    got = {
        "pods": [pod.key for pod in result.pods],
        "daemonset_pods": [pod.key for pod in result.daemon_set_pods],
        "on_completion_pods": [pod.key for pod in result.on_completion_pods],
        "blocking": None if result.blocking is None else {"pod": result.blocking.pod, "reason": result.blocking.reason},
        "error": result.error,
        "per_pod": [
            {
                "pod": pod.key,
                "outcome": status.outcome,
                "blocking_reason": status.blocking_reason,
                "rule": status.rule or None,
                "error": status.error,
            }
            for pod, status in statuses
        ],
    }
    assert got == want


def _options(flags: dict[str, Any]) -> ca.AutoscalingOptions:
    values = {name: value for name, value in flags.items() if value is not None}
    timeout = values.pop("blocking_system_pod_disruption_timeout_s", None)
    if timeout is not None:
        values["blocking_system_pod_distruption_timeout"] = timedelta(seconds=timeout)
    return ca.AutoscalingOptions(**values)
