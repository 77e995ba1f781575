"""Numbers at the ends of what each dtype holds, and what a kernel may say of arguments that nobody should give."""

from __future__ import annotations

import numpy as np

from kscale.errors import NativeError

LOW, HIGH = -(2**63), 2**63 - 1
REFUSED = (NativeError, ValueError, TypeError, OverflowError)
EXTREMES = {
    np.dtype(np.uint8): [0, 1, 2, 7, 255],
    np.dtype(np.uint16): [0, 1, 65535],
    np.dtype(np.uint32): [0, 1, 10_000, 2**32 - 1],
    np.dtype(np.int32): [0, 1, -1, 5, 2**31 - 1, -(2**31)],
    np.dtype(np.int64): [0, 1, -1, 3, 100, HIGH, LOW],
    np.dtype(np.float64): [0.0, 1.0, -1.0, 0.1, 1e308, -1e308, float("inf"), float("-inf"), float("nan")],
}
