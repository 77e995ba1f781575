"""Options and Hypothesis profiles for the whole test suite."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

os.environ["SKBUILD_EDITABLE_VERBOSE"] = "0"  # an editable install that rebuilds says so in the middle of an answer

# The default run is the same everywhere; "thorough" looks for what nobody has seen yet.
settings.register_profile(
    "default",
    deadline=None,
    max_examples=60,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=1000, derandomize=False)
settings.load_profile(os.environ.get("KSCALE_HYPOTHESIS", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("golden answers")
    group.addoption("--golden-dir", metavar="DIR", help="run the recorded cases of DIR instead of the vendored ones")
    group.addoption("--golden-kind", metavar="KIND", action="append", help="only this kind (repeatable)")
    group.addoption("--reference-all", action="store_true", help="run the reference on every large recorded case, too")
