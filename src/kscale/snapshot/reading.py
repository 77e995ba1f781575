"""kscale.load: from files, data and objects to a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from kscale.errors import InputError
from kscale.objects.core import Pod
from kscale.objects.meta import KubeObject
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.collector import collector_paused
from kscale.snapshot.loading import Loaded, LoadReport, load_batches, load_objects
from kscale.snapshot.pod_texts import PodReader

__all__ = ["decode_any", "load"]


def load(*sources: Any, strict: bool = True, report: LoadReport | None = None, threads: int | None = None) -> Cluster:
    """Read a cluster: paths, directories, ``-`` (standard input), bytes, dicts, structs, Kubernetes client objects.

    JSON and YAML, several documents, lists of any kind, .gz and .zst; several sources merge. Damaged objects are
    collected into one :class:`~kscale.errors.InputError`; with ``strict=False`` the rest is used (a source that cannot
    be read at all is an error still). ``report`` is filled with what was read, skipped and warned about; it also stays
    at ``cluster.report``. ``threads`` (default: as many as there are CPUs) share the reading of long JSON lists; the
    result does not depend on it.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    report = LoadReport() if report is None else report
    cluster = Cluster()
    with collector_paused():
        reader = PodReader(cluster.interner, threads=threads or os.cpu_count() or 1)
        for found in load_batches(*sources, strict=strict, report=report, scan=reader.scan):
            if isinstance(found, Loaded):
                # A pod keeps its text, and that may lie in a file that changes.
                raw = found.raw if isinstance(found.obj, Pod) else None
                cluster.apply_decoded(found.obj, raw.copy() if isinstance(raw, msgspec.Raw) else raw)
            else:
                cluster.apply_batch(found)
    cluster.report = report
    return cluster


def decode_any(item: Any) -> Iterator[tuple[KubeObject, Any]]:
    """The objects of one item (a dict, a list kind, a client object), with their API data.

    Raises InputError for the name of an object or a file: an object is meant, and a file is for :func:`load`.
    """
    if item is None or isinstance(item, (str, os.PathLike)):
        raise InputError(
            f"{item!r} is not an object: give a struct, or a dict with kind and metadata, "
            "as {'kind': 'Node', 'metadata': {'name': 'n1'}}; kscale.load reads files"
        )
    yield from load_objects(item, validate=False)
