"""Options: defaults, parsing, what is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kscale import ca
from kscale.ca.options import (
    DrainPriority,
    GpuLimits,
    ResourceRange,
    parse_drain_priority_config,
    parse_gpu_limits,
    parse_range,
)
from kscale.errors import InputError


def test_the_defaults_have_no_problems() -> None:
    options = ca.AutoscalingOptions()
    assert options.problems() == []
    assert ca.ScaleUpOptions is ca.ScaleDownOptions is ca.AutoscalingOptions
    assert options.expander_names == ["least-waste"]
    assert options.resource_limiter.max == {"cpu": 320_000, "memory": 6_400_000 << 30}
    assert options.node_group_defaults.scale_down_unready_time == timedelta(minutes=20)


def test_a_profile_brings_the_defaults_of_its_release() -> None:
    legacy = ca.AutoscalingOptions.for_profile("legacy", max_nodes_total=7)
    assert (legacy.legacy, legacy.expander, legacy.expendable_pods_priority_cutoff) == (True, "random", 0)
    assert legacy.scale_down_delay_after_delete == timedelta(seconds=10)
    assert legacy.max_nodes_total == 7
    assert legacy.problems() == []
    legacy_options = ca.AutoscalingOptions.for_profile(
        "legacy", expander="most-pods", expendable_pods_priority_cutoff=-10
    )
    assert (legacy_options.expander, legacy_options.expendable_pods_priority_cutoff) == ("most-pods", -10)
    assert ca.AutoscalingOptions.for_profile("current") == ca.AutoscalingOptions()


def test_an_unknown_profile_is_refused() -> None:
    problems = ca.AutoscalingOptions(profile="1.3").problems()
    assert [(result.field, result.message) for result in problems] == [
        ("profile", "unknown profile '1.3'; there are current, legacy")
    ]


def test_limits_of_gpus() -> None:
    limiter = ca.AutoscalingOptions(gpu_total=[GpuLimits("k80", 1, 4)]).resource_limiter
    assert (limiter.min["k80"], limiter.max["k80"]) == (1, 4)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("gpu:1", "incorrect gpu limit specification: gpu:1"),
        ("gpu:1:10:x", "incorrect gpu limit specification: gpu:1:10:x"),
        ("gpu:x:10", "incorrect gpu limit - min is not integer: x"),
        ("gpu:1:y", "incorrect gpu limit - max is not integer: y"),
        ("gpu:-1:10", "incorrect gpu limit - min is less than 0; gpu:-1:10"),
        ("gpu:1:-10", "incorrect gpu limit - max is less than 0; gpu:1:-10"),
        ("gpu:10:1", "incorrect gpu limit - min is greater than max; gpu:10:1"),
    ],
)
def test_gpu_limits(text: str, error: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_gpu_limits(text)
    assert str(refused.value) == error
    assert parse_gpu_limits("gpu:1:10") == GpuLimits("gpu", 1, 10)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("5", "wrong nodes configuration: 5"),
        ("x:5", 'failed to set min size: x, expected integer, err: strconv.Atoi: parsing "x": invalid syntax'),
        ("5:y", 'failed to set max size: y, expected integer, err: strconv.Atoi: parsing "y": invalid syntax'),
        ("-1:5", "min size must be greater or equal to  0"),
        ("5:1", "max size must be greater or equal to min size"),
    ],
)
def test_range(text: str, error: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_range(text)
    assert str(refused.value) == error
    assert parse_range("0:320000") == ResourceRange(0, 320_000)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1:2,34",
        "1:2, 3:4,",
        "1:2,3:4 ",
        "1:2,3:a",
        "1:2,3:23.2",
        "1:9223372036854775808",
        "-9223372036854775809:1",
        f"{'9' * 5000}:1",
    ],
)
def test_drain_priorities_that_cannot_be_read(text: str) -> None:
    assert parse_drain_priority_config(text) == []


def test_drain_priorities_keep_their_order() -> None:
    assert parse_drain_priority_config("1:2,3:4") == [DrainPriority(1, 2), DrainPriority(3, 4)]
    result = parse_drain_priority_config("5000:60,3000:50,0:40")
    assert [item.priority for item in result] == [5000, 3000, 0]


def test_drain_priorities_are_int32_as_in_upstream() -> None:
    zeros = "0" * 5000
    assert parse_range(f"{zeros}1:+{zeros}2") == ResourceRange(1, 2)
    assert parse_gpu_limits(f"a100:{zeros}1:+{zeros}2") == GpuLimits("a100", 1, 2)
    assert parse_drain_priority_config(f"2147483648:5,-{zeros}7:+6") == [
        DrainPriority(-2147483648, 5),
        DrainPriority(-7, 6),
    ]


def test_limits_with_very_many_digits() -> None:
    digits = "9" * 5000
    with pytest.raises(InputError, match="value out of range"):
        parse_range(f"0:{digits}")
    with pytest.raises(InputError, match="incorrect gpu limit - max is not integer"):
        parse_gpu_limits(f"nvidia:0:{digits}")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (ca.AutoscalingOptions(predicate_parallelism=0), "Invalid value for --predicate-parallelism flag: 0"),
        (
            ca.AutoscalingOptions(enable_dynamic_resource_allocation=False),
            "--enable-dynamic-resource-allocation flag must be true: false",
        ),
        (
            ca.AutoscalingOptions(bypassed_scheduler_names=["x"], allowed_scheduler_names=["y"]),
            (
                "Invalid configuration. --bypassed-scheduler-names should be a subset of --allowed-scheduler-names. "
                "x not included in --allowed-scheduler-names"
            ),
        ),
        (
            ca.AutoscalingOptions(drain_priority_config="1:2", max_graceful_termination_sec=5),
            "Invalid configuration, could not use --drain-priority-config together with --max-graceful-termination-sec",
        ),
        (
            ca.AutoscalingOptions(drain_priority_config="x"),
            "Invalid configuration, parsing --drain-priority-config",
        ),
        (
            ca.AutoscalingOptions(cores_total=ResourceRange(5, 1)),
            "max size must be greater or equal to min size",
        ),
    ],
)
def test_problems(options: ca.AutoscalingOptions, text: str) -> None:
    assert [problem.message for problem in options.problems()] == [text]


def test_combined_errors() -> None:
    one, two, three = (ca.AutoscalerError("t", text) for text in ("m1", "m2", 'm"3'))
    assert ca.combine_errors([]) is None
    assert ca.combine_errors([one]) == one
    assert ca.combine_errors([two, two]) == two
    assert ca.combine_errors([three, two, one]) == ca.AutoscalerError("t", r'm"3 ...and other errors: ["m1", "m2"]')
    other = ca.AutoscalerError("a", "z")
    assert ca.combine_errors([one, other]) == ca.AutoscalerError("a", 'z ...and other errors: ["[t] m1"]')
