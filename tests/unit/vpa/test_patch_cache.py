"""Patches of pods that were reviewed before: the same answers as without them."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from kscale.objects.api.core import LimitRange, Pod
from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.objects.decode import from_dict
from kscale.vpa.admission.pod_handler import PodAdmission, patch_pod
from kscale.vpa.admission.review import PatchCache, PodReview, ReviewResult, read_review, review_pod
from kscale.vpa.capping import LimitRanges

module = sys.modules["kscale.vpa.admission.review"]  # the package has a function of this name
_KIND = {"group": "", "version": "v1", "kind": "Pod"}
_RESOURCE = {"group": "", "version": "v1", "resource": "pods"}


def reviewed(name: str = "p", *, limits: dict[str, str] | None = None, volume: str = "v", **metadata: Any) -> PodReview:
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}, **({"limits": limits} if limits else {})}
    mounts = [{"name": volume, "mountPath": "/v"}]
    spec = {
        "containers": [{"name": "c", "image": "x", "resources": resources, "volumeMounts": mounts}],
        "volumes": [{"name": volume, "emptyDir": {}}],
    }
    pod = {"kind": "Pod", "metadata": {"name": name, "namespace": "n", **metadata}, "spec": spec}
    request = {"uid": name, "kind": _KIND, "resource": _RESOURCE, "namespace": "n", "object": pod}
    read = read_review(msgspec.json.encode({"request": request}))
    assert isinstance(read, PodReview)
    return read


def vpa(cpu: str = "700m") -> VerticalPodAutoscaler:
    bounds = {key: {"cpu": cpu, "memory": "512Mi"} for key in ("target", "lowerBound", "upperBound")}
    status = {"recommendation": {"containerRecommendations": [{"containerName": "c", **bounds}]}}
    spec = {"targetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}
    return from_dict(
        {"metadata": {"name": "v", "namespace": "n"}, "spec": spec, "status": status}, VerticalPodAutoscaler
    )


def limit_range(cpu: str) -> LimitRange:
    limits = [{"type": "Container", "max": {"cpu": cpu}}]
    return from_dict({"metadata": {"name": "l", "namespace": "n"}, "spec": {"limits": limits}}, LimitRange)


class Counted:
    """Counts how often patches are computed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr(module, "patch_pod", self)

    def __call__(self, *args: Any) -> Any:
        self.count += 1
        return patch_pod(*args)


def test_pods_that_differ_in_their_names_and_volumes_have_the_same_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The volume with a pod's token has a random name."""
    counted, cache, own = Counted(monkeypatch), PatchCache(), vpa()
    answers = [review_pod(reviewed(name, volume=f"token-{name}"), own, patches=cache) for name in "abc"]
    assert counted.count == 1
    assert [answer.body for answer in answers] == [review_pod(reviewed(name), own).body for name in "abc"]
    assert {answer.status for answer in answers} == {"applied"}


def test_cache_key_contains_every_input_of_patches() -> None:
    cache, ranges, own = PatchCache(), LimitRanges(), vpa()
    calls: list[tuple[PodReview, VerticalPodAutoscaler]] = [
        (reviewed(), own),
        (reviewed(limits={"cpu": "1"}), own),
        (reviewed(annotations={}), own),
        (reviewed(annotations={"a": "b"}), own),
        (reviewed(), vpa("800m")),
        (reviewed(), vpa("800m")),
    ]

    def ask() -> list[ReviewResult]:
        answers = [review_pod(*call, limit_ranges=ranges, patches=cache) for call in calls]
        plain = [review_pod(*call, limit_ranges=ranges) for call in calls]
        assert [(each.body, each.status, each.messages) for each in answers] == [
            (each.body, each.status, each.messages) for each in plain
        ]
        return answers

    first = ask()
    assert first[0].body != first[1].body
    ranges.apply(limit_range("600m"))
    assert ask()[1].body != first[1].body
    ranges.apply(limit_range("500m"))
    ask()
    ranges.remove("n", "l")
    assert [each.body for each in ask()] == [each.body for each in first]


def test_results_with_messages_are_computed_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages may name the pod."""
    cache, own, names = PatchCache(), vpa(), list[str]()

    def with_a_message(pod: Pod, *args: Any) -> PodAdmission:
        names.append(pod.name)
        return PodAdmission(vpa=own, diagnostics=[f"about {pod.name}"])

    monkeypatch.setattr(module, "patch_pod", with_a_message)
    answers = [review_pod(reviewed(name), own, patches=cache) for name in "ab"]
    assert (names, [answer.messages for answer in answers]) == (["a", "b"], [["about a"], ["about b"]])


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CACHED_PATCHES", 2)
    counted, cache, own = Counted(monkeypatch), PatchCache(), vpa()
    for number in (1, 2, 1, 3, 1, 2):  # 3 takes the place of 2, which was used before 1
        review_pod(reviewed(annotations={"a": str(number)}), own, patches=cache)
    assert counted.count == 4
