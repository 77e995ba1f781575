"""Options of the benchmarks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kscale benchmarks")
    group.addoption("--data", metavar="DIR", help="folder with the public traces and catalogues (or KSCALE_DATA)")


@pytest.fixture(scope="session")
def data_dir(request: pytest.FixtureRequest) -> Path:
    """The folder of public traces and catalogues; what needs it is skipped where it is not given."""
    directory = request.config.getoption("--data") or os.environ.get("KSCALE_DATA")
    if not directory:
        pytest.skip("needs public traces: give their folder with --data DIR or KSCALE_DATA")
    folder = Path(directory)
    if not folder.is_dir():
        pytest.skip(f"{folder} is not a folder (--data DIR or KSCALE_DATA)")
    return folder
