"""What ``nox -s supply`` says of the answer of pip-audit: what could not be audited is named, and no failure."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

FILE = Path(__file__).parents[2] / ".ci" / "audit.py"
CLEAN = {"name": "numpy", "version": "2.4.6", "vulns": []}
HOLED = {"name": "rich", "version": "1.0", "vulns": [{"id": "CVE-1"}, {"id": "GHSA-2"}]}
UNKNOWN = {"name": "accessible-pygments", "skip_reason": "Dependency not found"}

Audit = Callable[[list[dict[str, Any]] | None, int], None]


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Audit:
    """Runs the audit, with what pip-audit answers (nothing: None) and ends with."""
    spec = importlib.util.spec_from_file_location("audit", FILE)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def run(packages: list[dict[str, Any]] | None, status: int) -> None:
        written = tmp_path / "answer.json"

        def answered(command: list[str], **_: Any) -> SimpleNamespace:
            assert "--strict" not in command  # one unknown package would end all
            if packages is not None:
                written.write_text(json.dumps({"dependencies": packages}))
            return SimpleNamespace(returncode=status)

        with monkeypatch.context() as inside:
            inside.setattr(subprocess, "run", answered)
            module.main("installed.txt", written)

    return run


def test_packages_unknown_to_the_index_are_reported_as_skipped(
    audit: Audit, capsys: pytest.CaptureFixture[str]
) -> None:
    audit([CLEAN, UNKNOWN], 0)
    assert capsys.readouterr().out.splitlines() == [
        "skipped: accessible-pygments is not on the index, so it was not audited (Dependency not found)",
        "audited: 1; of these have known vulnerabilities: 0",
    ]


def test_where_the_index_knows_nothing_it_says_that_nothing_was_audited(
    audit: Audit, capsys: pytest.CaptureFixture[str]
) -> None:
    audit([UNKNOWN], 0)  # no failure: nox reads the same answer, and says that the session was skipped
    assert capsys.readouterr().out.splitlines()[-1] == "audited: 0; of these have known vulnerabilities: 0"


@pytest.mark.parametrize(
    ("packages", "status", "message"),
    [
        ([CLEAN, HOLED, UNKNOWN], 1, "known vulnerabilities: rich 1.0: CVE-1, GHSA-2"),
        ([CLEAN], 3, "pip-audit ended with 3"),
        (None, 1, "advisories were not reached"),
    ],
)
def test_audit_fails_on_vulnerabilities_and_errors(
    audit: Audit, packages: list[dict[str, Any]] | None, status: int, message: str
) -> None:
    with pytest.raises(SystemExit, match=message):
        audit(packages, status)
