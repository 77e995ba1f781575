"""Names that the API server makes (``generateName``), made so that the same input has the same names."""

from __future__ import annotations

from collections import Counter
from typing import Final, TypeVar

from msgspec.structs import replace

from kscale.objects.meta import KubeObject

__all__ = ["next_name", "pods_made_for", "with_name"]

_Object = TypeVar("_Object", bound=KubeObject)
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Those of upstream's random suffixes."""
_TWO: Final = [low + high for high in _LETTERS for low in _LETTERS]
_THREE: Final = [low + more for more in _TWO for low in _LETTERS]  # five characters, the lowest digit first


def pods_made_for(owner: KubeObject) -> str:
    """Under what :func:`with_name` counts the pods that a controller makes for an object."""
    return _start("Pod", owner.metadata.namespace, f"{owner.metadata.name}-")


def _start(kind: str, namespace: str, begins: str) -> str:
    return f"{kind}/{namespace}/{begins}"


def with_name(obj: _Object, made: Counter[str]) -> _Object:
    """The object itself, or where it only says how its name begins, a copy with a name.

    Five characters are added as upstream adds random ones; here they follow from how many objects of the kind began so
    before, which ``made`` counts.
    """
    metadata = obj.metadata
    if metadata.name or not metadata.generate_name:
        return obj
    name = next_name(obj.kind, metadata.namespace, metadata.generate_name, made)
    return replace(obj, metadata=replace(metadata, name=name))


def next_name(kind: str, namespace: str, begins: str, made: Counter[str]) -> str:
    """The name of the next object that only says how its name begins, as :func:`with_name` makes it."""
    start = _start(kind, namespace, begins)
    from hashlib import blake2b  # loads OpenSSL: not for an answer that needs none

    number = int.from_bytes(blake2b(f"{start}/{made[start]}".encode(), digest_size=8).digest(), "big")
    made[start] += 1
    number, first = divmod(number, len(_THREE))
    return begins + _THREE[first] + _TWO[number % len(_TWO)]
