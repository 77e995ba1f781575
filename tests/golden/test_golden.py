"""Every recorded case of every kind that has an adapter."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

import pytest

from golden_support import Recorded, adapter


def test_recorded_answers(golden_cases: Sequence[Recorded]) -> None:
    """Each case is compared, also after one that differs; the report names all that differ."""
    differences = []
    for record in golden_cases:
        module = adapter(record.kind)
        assert module is not None
        try:
            module.check(record.case())
        except Exception:  # noqa: BLE001  # a wrong answer may lead to any exception
            differences.append(f"{record.name}\n{traceback.format_exc()}")
    if differences:
        pytest.fail("\n".join([f"{len(differences)} of {len(golden_cases)} cases:", *differences]), pytrace=False)
