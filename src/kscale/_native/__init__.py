"""The compiled modules, which take and return arrays. Other packages use only the modules listed here.

_engine        one simulated cluster: nodes, counters of their pods, and the verdict of every Filter plug-in; what pod
               classes have besides requests; the binpacking estimator and the hinting simulator; removal of nodes;
               Score plug-ins and compiled scorers; build information of the binary
_bin_pricing   prices for many kinds of bins at once, which prove lower bounds
_projection    lists of JSON objects reduced to the fields that rules select; pods and pod metrics of such lists as
               columns; texts of the API in their usual format
_names         rows by name, and rows of tables that are columns
_histogram     decaying histograms: samples, checkpoints, recommendations
_usage_text    usage over time from text
_hpa           the replica calculator, reconciles and the replay of recorded load, over columns; Go's float to integer
               conversions as on amd64

Each compiled module repeats much of Cython's support code. Therefore the bindings of one subject are one module, which
includes its parts from the files ``_*.pxi``.

``KSCALE_CPU_LEVEL`` (environment) is the highest CPU level that loops may use: ``default``, ``x86-64-v3`` or
``x86-64-v4``. It is read once, when a module is loaded; ``kscale.build_info()`` returns the level.
"""

import os

from kscale.errors import InputError

_LEVELS = ("default", "x86-64-v3", "x86-64-v4")

if (_level := os.environ.get("KSCALE_CPU_LEVEL", "default")) not in _LEVELS:
    raise InputError(f"KSCALE_CPU_LEVEL: {_level!r} is none of {', '.join(_LEVELS)}")
