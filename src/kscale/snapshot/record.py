"""A pod together with what it was read from."""

from __future__ import annotations

from typing import Any

import msgspec

from kscale.objects.core import Pod
from kscale.objects.decode import from_dict, from_json, to_dict
from kscale.objects.equivalence import Digester
from kscale.objects.owners import controller_of, is_daemonset_pod

__all__ = ["PodRecord", "PodSource", "pod_record"]

PodSource = Pod | msgspec.Raw | dict[str, Any]


class PodRecord:
    """A pod for a decision: the struct, and the API data behind it (in which fields that kscale does not model count).

    ``uid``: the pod's UID or, without one, its key: what hints and subtraction go by.
    """

    __slots__ = ("_controller", "pod", "raw")

    def __init__(self, pod: Pod, raw: msgspec.Raw | dict[str, Any] | None = None) -> None:
        self.pod = pod
        self.raw = raw
        self._controller: str | bool | None = True

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return self.pod.key

    @property
    def uid(self) -> str:
        """The identity that hints go by."""
        return self.pod.metadata.uid or self.pod.key

    @property
    def priority(self) -> int:
        """``spec.priority``, 0 if absent."""
        return self.pod.spec.priority or 0

    @property
    def controller(self) -> str | None:
        """UID of the controller whose replicas are compared; None: stands alone (no controller, or a DaemonSet's)."""
        if self._controller is True:
            owner = controller_of(self.pod.metadata)
            self._controller = None if owner is None or is_daemonset_pod(self.pod) else owner.uid
        return self._controller  # type: ignore[return-value]  # True is only "not looked up yet"

    def digest(self, digester: Digester) -> bytes:
        """What equivalence grouping compares (labels and semantically equal spec)."""
        return digester.digest(self.raw if self.raw is not None else to_dict(self.pod))


def pod_record(source: PodSource | PodRecord) -> PodRecord:
    """From a struct, API data or JSON text. Raises InputError for data that is no pod."""
    if isinstance(source, PodRecord):
        return source
    if isinstance(source, Pod):
        return PodRecord(source)
    if isinstance(source, dict):
        return PodRecord(from_dict(source, Pod), source)
    return PodRecord(from_json(source, Pod), source)
