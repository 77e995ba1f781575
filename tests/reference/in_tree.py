"""In-tree volumes as the CSI drivers that serve them see them, for volumes of AWS and GCE (`csi-translation-lib`)."""

from __future__ import annotations

import copy

from reference.cluster import Json
from reference.volumes import annotations

MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
ZONE = "topology.kubernetes.io/zone"
# Volume source, in-tree plug-in, CSI driver, label of zones there.
SERVED = (
    ("awsElasticBlockStore", "kubernetes.io/aws-ebs", "ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone"),
    ("gcePersistentDisk", "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "topology.gke.io/zone"),
)


def source_of(spec: Json) -> tuple[str, str, str, str] | None:
    return next((entry for entry in SERVED if spec.get(entry[0]) is not None), None)


def handle_of(spec: Json, labels: Json, csi_node: Json | None) -> tuple[str, str] | None:
    """(driver, handle) that counts on a node: any that has a CSINode."""
    result = source_of(spec)
    if result is None or csi_node is None:
        return None
    field, _, driver, _ = result
    if field == "awsElasticBlockStore":
        return driver, spec[field]["volumeID"].rpartition("/")[2]
    zones = labels.get(ZONE, "").split("__")
    place = "zones/UNSPECIFIED"
    if len(zones) == 1 and zones[0]:
        place = f"zones/{zones[0]}"
    elif len(zones) > 1:
        if any(zone.count("-") != 2 for zone in zones) or len({zone.rpartition("-")[0] for zone in zones}) > 1:
            return None
        place = f"regions/{zones[0].rpartition('-')[0]}"
    return driver, f"projects/UNSPECIFIED/{place}/disks/{spec[field]['pdName']}"


def as_csi(volume: Json, csi_node: Json | None) -> Json | str:
    """The volume that is held against a node, or what is wrong with it."""
    result = source_of(volume["spec"])
    if result is None or csi_node is None or result[1] not in annotations(csi_node).get(MIGRATED, "").split(","):
        return volume
    labels = volume["metadata"].get("labels") or {}
    zones = labels.get(ZONE, "").split("__")
    if result[0] == "gcePersistentDisk" and len(zones) > 1:
        for zone in zones:
            if zone.count("-") != 2:
                return (
                    "could not translate pv: failed to get region from zones: zone in unexpected format, expected: "
                    f"{{locale}}-{{region}}-{{zone}}, got: {zone}"
                )
    created = copy.deepcopy(volume)
    required = (created["spec"].get("nodeAffinity") or {}).get("required") or {"nodeSelectorTerms": []}
    inside = [each for term in required["nodeSelectorTerms"] for each in term.get("matchExpressions") or []]
    if any(each["key"] == ZONE and each.get("values") for each in inside):
        for each in inside:
            each["key"] = result[3] if each["key"] == ZONE else each["key"]
    elif any(zones):
        required["nodeSelectorTerms"] = required["nodeSelectorTerms"] or [{}]
        for term in required["nodeSelectorTerms"]:
            requirement = {"key": result[3], "operator": "In", "values": sorted({zone for zone in zones if zone})}
            term["matchExpressions"] = [*(term.get("matchExpressions") or []), requirement]
    if required["nodeSelectorTerms"]:
        created["spec"]["nodeAffinity"] = {"required": required}
    return created
