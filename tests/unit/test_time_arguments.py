"""Every public function and method that takes a moment takes an aware datetime or nanoseconds, and nothing else.

What is public is what the reference describes; of classes their public methods. No list is kept here: a parameter
counts that is called ``now``, or that is annotated as a moment.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, get_origin
from unittest.mock import MagicMock

import pytest

import kscale
from kscale import ca, drivers, effects, hpa, simulation, vpa
from kscale.ca.provisioning_requests import ProvisioningRequestProcessor
from kscale.drivers.horizontal_autoscaler import HorizontalAutoscaler
from kscale.errors import InputError
from rows import each_row

OUTSIDE: Final = {
    "later": "arithmetic of moments",
    "to_text": "shows a moment",
    "to_datetime": "shows a moment",
    "Outcome": "what a world answers: check_outcome() holds it, for it is made for every action",
    "Running": "made by VirtualTime, which has looked at the deadline",
    "QueryPrometheus": "an action, made by machines",
    "OutOfMemory": "a row of what a watch brought",
    "SlowHpas": "kept state of a driver, which hands its own time over",
    "OtherControllers": "kept state of a driver, which hands its own time over",
    "ExecutionResult": "a result",
    "build_quota_status": "called by the controller of quotas with its own time",
    "build_scale_down_node": "called by the actuator with the time of the loop",
    "are_all_pods_new": "called by a loop with its own time",
    "choose_nodes_to_delete": "called by a loop with its own time",
    "filter_out_delayed": "called by a loop with its own time",
    "filter_out_young_pods": "called by a loop with its own time",
    "find_old_pods": "called by a loop with its own time",
    "filter_valid_scale_up_groups": "called by a scale-up with the time of the loop",
    "find_not_ready_reason": "called by a scale-up with the time of the loop",
    "should_scale_up": "called by a loop with its own time",
    "ScaleUpOrchestrator": "made by orchestrate_steps with the time of the loop",
    "BatchResult": "a result",
    "ScaleDownState": "kept state: its JSON is held against the schema",
    "HPAReport": "a record, with texts",
    "ClusterStateRegistry": "kept state",
    "IncorrectSize": "kept state",
    "ScaleDownRequest": "kept state, made by register_scale_down",
    "ScaleUpFailure": "kept state, made by register_failed_scale_up",
    "ScaleUpRequest": "kept state, made by register_scale_up",
    "UnregisteredNode": "kept state",
    "ProvisioningState": "kept state",
    "UpdaterState": "kept state",
    "InjectedRequests": "a result",
    "MinSizeScaleUpResult": "a result",
    "OrchestratorResult": "a result",
    "CalculatedReplicas": "a result",
    "RecommendationReport": "a record, with texts",
}
INSTANCES: Final[dict[str, Callable[[], Any]]] = {
    "HorizontalController": lambda: drivers.HorizontalController(hpa.HPAOptions()),
    "WorkQueue": lambda: drivers.WorkQueue("q"),
    "VirtualTime": lambda: effects.VirtualTime(lambda action, at: effects.Outcome(at=at), now=0),
    "DisruptionBudget": kscale.DisruptionBudget,
    "HourlyPrices": ca.HourlyPrices,
    "HPAOptions": hpa.HPAOptions,
    "Timeline": lambda: simulation.Timeline("x"),
    "ScaleCache": vpa.ScaleCache,
    "RecommenderState": vpa.RecommenderState,
    "Cluster": kscale.Cluster,
    "RemovalSimulator": lambda: ca.RemovalSimulator(kscale.Cluster().snapshot(), now=0),
    "Dump": lambda: hpa.Dump(),
    "ProvisioningRequestProcessor": lambda: ProvisioningRequestProcessor(
        kscale.Cluster().snapshot().informers,
        ca.AutoscalingOptions(),
        ca.LoopState().provisioning,
        profile=None,
        warnings=[],
    ),
    "HorizontalAutoscaler": HorizontalAutoscaler,
    "PrometheusHistory": lambda: kscale.series.PrometheusHistory(),
}
WRONG: Final = [datetime(2026, 1, 1), "2026-01-01T00:00:00Z", 1.5e9, True]  # noqa: DTZ001  # a time without a zone is refused
RIGHT: Final = [datetime(2026, 1, 1, tzinfo=UTC), 1_795_348_800 * effects.SECOND]


def modules() -> Iterator[Any]:
    """What the reference describes, and every module that a page names."""
    docs = Path(__file__).parents[2] / "docs"
    names = {page.stem for page in (docs / "reference").glob("*.md")}
    for page in docs.rglob("*.md"):
        for name in re.findall(r"\bkscale(?:\.[a-zA-Z_0-9]+)+", page.read_text()):
            parts = name.split(".")
            names |= {".".join(parts[:size]) for size in range(1, len(parts) + 1)}
    for name in sorted(names):
        try:
            result = find_spec(name)
        except (ModuleNotFoundError, AttributeError):
            result = None  # a name within a module
        if result is not None:
            module = importlib.import_module(name)
            if hasattr(module, "__all__"):
                yield module


def of_moments(call: Any) -> list[str]:
    """The parameters that are moments."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return []
    annotations = {each.name: str(each.annotation) for each in parameters}
    for base in reversed(getattr(call, "__mro__", ())):  # of a struct's signature no names of types are told
        annotations |= {
            name: str(type_) for name, type_ in getattr(base, "__annotations__", {}).items() if name in annotations
        }
    return [name for name, type_ in annotations.items() if re.search(r"\bMoment\b", type_) or name == "now"]


def time_parameters() -> dict[str, tuple[Any, Any, str]]:
    """Return function name -> class (None: a function), function, parameter."""
    result = {}
    for module in modules():
        for name in module.__all__:
            value = getattr(module, name)
            if name in OUTSIDE or not callable(value) or get_origin(value) is not None:
                continue
            if not inspect.isclass(value):
                result |= {f"{value.__module__}.{name}({one})": (None, value, one) for one in of_moments(value)}
                continue
            if getattr(value, "_is_protocol", False) or not value.__module__.startswith("kscale"):
                continue
            result |= {f"{value.__module__}.{name}({one})": (None, value, one) for one in of_moments(value)}
            for method in (each for each in dir(value) if not each.startswith("_")):
                raw = inspect.getattr_static(value, method)
                if inspect.isfunction(raw) and raw.__module__.startswith("kscale"):
                    at = f"{raw.__module__}.{name}.{method}"
                    result |= {f"{at}({one})": (value, raw, one) for one in of_moments(raw)}
    return result


FUNCTIONS: Final = time_parameters()


def refused_field(function: str, value: object) -> str | None:
    """Return the field that the function's refusal names; None if it accepts the value."""
    owner, call, name = FUNCTIONS[function]
    arguments: dict[str, Any] = {
        each.name: MagicMock()
        for each in inspect.signature(call).parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    }
    for other in of_moments(call):
        if other in arguments:
            arguments[other] = 0
    arguments[name] = value
    if owner is not None:
        arguments["self"] = INSTANCES[owner.__name__]()
    if "steps" in arguments:
        arguments["steps"] = (action for action in ())  # a machine that ends at once
    parts = inspect.signature(call).parameters.values()
    places = [each.name for each in parts if each.kind <= each.POSITIONAL_OR_KEYWORD and each.default is each.empty]
    at = [arguments.pop(place) for place in places]
    try:
        result = call(*at, **arguments)
        if inspect.isgenerator(result):
            next(result)
    except InputError as error:
        return error.problems[0].field
    except (StopIteration, TypeError, ValueError, AttributeError, LookupError, AssertionError, RuntimeError):
        return None  # what it does with what the others are not
    return None


@each_row(FUNCTIONS)
def test_invalid_times_are_refused_by_name(function: str) -> None:
    name = FUNCTIONS[function][2]
    assert [refused_field(function, value) for value in WRONG] == [name] * len(WRONG)
    assert name not in [refused_field(function, value) for value in RIGHT]


SECONDS: Final = 1_795_348_800
OTHER_UNITS: Final = {"seconds": SECONDS, "milliseconds": SECONDS * 10**3, "microseconds": SECONDS * 10**6}


ANY_CLOCK: Final = (
    "kscale.effects.",
    "kscale.ca.expander.price.HourlyPrices.",
    "kscale.vpa.model.cluster_state.RecommenderState.",
)
"""Virtual clocks may begin anywhere; of an interval only the length counts; a recommender's time may be a sample's."""


@each_row(function for function in FUNCTIONS if not function.startswith(ANY_CLOCK))
def test_integers_of_another_unit_are_refused_by_name(function: str) -> None:
    name = FUNCTIONS[function][2]
    assert [refused_field(function, value) for value in OTHER_UNITS.values()] == [name] * len(OTHER_UNITS)
    assert refused_field(function, 0) != name, "0 is no particular time"


@pytest.mark.parametrize("unit", OTHER_UNITS)
def test_the_refusal_names_the_unit_that_an_integer_seems_to_have(unit: str) -> None:
    with pytest.raises(InputError, match=rf"now: {OTHER_UNITS[unit]} nanoseconds .* seems to be {unit} \(2026-11-22T"):
        kscale.scale_up(kscale.Cluster(), [], now=OTHER_UNITS[unit])


@pytest.mark.parametrize("value", [1, 86_400, -1, -SECONDS, 10**17 - 1])
def test_other_small_integers_are_refused_as_well(value: int) -> None:
    with pytest.raises(InputError, match=f"now: {value} nanoseconds since 1970 are before 1973"):
        effects.moment(value)


def test_times_since_1973_and_explicit_dates_are_taken() -> None:
    assert effects.moment(10**17) == 10**17
    assert effects.moment(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == effects.SECOND


def test_there_are_many() -> None:
    assert len(FUNCTIONS) > 60
    assert OUTSIDE.keys() <= {name for module in modules() for name in module.__all__}
