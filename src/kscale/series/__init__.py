"""Usage over time as columns, and its readers (CSV, Parquet, Prometheus range JSON; from bytes).

::

    series = read(Path("usage.parquet"))
    for key, time, value in series:
        ...
"""

from __future__ import annotations

from kscale.series.columns import Series, SeriesKey
from kscale.series.csv_reader import read_csv
from kscale.series.events import bin_events
from kscale.series.parquet_reader import read_parquet
from kscale.series.prometheus_history import PrometheusHistory
from kscale.series.prometheus_reader import read_prometheus
from kscale.series.reader import read

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
