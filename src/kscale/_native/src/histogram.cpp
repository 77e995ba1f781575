#include "kscale/histogram.hpp"

#include <bit>

namespace kscale::histogram {

Buckets Buckets::linear(double max_value, double bucket_size, double epsilon) {
  Buckets result;
  result.is_linear_ = true;
  result.bucket_size_ = bucket_size;
  result.epsilon_ = epsilon;
  const std::int64_t n = go::to_int64(std::ceil(max_value / bucket_size)) + 1;
  for (std::int64_t b = 0; b < n; ++b) result.starts.push_back(static_cast<double>(b) * bucket_size);
  result.build_thousandths();
  return result;
}

Buckets Buckets::exponential(double max_value, double first_bucket_size, double ratio, double epsilon) {
  Buckets result;
  result.first_ = first_bucket_size;
  result.ratio_ = ratio;
  result.log_ratio_ = go::log(ratio);
  result.epsilon_ = epsilon;
  const double power = go::log(max_value * (ratio - 1) / first_bucket_size + 1) / result.log_ratio_;
  const std::int64_t n = go::to_int64(std::ceil(power)) + 1;
  for (std::int64_t b = 0; b < n; ++b)
    result.starts.push_back(
        b == 0 ? 0.0 : first_bucket_size * (go::pow(ratio, static_cast<double>(b)) - 1) / (ratio - 1));
  result.build_table();
  result.build_thousandths();
  return result;
}

std::int64_t Buckets::find_exact(double value) const noexcept {
  const std::int64_t last = size() - 1;
  if (is_linear_) {
    const std::int64_t b = go::to_int64(value / bucket_size_);
    return b < 0 ? 0 : std::min(b, last);
  }
  if (value < first_) return 0;
  const std::int64_t b = go::to_int64(go::log(value * (ratio_ - 1) / first_ + 1) / log_ratio_);
  return std::min(b, last);
}

void Buckets::build_thousandths() {
  constexpr std::size_t kSize = 8192;
  if (size() > std::numeric_limits<std::uint16_t>::max()) return;
  thousandths.reserve(kSize);
  for (std::size_t k = 0; k < kSize; ++k) {
    const std::int64_t bucket = find(static_cast<double>(k) / 1000.0);
    if (bucket < 0) {  // upstream would crash there: nobody may take the short way
      thousandths.clear();
      return;
    }
    thousandths.push_back(static_cast<std::uint16_t>(bucket));
  }
}

void Buckets::build_table() {
  if (size() < 3 || ratio_ < 1.02) return;
  table_low = first_;
  table_high = starts.back() * 2;
  const auto cell_of = [](double v) { return std::bit_cast<std::uint64_t>(v) >> kCellShift; };
  first_cell = cell_of(table_low);
  if (!(table_high < 1e300) || cell_of(table_high) - first_cell > 100000) return;
  // Below this distance from a boundary the rounding errors of the formula decide, and they may not be monotonic.
  constexpr double kMargin = 1e-11;
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (std::uint64_t c = first_cell; c <= cell_of(table_high); ++c) {
    const double from = std::max(std::bit_cast<double>(c << kCellShift), first_);
    const double to = std::bit_cast<double>(((c + 1) << kCellShift) - 1);
    const std::int64_t low = find_exact(from * (1 - kMargin)), high = find_exact(to * (1 + kMargin));
    Cell cell{kInf, kInf, low};
    if (high == low + 1) {
      double a = from * (1 - kMargin), b = to * (1 + kMargin);  // bisection for some boundary between the two buckets
      for (int i = 0; i < 60; ++i) {
        const double middle = a + (b - a) / 2;
        (find_exact(middle) > low ? b : a) = middle;
      }
      cell.sure_below = a * (1 - kMargin);
      cell.sure_from = b * (1 + kMargin);
    } else if (high != low) {
      cell.sure_below = -kInf;  // several boundaries: always ask
    }
    cells.push_back(cell);
  }
}

}  // namespace kscale::histogram
