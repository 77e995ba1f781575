"""Usage over time as columns, and readers for CSV, Parquet and Prometheus range responses.

::

    series = read(Path("usage.parquet"))
    for key, time, value in series:
        ...
"""

from __future__ import annotations

from kscale.series.columns import Series, SeriesKey, bin_events
from kscale.series.prometheus import PrometheusHistory, read_prometheus
from kscale.series.reader import read
from kscale.series.table_readers import read_csv, read_parquet

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
