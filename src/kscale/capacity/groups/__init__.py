"""Node groups: read from a groups file, or recognised by the labels of a dump's nodes."""

from __future__ import annotations

from kscale.capacity.groups.groups_file import (
    GroupEntry,
    GroupOptions,
    groups_from,
    groups_schema,
    groups_schema_text,
    read_groups,
)
from kscale.capacity.groups.recognition import (
    Recognised,
    RecognisedGroup,
    example_node,
    group_template,
    members_of,
    recognise_groups,
)
from kscale.objects.machine_groups import MACHINE_KINDS, MachineGroups, machine_groups

__all__ = [
    "MACHINE_KINDS",
    "GroupEntry",
    "GroupOptions",
    "MachineGroups",
    "Recognised",
    "RecognisedGroup",
    "example_node",
    "group_template",
    "groups_from",
    "groups_schema",
    "groups_schema_text",
    "machine_groups",
    "members_of",
    "read_groups",
    "recognise_groups",
]
