#include "kscale/bin_pricing.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kscale/parallel.hpp"

namespace kscale {
namespace {

constexpr double kUnlimited = 1e300;
constexpr std::ptrdiff_t kSwapPartners = 24;  // number of the best items among which a third one is searched

// One bin at a time: the bounded primal simplex over the classes that may go into it, with a slack for each resource.
class Filler {
 public:
  Filler(const BinKinds& bins, const double* value)
      : bins_(bins), value_(value), rows_(static_cast<std::size_t>(bins.n_resources)) {
    scale_.resize(rows_);
    dual_.resize(rows_);
    inverse_.resize(rows_ * rows_);
    in_basis_.resize(rows_);
    level_.resize(rows_);
    column_.resize(rows_);
    direction_.resize(rows_);
    rest_.resize(rows_);
    room_.resize(rows_);
    left_.resize(rows_);
  }

  double relax(std::ptrdiff_t kind) {
    if (kind == kind_) return bound_;  // the result does not depend on anything that has changed
    kind_ = kind;
    select(kind);
    begin();
    const std::size_t patience = 20 * (item_.size() + rows_);
    for (std::size_t step = 0; step < patience; ++step)
      if (!pivot()) break;
    bound_ = bound();
    ranked_ = false;
    return bound_;
  }

  void weights(double* out) const {
    for (std::size_t r = 0; r < rows_; ++r) out[r] = dual_[r] * scale_[r];
  }

  // A filling from the relaxation: its integer part, further items by value per weight, and exchanges. `kept`: a class
  // of which one item is added first and stays, -1 = none.
  double round(int swaps, std::int32_t* out, std::ptrdiff_t kept = -1) {
    const auto found = std::find(item_.begin(), item_.end(), kept);
    kept_ = static_cast<std::size_t>(found - item_.begin());
    if (kept >= 0 && found == item_.end()) return 0;
    floor_of_relaxation();
    double worth = 0;
    for (int sweep = 0;; ++sweep) {
      fill();
      if (sweep == swaps || !exchange()) break;
    }
    for (std::size_t i = 0; i < item_.size(); ++i) {
      out[item_[i]] = static_cast<std::int32_t>(take_[i]);
      worth += price_[i] * static_cast<double>(take_[i]);
    }
    return worth;
  }

 private:
  void select(std::ptrdiff_t kind) {
    capacity_ = bins_.capacity + kind * bins_.n_resources;
    const std::int32_t* most = bins_.most + kind * bins_.n_items;
    item_.clear();
    price_.clear();
    limit_.clear();
    demand_.clear();
    for (std::ptrdiff_t k = 0; k < bins_.n_items; ++k) {
      const std::int64_t limit = std::min<std::int64_t>(most[k], bins_.count[k]);
      if (limit <= 0 || value_[k] <= 0) continue;
      item_.push_back(k);
      price_.push_back(value_[k]);
      limit_.push_back(limit);
      const std::int64_t* demand = bins_.demand + k * bins_.n_resources;
      demand_.insert(demand_.end(), demand, demand + bins_.n_resources);
    }
  }

  void begin() {
    const std::size_t n = item_.size();
    at_upper_.assign(n, 0);
    position_.assign(n + rows_, -1);
    std::fill(inverse_.begin(), inverse_.end(), 0.0);
    for (std::size_t r = 0; r < rows_; ++r) {
      scale_[r] = capacity_[r] > 0 ? 1.0 / static_cast<double>(capacity_[r]) : 1.0;
      in_basis_[r] = n + r;
      position_[n + r] = static_cast<std::ptrdiff_t>(r);
      level_[r] = static_cast<double>(capacity_[r]) * scale_[r];
      inverse_[r * rows_ + r] = 1.0;
    }
    share_.resize(n * rows_);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t r = 0; r < rows_; ++r) share_[i * rows_ + r] = static_cast<double>(demand_[i * rows_ + r]) * scale_[r];
  }

  double reduced(std::size_t i) const {
    double left = price_[i];
    for (std::size_t r = 0; r < rows_; ++r) left -= dual_[r] * share_[i * rows_ + r];
    return left;
  }

  // Returns the variable whose change gains most, or none.
  bool entering(std::size_t& which) {
    const std::size_t n = item_.size();
    for (std::size_t r = 0; r < rows_; ++r) {
      dual_[r] = 0;
      for (std::size_t b = 0; b < rows_; ++b)
        if (in_basis_[b] < n) dual_[r] += price_[in_basis_[b]] * inverse_[b * rows_ + r];
    }
    double best = 1e-12;
    bool found = false;
    for (std::size_t i = 0; i < n; ++i) {
      if (position_[i] >= 0) continue;
      const double gain = at_upper_[i] ? -reduced(i) : reduced(i);
      if (gain > 1e-13 && gain * static_cast<double>(limit_[i]) > best) {
        best = gain * static_cast<double>(limit_[i]);
        which = i;
        found = true;
      }
    }
    for (std::size_t r = 0; r < rows_; ++r)
      if (position_[n + r] < 0 && -dual_[r] > best) {
        best = -dual_[r];
        which = n + r;
        found = true;
      }
    return found;
  }

  bool pivot() {
    const std::size_t n = item_.size();
    std::size_t in = 0;
    if (!entering(in)) return false;
    for (std::size_t r = 0; r < rows_; ++r) column_[r] = in < n ? share_[in * rows_ + r] : (r == in - n ? 1.0 : 0.0);
    const bool falls = in < n && at_upper_[in];
    const double limit = in < n ? static_cast<double>(limit_[in]) : kUnlimited;
    double step = limit;
    std::size_t out = rows_;
    bool to_upper = false;
    for (std::size_t b = 0; b < rows_; ++b) {
      double d = 0;
      for (std::size_t r = 0; r < rows_; ++r) d += inverse_[b * rows_ + r] * column_[r];
      direction_[b] = d;
      const double change = falls ? -d : d;
      if (change > 1e-14 && level_[b] / change < step) {
        step = std::max(level_[b] / change, 0.0);
        out = b;
        to_upper = false;
      } else if (change < -1e-14 && in_basis_[b] < n) {
        const double most = (static_cast<double>(limit_[in_basis_[b]]) - level_[b]) / -change;
        if (most < step) {
          step = std::max(most, 0.0);
          out = b;
          to_upper = true;
        }
      }
    }
    for (std::size_t b = 0; b < rows_; ++b) level_[b] -= step * (falls ? -direction_[b] : direction_[b]);
    if (out == rows_) {
      if (in >= n) return false;
      at_upper_[in] = !at_upper_[in];
      return true;
    }
    exchange_basis(in, out, to_upper, falls ? limit - step : step);
    return true;
  }

  void exchange_basis(std::size_t in, std::size_t out, bool to_upper, double level) {
    const std::size_t leaving = in_basis_[out];
    position_[leaving] = -1;
    if (leaving < item_.size()) at_upper_[leaving] = to_upper;
    in_basis_[out] = in;
    position_[in] = static_cast<std::ptrdiff_t>(out);
    if (in < item_.size()) at_upper_[in] = 0;
    const double pivot = direction_[out];
    for (std::size_t r = 0; r < rows_; ++r) inverse_[out * rows_ + r] /= pivot;
    for (std::size_t b = 0; b < rows_; ++b) {
      if (b == out || direction_[b] == 0.0) continue;
      for (std::size_t r = 0; r < rows_; ++r) inverse_[b * rows_ + r] -= direction_[b] * inverse_[out * rows_ + r];
    }
    level_[out] = level;
  }

  // Returns the bound of the dual alone: an upper bound at any state of the simplex.
  double bound() {
    double sum = 0;
    for (std::size_t r = 0; r < rows_; ++r) {
      dual_[r] = std::max(dual_[r], 0.0);
      if (capacity_[r] > 0) sum += dual_[r];
    }
    for (std::size_t i = 0; i < item_.size(); ++i) sum += std::max(reduced(i), 0.0) * static_cast<double>(limit_[i]);
    return sum;
  }

  void floor_of_relaxation() {
    const std::size_t n = item_.size();
    if (!ranked_) rank();
    std::copy(capacity_, capacity_ + rows_, rest_.begin());
    take_.assign(n, 0);
    if (kept_ < n) put(kept_, 1);
    for (std::size_t i = 0; i < n; ++i) {
      double part = at_upper_[i] ? static_cast<double>(limit_[i]) : 0.0;
      if (position_[i] >= 0) part = std::clamp(level_[static_cast<std::size_t>(position_[i])], 0.0, static_cast<double>(limit_[i]));
      put(i, std::min(static_cast<std::int64_t>(part + 1e-9), limit_[i]) - take_[i]);
    }
  }

  // Sorts the items by value per weight, and the candidates for a third item by price.
  void rank() {
    const std::size_t n = item_.size();
    order_.resize(n);
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    density_.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      double weight = 1e-12;
      for (std::size_t r = 0; r < rows_; ++r) weight += dual_[r] * share_[i * rows_ + r];
      density_[i] = price_[i] / weight;
    }
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) { return density_[a] > density_[b]; });
    thirds_.assign(order_.begin(), order_.begin() + std::min<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(n), kSwapPartners));
    std::stable_sort(thirds_.begin(), thirds_.end(), [&](std::size_t a, std::size_t b) { return price_[a] > price_[b]; });
    ranked_ = true;
  }

  // Adds as many as fit, at most `wanted`.
  void put(std::size_t i, std::int64_t wanted) {
    if (wanted <= 0 || !within(i, rest_)) return;  // most items do not fit at all: avoids divisions for them
    for (std::size_t r = 0; r < rows_; ++r)
      if (const std::int64_t d = demand_[i * rows_ + r]; d > 0) wanted = std::min(wanted, rest_[r] / d);
    move(i, wanted);
  }

  void move(std::size_t i, std::int64_t n) {
    take_[i] += n;
    for (std::size_t r = 0; r < rows_; ++r) rest_[r] -= n * demand_[i * rows_ + r];
  }

  void fill() {
    for (const std::size_t i : order_) put(i, limit_[i] - take_[i]);
  }

  // Returns whether one item fits into some room.
  bool within(std::size_t i, const std::vector<std::int64_t>& room) const {
    for (std::size_t r = 0; r < rows_; ++r)
      if (demand_[i * rows_ + r] > room[r]) return false;
    return true;
  }

  // Makes the best exchange: one item out, another in, and a third if it fits. False if no exchange gains.
  bool exchange() {
    const std::size_t n = item_.size(), none = n;
    double best = 1e-9;
    std::size_t out = none, in = none, more = none;
    for (std::size_t a = 0; a < n; ++a) {
      if (take_[a] == (a == kept_ ? 1 : 0)) continue;
      for (std::size_t r = 0; r < rows_; ++r) room_[r] = rest_[r] + demand_[a * rows_ + r];
      some_.clear();  // candidates for the third item, without the second one
      for (const std::size_t c : thirds_)
        if (take_[c] < limit_[c] && within(c, room_)) some_.push_back(c);
      const double most = some_.empty() ? 0.0 : price_[some_[0]];
      for (std::size_t b = 0; b < n; ++b) {
        const double change = price_[b] - price_[a];
        if (change + most <= best) continue;  // for any third item
        if (b == a || take_[b] >= limit_[b] || !within(b, room_)) continue;
        for (std::size_t r = 0; r < rows_; ++r) left_[r] = room_[r] - demand_[b * rows_ + r];
        double extra = 0;
        std::size_t third = none;
        for (const std::size_t c : some_) {  // the first one that fits is the most valuable
          if (change + price_[c] <= best) break;
          if (take_[c] + (c == b) >= limit_[c] || !within(c, left_)) continue;
          extra = price_[c];
          third = c;
          break;
        }
        if (const double gain = change + extra; gain > best) {
          best = gain;
          out = a;
          in = b;
          more = third;
        }
      }
    }
    if (out == none) return false;
    move(out, -1);
    move(in, 1);
    if (more != none) move(more, 1);
    return true;
  }

  const BinKinds& bins_;
  const double* value_;
  const std::size_t rows_;
  const std::int64_t* capacity_ = nullptr;
  std::vector<std::ptrdiff_t> item_;  // position -> class
  std::vector<double> price_, share_, density_;
  std::vector<std::int64_t> limit_, demand_, take_, rest_, room_, left_;
  std::vector<double> scale_, dual_, inverse_, level_, column_, direction_;
  std::vector<std::size_t> in_basis_, order_, thirds_, some_;
  std::vector<std::ptrdiff_t> position_;  // of a variable in the basis, -1 = outside
  std::vector<char> at_upper_;
  std::ptrdiff_t kind_ = -1;  // kind of the last relaxation
  double bound_ = 0;
  bool ranked_ = false;
  std::size_t kept_ = 0;  // position of the class that must stay; n without one
};

// Number of threads with at least about 300 us of work each; starting one takes about 100.
std::ptrdiff_t busy(std::ptrdiff_t threads, std::ptrdiff_t fillings, std::ptrdiff_t items) {
  constexpr std::ptrdiff_t kShare = 10'000;  // number of checked items
  return std::clamp<std::ptrdiff_t>(fillings * items / kShare, 1, threads);
}

__extension__ using Wide = __int128;

}  // namespace

void price_bins(const BinKinds& bins, const double* value, const double* wanted, int swaps, std::ptrdiff_t threads,
                double* upper, double* weight, double* worth, std::int32_t* filling) {
  parallel_each(bins.n_kinds, busy(threads, bins.n_kinds, bins.n_items), [&] {
    return [&, filler = Filler(bins, value)](std::ptrdiff_t t) mutable {
      upper[t] = filler.relax(t);
      filler.weights(weight + t * bins.n_resources);
      worth[t] = 0;
      std::int32_t* out = filling + t * bins.n_items;
      std::fill(out, out + bins.n_items, 0);
      if (upper[t] > wanted[t]) worth[t] = filler.round(swaps, out);
    };
  });
}

void fill_around(const BinKinds& bins, const double* value, std::ptrdiff_t n, const std::int32_t* kind,
                 const std::int32_t* item, int swaps, std::ptrdiff_t threads, std::int32_t* filling) {
  std::fill(filling, filling + n * bins.n_items, 0);
  parallel_each(n, busy(threads, n, bins.n_items), [&] {
    return [&, filler = Filler(bins, value)](std::ptrdiff_t i) mutable {
      filler.relax(kind[i]);
      filler.round(swaps, filling + i * bins.n_items, item[i]);
    };
  });
}

void surrogate_bounds(const BinKinds& bins, const std::int64_t* value, const double* weight, std::int64_t* upper) {
  constexpr int kShift = 24;  // weights below 2^62, capacities below 2^60, 16 resources: sums stay below 2^127
  const Wide most = std::numeric_limits<std::int64_t>::max();
  for (std::ptrdiff_t t = 0; t < bins.n_kinds; ++t) {
    Wide sum = 0;
    std::vector<Wide> w(static_cast<std::size_t>(bins.n_resources));
    for (std::ptrdiff_t r = 0; r < bins.n_resources; ++r) {
      const double scaled = std::clamp(weight[t * bins.n_resources + r] * std::ldexp(1.0, kShift), 0.0, std::ldexp(1.0, 62));
      w[static_cast<std::size_t>(r)] = static_cast<std::int64_t>(scaled);
      sum += w[static_cast<std::size_t>(r)] * bins.capacity[t * bins.n_resources + r];
    }
    for (std::ptrdiff_t k = 0; k < bins.n_items; ++k) {
      const std::int64_t limit = std::min<std::int64_t>(bins.most[t * bins.n_items + k], bins.count[k]);
      if (limit <= 0) continue;
      Wide left = static_cast<Wide>(value[k]) << kShift;
      for (std::ptrdiff_t r = 0; r < bins.n_resources; ++r)
        left -= w[static_cast<std::size_t>(r)] * bins.demand[k * bins.n_resources + r];
      if (left > 0) sum += left * limit;
    }
    upper[t] = static_cast<std::int64_t>(std::min(sum >> kShift, most));
  }
}

}  // namespace kscale
