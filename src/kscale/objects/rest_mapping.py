"""Kinds and the resources they are served as (upstream: ``k8s.io/client-go/restmapper``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["BUILT_IN", "RESTMapper", "RESTMappingError", "parse_group_version"]

BUILT_IN: Final[Mapping[tuple[str, str], str]] = {
    ("", "Pod"): "pods",
    ("", "Node"): "nodes",
    ("", "Namespace"): "namespaces",
    ("", "Service"): "services",
    ("", "ReplicationController"): "replicationcontrollers",
    ("apps", "Deployment"): "deployments",
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "StatefulSet"): "statefulsets",
    ("apps", "DaemonSet"): "daemonsets",
    ("batch", "Job"): "jobs",
    ("batch", "CronJob"): "cronjobs",
}
"""(group, kind) -> resource, of the kinds that a target may name on every server."""


class RESTMappingError(ValueError):
    """A kind that is not served, or a version that cannot be read; with upstream's text."""


def parse_group_version(api_version: str) -> tuple[str, str]:
    """(group, version) of an ``apiVersion``; raises :class:`RESTMappingError`."""
    if not api_version or api_version == "/":
        return "", ""
    parts = api_version.split("/")
    if len(parts) > 2:
        raise RESTMappingError(f"unexpected GroupVersion string: {api_version}")
    return (parts[0], parts[1]) if len(parts) == 2 else ("", parts[0])


class RESTMapper:
    """Finds the resources of a kind in any version; kinds in lower case are known too, as discovery lists them."""

    __slots__ = ("_resources",)

    def __init__(self, resources: Mapping[tuple[str, str], str | Sequence[str]] = BUILT_IN) -> None:
        self._resources: dict[tuple[str, str], tuple[str, ...]] = {}
        for (group, kind), plural in resources.items():
            names = (plural,) if isinstance(plural, str) else tuple(plural)
            qualified = tuple(f"{name}.{group}" if group else name for name in names)
            self._resources[group, kind] = qualified
            self._resources.setdefault((group, kind.lower()), qualified)

    def resources(self, group: str, kind: str) -> tuple[str, ...]:
        """Group-resources (``deployments.apps``) of a kind; raises :class:`RESTMappingError`."""
        try:
            return self._resources[group, kind]
        except KeyError:
            raise RESTMappingError(f'no matches for kind "{kind}" in group "{group}"') from None
