"""``kscale.load``: read files, data and objects into a cluster.

kscale's own.
"""

from __future__ import annotations

from typing import Any

from kscale.objects.argument_types import typed
from kscale.snapshot.caches import collector_paused
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.loading import Loaded, LoadReport, load_batches
from kscale.snapshot.pods.store import Texts

__all__ = ["load"]


@typed
def load(
    *sources: Any,
    strict: bool = True,
    report: LoadReport | None = None,
    threads: int | None = None,
    texts: Texts = "all",
) -> Cluster:
    """Read a cluster: paths, directories, ``-`` (standard input), open files, bytes, dicts, structs, client objects.

    JSON and YAML, several documents, lists of any kind, .gz and .zst; several sources merge. Damaged objects are
    collected into one :class:`~kscale.errors.InputError`; with ``strict=False`` the rest is used (a source that cannot
    be read at all is an error still). ``report`` is filled with what was read, skipped and warned about; it also stays
    at ``cluster.report``. ``threads`` (default: as many as there are CPUs) share the reading of long JSON lists; the
    result does not depend on it. ``texts``: of :class:`~kscale.snapshot.cluster.Cluster`; texts in a file stay there.
    """
    report = LoadReport() if report is None else report
    cluster = Cluster(texts=texts, threads=threads)
    with collector_paused():
        batches = load_batches(*sources, strict=strict, report=report, scan=cluster.reader.scan, held=cluster.has_pod)
        for found in batches:
            if isinstance(found, Loaded):
                cluster.apply_decoded(found.obj, found.raw)
            else:
                report.count_batch(found, cluster.apply_batch(found))
        cluster.tidy()
    cluster.report = report
    return cluster
