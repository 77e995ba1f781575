"""``kscale recommend``: strategies, built in and of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.cli.recommend.support import (
    MIB,
    START,
    answer,
    recommend,
    rows,
)


def test_strategies_and_their_settings(cluster: Path) -> None:
    lines = [f"{START + 60 * i},shop,web-5d4f8-abcde,app,{0.01 * i},{300 * MIB}\n" for i in range(200)]
    (one,) = answer(recommend(cluster, lines, "--strategy", "percentile", "-o", "json"))["containers"]
    assert (one["cpu"]["target"], one["cpu"]["targetLimit"]) == (1891, None)
    assert one["memory"]["target"] == one["memory"]["targetLimit"] == 345 * MIB
    (half,) = answer(
        recommend(cluster, lines, "--strategy", "percentile", "--cpu-percentile", 50, "-o", "json")
    )["containers"]  # fmt: skip
    assert half["cpu"]["target"] == 995
    (both,) = answer(recommend(cluster, lines, "--strategy", "percentile-limit", "-o", "json"))["containers"]
    assert both["cpu"]["target"] < both["cpu"]["targetLimit"]
    run = recommend(cluster, lines, "--strategy", "vpa", "--cpu-percentile", 50)
    assert run.code == 2
    assert "strategy vpa has no setting cpu_percentile" in run.stderr
    assert "no strategy 'best'" in recommend(cluster, lines, "--strategy", "best").stderr


OWN = """
import msgspec
from kscale.vpa.strategies import StrategyAdvice, CompiledStrategy, Strategy

class Settings(msgspec.Struct, frozen=True):
    factor: float = 1.0

class Peak(Strategy):
    name = "peak"
    Settings = Settings
    def advise(self, usage):
        most = max((float(s.max()) for s in usage.cpu.values()), default=0.0)
        return StrategyAdvice(cpu_request=round(most * 1000 * self.settings.factor))

class Compiled(CompiledStrategy):
    name = "compiled"
    Settings = Settings
    @staticmethod
    def kernel(cpu, memory, settings):
        most = 0.0
        for x in cpu:
            most = max(most, x)
        if settings[0] < 0:
            raise ValueError("no such factor")
        return most * settings[0], float("nan"), float("nan"), float("nan")
"""


@pytest.mark.parametrize("name", ["Peak", "Compiled"])
def test_a_strategy_of_ones_own(cluster: Path, name: str) -> None:
    path = cluster.parent / "own.py"
    path.write_text(OWN)
    lines = [f"{START + 60 * i},shop,web-5d4f8-abcde,app,{0.01 * i},{300 * MIB}\n" for i in range(200)]
    (one,) = answer(recommend(cluster, lines, "--strategy", f"{path}:{name}", "-o", "json"))["containers"]
    assert (one["cpu"]["target"], one["memory"]["target"]) == (1990, None)
    twice = recommend(cluster, lines, "--strategy", f"{path}:{name}", "--setting", "factor=2", "-o", "json")
    assert answer(twice)["containers"][0]["cpu"]["target"] == 3980
    for more, message in (
        ("factor", "expected NAME=VALUE"),
        ("factor=many", "strategy"),
        ("size=1", "has no setting size"),
    ):
        run = recommend(cluster, lines, "--strategy", f"{path}:{name}", "--setting", more)
        assert run.code == 2
        assert message in run.stderr


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("kscale.vpa.strategies:Strategies", "is no subclass of Strategy"),
        ("no.such.module:Peak", "No module named"),
        ("missing.py:Peak", "No such file"),
    ],
)
def test_invalid_strategies_are_refused(cluster: Path, strategy: str, message: str) -> None:
    run = recommend(cluster, rows(5), "--strategy", strategy)
    assert run.code == 2
    assert message in run.stderr


BROKEN = """
from kscale.vpa.strategies import StrategyAdvice, Strategy

class Raises(Strategy):
    name = "raises"
    def advise(self, usage):
        raise KeyError("boom")

class Nothing(Strategy):
    name = "nothing"
    def advise(self, usage):
        return None

class Negative(Strategy):
    name = "negative"
    def advise(self, usage):
        return StrategyAdvice(cpu_request=-5)

class Fraction(Strategy):
    name = "fraction"
    def advise(self, usage):
        return StrategyAdvice(memory_request=1.5)
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Raises", "failed: KeyError: 'boom'"),
        ("Nothing", "returned NoneType, not StrategyAdvice"),
        ("Negative", "cpu_request: -5 is no whole number"),
        ("Fraction", "memory_request: 1.5 is no whole number"),
    ],
)
def test_strategies_that_fail(cluster: Path, name: str, message: str) -> None:
    path = cluster.parent / "broken.py"
    path.write_text(BROKEN)
    run = recommend(cluster, rows(150), "--strategy", f"{path}:{name}")
    assert run.code == 2
    assert f"strategy {name.lower()}: container app of Deployment/web in shop: " in run.stderr
    assert message in run.stderr
    path.write_text("raise RuntimeError('at import')")
    run = recommend(cluster, rows(150), "--strategy", f"{path}:{name}")
    assert run.code == 2
    assert "RuntimeError: at import" in run.stderr
    assert "internal error" not in run.stderr
