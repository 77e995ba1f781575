"""The end-to-end tests: ``nox -s e2e``. Their files are named ``e2e_*.py``, so that a plain ``pytest`` needs no Go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("unit.world.informer_cases", "unit.world.stores_cases", "unit.world.writer_cases")

from e2e.control_plane import ControlPlane  # noqa: E402  # after the call above
from e2e.real_api import cleared  # noqa: E402  # as above


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd and an API server."""
    with ControlPlane(tmp_path_factory.mktemp("plane")) as plane:
        yield plane


@pytest.fixture
def plane(server: ControlPlane) -> ControlPlane:
    """The same, with nothing in it."""
    cleared(server)
    return server
