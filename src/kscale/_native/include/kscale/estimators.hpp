#pragma once

#include <cstddef>
#include <cstdint>

#include "kscale/usage.hpp"

// From histograms to recommendations: percentiles, margin and confidence multipliers, for many containers at once
// (upstream: vertical-pod-autoscaler/pkg/recommender/logic/estimator.go).

namespace kscale::estimators {

using histogram::Bank;
using histogram::Time;

// The estimators of a recommendation, per resource (0 = CPU in millicores, 1 = memory in bytes).
struct Estimation {
  double percentile[2][3];  // target, lower bound, upper bound
  std::int64_t interval[2];  // nanoseconds of history for a confidence of 1
  double margin;
};

// out[row, resource, {target, lower, upper}]; minimum[row, resource].
void recommend(const Bank& cpu, const Bank& memory, const Time* first, const Time* last, const std::int64_t* samples,
               const std::int64_t* minimum, const Estimation& how, std::ptrdiff_t n_rows, std::int64_t* out,
               std::ptrdiff_t threads);

// Returns the length of the history in units of `interval` (nanoseconds). A history counts as no longer than one minute
// per sample.
double confidence(Time first, Time last, std::int64_t samples, std::int64_t interval) noexcept;
// Returns the factor of a bound: (1 + multiplier / confidence) to the power of exponent.
double confidence_multiplier(double confidence, double multiplier, double exponent) noexcept;

}  // namespace kscale::estimators
