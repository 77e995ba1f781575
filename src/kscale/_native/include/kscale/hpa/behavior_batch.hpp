#pragma once

#include <cstddef>
#include <cstdint>

#include "kscale/hpa/behavior.hpp"
#include "kscale/parallel.hpp"

// Normalisation and histories over columns: one row a HorizontalPodAutoscaler.
namespace kscale::hpa {

// Where the entries of a row's history lie, and how many fit before the next row's.
struct Slots {
  const std::int64_t* begin;
  const std::int64_t* capacity;
  std::int64_t* size;
};

struct RecommendationColumns {
  Slots slots;
  std::int32_t* replicas;
  std::int64_t* times;
  Recommendations row(std::ptrdiff_t i) const noexcept {
    return {replicas + slots.begin[i], times + slots.begin[i], static_cast<std::ptrdiff_t>(slots.size[i])};
  }
};

struct EventColumns {
  Slots slots;
  std::int32_t* changes;
  std::int64_t* times;
  std::uint8_t* outdated;
  ScaleEvents row(std::ptrdiff_t i) const noexcept {
    const std::int64_t begin = slots.begin[i];
    return {changes + begin, times + begin, outdated + begin, static_cast<std::ptrdiff_t>(slots.size[i])};
  }
};

struct PolicyColumns {
  const std::uint8_t* type;
  const std::int32_t* value;
  const std::int32_t* period;
};

struct RulesColumns {
  const std::uint8_t* select;
  const std::int32_t* window;
  const std::int64_t* begin;
  const std::int64_t* end;
  PolicyColumns policies;
  Policies of(std::ptrdiff_t i) const noexcept {
    return {policies.type + begin[i], policies.value + begin[i], policies.period + begin[i],
            static_cast<std::ptrdiff_t>(end[i] - begin[i])};
  }
  Rules row(std::ptrdiff_t i) const noexcept { return {static_cast<SelectPolicy>(select[i]), window[i], of(i)}; }
};

struct SizeColumns {
  const std::uint8_t* active;    // rows that are normalised at all
  const std::uint8_t* behavior;  // spec.behavior is set
  const std::int32_t* current;
  const std::int32_t* proposal;
  const std::int32_t* minimum;
  const std::int32_t* maximum;
};

struct NormalizedColumns {
  std::int32_t* stabilized;
  std::int32_t* desired;
  std::uint8_t* held;
  std::uint8_t* limit;
  std::uint8_t* limited;
};

// Each row's history must have room for two more entries: a first pass records the current size, then its proposal.
inline void normalize_rows(const SizeColumns& sizes, std::ptrdiff_t n, const RulesColumns& up, const RulesColumns& down,
                           const RecommendationColumns& past, const EventColumns& added, const EventColumns& removed,
                           std::int64_t downscale_window, std::int64_t now, std::ptrdiff_t threads,
                           const NormalizedColumns& out) {
  parallel_for(n, threads, [=](std::ptrdiff_t begin, std::ptrdiff_t end) {
    for (std::ptrdiff_t i = begin; i < end; ++i) {
      Normalized row{sizes.current[i], sizes.current[i], Stabilized::none, Limit::within, false};
      if (sizes.active[i]) {
        Recommendations recommendations = past.row(i);
        if (sizes.behavior[i])
          row = normalize(sizes.current[i], sizes.proposal[i], sizes.minimum[i], sizes.maximum[i], recommendations,
                          up.row(i), down.row(i), added.row(i), removed.row(i), now);
        else
          row = normalize_plain(sizes.current[i], sizes.proposal[i], sizes.minimum[i], sizes.maximum[i],
                                 recommendations, downscale_window, now);
        past.slots.size[i] = recommendations.size;
      }
      out.stabilized[i] = row.stabilized;
      out.desired[i] = row.desired;
      out.held[i] = static_cast<std::uint8_t>(row.held);
      out.limit[i] = static_cast<std::uint8_t>(row.limit);
      out.limited[i] = row.limited;
    }
  });
}

// Store the change of size of every row that has a behavior and was rescaled.
inline void store_events(const std::uint8_t* rescaled, const std::int32_t* before, const std::int32_t* after,
                         std::ptrdiff_t n, const RulesColumns& up, const RulesColumns& down, const EventColumns& added,
                         const EventColumns& removed, std::int64_t now) noexcept {
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    if (!rescaled[i]) continue;
    const bool grows = after[i] > before[i];
    const EventColumns& events = grows ? added : removed;
    ScaleEvents row = events.row(i);
    store_event(row, (grows ? up : down).of(i), grows ? after[i] - before[i] : before[i] - after[i], now);
    events.slots.size[i] = row.size;
  }
}

inline bool valid_slots(const Slots& slots, std::ptrdiff_t n, std::int64_t entries) noexcept {
  std::int64_t free_from = 0;  // rows may not overlap
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const std::int64_t begin = slots.begin[i], capacity = slots.capacity[i], size = slots.size[i];
    if (begin < free_from || capacity < 2 || begin > entries || capacity > entries - begin || size < 0 ||
        size > capacity - 2)
      return false;
    free_from = begin + capacity;
  }
  return true;
}

inline bool valid_rules(const RulesColumns& rules, std::ptrdiff_t n, std::int64_t policies) noexcept {
  for (std::ptrdiff_t i = 0; i < n; ++i)
    if (rules.select[i] > 2 || rules.begin[i] < 0 || rules.end[i] < rules.begin[i] || rules.end[i] > policies)
      return false;
  return true;
}

}  // namespace kscale::hpa
