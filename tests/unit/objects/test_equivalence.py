"""Which pods are alike: the sanitising and the semantic equality of upstream's equivalence groups."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from kscale.objects.pod_equivalence import Digester, digest

POD: dict[str, Any] = {
    "metadata": {"name": "web-1", "namespace": "a", "uid": "1", "labels": {"app": "web"}},
    "spec": {
        "containers": [
            {
                "name": "app",
                "image": "img",
                "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "nodeSelector": {"zone": "a"},
    },
    "status": {"phase": "Pending"},
}
CONTAINER = ("spec", "containers", 0)


def changed(*changes: tuple[tuple[Any, ...], Any]) -> dict[str, Any]:
    pod = copy.deepcopy(POD)
    for path, value in changes:
        place: Any = pod
        for step in path[:-1]:
            place = place[step]
        if value is KeyError:
            del place[path[-1]]
        elif isinstance(place, list):
            place.insert(path[-1], value)
        else:
            place[path[-1]] = value
    return pod


TOKEN = {"name": "kube-api-access-abcde", "projected": {"sources": []}}
MOUNT = {"name": "kube-api-access-abcde", "mountPath": "/var/run"}


@pytest.mark.parametrize(
    "changes",
    [
        [(("metadata", "name"), "web-2"), (("metadata", "uid"), "2"), (("metadata", "namespace"), "b")],
        [(("metadata", "annotations"), {"x": "y"}), (("status", "phase"), "Running")],
        [((*CONTAINER, "env"), [{"name": "A", "value": "1"}])],
        [(("spec", "hostname"), "web-1")],
        [(("spec", "volumes", 0), TOKEN), ((*CONTAINER, "volumeMounts", 0), MOUNT)],
        [(("spec", "tolerations"), []), (("spec", "initContainers"), None), (("spec", "overhead"), {})],
        [((*CONTAINER, "resources", "requests", "cpu"), 0.5), ((*CONTAINER, "resources", "limits"), {})],
        [((*CONTAINER, "resources", "requests", "memory"), "1024Mi")],
        [(("spec", "hostNetwork"), False), (("spec", "nodeName"), ""), (("spec", "priorityClassName"), None)],
    ],
)
def test_equivalent_pods_have_the_same_digest(changes: list[Any]) -> None:
    assert digest(changed(*changes)) == digest(POD)


@pytest.mark.parametrize(
    "changes",
    [
        [(("metadata", "labels"), {"app": "web", "x": "y"})],
        [((*CONTAINER, "image"), "other")],
        [((*CONTAINER, "envFrom"), [{"configMapRef": {"name": "c"}}])],
        [((*CONTAINER, "resources", "requests", "cpu"), "501m")],
        [((*CONTAINER, "resources", "requests", "example.com/x"), "0")],
        [(("spec", "priority"), 0)],
        [(("spec", "hostUsers"), False)],
        [(("spec", "nodeName"), "n")],
        [(("spec", "volumes", 0, "name"), "other")],
        [(("spec", "volumes", 0, "emptyDir"), KeyError)],
        [(("spec", "securityContext"), {})],
        [(("spec", "resources"), {})],
        [(("spec", "ephemeralContainers"), [{"name": "debug", "env": [{"name": "A"}]}])],
        [(("spec", "notYetInvented"), 1)],
        [((*CONTAINER, "restartPolicy"), "")],
        [(("spec", "nodeSelector"), {})],
    ],
)
def test_different_pods_have_different_digests(changes: list[Any]) -> None:
    assert digest(changed(*changes)) != digest(POD)


def test_labels_nil_and_empty_differ() -> None:
    empty, absent = changed((("metadata", "labels"), {})), changed((("metadata", "labels"), KeyError))
    assert digest(empty) != digest(absent)
    assert digest(absent) == digest(changed((("metadata", "labels"), None)))


def test_text_and_data_agree() -> None:
    digester = Digester()
    assert digester.digest(json.dumps(POD, indent=2).encode()) == digester.digest(POD) == digest(POD)
    assert len(digest(POD)) == 16


def test_names_of_token_volumes_are_shared_only_where_they_do_not_count() -> None:
    digester = Digester()

    def pod(name: str, kind: str) -> dict[str, Any]:
        return changed(
            (("spec", "volumes", 0), {"name": name, kind: {}}), ((*CONTAINER, "volumeMounts", 0), {"name": name})
        )

    assert digester.digest(pod("kube-api-access-aaaaa", "projected")) == digest(POD)
    assert digester.digest(pod("kube-api-access-bbbbb", "projected")) == digest(POD)
    first = digester.digest(pod("kube-api-access-aaaaa", "emptyDir"))
    second = digester.digest(pod("kube-api-access-bbbbb", "emptyDir"))
    assert first != second
    assert first == digester.digest(pod("kube-api-access-aaaaa", "emptyDir"))
