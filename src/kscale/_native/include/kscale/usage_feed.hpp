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

// From rows of recorded usage to samples: amounts, what is left out, and who takes in what.

namespace kscale::usage {
namespace {

// out[i] = amount(value[i] * unit); false if some value is not a plain number from 0 on.
KSCALE_CLONES bool plain_amounts(const double* value, std::ptrdiff_t n, double unit, std::int64_t* out) noexcept {
  std::int64_t bad = 0;
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const double x = value[i] * unit;
    const bool good = x >= 0 && x <= kMaxAmount;
    bad |= static_cast<std::int64_t>(!good);
    out[i] = static_cast<std::int64_t>(good ? x : 0.0);
  }
  return bad == 0;
}

KSCALE_CLONES Time latest_of(const Time* time, std::ptrdiff_t n) noexcept {
  Time latest = time[0];
  for (std::ptrdiff_t i = 1; i < n; ++i) latest = time[i] > latest ? time[i] : latest;
  return latest;
}

KSCALE_CLONES std::int64_t later_than(const Time* time, std::ptrdiff_t n, Time now) noexcept {
  std::int64_t count = 0;
  for (std::ptrdiff_t i = 0; i < n; ++i) count += static_cast<std::int64_t>(time[i] > now);
  return count;
}

// Rows of one series, at most kMost, without those that hold no number.
struct Rows {
  static constexpr std::ptrdiff_t kMost = 1024;
  std::array<std::int64_t, kMost> amount;
  std::array<Time, kMost> times;
  std::array<std::uint8_t, kMost> status;
  const Time* time = nullptr;

  // How many are left.
  std::ptrdiff_t read(const double* value, const Time* given, std::ptrdiff_t n, double unit, bool placed,
                      Fed& fed) noexcept {
    time = given;
    if (plain_amounts(value, n, unit, amount.data())) return n;
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

// `Samples` takes in amounts of one container after the other; each thread has its own aggregates.
template <class Samples>
Fed feed(const Bank& bank, const Containers& containers, const Aggregates& aggregates, const Batch& batch, double unit,
         std::ptrdiff_t threads) {
  const std::ptrdiff_t parts = std::clamp<std::ptrdiff_t>(threads, 1, kMostThreads);
  std::vector<std::uint8_t> owner(static_cast<std::size_t>(batch.n_series));
  for (std::size_t s = 0; s < owner.size(); ++s)
    owner[s] = static_cast<std::uint8_t>(batch.slot[s] < 0 ? 0 : containers.aggregate[batch.slot[s]] % parts);
  std::vector<Fed> each(static_cast<std::size_t>(parts));
  std::vector<Rows> buffers(static_cast<std::size_t>(parts));
  parallel_for(parts, parts, [&](std::ptrdiff_t part, std::ptrdiff_t end) {
    Samples samples(bank, containers, aggregates);
    for (; part < end; ++part) {
      Fed fed;
      Rows& rows = buffers[static_cast<std::size_t>(part)];
      std::ptrdiff_t next = 0;
      for (std::ptrdiff_t i = 0; i < batch.rows; i = next) {
        const std::int32_t s = batch.series[i];
        next = run_end(batch.series, i, std::min(batch.rows, i + Rows::kMost));
        const std::int32_t slot = batch.slot[s];
        if (slot == kUnasked || owner[static_cast<std::size_t>(s)] != part) continue;
        fed.newest = std::max(fed.newest, latest_of(batch.time + i, next - i));
        const bool placed = slot != kUnplaced;
        const std::ptrdiff_t n = rows.read(batch.value + i, batch.time + i, next - i, unit, placed, fed);
        batch.finite[s] += n;
        if (!placed || n == 0) continue;
        if (batch.now != std::numeric_limits<Time>::max()) fed.late += later_than(rows.time, n, batch.now);
        Time latest = samples.last(slot);
        samples.add(slot, rows.time, rows.amount.data(), n, rows.status.data());
        if (std::find_if(rows.status.data(), rows.status.data() + n, [](auto one) { return one != kAccepted; }) ==
            rows.status.data() + n)
          continue;
        for (std::ptrdiff_t k = 0; k < n; ++k) {
          if (rows.status[static_cast<std::size_t>(k)] == kAccepted) {
            latest = rows.time[k];
            continue;
          }
          ++fed.refused;
          fed.behind += static_cast<std::int64_t>(rows.time[k] < latest);
        }
      }
      samples.finish();
      each[static_cast<std::size_t>(part)] = fed;
    }
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
