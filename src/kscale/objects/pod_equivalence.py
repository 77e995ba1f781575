"""Digests of pods that the Cluster Autoscaler treats as equivalent (upstream: ``core/scaleup/equivalence``).

Two pods have the same digest if and only if their labels are equal (an absent map and an empty one differ) and their
specs are *semantically* equal after sanitising: projected volumes and their mounts, the hostname and the containers'
environments do not count; absent lists and maps equal empty ones; quantities compare by value and times by instant.

The input is the pod as API data, not a struct, so that fields which kscale does not model count too. Some fields are
absent in Go only if they are nil, not if they are zero (``hostUsers: false``). The tables below list the fields whose
zero equals an absent field; a zero of any other field counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kscale.imports import lazy_pattern
from kscale.objects.api.core import Pod
from kscale.objects.decode import enc_hook
from kscale.objects.quantity import Quantity, QuantityError
from kscale.objects.times import nanoseconds

__all__ = ["Digester", "canonical", "digest"]

# Scalars that are plain values in Go, so that zero equals absent.
_PLAIN_NAMES: Final = """
    action apiVersion audience certificateChainPath chapAuthDiscovery chapAuthSession claimName conditionType
    containerName containerPort credentialBundlePath datasetName datasetUUID devicePath directory diskName diskURI
    dnsPolicy driver effect endpoints failureThreshold fieldPath fsType gateway generateName generation group host
    hostIP hostIPC hostNetwork hostPID hostPort hostname image imagePullPolicy initialDelaySeconds ip iqn
    iscsiInterface key keyPath keyType keyring kind level lun maxSkew medium mountPath name namespace nodeName
    operator partition path pdID pdName periodSeconds pool port prefix priorityClassName protectionDomain protocol
    pullPolicy readOnly reference registry repository request resource resourceName resourceVersion revision role
    schedulerName scheme seconds secretFile secretName selfLink server serviceAccount serviceAccountName shareName
    signerName sslEnabled stdin stdinOnce storageMode storagePolicyID storagePolicyName storagePool subPath
    subPathExpr subdomain successThreshold system targetContainerName targetPortal tenant terminationMessagePath
    terminationMessagePolicy timeoutSeconds topologyKey tty type uid user value volume volumeID volumeName
    volumeNamespace volumePath weight whenUnsatisfiable workingDir
"""
_PLAIN: Final = frozenset(_PLAIN_NAMES.split())
# The same names where they are pointers: (name, name of the containing object).
_POINTERS: Final = frozenset({
    ("readOnly", "azureDisk"), ("readOnly", "csi"), ("fsType", "azureDisk"), ("fsType", "csi"), ("kind", "azureDisk"),
    ("type", "hostPath"), ("lun", "fc"), ("namespace", "dataSource"), ("namespace", "dataSourceRef"),
    ("value", "options"), ("user", "items"), ("user", "serviceAccountToken"), ("user", "clusterTrustBundle"),
    ("user", "podCertificate"), ("name", "clusterTrustBundle"), ("protocol", "httpGet"),
})  # fmt: skip
# Maps in Go, so that empty equals absent.
_MAPS: Final = frozenset({
    "nodeSelector", "requests", "limits", "overhead", "matchLabels", "labels", "annotations", "volumeAttributes",
    "options", "allocatedResources", "userAnnotations",
})  # fmt: skip
# Structs that are plain values in Go, not pointers, so that empty equals absent.
_VALUES: Final = frozenset({"resources", "metadata", "spec", "preference", "podAffinityTerm"})
_QUANTITY_MAPS: Final = frozenset({"requests", "limits", "overhead", "allocatedResources"})
_TIMES: Final = frozenset({"creationTimestamp", "deletionTimestamp"})

_TOKEN_VOLUME = lazy_pattern(rb"kube-api-access-[a-z0-9]{5}")
_TOKEN_PREFIX: Final = b"kube-api-access-"
_MAX_MEMO: Final = 1 << 15


def _canonicalize_quantity(value: Any) -> Any:
    """Return a value of a quantity in canonical form, so that equal amounts are equal; other values as they are.

    None becomes the text of zero.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return "0" if value is None else value
    try:
        parsed = Quantity(value.strip() if isinstance(value, str) else repr(value))
    except QuantityError:
        return value
    return f"{parsed.as_fraction()}" if abs(parsed.approximate_float()) < 1e30 else str(parsed)


def _canonicalize_time(value: Any) -> Any:
    """Return nanoseconds since 1970 for an RFC 3339 text, any other value as it is."""
    try:
        return nanoseconds(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _canonicalize_field(key: str, value: Any, owner: str, depth: int) -> Any:
    """Return the canonical value of a field, or None if the field equals an absent one.

    ``owner``: the member that contains it; ``depth``: 0 for the fields of the spec itself.
    """
    if isinstance(value, dict):
        if key in _QUANTITY_MAPS:
            return {name: _canonicalize_quantity(item) for name, item in value.items()} or None
        if key in _MAPS:
            return {name: "" if item is None else item for name, item in value.items()} or None
        inner = _canonicalize_fields(value, key, depth + 1)
        # ``resources`` of the pod itself is a pointer, that of a container is not.
        return inner if inner or key not in _VALUES or (key == "resources" and depth == 0) else None
    if isinstance(value, list):
        return [_canonicalize_element(item, key, depth) for item in value] or None
    if key in _TIMES:
        return _canonicalize_time(value)
    if key in ("sizeLimit", "divisor"):
        amount = _canonicalize_quantity(value)
        return None if amount == "0" and key == "divisor" else amount
    if not value and key in _PLAIN and (key, owner) not in _POINTERS:
        return None
    if key == "restartPolicy" and not value and (depth == 0 or owner == "resizePolicy"):
        return None  # a plain value there, a pointer in a container
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _canonicalize_element(value: Any, key: str, depth: int) -> Any:
    """Return the canonical form of a list's element. ``key``: the member that has the list."""
    if isinstance(value, dict):
        return _canonicalize_fields(value, key, depth + 1)
    return [_canonicalize_element(item, key, depth) for item in value] if isinstance(value, list) else value


def _canonicalize_fields(data: Mapping[str, Any], owner: str, depth: int) -> dict[str, Any]:
    """Return the canonical values of an object's fields, without those that equal an absent field.

    ``owner``: the member that contains the object; ``depth``: 0 for the spec itself.
    """
    result = {}
    for key, value in data.items():
        if value is not None:
            entry = _canonicalize_field(key, value, owner, depth)
            if entry is not None:
                result[key] = entry
    return result


def _sanitize(container: Any, projected: set[str]) -> Any:
    """Return a container without ``env`` and without mounts of the volumes in ``projected``."""
    if not isinstance(container, Mapping):
        return container
    result = {key: value for key, value in container.items() if key != "env"}
    mounts = result.get("volumeMounts")
    if projected and mounts:
        result["volumeMounts"] = [mount for mount in mounts if mount.get("name") not in projected]
    return result


def _drop_volatile(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec without hostname, environment variables, projected volumes and their mounts."""
    result = {key: value for key, value in spec.items() if key != "hostname"}
    volumes = result.get("volumes") or []
    projected = {volume.get("name") or "" for volume in volumes if volume.get("projected") is not None}
    if projected:
        result["volumes"] = [volume for volume in volumes if volume.get("projected") is None]
    for key in ("containers", "initContainers"):
        if containers := result.get(key):
            result[key] = [_sanitize(container, projected) for container in containers]
    return result


def canonical(labels: Mapping[str, str | None] | None, spec: Mapping[str, Any] | None) -> bytes:
    """Return the canonical text of labels and spec. Two pods are equivalent if their texts are equal."""
    own = None if labels is None else {key: value or "" for key, value in labels.items()}
    body = _canonicalize_fields(_drop_volatile(spec or {}), "spec", 0)
    return msgspec.json.encode((own, body), order="deterministic")


def _hash(text: bytes) -> bytes:
    """Return the BLAKE2b digest of a text (16 bytes)."""
    from hashlib import blake2b  # imported here because it loads OpenSSL

    return blake2b(text, digest_size=16).digest()


class _Metadata(msgspec.Struct):
    labels: msgspec.Raw = msgspec.Raw(b"null")


class _Pod(msgspec.Struct):
    metadata: _Metadata | None = None
    spec: msgspec.Raw = msgspec.Raw(b"null")


_DECODER: Final = msgspec.json.Decoder(_Pod)
_ENCODER: Final = msgspec.json.Encoder(enc_hook=enc_hook)


class Digester(msgspec.Struct, eq=False):
    """Digests of many pods. Equal spec texts are digested only once.

    The pods of a controller differ in the name of the volume that the API server adds for the service account's token.
    Such a volume does not count, so texts that differ only there share a cache entry, unless the canonical text still
    has the name.
    """

    _memo: dict[bytes, bytes] = {}

    def digest(self, pod: bytes | memoryview | msgspec.Raw | Mapping[str, Any] | Pod) -> bytes:
        """Return the digest (16 bytes) of the labels and the spec of a pod, given as JSON text, plain data or struct.

        Digests are cached. Raises msgspec.DecodeError if the text cannot be decoded.
        """
        if isinstance(pod, Pod):
            labels, spec = _ENCODER.encode(pod.metadata.labels), _ENCODER.encode(pod.spec)
        elif isinstance(pod, Mapping):
            metadata = pod.get("metadata") or {}
            labels, spec = _ENCODER.encode(metadata.get("labels")), _ENCODER.encode(pod.get("spec"))
        else:
            parts = _DECODER.decode(pod)
            labels, spec = bytes(parts.metadata.labels) if parts.metadata else b"null", bytes(parts.spec)
        exact = labels + b"\0" + spec
        shared = _TOKEN_VOLUME.sub(_TOKEN_PREFIX, exact) if _TOKEN_PREFIX in exact else exact
        result = self._memo.get(shared) or self._memo.get(exact)
        if result is None:
            text = canonical(msgspec.json.decode(labels), msgspec.json.decode(spec))
            result = _hash(text)
            if len(self._memo) >= _MAX_MEMO:
                self._memo.clear()
            self._memo[exact if _TOKEN_PREFIX in text else shared] = result
        return result


def digest(pod: bytes | memoryview | msgspec.Raw | Mapping[str, Any]) -> bytes:
    """Return a digest (16 bytes) of the labels and the spec of a pod, given as JSON text or plain data.

    Pods that the Cluster Autoscaler treats as equivalent have the same digest, in either form. Names, UIDs and statuses
    do not count. A :class:`Digester` is faster for many pods. Raises msgspec.DecodeError if the text cannot be decoded.
    """
    return Digester().digest(pod)
