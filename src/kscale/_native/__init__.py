"""The compiled modules, which take and return arrays. Other packages use only the modules listed here.

_build         build information of the binary
_engine        one simulated cluster: nodes, counters of their pods, and the verdict of every Filter plug-in
_pod_classes   what pod classes have besides requests: read once, shared by engines
_packing       the binpacking estimator and the hinting simulator, on an engine
_removals      removal of nodes from an engine, its effects, and how many more of a pod fit
_selecting     Score plug-ins: pods on the nodes with the highest scores
_scoring       compiled scorers, run over every pod and node
_bin_pricing   prices for many kinds of bins at once, which prove lower bounds
_pod_metrics   lists of pod metrics as columns
_projection    lists of JSON objects reduced to the fields that rules select
_pod_columns   pods of such lists as columns
_names         rows by name
_rows          rows of tables that are columns
_api_text      texts of the API in their usual format
_numeric       Go's float to integer conversions as on amd64
_histogram     decaying histograms: samples, checkpoints, recommendations
_usage_text    usage over time from text
_replicas      the replica calculator, over columns
_reconcile     reconciles, over columns
_replay        one HPA over recorded load in virtual time

``KSCALE_CPU_LEVEL`` (environment) is the highest CPU level that loops may use: ``default``, ``x86-64-v3`` or
``x86-64-v4``. It is read once, when a module is loaded; ``kscale.build_info()`` returns the level.
"""

import os

from kscale.errors import InputError

_LEVELS = ("default", "x86-64-v3", "x86-64-v4")

if (_level := os.environ.get("KSCALE_CPU_LEVEL", "default")) not in _LEVELS:
    raise InputError(f"KSCALE_CPU_LEVEL: {_level!r} is none of {', '.join(_LEVELS)}")
