"""The compiled floor: arrays in, arrays out. The modules listed here are the only doors to it.

_build         how the binary was made
_engine        one simulated cluster: nodes, what pods on them count in, and the verdict of every Filter plug-in
_pod_classes   what pod classes have beyond requests: read once, shared by engines
_packing       the binpacking estimator and the hinting simulator, on an engine
_removals      taking nodes away from an engine, what losing them would do, how many more of a pod fit
_selecting     Score plug-ins: pods on the nodes with the greatest scores
_scoring       compiled scorers, run over every pod and node
_bin_pricing   many kinds of bins priced at once: what proves lower bounds
_pod_metrics   lists of pod metrics as columns
_projection    lists of JSON objects reduced to what rules keep
_pod_columns   pods of such lists as columns
_names         rows by name
_rows          rows of tables that are columns
_api_text      texts of the API as they are usually written
_numeric       Go's float to integer conversions as amd64 makes them
_histogram     decaying histograms: samples, checkpoints, recommendations
_usage_text    usage over time out of text
_replicas      the replica calculator, over columns
_reconcile     reconciles, over columns
_replay        one HPA over recorded load in virtual time

``KSCALE_CPU_LEVEL`` (environment) is the highest level of CPU that loops are run at: ``default``, ``x86-64-v3`` or
``x86-64-v4``. Read once, when a module is loaded; ``kscale.build_info()`` tells the level.
"""

import os

from kscale.errors import InputError

_LEVELS = ("default", "x86-64-v3", "x86-64-v4")

if (_level := os.environ.get("KSCALE_CPU_LEVEL", "default")) not in _LEVELS:
    raise InputError(f"KSCALE_CPU_LEVEL: {_level!r} is none of {', '.join(_LEVELS)}")
