"""Messages that pods and nodes share. How a line is read: :mod:`kscale.objects.protobuf.tables`."""

from __future__ import annotations

__all__ = ["MESSAGES"]

MESSAGES = """
ObjectMeta: 1 name text, 2 generateName text, 3 namespace text, 4 selfLink text, 5 uid text,
    6 resourceVersion text, 7 generation int64, 8 creationTimestamp Time, 9 deletionTimestamp Time?,
    10 deletionGracePeriodSeconds int64?, 11 labels text{}, 12 annotations text{},
    13 ownerReferences OwnerReference*, 14 finalizers text*, 0 managedFields any
OwnerReference: 1 kind text, 3 name text, 4 uid text, 5 apiVersion text, 6 controller bool?,
    7 blockOwnerDeletion bool?
LocalObjectReference: 1 name text
LabelSelector: 1 matchLabels text{}, 2 matchExpressions LabelSelectorRequirement*
LabelSelectorRequirement: 1 key text, 2 operator text, 3 values text*
"""
