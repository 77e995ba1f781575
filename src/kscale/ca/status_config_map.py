"""Showing the status of a loop in the cluster (``clusterstate/utils/status.go``)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from kscale.ca.cluster_state import ClusterAutoscalerStatus
from kscale.ca.options import AutoscalingOptions
from kscale.ca.yaml_text import yaml_scalar
from kscale.effects import SECOND, Create, Get, Moment, Patch, Progress, StepsOf
from kscale.objects.core import ConfigMap
from kscale.objects.meta import ObjectMeta

__all__ = ["LAST_UPDATED", "WritingStatus", "status_text", "time_text", "write_status"]

LAST_UPDATED: Final = "cluster-autoscaler.kubernetes.io/last-updated"
"""The annotation that says when the status was written."""

WritingStatus = Get | Create | Patch
"""What writing the status asks for."""


def write_status(
    p: Progress, text: str, options: AutoscalingOptions, now: Moment
) -> StepsOf[WritingStatus, str | None]:
    """Puts the text of a status into its ConfigMap, which is made where there is none. What went wrong, if anything
    did: upstream only logs it."""
    namespace, name = options.namespace, options.status_config_map_name
    metadata = {"annotations": {LAST_UPDATED: time_text(now)}}
    data = {"status": text}
    found = yield from p.act(Get(kind="ConfigMap", namespace=namespace, name=name))
    if found.error is None:
        changes = {"metadata": metadata, "data": data}
        error = (yield from p.act(Patch(kind="ConfigMap", namespace=namespace, name=name, patch=changes))).error
    elif found.error.is_not_found:
        made = ConfigMap(
            api_version="v1",
            kind="ConfigMap",
            metadata=ObjectMeta(namespace=namespace, name=name, annotations=metadata["annotations"]),
            data=data,
        )
        error = (yield from p.act(Create(made))).error
    else:
        return f"Failed to retrieve status configmap for update: {found.error.message}"
    return None if error is None else f"Failed to write status configmap: {error.message}"


def time_text(now: Moment) -> str:
    """As Go prints a time in UTC, with as many digits of the second as it takes."""
    whole, rest = divmod(now, SECOND)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"


def status_text(status: ClusterAutoscalerStatus, now: Moment) -> str:
    """The document as YAML, keys sorted, as upstream writes it."""
    lines: list[str] = []
    _write({"time": time_text(now), **msgspec.to_builtins(status)}, "", lines)
    return "".join(lines)


def _write(value: dict[str, Any], indent: str, lines: list[str]) -> None:
    """Adds the lines of a mapping of mappings, lists of mappings and scalars."""
    for key in sorted(value):
        member = value[key]
        if isinstance(member, dict) and member:
            lines.append(f"{indent}{key}:\n")
            _write(member, indent + "  ", lines)
        elif isinstance(member, list) and member:
            lines.append(f"{indent}{key}:\n")
            for item in member:
                first = len(lines)
                _write(item, indent + "  ", lines)
                lines[first] = f"{indent}- {lines[first].lstrip(' ')}"
        else:
            shown = "{}" if member == {} else "[]" if member == [] else yaml_scalar(member, indent)
            lines.append(f"{indent}{key}: {shown}\n")
