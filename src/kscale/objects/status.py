"""What an API server answers instead of objects (upstream: ``metav1.Status``)."""

from __future__ import annotations

from kscale.objects.base import ApiStruct, Int32

__all__ = ["Status", "StatusCause", "StatusDetails"]


class StatusCause(ApiStruct):
    """One reason of several for a refusal."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(ApiStruct):
    """About which object it is, why, and when to try again."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: list[StatusCause] = []
    retry_after_seconds: Int32 = 0


class Status(ApiStruct):
    """A refusal: ``status`` is ``Failure``, ``code`` the HTTP status, ``reason`` a word for programs (``Expired``)."""

    api_version: str = ""
    kind: str = ""
    status: str = ""
    message: str = ""
    reason: str = ""
    code: Int32 = 0
    details: StatusDetails | None = None
