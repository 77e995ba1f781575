"""Expanders and their chain: upstream's tables."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kscale
from builders import node, pod
from kscale import ca
from kscale.ca.expander.chain import NO_GRPC_CLIENT
from kscale.ca.expander.price import (
    GroupPrices,
    PreferredNode,
    build_group_prices,
    compute_node_unfitness,
    filter_by_price,
    get_preferred_node,
)
from kscale.ca.expander.types import ExpanderInput, Option
from kscale.effects import SECOND, ApiError, GetPrices, Prices, Ranking, RankOptions
from kscale.errors import InputError
from kscale.objects.api.core import Node, Pod
from kscale.objects.go_numbers import tanh
from kscale.objects.nodegroup import Groups
from kscale.objects.quantity import Quantity
from performing import performed

MI = 1 << 20


def _option(group: str, count: int = 1, *pods: Pod, **more: Any) -> ca.Option:
    return ca.Option(group=group, node_count=count, pods=[ca.PodRun(item) for item in pods], **more)


def _groups(options: list[ca.Option]) -> list[str]:
    return [option.group for option in options]


def _run(expander: str, options: list[ca.Option], given_input: ca.ExpanderInput | None = None) -> list[str]:
    return _groups(ca.expand(options, expander, given_input).survivors)


# -- chain -----------------------------------------------------------------------------------------------------


def test_chain_without_filters_falls_back_to_chance() -> None:
    options = [_option("a"), _option("b"), _option("c")]
    assert ca.expand(options, []).best == options[0]
    drawn = {ca.expand(options, "random", rng=random.Random(seed)).best.group for seed in range(40)}
    assert drawn == {"a", "b", "c"}
    assert ca.expand([], "random").best is None


@pytest.mark.parametrize(
    ("names", "pods", "run", "best"),
    [
        ("", [1, 2], [], {"0", "1"}),
        ("most-pods", [1, 2], ["most-pods"], {"1"}),
        ("most-pods,least-nodes", [1, 2], ["most-pods"], {"1"}),
        ("most-pods,least-nodes", [2, 1, 2], ["most-pods", "least-nodes"], {"0", "2"}),
        ("most-pods,random", [2, 1, 2], ["most-pods"], {"0", "2"}),
        ("most-pods,least-nodes", [], ["most-pods", "least-nodes"], set()),
        ("", [], [], set()),
    ],
)
def test_chain(names: str, pods: list[int], run: list[str], best: set[str]) -> None:
    """No filter: chance; one survivor: later filters are not run; several at the end: chance; none: nothing."""
    options = [_option(str(i), 1, *[pod("p")] * count) for i, count in enumerate(pods)]
    drawn = set()
    for seed in range(30):
        result = ca.expand(options, names.split(",") if names else [], rng=random.Random(seed))
        assert [step.expander for step in result.steps] == run
        drawn |= {result.best.group} if result.best is not None else set()
    assert drawn == best


def test_chain_stops_at_one_survivor() -> None:
    options = [_option("a", 1, pod("p")), _option("b", 1)]
    result = ca.expand(options, "most-pods,least-nodes")
    assert [step.expander for step in result.steps] == ["most-pods"]
    assert result.best == options[0]
    assert not result.has_tie


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["price", "price"],
            "Expander price was specified multiple times, each expander must not be specified more than once",
        ),
        (
            ["random", "least-waste"],
            (
                "Expander least-waste came after an expander random that will always return only one result, "
                "this is not allowed since least-waste will never be used"
            ),
        ),
        (["least-wast"], "Expander least-wast not supported"),
    ],
)
def test_chains_that_cannot_be_built(names: list[str], message: str) -> None:
    with pytest.raises(ca.AutoscalerError) as refused:
        ca.build_expander_chain(names)
    assert refused.value == ca.AutoscalerError("internalError", message)


def test_price_needs_prices() -> None:
    with pytest.raises(InputError, match="the price expander needs prices"):
        ca.expand([_option("a")], "price")


# -- counting expanders ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "best"),
    [
        ([0], []),
        ([2, 1], [1]),
        ([6, 2, 2], [1, 2]),
        ([8, 8, 8], [0, 1, 2]),
        ([23, 0, 5, 8, 5, 5, 22], [2, 4, 5]),
    ],
)
def test_least_nodes(counts: list[int], best: list[int]) -> None:
    options = [_option(str(i), count) for i, count in enumerate(counts)]
    assert _run("least-nodes", options) == [str(i) for i in best]


@pytest.mark.parametrize(("pods", "best"), [([0], [0]), ([0, 1], [1]), ([0, 1, 1], [1, 2])])
def test_most_pods(pods: list[int], best: list[int]) -> None:
    options = [_option(str(i), 1, *[pod("p")] * count) for i, count in enumerate(pods)]
    assert _run("most-pods", options) == [str(i) for i in best]


# -- least-waste -----------------------------------------------------------------------------------------------

_WASTE_NODES = {
    "balanced": node("balanced", 8000, 16000 * MI),
    "highmem": node("highmem", 8000, 32000 * MI),
    "lowcpu": node("lowcpu", 4000, 16000 * MI),
}


@pytest.mark.parametrize(
    ("groups", "best"),
    [
        (["balanced"], "balanced"),
        (["balanced", "highmem"], "balanced"),
        (["balanced", "highmem", "lowcpu"], "lowcpu"),
    ],
)
def test_least_waste(groups: list[str], best: str) -> None:
    options = [_option(group, 1, pod("p", 500, 1000 * MI)) for group in groups]
    result = ca.expand(options, "least-waste", ca.ExpanderInput(nodes=_WASTE_NODES))
    scores = {"balanced": 1.875, "highmem": 1.90625, "lowcpu": 1.8125}
    assert result.steps[0].filtered.scores == {group: scores[group] for group in groups}
    assert _groups(result.survivors) == [best]


def test_least_waste_of_an_option_without_pods() -> None:
    assert _run("least-waste", [_option("balanced")], ca.ExpanderInput(nodes=_WASTE_NODES)) == ["balanced"]


@pytest.mark.parametrize(("cpu", "waste"), [("1000500u", 0.874875), ("-500u", 1.000125), ("-1000500u", 1.125125)])
def test_least_waste_rounds_sums_away_from_zero(cpu: str, waste: float) -> None:
    """To whole milli-CPU; the API lets no negative request in, a file may hold one."""
    one = pod("p", 1, 0)
    one.spec.containers[0].resources.requests = {"cpu": Quantity(cpu)}
    result = ca.expand([_option("balanced", 1, one)], "least-waste", ca.ExpanderInput(nodes=_WASTE_NODES))
    assert result.steps[0].filtered.scores == {"balanced": pytest.approx(waste + 1.0, abs=1e-12)}


@given(st.integers(1, 400), st.integers(0, 3))
def test_a_run_of_pods_counts_as_its_pods(count: int, extra: int) -> None:
    one = pod("p", 333, 12345)
    run = ca.Option(group="lowcpu", node_count=2, pods=[ca.PodRun(one, count), ca.PodRun(one, extra)])
    single = _option("lowcpu", 2, *[one] * (count + extra))
    given_input = ca.ExpanderInput(nodes=_WASTE_NODES)
    scores = [ca.expand([o], "least-waste", given_input).steps[0].filtered.scores for o in (run, single)]
    assert scores[0] == scores[1]


# -- price -----------------------------------------------------------------------------------------------------


def _cluster(preferred_cpu: int) -> int:
    return {1000: 1, 2000: 3, 4000: 9}[preferred_cpu]


@pytest.mark.parametrize(
    ("preferred", "first", "second", "third", "chosen", "scores"),
    [
        (2000, (2, 20, 2), (1, 200, 2), None, "ng1", [2.41679, 10.5]),
        (4000, (2, 50, 2), (1, 200, 2), None, "ng2", [10.45081, 5.25]),
        (4000, (80, 20, 2), (40, 200, 2), None, "ng1", [40.25643, 200.25]),
        (2000, (2, 200, 2), (1, 100, 2), None, "ng2", [19.81768, 5.5]),
        (2000, (2, 200, 1), (1, 200, 2), None, "ng2", [26.42357, 10.5]),
        (2000, (2, 200, 1), (1, 200, 2), 200, "ng2", [26.42357, 10.5, 21.0]),
        (2000, (2, 200, 1), (1, 200, 2), 90, "ng3", [26.42357, 10.5, 10.0]),
    ],
)
def test_price(
    preferred: int,
    first: tuple[int, int, int],
    second: tuple[int, int, int],
    third: int | None,
    chosen: str,
    scores: list[float],
) -> None:
    nodes = {"ng1": node("n1", 1000, 1000), "ng2": node("n2", 4000, 1000), "ng3": node("n3", 4000, 1000)}
    pods = [pod("p1", 1000, 0), pod("p2", 500, 0)]
    prices = ca.HourlyPrices(pods={"p1": 20.0, "p2": 10.0, "stabilize": 10.0})
    options = []
    for group, name, (count, node_price, pod_count) in (("ng1", "n1", first), ("ng2", "n2", second)):
        prices.nodes[name] = float(node_price)
        options.append(_option(group, count, *pods[:pod_count], similar=["other"]))
    if third is not None:
        prices.nodes["n3"] = float(third)
        options.append(_option("ng3", 1, *pods, exists=False))
    count = next(c for c in (1, 3, 9) if get_preferred_node(c).milli_cpu == preferred)
    expansion = ca.expand(options, "price", ca.ExpanderInput(nodes=nodes, prices=prices, cluster_node_count=count))
    assert list(expansion.steps[0].filtered.scores.values()) == pytest.approx(scores, abs=1e-5)
    assert expansion.best is not None
    assert expansion.best.group == chosen
    assert expansion.best.similar == []
    assert f"final_score={expansion.steps[0].filtered.scores[chosen]:.6f}" in expansion.best.debug


def test_price_without_any_price_leaves_nothing() -> None:
    prices = ca.HourlyPrices(node_errors=["n1"], pod_errors=["p"])
    given_input = ca.ExpanderInput(nodes={"ng1": node("n1", 1, 1), "ng2": node("n2", 1, 1)}, prices=prices)
    result = ca.expand([_option("ng1", 1, pod("q")), _option("ng2", 1, pod("p"))], "price", given_input)
    assert result.best is None
    assert set(result.steps[0].filtered.skipped) == {"ng1", "ng2"}


NOW = 1_800_000_000 * SECOND


def test_missing_prices_are_requested_from_the_provider() -> None:
    """The same numbers as with a model; whatever is asked about is asked once."""
    nodes = {"ng1": node("n1", 1000, 1000), "ng2": node("n2", 4000, 1000), "ng3": node("n3", 1, 1)}
    one, two = pod("p1", 1000, 0), pod("p2", 500, 0)
    options = [_option("ng1", 2, one), _option("ng2", 1, one, two), _option("gone", 1, two)]
    model = ca.HourlyPrices(nodes={"n1": 20.0, "n2": 200.0}, pods={"p1": 20.0, "p2": 10.0, "stabilize": 10.0})
    given_input = ca.ExpanderInput(nodes=nodes, ask_prices=True, cluster_node_count=3, now=NOW)

    def tell(question: Any) -> Prices:
        assert isinstance(question, GetPrices)
        assert question.nodes == (nodes["ng1"], nodes["ng2"])
        assert [each["metadata"]["name"] for each in question.pods] == ["stabilize", "p1", "p2"]
        assert (question.start, question.end) == (NOW, NOW + 3600 * SECOND)
        return Prices(nodes=(20.0, 200.0), pods=(10.0, 20.0, 10.0))

    ran = performed(ca.expand_steps(options, ["price"], given_input, now=0), tell, now=0)
    assert len(ran.actions) == 1
    want = ca.expand(options, "price", replace(given_input, prices=model)).steps[0].filtered
    assert ran.value.steps[0].filtered == want
    assert len(want.scores) == 2


def test_options_without_provider_price_are_dropped() -> None:
    nodes = {"ng1": node("n1", 1, 1), "ng2": node("n2", 1, 1), "ng3": node("n3", 1, 1)}
    options = [_option("ng1", 1, pod("q")), _option("ng2", 1, pod("p")), _option("ng3", 1, pod("q"))]
    given_input = ca.ExpanderInput(nodes=nodes, ask_prices=True)

    def filtered(answer: Prices | ApiError) -> Any:
        ran = performed(ca.expand_steps(options, ["price"], given_input, now=0), lambda _: answer, now=0)
        return ran.value.steps[0].filtered

    no = ApiError("no such price")
    result = filtered(Prices(nodes=(no, 1.0, 2.0), pods=(no, 1.0, no)))
    assert _groups(result.survivors) == ["ng3"]
    assert result.parts["ng3"]["stabilized_ratio"] == 2.0  # without what stabilizes it
    assert result.skipped == {name: f"Failed to calculate price for {name}: no such price" for name in ("ng1", "ng2")}
    assert filtered(no).survivors == []


_ASKING = ca.ExpanderInput(ask_prices=True)
_BY_PRICE = ca.AutoscalingOptions(expander="price")
_EMPTY = kscale.Cluster([])


@pytest.mark.parametrize(
    "entry_point",
    [
        lambda: ca.expand([], "price", _ASKING),
        lambda: kscale.scale_up(
            _EMPTY, [], now=0, options=_BY_PRICE, inputs=ca.LoopInputs(expander_input=_ASKING)
        ),
        lambda: ca.orchestrate(
            _EMPTY.snapshot(),
            [],
            ca.ScaleUpContext(
                groups=Groups(), nodes=[], templates={}, state=ca.LoopState().cluster, options=_BY_PRICE,
                expander_input=_ASKING,
            ),
            now=0,
        ),
        lambda: ca.run_once(_EMPTY, [], now=0, options=_BY_PRICE, inputs=ca.LoopInputs(expander_input=_ASKING)),
    ],
)  # fmt: skip
def test_entry_points_without_provider_refuse_ask_prices(entry_point: Callable[[], object]) -> None:
    with pytest.raises(InputError, match="there is no cloud provider that reports prices") as refused:
        entry_point()
    assert [(each.object, each.field) for each in refused.value.problems] == [("ExpanderInput", "ask_prices")]


@pytest.mark.parametrize(("nodes", "cores"), [(1, 1), (3, 2), (9, 4), (27, 8), (81, 16), (243, 32), (500, 32)])
def test_preferred_node(nodes: int, cores: int) -> None:
    assert get_preferred_node(nodes) == PreferredNode(cores * 1000, cores * 3750 * MI)


def test_unfitness() -> None:
    sizes: list[Node] = [node("a", 1000, 1), node("b", 2000, 1), node("c", 4000, 1)]
    assert [compute_node_unfitness(get_preferred_node(3), size) for size in sizes] == [2.0, 1.0, 2.0]


# -- priority --------------------------------------------------------------------------------------------------

_PRIORITIES = "5:\n- t2\\.micro\n10:\n- t2\\.large\n- t3\\.large\n50:\n- m4\\.4xlarge\n"


def _priority(config: str, groups: list[str]) -> ca.Expansion:
    return ca.expand(
        [_option(group) for group in groups], "priority", ca.ExpanderInput(priorities={"priorities": config})
    )


@pytest.mark.parametrize(
    ("config", "groups", "best"),
    [
        (_PRIORITIES, ["t2.large"], ["t2.large"]),
        (_PRIORITIES, ["t2.large", "m4.4xlarge"], ["m4.4xlarge"]),
        (_PRIORITIES, ["t2.large", "t3.large", "t2.micro"], ["t2.large", "t3.large"]),
        ("5:\n- .*\n10:\n- .*t2\\.large.*\n", ["t2.large", "t2.micro"], ["t2.large"]),
        ("5:\n- .*\n10:\n- .t2\\.large.*\n", ["asg.t2.large", "asg.t2.micro"], ["asg.t2.large"]),
        ("10:\n- t2\\.large\n", ["t2.large", "t3.large", "m4.4xlarge"], ["t2.large"]),
        ("", ["t2.large", "t2.micro"], ["t2.large", "t2.micro"]),
        ("0x10: [a]\n010: [b]\n", ["a", "b"], ["a"]),
        ("1: [~, true]\n2: [1.50]\n", ["true", "x1.5"], ["x1.5"]),
        ("'7': [yes]\n", ["true"], ["true"]),
        pytest.param(f"1: [{'9' * 5_000}, a]\n", ["a", "b"], ["a"], id="a number that Python does not convert"),
    ],
)
def test_priority(config: str, groups: list[str], best: list[str]) -> None:
    assert _groups(_priority(config, groups).survivors) == best


def test_scores_of_priorities_are_the_smaller_the_better() -> None:
    (step,) = _priority(_PRIORITIES, ["t2.micro", "m4.4xlarge", "x1", "t2.large"]).steps
    assert step.filtered.scores == {"t2.micro": -5.0, "m4.4xlarge": -50.0, "t2.large": -10.0}


def test_priority_events() -> None:
    result = _priority("10:\n- t2\\.large\n", ["t2.large", "t3.large", "m4.4xlarge"])
    assert _groups(result.survivors) == ["t2.large"]
    text = "Priority expander: node group {} not found in priority expander configuration. The group won't be used."
    assert [event.message for event in result.events] == [text.format("t3.large"), text.format("m4.4xlarge")]
    assert {event.reason for event in result.events} == {"PriorityConfigMapNotMatchedGroup"}
    (empty,) = _priority("", ["a"]).events
    assert (empty.reason, empty.about) == (
        "PriorityConfigMapInvalid",
        "ConfigMap/kube-system/cluster-autoscaler-priority-expander",
    )


@pytest.mark.parametrize(
    "config",
    [
        "1: [[a]]", "1: {a: b}", "[a]", "~: [a]", "1.5: [a]", "{a", "9223372036854775808: [a]",
        f"? {'9' * 5_000}\n: [a]",
    ],
    ids=range(8),
)  # fmt: skip
def test_priority_configurations_that_are_refused(config: str) -> None:
    (event,) = _priority(config, ["a"]).events
    assert event.message.startswith(
        "Wrong configuration for priority expander: Can't parse YAML with priorities in the configmap: "
    )
    assert event.message.endswith(". Ignoring update.")


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (".inf: [a]", "number .inf into Go value of type int"),
        ("+.INF: [a]", "number .inf into Go value of type int"),
        ("-.Inf: [a]", "number -.inf into Go value of type int"),
        (".nan: [a]", "number .nan into Go value of type int"),
        ("1: .inf", "cannot unmarshal number into Go value of type []string"),
        (".NaN", "cannot unmarshal number into Go value of type map[int][]string"),
        ("1: [.inf]", "rule +Inf: error parsing regexp: missing argument to repetition operator: `+`"),
        ("<<: [1]", "map merge requires map or sequence of maps as the value"),
        ("&x {<<: *x}", "an anchor contains itself"),
    ],
)
def test_numbers_that_are_no_integers_in_priorities(config: str, text: str) -> None:
    (event,) = _priority(config, ["a"]).events
    assert text in event.message


@pytest.mark.parametrize(
    ("config", "best"),
    [("1.0: [a]", ["a"]), ("1e1: [a]\n2: [b]", ["a"]), ("1: [NaN]", []), ("1: [.nan]", ["NaN"])],
)
def test_floats_in_priorities_are_texts_as_in_go(config: str, best: list[str]) -> None:
    groups = ["a", "b", "NaN"] if "nan" in config else ["a", "b"]
    assert _groups(_priority(config, groups).survivors) == (best or groups)


@pytest.mark.parametrize(
    ("merged", "best"),
    [("<<: {20: [b]}", ["b"]), ("<<: [{20: [b]}, {20: [c]}]", ["b"]), ("<<: &x {20: [c]}\n  20: [b]", ["b"])],
)
def test_mappings_that_priorities_merge(merged: str, best: list[str]) -> None:
    assert _groups(_priority(f"  10: [a]\n  {merged}", ["a", "b", "c"]).survivors) == best


# -- grpc ------------------------------------------------------------------------------------------------------

_Answer = Ranking | ApiError | None


def _ranked(*groups: str | None, warnings: tuple[str, ...] = ()) -> Ranking:
    return Ranking(groups=groups, warnings=warnings)


@pytest.mark.parametrize(
    ("answer", "remaining"),
    [
        (None, ["a", "b", "c"]),
        (ApiError("deadline exceeded"), ["a", "b", "c"]),
        (_ranked(), []),
        (_ranked("c", "a"), ["c", "a"]),
        (_ranked(None, "b", "unknown"), ["b"]),
        (_ranked(None, "unknown"), ["a", "b", "c"]),
    ],
)
def test_grpc(answer: _Answer, remaining: list[str]) -> None:
    options = [_option("a", 3, pod("p"), debug="d"), _option("b"), _option("c")]
    ran = performed(ca.expand_steps(options, ["grpc"], now=0), lambda action: answer or NO_GRPC_CLIENT, now=0)
    (question,) = ran.actions
    assert isinstance(question, RankOptions)
    assert next((o.group, o.node_count, o.debug) for o in question.options) == ("a", 3, "d")
    assert _groups(ran.value.survivors) == remaining
    assert _groups(ca.expand(options, "grpc", rank=answer and (lambda question: answer)).survivors) == remaining


@pytest.mark.parametrize(
    ("answer", "logged"),
    [
        (None, ["Incorrect gRPC client config, filtering no options"]),
        (ApiError("deadline"), ["GRPC call failed, no options filtered: deadline"]),
        (_ranked(), ["GRPC returned nil bestOptions"]),
        (_ranked("a", warnings=("left out",)), ["left out"]),
        (
            _ranked(None, "x", "a"),
            ["GRPC server returned nil Option", "GRPC server returned invalid nodeGroup ID: x"],
        ),
        (
            _ranked("x"),
            [
                "GRPC server returned invalid nodeGroup ID: x",
                "Unable to sanitize GPRC returned bestOptions, no options filtered",
            ],
        ),
    ],
)
def test_grpc_expander_logs_upstream_messages(answer: _Answer, logged: list[str]) -> None:
    rank = answer and (lambda question: answer)
    assert ca.expand([_option("a"), _option("b")], "grpc", rank=rank).warnings == logged


@pytest.mark.parametrize(
    ("node_count", "bits"),
    [(2, "3fb10a9aff88eb86"), (11, "3fe2a6286b5df250"), (14, "3fe663c02797e838"), (18, "3fe9fd30b18d2c6c"),
     (50, "3fefe835b4e0a3c0"), (200, "3fefffffffff2d17")],
)  # fmt: skip
def test_tanh_has_the_bits_that_go_finds(node_count: int, bits: str) -> None:
    """What Go 1.26 says on amd64; the C library says otherwise at 14, Go's portable algorithm at 18."""
    assert tanh((node_count - 1) / 15.0).hex() == struct.unpack(">d", bytes.fromhex(bits))[0].hex()


@given(st.floats(-60, 60))
def test_tanh_is_the_nearest_number_or_one_beside_it(x: float) -> None:
    power = (2 * Decimal(x)).exp()
    exact = (power - 1) / (power + 1)
    assert abs(Decimal(tanh(x)) - exact) <= Decimal("1.5") * Decimal(math.ulp(tanh(x))) + Decimal("1e-26")


def test_a_free_core_makes_a_gib_free_too() -> None:
    """A GiB costs its share of a core, so that nothing would have a price."""
    with pytest.raises(InputError, match="must cost something"):
        build_group_prices([], {}, ca.ExpanderInput(price_per_core_hour=0.0))
    assert build_group_prices([], {}, ca.ExpanderInput(price_per_core_hour=0.0, price_per_gib_hour=1.0)).per_gib == 1
    assert build_group_prices([], {}, ca.ExpanderInput(price_per_gib_hour=0.0)).per_core == 1


def test_options_of_one_group_keep_their_own_calculations() -> None:
    prices = GroupPrices(nodes={"n": 1.0}, per_core=0.1, per_gib=0.01)
    inputs = ExpanderInput(nodes={"g": node("n", 4000, 1 << 30)}, prices=prices)
    options = [Option(group="g", node_count=1, pods=[], debug=debug) for debug in ("first", "second")]
    result = filter_by_price(options, inputs)
    assert [option.debug.split()[0] for option in result.survivors] == ["first", "second"]
    assert result.notes == {"g": result.survivors[1].debug}
    assert type(result.notes) is dict, "as of the other expanders"
