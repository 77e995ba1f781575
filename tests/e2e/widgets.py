"""A custom resource with a scale sub-resource, as operators have it."""

from __future__ import annotations

from typing import Any

from kscale.objects.kinds import ServedResource

__all__ = ["DEFINITION", "GROUP", "WIDGETS"]

GROUP = "/apis/duel.example.com/v1"
WIDGETS = ServedResource("duel.example.com", "v1", "Widget", "widgets", True)
DEFINITION: dict[str, Any] = {
    "metadata": {"name": "widgets.duel.example.com"},
    "spec": {
        "group": "duel.example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
            }
        ],
    },
}
