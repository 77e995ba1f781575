#include "kscale/histogram.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace kscale::histogram {
namespace {

constexpr double kHeaviest = 10000.0;  // weight of the heaviest bucket of a checkpoint

}  // namespace

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
    if (bucket < 0) {  // upstream would panic: the fast path may not be used
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
  // Closer to a boundary than this, the rounding errors of the formula decide, and they may not be monotonic.
  constexpr double kMargin = 1e-11;
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (std::uint64_t c = first_cell; c <= cell_of(table_high); ++c) {
    const double from = std::max(std::bit_cast<double>(c << kCellShift), first_);
    const double to = std::bit_cast<double>(((c + 1) << kCellShift) - 1);
    const std::int64_t low = find_exact(from * (1 - kMargin)), high = find_exact(to * (1 + kMargin));
    Cell cell{kInf, kInf, low};
    if (high == low + 1) {
      double a = from * (1 - kMargin), b = to * (1 + kMargin);  // bisection for a boundary between the two buckets
      for (int i = 0; i < 60; ++i) {
        const double middle = a + (b - a) / 2;
        (find_exact(middle) > low ? b : a) = middle;
      }
      cell.sure_below = a * (1 - kMargin);
      cell.sure_from = b * (1 + kMargin);
    } else if (high != low) {
      cell.sure_below = -kInf;  // several boundaries: always use the formula
    }
    cells.push_back(cell);
  }
}

void Buckets::find_all(const double* values, std::ptrdiff_t n, std::int64_t* out) const noexcept {
  for (std::ptrdiff_t i = 0; i < n; ++i) out[i] = find(values[i]);
}

double percentile(const Bank& bank, std::ptrdiff_t r, double p) noexcept {
  if (is_empty(bank, r)) return 0.0;
  const double* w = bank.row(r);
  const double threshold = p * bank.total[r];
  double sum = 0.0;
  std::int64_t b = bank.min_bucket[r];
  for (const std::int64_t last = bank.max_bucket[r]; b < last; ++b) {
    sum += w[b];
    if (sum >= threshold) break;
  }
  const auto& starts = bank.buckets->starts;
  return b < bank.buckets->size() - 1 ? starts[static_cast<std::size_t>(b + 1)] : starts[static_cast<std::size_t>(b)];
}

void merge(const Bank& into, std::ptrdiff_t r, const Bank& from, std::ptrdiff_t s) noexcept {
  if (into.half_life != 0 && into.reference[r] != from.reference[s]) {
    if (into.reference[r] < from.reference[s])
      shift(into, r, from.reference[s]);
    else
      shift(from, s, into.reference[r]);
  }
  const std::int32_t low = from.min_bucket[s], high = from.max_bucket[s];
  double* a = into.row(r);
  const double* b = from.row(s);
  for (std::int32_t i = low; i <= high; ++i) a[i] += b[i];
  into.total[r] += from.total[s];
  into.min_bucket[r] = std::min(into.min_bucket[r], low);
  into.max_bucket[r] = std::max(into.max_bucket[r], high);
}

void save(const Bank& bank, std::ptrdiff_t r, std::uint32_t* out) noexcept {
  const double* w = bank.row(r);
  std::fill(out, out + bank.stride, 0U);
  double heaviest = 0.0;
  for (std::int32_t b = bank.min_bucket[r]; b <= bank.max_bucket[r]; ++b) heaviest = std::max(heaviest, w[b]);
  const double ratio = kHeaviest / heaviest;
  for (std::int32_t b = bank.min_bucket[r]; b <= bank.max_bucket[r]; ++b)
    out[b] = static_cast<std::uint32_t>(go::to_int64(std::floor(w[b] * ratio + 0.5)));
}

void load(const Bank& bank, std::ptrdiff_t r, const std::int64_t* index, const std::uint32_t* weight,
          std::ptrdiff_t n, double total) noexcept {
  std::int64_t sum = 0;
  for (std::ptrdiff_t i = 0; i < n; ++i) sum += weight[i];
  if (sum == 0) return;
  const double ratio = total / static_cast<double>(sum);
  double* w = bank.row(r);
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const auto b = static_cast<std::int32_t>(index[i]);
    bank.min_bucket[r] = std::min(bank.min_bucket[r], b);
    bank.max_bucket[r] = std::max(bank.max_bucket[r], b);
    w[b] += static_cast<double>(weight[i]) * ratio;
  }
  bank.total[r] += total;
  tighten(bank, r);
}

}  // namespace kscale::histogram
