#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

// math.Log, math.Pow, math.Exp2 and float-to-int conversion as Go computes them on amd64. They differ from the C
// library in the last bits, and bucket bounds and decay factors of histograms depend on them. The algorithms are those
// of FreeBSD's msun (e_log.c, e_exp.c), in Go's order of evaluation, without fused multiply-add.

namespace kscale::go {

inline constexpr double kLn2Hi = 6.93147180369123816490e-01;
inline constexpr double kLn2Lo = 1.90821492927058770002e-10;

// int64(x): toward zero; NaN and everything out of range give the smallest integer, as cvttsd2si does.
inline std::int64_t to_int64(double x) noexcept {
  if (x >= -9223372036854775808.0 && x < 9223372036854775808.0) return static_cast<std::int64_t>(x);
  return std::numeric_limits<std::int64_t>::min();
}

inline double log(double x) noexcept {
  if (std::isnan(x) || x == std::numeric_limits<double>::infinity()) return x;
  if (x < 0) return std::numeric_limits<double>::quiet_NaN();
  if (x == 0) return -std::numeric_limits<double>::infinity();
  constexpr double L1 = 6.666666666666735130e-01, L2 = 3.999999999940941908e-01, L3 = 2.857142874366239149e-01,
                   L4 = 2.222219843214978396e-01, L5 = 1.818357216161805012e-01, L6 = 1.531383769920937332e-01,
                   L7 = 1.479819860511658591e-01;
  constexpr double kHalfSqrt2 = 7.07106781186547524401e-01;
  int exponent = 0;
  double fraction = std::frexp(x, &exponent);
  if (fraction < kHalfSqrt2) {
    fraction *= 2;
    exponent -= 1;
  }
  const double f = fraction - 1;
  const double k = exponent;
  const double s = f / (2 + f);
  const double s2 = s * s;
  const double s4 = s2 * s2;
  const double t1 = s2 * (L1 + s4 * (L3 + s4 * (L5 + s4 * L7)));
  const double t2 = s4 * (L2 + s4 * (L4 + s4 * L6));
  const double r = t1 + t2;
  const double half_square = 0.5 * f * f;
  return k * kLn2Hi - ((half_square - (s * (half_square + r) + k * kLn2Lo)) - f);
}

// y * 2^k, rounded once.
inline double scale_by_power(double y, std::int64_t k) noexcept {
  if (k >= -1000 && k <= 1000) return y * std::bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52);
  return std::ldexp(y, static_cast<int>(k < -100000 ? -100000 : k > 100000 ? 100000 : k));
}

inline double exp2(double x) noexcept {
  if (std::isnan(x) || x == std::numeric_limits<double>::infinity()) return x;
  if (x > 1.0239999999999999e+03) return std::numeric_limits<double>::infinity();
  if (x < -1.0740e+03) return 0;
  constexpr double P1 = 1.66666666666666657415e-01, P2 = -2.77777777770155933842e-03, P3 = 6.61375632143793436117e-05,
                   P4 = -1.65339022054652515390e-06, P5 = 4.13813679705723846039e-08;
  std::int64_t k = 0;
  if (x > 0) k = static_cast<std::int64_t>(x + 0.5);
  if (x < 0) k = static_cast<std::int64_t>(x - 0.5);
  const double t = x - static_cast<double>(k);
  const double hi = t * kLn2Hi;
  const double lo = -t * kLn2Lo;
  const double r = hi - lo;
  const double square = r * r;
  const double c = r - square * (P1 + square * (P2 + square * (P3 + square * (P4 + square * P5))));
  const double y = 1 - ((lo - (r * c) / (2 - c)) - hi);
  return scale_by_power(y, k);
}

// math.Pow for x > 0 (or NaN) and an integral y; the histograms need no other.
inline double pow(double x, double y) noexcept {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  if (y == 0 || x == 1) return 1;
  if (y == 1) return x;
  if (std::isnan(x) || std::isnan(y)) return std::numeric_limits<double>::quiet_NaN();
  if (x == 0) return y < 0 ? kInf : 0;
  if (x == kInf) return y < 0 ? 0 : kInf;
  int exponent = 0;
  double x1 = std::frexp(x, &exponent);
  std::int64_t xe = exponent;
  double a1 = 1;
  std::int64_t ae = 0;
  for (std::int64_t i = to_int64(std::fabs(y)); i != 0; i >>= 1) {
    if (xe < -4096 || 4096 < xe) {
      ae += xe;
      break;
    }
    if (i & 1) {
      a1 *= x1;
      ae += xe;
    }
    x1 *= x1;
    xe *= 2;
    if (x1 < .5) {
      x1 += x1;
      xe -= 1;
    }
  }
  if (y < 0) {
    a1 = 1 / a1;
    ae = -ae;
  }
  return std::ldexp(a1, static_cast<int>(ae));
}

}  // namespace kscale::go
