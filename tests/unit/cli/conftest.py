"""What the surroundings of a test run must not change."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from unit.cli.command_server import CommandServer, command_server


@pytest.fixture(autouse=True)
def plain_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in ("KSCALE_DEBUG", "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path_factory.getbasetemp() / "no-kubeconfig"))


@pytest.fixture(scope="session")
def commands() -> Iterator[CommandServer]:
    """Runs commands as processes of their own."""
    with command_server() as server:
        yield server
