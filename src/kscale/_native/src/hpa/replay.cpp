#include "kscale/hpa/replay.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

namespace kscale::hpa {
namespace {

// Milli-units as in Quantity.MilliValue: rounded away from zero.
std::int64_t milli(double amount) noexcept {
  const double scaled = amount * 1000.0;
  return to_int64(scaled < 0 ? std::floor(scaled) : std::ceil(scaled));
}

// Returns whether a metric is read per pod; otherwise it is one value of another object.
bool of_pods(Mode mode) noexcept { return mode == Mode::utilization || mode == Mode::usage; }

// Returns the load of the last sample not after t; before the first one, that of the first.
class Load {
 public:
  Load(const std::int64_t* times, const double* load, std::ptrdiff_t n) noexcept : times_(times), load_(load), n_(n) {}
  double at(std::int64_t t) noexcept {
    while (next_ < n_ && times_[next_] <= t) ++next_;
    return load_[next_ == 0 ? 0 : next_ - 1];
  }

 private:
  const std::int64_t* times_;
  const double* load_;
  std::ptrdiff_t n_, next_ = 0;
};

// A deleted pod.
struct Gone {
  std::int64_t ready_at, at;
};

// Slots of a history that grow as needed.
struct Log {
  std::vector<std::int32_t> values;
  std::vector<std::int64_t> times;
  std::vector<std::uint8_t> outdated;
  std::int64_t begin = 0, capacity = 0, size = 0;
  void reserve() {
    if (size + 2 <= capacity) return;
    capacity = 2 * size + 8;
    values.resize(static_cast<std::size_t>(capacity));
    times.resize(static_cast<std::size_t>(capacity));
    outdated.resize(static_cast<std::size_t>(capacity));
  }
  Slots slots() noexcept { return {&begin, &capacity, &size}; }
};

// One row of rules as columns.
struct RulesRow {
  std::uint8_t select;
  std::int64_t begin = 0, end;
  explicit RulesRow(const Rules& rules) noexcept
      : select(static_cast<std::uint8_t>(rules.select)), end(static_cast<std::int64_t>(rules.policies.size)) {}
  RulesColumns columns(const Rules& rules) const noexcept {
    return {&select, &rules.window, &begin, &end, {rules.policies.type, rules.policies.value, rules.policies.period}};
  }
};

}  // namespace

void replay(const Replay& in, std::ptrdiff_t ticks, const ReplayColumns& out) {
  std::vector<std::int64_t> made;  // of each pod, oldest first
  std::vector<std::uint8_t> phase, deleting, ready, started, present;
  std::vector<std::int64_t> ready_at, values, sample_times, windows, requests;
  std::vector<Gone> gone;  // deleted since the time of the metrics
  const auto resize = [&](std::int32_t count, std::int64_t now, bool at_once) {
    constexpr std::int32_t most = 1'000'000;  // every pod is stored: more would need gigabytes
    if (count > most) throw std::length_error("a replay of more than 1000000 pods");
    const auto old = made.size(), n = static_cast<std::size_t>(std::max(count, 0));
    if (!at_once) {
      for (auto i = n; i < old; ++i) gone.push_back({ready_at[i], now});
    }
    made.resize(n, at_once ? now - in.startup - in.cpu_initialization - in.initial_readiness - in.lag - kSecond : now);
    phase.resize(n);
    deleting.resize(n, 0);
    ready.resize(n);
    started.resize(n, 1);
    present.resize(n);
    values.resize(n);
    sample_times.resize(n);
    windows.resize(n, in.window);
    requests.resize(n);
    ready_at.resize(n);
    for (auto i = old; i < n; ++i) ready_at[i] = made[i] + in.startup;
  };

  Log past, added, removed;
  std::uint8_t status[kConditions] = {}, reason[kConditions] = {};
  std::int64_t transition[kConditions] = {};
  std::vector<Load> loads;
  std::uint8_t object_metric = 0;
  for (std::ptrdiff_t m = 0; m < in.n_metrics; ++m) {
    const ReplayMetric& metric = in.metrics[m];
    loads.emplace_back(metric.times, metric.load, metric.samples);
    object_metric |= !of_pods(metric.mode);
  }
  std::vector<std::int32_t> proposals(loads.size());
  std::vector<std::uint8_t> errors(loads.size());
  const RulesRow up(in.up), down(in.down);
  std::uint8_t zero = 0, behavior = in.behavior, fresh = 1;
  const std::int64_t metrics_begin = 0, metrics_end = in.n_metrics;
  std::int32_t size = in.start;
  resize(size, in.begin, true);

  for (std::ptrdiff_t tick = 0; tick < ticks; ++tick) {
    const std::int64_t now = in.begin + tick * in.period, seen = now - in.lag;
    if (in.recorded != nullptr) resize(size = in.recorded[tick], now, tick == 0);
    const auto pods = static_cast<std::ptrdiff_t>(made.size());
    std::int32_t ready_now = 0, ready_then = 0;
    for (std::size_t i = 0; i < made.size(); ++i) {
      const bool is_ready = ready_at[i] <= now, was_ready = ready_at[i] <= seen;
      phase[i] = static_cast<std::uint8_t>(is_ready ? Phase::running : Phase::pending);
      ready[i] = static_cast<std::uint8_t>(is_ready ? Ready::yes : Ready::no);
      present[i] = was_ready;
      ready_now += is_ready;
      ready_then += was_ready;
    }
    std::erase_if(gone, [&](const Gone& pod) { return pod.at <= seen; });
    const auto serving = ready_then + std::count_if(gone.begin(), gone.end(), [&](const Gone& pod) {
                           return pod.ready_at <= seen;
                         });
    std::fill(sample_times.begin(), sample_times.end(), seen);
    for (std::size_t m = 0; m < loads.size(); ++m) {
      const ReplayMetric& metric = in.metrics[m];
      const double amount = loads[m].at(seen);
      const std::int64_t whole = milli(amount);
      if (of_pods(metric.mode)) {
        const std::int64_t each = milli(serving > 0 ? amount / static_cast<double>(serving) : 0.0);
        std::fill(values.begin(), values.end(), each);
        std::fill(requests.begin(), requests.end(), metric.request);
      }
      const bool sampled = !of_pods(metric.mode) || ready_then > 0;
      const Row row{metric.mode, metric.cpu, sampled ? Error::none : Error::no_metrics, size, metric.target,
                    in.tolerances, 0,        pods, 0, 0, -1, 0, 0, 0, 1};
      const Answer answer = replicas(row, {phase.data(), deleting.data(), ready.data(), started.data(), made.data(),
                                           ready_at.data()},
                                     {present.data(), values.data(), sample_times.data(), windows.data()},
                                     requests.data(), &whole,
                                     {now, in.cpu_initialization, in.initial_readiness, in.release});
      proposals[m] = answer.replicas;
      errors[m] = answer.error == Error::none ? 0 : 1;
      out.usage[tick * in.n_metrics + static_cast<std::ptrdiff_t>(m)] = answer.usage;
    }
    past.reserve();
    added.reserve();
    removed.reserve();
    const DecideInput given{
        {&zero, &size, &in.minimum, &in.maximum, &object_metric, &behavior, &zero, &zero, &fresh, &metrics_begin, &metrics_end},
        {proposals.data(), errors.data()},
        up.columns(in.up),
        down.columns(in.down),
        {now, in.downscale_window, in.scale_to_zero, in.release != Release::current}};
    const Histories histories{{past.slots(), past.values.data(), past.times.data()},
                              {added.slots(), added.values.data(), added.times.data(), added.outdated.data()},
                              {removed.slots(), removed.values.data(), removed.times.data(), removed.outdated.data()}};
    std::int32_t desired, proposal, stabilized, best, invalid, first_invalid;
    std::uint8_t branch, rescaled, why, events, error_class, held;
    decide_row(given, 0, histories, {status, reason, transition},
               {&branch, &desired, &proposal, &stabilized, &best, &invalid, &first_invalid, &rescaled, &why, &events,
                &error_class, &held});
    fresh = 0;
    out.replicas[tick] = size;
    out.ready[tick] = ready_now;
    out.desired[tick] = desired;
    out.proposal[tick] = proposal;
    out.best[tick] = best;
    if (in.recorded == nullptr && desired != size) resize(size = desired, now, false);
  }
}

}  // namespace kscale::hpa
