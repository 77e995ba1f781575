"""Tables that one test runs row by row."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

Row = TypeVar("Row")


def each_row(
    rows: Iterable[Row], label: Callable[[Row], str] = repr
) -> Callable[[Callable[[Row], None]], Callable[[], None]]:
    """Run a test with every row, also after one that fails, and name each row that failed.

    For tables of a hundred rows and more that take less time than pytest takes for a test. Rows share fixtures: where
    each needs its own, use `pytest.mark.parametrize`.
    """
    table = list(rows)
    assert table

    def decorate(test: Callable[[Row], None]) -> Callable[[], None]:
        def run() -> None:
            failures = []
            for row in table:
                try:
                    test(row)
                except (Exception, pytest.fail.Exception):  # noqa: BLE001  # any failure of a row is reported
                    failures.append(f"{label(row)}\n{traceback.format_exc()}")
            if failures:
                pytest.fail("\n".join([f"{len(failures)} of {len(table)} rows:", *failures]), pytrace=False)

        run.__name__, run.__qualname__, run.__module__ = test.__name__, test.__qualname__, test.__module__
        run.__doc__ = test.__doc__
        return run

    return decorate
