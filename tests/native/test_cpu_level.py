"""The level that kernels run at can be lowered, and no kernel asks the C library for what each has its own way of."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kscale._native import _engine

LEVELS = ("default", "x86-64-v3", "x86-64-v4")
INEXACT = (
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "erf", "erfc", "exp", "exp10"),
    *("exp2", "expm1", "hypot", "lgamma", "log", "log10", "log1p", "log2", "pow", "sin", "sincos", "sinh", "tan"),
    *("tanh", "tgamma"),
)
"""Of <math.h> what IEEE 754 does not demand to the last bit."""


def run(code: str, level: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "KSCALE_CPU_LEVEL": level}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_is_taken_if_the_processor_has_it(level: str) -> None:
    highest = _engine.build_info()["cpu_level"]  # as the tests run without the variable
    code = "import kscale; print(kscale.build_info()['cpu_level'])"
    assert run(code, level).stdout.strip() == min(level, highest, key=LEVELS.index)


def test_a_level_that_there_is_not_is_an_error() -> None:
    failed = run("import kscale; kscale.build_info()", "avx2")
    assert failed.returncode == 1
    assert failed.stderr.endswith(
        "kscale.errors.InputError: KSCALE_CPU_LEVEL: 'avx2' is none of default, x86-64-v3, x86-64-v4\n"
    )


def test_kernels_take_nothing_inexact_from_the_c_library() -> None:
    modules = sorted(Path(_engine.__file__).parent.glob("_*.so"))
    name = re.compile(rb"\0(%s)[fl]?\0" % "|".join(INEXACT).encode())
    assert len(modules) > 5
    assert {each.name: result for each in modules if (result := name.findall(each.read_bytes()))} == {}
