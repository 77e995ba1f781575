"""State that the controller carries from one reconcile of an HPA to the next.

Upstream: the maps of ``HorizontalController`` and ``pkg/controller/util/consistency``. A decision takes a state and
returns the next one. JSON stores times as nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from kscale.errors import StateError
from kscale.objects.decode import encoding_error
from kscale.objects.selectors import SelectorError, parse_selector
from kscale.records import API_VERSION

__all__ = [
    "ControllerState",
    "HPAState",
    "Recommendation",
    "ScaleEvent",
    "WrittenVersion",
    "stable_state",
]


_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_ReplicaChange = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Recommendation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A past proposal, before stabilization and limits.

    Attributes
    ----------
    replicas : _Int32
        Proposed number of replicas.
    time : _Int64
        Time of the proposal, in nanoseconds since 1970.
    """

    replicas: _Int32
    time: _Int64


class ScaleEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A past change of the replicas.

    Attributes
    ----------
    change : _ReplicaChange
        Absolute value of the change.
    time : _Int64
        Time of the change, in nanoseconds since 1970.
    outdated : bool
        Whether the event is older than the longest period of the policies. Its slot may be reused.
    """

    change: _ReplicaChange
    time: _Int64
    outdated: bool = False


class WrittenVersion(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The newest version of an object that this controller has written.

    Attributes
    ----------
    uid : str
        UID of the object.
    resource_version : str
        Resource version that the API server returned.
    """

    uid: str
    resource_version: str


class HPAState(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, gc=False):
    """State of one HPA between two reconciles. Histories are in slot order.

    Attributes
    ----------
    recommendations : tuple[Recommendation, ...] or None
        Past proposals. None: the HPA was never reconciled, so the first reconcile records the current replicas.
    scale_up_events : tuple[ScaleEvent, ...]
        Past increases of the replicas (upstream's map ``scaleUpEvents``). One is added only while the HPA has
        ``behavior``.
    scale_down_events : tuple[ScaleEvent, ...]
        Past decreases of the replicas (upstream's map ``scaleDownEvents``). One is added only while the HPA has
        ``behavior``.
    selector : str or None
        Selector of the target when pods were last read. None: it matches no pod.
    registered : bool
        Whether the HPA exists. False after the object was deleted.
    written : WrittenVersion or None
        The newest version that this controller wrote, until the watch delivers one that is as new (gate
        ``StaleControllerConsistencyHPA``). None: there is none to wait for.
    """

    recommendations: tuple[Recommendation, ...] | None = None
    scale_up_events: tuple[ScaleEvent, ...] = ()
    scale_down_events: tuple[ScaleEvent, ...] = ()
    selector: str | None = None
    registered: bool = True
    written: WrittenVersion | None = None

    def later(self, by: int) -> HPAState:
        """Return the state with the times of all histories shifted by ``by`` nanoseconds."""
        replace = msgspec.structs.replace
        proposals = self.recommendations
        return replace(
            self,
            recommendations=proposals and tuple(replace(each, time=each.time + by) for each in proposals),
            scale_up_events=tuple(replace(each, time=each.time + by) for each in self.scale_up_events),
            scale_down_events=tuple(replace(each, time=each.time + by) for each in self.scale_down_events),
        )

    def without_histories(self) -> HPAState:
        """Return a copy without recommendations and scale events, which are stored as columns."""
        return HPAState(selector=self.selector, registered=self.registered, written=self.written)


class ControllerState(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """States of HPAs between two reconciles.

    Attributes
    ----------
    hpas : dict of str to HPAState
        State of each HPA, by ``namespace/name``.
    """

    hpas: Mapping[str, HPAState] = msgspec.field(default_factory=dict)

    def get(self, key: str) -> HPAState:
        """Return the state of the HPA ``key`` (``namespace/name``); a new state if it is unknown."""
        return self.hpas.get(key) or HPAState()

    def replace(self, key: str, state: HPAState | None) -> ControllerState:
        """Return the states with that of the HPA ``key`` replaced, or removed if ``state`` is None."""
        hpas = {**self.hpas}
        if state is None:
            hpas.pop(key, None)
        else:
            hpas[key] = state
        return ControllerState(hpas=hpas)

    def to_json(self) -> bytes:
        """Encode the states as JSON that :meth:`from_json` reads."""
        return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "HPAControllerState", "hpas": dict(self.hpas)})

    @classmethod
    def from_json(cls, data: bytes | str) -> ControllerState:
        """Decode what :meth:`to_json` wrote (``data``), or the next state in an HPAReport.

        Raises ``StateError`` with the path of the error for anything else, including an unknown field, a number out of
        range and an invalid selector.
        """
        where = ""
        try:
            raw = msgspec.json.decode(data, type=dict[str, Any])
            if (raw.get("apiVersion"), raw.get("kind")) == (API_VERSION, "HPAReport"):
                document = raw.get("state")
            elif (raw.get("apiVersion"), raw.get("kind")) == (API_VERSION, "HPAControllerState"):
                document = {name: each for name, each in raw.items() if name not in ("apiVersion", "kind")}
            else:
                raise StateError("neither an HPAControllerState nor an HPAReport of kscale.dev/v1alpha1")
            hpas = {}
            for where, each in msgspec.convert(document, _StateDocument).hpas.items():
                hpas[where] = msgspec.convert(each, HPAState)
                _check_state(where, hpas[where])
        except RecursionError:
            raise StateError("not an HPA state: nested too deeply") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problem = encoding_error(error, data) or error
            raise StateError(f"not an HPA state: {f'hpas[{where!r}]: ' if where else ''}{problem}") from None
        return cls(hpas=hpas)


class _StateDocument(msgspec.Struct, forbid_unknown_fields=True):
    hpas: dict[str, Any] = {}


def _check_state(key: str, state: HPAState) -> None:
    """Validate the key and the selector, which decoding does not check. Raises StateError."""
    _, slash, name = key.partition("/")
    if not slash or not name or "/" in name:
        raise StateError(f"not an HPA state: hpas[{key!r}]: a key is namespace/name")
    if state.selector is not None:
        try:
            parse_selector(state.selector)
        except SelectorError as error:
            raise StateError(f"not an HPA state: hpas[{key!r}].selector: {error}") from None


def stable_state() -> HPAState:
    """Return a state without past recommendations and scale events, so that no window restrains a change.

    Unlike with a new :class:`HPAState`, the first reconcile does not record the current replicas as a recommendation.
    """
    return HPAState(recommendations=())
