"""Go's log, pow and exp2 on amd64, in plain Python (one operation, one rounding)."""

from __future__ import annotations

import math

LN2_HI = 6.93147180369123816490e-01
LN2_LO = 1.90821492927058770002e-10


def to_int64(x: float) -> int:
    if math.isnan(x) or not -(2.0**63) <= x < 2.0**63:
        return -(2**63)
    return int(x)


def log(x: float) -> float:
    if math.isnan(x) or x == math.inf:
        return x
    if x < 0:
        return math.nan
    if x == 0:
        return -math.inf
    f1, ki = math.frexp(x)
    if f1 < math.sqrt(2) / 2:
        f1 *= 2
        ki -= 1
    f = f1 - 1
    k = float(ki)
    s = f / (2 + f)
    s2 = s * s
    s4 = s2 * s2
    t1 = s2 * (6.666666666666735130e-01 + s4 * (2.857142874366239149e-01 + s4 * (
        1.818357216161805012e-01 + s4 * 1.479819860511658591e-01)))  # fmt: skip
    t2 = s4 * (3.999999999940941908e-01 + s4 * (2.222219843214978396e-01 + s4 * 1.531383769920937332e-01))
    r = t1 + t2
    hfsq = 0.5 * f * f
    return k * LN2_HI - ((hfsq - (s * (hfsq + r) + k * LN2_LO)) - f)


def exp2(x: float) -> float:
    if math.isnan(x) or x == math.inf:
        return x
    if x > 1023.9999999999999:
        return math.inf
    if x < -1074:
        return 0.0
    k = 0
    if x > 0:
        k = int(x + 0.5)
    elif x < 0:
        k = int(x - 0.5)
    t = x - k
    hi = t * LN2_HI
    lo = -t * LN2_LO
    r = hi - lo
    t = r * r
    c = r - t * (1.66666666666666657415e-01 + t * (-2.77777777770155933842e-03 + t * (
        6.61375632143793436117e-05 + t * (-1.65339022054652515390e-06 + t * 4.13813679705723846039e-08))))  # fmt: skip
    y = 1 - ((lo - (r * c) / (2 - c)) - hi)
    return ldexp(y, k)


def ldexp(x: float, k: int) -> float:
    try:
        return math.ldexp(x, k)
    except OverflowError:
        return math.inf


def power(x: float, y: float) -> float:
    """For x > 0 and an integral y."""
    if y == 0 or x == 1:
        return 1.0
    if y == 1:
        return x
    if math.isnan(x):
        return x
    if x == math.inf:
        return 0.0 if y < 0 else x
    x1, xe = math.frexp(x)
    a1, ae = 1.0, 0
    i = int(abs(y))
    while i:
        if not -4096 <= xe <= 4096:
            ae += xe
            break
        if i & 1:
            a1 *= x1
            ae += xe
        x1 *= x1
        xe *= 2
        if x1 < 0.5:
            x1 += x1
            xe -= 1
        i >>= 1
    if y < 0:
        a1 = 1 / a1
        ae = -ae
    return ldexp(a1, ae)
