"""Usage over time as columns, and readers for CSV, Parquet and Prometheus range responses.

::

    series = read(Path("usage.parquet"))
    for key, time, value in series:
        ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kscale.imports import import_on_use

if TYPE_CHECKING:
    from kscale.series.columns import Series, SeriesKey, bin_events
    from kscale.series.prometheus import PrometheusHistory, read_prometheus
    from kscale.series.reader import read, read_csv, read_parquet

__all__ = [
    "PrometheusHistory",
    "Series",
    "SeriesKey",
    "bin_events",
    "read",
    "read_csv",
    "read_parquet",
    "read_prometheus",
]


import_on_use(
    __name__,
    {
        "columns": ("Series", "SeriesKey", "bin_events"),
        "prometheus": ("PrometheusHistory", "read_prometheus"),
        "reader": ("read", "read_csv", "read_parquet"),
    },
)
