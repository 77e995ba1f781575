"""Pods and their usage straight from the JSON of a dump, where nothing is wrong with it.

Whatever is written in another way is left to the way of all objects (:mod:`kscale.hpa.dump_records`), which names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from kscale.effects import Moment, from_text
from kscale.errors import InputError
from kscale.hpa.admission import decode_usual
from kscale.objects.autoscaling import HorizontalPodAutoscaler
from kscale.objects.core import Pod
from kscale.objects.decode import decoder
from kscale.objects.kinds import group_of
from kscale.objects.meta import ObjectMeta
from kscale.objects.pod_metrics import PodUsage
from kscale.snapshot.sources import RawObject

__all__ = ["hpa_of_record", "is_usage", "pod_of", "time_of", "usage_of", "usage_of_items"]


class _Item(msgspec.Struct, rename="camel"):
    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    status: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    @property
    def head(self) -> _Head:
        """What tells whether it is usage: the same for nearly all of very many."""
        return self.api_version, self.kind, self.spec is msgspec.UNSET and self.status is msgspec.UNSET


_Head = tuple[str | None, str | None, bool]
"""API version, kind, and whether there is neither spec nor status."""

_ITEMS: Final = msgspec.json.Decoder(list[_Item])


@lru_cache(maxsize=1 << 14)
def time_of(text: str) -> Moment:
    """:func:`~kscale.effects.from_text`, of texts that come again and again."""
    return from_text(text)


def pod_of(record: RawObject) -> Pod | None:
    """The pod of a record; None: it is read in another way."""
    raw = record.data
    if not isinstance(raw, msgspec.Raw) or not _is_text(memoryview(raw)):
        return None
    try:
        pod = decoder(Pod).decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    pod.kind, pod.api_version = pod.kind or record.kind, pod.api_version or record.api_version
    return pod


def hpa_of_record(record: RawObject) -> HorizontalPodAutoscaler | None:
    """The v2 HPA of a record, as the API server decodes it; None: it is read in another way.

    Items of a list may leave out what the list is of: the record knows.
    """
    if record.api_version != "autoscaling/v2" or not isinstance(record.data, msgspec.Raw):
        return None
    return decode_usual(bytes(memoryview(record.data)))


def is_usage(record: RawObject) -> bool:
    """Whether a record is the usage of a pod as JSON."""
    return (
        record.kind == "PodMetrics"
        and group_of(record.api_version) == "metrics.k8s.io"
        and isinstance(record.data, msgspec.Raw)
    )


def usage_of(records: Sequence[RawObject]) -> tuple[PodUsage, set[str]] | None:
    """The usage that records tell together, and when their objects were made; None: they are read in another way."""
    return usage_of_items(b",".join(memoryview(each.data) for each in records if isinstance(each.data, msgspec.Raw)))


def usage_of_items(text: bytes | memoryview) -> tuple[PodUsage, set[str]] | None:
    """:func:`usage_of` of the items of a list, with commas in between."""
    items = b"".join((b"[", text, b"]"))
    if not _is_text(items):
        return None
    try:
        told = _ITEMS.decode(items)
        usage = PodUsage.from_json(b"".join((b'{"kind":"PodMetricsList","items":', items, b"}")))
    except (msgspec.DecodeError, RecursionError, InputError):
        return None
    if not all(map(_is_usage, {each.head for each in told})) or "" in usage.namespaces:
        return None
    return usage, {each.metadata.creation_timestamp for each in told if each.metadata.creation_timestamp}


def _is_usage(head: _Head) -> bool:
    api_version, kind, bare = head
    return bare and kind in (None, "PodMetrics") and (api_version is None or group_of(api_version) == "metrics.k8s.io")


def _is_text(data: bytes | memoryview) -> bool:
    """Whether all of it is UTF-8, what is skipped too, and no text has halves of a character."""
    text = bytes(data)
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return b"\\ud" not in text and b"\\uD" not in text
