"""Quantities, requests, selectors, taints and shapes of pods: `kscale.objects` against the reference."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kscale.objects import node_selectors, pod_resources, selectors, taints
from kscale.objects.api import core, meta
from kscale.objects.decode import from_dict
from kscale.objects.pod_equivalence import digest
from kscale.objects.quantity import Quantity
from reference import equivalence, labels, resources
from strategies import clusters, pieces

Json = dict[str, Any]
SUFFIXES = [*resources.DECIMAL, *resources.BINARY, "e3", "E-2", "e+18", "e19"]
DIGITS = st.text("0123456789", min_size=1, max_size=22)
TEXTS = st.builds(
    lambda sign, integer, rest, suffix: sign + integer + rest + suffix,
    st.sampled_from(["", "", "-", "+"]),
    DIGITS,
    st.one_of(st.just(""), DIGITS.map(lambda digits: "." + digits)),
    st.sampled_from(SUFFIXES),
)


@given(TEXTS)
def test_a_quantity_reads_the_same(text: str) -> None:
    ours, theirs = Quantity(text), resources.parse(text)
    assert (ours.value(), ours.milli_value()) == (theirs.value(), theirs.milli())


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_sums_read_the_same(texts: list[str]) -> None:
    ours, theirs = Quantity.sum(Quantity(text) for text in texts), resources.ZERO
    for text in texts:
        theirs += resources.parse(text)
    assert (ours.value(), ours.milli_value()) == (theirs.value(), theirs.milli())


@given(clusters.placed_pods("p", ["n"], ("plain", "hostile")))
def test_a_pod_asks_for_and_occupies_the_same(raw: Json) -> None:
    pod = from_dict(raw, core.Pod)
    assert pod_resources.to_integers(pod_resources.demand(pod)) == resources.as_integers(resources.demand(raw))
    assert pod_resources.to_integers(pod_resources.occupancy(pod)) == resources.as_integers(resources.occupancy(raw))


KEYS = st.sampled_from(["app", "a/b", "x/y/z", "-", "", "UPPER/x", "example.com/ok", "example.com/", "k" * 64])
VALUES = st.lists(st.sampled_from(["a", "", "b", "not valid!", "5", "-7", "0x1", "v" * 64]), max_size=2)
OPERATORS = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "in", ""])
EXPRESSIONS = st.fixed_dictionaries({"key": KEYS, "operator": OPERATORS}, optional={"values": VALUES})
SELECTORS = st.one_of(
    pieces.label_selectors(),
    st.fixed_dictionaries({"matchExpressions": st.lists(EXPRESSIONS, min_size=1, max_size=2)}),
)


@given(SELECTORS, st.one_of(pieces.labels(), st.fixed_dictionaries({"a/b": st.just("5")})))
def test_label_selectors_agree_with_the_reference(raw: Json | None, have: Json) -> None:
    try:
        want: Any = labels.matches(labels.label_selector(raw), have)
    except labels.SelectorError as problem:
        want = str(problem)
    selector = None if raw is None else from_dict(raw, meta.LabelSelector)
    try:
        got: Any = selectors.compile_selector(selector).matches(have)
    except selectors.SelectorError as problem:
        got = str(problem)
    assert got == want


TERMS = st.one_of(
    pieces.node_terms(),
    st.fixed_dictionaries(
        {},
        optional={
            "matchExpressions": st.lists(EXPRESSIONS, max_size=2),
            "matchFields": st.lists(
                st.fixed_dictionaries(
                    {"key": st.sampled_from(["metadata.name", "spec.other"]), "operator": OPERATORS, "values": VALUES}
                ),
                max_size=2,
            ),
        },
    ),
)


@given(st.lists(TERMS, max_size=3), clusters.nodes("n0", ("plain",)))
def test_node_selectors_agree_with_the_reference(terms: list[Json], node: Json) -> None:
    raw = {"nodeSelectorTerms": terms}
    have, name = node["metadata"]["labels"], node["metadata"]["name"]
    compiled = node_selectors.compile_node_selector(from_dict(raw, core.NodeSelector))
    assert compiled.matches(have, name) == labels.node_selector_matches(raw, have, name)


@given(st.lists(pieces.tolerations(), max_size=3), st.lists(pieces.taints(), max_size=3))
def test_the_first_untolerated_taint_is_the_same(tolerations: list[Json], tainted: list[Json]) -> None:
    pod = {"spec": {"tolerations": tolerations}}
    want = labels.first_untolerated(pod, {"spec": {"taints": tainted}})
    got = taints.first_untolerated(
        [from_dict(each, core.Toleration) for each in tolerations], [from_dict(each, core.Taint) for each in tainted]
    )
    assert got == (None if want is None else from_dict(want, core.Taint))


SAME = st.sampled_from(
    [
        lambda pod: pod["spec"].update(hostname="h"),
        lambda pod: pod["spec"].update(nodeSelector={}),
        lambda pod: pod["spec"].update(volumes=[*pod["spec"].get("volumes", []), {"name": "t", "projected": {}}]),
        lambda pod: pod["spec"]["containers"][0].update(env=[{"name": "A", "value": "b"}]),
        lambda pod: pod["spec"]["containers"][0].setdefault("resources", {}).setdefault("requests", {}),
        lambda pod: pod["spec"].update(tolerations=pod["spec"].get("tolerations")),
        lambda pod: pod["spec"].update(hostNetwork=False),
        lambda pod: pod["spec"].update(hostUsers=True),
        lambda pod: pod["spec"].update(priority=0),
        lambda pod: pod["spec"].update(affinity={}),
        lambda pod: pod["spec"].update(overhead={"cpu": "1000m"}),
        lambda pod: pod["spec"].update(overhead={"cpu": "1"}),
        lambda pod: pod["metadata"].update(labels={}),
        lambda pod: pod["metadata"].pop("labels", None),
        lambda pod: None,
    ]
)


@given(st.data())
def test_pod_shapes_agree_with_the_reference(data: st.DataObject) -> None:
    first = data.draw(clusters.pods("p", clusters.FEATURES))
    second = equivalence.copy.deepcopy(first)
    for pod in (first, second):
        data.draw(SAME)(pod)
    assert (digest(first) == digest(second)) == equivalence.same_shape(first, second)
