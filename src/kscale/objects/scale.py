"""The ``/scale`` subresource of an object, in all versions that servers use.

Upstream: the scale subresources of the built-in kinds, ``customresource`` for definitions with JSON paths, and
``k8s.io/client-go/scale`` with its scheme.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kscale.errors import InputError, Problem
from kscale.objects.api.apps import Deployment, StatefulSet
from kscale.objects.api.autoscaling import Scale, ScaleSpec, ScaleStatus
from kscale.objects.api.meta import ApiStruct, KubeObject, LabelSelector, LabelSelectorRequirement, ObjectMeta
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.names import go_quote
from kscale.objects.selectors import Selector, SelectorError, compile_selector, from_label_map, parse_selector

__all__ = [
    "SCALE_VERSIONS",
    "WELL_KNOWN_PATHS",
    "CustomResourceDefinition",
    "ScaleError",
    "ScalePaths",
    "definition_of",
    "definition_parts",
    "has_built_in_scale",
    "read_scale",
    "scale_of",
    "scale_of_workload",
    "scale_path_problems",
    "scale_paths",
    "with_replicas",
    "written_scale",
]


_WORKLOADS: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet"})


class ScaleError(ValueError):
    """An error of the ``/scale`` endpoint, with the API server's text. ``conflict`` is set if the object has
    changed.
    """

    def __init__(self, message: str, *, conflict: bool = False) -> None:
        super().__init__(message)
        self.conflict = conflict


class ScalePaths(msgspec.Struct, frozen=True):
    """JSON paths of a custom resource's scale (``.spec.replicas``). Without a selector path the selector is empty."""

    spec_replicas: str = ".spec.replicas"
    status_replicas: str = ".status.replicas"
    label_selector: str = ".status.selector"


_DEPLOYMENT_CONFIG: Final = ("apps.openshift.io", "DeploymentConfig")
_OPENKRUISE: Final = ScalePaths(label_selector=".status.labelSelector")
_ECK: Final = ScalePaths(".spec.count", ".status.count", ".status.selector")
WELL_KNOWN_PATHS: Final[Mapping[tuple[str, str], ScalePaths]] = {
    ("argoproj.io", "Rollout"): ScalePaths(status_replicas=".status.HPAReplicas"),
    ("apps.kruise.io", "CloneSet"): _OPENKRUISE,
    ("apps.kruise.io", "StatefulSet"): _OPENKRUISE,
    ("apps.kruise.io", "UnitedDeployment"): _OPENKRUISE,
    ("kibana.k8s.elastic.co", "Kibana"): _ECK,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): ScalePaths(label_selector=".status.hpaPodSelector"),
}
"""Where widely used kinds have their scale, by (group, kind): what their CustomResourceDefinitions say."""


class _Paths(ApiStruct):
    spec_replicas_path: str = ""
    status_replicas_path: str = ""
    label_selector_path: str | None = None


class _Subresources(ApiStruct):
    scale: _Paths | None = None


class _Version(ApiStruct):
    name: str = ""
    subresources: _Subresources | None = None


class _Names(ApiStruct):
    kind: str = ""
    plural: str = ""


class _DefinitionSpec(ApiStruct):
    group: str = ""
    names: _Names | None = None
    versions: list[_Version] | None = None


class CustomResourceDefinition(KubeObject):
    """A custom kind and its scales (``apiextensions.k8s.io``)."""

    spec: _DefinitionSpec | None = None


def definition_of(definition: Mapping[str, Any]) -> tuple[str, str, str, dict[str, ScalePaths]]:
    """Return (group, kind, plural, :func:`scale_paths`) of a CustomResourceDefinition (plain data).

    Raises InputError if the definition has another structure.
    """
    return definition_parts(from_dict(definition, CustomResourceDefinition))


def definition_parts(definition: CustomResourceDefinition) -> tuple[str, str, str, dict[str, ScalePaths]]:
    """Return (group, kind, plural, :func:`scale_paths`) of a decoded definition."""
    spec = definition.spec or _DefinitionSpec()
    names = spec.names or _Names()
    return spec.group, names.kind, names.plural, _get_paths(spec)


def scale_paths(definition: Mapping[str, Any]) -> dict[str, ScalePaths]:
    """Return the paths of the scale by version, for the versions that have a scale.

    ``definition``: a CustomResourceDefinition as plain data. Raises InputError if it has another structure.
    """
    return definition_of(definition)[3]


def _get_paths(spec: _DefinitionSpec) -> dict[str, ScalePaths]:
    """Return the paths of the scale by version, for the versions that have a scale."""
    out = {}
    for version in spec.versions or ():
        scale = None if version.subresources is None else version.subresources.scale
        if scale is not None:
            selector = scale.label_selector_path or ""
            out[version.name] = ScalePaths(scale.spec_replicas_path, scale.status_replicas_path, selector)
    return out


def scale_path_problems(definition: Mapping[str, Any]) -> list[Problem]:
    """Check the paths of a CustomResourceDefinition's scales as the API server does; return the problems.

    Each problem names its field. Whether the schema has the path is not checked, as upstream
    (``ValidateCustomResourceDefinitionSubresources``). Raises InputError if the definition has another structure.
    """
    problems = []
    for i, version in enumerate(
        (from_dict(definition, CustomResourceDefinition).spec or _DefinitionSpec()).versions or ()
    ):
        scale = None if version.subresources is None else version.subresources.scale
        if scale is None:
            continue
        for name, path, roots in (
            ("specReplicasPath", scale.spec_replicas_path, (".spec",)),
            ("statusReplicasPath", scale.status_replicas_path, (".status",)),
            ("labelSelectorPath", scale.label_selector_path or "", (".spec", ".status")),
        ):
            text = _find_path_problem(path, roots, required=name != "labelSelectorPath")
            if text:
                problems.append(Problem(text, field=f"spec.versions[{i}].subresources.scale.{name}"))
    return problems


def _find_path_problem(path: str, roots: tuple[str, ...], *, required: bool) -> str:
    """Return the API server's error for a path that is not below one of ``roots``; empty if the path is valid.

    An empty path is an error only if it is ``required``.
    """
    if not path:
        return "Required value" if required else ""
    if not path.startswith("."):
        return f'Invalid value: "{path}": must be a simple json path starting with .'
    if not path.startswith(tuple(f"{root}." for root in roots)):
        where = f"either {' or '.join(roots)}" if len(roots) > 1 else roots[0]
        return f'Invalid value: "{path}": should be a json path under {where}'
    return ""


def has_built_in_scale(group: str, kind: str) -> bool:
    """Return whether an API server has the scale of a kind without a CustomResourceDefinition.

    These are kinds of Kubernetes and OpenShift.
    """
    if kind == "ReplicationController":
        return not group
    return (group in ("apps", "extensions") and kind in _WORKLOADS) or (group, kind) == _DEPLOYMENT_CONFIG


def scale_of(data: Mapping[str, Any], paths: ScalePaths | None = None) -> Scale:
    """Return the scale of an object (plain data).

    ``paths`` is None for a built-in kind, or a custom one with the usual paths. Raises :class:`ScaleError` if the API
    server would respond with an error.
    """
    api_version, kind = str(data.get("apiVersion", "")), str(data.get("kind", ""))
    if paths is None and (api_version.startswith(("apps/", "extensions/")) or not api_version) and kind in _WORKLOADS:
        return _read_workload_scale(data)
    if paths is None and kind == "ReplicationController":
        return _build_scale(data, *_read_counts(data), str(from_label_map(_get_label_map(data))))
    if paths is None and (api_version.partition("/")[0], kind) == _DEPLOYMENT_CONFIG:
        return _read_deployment_config_scale(data)
    paths = paths or ScalePaths()
    replicas = _get_path(data, paths.spec_replicas)
    if replicas is None:
        raise ScaleError(f'the spec replicas field "{paths.spec_replicas}" does not exist')
    selector = _get_path(data, paths.label_selector) if paths.label_selector else None
    return _build_scale(data, replicas, _get_path(data, paths.status_replicas) or 0, selector or "")


def _build_scale_metadata(of: ObjectMeta) -> ObjectMeta:
    """Return the metadata of an object's scale: the name, namespace, UID, version and creation time of the object."""
    names = ("name", "namespace", "uid", "resource_version", "creation_timestamp")
    return ObjectMeta(**{name: getattr(of, name) for name in names})


def scale_of_workload(workload: Deployment | StatefulSet) -> Scale:
    """Return the scale of a workload. Replicas that its spec does not set count as 1.

    Raises :class:`ScaleError` if the selector is malformed.
    """
    spec = workload.spec
    try:
        selector = "" if spec.selector is None else str(compile_selector(spec.selector))
    except SelectorError as error:
        raise ScaleError(str(error)) from None
    return Scale(
        metadata=_build_scale_metadata(workload.metadata),
        spec=ScaleSpec(replicas=1 if spec.replicas is None else spec.replicas),
        status=ScaleStatus(replicas=workload.status.replicas, selector=selector),
    )


def with_replicas(
    data: Mapping[str, Any], scale: Scale, replicas: int, paths: ScalePaths | None = None
) -> dict[str, Any]:
    """Return a copy of an object with the ``replicas`` that a PUT of its scale sets.

    Parameters
    ----------
    data : mapping
        The object as plain data.
    scale : Scale
        The scale in the request. Its UID and resource version must be the object's if they are set.
    replicas : int
    paths : ScalePaths, optional
        Paths of a custom resource. Default: the usual paths.

    Raises
    ------
    ScaleError
        If the API server would refuse the request; ``conflict`` is set for a conflict.
    """
    if replicas < 0:
        raise ScaleError(f"spec.replicas: Invalid value: {replicas}: must be greater than or equal to 0")
    metadata = data.get("metadata") or {}
    name = metadata.get("name", "")
    for field, expected, actual in (
        ("UID", scale.metadata.uid, metadata.get("uid")),
        ("ResourceVersion", scale.metadata.resource_version, metadata.get("resourceVersion")),
    ):
        if expected and expected != actual:
            text = f"Precondition failed: {field} in precondition: {expected}, {field} in object meta: {actual or ''}"
            raise ScaleError(f'Operation cannot be fulfilled on "{name}": {text}', conflict=True)
    *parents, last = (paths or ScalePaths()).spec_replicas.strip(".").split(".")
    out = parent = dict(data)
    for part in parents:
        child = parent.get(part)
        if child is not None and not isinstance(child, Mapping):
            raise ScaleError(f"value cannot be set because {part} is not a map[string]interface{{}}")
        parent[part] = parent = dict(child or {})
    parent[last] = replicas
    return out


def _read_workload_scale(data: Mapping[str, Any]) -> Scale:
    """Return the scale of a built-in workload. Raises ScaleError if a field is malformed."""
    spec = data.get("spec") or {}
    raw = spec.get("selector")
    try:
        selector = "" if raw is None else str(compile_selector(from_dict(raw, LabelSelector)))
    except (SelectorError, InputError) as error:
        raise ScaleError(str(error)) from None
    return _build_scale(data, *_read_counts(data), selector)


def _get_label_map(data: Mapping[str, Any]) -> Mapping[str, str]:
    """Return ``spec.selector``, a map of labels; empty if absent. Raises ScaleError if it is not a map of texts."""
    labels = (data.get("spec") or {}).get("selector") or {}
    if not isinstance(labels, Mapping) or not all(isinstance(each, str) for each in labels.values()):
        raise ScaleError("the label selector must be a map of texts")
    return labels


def _read_deployment_config_scale(data: Mapping[str, Any]) -> Scale:
    """Return the scale of an OpenShift DeploymentConfig, which also selects its own name (``scaleFromConfig``).

    Raises ScaleError if a field is malformed.
    """
    name = (data.get("metadata") or {}).get("name", "")
    replicas = (data.get("spec") or {}).get("replicas") or 0
    ready = (data.get("status") or {}).get("replicas") or 0
    return _build_scale(data, replicas, ready, str(from_label_map({**_get_label_map(data), "deploymentconfig": name})))


def _read_counts(data: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the desired replicas (1 if absent) and those of the status (0 if absent), unchecked."""
    replicas = (data.get("spec") or {}).get("replicas")
    return 1 if replicas is None else replicas, (data.get("status") or {}).get("replicas") or 0


def _get_path(data: Mapping[str, Any], path: str) -> Any:
    """Return the value at a JSON path (``.spec.replicas``); None if there is none."""
    node: Any = data
    for part in path.strip(".").split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def _build_scale(data: Mapping[str, Any], replicas: Any, status_replicas: Any, selector: Any) -> Scale:
    """Build the scale of the object ``data``, whose metadata it gets.

    Raises ScaleError if a value has a wrong type or does not fit 32 bits.
    """
    for value in (replicas, status_replicas):
        if not isinstance(value, int) or isinstance(value, bool):
            raise ScaleError(f"replicas must be a whole number, not {value!r}")
        if not -(2**31) <= value < 2**31:
            raise ScaleError(f"replicas must fit 32 bits, unlike {value}")
    if not isinstance(selector, str):
        raise ScaleError("the label selector must be a text")
    try:
        metadata = from_dict(data.get("metadata") or {}, ObjectMeta)
    except InputError as error:
        raise ScaleError(str(error)) from None
    status = ScaleStatus(replicas=status_replicas, selector=selector)
    return Scale(
        api_version="autoscaling/v1",
        kind="Scale",
        metadata=_build_scale_metadata(metadata),
        spec=ScaleSpec(replicas=replicas),
        status=status,
    )


CURRENT: Final = "autoscaling/v1"
OLD: Final = frozenset({"extensions/v1beta1", "apps/v1beta1", "apps/v1beta2"})
SCALE_VERSIONS: Final = frozenset({CURRENT, *OLD})

_API_OPERATORS: Final = {"in": "In", "notin": "NotIn", "exists": "Exists", "!": "DoesNotExist"}


class _OldStatus(ApiStruct):
    replicas: int = 0
    selector: dict[str, str] | None = None
    target_selector: str = ""


class _OldScale(ApiStruct):
    metadata: ObjectMeta | None = None
    spec: ScaleSpec | None = None
    status: _OldStatus | None = None


def read_scale(data: Mapping[str, Any]) -> Scale:
    """Decode the response (plain data) of a ``/scale`` endpoint in any version, and return it as autoscaling/v1.

    Raises :class:`~kscale.objects.scale.ScaleError` with upstream's text if the response is not a Scale.
    """
    version, kind = str(data.get("apiVersion", "")), str(data.get("kind", ""))
    if kind != "Scale" or version not in SCALE_VERSIONS:
        raise ScaleError(f'no kind "{kind}" is registered for version "{version}"')
    try:
        if version == CURRENT:
            return from_dict(data, Scale)
        old = from_dict(data, _OldScale)
    except InputError as error:
        raise ScaleError(str(error)) from None
    status = old.status or _OldStatus()
    try:
        selector = _read_selector(status)
    except SelectorError as error:
        prefix = "received an object from a /scale endpoint which was not convertible to autoscaling Scale"
        raise ScaleError(f"{prefix}: {error}") from None
    return Scale(
        metadata=old.metadata or ObjectMeta(),
        spec=old.spec or ScaleSpec(),
        status=ScaleStatus(replicas=status.replicas, selector=selector),
    )


def _read_selector(status: _OldStatus) -> str:
    """Return the selector of an old kind of Scale as text. Raises SelectorError if it is malformed."""
    if status.target_selector:
        try:
            return str(compile_selector(_label_selector(parse_selector(status.target_selector))))
        except SelectorError as error:
            raise SelectorError(f"failed to parse target selector: {error}") from None
    return "" if status.selector is None else str(from_label_map(status.selector))


def _label_selector(selector: Selector) -> LabelSelector:
    """Convert a selector to the API's form (``ParseToLabelSelector``).

    Raises SelectorError for operators that the API's form does not have.
    """
    labels: dict[str, str] = {}
    expressions: list[LabelSelectorRequirement] = []
    for each in selector.requirements:
        if each.operator in ("=", "=="):
            labels[each.key] = each.values[0]
        elif each.operator in ("gt", "lt"):
            raise SelectorError(f"{go_quote(each.operator)} isn't supported in label selectors")
        elif each.operator not in _API_OPERATORS:
            raise SelectorError(f"{go_quote(each.operator)} is not a valid label selector operator")
        else:
            operator = _API_OPERATORS[each.operator]
            expressions.append(LabelSelectorRequirement(key=each.key, operator=operator, values=list(each.values)))
    return LabelSelector(match_labels=labels, match_expressions=expressions)


def written_scale(scale: Scale, replicas: int, api_version: str = CURRENT) -> dict[str, Any]:
    """Return the body (plain data) of a PUT to a ``/scale`` endpoint.

    Parameters
    ----------
    scale : Scale
        The scale as it was read.
    replicas : int
        The new number of replicas.
    api_version : str
        Version of the scale that the endpoint takes.

    Raises
    ------
    ScaleError
        If the version is unknown, or an older kind cannot represent the selector.
    """
    if api_version not in SCALE_VERSIONS:
        raise ScaleError(f'no kind "Scale" is registered for version "{api_version}"')
    metadata = to_dict(scale.metadata)
    head = {"apiVersion": api_version, "kind": "Scale", "metadata": metadata, "spec": {"replicas": replicas}}
    status = scale.status
    if api_version == CURRENT:
        status_data: dict[str, Any] = {"replicas": status.replicas}
        if status.selector:
            status_data["selector"] = status.selector
        return {**head, "status": status_data}
    status_data = {"replicas": status.replicas}
    if status.selector:
        try:
            selector = _label_selector(parse_selector(status.selector))
        except SelectorError as error:
            text = f"could not convert scale update to external Scale: failed to parse target selector: {error}"
            raise ScaleError(text) from None
        if not selector.match_expressions:
            status_data["selector"] = selector.match_labels or {}
        status_data["targetSelector"] = str(compile_selector(selector))
    return {**head, "status": status_data}
