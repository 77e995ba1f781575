"""What the surroundings of a test run must not change."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def plain_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KSCALE_DEBUG", "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    # An editable install that rebuilds says so; not in the middle of an answer.
    monkeypatch.setenv("SKBUILD_EDITABLE_VERBOSE", "0")
