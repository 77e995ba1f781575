#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

// Converts decimal numbers in text to the nearest double without the C library: its functions depend on the locale, and
// std::from_chars requires a recent libstdc++.

namespace kscale {

// The nearest double to m / 10^k, 1 <= k <= 27, m > 0: one long division, rounded once.
inline double quotient_by_power_of_ten(std::uint64_t m, int k) noexcept {
  using Wide = unsigned __int128;
  std::uint64_t fives = 1;  // 5^27 < 2^63
  for (int i = 0; i < k; ++i) fives *= 5;
  const int zeros = std::countl_zero(m);
  const Wide numerator = static_cast<Wide>(m << zeros) << 63;
  Wide quotient = numerator / fives;  // has 64 bits or more, so the lowest bit can hold whether there is a remainder
  if (quotient * fives != numerator) quotient |= 1;
  return std::ldexp(static_cast<double>(quotient), -(63 + zeros + k));
}

// Reads [-]digits[.digits][e[+-]digits] at p and moves p behind it. Returns false for other syntax and for numbers that
// do not fit: more than 19 significant digits, or powers of ten beyond the exact ones.
inline bool decimal(const char*& p, const char* end, double& out) noexcept {
  const auto is_digit = [&](const char* at) { return at < end && static_cast<unsigned char>(*at - '0') < 10; };
  const char* at = p;
  const bool negative = at < end && *at == '-';
  if (negative) ++at;
  if (!is_digit(at)) return false;
  std::uint64_t m = 0;
  int digits = 0, power = 0;
  const auto take = [&](const char* c) {
    m = m * 10 + static_cast<std::uint64_t>(*c - '0');
    digits += static_cast<int>(m != 0);
  };
  for (; is_digit(at); ++at) {
    take(at);
    if (digits > 19) return false;
  }
  if (at < end && *at == '.') {
    if (!is_digit(++at)) return false;
    for (; is_digit(at); ++at, --power) {
      take(at);
      if (digits > 19 || power < -1000) return false;
    }
  }
  if (at < end && (*at == 'e' || *at == 'E')) {
    ++at;
    const bool down = at < end && *at == '-';
    if (at < end && (*at == '-' || *at == '+')) ++at;
    if (!is_digit(at)) return false;
    int exponent = 0;
    for (; is_digit(at); ++at) {
      exponent = exponent * 10 + (*at - '0');
      if (exponent > 1000) return false;
    }
    power += down ? -exponent : exponent;
  }
  double value = 0;
  constexpr double kPowers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  if (m == 0) {
    value = 0;
  } else if (m <= (std::uint64_t{1} << 53) && power >= -22 && power <= 22) {  // both exact, rounded once
    value = power < 0 ? static_cast<double>(m) / kPowers[-power] : static_cast<double>(m) * kPowers[power];
  } else if (power < 0 && power >= -27) {
    value = quotient_by_power_of_ten(m, -power);
  } else if (power == 0) {
    value = static_cast<double>(m);
  } else {
    return false;
  }
  out = negative ? -value : value;
  p = at;
  return true;
}

}  // namespace kscale
