"""A pod together with the JSON text or plain data that it was read from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from kscale.objects.api.core import Pod
from kscale.objects.api.meta import Condition
from kscale.objects.conditions import changed_at, find
from kscale.objects.decode import decode_plain, from_dict, from_json, from_stored_json, to_dict, with_changes
from kscale.objects.kinds import check_kind, with_namespace
from kscale.objects.pod_equivalence import Digester
from kscale.objects.pod_owners import controller_of, is_daemonset_pod
from kscale.objects.pod_resources import non_zero_occupancy
from kscale.objects.times import ZERO_TIME, moment_in, printed_time
from kscale.snapshot.columns import PHASES, READY

if TYPE_CHECKING:
    from kscale.snapshot.classes.interner import PodClass
    from kscale.snapshot.text.files import MappedFile

__all__ = [
    "PodFacts",
    "PodRecord",
    "PodSource",
    "pod_record",
    "read_moments",
    "replica_controller",
    "version_number",
    "without_managed_fields",
]


PodSource = Pod | msgspec.Raw | dict[str, Any]

_MANAGED: Final = b'"managedFields"'


class PodFacts(msgspec.Struct, frozen=True):
    """Fields in which a pod without stored JSON text differs from its exemplar (:meth:`PodRecord.lazy`).

    ``node``: name of its node. ``version``: its resource version. ``created``, ``started``, ``deleted``: nanoseconds
    since 1970, :data:`ZERO_TIME` if unset. ``ready``: status of the Ready condition, as an index into :data:`READY`.
    ``since``: last transition of the Ready condition, in nanoseconds.
    """

    node: str
    version: str
    created: int
    started: int
    deleted: int
    ready: int
    since: int


def replica_controller(pod: Pod) -> str | None:
    """Return the UID of the controller whose replicas are treated as equivalent.

    None without a controller, and for pods of DaemonSets.
    """
    owner = controller_of(pod.metadata)
    return None if owner is None or is_daemonset_pod(pod) else owner.uid


class PodRecord:
    """A pod as a decoded :class:`Pod` and, if it was read from a source, as JSON text or plain data (``raw``).

    ``raw`` also has the fields that :class:`Pod` does not model. Frequently read fields are available without decoding;
    ``pod`` is decoded on first access. ``key``: ``namespace/name``. ``uid``: the pod's UID or, without one, its key.
    ``priority``: ``spec.priority``, 0 if absent. ``controller``: see :func:`replica_controller`. ``pod_class``: class
    of a pending pod in the interner that read it; None if unknown.
    """

    __slots__ = (
        "_non_zero",
        "_pod",
        "controller",
        "exemplar",
        "facts",
        "key",
        "mapped",
        "pod_class",
        "priority",
        "raw",
        "uid",
    )

    _non_zero: tuple[int, int]

    def __init__(self, pod: Pod, raw: msgspec.Raw | dict[str, Any] | None = None) -> None:
        self._pod: Pod | None = pod
        self.raw = raw
        self.exemplar: Pod | None = None
        self.pod_class: PodClass | None = None
        self.mapped: MappedFile | None = None
        self.facts: PodFacts | None = None
        self.key: str = pod.key
        self.uid: str = pod.metadata.uid or self.key
        self.priority: int = pod.spec.priority or 0
        self.controller: str | None = replica_controller(pod)

    def copy_for(self, pod: Pod, key: str) -> PodRecord:
        """Return a record of another decoded pod with this record's controller, priority and class.

        The caller knows that these are equal. ``key``: the other pod's ``namespace/name``.
        """
        record = PodRecord.__new__(PodRecord)
        record._pod = pod  # noqa: SLF001  # a new object of this class
        record.raw = record.exemplar = record.mapped = record.facts = None
        record.key, record.uid = key, pod.metadata.uid or key
        record.priority, record.controller, record.pod_class = self.priority, self.controller, self.pod_class
        return record

    @classmethod
    def lazy(
        cls,
        key: str,
        uid: str,
        priority: int,
        controller: str | None,
        *,
        raw: msgspec.Raw | None = None,
        exemplar: Pod | None = None,
        pod_class: PodClass | None = None,
        mapped: MappedFile | None = None,
        facts: PodFacts | None = None,
    ) -> PodRecord:
        """Create a record of a pod that is not decoded yet.

        Parameters
        ----------
        key, uid : str
            ``namespace/name``, and the UID.
        priority : int
            Priority of the pod.
        controller : str or None
            UID of the controller whose replicas are treated as equivalent (:func:`replica_controller`).
        raw : msgspec.Raw, optional
            JSON text of the pod.
        exemplar : Pod, optional
            A pod that differs only in name, UID and ``facts``.
        pod_class : PodClass, optional
            Class of the pod, if it is known.
        mapped : MappedFile, optional
            The file that contains the text.
        facts : PodFacts, optional
            The fields in which the pod differs from ``exemplar``.
        """
        self = cls.__new__(cls)
        self._pod, self.raw, self.exemplar, self.pod_class = None, raw, exemplar, pod_class
        self.key, self.uid, self.priority, self.controller = key, uid or key, priority, controller
        self.mapped, self.facts = mapped, facts
        return self

    @property
    def non_zero(self) -> tuple[int, int]:
        """Return (CPU in milli-units, memory in bytes) that the scheduler assumes for the pod when it scores nodes.

        Computed on first access (:func:`~kscale.objects.pod_resources.non_zero_occupancy`).
        """
        try:
            return self._non_zero
        except AttributeError:
            self._non_zero = non_zero_occupancy(self.pod)
            return self._non_zero

    @property
    def pod(self) -> Pod:
        """Return the pod, decoded on first access.

        Raises InputError if a field cannot be decoded, or if the file that contains the JSON text was changed.
        """
        if self._pod is None:
            self._pod = self._decode()
        return self._pod

    def _decode(self) -> Pod:
        """Decode the pod from its exemplar or its text. Raises InputError."""
        if self.exemplar is not None:
            return self._from_exemplar(self.exemplar)
        assert isinstance(self.raw, msgspec.Raw)
        self._check_file()
        pod = from_stored_json(self.raw, Pod, object_path=f"Pod {self.key}")
        pod.kind, pod.api_version = pod.kind or "Pod", pod.api_version or "v1"
        return with_namespace(pod)

    def _from_exemplar(self, exemplar: Pod) -> Pod:
        """Build the pod from an exemplar, its name, UID and facts."""
        namespace, _, name = self.key.rpartition("/")
        uid = "" if self.uid == self.key else self.uid
        replace = msgspec.structs.replace
        facts = self.facts
        if facts is None:
            return replace(exemplar, metadata=replace(exemplar.metadata, name=name, namespace=namespace, uid=uid))
        owners = exemplar.metadata.owner_references
        if self.controller is not None:
            owners = [replace(each, uid=self.controller) if each.controller else each for each in owners]
        conditions = [each for each in exemplar.status.conditions if each.type != "Ready"]
        if facts.ready:
            since = _format_moment(facts.since)
            conditions.append(Condition(type="Ready", status=READY[facts.ready], last_transition_time=since))
        metadata = replace(
            exemplar.metadata, name=name, namespace=namespace, uid=uid, resource_version=facts.version,
            creation_timestamp=_format_moment(facts.created),
            deletion_timestamp=_format_moment(facts.deleted), owner_references=owners,
        )  # fmt: skip
        status = replace(exemplar.status, conditions=conditions, start_time=_format_moment(facts.started))
        return replace(exemplar, metadata=metadata, status=status, spec=replace(exemplar.spec, node_name=facts.node))

    def _check_file(self) -> None:
        """Raise InputError if the file that contains the text was changed."""
        if self.mapped is not None:
            self.mapped.check()

    def data(self) -> dict[str, Any]:
        """Return the pod as plain data: all fields of its JSON text or dict, or else those of :class:`Pod`.

        Raises InputError if the file that contains the JSON text was changed.
        """
        self._check_file()
        if isinstance(self.raw, msgspec.Raw):
            return decode_plain(self.raw)
        return self.raw if self.raw is not None else cast("dict[str, Any]", to_dict(self.pod))

    def with_pod(self, pod: Pod) -> PodRecord:
        """Return a record of ``pod``, a changed copy of this record's pod.

        If this record has API data (``raw``), the new record has a copy with the same changes. Returns this record if
        ``pod`` is the identical object.
        """
        if pod is self._pod:
            return self
        if self.raw is None:
            return PodRecord(pod)
        return PodRecord(pod, with_changes(self.data(), to_dict(self.pod), to_dict(pod)))

    @property
    def struct(self) -> Pod | None:
        """Return the pod if this record was created from a :class:`Pod` alone.

        None if it was read from JSON text or plain data, or has an exemplar (:meth:`lazy`).
        """
        return self._pod if self.raw is None and self.exemplar is None else None

    def digest(self, digester: Digester) -> bytes:
        """Return the digest of labels and spec that equivalence grouping compares, as ``digester`` computes it."""
        if self.raw is not None:
            self._check_file()
            return digester.digest(self.raw)
        return digester.digest(self.pod if self.exemplar is None or self.facts is not None else self.exemplar)

    def __reduce__(self) -> tuple[Any, ...]:
        self._check_file()
        if self.facts is not None:
            return _restored, (self.pod, None, None, None)
        raw = bytes(self.raw) if isinstance(self.raw, msgspec.Raw) else self.raw
        lazy = None if self._pod is not None else (self.key, self.uid, self.priority, self.controller)
        return _restored, (self._pod, raw, lazy, self.exemplar)


def _restored(
    pod: Pod | None, raw: Any, lazy: tuple[str, str, int, str | None] | None, exemplar: Pod | None
) -> PodRecord:
    """Rebuild a record when it is unpickled.

    ``lazy``: arguments of :meth:`PodRecord.lazy` if the pod was not decoded; otherwise None, and ``pod`` is set.
    """
    text = msgspec.Raw(raw) if isinstance(raw, bytes) else raw
    if lazy is None:
        assert pod is not None
        record = PodRecord(pod, text)
        record.exemplar = exemplar
        return record
    return PodRecord.lazy(*lazy, raw=text, exemplar=exemplar)


def _format_moment(moment: int) -> str | None:
    """Format a time in nanoseconds as RFC 3339; None for :data:`ZERO_TIME`."""
    return None if moment == ZERO_TIME else printed_time(moment)


def pod_record(source: PodSource | PodRecord) -> PodRecord:
    """Create a record from a :class:`Pod`, plain data or JSON text; a record is returned as it is.

    Raises InputError if the source cannot be decoded or is not a pod.
    """
    if isinstance(source, PodRecord):
        return source
    if type(source) is Pod and source.kind == "Pod" and source.api_version == "v1":  # the most frequent case
        return PodRecord(with_namespace(source))
    if isinstance(source, msgspec.Raw):
        pod = from_json(source, Pod)
        check_kind(pod, Pod)
        return PodRecord(with_namespace(pod), source)
    check_kind(source, Pod)
    if isinstance(source, Pod):
        return PodRecord(with_namespace(source))
    return PodRecord(with_namespace(from_dict(source, Pod)), source)


def without_managed_fields(raw: msgspec.Raw | dict[str, Any] | None) -> msgspec.Raw | dict[str, Any] | None:
    """Return a pod's JSON text or plain data without ``metadata.managedFields``; None for None.

    Text is always copied.
    """
    if isinstance(raw, dict):
        metadata = raw.get("metadata")
        if not isinstance(metadata, dict) or "managedFields" not in metadata:
            return raw
        return {**raw, "metadata": {name: value for name, value in metadata.items() if name != "managedFields"}}
    if raw is None or _MANAGED not in bytes(raw):
        return None if raw is None else raw.copy()
    data = msgspec.json.decode(raw)
    data.get("metadata", {}).pop("managedFields", None)
    return msgspec.Raw(msgspec.json.encode(data))


_PHASE: Final = {phase: number for number, phase in enumerate(PHASES)}
_READY: Final = {status: number for number, status in enumerate(READY) if number}
_OTHER: Final = READY.index("Unknown")
_MOST_DIGITS: Final = 18


def read_moments(pod: Pod) -> dict[str, int]:
    """Return the times, readiness, phase and resource version of a pod, by column name of a PodTable.

    Raises InputError if a time is malformed.
    """
    metadata, status = pod.metadata, pod.status
    ready = find(status.conditions, "Ready") if status.conditions else None
    return {
        "created": moment_in(pod, metadata.creation_timestamp, "metadata.creationTimestamp"),
        "started": moment_in(pod, status.start_time, "status.startTime"),
        "deleted": moment_in(pod, metadata.deletion_timestamp, "metadata.deletionTimestamp"),
        "since": ZERO_TIME if ready is None else changed_at(pod, ready),
        "ready": 0 if ready is None else _READY.get(ready.status, _OTHER),
        "phase": _PHASE.get(status.phase, 0),
        "version": version_number(metadata.resource_version),
    }


def version_number(text: str) -> int:
    """Return a resource version as a number.

    -1 for an empty text; -2 unless the text is a decimal number of at most 18 digits without leading zeros.
    """
    if not text:
        return -1
    printed = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and (text[0] != "0" or len(text) == 1)
    return int(text) if printed else -2
