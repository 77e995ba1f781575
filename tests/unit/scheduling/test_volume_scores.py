"""The Score plug-in VolumeBinding: tables of upstream's tests, retyped."""

from __future__ import annotations

from typing import Any

import pytest

import kscale
from kscale.objects.selectors import Requirement
from unit.scheduling.score_cases import HOSTNAME, Json, node, pod, scores

# -- VolumeBinding (volume_binding_test, scorer_test) ------------------------------------------------------------------


def claim(name: str, size: str, of: str = "tells", **spec: Any) -> Json:
    spec = {"storageClassName": of, "accessModes": [], "resources": {"requests": {"storage": size}}, **spec}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def room(on: str, size: str, of: str = "tells", **more: str) -> Json:
    """What a driver says that it has left on a node."""
    metadata = {"name": f"{of}-{on}", "namespace": "default"}
    where = {"matchLabels": {HOSTNAME: on}}
    result = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity", "metadata": metadata}
    return {**result, "storageClassName": of, "capacity": size, "nodeTopology": where, **more}


def local(on: str, size: str) -> Json:
    """A volume that is there already."""
    place = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [on]}]}
    spec = {"storageClassName": "local", "capacity": {"storage": size}, "accessModes": []}
    spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [place]}}
    result = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"local-{on}"}, "spec": spec}
    return {**result, "status": {"phase": "Available"}}


def mounts_claims(*names: str) -> Json:
    return pod("p", volumes=[{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names])


def stored(kind: str, name: str, **fields: Any) -> Json:
    return {"apiVersion": "storage.k8s.io/v1", "kind": kind, "metadata": {"name": name}, **fields}


PROVISIONERS = {"tells": "csi", "too": "csi", "quiet": "other", "local": "kubernetes.io/no-provisioner"}
STORAGE = [
    stored("CSIDriver", "csi", spec={"storageCapacity": True}),
    *(
        stored("StorageClass", name, provisioner=by, volumeBindingMode="WaitForFirstConsumer")
        for name, by in PROVISIONERS.items()
    ),
]
ABC = [node("a"), node("b"), node("c")]
RISING = ((0, 0), (100, 10))
DIFFERENT = [room("a", "100Gi"), room("b", "20Gi"), room("c", "10Gi")]


@pytest.mark.parametrize(
    ("claims", "there", "options", "expected"),
    [
        ([claim("x", "10Gi")], [room("a", "100Gi"), room("b", "50Gi"), room("c", "10Gi")], {}, [90, 80, 0]),
        ([claim("x", "10Gi")], DIFFERENT, {"volume_shape": RISING}, [10, 50, 100]),
        ([claim("x", "10Gi")], DIFFERENT, {}, [90, 50, 0]),
        # With a volume that is there, what drivers say does not count.
        (
            [claim("x", "10Gi"), claim("y", "50Gi", "local")],
            [*DIFFERENT, local("a", "100Gi"), local("b", "50Gi"), local("c", "200Gi")],
            {},
            [50, 0, 75],
        ),
        # Two claims of a class are for one room, two classes have one each.
        ([claim("x", "50Gi"), claim("y", "50Gi")], [room("a", "100Gi"), room("b", "200Gi"), room("c", "75Gi")], {},
         [0, 50, 0]),
        ([claim("x", "30Gi"), claim("y", "61Gi", "too")],
         [room("a", "100Gi"), room("a", "100Gi", "too"), room("b", "60Gi"), room("b", "61Gi", "too"), room("c", "99Gi"),
          room("c", "100Gi", "too")], {}, [55, 25, 55]),
        # What nothing is known of is worth nothing.
        ([claim("x", "10Gi", "quiet")], DIFFERENT, {}, [0, 0, 0]),
        ([claim("x", "10Gi", "local")], [local(on, "10Gi") for on in "abc"], {}, [0, 0, 0]),
        # The largest volume is a matter of the filter.
        ([claim("x", "10Gi")], [room("a", "5Gi", maximumVolumeSize="10Gi"), room("b", "40Gi"), room("c", "10Gi")], {},
         [0, 75, 0]),
    ],
)  # fmt: skip
def test_storage(claims: list[Json], there: list[Json], options: Json, expected: list[int]) -> None:
    incoming = mounts_claims(*(each["metadata"]["name"] for each in claims))
    assert scores("VolumeBinding", incoming, [*ABC, *STORAGE, *claims, *there], **options) == expected


@pytest.mark.parametrize("of", ["tells", "local"])
def test_storage_of_other_nodes_is_not_read(of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by the filter nor by the score: what a node reaches is found by its labels."""
    names = [f"n{i}" for i in range(20)]
    storage = [room(on, "100Gi") if of == "tells" else local(on, "100Gi") for on in names]
    pods = [mounts_claims(f"x{i}") for i in range(5)]
    for i, each in enumerate(pods):
        each["metadata"] |= {"name": f"p{i}", "uid": f"p{i}"}
    claims = [claim(f"x{i}", "10Gi", of) for i in range(5)]
    snapshot = kscale.Cluster([*map(node, names), *STORAGE, *claims, *storage]).snapshot()
    reads = 0
    matches = Requirement.matches

    def counted(self: Requirement, labels: Any) -> bool:
        nonlocal reads
        reads += 1
        return matches(self, labels)

    monkeypatch.setattr(Requirement, "matches", counted)
    result = kscale.place(snapshot, pods, scores=kscale.ScoreOptions(weights={"VolumeBinding": 1}))
    assert len(result.placed) == 5
    assert 0 < reads <= 2 * len(pods) * len(names)


def test_bound_and_unfiltered_claims_have_no_score() -> None:
    bound = claim("x", "10Gi", "local", volumeName="local-a")
    bound["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    assert scores("VolumeBinding", mounts_claims("x"), [*ABC, *STORAGE, bound, local("a", "100Gi")]) == [0]
    world = kscale.Cluster([*ABC, *STORAGE, claim("x", "10Gi"), *DIFFERENT]).snapshot()
    score_options = kscale.ScoreOptions(weights={"VolumeBinding": 1})
    for disabled, expected in ((set(), [90, 50, 0]), ({"VolumeBinding"}, [0, 0, 0])):
        profile = kscale.SchedulerProfile(disabled_filters=frozenset(disabled))
        result = kscale.node_scores(world, mounts_claims("x"), scores=score_options, profile=profile)
        assert result.total == expected
