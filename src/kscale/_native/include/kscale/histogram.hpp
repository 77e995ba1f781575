#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "kscale/go_math.hpp"

// Decaying histograms of the Vertical Pod Autoscaler, many at once: row r of a bank is one histogram.
// (upstream: vertical-pod-autoscaler/pkg/recommender/util)

namespace kscale::histogram {

using Time = std::int64_t;  // nanoseconds since 1970
inline constexpr Time kUnset = std::numeric_limits<Time>::min();  // Go's zero time, the year 1
// Minimum distance of times and durations from the ends of int64, so that windows and references cannot overflow.
inline constexpr Time kFarthest = Time{1} << 62;

// The boundaries of buckets. `starts` has one entry per bucket.
class Buckets {
 public:
  static Buckets linear(double max_value, double bucket_size, double epsilon);
  static Buckets exponential(double max_value, double first_bucket_size, double ratio, double epsilon);
  Buckets() = default;

  std::int64_t size() const noexcept { return static_cast<std::int64_t>(starts.size()); }
  double epsilon() const noexcept { return epsilon_; }
  // As upstream computes it; infinities and NaN give a number outside [0, size).
  std::int64_t find_exact(double value) const noexcept;
  // The same result from a table. One logarithm costs more than everything else for a sample.
  std::int64_t find(double value) const noexcept {
    if (!cells.empty() && value >= table_low && value < table_high) {
      const std::uint64_t cell = (std::bit_cast<std::uint64_t>(value) >> kCellShift) - first_cell;
      const Cell& c = cells[cell];
      if (value < c.sure_below) return c.bucket;
      if (value >= c.sure_from) return c.bucket + 1;
    }
    return find_exact(value);
  }

  // out[i] = find(values[i]).
  void find_all(const double* values, std::ptrdiff_t n, std::int64_t* out) const noexcept;

  std::vector<double> starts;
  // thousandths[k]: the bucket of k / 1000, for the amounts (in millicores) of nearly all samples. Empty if a bucket
  // number does not fit.
  std::vector<std::uint16_t> thousandths;

 private:
  // 64 cells per power of two: narrower than any bucket of a ratio >= 1.02, so a cell contains at most one boundary.
  static constexpr int kCellShift = 46;
  struct Cell {
    double sure_below;  // values below are in `bucket`
    double sure_from;   // values from here on are in `bucket` + 1; in between, find_exact decides
    std::int64_t bucket;
  };
  void build_table();
  void build_thousandths();

  bool is_linear_ = false;
  double bucket_size_ = 0, first_ = 0, ratio_ = 0, log_ratio_ = 0, epsilon_ = 0;
  std::vector<Cell> cells;
  std::uint64_t first_cell = 0;
  double table_low = 0, table_high = 0;
};

// The columns of a bank. half_life 0 = plain histograms, which do not decay.
struct Bank {
  double* weights;  // [rows, stride]
  double* total;
  std::int32_t* min_bucket;
  std::int32_t* max_bucket;
  Time* reference;
  std::int64_t half_life;
  std::ptrdiff_t stride;
  const Buckets* buckets;

  double* row(std::ptrdiff_t r) const noexcept { return weights + r * stride; }
};

inline bool is_empty(const Bank& bank, std::ptrdiff_t r) noexcept {
  return bank.row(r)[bank.min_bucket[r]] < bank.buckets->epsilon();
}

inline void tighten(const Bank& bank, std::ptrdiff_t r) noexcept {
  const double* w = bank.row(r);
  const double epsilon = bank.buckets->epsilon();
  const auto last = static_cast<std::int32_t>(bank.buckets->size() - 1);
  std::int32_t low = bank.min_bucket[r], high = bank.max_bucket[r];
  while (w[low] < epsilon && low < last) ++low;
  while (w[high] < epsilon && high > 0) --high;
  bank.min_bucket[r] = low;
  bank.max_bucket[r] = high;
}

inline void add(const Bank& bank, std::ptrdiff_t r, std::int64_t bucket, double weight) noexcept {
  double& w = bank.row(r)[bucket];
  w += weight;
  bank.total[r] += weight;
  if (w >= bank.buckets->epsilon()) {
    const auto b = static_cast<std::int32_t>(bucket);
    if (b < bank.min_bucket[r]) bank.min_bucket[r] = b;
    if (b > bank.max_bucket[r]) bank.max_bucket[r] = b;
  }
}

inline void subtract(const Bank& bank, std::ptrdiff_t r, std::int64_t bucket, double weight) noexcept {
  const double epsilon = bank.buckets->epsilon();
  const auto safe = [epsilon](double a, double b) { return a - b < epsilon ? 0.0 : a - b; };
  double& w = bank.row(r)[bucket];
  bank.total[r] = safe(bank.total[r], weight);
  w = safe(w, weight);
  tighten(bank, r);
}

inline void scale(const Bank& bank, std::ptrdiff_t r, double factor) noexcept {
  double* w = bank.row(r);
  for (std::int32_t b = bank.min_bucket[r]; b <= bank.max_bucket[r]; ++b) w[b] *= factor;
  bank.total[r] *= factor;
  tighten(bank, r);
}

// time.Time.Round: to a multiple of `unit` counted from the year 1, halves up.
inline Time round_time(Time t, std::int64_t unit) noexcept {
  constexpr __int128 kYearOne = static_cast<__int128>(62135596800LL) * 1000000000LL;
  const __int128 since = static_cast<__int128>(t) + kYearOne;
  __int128 rest = since % unit;
  if (rest < 0) rest += unit;
  const auto r = static_cast<std::int64_t>(rest);
  return static_cast<std::uint64_t>(r) * 2 < static_cast<std::uint64_t>(unit) ? t - r : t + (unit - r);
}

// time.Time.Sub, which saturates. No difference of times reaches back to the year 1.
inline std::int64_t difference(Time a, Time b) noexcept {
  if (a == b) return 0;
  if (a == kUnset) return std::numeric_limits<std::int64_t>::min();
  if (b == kUnset) return std::numeric_limits<std::int64_t>::max();
  std::int64_t result = 0;
  if (__builtin_sub_overflow(a, b, &result))
    return a < b ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<std::int64_t>::max();
  return result;
}

inline void shift(const Bank& bank, std::ptrdiff_t r, Time new_reference) noexcept {
  const Time rounded = round_time(new_reference, bank.half_life);
  const auto half_life = static_cast<double>(bank.half_life);
  const double exponent = std::floor(static_cast<double>(difference(bank.reference[r], rounded)) / half_life + 0.5);
  scale(bank, r, go::scale_by_power(1.0, go::to_int64(exponent)));
  bank.reference[r] = rounded;
}

inline bool needs_shift(const Bank& bank, std::ptrdiff_t r, Time t) noexcept {
  const Time reference = bank.reference[r];
  if (reference == kUnset) return true;
  const std::int64_t most = bank.half_life * 100;
  return static_cast<__int128>(t) > static_cast<__int128>(reference) + most;
}

inline double decay(const Bank& bank, std::ptrdiff_t r, Time t) noexcept {
  return go::exp2(static_cast<double>(difference(t, bank.reference[r])) / static_cast<double>(bank.half_life));
}

inline double factor(const Bank& bank, std::ptrdiff_t r, Time t) noexcept {
  if (bank.half_life == 0) return 1.0;
  if (needs_shift(bank, r, t)) shift(bank, r, t);
  return decay(bank, r, t);
}

// The value that the share p of the weight does not exceed: the upper edge of its bucket.
double percentile(const Bank& bank, std::ptrdiff_t r, double p) noexcept;

// Adds row s of `from` to row r of `into`. If the references differ, the older one is shifted, even if it is that of
// row s.
void merge(const Bank& into, std::ptrdiff_t r, const Bank& from, std::ptrdiff_t s) noexcept;

void save(const Bank& bank, std::ptrdiff_t r, std::uint32_t* out) noexcept;

// Adds a checkpoint's weights (bucket indices in range, checked by the caller) to a row; the caller sets the reference.
void load(const Bank& bank, std::ptrdiff_t r, const std::int64_t* index, const std::uint32_t* weight,
          std::ptrdiff_t n, double total) noexcept;

}  // namespace kscale::histogram
