"""Verdicts of a fit are found by the pod that was passed, by its name and by its data."""

from __future__ import annotations

from typing import Any

import pytest

import kscale
from kscale.objects.api.core import Pod
from kscale.objects.decode import from_dict

NODE = {
    "kind": "Node",
    "apiVersion": "v1",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "1", "pods": "9"}},
}
DATA: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}


class ClientPod:
    """An object of a client library."""

    def __init__(self) -> None:
        self.raw = {"kind": "Pod", "apiVersion": "v1", **DATA}


@pytest.mark.parametrize("pod", [from_dict(DATA, Pod), DATA, ClientPod()], ids=["struct", "data", "client object"])
def test_a_pod_without_a_namespace_is_in_the_default_namespace(pod: Any) -> None:
    result = kscale.fit(kscale.Cluster([NODE]), [pod])
    assert result.pods == ["default/p"]
    for reference in (pod, "default/p", "p"):
        verdict = result.verdict(reference, "n")
        assert (verdict.ok, verdict.pod) == (True, "default/p")
        assert result.verdicts(reference, "n") == []
        assert result.any_node(reference).node == "n"
        assert result.prefilter(reference) is not None


def test_a_node_is_meant_by_its_name_or_as_an_object() -> None:
    cluster = kscale.Cluster([NODE])
    result = kscale.fit(cluster, [DATA])
    (node,) = cluster.nodes()
    assert result.verdict("p", node) == result.verdict("p", "n")
    assert result.verdicts("p", node) == result.verdicts("p", "n")
    for ask in (result.verdict, result.verdicts):
        with pytest.raises(kscale.InputError, match="a node is 3, not a node's name or a Node"):
            ask("p", 3)


def test_a_pod_of_another_namespace_is_no_part_of_the_result() -> None:
    result = kscale.fit(kscale.Cluster([NODE]), [DATA])
    with pytest.raises(kscale.InputError, match="pod 'shop/p' is not part of this result"):
        result.verdict("shop/p", "n")
    with pytest.raises(kscale.InputError, match="a pod is 3, not a pod's name or a pod"):
        result.verdict(3, "n")
