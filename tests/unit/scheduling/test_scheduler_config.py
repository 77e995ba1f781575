"""Configuration files of the scheduler as profiles."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import kscale

Json = dict[str, Any]


def configured(*profiles: Json) -> Json:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [*profiles],
    }


def plugins(**points: Any) -> Json:
    """``filter=("+NodeName", "-NodePorts")`` and the like."""
    created = {}
    for point, names in points.items():
        created[point] = {
            "enabled": [{"name": name[1:]} for name in names if name[0] == "+"],
            "disabled": [{"name": name[1:]} for name in names if name[0] == "-"],
        }
    return {"plugins": created}


def test_how_long_devices_may_wait_for_their_conditions() -> None:
    result = kscale.scheduler_profile(configured(config("DynamicResources", bindingTimeout="90s", filterTimeout="10s")))
    assert result.device_binding_timeout == timedelta(seconds=90)
    stock = kscale.scheduler_profile(configured(config("DynamicResources")))
    assert stock.device_binding_timeout == timedelta(minutes=10)
    with pytest.raises(kscale.InputError) as raised:
        kscale.scheduler_profile(configured(config("DynamicResources", bindingTimeout="0.5s")))
    assert str(raised.value).endswith('bindingTimeout: Invalid value: "500ms": must be at least 1 second')
    with pytest.raises(kscale.InputError, match=r'bindingTimeout: time: invalid duration "soon"'):
        kscale.scheduler_profile(configured(config("DynamicResources", bindingTimeout="soon")))


def config(name: str, **args: Any) -> Json:
    return {"pluginConfig": [{"name": name, "args": {"kind": f"{name}Args", **args}}]}


NOTHING_BUT_NAMES = frozenset(
    {"NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit", "VolumeRestrictions",
     "NodeVolumeLimits", "VolumeBinding", "VolumeZone", "PodTopologySpread", "InterPodAffinity", "DynamicResources",
     "NodeDeclaredFeatures"}
)  # fmt: skip


@pytest.mark.parametrize(
    ("profile", "filters", "prefilters"),
    [
        ({}, set(), set()),
        ({"schedulerName": "mine"}, set(), set()),
        (plugins(filter=("-NodePorts",)), {"NodePorts"}, set()),
        (plugins(filter=("-NodePorts",), preFilter=("-NodePorts",)), {"NodePorts"}, {"NodePorts"}),
        (plugins(multiPoint=("-NodePorts", "-ImageLocality")), {"NodePorts"}, {"NodePorts"}),
        (plugins(multiPoint=("+NodeResourcesFit",)), set(), set()),
        (plugins(multiPoint=("-*", "+NodeName")), NOTHING_BUT_NAMES, NOTHING_BUT_NAMES),
        (plugins(filter=("-*", "+NodeName"), preFilter=("-*",)), NOTHING_BUT_NAMES, {*NOTHING_BUT_NAMES, "NodeName"}),
        (plugins(score=("-*",), filter=("+NodeName",)), set(), set()),
    ],
)
def test_plugins(profile: Json, filters: set[str], prefilters: set[str]) -> None:
    if prefilters - filters:
        with pytest.raises(kscale.InputError, match="the Filter of NodeName needs its PreFilter"):
            kscale.scheduler_profile(configured(profile))
        return
    result = kscale.scheduler_profile(configured(profile))
    assert (result.disabled_filters, result.disabled_prefilters) == (filters, prefilters)


def test_arguments() -> None:
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]}
    affinity = {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    result = kscale.scheduler_profile(configured(config("NodeAffinity", **affinity)))
    assert result.added_affinity is not None
    assert result.added_affinity.node_selector_terms[0].match_expressions[0].key == "pool"
    result = kscale.scheduler_profile(
        configured(
            config("NodeResourcesFit", ignoredResources=["a/b"], ignoredResourceGroups=["c"], scoringStrategy={})
        )
    )
    assert (result.ignored_resources, result.ignored_resource_groups) == ({"a/b"}, {"c"})
    constraint = {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    spread = config("PodTopologySpread", defaultConstraints=[constraint], defaultingType="List")
    result = kscale.scheduler_profile(configured(spread))
    assert result.default_constraints is not None
    assert result.default_constraints[0].max_skew == 2
    assert kscale.scheduler_profile(configured(config("PodTopologySpread"))).default_constraints is None
    assert (
        kscale.scheduler_profile(configured(config("InterPodAffinity", hardPodAffinityWeight=3)))
        == kscale.SchedulerProfile()
    )


@pytest.mark.parametrize(
    ("bad_config", "problem"),
    [
        ([], "couldn't decode scheduler config: [] is no object"),
        ({"kind": "Pod", "apiVersion": "v1"}, "couldn't assert type as KubeSchedulerConfiguration, gvk: v1, Kind=Pod"),
        (configured({}, {}), "unexpected scheduler config: expected one scheduler profile only (found 2 profiles)"),
        (configured(plugins(filter=("+Mine",))), "profiles[0].plugins.filter.enabled: kscale has no plug-in 'Mine'"),
        (configured(plugins(filter=("+NodePorts", "+NodeName"))), "filters in another order"),
        (configured(plugins(preFilter=("-NodePorts",))), "the Filter of NodePorts needs its PreFilter"),
        (configured({"plugin": {}}), 'strict decoding error: unknown field "profiles[0].plugin"'),
        (configured({"pluginConfig": 3}), "profiles[0].pluginConfig is 3, not a list"),
        (configured(config("NodeAffinity", added={})), 'unknown field "profiles[0].pluginConfig[0].args.added"'),
        (
            configured(config("NodeResourcesFit", ignoredResourceGroups=["a/b"])),
            "resource group name can't contain '/'",
        ),
        (configured(config("PodTopologySpread", defaultingType="Some")), 'Unsupported value: "Some"'),
    ],
)
def test_invalid_configurations_are_refused(bad_config: Any, problem: str) -> None:
    with pytest.raises(kscale.InputError) as caught:
        kscale.scheduler_profile(bad_config)
    assert problem in str(caught.value)


def test_disabled_plugins_are_not_called() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"pods": "9"}}}
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]}]
    spec = {
        "containers": [{"name": "c"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}},
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "d"}, "spec": spec}
    snapshot = kscale.Cluster([node]).snapshot()
    only_filter = kscale.scheduler_profile(configured(plugins(filter=("-NodeAffinity",))))
    both = kscale.scheduler_profile(configured(plugins(multiPoint=("-NodeAffinity",))))
    assert [kscale.fit(snapshot, [pod], profile=p).ok[0, 0] for p in (None, only_filter, both)] == [False, False, True]
    assert "NodeAffinity" not in kscale.fit(snapshot, [pod], profile=both).prefilter("d/p").skipped


def test_a_profile_refuses_names_of_nothing() -> None:
    with pytest.raises(kscale.InputError, match="disabled_filters: no plug-in 'NodePort'; known: NodeName"):
        kscale.SchedulerProfile(disabled_filters=frozenset({"NodePort"}))


# -- scores ------------------------------------------------------------------------------------------------------------

STOCK = dict(kscale.ScoreOptions().weights)


def enabled(point: str, weights: Json, disabled: tuple[str, ...] = ()) -> Json:
    names = [{"name": name} | ({} if weight is None else {"weight": weight}) for name, weight in weights.items()]
    return {"plugins": {point: {"enabled": names, "disabled": [{"name": name} for name in disabled]}}}


@pytest.mark.parametrize(
    ("profile", "weights"),
    [
        ({}, STOCK),
        (enabled("score", {}, ("TaintToleration", "ImageLocality")),
         {**STOCK, "TaintToleration": None, "ImageLocality": None}),
        (enabled("score", {"NodeResourcesFit": 7}), {**STOCK, "NodeResourcesFit": 7}),
        (enabled("score", {"NodeAffinity": None}), {**STOCK, "NodeAffinity": 1}),
        (enabled("score", {"NodeResourcesFit": 7}, ("*",)), {"NodeResourcesFit": 7}),
        (enabled("multiPoint", {"PodTopologySpread": 9}), {**STOCK, "PodTopologySpread": 9}),
        (enabled("multiPoint", {"PodTopologySpread": None}, ("InterPodAffinity",)),
         {**STOCK, "PodTopologySpread": 1, "InterPodAffinity": None}),
    ],
)  # fmt: skip
def test_weights(profile: Json, weights: Json) -> None:
    result = kscale.score_options(configured(profile))
    assert result.weights == {name: weight for name, weight in weights.items() if weight is not None}


def test_arguments_of_scores() -> None:
    shape = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
    strategy = {
        "type": "RequestedToCapacityRatio",
        "resources": [{"name": "example.com/gpu", "weight": 5}, {"name": "cpu"}],
        "requestedToCapacityRatio": {"shape": shape},
    }
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    added = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "preference": term}]}
    configs = [
        config("NodeResourcesFit", scoringStrategy=strategy),
        config("NodeResourcesBalancedAllocation", resources=[{"name": "memory", "weight": 1}]),
        config("InterPodAffinity", hardPodAffinityWeight=0, ignorePreferredTermsOfExistingPods=True),
        config("NodeAffinity", addedAffinity=added),
        config("VolumeBinding", bindTimeoutSeconds=30, shape=shape),
    ]
    profile = {"pluginConfig": [each["pluginConfig"][0] for each in configs], "percentageOfNodesToScore": 30}
    result = kscale.score_options(configured(profile))
    assert (result.fit_strategy, result.fit_shape) == ("RequestedToCapacityRatio", ((0, 0), (100, 10)))
    assert result.fit_resources == {"example.com/gpu": 5, "cpu": 1}
    assert result.balanced_resources == ("memory",)
    assert (result.hard_pod_affinity_weight, result.ignore_preferred_terms_of_existing_pods) == (0, True)
    assert [wish.weight for wish in result.added_preferences] == [3]
    assert result.volume_shape == ((0, 0), (100, 10))
    assert result.percentage_of_nodes_to_score == 30
    everywhere = configured({}) | {"percentageOfNodesToScore": 70}
    assert kscale.score_options(everywhere).percentage_of_nodes_to_score == 70
    plain = kscale.score_options(configured(config("NodeResourcesFit", scoringStrategy={"type": "MostAllocated"})))
    assert plain == kscale.ScoreOptions(fit_strategy="MostAllocated")


@pytest.mark.parametrize(
    ("profile", "text"),
    [
        (
            config("NodeResourcesFit", scoringStrategy={"type": "Best"}),
            r'args\.scoringStrategy\.type: Unsupported value: "Best": supported values: "LeastAllocated"',
        ),
        (
            config(
                "NodeResourcesFit",
                scoringStrategy={"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": 101}]},
            ),
            r"resources\[0\]\.weight: Invalid value: 101: resource weight of cpu not in valid range \(0, 100\]",
        ),
        (
            config("NodeResourcesBalancedAllocation", resources=[{"name": "cpu", "weight": 2}]),
            r"weight: Invalid value: 2",
        ),
        (
            config(
                "NodeResourcesFit",
                scoringStrategy={"type": "MostAllocated", "resources": [{"name": "cpu"}, {"name": "cpu"}]},
            ),
            "Duplicate value",
        ),
        (
            config("NodeResourcesFit", scoringStrategy={"resources": [{"name": "cpu"}]}),
            r'scoringStrategy\.type: Unsupported value: "": supported values: "LeastAllocated", "MostAllocated", "Req',
        ),
        (
            config("NodeResourcesFit", scoringStrategy={"type": "LeastAllocated", "requestedToCapacityRatio": {}}),
            r"scoringStrategy\.requestedToCapacityRatio: Forbidden: must be nil when type is not RequestedToCapacityR",
        ),
        (
            config("NodeResourcesFit", scoringStrategy={"type": "RequestedToCapacityRatio"}),
            r"scoringStrategy\.requestedToCapacityRatio: Required value: must be specified when type is RequestedToC",
        ),
        (
            config(
                "NodeResourcesFit",
                scoringStrategy={"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": []}},
            ),
            r"requestedToCapacityRatio\.shape: Required value: at least one point must be specified",
        ),
        (
            enabled("score", {"NodeAffinity": -1}),
            r"plugins\.score\.enabled\[0\]\.weight: Invalid value: -1: not in valid range \[0, 2147483647\]",
        ),
        (
            enabled("score", {"NodeAffinity": "2"}),
            r"plugins\.score\.enabled\[0\]\.weight is '2', not a whole number",
        ),
        (config("InterPodAffinity", hardPodAffinity=1), "unknown field"),
        (
            config("InterPodAffinity", hardPodAffinityWeight=101),
            r"args\.hardPodAffinityWeight: Invalid value: 101: not in valid range \[0, 100\]",
        ),
        (
            config("VolumeBinding", shape=[{"utilization": 101}]),
            r"pluginConfig\[0\]\.args\.shape\[0\]\.utilization: Invalid value: 101: not in valid range \[0, 100\]",
        ),
        (
            config("VolumeBinding", shape=[{"score": 11}]),
            r"args\.shape\[0\]\.score: Invalid value: 11: not in valid range \[0, 10\]",
        ),
        (
            config("VolumeBinding", shape=[{"utilization": 5}, {"utilization": 5}]),
            r"args\.shape\[1\]\.utilization: Invalid value: 5: values must be sorted in increasing order",
        ),
        (
            config("VolumeBinding", bindTimeoutSeconds=-1),
            r"pluginConfig\[0\]\.args\.bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not",
        ),
        (
            config("VolumeBinding", bindTimeoutSeconds="abc"),
            r"args\.bindTimeoutSeconds is 'abc', not a whole number",
        ),
        (enabled("score", {"Nope": 1}), "no plug-in 'Nope'"),
        (
            {"percentageOfNodesToScore": 101},
            r"profiles\[0\]\.percentageOfNodesToScore: Invalid value: 101: not in valid",
        ),
    ],
)
def test_scores_that_are_refused(profile: Json, text: str) -> None:
    with pytest.raises(kscale.InputError, match=text):
        kscale.score_options(configured(profile))
