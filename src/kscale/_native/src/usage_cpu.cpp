#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "kscale/dispatch.hpp"
#include "kscale/parallel.hpp"
#include "kscale/usage.hpp"
#include "kscale/usage_feed.hpp"
#include "kscale/usage_owners.hpp"

// Adds CPU samples to histograms.

namespace kscale::usage {
namespace {

using histogram::kUnset;

// Accepted samples that are not added yet: their decay factors are computed together, which the compiler vectorizes.
struct Pending {
  static constexpr std::size_t kSize = 1024;
  std::size_t count = 0;
  std::array<double, kSize> weight{};  // first the distance from the reference, then the weight
  std::array<std::int32_t, kSize> row{};
  std::array<std::int32_t, kSize> bucket{};
};

// weight[i] = kCpuWeight * go::exp2(weight[i] / half_life) for exponents that neither overflow nor underflow: the same
// operations in the same order, with the integral part computed without a branch.
KSCALE_CLONED void decay_all(double* weight, std::size_t n, double half_life) noexcept {
  constexpr double P1 = 1.66666666666666657415e-01, P2 = -2.77777777770155933842e-03, P3 = 6.61375632143793436117e-05,
                   P4 = -1.65339022054652515390e-06, P5 = 4.13813679705723846039e-08;
  for (std::size_t i = 0; i < n; ++i) {
    const double x = weight[i] / half_life;
    const auto k = static_cast<std::int32_t>(x < 0 ? x - 0.5 : x + 0.5);
    const double t = x - static_cast<double>(k);
    const double hi = t * go::kLn2Hi;
    const double lo = -t * go::kLn2Lo;
    const double r = hi - lo;
    const double square = r * r;
    const double c = r - square * (P1 + square * (P2 + square * (P3 + square * (P4 + square * P5))));
    const double y = 1 - ((lo - (r * c) / (2 - c)) - hi);
    const double power = std::bit_cast<double>(static_cast<std::uint64_t>(static_cast<std::int64_t>(k) + 1023) << 52);
    weight[i] = kCpuWeight * (y * power);
  }
}

// Converts distances from the reference to weights.
void weigh(const Bank& bank, double* weight, std::size_t n, bool ordinary) noexcept {
  const auto half_life = static_cast<double>(bank.half_life);
  if (bank.half_life == 0) {
    std::fill(weight, weight + n, kCpuWeight);
  } else if (ordinary) {
    at_cpu_level<decay_all>(weight, n, half_life);
  } else {
    for (std::size_t i = 0; i < n; ++i) weight[i] = kCpuWeight * go::exp2(weight[i] / half_life);
  }
}

// Returns whether decay_all accepts a distance from the reference.
bool is_ordinary(const Bank& bank, double distance) noexcept {
  return std::fabs(distance) < 1000 * static_cast<double>(bank.half_life);
}

void add_pending(const Bank& bank, Pending& pending) noexcept {
  const std::size_t n = pending.count;
  if (n == 0) return;
  bool ordinary = true;
  for (std::size_t i = 0; i < n; ++i) ordinary &= is_ordinary(bank, pending.weight[i]);
  weigh(bank, pending.weight.data(), n, ordinary);
  for (std::size_t i = 0; i < n; ++i) histogram::add(bank, pending.row[i], pending.bucket[i], pending.weight[i]);
  pending.count = 0;
}

// Buckets of whole millicores.
class MillicoreTable {
 public:
  explicit MillicoreTable(const Buckets& buckets)
      : buckets_(buckets), table_(buckets.thousandths.data()), size_(buckets.thousandths.size()) {}
  // Returns whether all of them are in the table.
  bool holds(std::uint64_t highest) const noexcept { return highest < size_; }
  std::int64_t small(std::int64_t millicores) const noexcept { return table_[millicores]; }
  std::int64_t operator()(std::int64_t millicores) const noexcept {
    if (static_cast<std::uint64_t>(millicores) < size_) return table_[millicores];
    return buckets_.find(static_cast<double>(millicores) / 1000.0);
  }

 private:
  const Buckets& buckets_;
  const std::uint16_t* table_;
  std::size_t size_;
};

void count_sample(const Aggregates& aggregates, std::ptrdiff_t row, Time t) noexcept {
  if (t > aggregates.last_sample[row]) aggregates.last_sample[row] = t;
  Time& first = aggregates.first_sample[row];
  if (first == kUnset || t < first) first = t;
  ++aggregates.samples[row];
}

// Properties of a run of one container's samples. Plain loops without an early exit, which the compiler vectorizes.
struct Stretch {
  bool ascending;         // strictly
  std::uint64_t highest;  // of the amounts; negative ones count as huge
};

KSCALE_CLONED Stretch look_at(const Time* time, const std::int64_t* millicores, std::ptrdiff_t n) noexcept {
  std::int64_t bad = 0;
  std::uint64_t bits = 0;
  for (std::ptrdiff_t i = 1; i < n; ++i) bad |= static_cast<std::int64_t>(time[i] <= time[i - 1]);
  for (std::ptrdiff_t i = 0; i < n; ++i) bits |= static_cast<std::uint64_t>(millicores[i]);
  return {bad == 0, bits};
}

KSCALE_CLONED void distances(const Time* time, Time reference, double* out, std::ptrdiff_t n) noexcept {
  for (std::ptrdiff_t i = 0; i < n; ++i) out[i] = static_cast<double>(time[i] - reference);
}

// Adds n samples to one row, in order.
void add_stretch(const Bank& bank, std::ptrdiff_t row, const MillicoreTable& find, const std::int64_t* millicores,
                 const double* weight, std::ptrdiff_t n) noexcept {
  double* w = bank.row(row);
  const double epsilon = bank.buckets->epsilon();
  double total = bank.total[row];
  std::int64_t low = bank.min_bucket[row], high = bank.max_bucket[row];
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const std::int64_t b = find.small(millicores[i]);
    const double sum = w[b] + weight[i];
    w[b] = sum;
    total += weight[i];
    if ((b < low || b > high) && sum >= epsilon) {
      low = std::min(low, b);
      high = std::max(high, b);
    }
  }
  bank.total[row] = total;
  bank.min_bucket[row] = static_cast<std::int32_t>(low);
  bank.max_bucket[row] = static_cast<std::int32_t>(high);
}

KSCALE_CLONED std::uint32_t bits_of(const std::int32_t* values, std::ptrdiff_t n) noexcept {
  std::uint32_t bits = 0;
  for (std::ptrdiff_t i = 0; i < n; ++i) bits |= static_cast<std::uint32_t>(values[i]);
  return bits;
}

// Rows of a grid whose histograms have the same reference throughout: their weights are the same numbers.
class Grid {
 public:
  Grid(const Bank& bank, const MillicoreTable& find, std::ptrdiff_t n_times, const Time* time)
      : bank_(bank), find_(find), n_times_(n_times), time_(time), weight_(static_cast<std::size_t>(n_times)) {}

  // Shifts the row if its first new sample requires it; false if a later sample would require it again.
  bool settle(std::ptrdiff_t row, std::ptrdiff_t first) {
    if (bank_.half_life == 0) return use(0);
    if (histogram::needs_shift(bank_, row, time_[first])) histogram::shift(bank_, row, time_[first]);
    return !histogram::needs_shift(bank_, row, time_[n_times_ - 1]) && use(bank_.reference[row]);
  }

  // kRows histograms side by side: one alone would wait for its own last addition.
  template <std::size_t kRows>
  void add(const std::array<std::ptrdiff_t, kRows>& rows, const std::array<const std::int32_t*, kRows>& values,
           std::array<std::int64_t, kRows>& counts) const noexcept {
    std::array<double*, kRows> w;
    std::array<double, kRows> total;
    for (std::size_t i = 0; i < kRows; ++i) {
      w[i] = bank_.row(rows[i]);
      total[i] = bank_.total[rows[i]];
      counts[i] = 0;
    }
    constexpr std::ptrdiff_t kBlock = 512;
    for (std::ptrdiff_t from = 0; from < n_times_; from += kBlock) {
      const std::ptrdiff_t to = std::min(from + kBlock, n_times_);
      std::uint32_t highest = 0;
      for (std::size_t i = 0; i < kRows; ++i) highest |= at_cpu_level<bits_of>(values[i] + from, to - from);
      if (find_.holds(highest)) {
        add_present<kRows>(w, values, total, from, to, std::make_index_sequence<kRows>());
        for (std::size_t i = 0; i < kRows; ++i) counts[i] += to - from;
        continue;
      }
      for (std::ptrdiff_t t = from; t < to; ++t) {
        const double weight = weight_[static_cast<std::size_t>(t)];
        for (std::size_t i = 0; i < kRows; ++i) {
          const std::int32_t value = values[i][t];
          if (value < 0) continue;
          w[i][find_(value)] += weight;
          total[i] += weight;
          ++counts[i];
        }
      }
    }
    for (std::size_t i = 0; i < kRows; ++i) {
      bank_.total[rows[i]] = total[i];
      widen(rows[i]);
    }
  }

  // Outside [min, max] every weight that was not added to is below epsilon, so one check afterwards is enough.
  void widen(std::ptrdiff_t row) const noexcept {
    const double* w = bank_.row(row);
    const double epsilon = bank_.buckets->epsilon();
    const auto last = static_cast<std::int32_t>(bank_.buckets->size() - 1);
    for (std::int32_t b = 0; b < bank_.min_bucket[row]; ++b)
      if (w[b] >= epsilon) bank_.min_bucket[row] = b;
    for (std::int32_t b = last; b > bank_.max_bucket[row]; --b)
      if (w[b] >= epsilon) bank_.max_bucket[row] = b;
  }

 private:
  // No sample is missing, and all amounts are in the table.
  template <std::size_t kRows, std::size_t... I>
  void add_present(const std::array<double*, kRows>& rows, const std::array<const std::int32_t*, kRows>& values,
                   std::array<double, kRows>& totals, std::ptrdiff_t from, std::ptrdiff_t to,
                   std::index_sequence<I...>) const noexcept {
    const std::array<double*, kRows> w = rows;
    const std::array<const std::int32_t*, kRows> v = values;
    const double* const weights = weight_.data();
    const bool alike = ((totals[I] == totals[0]) && ...);
    if (alike) {  // histograms that began together: the same sum for all
      double total = totals[0];
      for (std::ptrdiff_t t = from; t < to; ++t) {
        const double weight = weights[t];
        ((w[I][find_.small(v[I][t])] += weight), ...);
        total += weight;
      }
      totals.fill(total);
      return;
    }
    std::array<double, kRows> total = totals;
    for (std::ptrdiff_t t = from; t < to; ++t) {
      const double weight = weights[t];
      ((w[I][find_.small(v[I][t])] += weight, total[I] += weight), ...);
    }
    totals = total;
  }

  bool use(Time reference) {
    if (known_ && reference == reference_) return true;
    for (std::ptrdiff_t t = 0; t < n_times_; ++t)
      weight_[static_cast<std::size_t>(t)] =
          bank_.half_life == 0 ? kCpuWeight
                               : kCpuWeight * go::exp2(static_cast<double>(histogram::difference(time_[t], reference)) /
                                                       static_cast<double>(bank_.half_life));
    known_ = true;
    reference_ = reference;
    return true;
  }

  const Bank& bank_;
  const MillicoreTable& find_;
  std::ptrdiff_t n_times_;
  const Time* time_;
  std::vector<double> weight_;
  Time reference_ = 0;
  bool known_ = false;
};

// Adds CPU samples in one thread: runs of one container, in order, one after the other.
class CpuSamples {
 public:
  static constexpr std::ptrdiff_t kMost = static_cast<std::ptrdiff_t>(Pending::kSize);  // samples at once

  CpuSamples(const Bank& bank, const Containers& containers, const Aggregates& aggregates)
      : bank_(bank), containers_(containers), aggregates_(aggregates), find_(*bank.buckets) {}

  // Number of samples that were refused because they were older than the last one of their container, without
  // duplicates.
  std::int64_t behind() const noexcept { return behind_; }

  void add(std::int32_t c, const Time* time, const std::int64_t* millicores, std::ptrdiff_t n,
           std::uint8_t* status) noexcept {
    constexpr std::ptrdiff_t kShortest = 8;  // minimum length of a run for which the fast path pays
    if (n >= kShortest && add_run(c, time, millicores, n)) {
      std::fill(status, status + n, static_cast<std::uint8_t>(kAccepted));
      return;
    }
    for (std::ptrdiff_t i = 0; i < n; ++i) status[i] = add_one(c, time[i], millicores[i]);
  }

  void finish() noexcept { add_pending(bank_, pending_); }

 private:
  // Adds all of them, if they are new, in order, and close to the row's reference.
  bool add_run(std::int32_t c, const Time* time, const std::int64_t* millicores, std::ptrdiff_t n) noexcept {
    const std::ptrdiff_t row = containers_.aggregate[c];
    if (time[0] <= containers_.last_cpu[c]) return false;
    const Stretch stretch = at_cpu_level<look_at>(time, millicores, n);
    if (!stretch.ascending || !find_.holds(stretch.highest)) return false;
    add_pending(bank_, pending_);
    const Time last = time[n - 1];
    double* weight = pending_.weight.data();
    if (bank_.half_life != 0) {
      if (histogram::needs_shift(bank_, row, time[0])) histogram::shift(bank_, row, time[0]);
      const Time reference = bank_.reference[row];
      if (histogram::needs_shift(bank_, row, last)) return false;
      if (reference >= histogram::kFarthest || reference <= -histogram::kFarthest) return false;
      at_cpu_level<distances>(time, reference, weight, n);
    }
    weigh(bank_, weight, static_cast<std::size_t>(n), is_ordinary(bank_, weight[0]) && is_ordinary(bank_, weight[n - 1]));
    add_stretch(bank_, row, find_, millicores, weight, n);
    aggregates_.last_sample[row] = std::max(aggregates_.last_sample[row], last);
    Time& first = aggregates_.first_sample[row];
    if (first == kUnset || time[0] < first) first = time[0];
    aggregates_.samples[row] += n;
    containers_.last_cpu[c] = last;
    return true;
  }

  Status add_one(std::int32_t c, Time t, std::int64_t millicores) noexcept {
    if (millicores < 0 || t <= containers_.last_cpu[c]) {
      behind_ += static_cast<std::int64_t>(millicores >= 0 && t < containers_.last_cpu[c]);
      return kDiscarded;
    }
    const std::int32_t row = containers_.aggregate[c];
    if (bank_.half_life != 0 && histogram::needs_shift(bank_, row, t)) {
      add_pending(bank_, pending_);
      histogram::shift(bank_, row, t);
    }
    const std::size_t at = pending_.count++;
    pending_.weight[at] = static_cast<double>(histogram::difference(t, bank_.reference[row]));
    pending_.row[at] = row;
    pending_.bucket[at] = static_cast<std::int32_t>(find_(millicores));
    if (pending_.count == Pending::kSize) add_pending(bank_, pending_);
    count_sample(aggregates_, row, t);
    containers_.last_cpu[c] = t;
    return kAccepted;
  }

  const Bank& bank_;
  const Containers& containers_;
  const Aggregates& aggregates_;
  MillicoreTable find_;
  Pending pending_;
  std::int64_t behind_ = 0;
};

}  // namespace

void add_cpu(const Bank& bank, const Containers& containers, const Aggregates& aggregates, std::ptrdiff_t n,
             const std::int32_t* container, const Time* time, const std::int64_t* millicores, std::uint8_t* status,
             std::ptrdiff_t threads) {
  const std::ptrdiff_t parts = std::clamp<std::ptrdiff_t>(threads, 1, kMostThreads);
  const Owners owners(containers, n, container, parts);
  parallel_for(parts, parts, [&](std::ptrdiff_t part, std::ptrdiff_t end) {
    CpuSamples samples(bank, containers, aggregates);
    for (; part < end; ++part) {
      std::ptrdiff_t next = 0;
      for (std::ptrdiff_t i = 0; i < n; i = next) {
        const std::int32_t c = container[i];
        next = run_end(container, i, std::min(n, i + CpuSamples::kMost));
        if (!owners.other(c, part)) samples.add(c, time + i, millicores + i, next - i, status + i);
      }
      samples.finish();
    }
  });
}

Fed feed_cpu(const Bank& bank, const Containers& containers, const Aggregates& aggregates, const Batch& batch,
             std::ptrdiff_t threads) {
  return feed<CpuSamples>(bank, containers, aggregates, batch, 1000.0, threads);
}

void add_cpu_grid(const Bank& bank, const Containers& containers, const Aggregates& aggregates, std::ptrdiff_t n_groups,
                  const std::int64_t* group_start, const std::int32_t* container, std::ptrdiff_t n_times,
                  const Time* time, const std::int32_t* millicores, std::int64_t* discarded, std::ptrdiff_t threads) {
  if (n_times == 0) return;
  const MillicoreTable find(*bank.buckets);
  constexpr int kTogether = 4;
  const auto values = [&](std::ptrdiff_t r) { return millicores + r * n_times; };
  parallel_for(n_groups, threads, [&](std::ptrdiff_t group, std::ptrdiff_t groups_end) {
    Grid grid(bank, find, n_times, time);
    const auto book = [&](std::ptrdiff_t r, std::ptrdiff_t row, std::int64_t count) {
      if (count == 0) return;
      std::ptrdiff_t first = 0, last = n_times - 1;
      while (time[first] <= containers.last_cpu[container[r]] || values(r)[first] < 0) ++first;
      while (values(r)[last] < 0) --last;
      if (time[last] > aggregates.last_sample[row]) aggregates.last_sample[row] = time[last];
      Time& oldest = aggregates.first_sample[row];
      if (oldest == kUnset || time[first] < oldest) oldest = time[first];
      aggregates.samples[row] += count;
      containers.last_cpu[container[r]] = time[last];
    };
    // A row can join the fast path if it is alone in its aggregate and all its times are new.
    const auto plain = [&](std::ptrdiff_t g) {
      const std::ptrdiff_t r = group_start[g];
      return group_start[g + 1] == r + 1 && containers.last_cpu[container[r]] < time[0] && values(r)[0] >= 0;
    };
    while (group < groups_end) {
      std::array<std::ptrdiff_t, kTogether> rows{};
      std::array<const std::int32_t*, kTogether> columns{};
      std::array<std::int64_t, kTogether> counts{};
      bool together = group + kTogether <= groups_end;
      for (int i = 0; together && i < kTogether; ++i) {
        if (!plain(group + i)) {
          together = false;
          break;
        }
        const std::ptrdiff_t r = group_start[group + i];
        rows[static_cast<std::size_t>(i)] = containers.aggregate[container[r]];
        columns[static_cast<std::size_t>(i)] = values(r);
      }
      if (together) {
        bool settled = true;
        for (int i = 0; i < kTogether; ++i) settled &= grid.settle(rows[static_cast<std::size_t>(i)], 0);
        const Time reference = bank.reference[rows[0]];
        for (const std::ptrdiff_t row : rows) settled &= bank.half_life == 0 || bank.reference[row] == reference;
        if (settled) {
          grid.add<kTogether>(rows, columns, counts);
          for (int i = 0; i < kTogether; ++i)
            book(group_start[group + i], rows[static_cast<std::size_t>(i)], counts[static_cast<std::size_t>(i)]);
          group += kTogether;
          continue;
        }
      }
      // Adds one aggregate after the other, sample by sample.
      const std::ptrdiff_t from = group_start[group], to = group_start[group + 1];
      for (std::ptrdiff_t t = 0; t < n_times; ++t)
        for (std::ptrdiff_t r = from; r < to; ++r) {
          const std::int32_t value = values(r)[t];
          if (value < 0) continue;
          const std::int32_t c = container[r];
          const std::ptrdiff_t row = containers.aggregate[c];
          if (time[t] <= containers.last_cpu[c]) {
            ++discarded[r];
            continue;
          }
          histogram::add(bank, row, find(value), kCpuWeight * histogram::factor(bank, row, time[t]));
          count_sample(aggregates, row, time[t]);
          containers.last_cpu[c] = time[t];
        }
      ++group;
    }
  });
}

}  // namespace kscale::usage
