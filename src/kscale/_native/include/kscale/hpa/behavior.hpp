#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kscale/numeric.hpp"

// From the proposal of the metrics to the written replicas: stabilization windows, rate limits, and their histories.
// `plain`: for HPAs without a behavior. Upstream: horizontal.go, normalizeDesiredReplicas,
// normalizeDesiredReplicasWithBehaviors, storeScaleEvent.
namespace kscale::hpa {

inline constexpr std::int64_t kSecond = 1'000'000'000;

enum class PolicyType : std::uint8_t { pods, percent, other };
enum class SelectPolicy : std::uint8_t { max, min, disabled };

enum class Stabilized : std::uint8_t { none, up, down };  // ReadyForNewScale, ScaleUpStabilized, ScaleDownStabilized
enum class Limit : std::uint8_t { within, too_few, too_many, up_rate, down_rate };

// Past recommendations, in slot order. The owner provides room for one more.
struct Recommendations {
  std::int32_t* replicas;
  std::int64_t* times;
  std::ptrdiff_t size;

  // Stores in the slot that no window covers anymore, or after the others.
  void store(std::ptrdiff_t slot, std::int32_t proposal, std::int64_t now) noexcept {
    if (slot < 0) slot = size++;
    replicas[slot] = proposal;
    times[slot] = now;
  }
};

// Scale events of one direction, in slot order. The owner provides room for one more.
struct ScaleEvents {
  std::int32_t* changes;
  std::int64_t* times;
  std::uint8_t* outdated;
  std::ptrdiff_t size;
};

struct Policies {
  const std::uint8_t* type;
  const std::int32_t* value;
  const std::int32_t* period;  // seconds
  std::ptrdiff_t size;
};

struct Rules {
  SelectPolicy select;
  std::int32_t window;  // seconds
  Policies policies;
};

struct Limited {
  std::int32_t replicas;
  Limit reason;
};

inline std::int32_t stabilize_plain(std::int32_t proposal, Recommendations& past, std::int64_t window,
                                     std::int64_t now) noexcept {
  std::int32_t best = proposal;
  std::ptrdiff_t reuse = -1;
  for (std::ptrdiff_t i = 0; i < past.size; ++i) {
    if (past.times[i] < now - window) reuse = i;
    else best = std::max(best, past.replicas[i]);
  }
  past.store(reuse, proposal, now);
  return best;
}

inline Limited limit_plain(std::int32_t current, std::int32_t desired, std::int32_t minimum,
                            std::int32_t maximum) noexcept {
  const std::int32_t rate = to_int32(std::max(2.0 * static_cast<double>(current), 4.0));
  const std::int32_t most = std::min(maximum, rate);
  if (desired < minimum) return {minimum, Limit::too_few};
  if (desired > most) return {most, maximum > rate ? Limit::up_rate : Limit::too_many};
  return {desired, Limit::within};
}

// Returns the current size, moved into the range that the recommendations of both windows allow.
inline std::int32_t stabilize(std::int32_t current, std::int32_t proposal, Recommendations& past, std::int32_t up_window,
                              std::int32_t down_window, std::int64_t now) noexcept {
  const std::int64_t up_since = now - up_window * kSecond, down_since = now - down_window * kSecond;
  std::int32_t low = proposal, high = proposal;
  std::ptrdiff_t reuse = -1;
  for (std::ptrdiff_t i = 0; i < past.size; ++i) {
    const std::int64_t time = past.times[i];
    if (time > up_since) low = std::min(low, past.replicas[i]);
    if (time > down_since) high = std::max(high, past.replicas[i]);
    if (time < up_since && time < down_since) reuse = i;
  }
  std::int32_t out = std::max(current, low);
  out = std::min(out, high);
  past.store(reuse, proposal, now);
  return out;
}

// Returns the sum of the changes of the last `period` seconds; the outdated flag does not matter.
inline std::int32_t changed_in(const ScaleEvents& events, std::int32_t period, std::int64_t now) noexcept {
  const std::int64_t since = now - period * kSecond;
  std::int32_t sum = 0;
  for (std::ptrdiff_t i = 0; i < events.size; ++i)
    if (events.times[i] > since) sum += events.changes[i];
  return sum;
}

// Returns the size that the policies of one direction allow now.
inline std::int32_t reachable(bool up, std::int32_t current, const Rules& rules, const ScaleEvents& added,
                              const ScaleEvents& removed, std::int64_t now) noexcept {
  if (rules.select == SelectPolicy::disabled) return current;
  const bool largest = (rules.select == SelectPolicy::max) == up;  // the biggest change down is the smallest size
  std::int32_t best = largest ? kInt32Min : kInt32Max;
  std::int32_t size = 0;  // for an unknown policy type: the result of the policy before
  for (std::ptrdiff_t i = 0; i < rules.policies.size; ++i) {
    const std::int32_t period = rules.policies.period[i], value = rules.policies.value[i];
    const std::int32_t start = current - changed_in(added, period, now) + changed_in(removed, period, now);
    const auto type = static_cast<PolicyType>(rules.policies.type[i]);
    if (type == PolicyType::pods) {
      size = up ? start + value : start - value;
    } else if (type == PolicyType::percent) {
      const double share = static_cast<double>(value) / 100;
      size = up ? to_int32(std::ceil(static_cast<double>(start) * (1 + share)))
                : to_int32(static_cast<double>(start) * (1 - share));
    }
    best = largest ? std::max(best, size) : std::min(best, size);
  }
  return best;
}

// Minimum and maximum apply only if the size changes.
inline Limited limit(std::int32_t current, std::int32_t desired, std::int32_t minimum, std::int32_t maximum,
                     const Rules& up, const Rules& down, const ScaleEvents& added, const ScaleEvents& removed,
                     std::int64_t now) noexcept {
  if (desired > current) {
    const std::int32_t rate = std::max(reachable(true, current, up, added, removed, now), current);
    const std::int32_t most = std::min(maximum, rate);
    if (desired > most) return {most, maximum > rate ? Limit::up_rate : Limit::too_many};
  } else if (desired < current) {
    const std::int32_t rate = std::min(reachable(false, current, down, added, removed, now), current);
    const std::int32_t least = std::max(minimum, rate);
    if (desired < least) return {least, minimum < rate ? Limit::down_rate : Limit::too_few};
  }
  return {desired, Limit::within};
}

// Stores a successful change. Entries older than the longest period are flagged; the last flagged one is reused.
inline void store_event(ScaleEvents& events, const Policies& policies, std::int32_t change, std::int64_t now) noexcept {
  std::int32_t longest = 0;
  for (std::ptrdiff_t i = 0; i < policies.size; ++i) longest = std::max(longest, policies.period[i]);
  std::ptrdiff_t reuse = -1;
  for (std::ptrdiff_t i = 0; i < events.size; ++i) {
    if (events.times[i] < now - longest * kSecond) events.outdated[i] = 1;
    if (events.outdated[i]) reuse = i;
  }
  if (reuse < 0) reuse = events.size++;
  events.changes[reuse] = change;
  events.times[reuse] = now;
  events.outdated[reuse] = 0;
}

struct Normalized {
  std::int32_t stabilized;
  std::int32_t desired;
  Stabilized held;
  Limit limit;
  bool limited;
};

inline Normalized normalize_plain(std::int32_t current, std::int32_t proposal, std::int32_t minimum,
                                   std::int32_t maximum, Recommendations& past, std::int64_t window,
                                   std::int64_t now) noexcept {
  const std::int32_t stabilized = stabilize_plain(proposal, past, window, now);
  const Limited limited = limit_plain(current, stabilized, minimum, maximum);
  return {stabilized, limited.replicas, stabilized != proposal ? Stabilized::down : Stabilized::none, limited.reason,
          limited.replicas != stabilized};
}

inline Normalized normalize(std::int32_t current, std::int32_t proposal, std::int32_t minimum, std::int32_t maximum,
                            Recommendations& past, const Rules& up, const Rules& down, const ScaleEvents& added,
                            const ScaleEvents& removed, std::int64_t now) noexcept {
  const std::int32_t stabilized = stabilize(current, proposal, past, up.window, down.window, now);
  const Limited limited = limit(current, stabilized, minimum, maximum, up, down, added, removed, now);
  const Stabilized held = stabilized == proposal  ? Stabilized::none
                          : proposal >= current ? Stabilized::up
                                                : Stabilized::down;
  return {stabilized, limited.replicas, held, limited.reason, limited.replicas != stabilized};
}

}  // namespace kscale::hpa
