"""Well-known labels of nodes.

Source: https://kubernetes.io/docs/reference/labels-annotations-taints/.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "ARCH",
    "HOSTNAME",
    "INSTANCE_TYPE",
    "INSTANCE_TYPES",
    "OS",
    "REGION",
    "REGIONS",
    "ZONE",
    "ZONES",
]

HOSTNAME: Final = "kubernetes.io/hostname"
ARCH: Final = "kubernetes.io/arch"
OS: Final = "kubernetes.io/os"
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
REGION: Final = "topology.kubernetes.io/region"
ZONE: Final = "topology.kubernetes.io/zone"

INSTANCE_TYPES: Final = (INSTANCE_TYPE, "beta.kubernetes.io/instance-type")
"""The label, then its deprecated name."""
REGIONS: Final = (REGION, "failure-domain.beta.kubernetes.io/region")
"""The label, then its deprecated name."""
ZONES: Final = (ZONE, "failure-domain.beta.kubernetes.io/zone")
"""The label, then its deprecated name."""
