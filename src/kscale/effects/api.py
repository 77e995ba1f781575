"""What is asked of the API server. Writes are patches: an object is never put back whole.

``kind`` is a kind as in a manifest (``Node``); ``api_version`` is only needed for kinds that kscale has no struct of.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from kscale.objects.autoscaling import Scale
from kscale.objects.meta import KubeObject

__all__ = [
    "Create",
    "Delete",
    "Discover",
    "Evict",
    "Get",
    "GetScale",
    "GetWhole",
    "List",
    "Patch",
    "PatchOperation",
    "PatchType",
    "Preview",
    "PutScale",
    "Resize",
    "WriteStatus",
]

PatchType = Literal["merge", "json", "strategic"]
MERGE: Final[PatchType] = "merge"


class Get(msgspec.Struct, frozen=True, kw_only=True):
    """Read one object. ``watched``: what the watch has brought so far, else from the API server.

    One that is not there is refused with the reason ``NotFound``.
    """

    kind: str
    name: str
    namespace: str = ""
    api_version: str = ""
    watched: bool = False


class GetWhole(msgspec.Struct, frozen=True, kw_only=True):
    """Read one object as plain data, with what kscale has no fields for, from the API server."""

    kind: str
    name: str
    namespace: str = ""
    api_version: str = ""


class List(msgspec.Struct, frozen=True, kw_only=True):
    """Read the objects of a kind, in the lister's order.

    ``namespace`` empty: of all; ``selector``: of labels, as text, empty: all; ``nodes``: only pods that are assigned to
    these nodes and have not ended. ``watched``: what the watch has brought so far, else from the API server.
    ``read_as``, of what is not watched: the API group whose kinds the objects are, where they are served under another.
    """

    kind: str
    namespace: str = ""
    selector: str = ""
    nodes: tuple[str, ...] | None = None
    api_version: str = ""
    watched: bool = True
    read_as: str = ""


class Discover(msgspec.Struct, frozen=True):
    """Ask which kinds are served, as which resources and in which versions."""


class Create(msgspec.Struct, frozen=True):
    """Create an object. One that is there already is refused with the reason ``AlreadyExists``."""

    object: KubeObject


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """Ask what the API server would make of a new object, with defaults and admission (a dry run). ``content``: the
    object as plain data. Nothing is created."""

    kind: str
    content: dict[str, Any]
    namespace: str = ""
    api_version: str = ""


class PatchOperation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operation (``op``) of a JSON patch (RFC 6902): ``add``, ``replace`` or ``test`` with a value, or
    ``remove``. ``value``: plain data, or a struct of :mod:`kscale.objects`, which stands for what the API prints of
    it."""

    op: str
    path: str
    value: Any = msgspec.UNSET


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """Change parts of an object.

    ``patch`` is plain data for ``merge`` and ``strategic``, :class:`PatchOperation` for ``json``. With a
    ``resource_version`` an object that has changed since is refused with the reason ``Conflict``. ``type``: which of
    the three; ``subresource``: that of the object which is changed (empty: the object itself).
    """

    kind: str
    name: str
    patch: dict[str, Any] | tuple[PatchOperation, ...]
    namespace: str = ""
    type: PatchType = MERGE
    subresource: str = ""
    resource_version: str = ""
    api_version: str = ""


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Delete an object; with a ``uid`` only that very one. Disruption budgets are not asked. ``grace_period_seconds``
    None: as the object has it."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    grace_period_seconds: int | None = None
    api_version: str = ""


class Evict(msgspec.Struct, frozen=True, kw_only=True):
    """Create an eviction of a pod (policy/v1). A disruption budget refuses with the reason ``TooManyRequests``.
    ``grace_period_seconds`` None: as the pod has it."""

    namespace: str
    name: str
    grace_period_seconds: int | None = None


class Resize(msgspec.Struct, frozen=True, kw_only=True):
    """Patch the ``resize`` sub-resource of a pod (JSON patch)."""

    namespace: str
    name: str
    patch: tuple[PatchOperation, ...]


class GetScale(msgspec.Struct, frozen=True, kw_only=True):
    """Read the scale of an object. ``resource`` is a group-resource such as ``deployments.apps``.

    ``fresh``: it is read again after a failed write, so what is remembered does not do.
    """

    namespace: str
    resource: str
    name: str
    fresh: bool = False


class PutScale(msgspec.Struct, frozen=True, kw_only=True):
    """Write the number of replicas into a scale at the resource version it was read at, else it is a ``Conflict``."""

    namespace: str
    resource: str
    scale: Scale
    replicas: int


class WriteStatus(msgspec.Struct, frozen=True):
    """Write the status of an object at the resource version it carries. Only the status is written."""

    object: KubeObject
