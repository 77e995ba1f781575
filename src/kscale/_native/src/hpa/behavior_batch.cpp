#include "kscale/hpa/behavior_batch.hpp"

#include "kscale/parallel.hpp"

namespace kscale::hpa {

void normalize_rows(const SizeColumns& sizes, std::ptrdiff_t n, const RulesColumns& up, const RulesColumns& down,
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

void store_events(const std::uint8_t* rescaled, const std::int32_t* before, const std::int32_t* after,
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

bool valid_slots(const Slots& slots, std::ptrdiff_t n, std::int64_t entries) noexcept {
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

bool valid_rules(const RulesColumns& rules, std::ptrdiff_t n, std::int64_t policies) noexcept {
  for (std::ptrdiff_t i = 0; i < n; ++i)
    if (rules.select[i] > 2 || rules.begin[i] < 0 || rules.end[i] < rules.begin[i] || rules.end[i] > policies)
      return false;
  return true;
}

}  // namespace kscale::hpa
