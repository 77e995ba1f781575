"""Kubernetes API objects as typed data.

- ``api``: structs of API objects by API group; ``kinds``: which struct is which kind; ``nodegroup``: node groups.
- ``decode``: from JSON and plain data; ``protobuf``: from and to the protobuf form.
- ``selectors``, ``node_selectors``, ``names``: matching and validation.
- ``quantity``, ``times``, ``conditions``, ``pod_resources``, ``pod_owners``: reading of fields.
"""
