#include "kscale/knapsack.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace kscale {
namespace {

// Bounds are sums of at most a few thousand non-negative doubles, each correct to a few units in the last place: relative
// error < 1e-11. Inflating by more than that makes the rounded-down bound a true upper bound.
constexpr double kInflate = 1.0 + 1e-9;
constexpr double kUnlimited = std::numeric_limits<double>::infinity();

class Search {
 public:
  Search(const KnapsackProblem& problem, const KnapsackEffort& effort)
      : problem_(problem), effort_(effort), rest_(problem.capacity, problem.capacity + problem.n_resources) {
    result_.best = problem.at_least;
    prepare();
  }

  KnapsackResult run() {
    take_.assign(order_.size(), 0);
    descend(0, 0);
    result_.upper = std::max(result_.upper, result_.best);
    return std::move(result_);
  }

 private:
  std::size_t resources() const { return static_cast<std::size_t>(problem_.n_resources); }

  // Copies of an item that fit in what is left, by the resources alone.
  std::int64_t fits(std::size_t item) const {
    std::int64_t most = limit_[item];
    const std::int64_t* demand = &demand_[item * resources()];
    for (std::size_t r = 0; r < resources(); ++r)
      if (demand[r] > 0) most = std::min(most, rest_[r] / demand[r]);
    return most;
  }

  bool fits_one(std::size_t item) const {
    const std::int64_t* demand = &demand_[item * resources()];
    for (std::size_t r = 0; r < resources(); ++r)
      if (demand[r] > rest_[r]) return false;
    return true;
  }

  // Items worth taking, sorted by value per surrogate weight of the first multipliers.
  void prepare() {
    const auto n = static_cast<std::size_t>(problem_.n_items);
    const auto n_multipliers = static_cast<std::size_t>(problem_.n_multipliers);
    std::vector<std::vector<double>> weights(n_multipliers, std::vector<double>(n));
    for (std::size_t m = 0; m < n_multipliers; ++m)
      for (std::size_t k = 0; k < n; ++k)
        for (std::size_t r = 0; r < resources(); ++r)
          weights[m][k] += problem_.multipliers[m * resources() + r] * static_cast<double>(problem_.demand[k * resources() + r]);

    const auto efficiency = [&](std::size_t m, std::size_t k) {
      return weights[m][k] > 0 ? static_cast<double>(problem_.value[k]) / weights[m][k] : kUnlimited;
    };
    for (std::size_t k = 0; k < n; ++k)
      if (problem_.value[k] > 0 && problem_.limit[k] > 0) order_.push_back(k);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t a, std::size_t b) { return efficiency(0, a) > efficiency(0, b); });

    const std::size_t items = order_.size();
    weight_.assign(n_multipliers * items, 0);
    by_efficiency_.assign(n_multipliers, {});
    for (std::size_t i = 0; i < items; ++i) {
      const std::size_t k = order_[i];
      value_.push_back(problem_.value[k]);
      limit_.push_back(problem_.limit[k]);
      for (std::size_t r = 0; r < resources(); ++r) demand_.push_back(problem_.demand[k * resources() + r]);
      for (std::size_t m = 0; m < n_multipliers; ++m) weight_[m * items + i] = weights[m][k];
    }
    for (std::size_t m = 0; m < n_multipliers; ++m) {
      by_efficiency_[m].resize(items);
      std::iota(by_efficiency_[m].begin(), by_efficiency_[m].end(), std::size_t{0});
      std::stable_sort(by_efficiency_[m].begin(), by_efficiency_[m].end(),
                       [&](std::size_t a, std::size_t b) { return efficiency(m, order_[a]) > efficiency(m, order_[b]); });
    }
  }

  // An upper bound on what the items from `first` on can add: the least over the multipliers of the continuous
  // relaxation of that one surrogate constraint, over the items that still fit at all.
  double bound(std::size_t first, double enough) const {
    double least = kUnlimited;
    const std::size_t items = order_.size();
    for (std::size_t m = 0; m < by_efficiency_.size(); ++m) {
      double room = 0;
      for (std::size_t r = 0; r < resources(); ++r)
        room += problem_.multipliers[m * resources() + r] * static_cast<double>(rest_[r]);
      double sum = 0;
      for (const std::size_t i : by_efficiency_[m]) {
        if (i < first) continue;
        const std::int64_t most = fits(i);
        if (most == 0) continue;
        const double all = static_cast<double>(most) * weight_[m * items + i];
        if (all <= room) {
          room -= all;
          sum += static_cast<double>(value_[i]) * static_cast<double>(most);
        } else {
          sum += static_cast<double>(value_[i]) * (room / weight_[m * items + i]);
          break;
        }
      }
      // `room` loses absolute precision as it shrinks; the lost part is below 1e-11 of the whole, hence the inflation.
      least = std::min(least, sum * kInflate + 1e-6);
      if (least < enough) break;
    }
    return least;
  }

  void keep_solution(std::int64_t value) {
    result_.best = value;
    std::vector<std::int64_t> solution(static_cast<std::size_t>(problem_.n_items), 0);
    for (std::size_t i = 0; i < order_.size(); ++i) solution[order_[i]] = take_[i];
    if (result_.solutions.size() == effort_.keep) result_.solutions.erase(result_.solutions.begin());
    result_.solutions.push_back(std::move(solution));
  }

  // Everything that can follow once items before `first` are decided and are worth `value`.
  void descend(std::size_t first, std::int64_t value) {
    if (value > result_.best) keep_solution(value);
    for (std::size_t i = first; i < order_.size(); ++i) {
      if (!fits_one(i)) continue;
      const double missing = static_cast<double>(result_.best + 1 - value);
      const double more = bound(i, missing);
      if (more < missing) return;
      const bool found = !result_.solutions.empty();
      if (++result_.nodes > (found ? std::min(effort_.node_limit, effort_.patience) : effort_.node_limit)) {
        result_.upper = std::max(result_.upper, value + static_cast<std::int64_t>(std::floor(more)));
        return;
      }
      const std::int64_t most = fits(i);
      const std::int64_t* demand = &demand_[i * resources()];
      take_[i] = most;
      for (std::size_t r = 0; r < resources(); ++r) rest_[r] -= most * demand[r];
      for (; take_[i] > 0; --take_[i]) {
        descend(i + 1, value + take_[i] * value_[i]);
        for (std::size_t r = 0; r < resources(); ++r) rest_[r] += demand[r];
      }
    }
  }

  const KnapsackProblem& problem_;
  const KnapsackEffort& effort_;
  std::vector<std::int64_t> rest_;
  std::vector<std::size_t> order_;  // position -> item
  std::vector<std::int64_t> value_, limit_, demand_, take_;
  std::vector<double> weight_;
  std::vector<std::vector<std::size_t>> by_efficiency_;
  KnapsackResult result_;
};

}  // namespace

KnapsackResult solve_knapsack(const KnapsackProblem& problem, const KnapsackEffort& effort) {
  return Search(problem, effort).run();
}

}  // namespace kscale
