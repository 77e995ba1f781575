"""In-tree volumes and the CSI drivers that serve them now (upstream: ``csi-translation-lib``)."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from kscale.objects.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kscale.objects.api.storage import CSINode, PersistentVolume
from kscale.objects.api.volumes import Volume
from kscale.objects.node_selectors import REGIONS, ZONES

__all__ = [
    "InTree",
    "TranslationError",
    "get_counted_plugins",
    "get_migrated_plugins",
    "inline",
    "is_in_tree",
    "provisioned_by",
    "reachable_from",
    "translate_volume",
]

_MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"

IN_TREE: Final = (
    ("aws_elastic_block_store", "kubernetes.io/aws-ebs", "ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone"),
    ("gce_persistent_disk", "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "topology.gke.io/zone"),
    ("azure_disk", "kubernetes.io/azure-disk", "disk.csi.azure.com", ""),
    ("cinder", "kubernetes.io/cinder", "cinder.csi.openstack.org", "topology.cinder.csi.openstack.org/zone"),
    ("portworx_volume", "kubernetes.io/portworx-volume", "pxd.portworx.com", ""),
    ("azure_file", "kubernetes.io/azure-file", "file.csi.azure.com", ""),
    ("vsphere_volume", "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", ""),
)
"""Field of a volume source, its plug-in, the CSI driver that serves it, and the driver's zone label."""

_SERVED: Final = 5  # number of plug-ins, from the first, that the scheduler considers served by their CSI drivers

_SEVERAL: Final = "__"  # separator of the zones in a label
_UNSPECIFIED: Final = "UNSPECIFIED"
_EBS_VOLUME: Final = re.compile(r"vol-[^/]*")

InTree = tuple[str, str, int]
"""(driver, handle, index in ``IN_TREE``)."""


class TranslationError(ValueError):
    """A volume that its CSI driver cannot serve; the text is upstream's."""


def get_counted_plugins(csi_node: CSINode | None) -> int:
    """Return the in-tree plug-ins whose volumes count against the limits of CSI drivers on a node, as a bit mask."""
    return 0 if csi_node is None else (1 << _SERVED) - 1


def get_migrated_plugins(csi_node: CSINode | None) -> int:
    """Return the in-tree plug-ins whose bound volumes are treated as CSI volumes on a node, as a bit mask."""
    if csi_node is None:
        return 0
    moved = (csi_node.metadata.annotations or {}).get(_MIGRATED, "").split(",")
    return sum(1 << i for i, (_, plugin, _, _) in enumerate(IN_TREE[:_SERVED]) if plugin in moved)


def is_in_tree(source: Any) -> int:
    """Return the index in ``IN_TREE`` of a volume's source; -1 if there is none."""
    for i, (field, _, _, _) in enumerate(IN_TREE):
        if getattr(source, field, None) is not None:
            return i
    return -1


def inline(volume: Volume) -> InTree | None:
    """Return the CSI equivalent of an inline volume of a pod; None if no CSI driver serves it.

    Raises TranslationError if the volume has no valid identity.
    """
    place = is_in_tree(volume)
    if not 0 <= place < _SERVED:
        return None
    return IN_TREE[place][2], _handle(volume, place, ()), place


def translate_volume(volume: PersistentVolume) -> InTree | None:
    """Return the CSI equivalent of a persistent volume; None if no CSI driver serves it. Raises TranslationError."""
    place = is_in_tree(volume.spec)
    if not 0 <= place < _SERVED:
        return None
    labels = volume.metadata.labels or {}
    zones = (labels.get(ZONES[1]) or labels.get(ZONES[0]) or "").split(_SEVERAL)
    return IN_TREE[place][2], _handle(volume.spec, place, zones), place


def _handle(source: Any, place: int, zones: Any) -> str:
    match IN_TREE[place][0]:
        case "aws_elastic_block_store":
            return _ebs_volume(source.aws_elastic_block_store.volume_id)
        case "gce_persistent_disk":
            return f"projects/{_UNSPECIFIED}/{_gce_place(zones)}/disks/{source.gce_persistent_disk.pd_name}"
        case "azure_disk":
            disk = source.azure_disk
            if disk.kind is not None and disk.kind.lower() != "managed":
                raise TranslationError(f"kind({disk.kind}) is not supported in csi migration")
            return str(disk.disk_uri)
        case field:
            return str(getattr(source, field).volume_id)


def _ebs_volume(name: str) -> str:
    """Return the volume ID in ``aws://zone/vol-1`` (``vol-1``). Raises TranslationError if there is none."""
    if not name.startswith("aws://"):
        return name
    volume_id = unquote(urlsplit(name).path).strip("/")
    if _EBS_VOLUME.fullmatch(volume_id) is None:
        raise TranslationError(
            f"failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({name})"
        )
    return volume_id


def _gce_place(zones: Any) -> str:
    if len(zones) <= 1:
        return f"zones/{zones[0] if zones and zones[0] else _UNSPECIFIED}"
    regions = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != 3:
            raise TranslationError(
                "failed to get region from zones: zone in unexpected format, expected: {locale}-{region}-{zone}, got: "
                + zone
            )
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        region_map = " ".join(f"{region}:{{}}" for region in sorted(regions))
        raise TranslationError(
            f"failed to get region from zones: multiple or no regions gotten from zones, got: map[{region_map}]"
        )
    return f"regions/{regions.pop()}"


def reachable_from(volume: PersistentVolume) -> NodeSelector | None:
    """Return the node affinity that a volume has for its CSI driver; None if none. Raises TranslationError."""
    translate_volume(volume)
    required = volume.spec.node_affinity.required if volume.spec.node_affinity else None
    zone_key = IN_TREE[is_in_tree(volume.spec)][3]
    if not zone_key:
        return required
    labels = volume.metadata.labels or {}
    terms = required.node_selector_terms if required is not None else []
    used = {each.key for term in terms for each in term.match_expressions}
    which = next((i for i in (0, 1) if ZONES[i] in used), None)
    if which is None:
        which = next((i for i in (0, 1) if ZONES[i] in labels), 0)
    if any(each.values for term in terms for each in term.match_expressions if each.key == ZONES[which]):
        terms = _rename_key(terms, ZONES[which], zone_key)
    else:
        zones = sorted({zone.strip() for zone in labels.get(ZONES[which], "").split(_SEVERAL)} - {""})
        if zones:
            inside = NodeSelectorRequirement(key=zone_key, operator="In", values=zones)
            terms = [
                msgspec.structs.replace(term, match_expressions=[*term.match_expressions, inside])
                for term in terms or [NodeSelectorTerm()]
            ]
    if which == 1 and any(each.values for term in terms for each in term.match_expressions if each.key == REGIONS[1]):
        terms = _rename_key(terms, REGIONS[1], REGIONS[0])
    if required is None and not terms:
        return None
    return NodeSelector(node_selector_terms=list(terms))


def _rename_key(terms: list[NodeSelectorTerm], old: str, new: str) -> list[NodeSelectorTerm]:
    return [
        msgspec.structs.replace(
            term,
            match_expressions=[
                msgspec.structs.replace(each, key=new) if each.key == old else each for each in term.match_expressions
            ],
        )
        for term in terms
    ]


def provisioned_by(provisioner: str) -> tuple[str, int] | None:
    """Return the CSI driver of a provisioner's volumes, and its index in ``IN_TREE`` or -1.

    None if no CSI driver serves them.
    """
    for i, (_, plugin, driver, _) in enumerate(IN_TREE):
        if provisioner == plugin:
            return (driver, i) if i < _SERVED else None
    return provisioner, -1
