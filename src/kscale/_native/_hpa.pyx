# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""The HPA over columns: the replica calculator, reconciles, the replay of recorded load, and Go's number
conversions.
"""

import numpy as np

from kscale.errors import NativeError

include "_replicas.pxi"
include "_reconcile.pxi"
include "_replay.pxi"
include "_numeric.pxi"
