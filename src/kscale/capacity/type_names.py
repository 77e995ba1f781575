"""Family and generation of a machine, as its instance type's name says them.

Sources: the labels of Karpenter's AWS provider (``karpenter.k8s.aws/instance-family`` etc.), Azure's naming conventions
(https://learn.microsoft.com/azure/virtual-machines/vm-naming-conventions) and Google's machine series.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from kscale.objects.api.core import Node
from kscale.objects.node_selectors import INSTANCE_TYPES

__all__ = ["Cloud", "TypeName", "generation_of", "instance_type_of", "parse_type_name"]


class Cloud(StrEnum):
    """A cloud, as its instance types' names tell it."""

    AWS = "aws"
    AZURE = "azure"
    GOOGLE = "gcp"


@dataclass(frozen=True, slots=True)
class TypeName:
    """The parts of an instance type's name.

    Attributes
    ----------
    cloud : Cloud or None
        None if the name is of no known form; the other parts are then empty.
    family : str
        What machines have in common that differ in size only: ``m5`` (AWS), ``Dsv5`` (Azure), ``n2-standard`` (Google).
    category : str
        Letters that the family begins with: ``m``, ``D``, ``n``.
    generation : int or None
        Number of the generation: 5 for ``m5``, ``Dsv5`` and 2 for ``n2``. Azure's names without a version are 1.
    size : str
        The rest of the name: ``2xlarge``, ``8`` or ``2``.
    """

    cloud: Cloud | None = None
    family: str = ""
    category: str = ""
    generation: int | None = None
    size: str = ""


_AWS = re.compile(
    r"(?P<family>(?P<category>[a-z]+)(?:-[0-9]+tb)?(?P<generation>[0-9]+)[a-z0-9-]*)\.(?P<size>[a-z0-9-]+)"
)
_AZURE = re.compile(
    r"(?:Standard|Basic)_(?P<category>[A-Z]+)(?P<size>[0-9]+(?:-[0-9]+)?)(?P<features>[a-z]*)"
    r"(?P<accelerator>(?:_(?!v[0-9]+(?:_|$))[A-Za-z0-9]+)*)(?:_v(?P<generation>[0-9]+))?(?:_[A-Za-z]\w*)?"
)
_GOOGLE = re.compile(
    r"(?P<family>(?P<category>[a-z]+)(?P<generation>[0-9]+)[a-z]*-[a-z]+)(?:-(?P<size>[0-9][a-z0-9-]*))?(?:-lssd|-metal)?"
)


@cache
def parse_type_name(name: str) -> TypeName:
    """Split the name of an instance type into family, generation and size.

    Parameters
    ----------
    name : str
        Such as ``m5.2xlarge``, ``Standard_D8s_v5`` or ``n2-standard-8``.

    Returns
    -------
    TypeName
        Without parts if the name has none of the three clouds' forms.
    """
    if match := _AWS.fullmatch(name):
        return TypeName(Cloud.AWS, match["family"], match["category"], int(match["generation"]), match["size"])
    if match := _AZURE.fullmatch(name):
        version = match["generation"]
        features = match["features"] + match["accelerator"]
        suffix = "" if version is None else f"_v{version}" if match["accelerator"] else f"v{version}"
        family = match["category"] + features + suffix
        return TypeName(Cloud.AZURE, family, match["category"], int(version or 1), match["size"])
    if match := _GOOGLE.fullmatch(name):
        return TypeName(Cloud.GOOGLE, match["family"], match["category"], int(match["generation"]), match["size"] or "")
    return TypeName()


def instance_type_of(node: Node) -> str:
    """Return the instance type in a node's labels; empty without one."""
    labels = node.metadata.labels or {}
    return next((labels[key] for key in INSTANCE_TYPES if labels.get(key)), "")


def generation_of(node: Node) -> int | None:
    """Return the generation of a node's machine by the name of its instance type; None if it is unknown."""
    return parse_type_name(instance_type_of(node)).generation
