"""The small dump as a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unit.cli.recommend.support import dump


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(dump()))
    return path
