#include "kscale/usage.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "kscale/dispatch.hpp"
#include "kscale/parallel.hpp"

namespace kscale::usage {
namespace {

using histogram::kUnset;

constexpr std::ptrdiff_t kMostThreads = 64;

// Samples taken in but not yet added: their decay factors are computed together, which the compiler vectorizes.
struct Pending {
  static constexpr std::size_t kSize = 1024;
  std::size_t count = 0;
  std::array<double, kSize> weight{};  // first the distance from the reference, then the weight
  std::array<std::int32_t, kSize> row{};
  std::array<std::int32_t, kSize> bucket{};
};

// weight[i] = kCpuWeight * go::exp2(weight[i] / half_life) for exponents that neither overflow nor underflow: the same operations in
// the same order, the integral part without a branch.
KSCALE_CLONES void decay_all(double* weight, std::size_t n, double half_life) noexcept {
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

void add_pending(const Bank& bank, Pending& pending) noexcept {
  const std::size_t n = pending.count;
  const auto half_life = static_cast<double>(bank.half_life);
  bool ordinary = bank.half_life != 0;
  if (ordinary)
    for (std::size_t i = 0; i < n; ++i) ordinary &= std::fabs(pending.weight[i]) < 1000 * half_life;
  if (ordinary) {
    decay_all(pending.weight.data(), n, half_life);
  } else {
    for (std::size_t i = 0; i < n; ++i)
      pending.weight[i] = bank.half_life == 0 ? kCpuWeight : kCpuWeight * go::exp2(pending.weight[i] / half_life);
  }
  for (std::size_t i = 0; i < n; ++i) histogram::add(bank, pending.row[i], pending.bucket[i], pending.weight[i]);
  pending.count = 0;
}

// Buckets of whole millicores, for the amounts that nearly all samples have.
class MillicoreTable {
 public:
  explicit MillicoreTable(const Buckets& buckets) : buckets_(buckets), table_(kSize) {
    for (std::size_t m = 0; m < kSize; ++m)
      table_[m] = static_cast<std::uint16_t>(buckets.find(static_cast<double>(m) / 1000.0));
  }
  std::int64_t operator()(std::int64_t millicores) const noexcept {
    if (static_cast<std::uint64_t>(millicores) < kSize) return table_[static_cast<std::size_t>(millicores)];
    return buckets_.find(static_cast<double>(millicores) / 1000.0);
  }

 private:
  static constexpr std::size_t kSize = 8192;
  const Buckets& buckets_;
  std::vector<std::uint16_t> table_;
};

// Which of `parts` threads an aggregate belongs to.
class Owners {
 public:
  Owners(const Containers& containers, std::ptrdiff_t n, const std::int32_t* container, std::ptrdiff_t parts) {
    if (parts == 1) return;
    std::int32_t most = 0;
    for (std::ptrdiff_t i = 0; i < n; ++i) most = std::max(most, container[i]);
    owner_.resize(static_cast<std::size_t>(most) + 1);
    for (std::size_t c = 0; c < owner_.size(); ++c)
      owner_[c] = static_cast<std::uint8_t>(std::max(containers.aggregate[c], 0) % parts);
  }
  bool other(std::int32_t container, std::ptrdiff_t part) const noexcept {
    return !owner_.empty() && owner_[static_cast<std::size_t>(container)] != part;
  }

 private:
  std::vector<std::uint8_t> owner_;
};

void count_sample(const Aggregates& aggregates, std::ptrdiff_t row, Time t) noexcept {
  if (t > aggregates.last_sample[row]) aggregates.last_sample[row] = t;
  Time& first = aggregates.first_sample[row];
  if (first == kUnset || t < first) first = t;
  ++aggregates.samples[row];
}

std::int64_t next_window(Time window_end, Time t, std::int64_t interval) noexcept {
  const std::int64_t late = t - window_end;
  return window_end + (interval > 0 ? late / interval * interval : late) + interval;
}

// Rows of a grid whose histograms keep one reference throughout: the weights are the same numbers for all of them.
class Grid {
 public:
  Grid(const Bank& bank, const MillicoreTable& find, std::ptrdiff_t n_times, const Time* time)
      : bank_(bank), find_(find), n_times_(n_times), time_(time), weight_(static_cast<std::size_t>(n_times)) {}

  // Shifts the row if its first new sample asks for it; false if a later sample would ask again.
  bool settle(std::ptrdiff_t row, std::ptrdiff_t first) {
    if (bank_.half_life == 0) return use(0);
    if (histogram::needs_shift(bank_, row, time_[first])) histogram::shift(bank_, row, time_[first]);
    return !histogram::needs_shift(bank_, row, time_[n_times_ - 1]) && use(bank_.reference[row]);
  }
  const double* weights() const noexcept { return weight_.data(); }

  // kRows histograms side by side: one alone would wait for its own last addition.
  template <int kRows>
  void add(const std::array<std::ptrdiff_t, kRows>& rows, const std::array<const std::int32_t*, kRows>& values,
           std::ptrdiff_t first, std::array<std::int64_t, kRows>& counts) const noexcept {
    std::array<double*, kRows> w;
    std::array<double, kRows> total;
    for (int i = 0; i < kRows; ++i) {
      w[i] = bank_.row(rows[i]);
      total[i] = bank_.total[rows[i]];
      counts[i] = 0;
    }
    for (std::ptrdiff_t t = first; t < n_times_; ++t) {
      const double weight = weight_[static_cast<std::size_t>(t)];
      for (int i = 0; i < kRows; ++i) {
        const std::int32_t value = values[i][t];
        if (value < 0) continue;
        w[i][find_(value)] += weight;
        total[i] += weight;
        ++counts[i];
      }
    }
    for (int i = 0; i < kRows; ++i) {
      bank_.total[rows[i]] = total[i];
      widen(rows[i]);
    }
  }

  // Outside [min, max] every weight that was not added to is below epsilon, so looking once afterwards is enough.
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

}  // namespace

void add_cpu(const Bank& bank, const Containers& containers, const Aggregates& aggregates, std::ptrdiff_t n,
             const std::int32_t* container, const Time* time, const std::int64_t* millicores, std::uint8_t* status,
             std::ptrdiff_t threads) {
  const MillicoreTable find(*bank.buckets);
  const std::ptrdiff_t parts = std::clamp<std::ptrdiff_t>(threads, 1, kMostThreads);
  const Owners owners(containers, n, container, parts);
  parallel_for(parts, parts, [&](std::ptrdiff_t part, std::ptrdiff_t end) {
    Pending pending;
    for (; part < end; ++part) {
      for (std::ptrdiff_t i = 0; i < n; ++i) {
        const std::int32_t c = container[i];
        if (owners.other(c, part)) continue;
        const std::int32_t row = containers.aggregate[c];
        const Time t = time[i];
        if (millicores[i] < 0 || t <= containers.last_cpu[c]) {
          status[i] = kDiscarded;
          continue;
        }
        status[i] = kAccepted;
        if (bank.half_life != 0 && histogram::needs_shift(bank, row, t)) {
          add_pending(bank, pending);
          histogram::shift(bank, row, t);
        }
        const std::size_t at = pending.count++;
        pending.weight[at] = static_cast<double>(histogram::difference(t, bank.reference[row]));
        pending.row[at] = row;
        pending.bucket[at] = static_cast<std::int32_t>(find(millicores[i]));
        if (pending.count == Pending::kSize) add_pending(bank, pending);
        count_sample(aggregates, row, t);
        containers.last_cpu[c] = t;
      }
      add_pending(bank, pending);
    }
  });
}

void add_memory(const Bank& bank, const Containers& containers, const Aggregates& aggregates, std::ptrdiff_t n,
                const std::int32_t* container, const Time* time, const std::int64_t* bytes, const std::uint8_t* is_oom,
                std::uint8_t* status, std::ptrdiff_t threads) {
  const std::ptrdiff_t parts = std::clamp<std::ptrdiff_t>(threads, 1, kMostThreads);
  const Owners owners(containers, n, container, parts);
  const auto weight_at = [&](std::ptrdiff_t row, Time t) { return kMemoryWeight * histogram::factor(bank, row, t); };
  const auto bucket_of = [&](std::int64_t amount) { return bank.buckets->find(static_cast<double>(amount)); };
  parallel_for(parts, parts, [&](std::ptrdiff_t part, std::ptrdiff_t end) {
    for (; part < end; ++part)
      for (std::ptrdiff_t i = 0; i < n; ++i) {
        const std::int32_t c = container[i];
        if (owners.other(c, part)) continue;
        const std::int32_t row = containers.aggregate[c];
        const Time t = time[i];
        const std::int64_t interval = aggregates.interval[row];
        const bool oom = is_oom != nullptr && is_oom[i] != 0;
        std::int64_t used = bytes[i];
        if (oom) {
          if (containers.last_memory[c] != kUnset && t < containers.last_memory[c] - interval) {
            status[i] = kTooOld;
            continue;
          }
          used = std::max(used, containers.memory_peak[c]);
          used = std::max(used + amount(aggregates.oom_min_bump[row]), scale_amount(used, aggregates.oom_ratio[row]));
        }
        if (used < 0 || (!oom && t < containers.last_memory[c])) {
          status[i] = kDiscarded;
          continue;
        }
        status[i] = kAccepted;
        containers.last_memory[c] = t;
        if (containers.window_end[c] == kUnset) containers.window_end[c] = t;
        bool is_peak = false;
        if (t < containers.window_end[c]) {
          const std::int64_t old = std::max(containers.memory_peak[c], containers.oom_peak[c]);
          if (old != 0 && used > old) {
            const double weight = weight_at(row, containers.window_end[c]);
            histogram::subtract(bank, row, bucket_of(old), weight);
            is_peak = true;
          }
        } else {
          containers.window_end[c] = next_window(containers.window_end[c], t, interval);
          containers.memory_peak[c] = 0;
          containers.oom_peak[c] = 0;
          is_peak = true;
        }
        if (is_peak) {
          const double weight = weight_at(row, containers.window_end[c]);
          histogram::add(bank, row, bucket_of(used), weight);
          (oom ? containers.oom_peak : containers.memory_peak)[c] = used;
        }
      }
  });
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
          grid.add<kTogether>(rows, columns, 0, counts);
          for (int i = 0; i < kTogether; ++i)
            book(group_start[group + i], rows[static_cast<std::size_t>(i)], counts[static_cast<std::size_t>(i)]);
          group += kTogether;
          continue;
        }
      }
      // One aggregate after the other, sample by sample.
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

double confidence(Time first, Time last, std::int64_t samples, std::int64_t interval) noexcept {
  const double span = static_cast<double>(histogram::difference(last, first)) / static_cast<double>(interval);
  // Duration.Minutes: whole minutes and the rest are converted one by one.
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

}  // namespace kscale::usage
