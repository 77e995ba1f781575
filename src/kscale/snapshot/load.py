"""``kscale.load``: read files, data and objects into a cluster.

Not in upstream.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kscale.objects.argument_types import typed
from kscale.snapshot.caches import collector_paused
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.loading import Loaded, LoadReport, load_batches
from kscale.snapshot.pods.store import Texts
from kscale.snapshot.text.pod_reader import ScannedList

__all__ = ["load"]


@typed
def load(
    *sources: Any,
    strict: bool = True,
    report: LoadReport | None = None,
    threads: int | None = None,
    texts: Texts = "all",
) -> Cluster:
    """Read a cluster from files and data: :func:`kscale.load` without a live cluster.

    Raises InputError with all problems.
    """
    report = LoadReport() if report is None else report
    cluster = Cluster(texts=texts, threads=threads)
    with collector_paused():
        scan = partial(_scan, cluster)
        for item in load_batches(*sources, strict=strict, report=report, scan=scan, is_stored=cluster.has_pod):
            if isinstance(item, Loaded):
                cluster.apply_decoded(item.obj, item.raw)
            else:
                report.count_batch(item, cluster.apply_batch(item))
        cluster.tidy()
    cluster.report = report
    return cluster


def _scan(cluster: Cluster, view: memoryview, source: str, place: str) -> ScannedList | None:
    """Scan a text with the cluster's reader, which is created for the first text."""
    return cluster.reader.scan(view, source, place)
