"""Every recorded case of every kind that has an adapter."""

from __future__ import annotations

from golden_support import Recorded, adapter


def test_recorded_answer(golden_case: Recorded) -> None:
    module = adapter(golden_case.kind)
    assert module is not None
    module.check(golden_case.case())
