"""Every modelled field of a pod's spec: is a written zero as good as an absent field, or not?

The structs say it: a field that can be None is a pointer in Go, where a zero counts; one that cannot is a plain value.
Lists and maps are alike when they are nil and when they are empty.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from kscale.objects.api.core import PodSpec
from kscale.objects.api.meta import ResourceList
from kscale.objects.pod_equivalence import digest
from rows import each_row

Wrap = Callable[[dict[str, Any]], dict[str, Any]]
ZEROS = {str: "", int: 0, bool: False}
NOT_COMPARED = {
    *("hostname", "containers[].env", "initContainers[].env", "volumes[].projected"),
    "volumes[].ephemeral.volumeClaimTemplate.metadata.generation",  # plain in Go; here None says that it is not given
}


def without_none(hint: Any) -> tuple[Any, bool]:
    """(the type, whether None is allowed too)."""
    if get_origin(hint) in (Union, types.UnionType):
        (inner,) = [part for part in get_args(hint) if part is not types.NoneType]
        return without_range(inner), True
    return without_range(hint), False


def without_range(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


Field = tuple[str, dict[str, Any], dict[str, Any], bool]


def fields(type_: type, path: str, wrap: Wrap, visited: tuple[type, ...]) -> Iterator[Field]:
    """(path, spec without the field, spec with its zero, alike?) of every field below a struct."""
    for field in msgspec.structs.fields(type_):
        name = f"{path}{field.encode_name}"
        if name in NOT_COMPARED:
            continue
        hint, optional = without_none(field.type)

        def put(value: Any, key: str = field.encode_name) -> dict[str, Any]:
            return wrap({key: value})

        if hint in ZEROS:
            yield name, wrap({}), put(ZEROS[hint]), not optional
        elif is_struct(hint):
            yield name, wrap({}), put({}), not optional
            if hint not in visited:
                yield from fields(hint, f"{name}.", put, (*visited, hint))
        elif get_origin(hint) is list:
            yield name, wrap({}), put([]), True
            (item,) = get_args(hint)
            if is_struct(item) and item not in visited:
                yield from fields(item, f"{name}[].", lambda value, put=put: put([value]), (*visited, item))
        elif hint in (dict[str, str], ResourceList):
            yield name, wrap({}), put({}), True
        else:
            assert hint == dict[str, Any], name
            yield name, wrap({}), put({}), False


FIELDS = list(fields(PodSpec, "", lambda spec: spec, (PodSpec,)))


@each_row(FIELDS, lambda field: field[0])
def test_zero_of_a_field(field: Field) -> None:
    _, without, with_zero, alike = field
    assert (digest({"spec": without}) == digest({"spec": with_zero})) is alike
