"""Every public function names an argument of a wrong type, whatever else it was given."""

from __future__ import annotations

import importlib
import inspect
import io
import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

import kscale
from kscale import ca, hpa, vpa
from kscale.errors import ArgumentError, InputError
from kscale.objects.api.core import Node
from kscale.objects.argument_types import _get_checks, typed
from rows import each_row

NOW = 1_800_000_000 * 10**9
NODE = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}}


class Alien:
    """Of a type that no function takes."""


def public_functions() -> dict[str, Any]:
    """The functions of kscale, ca, hpa and vpa, and of the modules of capacity that the reference describes."""
    pages = (Path(__file__).parents[3] / "docs" / "reference").glob("kscale.capacity*.md")
    result = {}
    for module in (kscale, ca, hpa, vpa, *(importlib.import_module(page.stem) for page in sorted(pages))):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value) and value.__module__.startswith("kscale"):
                result[f"{module.__name__}.{name}"] = value
    return result


FUNCTIONS = public_functions()
OWN_ERRORS = {"kscale.build_info", "kscale.hpa.stable_state"}


def parameters_of(function: Any) -> dict[str, str]:
    """Checked parameter -> its annotation."""
    inner = inspect.unwrap(function)
    checks = _get_checks(inner)
    return {name: str(each.annotation) for name, each in inspect.signature(inner).parameters.items() if name in checks}


CASES = [(name, parameter) for name, function in FUNCTIONS.items() for parameter in parameters_of(function)]


@each_row(CASES)
def test_a_wrong_type_is_named(case: tuple[str, str]) -> None:
    name, parameter = case
    function = FUNCTIONS[name]
    checks = _get_checks(inspect.unwrap(function))
    refused = 0
    for wrong in (Alien(), {"no": "such"}, [Alien()], "text", 3.5):
        if checks[parameter].accepts(wrong):
            continue
        refused += 1
        with pytest.raises((InputError, TypeError)) as caught:
            function(**{parameter: wrong})
        assert isinstance(caught.value, ArgumentError), f"{name}({parameter}={wrong!r})"
        assert caught.value.problems[0].field == parameter
        assert type(wrong).__name__ in str(caught.value)
    assert refused, f"{name}({parameter}) takes anything"


def test_all_public_functions_are_checked() -> None:
    unchecked = [name for name, function in FUNCTIONS.items() if not hasattr(function, "__wrapped__")]
    without_parameters = [name for name in unchecked if not inspect.signature(FUNCTIONS[name]).parameters]
    assert unchecked == without_parameters
    assert len(CASES) > 250


MISTAKES: dict[str, tuple[Any, str]] = {
    "options as a dict": (
        lambda: kscale.scale_up(kscale.Cluster(), [], now=NOW, options={"a": 1}),
        r"options is \{'a': 1\}, not AutoscalingOptions \(got dict\)",
    ),
    "a state as a dict": (
        lambda: kscale.scale_down(kscale.Cluster(), [], now=NOW, state={}),
        r"state is \{\}, not a LoopState \(got dict\)",
    ),
    "a path as a cluster": (
        lambda: kscale.scale_up("cluster.json", [], now=NOW),
        r"cluster is 'cluster\.json', not a Cluster or a Snapshot \(got str\)",
    ),
    "one group as groups": (
        lambda: kscale.scale_up(kscale.Cluster(), kscale.NodeGroup(id="g"), now=NOW),
        r"groups is NodeGroup\(.*not Groups, a list of NodeGroup or .* \(got NodeGroup\)",
    ),
    "offers as dicts": (
        lambda: kscale.mix(kscale.Cluster(), [{}]),
        r"offers\[0\] is \{\}, not an Offer or a NodeGroup \(got dict\)",
    ),
    "a cluster as a base": (lambda: kscale.whatif(kscale.Cluster(), []), r"base is .*, not a Base \(got Cluster\)"),
    "a size as a text": (lambda: kscale.NodeGroup(id="g", max_size="10"), r"NodeGroup\.max_size is '10', not a whole"),
    "a template as a dict": (lambda: kscale.NodeGroup(id="g", template={}), r"NodeGroup\.template is \{\}, not a Node"),
    "a node as a template": (lambda: kscale.NodeGroup(id="g", template=Node()), "not a NodeTemplate \\(got Node\\)"),
    "a duration as a text": (
        lambda: ca.AutoscalingOptions(scan_interval="10s"),
        r"AutoscalingOptions\.scan_interval is '10s', not a timedelta \(got str\)",
    ),
    "a tolerance as a text": (
        lambda: hpa.HPAOptions(horizontal_pod_autoscaler_tolerance="0.1"),
        r"HPAOptions\.horizontal_pod_autoscaler_tolerance is '0\.1', not a number \(got str\)",
    ),
    "a threshold in seconds": (
        lambda: vpa.UpdaterOptions(evict_after_oom_threshold=600),
        r"UpdaterOptions\.evict_after_oom_threshold is 600, not a timedelta \(got int\)",
    ),
    "weights as a list": (
        lambda: kscale.ScoreOptions(weights=["NodeResourcesFit"]),
        r"ScoreOptions\.weights is \['NodeResourcesFit'\], not a mapping \(got list\)",
    ),
    "a node as a dict": (lambda: kscale.NodeTemplate(node={}), r"NodeTemplate\.node is \{\}, not a Node"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_common_mistakes_are_argument_errors(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(ArgumentError, match=message) as caught:
        call()
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, InputError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.problems) == (str(caught.value), caught.value.problems)


def test_invalid_now_is_reported_first() -> None:
    with pytest.raises(InputError, match="now: 'x' is a str"):
        kscale.scale_up("no cluster", [], now="x")


@typed
def sample(
    names: Sequence[str], sizes: Mapping[str, int] | None = None, *, how: Literal["a", "b"] = "a", factor: float = 1.0
) -> str:
    return f"{list(names)} {sizes} {how} {factor}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("text",), "names is 'text', not a list of strings"),
        ((["a", 3],), r"names\[1\] is 3, not a string \(got int\)"),
        ((["a"], {"a": "x"}), r"sizes\['a'\] is 'x', not a whole number"),
        ((["a"], [("a", 1)]), "sizes is .*, not a mapping"),
    ],
)
def test_elements_are_looked_at(arguments: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        sample(*arguments)


def test_values_of_a_right_type_pass() -> None:
    import numpy as np

    assert sample(("a", "b"), {"a": np.int64(3)}, how="b", factor=2).endswith("b 2")
    assert sample(iter(["a"])) == "['a'] None a 1.0"
    assert sample(np.array(["a"])).endswith("None a 1.0")
    with pytest.raises(ArgumentError, match="how is 'c', not 'a' or 'b'"):
        sample([], how="c")


def test_values_are_checked_again_if_their_types_were_allowed_before() -> None:
    for _ in range(2):
        assert sample(["a"], {"a": 1}, how="b") == "['a'] {'a': 1} b 1.0"
        with pytest.raises(ArgumentError, match="how is 'c', not 'a' or 'b'"):
            sample(["a"], {"a": 1}, how="c")
        with pytest.raises(ArgumentError, match=r"names\[1\] is 3, not a string"):
            sample(["a", 3], {"a": 1}, how="b")
        with pytest.raises(ArgumentError, match=r"sizes\['b'\] is 'x', not a whole number"):
            sample(["a"], {"a": 1, "b": "x"}, how="b")
        ca.AutoscalingOptions(startup_taint=["a"])
        with pytest.raises(ArgumentError, match=r"AutoscalingOptions\.startup_taint\[1\] is 3, not a string"):
            ca.AutoscalingOptions(startup_taint=["a", 3])


@typed
def many(*names: str, strict: bool = True) -> int:
    return len(names) + strict


def test_arguments_without_a_name_of_their_own_are_not_taken_for_others() -> None:
    assert many("a", "b", strict=False) == 2
    with pytest.raises(ArgumentError, match="strict is 'no', not True or False"):
        many("a", strict="no")


@pytest.mark.parametrize("text", [True, False])
def test_an_open_file_is_read(tmp_path: Path, text: bool) -> None:
    path = tmp_path / "node.json"
    path.write_text('{\n"kind": "Node", "apiVersion": "v1",\n"metadata": {"name": "n"}}')
    with open(path) if text else open(path, "rb") as file:
        assert kscale.load(file).keys("Node") == ["n"]
    assert kscale.load(io.BytesIO(path.read_bytes())).keys("Node") == ["n"]
    with pytest.raises(InputError, match=r"node\.json: cannot be read: .* closed file"):
        kscale.load(file)


AMOUNTS = {"cpu": "4", "memory": "8Gi", "pods": "10"}
TEMPLATE: dict[str, Any] = {**NODE, "status": {"allocatable": AMOUNTS}}
POD: dict[str, Any] = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "d"}}
SCENE = kscale.load(TEMPLATE, POD)
GROUP = kscale.NodeGroup(id="g", max_size=3, price=1.0, template=kscale.NodeTemplate(node=next(SCENE.nodes())))
VALID: dict[str, dict[str, Any]] = {
    "fit": {"snapshot": SCENE, "pods": None, "nodes": ["n"]},
    "place": {"snapshot": SCENE, "pods": None},
    "estimate": {"snapshot": SCENE, "pods": None, "template": TEMPLATE, "cursor": 0},
    "estimate_many": {"snapshot": SCENE, "pods": None, "templates": [TEMPLATE]},
    "fork": {"snapshot": SCENE, "pods": None, "templates": [], "cursor": 0},
    "node_scores": {"snapshot": SCENE, "pod": POD},
    "scale_up": {"cluster": SCENE, "groups": [GROUP], "now": NOW},
    "scale_down": {"cluster": SCENE, "groups": [GROUP], "now": NOW},
    "mix": {"cluster": SCENE, "offers": [GROUP], "pods": None},
}


@pytest.mark.parametrize(("name", "parameter"), [(name, each) for name, valid in VALID.items() for each in valid])
def test_arguments_that_functions_convert_are_named_too(name: str, parameter: str) -> None:
    function = getattr(kscale, name)
    function(**VALID[name])
    for wrong in (Alien(), 3.5, [Alien()]):
        with pytest.raises(InputError) as caught:
            function(**{**VALID[name], parameter: wrong})
        assert re.search(rf"\b({parameter}|{parameter.removesuffix('s')})\b", str(caught.value)), caught.value


@pytest.mark.parametrize("function", [kscale.load, lambda item: kscale.apply_manifests(SCENE, item)])
@pytest.mark.parametrize("wrong", [Alien(), 3, None, [3.5]])
def test_a_source_of_a_wrong_type_is_refused(function: Any, wrong: Any) -> None:
    with pytest.raises(InputError, match=r"cannot read objects from (Alien|int|NoneType|float)"):
        function(wrong)


OBJECTS: dict[str, Any] = {
    "Cluster": SCENE,
    "Snapshot": SCENE.snapshot(),
    "Fork": kscale.fork(SCENE),
    "FitResult": kscale.fit(SCENE),
    "PlaceResult": kscale.place(SCENE),
    "EstimateResult": kscale.estimate(SCENE, template=TEMPLATE),
    "ScaleUpPlan": kscale.scale_up(SCENE, [GROUP], now=NOW),
    "ScaleDownPlan": kscale.scale_down(SCENE, [GROUP], now=NOW),
    "LoopReport": ca.run_once(SCENE, [GROUP], now=NOW),
    "MixPlan": kscale.mix(SCENE, [GROUP]),
}
POSITIONS = {"pod": "d/a", "node": "n", "key": "d/a", "kind": "Pod", "keys": ["d/a"]}


UNCHECKED = {"apply_decoded", "has_pod"}
"""Called for every object of a dump: the first takes decoded objects only, the second answers False for anything."""


def methods() -> list[tuple[str, str, str]]:
    """Class, public method and parameter, for the parameters that a method requires."""
    rows: list[tuple[str, str, str]] = []
    for name, item in OBJECTS.items():
        for method in sorted({each for base in type(item).__mro__ for each in vars(base) if not each.startswith("_")}):
            member = inspect.getattr_static(type(item), method)
            if not inspect.isfunction(member) or not member.__module__.startswith("kscale"):
                continue
            checks = _get_checks(inspect.unwrap(member))
            rows.extend(
                (name, method, each.name)
                for each in list(inspect.signature(member).parameters.values())[1:]
                if each.name in checks and each.kind is each.POSITIONAL_OR_KEYWORD and each.default is each.empty
                if method not in UNCHECKED
            )
    return rows


METHODS = methods()


@pytest.mark.parametrize(("name", "method", "parameter"), METHODS)
def test_a_method_names_an_argument_of_a_wrong_type(name: str, method: str, parameter: str) -> None:
    item = OBJECTS[name].copy() if name == "Cluster" else OBJECTS[name]
    function = getattr(item, method)
    check = _get_checks(inspect.unwrap(function))[parameter]
    needed = [each.name for each in inspect.signature(function).parameters.values() if each.default is each.empty]
    wrong = next(value for value in (Alien(), 3.5) if not check.accepts(value))
    with pytest.raises(InputError, match=rf"\b(a )?{parameter}\b.*(Alien|3\.5)") as caught:
        function(**{each: wrong if each == parameter else POSITIONS.get(each, []) for each in needed})
    assert not isinstance(caught.value, ArgumentError) or caught.value.problems[0].field == parameter


def test_methods_of_all_results_are_checked() -> None:
    assert {name for name, _, _ in METHODS} >= OBJECTS.keys() - {"Fork"}
    assert len(METHODS) > 25
    with pytest.raises(ArgumentError, match=r"indent is '2', not a whole number"):
        OBJECTS["PlaceResult"].to_json(indent="2")
    with pytest.raises(ArgumentError, match=r"objects is 3, not a list"):
        kscale.Cluster(3)
    with pytest.raises(KeyError, match="d/nobody"):
        OBJECTS["Snapshot"].record("d/nobody")  # an unknown name is no wrong type
