"""Compiled kernels that take and return arrays. Python code uses only the modules listed here.

_build         build information
_engine        one simulated cluster: nodes, resources of their pods, and the result of every Filter plug-in
_pod_classes   properties of pod classes beyond requests: read once, shared by engines
_packing       the binpacking estimator and the hinting simulator, on an engine
_removals      removing nodes from an engine, the effect of their loss, and how many more pods fit
_selecting     Score plug-ins: placing pods on the nodes with the highest scores
_scoring       compiled scorers, run over every pod and node
_bin_pricing   pricing of many bin types at once, for lower bounds
_pod_metrics   lists of pod metrics as columns
_projection    lists of JSON objects reduced to what rules keep
_pod_columns   pods of such lists as columns
_names         rows by name
_rows          rows of tables that are columns
_api_text      texts of the API in their usual form
_numeric       Go's float to integer conversions as on amd64
_histogram     decaying histograms: samples, checkpoints, recommendations
_usage_text    usage over time from text
_replicas      the replica calculator, over columns
_reconcile     reconciles, over columns
_replay        one HPA over recorded load in virtual time

The environment variable ``KSCALE_CPU_LEVEL`` limits the CPU level of the loops: ``default``, ``x86-64-v3`` or
``x86-64-v4``. It is read once, when a module is loaded; ``kscale.build_info()`` returns the level in use.
"""

import os

from kscale.errors import InputError

_LEVELS = ("default", "x86-64-v3", "x86-64-v4")

if (_level := os.environ.get("KSCALE_CPU_LEVEL", "default")) not in _LEVELS:
    raise InputError(f"KSCALE_CPU_LEVEL: {_level!r} is none of {', '.join(_LEVELS)}")
