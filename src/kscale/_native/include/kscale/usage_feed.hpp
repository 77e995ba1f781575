#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "kscale/dispatch.hpp"
#include "kscale/parallel.hpp"
#include "kscale/usage.hpp"
#include "kscale/usage_owners.hpp"

// From rows of recorded usage to samples: amounts, rows that are left out, and the thread of each series.

namespace kscale::usage {
namespace {

// Sets out[i] = amount(value[i] * unit); false if some value is not a finite number from 0 on.
KSCALE_CLONED bool plain_amounts(const double* value, std::ptrdiff_t n, double unit, std::int64_t* out) noexcept {
  std::int64_t bad = 0;
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const double x = value[i] * unit;
    const bool good = x >= 0 && x <= kMaxAmount;
    bad |= static_cast<std::int64_t>(!good);
    out[i] = static_cast<std::int64_t>(good ? x : 0.0);
  }
  return bad == 0;
}

KSCALE_CLONED Time latest_of(const Time* time, std::ptrdiff_t n) noexcept {
  Time latest = time[0];
  for (std::ptrdiff_t i = 1; i < n; ++i) latest = time[i] > latest ? time[i] : latest;
  return latest;
}

KSCALE_CLONED std::int64_t later_than(const Time* time, std::ptrdiff_t n, Time now) noexcept {
  std::int64_t count = 0;
  for (std::ptrdiff_t i = 0; i < n; ++i) count += static_cast<std::int64_t>(time[i] > now);
  return count;
}

// Rows of one series, at most kMost, without rows without a number.
struct Rows {
  static constexpr std::ptrdiff_t kMost = 1024;
  std::array<std::int64_t, kMost> amount;
  std::array<Time, kMost> times;
  std::array<std::uint8_t, kMost> status;
  const Time* time = nullptr;

  // Number of rows that remain.
  std::ptrdiff_t read(const double* value, const Time* given, std::ptrdiff_t n, double unit, bool placed,
                      Fed& fed) noexcept {
    time = given;
    if (at_cpu_level<plain_amounts>(value, n, unit, amount.data())) return n;
    time = times.data();
    std::size_t kept = 0;
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      if (std::isnan(value[i])) {
        ++fed.missing;
      } else if (std::isinf(value[i])) {
        ++fed.infinite;
      } else {
        fed.negative += static_cast<std::int64_t>(placed && value[i] < 0);
        amount[kept] = usage::amount(value[i] * unit);
        times[kept++] = given[i];
      }
    }
    return static_cast<std::ptrdiff_t>(kept);
  }
};

// The thread of each series: one, all of them (the first one adds the rows), or none.
class Takers {
 public:
  static constexpr std::uint8_t kOutside = 254, kNobody = 255;

  Takers(const Containers& containers, const Batch& batch, std::ptrdiff_t parts)
      : of_(static_cast<std::size_t>(batch.n_series)) {
    for (std::size_t s = 0; s < of_.size(); ++s) {
      const std::int32_t slot = batch.slot[s];
      of_[s] = slot == kUnasked     ? kNobody
               : slot == kUnplaced ? kOutside
                                   : static_cast<std::uint8_t>(containers.aggregate[slot] % parts);
    }
  }
  std::uint8_t operator[](std::int32_t series) const noexcept { return of_[static_cast<std::size_t>(series)]; }

 private:
  std::vector<std::uint8_t> of_;
};

// The work of one thread on a batch. `Samples` adds the amounts of one container after the other.
template <class Samples>
class Feeder {
 public:
  Feeder(const Bank& bank, const Containers& containers, const Aggregates& aggregates, const Batch& batch, double unit)
      : samples_(bank, containers, aggregates), batch_(batch), unit_(unit) {}

  Fed run(const Takers& takers, std::ptrdiff_t part) noexcept {
    for (std::ptrdiff_t i = 0; i < batch_.rows;) {
      const std::uint8_t taker = takers[batch_.series[i]];
      const bool outside = taker == Takers::kOutside;
      if (outside ? part != 0 : taker != part) {
        ++i;
        continue;
      }
      const std::ptrdiff_t limit = std::min(batch_.rows, i + Rows::kMost);
      std::ptrdiff_t end = i + 1;
      while (end < limit && takers[batch_.series[end]] == taker) ++end;
      if (outside || !plain(i, end)) one_by_one(i, end, !outside);
      i = end;
    }
    samples_.finish();
    fed_.behind = samples_.behind();
    return fed_;
  }

 private:
  // Rows that are all numbers from 0 on: their amounts are computed together.
  bool plain(std::ptrdiff_t i, std::ptrdiff_t end) noexcept {
    if (!at_cpu_level<plain_amounts>(batch_.value + i, end - i, unit_, rows_.amount.data())) return false;
    look_at(batch_.time + i, end - i);
    for (std::ptrdiff_t k = i; k < end;) {
      const std::ptrdiff_t next = run_end(batch_.series, k, end);
      const std::int32_t s = batch_.series[k];
      batch_.finite[s] += next - k;
      samples_.add(batch_.slot[s], batch_.time + k, rows_.amount.data() + (k - i), next - k,
                   rows_.status.data() + (k - i));
      k = next;
    }
    count_refused(end - i);
    return true;
  }

  void one_by_one(std::ptrdiff_t i, std::ptrdiff_t end, bool placed) noexcept {
    std::ptrdiff_t next = 0;
    for (; i < end; i = next) {
      next = run_end(batch_.series, i, end);
      const std::int32_t s = batch_.series[i];
      fed_.newest = std::max(fed_.newest, at_cpu_level<latest_of>(batch_.time + i, next - i));
      const std::ptrdiff_t n = rows_.read(batch_.value + i, batch_.time + i, next - i, unit_, placed, fed_);
      batch_.finite[s] += n;
      if (!placed || n == 0) continue;
      count_late(rows_.time, n);
      samples_.add(batch_.slot[s], rows_.time, rows_.amount.data(), n, rows_.status.data());
      count_refused(n);
    }
  }

  void look_at(const Time* time, std::ptrdiff_t n) noexcept {
    fed_.newest = std::max(fed_.newest, at_cpu_level<latest_of>(time, n));
    count_late(time, n);
  }
  void count_late(const Time* time, std::ptrdiff_t n) noexcept {
    if (batch_.now != std::numeric_limits<Time>::max()) fed_.late += at_cpu_level<later_than>(time, n, batch_.now);
  }
  void count_refused(std::ptrdiff_t n) noexcept {
    for (std::ptrdiff_t k = 0; k < n; ++k)
      fed_.refused += static_cast<std::int64_t>(rows_.status[static_cast<std::size_t>(k)] != kAccepted);
  }

  Samples samples_;
  const Batch& batch_;
  double unit_;
  Rows rows_;
  Fed fed_;
};

// Each thread has its own aggregates.
template <class Samples>
Fed feed(const Bank& bank, const Containers& containers, const Aggregates& aggregates, const Batch& batch, double unit,
         std::ptrdiff_t threads) {
  const std::ptrdiff_t parts = std::clamp<std::ptrdiff_t>(threads, 1, kMostThreads);
  const Takers takers(containers, batch, parts);
  std::vector<Feeder<Samples>> feeders(static_cast<std::size_t>(parts),
                                       Feeder<Samples>(bank, containers, aggregates, batch, unit));
  std::vector<Fed> each(static_cast<std::size_t>(parts));
  parallel_for(parts, parts, [&](std::ptrdiff_t part, std::ptrdiff_t end) {
    for (; part < end; ++part)
      each[static_cast<std::size_t>(part)] = feeders[static_cast<std::size_t>(part)].run(takers, part);
  });
  Fed all;
  for (const Fed& one : each) {
    all.missing += one.missing;
    all.infinite += one.infinite;
    all.negative += one.negative;
    all.late += one.late;
    all.refused += one.refused;
    all.behind += one.behind;
    all.newest = std::max(all.newest, one.newest);
  }
  return all;
}

}  // namespace
}  // namespace kscale::usage
