#include "kscale/estimators.hpp"

#include <algorithm>

#include "kscale/go_math.hpp"
#include "kscale/parallel.hpp"

namespace kscale::estimators {

using usage::amount;
using usage::scale_amount;

double confidence(Time first, Time last, std::int64_t samples, std::int64_t interval) noexcept {
  const double span = static_cast<double>(histogram::difference(last, first)) / static_cast<double>(interval);
  // Duration.Minutes: whole minutes and the remainder are converted separately.
  constexpr std::int64_t kMinute = 60000000000LL;
  const double minutes =
      static_cast<double>(interval / kMinute) + static_cast<double>(interval % kMinute) / (60 * 1e9);
  const double count = static_cast<double>(samples) / minutes;
  return span < count ? span : count;
}

double confidence_multiplier(double confidence, double multiplier, double exponent) noexcept {
  return go::pow(1. + multiplier / confidence, exponent);
}

void recommend(const Bank& cpu, const Bank& memory, const Time* first, const Time* last, const std::int64_t* samples,
               const std::int64_t* minimum, const Estimation& how, std::ptrdiff_t n_rows, std::int64_t* out,
               std::ptrdiff_t threads) {
  parallel_for(n_rows, threads, [&](std::ptrdiff_t r, std::ptrdiff_t end) {
    for (; r < end; ++r)
      for (int resource = 0; resource < 2; ++resource) {
        const Bank& bank = resource == 0 ? cpu : memory;
        const double sure = confidence(first[r], last[r], samples[r], how.interval[resource]);
        for (int which = 0; which < 3; ++which) {
          const double value = histogram::percentile(bank, r, how.percentile[resource][which]);
          std::int64_t a = amount(resource == 0 ? value * 1000.0 : value);
          a += scale_amount(a, how.margin);
          if (which == 1) a = scale_amount(a, confidence_multiplier(sure, 0.001, -2.0));
          if (which == 2) a = scale_amount(a, confidence_multiplier(sure, 1.0, 1.0));
          out[(r * 2 + resource) * 3 + which] = std::max(a, minimum[r * 2 + resource]);
        }
      }
  });
}

}  // namespace kscale::estimators
