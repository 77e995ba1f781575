"""Upstream's own tables on controllers, limits, capping, what pods get, startup boost and validation."""
# ruff: noqa: E501  (upstream texts stand on one line)

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kscale.objects.decode import from_dict, to_dict
from kscale.objects.kinds import find_kind
from kscale.objects.meta import OwnerReference
from kscale.objects.quantity import Quantity
from kscale.objects.vpa import VerticalPodAutoscaler
from kscale.vpa import AdmissionOptions, ControllerKey, Controllers, Scale, VpaIndex, admit_pod, admit_vpa, review
from kscale.vpa.admission.vpa_handler import validate
from kscale.vpa.capping import CappingError, apply_pod_limit_range, cap
from kscale.vpa.container_resources import ProviderError, containers_resources, resources_of
from kscale.vpa.limit_range import POD, LimitRangeError, LimitRanges
from kscale.vpa.patches import AnnotationError, annotate, escape, observed_containers, observed_text, remove_annotation
from kscale.vpa.proportional import CAPPED, DIVISION_BY_ZERO, limit_for, proportional_limits, scale
from kscale.vpa.resources import current_resources, has_lower_resource
from kscale.vpa.startup_boost import expired_boosts
from kscale.vpa.target import TargetError
from unit.vpa.builders import Pair, container, limit_ranges, pod, quantities, recommendation, recommended, vpa

NOW = 1769299200 * 10**9  # 2026-01-25T00:00:00Z
ZERO = Quantity.zero()
MAX = 2**63 - 1


# -- controllers -----------------------------------------------------------------------------------------------


def controller(kind: str, name: str, owner: tuple[str, str] | None = None, **spec: Any) -> Any:
    version = {"Job": "batch/v1", "CronJob": "batch/v1", "ReplicationController": "v1"}.get(kind, "apps/v1")
    owners = []
    if owner is not None:
        owners = [{"apiVersion": "argo/v1", "kind": owner[0], "name": owner[1], "controller": True}]
        if owner[0] in ("Deployment", "ReplicaSet"):
            owners[0]["apiVersion"] = "apps/v1"
        if owner[0] in ("CronJob", "Node"):
            owners[0]["apiVersion"] = "batch/v1" if owner[0] == "CronJob" else "v1"
    body = {
        "apiVersion": version,
        "kind": kind,
        "spec": spec,
        "metadata": {"name": name, "namespace": "default", "ownerReferences": owners},
    }
    type_ = find_kind(version, kind)
    assert type_ is not None
    return from_dict(body, type_)


def key(kind: str, name: str, version: str = "apps/v1") -> ControllerKey:
    return ControllerKey("default", kind, name, version)


@pytest.mark.parametrize(
    ("objects", "start", "top"),
    [
        (
            [controller("Deployment", "d"), controller("ReplicaSet", "r", ("Deployment", "d"))],
            key("ReplicaSet", "r"),
            key("Deployment", "d"),
        ),
        (
            [controller("CronJob", "c"), controller("Job", "j", ("CronJob", "c"))],
            key("Job", "j", "batch/v1"),
            key("CronJob", "c", "batch/v1"),
        ),
        ([controller("StatefulSet", "s")], key("StatefulSet", "s"), key("StatefulSet", "s")),
        ([controller("DaemonSet", "s")], key("DaemonSet", "s"), key("DaemonSet", "s")),
        ([controller("CronJob", "s")], key("CronJob", "s", "batch/v1"), key("CronJob", "s", "batch/v1")),
        (
            [controller("ReplicationController", "s")],
            key("ReplicationController", "s", "v1"),
            key("ReplicationController", "s", "v1"),
        ),
        ([controller("Deployment", "d", ("Thing", "plain"))], key("Deployment", "d"), key("Deployment", "d")),
        (
            [controller("Deployment", "d", ("Thing", "scaled"))],
            key("Deployment", "d"),
            key("Thing", "scaled", "argo/v1"),
        ),
        ([], key("Thing", "plain", "argo/v1"), None),
    ],
)
def test_topmost(objects: list[Any], start: ControllerKey, top: ControllerKey | None) -> None:
    scales = [Scale(api_version="argo/v1", kind="Thing", namespace="default", name="scaled", selector="app=x")]
    assert Controllers(objects, scales).topmost(start) == top
    assert Controllers(objects).topmost(None) is None


@pytest.mark.parametrize(
    ("objects", "text"),
    [
        ([], "Deployment default/d does not exist"),
        ([controller("Deployment", "d", ("Deployment", "d"))], "cycle detected in ownership chain"),
        (
            [controller("Deployment", "d", ("Node", "node"))],
            "unhandled targetRef v1 / Node / node, last error node is not a valid owner",
        ),
        (
            [controller("Deployment", "d", ("Thing", "x"))],
            'unhandled targetRef argo/v1 / Thing / x, last error no matches for kind "Thing" in group "argo"',
        ),
    ],
)
def test_topmost_that_cannot_be_found(objects: list[Any], text: str) -> None:
    with pytest.raises(TargetError) as refused:
        Controllers(objects).topmost(key("Deployment", "d"))
    assert str(refused.value) == text


def test_selectors_of_targets() -> None:
    labels = {"matchLabels": {"app": "x"}}
    known = Controllers(
        [controller("ReplicaSet", "rs", selector=labels)],
        [
            Scale(api_version="argo/v1", kind="Thing", namespace="default", name=n, selector=s)
            for n, s in (("a", "app=y"), ("b", ""))
        ],
    )
    assert str(known.selector(vpa())) == "app=x"
    for name, expected in (
        ("a", "app=y"),
        ("b", "resource default/b has an empty selector for scale sub-resource"),
        ("c", 'unhandled targetRef argo/v1 / Thing / c, last error things.argo "c" not found'),
    ):
        target = vpa(targetRef={"apiVersion": "argo/v1", "kind": "Thing", "name": name})
        try:
            assert str(known.selector(target)) == expected
        except TargetError as error:
            assert str(error) == expected  # noqa: PT017  (both ways lead to a text)


def owned() -> Controllers:
    return Controllers([controller("ReplicaSet", "rs", selector={"matchLabels": {"app": "x"}})])


def named(name: str, created: str, **spec: Any) -> VerticalPodAutoscaler:
    made = vpa(**spec)
    metadata = msgspec.structs.replace(made.metadata, name=name, creation_timestamp=created)
    return msgspec.structs.replace(made, metadata=metadata)


OFF = {"updateMode": "Off"}
BOOST = {"cpu": {"type": "Factor", "factor": 2}}


@pytest.mark.parametrize(
    ("vpas", "expected"),
    [
        ([named("late", "2026-01-10T00:00:00Z"), named("early", "2026-01-05T00:00:00Z")], "early"),
        ([named("b", "2026-01-05T00:00:00Z"), named("a", "2026-01-05T00:00:00Z")], "a"),
        ([named("a", "2026-01-05T00:00:00Z", targetRef=None)], None),
        (
            [
                named(
                    "a", "2026-01-05T00:00:00Z", targetRef={"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o"}
                )
            ],
            None,
        ),
        ([named("a", "2026-01-05T00:00:00Z", updatePolicy=OFF)], None),
        ([named("a", "2026-01-05T00:00:00Z", updatePolicy=OFF), named("b", "2026-01-06T00:00:00Z")], "b"),
        ([named("a", "2026-01-05T00:00:00Z", updatePolicy={"updateMode": "Initial"})], "a"),
        ([named("a", "2026-01-05T00:00:00Z", updatePolicy=OFF, startupBoost=BOOST)], "a"),
        (
            [
                named(
                    "a",
                    "2026-01-05T00:00:00Z",
                    updatePolicy=OFF,
                    policies=[{"containerName": "c", "startupBoost": BOOST}],
                )
            ],
            "a",
        ),
    ],
)
def test_which_vpa(vpas: list[VerticalPodAutoscaler], expected: str | None) -> None:
    index = VpaIndex(vpas)
    found = index.match(pod(container("c")), owned())
    assert (found.name if found is not None else None) == expected
    assert index.match(pod(container("c"), labels={"app": "z"}), owned()) is None
    bare = pod(container("c"))
    bare.metadata.owner_references = [OwnerReference(kind="ReplicaSet", name="rs")]
    assert index.match(bare, owned()) is None


def test_current_resources() -> None:
    def with_status(status: Pair | None, spec: Pair | None = ("1", "10Mi")) -> Any:
        statuses = [{"name": "c", "resources": container("c", status)["resources"]}] if status is not None else []
        return pod(container("c", spec), status={"containerStatuses": statuses})

    assert current_resources(with_status(("3", "30Mi")), "c")[0] == quantities(("3", "30Mi"))
    assert current_resources(with_status(("0", None)), "c")[0] == quantities(("0", None))
    assert current_resources(with_status(None), "c")[0] == quantities(("1", "10Mi"))
    assert current_resources(with_status(None), "other") == (None, None)
    assert current_resources(with_status(None, None), "c") == (None, None)
    assert current_resources(with_status((None, None)), "c")[0] == {}


@pytest.mark.parametrize(
    ("a", "b", "lower"),
    [
        ((None, None), (None, None), False),
        (("1", "1Gi"), ("1", "1Gi"), False),
        (("2", "1Gi"), ("1", "1Gi"), True),
        (("1", "2Gi"), ("1", "1Gi"), True),
        (("1", "1Gi"), ("2", "2Gi"), False),
        (("2", "1Gi"), ("1", None), True),
        (("1", None), ("1", "1Gi"), False),
    ],
)
def test_lower_resource(a: Pair, b: Pair, lower: bool) -> None:
    assert has_lower_resource(recommendation(recommended("c", a)), recommendation(recommended("c", b))) == lower
    assert not has_lower_resource(recommendation(recommended("c", a)), recommendation(recommended("d", b)))
    assert not has_lower_resource(None, recommendation(recommended("c", b)))


# -- proportional limits, limit ranges -------------------------------------------------------------------------


@pytest.mark.parametrize("resource", ["cpu", "memory"])
@pytest.mark.parametrize(
    ("limit", "request_", "rec", "default", "expected", "note"),
    [
        ("2", "1", "10", "0", "20", ""),
        ("0", "1", "10", "2", "20", ""),
        ("0", "1", "10", "0", None, "limit NOT set since originalLimit is nil or 0"),
        ("2", "0", "10", "0", "10", ""),
        ("0", "1", "0", "2", None, "limit NOT set since recommendedRequest is nil or 0"),
        ("1", "1", "10", "0", "10", ""),
    ],
)
def test_limits(
    resource: str, limit: str, request_: str, rec: str, default: str, expected: str | None, note: str
) -> None:
    found, said = limit_for(resource, *map(Quantity, (limit, request_, rec, default)))
    assert found == (Quantity(expected) if expected is not None else None)
    assert said == (f"{resource}: {note}" if note else "")


def test_limits_are_cut_and_capped() -> None:
    assert limit_for("cpu", *map(Quantity, ("2", "1500m", "1", "0")))[0] == Quantity("1333m")
    assert limit_for("memory", *map(Quantity, ("200", "150", "100", "0")))[0] == Quantity("133")
    for resource in ("cpu", "memory"):
        found, said = limit_for(resource, *map(Quantity, ("10G", "1m", "10G", "0")))
        assert found is not None
        assert (found.milli_value() if resource == "cpu" else found.value()) == MAX
        assert said == f"{resource}: failed to keep limit to request ratio; capping limit to int64"
    assert scale("cpu", Quantity("1"), ZERO, Quantity("20")) == (Quantity("1"), DIVISION_BY_ZERO)
    assert scale("memory", Quantity("1"), ZERO, Quantity("20"))[1] == DIVISION_BY_ZERO
    assert scale("cpu", Quantity("10G"), Quantity("1m"), Quantity("10G"))[1] == CAPPED
    assert scale("memory", Quantity("1"), Quantity("3"), Quantity("1"), "down")[0] == Quantity("-1")
    assert proportional_limits({}, {}, {}, {}) == (None, [])


def test_effective_limit_ranges() -> None:
    both = LimitRanges.of([*limit_ranges(POD, max=("1.5", None)).items, *limit_ranges(POD, max=("2", None)).items])
    found = both.effective("default", POD)
    assert found is not None
    assert found.max == quantities(("1.5", None))
    both = LimitRanges.of([*limit_ranges(POD, min=("1.5", None)).items, *limit_ranges(POD, min=("1", None)).items])
    found = both.effective("default", POD)
    assert found is not None
    assert found.min == quantities(("1.5", None))
    assert both.effective("other", POD) is None
    assert both.effective("default", "Container") is None


# -- capping ---------------------------------------------------------------------------------------------------


def test_nothing_to_cap() -> None:
    with pytest.raises(CappingError, match="cannot process nil vpa"):
        cap(None, pod())
    with pytest.raises(CappingError, match="cannot process nil pod"):
        cap(vpa(), None)
    assert cap(vpa(), pod(container("c")))[:2] == (None, {})
    capped = cap(vpa(recommended("other", ("1", "1Gi"))), pod(container("c")))
    assert capped.recommendation == recommendation()
    assert capped.notes == {}


REQUESTS_ONLY = [{"containerName": "c", "controlledValues": "RequestsOnly"}]
CONTAINER_MAX_MIN = limit_ranges("Container", max=("1", None), min=(None, "500M"))
CONTAINER_MIN = limit_ranges("Container", min=(None, "500M"))
MIN_NOTE, MAX_NOTE = "capped to fit Min in container LimitRange", "capped to fit Max in container LimitRange"


@pytest.mark.parametrize(
    ("given", "pod_", "limits", "target", "upper", "notes"),
    [
        (
            vpa(recommended("c", ("20", "80000"), None, ("100", "90000"))),
            pod(container("c", None, ("30", "70000"))),
            None,
            ("20", "80000"),
            ("100", "90000"),
            [],
        ),
        (
            vpa(recommended("c", ("20", "80000"), None, ("100", "90000")), policies=REQUESTS_ONLY),
            pod(container("c", None, ("30", "70000"))),
            None,
            ("20", "70000"),
            ("30", "70000"),
            ["memory capped to container limit"],
        ),
        (
            vpa(
                recommended("c", ("300", "50000"), ("200", "43000"), ("500", "55000")),
                policies=[
                    {
                        "containerName": "c",
                        "minAllowed": {"cpu": "400", "memory": "40000"},
                        "maxAllowed": {"cpu": "450", "memory": "45000"},
                    }
                ],
            ),
            pod(container("c")),
            None,
            ("400", "45000"),
            ("450", "45000"),
            ["cpu capped to minAllowed", "memory capped to maxAllowed"],
        ),
        (
            vpa(recommended("c", ("2", "200M"), None, ("2", "200M"))),
            pod(container("c", ("1", "1G"), ("1", "1G"))),
            CONTAINER_MAX_MIN,
            ("1", "500M"),
            ("1", "500M"),
            [f"cpu {MAX_NOTE}", f"memory {MIN_NOTE}"],
        ),
        (
            vpa(recommended("c", ("1", "200M"), None, ("1", "200M"))),
            pod(container("c", ("1", "50M"), ("1", "600M"))),
            CONTAINER_MIN,
            ("1", "500M"),
            ("1", "500M"),
            [f"memory {MIN_NOTE}"],
        ),
        (
            vpa(recommended("c", ("1", "200M"), None, ("1", "200M")), policies=REQUESTS_ONLY),
            pod(container("c", ("1", "50M"), ("1", "100M"))),
            CONTAINER_MIN,
            ("1", "100M"),
            ("1", "100M"),
            [f"memory {MIN_NOTE}", "memory capped to container limit"],
        ),
        (
            vpa(recommended("c", ("1", "200M"), None, ("1", "200M")), policies=REQUESTS_ONLY),
            pod(container("c", ("1", "50M"), ("1", "100M"))),
            limit_ranges(POD, min=(None, "500M")),
            ("1", "100M"),
            ("1", "100M"),
            ["memory capped to container limit"],
        ),
    ],
)
def test_capping(given: Any, pod_: Any, limits: Any, target: Pair, upper: Pair, notes: list[str]) -> None:
    capped = cap(given, pod_, limits)
    assert capped.recommendation is not None
    (item,) = capped.recommendation.container_recommendations
    assert (item.target, item.upper_bound) == (quantities(target), quantities(upper))
    assert capped.notes["c"] == notes


@pytest.mark.parametrize(
    ("limits", "items", "containers", "expected"),
    [
        (
            {"min": (None, "500M")},
            [("c1", ("1", "200M"))],
            ("50M", "100M"),
            {"c1": ("1", "400000000"), "c2": ("1", "100000000")},
        ),
        (
            {"min": (None, "500M")},
            [("c1", ("1", "200M")), ("c2", ("1", "200M"))],
            ("50M", "100M"),
            {"c1": ("1", "250000000"), "c2": ("1", "250000000")},
        ),
        (
            {"max": (None, "1Gi")},
            [("c1", ("1", "1Gi")), ("c2", ("1", "2Gi"))],
            ("50M", "50M"),
            {"c1": ("1", "357913941"), "c2": ("1", "715827882")},
        ),
        (
            {"min": (None, "4Gi")},
            [("c1", ("1", "1Gi")), ("c2", ("1", "2Gi"))],
            ("50M", "50M"),
            {"c1": ("1", "1431655765"), "c2": ("1", "2863311530")},
        ),
    ],
)
def test_limit_range_of_the_pod(
    limits: Any, items: Any, containers: tuple[str, str], expected: dict[str, Pair]
) -> None:
    request, limit = containers
    given = pod(*(container(name, ("1", request), ("1", limit)) for name in ("c1", "c2")))
    capped = cap(vpa(*(recommended(*item) for item in items)), given, limit_ranges(POD, **limits))
    assert capped.recommendation is not None
    made = {item.container_name: item.target for item in capped.recommendation.container_recommendations}
    assert made == {name: quantities(pair) for name, pair in expected.items()}
    assert not any(capped.notes.values())


def test_where_upstream_would_crash_a_diagnostic_is_left() -> None:
    given = pod(container("c1", ("1", "50M"), ("1", "100M")), container("c2", ("1", "50M"), ("1", "100M")))
    capped = cap(
        vpa(recommended("c1", ("1", "200M"), ("1", "200M"), ("1", "200M"))),
        given,
        limit_ranges(POD, min=(None, "500M")),
    )
    assert any("container c2 has no upper_bound" in text for text in capped.diagnostics)


@pytest.mark.parametrize(
    ("resource", "targets", "request_", "limit", "bounds", "expected"),
    [
        ("cpu", ("1", "1"), ("1", "1"), ("1", "1"), {"max": ("1", None)}, ("500m", "500m")),
        ("memory", ("1G", "1G"), ("1G", "1G"), ("1G", "1G"), {"min": (None, "4G")}, ("2000000000", "2000000000")),
        (
            "memory",
            ("1G", "1G"),
            ("1G", "1G"),
            ("2G", "2G"),
            {"max": (None, "10G"), "min": (None, "4G")},
            ("2000000000", "2000000000"),
        ),
        ("cpu", ("15m", "100m"), ("15m", "100m"), ("15m", "100m"), {"min": ("150m", None)}, ("20m", "131m")),
        ("cpu", ("15m", "100m"), ("15m", "100m"), ("15m", "100m"), {"max": ("90m", None)}, ("11m", "78m")),
        ("memory", ("1G",), ("1G", "1G"), ("1G", "1G"), {"min": (None, "4G")}, ("2000000000",)),
    ],
)
def test_pod_limits_on_one_resource(
    resource: str, targets: Any, request_: Any, limit: Any, bounds: Any, expected: Any
) -> None:
    def pair(text: str) -> Pair:
        return (text, None) if resource == "cpu" else (None, text)

    names = ("c1", "c2")
    given = pod(*(container(n, pair(r), pair(m)) for n, r, m in zip(names, request_, limit, strict=True)))
    items = recommendation(
        *(recommended(n, pair(t)) for n, t in zip(names, targets, strict=False))
    ).container_recommendations
    item = limit_ranges(POD, **bounds).effective("default", POD)
    assert item is not None
    apply_pod_limit_range(items, given, item, resource, "target")
    assert [i.target for i in items] == [quantities(pair(text)) for text in expected]


# -- what pods get ---------------------------------------------------------------------------------------------

WITHIN = {
    "containerName": "c",
    "minAllowed": {"cpu": "1", "memory": "100Mi"},
    "maxAllowed": {"cpu": "3", "memory": "1Gi"},
}


class Broken:
    def effective(self, namespace: str, type_: str) -> None:
        raise LimitRangeError("oh no")


@pytest.mark.parametrize(
    ("target", "policy", "own", "limits", "requests", "limit", "notes"),
    [
        (("2", "200Mi"), WITHIN, container("c"), None, ("2", "200Mi"), None, []),
        (
            ("3", "150Mi"),
            {**WITHIN, "minAllowed": {"cpu": "4", "memory": "300Mi"}, "maxAllowed": {"cpu": "5", "memory": "1Gi"}},
            container("c"),
            None,
            ("4", "300Mi"),
            None,
            ["cpu capped to minAllowed", "memory capped to minAllowed"],
        ),
        (
            ("7", "2Gi"),
            {**WITHIN, "maxAllowed": {"cpu": "5", "memory": "1Gi"}},
            container("c"),
            None,
            ("5", "1Gi"),
            None,
            ["cpu capped to maxAllowed", "memory capped to maxAllowed"],
        ),
        (
            ("2", "200Mi"),
            WITHIN,
            container("c", ("2", "200Mi"), ("2", "200Mi")),
            None,
            ("2", "200Mi"),
            ("2", "200Mi"),
            [],
        ),
        (("2", "200Mi"), WITHIN, container("c", None, ("2", "200Mi")), None, ("2", "200Mi"), ("2", "200Mi"), []),
        (
            ("2", "200Mi"),
            WITHIN,
            container("c", ("1", "100Mi"), ("2", "200Mi")),
            None,
            ("2", "200Mi"),
            ("4", "400Mi"),
            [],
        ),
        (
            ("2", "200Mi"),
            {**WITHIN, "controlledValues": "RequestsOnly"},
            container("c", ("1", "100Mi"), ("2", "200Mi")),
            None,
            ("2", "200Mi"),
            None,
            [],
        ),
        (
            ("3", "500Mi"),
            {**WITHIN, "controlledValues": "RequestsOnly"},
            container("c", ("1", "100Mi"), ("2", "200Mi")),
            None,
            ("2", "200Mi"),
            None,
            ["cpu capped to container limit", "memory capped to container limit"],
        ),
        (
            ("2", "200Mi"),
            WITHIN,
            container("c", ("2", "100Mi")),
            limit_ranges("Container", default=("2", "100Mi")),
            ("2", "200Mi"),
            ("2", "200Mi"),
            [],
        ),
    ],
)
def test_provider(target: Any, policy: Any, own: Any, limits: Any, requests: Any, limit: Any, notes: Any) -> None:
    made = containers_resources(pod(own), vpa(recommended("c", target), policies=[policy]), limits)
    assert made.containers[0].requests == quantities(requests)
    assert made.containers[0].limits == (quantities(limit) if limit is not None else None)
    assert made.notes["c"] == notes


def test_provider_without_recommendation_or_limit_ranges() -> None:
    assert containers_resources(pod(container("c")), vpa()).containers == [(None, None)]
    with pytest.raises(ProviderError, match="error getting containerLimitRange: oh no"):
        containers_resources(pod(container("c")), vpa(), Broken())
    item = recommended("c", ("2", "200Mi"))
    item["target"][""] = "1"
    assert containers_resources(pod(container("c")), vpa(item)).containers[0].requests == quantities(("2", "200Mi"))


@pytest.mark.parametrize(
    ("policies", "requests", "limits"),
    [(None, ("2", "1M"), ("20", "10M")), (REQUESTS_ONLY, ("2", "1M"), ("10", "10M"))],
)
def test_filling_in_from_the_pod(policies: Any, requests: Pair, limits: Pair) -> None:
    given = pod(container("c", ("1", "1M"), ("10", "10M")))
    policy = vpa(policies=policies).spec.resource_policy if policies else None
    only_cpu = recommendation(recommended("c", ("2", None)))
    (made,) = resources_of(given, policy, only_cpu, None, {}, add_all=True)
    assert made == (quantities(requests), quantities(limits))
    (bare,) = resources_of(given, policy, only_cpu, None, {})
    assert bare.requests == quantities(("2", None))


def patched(given: Any, *items: Any, gates: dict[str, bool] | None = None, cap_: str = "0", **spec: Any) -> Any:
    options = AdmissionOptions(feature_gates=gates or {}, max_allowed_cpu_boost=Quantity(cap_))
    return admit_pod(given, [vpa(*items, **spec)], controllers=owned(), options=options)


UPDATES = "/metadata/annotations/vpaUpdates"


@pytest.mark.parametrize(
    ("containers", "items", "paths", "note"),
    [
        (
            [container("c")],
            [recommended("c", ("1", None))],
            ["0/resources", "0/resources/requests", "0/resources/requests/cpu"],
            "container 0: cpu request",
        ),
        (
            [container("c", ("0", None))],
            [recommended("c", ("1", None))],
            ["0/resources/requests/cpu"],
            "container 0: cpu request",
        ),
        (
            [container("c", ("0", None)), container("d")],
            [recommended("c", ("1", None)), recommended("d", ("2", None))],
            ["0/resources/requests/cpu", "1/resources", "1/resources/requests", "1/resources/requests/cpu"],
            "container 0: cpu request; container 1: cpu request",
        ),
    ],
)
def test_patches(containers: Any, items: Any, paths: list[str], note: str) -> None:
    patches = patched(pod(*containers, annotations={}), *items).patches
    assert [p.path for p in patches if p.path.startswith("/spec")] == [f"/spec/containers/{path}" for path in paths]
    texts = {p.path: p.value for p in patches}
    assert texts[UPDATES] == f"Pod resources updated by name: {note}"
    assert texts["/metadata/annotations/vpaObservedContainers"] == ", ".join(c["name"] for c in containers)


def boosted(given: dict[str, Any], boost: dict[str, Any], item: Any, **more: Any) -> tuple[str | None, str | None, str]:
    gates = {"CPUStartupBoost": True}
    result = patched(pod(given, annotations={}), *item, gates=gates, startupBoost={"cpu": boost}, **more)
    assert not result.errors, result.errors
    values = {p.path: p.value for p in result.patches}
    base = "/spec/containers/0/resources"
    return (
        values.get(f"{base}/requests/cpu"),
        values.get(f"{base}/limits/cpu"),
        values.get("/metadata/annotations/vpaCpuStartupBoost~1c", ""),
    )


FACTOR_2 = {"type": "Factor", "factor": 2}


@pytest.mark.parametrize(
    ("given", "boost", "rec", "more", "expected"),
    [
        (("1m", "1m"), FACTOR_2, "100m", {}, ("200m", "200m")),
        (("1m", "1m"), {**FACTOR_2, "durationSeconds": 0}, "100m", {}, ("200m", "200m")),
        (("1m", "1m"), {"type": "Quantity", "quantity": "500m"}, "100m", {}, ("600m", "600m")),
        (("400m", "400m"), {"type": "Quantity", "quantity": "200m"}, "500m", {}, ("700m", "700m")),
        (("1m", "1m"), {"type": "Factor", "factor": 3}, "20m", {"cap_": "40m"}, ("40m", "40m")),
        (("100m", "100m"), FACTOR_2, None, {}, ("200m", "200m")),
        (("100m", "300m"), FACTOR_2, "100m", {"policies": REQUESTS_ONLY}, ("200m", None)),
        (("100m", "150m"), FACTOR_2, "100m", {"policies": REQUESTS_ONLY}, ("149m", None)),
        (("100m", "300m"), FACTOR_2, "150m", {}, ("300m", "900m")),
        (("100m", None), FACTOR_2, "150m", {}, ("300m", None)),
        (
            ("1m", "1m"),
            FACTOR_2,
            "100m",
            {"policies": [{"containerName": "c", "startupBoost": {"cpu": {"type": "Factor", "factor": 3}}}]},
            ("300m", "300m"),
        ),
    ],
)
def test_boost(given: Any, boost: Any, rec: str | None, more: Any, expected: Any) -> None:
    request, limit = given
    own = container("c", (request, None), (limit, None) if limit else None)
    item = [recommended("c", (rec, None))] if rec else []
    requests, limits, original = boosted(own, boost, item, **more)
    assert (requests, limits) == expected
    shown = f'{{"cpu":"{limit}"}}' if limit else "{}"
    assert original == f'{{"requests":{{"cpu":"{request}"}},"limits":{shown}}}'


def test_boost_that_does_not_happen() -> None:
    own, item = container("c", ("1m", None), ("1m", None)), recommended("c", ("100m", None))
    result = patched(pod(own), item, startupBoost={"cpu": FACTOR_2})
    assert "/metadata/annotations/vpaCpuStartupBoost~1c" not in {p.path for p in result.patches}
    off = [{"containerName": "c", "mode": "Off"}]
    result = patched(pod(own), item, gates={"CPUStartupBoost": True}, startupBoost={"cpu": FACTOR_2}, policies=off)
    assert not any(p.path.startswith("/spec") for p in result.patches)
    assert boosted(own, {**FACTOR_2}, [item], policies=[{"containerName": "c", "startupBoost": {}}])[2] == ""


@pytest.mark.parametrize(
    ("boost", "text"),
    [
        ({"type": "Factor", "factor": 0}, "boost factor must be >= 1"),
        ({"type": "Invalid"}, "unsupported startup boost type: Invalid"),
        ({"type": "Factor"}, "startupBoost.CPU.Factor is required when Type is Factor or not specified"),
        ({"type": "Quantity"}, "startupBoost.CPU.Quantity is required when Type is Quantity"),
    ],
)
def test_boosts_that_cannot_be(boost: Any, text: str) -> None:
    result = patched(
        pod(container("c")), recommended("c", ("1", None)), gates={"CPUStartupBoost": True}, startupBoost={"cpu": boost}
    )
    assert ([str(error) for error in result.errors], result.patches) == ([f".: Internal error: {text}"], [])


@pytest.mark.parametrize(
    ("boosts", "ready", "ago", "spec", "expected"),
    [
        ([], "True", 60, {}, []),
        (["c1"], "True", 1, {}, ["c1"]),
        (["c1"], "False", 600, {}, []),
        (["c1"], "True", 120, {"spec": 60}, ["c1"]),
        (["c1"], "True", 0, {"spec": 60}, []),
        (["c1", "c2"], "True", 120, {"c1": 180, "c2": 60}, ["c2"]),
        (["c1", "c2"], "True", 240, {"c1": 180, "c2": 60}, ["c1", "c2"]),
        (["c1"], "True", 240, {"spec": 300, "c1": 180}, ["c1"]),
    ],
)
def test_expiry_of_boosts(boosts: list[str], ready: str, ago: int, spec: dict[str, int], expected: list[str]) -> None:
    def boost(seconds: int) -> dict[str, Any]:
        return {"cpu": {"type": "Factor", "factor": 2, "durationSeconds": seconds}}

    since = (
        f"2026-01-24T23:{59 - (ago - 1) // 60 if ago else 59:02d}:{(60 - ago % 60) % 60:02d}Z"
        if ago
        else "2026-01-25T00:00:00Z"
    )
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": since}
    given = pod(annotations={f"vpaCpuStartupBoost/{name}": "{}" for name in boosts}, status={"conditions": [condition]})
    policies = [{"containerName": name, "startupBoost": boost(spec[name])} for name in ("c1", "c2") if name in spec]
    more = {"startupBoost": boost(spec["spec"])} if "spec" in spec else {}
    assert expired_boosts(given, vpa(policies=policies, **more), NOW) == expected


def test_annotations() -> None:
    assert observed_text(pod(container("test1"), container("test2"))) == "test1, test2"
    assert observed_containers("test1, test2") == ["test1", "test2"]
    assert observed_containers("") == []
    with pytest.raises(AnnotationError, match="is not a valid container name"):
        observed_containers("test1, test3_;';s")
    assert escape("nvidia.com/gpu") == "nvidia.com~1gpu"
    assert escape("custom~domain.com/resource/name") == "custom~0domain.com~1resource~1name"
    assert annotate("a/b", "x").path == remove_annotation("a/b").path == "/metadata/annotations/a~1b"


# -- validation ------------------------------------------------------------------------------------------------

POLICY = "spec.resourcePolicy.containerPolicies[0]"
PER_VPA = "not supported when feature flag PerVPAConfig is disabled"


def policies(**fields: Any) -> dict[str, Any]:
    return {"resourcePolicy": {"containerPolicies": [{"containerName": "c", **fields}]}}


@pytest.mark.parametrize(
    ("spec", "gates", "text"),
    [
        (
            {"updatePolicy": {}},
            [],
            "spec.updatePolicy.updateMode: Required value: updateMode is required if UpdatePolicy is used",
        ),
        (
            {"updatePolicy": {"updateMode": "bad"}},
            [],
            'spec.updatePolicy.updateMode: Unsupported value: "bad": supported values: "InPlace", "InPlaceOrRecreate", "Initial", "Off", "Recreate"',
        ),
        ({"updatePolicy": {"updateMode": "InPlaceOrRecreate"}}, [], ""),
        (
            {"updatePolicy": {"updateMode": "Auto", "minReplicas": 0}},
            [],
            "spec.updatePolicy.minReplicas: Invalid value: 0: minReplicas has to be positive",
        ),
        (policies(containerName=""), [], f"{POLICY}.containerName: Required value"),
        (policies(mode="bad"), [], f'{POLICY}.mode: Unsupported value: "bad": supported values: "Auto", "Off"'),
        (
            {"recommenders": [{"name": "a"}, {"name": "b"}]},
            [],
            "spec.recommenders: Too many: 2: must have at most 1 item",
        ),
        (
            policies(minAllowed={"cpu": "100"}, maxAllowed={"cpu": "10"}),
            [],
            f'{POLICY}.maxAllowed[cpu]: Invalid value: "10": max resource for cpu is lower than min of "100"',
        ),
        (
            policies(minAllowed={"cpu": "187500u"}),
            [],
            f'{POLICY}.minAllowed[cpu]: Invalid value: "187500u": must be a whole number of milli CPUs',
        ),
        (
            policies(maxAllowed={"memory": "500m"}),
            [],
            f'{POLICY}.maxAllowed[memory]: Invalid value: "500m": must be a whole number of bytes',
        ),
        (
            policies(mode="Off", controlledValues="RequestsAndLimits"),
            [],
            f"{POLICY}.controlledValues: Forbidden: controlledValues shouldn't be specified if container scaling mode is off",
        ),
        (
            policies(
                mode="Auto", minAllowed={"cpu": "1"}, maxAllowed={"cpu": "2"}, controlledValues="RequestsAndLimits"
            ),
            [],
            "",
        ),
        (
            {"startupBoost": BOOST},
            [],
            "spec.startupBoost: Forbidden: in order to use startupBoost, you must enable feature gate CPUStartupBoost in the admission-controller args",
        ),
        (
            policies(startupBoost=BOOST),
            [],
            f"{POLICY}.startupBoost: Forbidden: in order to use startupBoost, you must enable feature gate CPUStartupBoost in the admission-controller args",
        ),
        (
            {"startupBoost": {"cpu": {"type": "Factor", "factor": 0}}},
            ["CPUStartupBoost"],
            "spec.startupBoost.cpu.factor: Invalid value: 0: must be >= 1 for type Factor",
        ),
        (
            {"startupBoost": {"cpu": {"type": "Quantity", "quantity": "187500u"}}},
            ["CPUStartupBoost"],
            'spec.startupBoost.cpu.quantity: Invalid value: "187500u": must be a whole number of milli CPUs',
        ),
        (
            {"startupBoost": {"cpu": {"type": "bad"}}},
            ["CPUStartupBoost"],
            'spec.startupBoost.cpu.type: Unsupported value: "bad": supported values: "Factor", "Quantity"',
        ),
        (
            {"startupBoost": {"cpu": {"type": ""}}},
            ["CPUStartupBoost"],
            "spec.startupBoost.cpu.type: Required value: must be either Factor or Quantity",
        ),
        (
            policies(oomBumpUpRatio="-1"),
            ["PerVPAConfig"],
            f"{POLICY}.oomBumpUpRatio: Invalid value: -1: must be greater than or equal to 1.0",
        ),
        (
            policies(oomBumpUpRatio="0.5"),
            ["PerVPAConfig"],
            f"{POLICY}.oomBumpUpRatio: Invalid value: 0.5: must be greater than or equal to 1.0",
        ),
        (
            policies(oomMinBumpUp="-1"),
            ["PerVPAConfig"],
            f"{POLICY}.oomMinBumpUp: Invalid value: -1: must be greater than or equal to 0",
        ),
        (policies(oomBumpUpRatio="2"), [], f"{POLICY}.oomBumpUpRatio: Forbidden: {PER_VPA}"),
        (policies(oomMinBumpUp="2"), [], f"{POLICY}.oomMinBumpUp: Forbidden: {PER_VPA}"),
        (
            policies(memoryAggregationIntervalSeconds=1),
            [],
            f"{POLICY}.memoryAggregationIntervalSeconds: Forbidden: {PER_VPA}",
        ),
        (
            policies(memoryAggregationIntervalCount=1),
            [],
            f"{POLICY}.memoryAggregationIntervalCount: Forbidden: {PER_VPA}",
        ),
        (
            policies(memoryAggregationIntervalSeconds=-5),
            ["PerVPAConfig"],
            f"{POLICY}.memoryAggregationIntervalSeconds: Invalid value: -5: must be greater than or equal to 1",
        ),
        (
            policies(memoryAggregationIntervalCount=-3),
            ["PerVPAConfig"],
            f"{POLICY}.memoryAggregationIntervalCount: Invalid value: -3: must be greater than or equal to 1",
        ),
        (
            {"updatePolicy": {"updateMode": "Off", "evictAfterOOMSeconds": 5}},
            [],
            f"spec.updatePolicy.evictAfterOOMSeconds: Forbidden: {PER_VPA}",
        ),
        (
            {"updatePolicy": {"updateMode": "InPlace"}},
            [],
            "spec.updatePolicy.updateMode: Forbidden: in order to use UpdateMode InPlace, you must enable feature gate InPlace in the admission-controller args",
        ),
        (
            policies(controlledResources=["cpu", "broken"]),
            [],
            f'{POLICY}.controlledResources[1]: Unsupported value: "broken": supported values: "cpu", "memory"',
        ),
    ],
)
def test_validation(spec: dict[str, Any], gates: list[str], text: str) -> None:
    result = admit_vpa(vpa(**spec), options=AdmissionOptions(feature_gates=dict.fromkeys(gates, True)))
    assert [str(error) for error in result.errors] == ([text] if text else [])
    assert result.allowed == (not text)


def test_target_is_required_of_new_objects() -> None:
    bare = VerticalPodAutoscaler()
    errors, _ = validate(bare, None)
    text = "spec.targetRef: Required value: If you're using v1beta1 version of the API, please migrate to v1"
    assert [str(error) for error in errors] == [text]
    assert validate(bare, bare) == ([], [])


def test_what_the_old_object_had_is_let_through() -> None:
    broken = vpa(**policies(controlledResources=["cpu", "broken"]))
    kept = admit_vpa(broken, broken)
    assert kept.allowed
    assert kept.warnings == [
        (
            f'{POLICY}.controlledResources[1]: unsupported value "broken" is allowed only because it is present in the '
            'existing VPA object; supported values: "cpu", "memory"'
        )
    ]
    for spec in ({"updatePolicy": {"updateMode": "InPlace"}}, policies(oomMinBumpUp="2"), {"startupBoost": BOOST}):
        assert admit_vpa(vpa(**spec), vpa(**spec)).allowed


def test_review() -> None:
    index = VpaIndex([vpa(recommended("c", ("1", None)))])
    request = {
        "uid": "u1",
        "namespace": "default",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": to_dict(pod(container("c"))),
    }
    answer = msgspec.json.decode(review(msgspec.json.encode({"request": request}), index, controllers=owned()).body)
    assert answer["response"]["uid"] == "u1"
    assert answer["response"]["patchType"] == "JSONPatch"
    for body in (b"{", b"[]", b'{"request": 5}'):
        done = review(body, index)
        assert (done.status, msgspec.json.decode(done.body)["response"]["allowed"]) == ("error", True)
    resource = {"group": "autoscaling.k8s.io", "version": "v1", "resource": "verticalpodautoscalers"}
    bad = {"metadata": {"name": "x"}, "spec": {"updatePolicy": {}}}
    body = msgspec.json.encode({"request": {"uid": "u2", "resource": resource, "object": bad}})
    response = msgspec.json.decode(review(body, index).body)["response"]
    assert (response["allowed"], response["status"]["code"], response["status"]["reason"]) == (False, 422, "Invalid")
    other = {"group": "apps", "version": "v1", "resource": "deployments"}
    done = review(msgspec.json.encode({"request": {"uid": "u3", "resource": other}}), index)
    assert done.messages == ["not supported resource type: deployments.apps"]
