"""Kind ``expander``: leaves out the tail of Go's YAML and regexp error texts; everything else is compared."""

from __future__ import annotations

import math
import random
from typing import Any

import golden_ca
from examples import is_nightly
from kscale import ca
from kscale.effects import Moment
from kscale.objects.api.core import Node, Pod
from kscale.objects.decode import from_dict

_FREE_TAILS = ("Can't parse YAML with priorities in the configmap: ", "error parsing regexp: ")


class Prices:
    """The injected cloud provider: node prices by name, pod prices by name or by name without its last segment."""

    def __init__(self, prices: dict[str, Any]) -> None:
        self.prices = prices

    def node_price(self, node: Node, start: Moment, end: Moment) -> float:
        return self._price(node.metadata.name, "node")

    def pod_price(self, pod: Pod, start: Moment, end: Moment) -> float:
        return self._price(pod.metadata.name, "pod")

    def _price(self, name: str, what: str) -> float:
        names = [name, name.rpartition("-")[0]] if what == "pod" else [name]
        if any(n in (self.prices.get(f"{what}_errors") or []) for n in names):
            raise ca.AutoscalerError("", "no price")
        prices = self.prices.get(f"{what}_per_hour") or {}
        return next((prices[n] for n in names if n in prices), 0.0)


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    options = [
        ca.Option(
            group=o["group"],
            node_count=o["node_count"],
            pods=golden_ca.pod_runs(o.get("pods")),
            similar=o.get("similar") or [],
            exists=o.get("exists", True),
            debug=o.get("debug", ""),
        )
        for o in inputs["options"]
    ]
    config = inputs.get("priority_config_map")
    chain_input = ca.ExpanderInput(
        nodes={name: from_dict(node, Node) for name, node in (inputs.get("templates") or {}).items()},
        priorities=None if config is None else config.get("data") or {},
        prices=Prices(inputs.get("prices") or {}),
        cluster_node_count=None if inputs.get("node_lister_error") else inputs.get("cluster_node_count", 0),
        gpu_label=inputs.get("gpu_label") or golden_ca.GPU_LABEL,
    )
    names = inputs["expanders"]
    try:
        result = ca.expand(options, names, chain_input)
    except ca.AutoscalerError as error:
        assert {"build_error": golden_ca.error_of(error)} == want
        return
    got: dict[str, Any] = {
        "build_error": None,
        "steps": [
            {"expander": step.expander, "survivors": [o.group for o in step.filtered.survivors]}
            for step in result.steps
        ],
        "filtered": [o.group for o in result.survivors],
        "best": None if result.has_tie or result.best is None else result.best.group,
        "acceptable": {o.group for o in result.survivors},
        "events": [_cut(event) for event in golden_ca.sorted_events(result.events)],
    }
    if got["best"] is not None:
        assert result.best is not None
        got["best_similar"] = result.best.similar
    price = next((step for step in result.steps if step.expander == "price"), None)
    if price is not None:
        if got["best"] is not None:
            assert result.best is not None
            got["best_debug"] = result.best.debug
        alone = {o.group: ca.expand([o], ["price"], chain_input).best for o in options}
        got["price_debug"] = {group: None if best is None else best.debug for group, best in alone.items()}
    waste = next((step for step in result.steps if step.expander == "least-waste"), None)
    if waste is not None and waste.filtered.scores:
        got["waste_text"] = waste.filtered.notes
        got["waste_scores"] = {group: _number(score) for group, score in waste.filtered.scores.items()}
    expected = {**want, "acceptable": set(want["acceptable"]), "events": [_cut(event) for event in want["events"]]}
    assert got == expected
    seeds = range(30 if is_nightly() else 4)
    drawn = {best.group for seed in seeds if (best := _draw(options, names, chain_input, seed)) is not None}
    assert drawn <= expected["acceptable"]


def _draw(options: list[ca.Option], names: list[str], chain_input: ca.ExpanderInput, seed: int) -> ca.Option | None:
    return ca.expand(options, names, chain_input, rng=random.Random(seed)).best


def _cut(event: dict[str, str]) -> dict[str, str]:
    message = event["message"]
    for tail in _FREE_TAILS:
        head, result, _ = message.partition(tail)
        message = head + result if result else message
    return {**event, "message": message}


def _number(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    return {math.inf: "Inf", -math.inf: "-Inf"}.get(value, value)
