"""The openb traces (Alibaba's GPU clusters, 2023): their nodes and pods, read and as objects of Kubernetes.
kscale's own.

Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent",
USENIX ATC 2023; hkust-adsl/kubernetes-scheduler-simulator, ``data/csv``.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec

from kscale.capacity.catalogue.table import rows_of
from kscale.errors import InputError, Problem
from kscale.files import read_file

__all__ = ["GPU_MILLI", "GPU_MODEL", "OpenbNode", "OpenbPod", "openb_rows", "read_openb_nodes", "read_openb_pods"]

GPU_MILLI: Final = "alibabacloud.com/gpu-milli"
"""The resource of GPUs, in thousandths of one."""
GPU_MODEL: Final = "alibabacloud.com/gpu-card-model"
"""The label that tells a node's model of GPU."""

_WHOLE: Final = 1000
_HOSTNAME: Final = "kubernetes.io/hostname"
_Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
_Amount = Annotated[int, msgspec.Meta(ge=0)]
_T = TypeVar("_T", "OpenbNode", "OpenbPod")


class OpenbNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node: ``sn`` is its name. ``cpu_milli``, ``memory_mib``, ``gpu``: what it has; ``model``: of its GPUs, empty if
    it has none."""

    sn: _Name
    cpu_milli: _Amount
    memory_mib: _Amount
    gpu: _Amount
    model: str = ""

    def manifest(self) -> dict[str, Any]:
        """The node, with room for 110 pods. GPUs are one amount: which of them a pod has a part of is not told."""
        labels = {_HOSTNAME: self.sn} | ({GPU_MODEL: self.model} if self.model else {})
        amounts = {"cpu": f"{self.cpu_milli}m", "memory": f"{self.memory_mib}Mi", "pods": "110"}
        if self.gpu:
            amounts[GPU_MILLI] = str(self.gpu * _WHOLE)
        status = {"capacity": amounts, "allocatable": amounts}
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.sn, "labels": labels}, "status": status}


class OpenbPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod. ``cpu_milli``, ``memory_mib``: what it asks for. ``num_gpu``: so many GPUs, ``gpu_milli``: thousandths of
    each; ``gpu_spec``: the models that will do, separated by ``|``, empty = all. Times (``creation_time``,
    ``deletion_time``, ``scheduled_time``) are seconds of the trace; None: the file does not tell. ``qos``,
    ``pod_phase``: as the trace has them."""

    name: _Name
    cpu_milli: _Amount
    memory_mib: _Amount
    num_gpu: _Amount
    gpu_milli: Annotated[int, msgspec.Meta(ge=0, le=_WHOLE)]
    gpu_spec: str = ""
    qos: str = ""
    pod_phase: str = ""
    creation_time: _Amount | None = None
    deletion_time: _Amount | None = None
    scheduled_time: _Amount | None = None

    def __post_init__(self) -> None:
        if self.num_gpu and not self.gpu_milli:
            raise ValueError(f"num_gpu is {self.num_gpu}, of which gpu_milli is 0")

    @property
    def models(self) -> tuple[str, ...]:
        """The models of GPU that will do, each once; none: all."""
        return tuple(sorted({each for each in self.gpu_spec.split("|") if each}))

    def manifest(self, namespace: str = "openb") -> dict[str, Any]:
        """The pod as one that waits. What it asks of GPUs is one amount, which a node may have in pieces."""
        requests = {"cpu": f"{self.cpu_milli}m", "memory": f"{self.memory_mib}Mi"}
        if self.num_gpu:
            requests[GPU_MILLI] = str(self.num_gpu * self.gpu_milli)
        resources = {"requests": requests, "limits": requests}
        spec: dict[str, Any] = {"containers": [{"name": "main", "image": "openb", "resources": resources}]}
        if self.models:
            there = {"key": GPU_MODEL, "operator": "In", "values": list(self.models)}
            required = {"nodeSelectorTerms": [{"matchExpressions": [there]}]}
            spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        metadata = {"name": self.name, "namespace": namespace, "uid": f"{namespace}/{self.name}"}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def read_openb_nodes(path: str | os.PathLike[str]) -> list[OpenbNode]:
    """A list of nodes (``openb_node_list_*.csv``, may be gzip). Raises InputError with all problems, by row and
    column."""
    return list(openb_rows(path, OpenbNode).values())


def read_openb_pods(path: str | os.PathLike[str]) -> list[OpenbPod]:
    """A list of pods (``openb_pod_list_*.csv``, may be gzip). Raises InputError with all problems, by row and
    column."""
    return list(openb_rows(path, OpenbPod).values())


def openb_rows(path: str | os.PathLike[str], kind: type[_T]) -> dict[str, _T]:
    """A list of nodes or pods by what problems call their rows. Raises InputError with all problems."""
    source, fields = os.fspath(path), msgspec.structs.fields(kind)
    found: dict[str, _T] = {}
    problems: list[Problem] = []
    name = fields[0].name
    names: set[str] = set()
    for row, cells in rows_of(_text(Path(path)), source, [each.name for each in fields if each.required]):
        if None in cells or None in cells.values():
            text = f"{'more' if None in cells else 'fewer'} cells than the header has columns"
            problems.append(Problem(text, source=source, object=row))
            continue
        try:
            each = msgspec.convert(_told(cells.items()), kind, strict=False)
        except msgspec.ValidationError as error:
            text, _, at = str(error).partition(" - at `$.")
            problems.append(Problem(text, source=source, object=row, field=at.rstrip("`")))
            continue
        if getattr(each, name) in names:
            problems.append(Problem("another row has this name", source=source, object=row, field=name))
            continue
        names.add(getattr(each, name))
        found[row] = each
    if problems:
        raise InputError(problems, total=len(found) + len(problems))
    return found


def _told(cells: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Cells with something in them."""
    return {column: text.strip() for column, text in cells if text.strip()}


def _text(path: Path) -> str:
    try:
        raw = read_file(path)
        return (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(Problem(f"not readable as CSV: {error}", source=str(path))) from None
