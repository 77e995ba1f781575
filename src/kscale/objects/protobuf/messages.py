"""Messages of the protobuf runtime (``google.protobuf``, extra ``[grpc]``), made from tables of fields.

A map is declared as what it is on the wire, a list of entries: so entries can be written in the order of their keys, as
Go writes them (the runtime's own order of keys is another one where one key begins with another).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from kscale.libraries import library
from kscale.objects.protobuf.tables import LIST, MAP, OWN_MEMBERS, Message, message, names

__all__ = ["ENTRY_KEY", "ENTRY_VALUE", "INLINE", "kubernetes_message", "message_types"]

INLINE: Final = "inline"
"""The field of a message whose members stand among their parent's in JSON."""
ENTRY_KEY, ENTRY_VALUE = "key", "value"

_SCALARS: Final = {"double": 1, "int64": 3, "int32": 5, "bool": 8, "text": 9, "bytes": 12}
_MESSAGE: Final = 11
_OPTIONAL, _REPEATED = 1, 3
_KUBERNETES: Final = "k8s.io.api.core.v1"
_HELPERS: Final = """
Quantity: 1 string text?
Time: 1 seconds int64?, 2 nanos int32?
IntOrString: 1 type int64?, 2 intVal int32?, 3 strVal text?
"""


def message_types(package: str, messages: Iterable[Message]) -> dict[str, Any]:
    """Classes by name for messages as tables describe them (:mod:`kscale.objects.protobuf.tables`); the types
    ``bytes`` and ``double`` are known as well. Every field knows whether it was set. Raises MissingExtraError without
    the runtime.
    """
    descriptor_pb2, descriptor_pool, message_factory = (
        library(f"google.protobuf.{name}", "the protobuf form of objects")
        for name in ("descriptor_pb2", "descriptor_pool", "message_factory")
    )
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")

    def add(to: Any, number: int, name: str, type_: str, label: int) -> None:
        field = to.field.add(number=number, name=name, label=label, type=_SCALARS.get(type_, _MESSAGE))
        if field.type == _MESSAGE:
            field.type_name = f".{package}.{type_}"

    found = []
    for of in messages:
        found.append(of.name)
        made = file.message_type.add(name=of.name)
        for field in of.fields:
            name = INLINE if field.member == OWN_MEMBERS else field.member
            if field.form == MAP:
                entry = made.nested_type.add(name=f"{name}_entry")
                add(entry, 1, ENTRY_KEY, "text", _OPTIONAL)
                add(entry, 2, ENTRY_VALUE, field.type, _OPTIONAL)
                add(made, field.number, name, f"{of.name}.{name}_entry", _REPEATED)
            else:
                add(made, field.number, name, field.type, _REPEATED if field.form == LIST else _OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in found}


@cache
def _kubernetes() -> dict[str, Any]:
    from kscale.objects.protobuf.tables import parse

    known = [of for name in names() if (of := message(name)) is not None]
    return message_types(_KUBERNETES, [*parse(_HELPERS).values(), *known])


def kubernetes_message(name: str) -> Any:
    """The class of a message of the API, such as ``Pod``. Raises KeyError for a name that there is none of."""
    return _kubernetes()[name]
