#include "kscale/knapsack_table.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kscale/dispatch.hpp"
#include "kscale/parallel.hpp"

namespace kscale {
namespace {

// to[i] = max(from[i], less[i] + value): the loop on which everything below is based.
KSCALE_CLONED void best_of(const std::int32_t* from, const std::int32_t* less, std::int32_t value, std::ptrdiff_t n,
                           std::int32_t* to) {
  for (std::ptrdiff_t i = 0; i < n; ++i) to[i] = std::max(from[i], less[i] + value);
}

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

constexpr double kMostValue = 9007199254740992.0;  // 2^53: upper limit of the value of a filling

// The results of the items after one, and the destination of the results with it: rows of `width` entries, one for each
// number of parts. `step`: from one row of `from` to the next; 0 if one row serves all.
struct Rows {
  std::ptrdiff_t width;
  std::ptrdiff_t height;
  std::ptrdiff_t step;
  const std::int32_t* from;
  std::int32_t* to;
};

// One item that is available once.
void once(const Rows& rows, std::int64_t units, std::int64_t parts, std::int32_t value) {
  for (std::ptrdiff_t h = 0; h < rows.height; ++h) {
    const std::int32_t* row = rows.from + h * rows.step;
    std::int32_t* out = rows.to + h * rows.width;
    if (h < parts || units >= rows.width) {
      std::copy(row, row + rows.width, out);
      continue;
    }
    std::copy(row, row + units, out);
    at_cpu_level<best_of>(row + units, rows.from + (h - parts) * rows.step, value, rows.width - units, out + units);
  }
}

// One item without a limit: every entry may extend one that contains the item already.
void unlimited(const Rows& rows, std::int64_t units, std::int64_t parts, std::int32_t value) {
  for (std::ptrdiff_t h = 0; h < rows.height; ++h) {
    const std::int32_t* row = rows.from + h * rows.step;
    std::int32_t* out = rows.to + h * rows.width;
    if (h < parts || units >= rows.width) {
      std::copy(row, row + rows.width, out);
      continue;
    }
    std::copy(row, row + units, out);
    const std::int32_t* less = rows.to + (h - parts) * rows.width;
    if (parts > 0) {
      at_cpu_level<best_of>(row + units, less, value, rows.width - units, out + units);
      continue;
    }
    // In one row: blocks as wide as the item extend the block before.
    for (std::ptrdiff_t at = units; at < rows.width; at += units)
      at_cpu_level<best_of>(row + at, less + at - units, value, std::min<std::ptrdiff_t>(units, rows.width - at), out + at);
  }
}

void fill_table(const KnapsackTables& shape, const std::int32_t* value, const std::int64_t* limit, std::int32_t* spare,
                std::int32_t* table) {
  const std::ptrdiff_t width = shape.width();
  std::fill(table + shape.entry(shape.n_items, 0, 0), table + shape.size(), 0);
  for (std::ptrdiff_t k = shape.n_items - 1; k >= 0; --k) {
    const std::ptrdiff_t height = shape.height(k);
    std::int32_t* out = table + shape.entry(k, 0, 0);
    Rows rows{width, height, shape.height(k + 1) == height ? width : 0, out + height * width, out};
    const auto copied = [&] {
      for (std::ptrdiff_t h = 0; h < height; ++h)
        std::copy(rows.from + h * rows.step, rows.from + h * rows.step + width, out + h * width);
    };
    const std::int64_t s = shape.units[k], g = shape.parts[k];
    std::int64_t left = limit[k], room = kMost;  // room: how many the largest bin holds
    if (s > 0) room = std::min<std::int64_t>(room, shape.all_units / s);
    if (g > 0) room = std::min<std::int64_t>(room, shape.all_parts / g);
    if (left == 0 || room == 0 || value[k] == 0) {
      copied();
      continue;
    }
    if (room <= left) {
      unlimited(rows, s, g, value[k]);
      continue;
    }
    // 1, 2, 4, ... and the remainder: every number of copies is a sum of some of these.
    std::int32_t* other = spare;
    for (std::int64_t copies = 1; left > 0; copies *= 2) {
      const std::int64_t m = std::min(copies, left);
      left -= m;
      once(rows, s * m, g * m, static_cast<std::int32_t>(value[k] * m));  // number of copies that fit the largest bin
      rows.from = rows.to;
      rows.step = width;
      std::swap(rows.to, other);
    }
    if (rows.from != out) copied();
  }
}

class Descent {
 public:
  Descent(const TableSearch& search, std::ptrdiff_t bin)
      : s_(search),
        limit_(search.limit + bin * search.shape.n_items),
        rest_(search.capacity + bin * search.n_resources, search.capacity + (bin + 1) * search.n_resources) {
    found_.best = search.at_least[bin];
    for (std::ptrdiff_t k = 0; k < s_.shape.n_items; ++k)
      if (limit_[k] > 0 && s_.value[k] > 0) item_.push_back(k);
    take_.assign(item_.size(), 0);
    for (std::ptrdiff_t m = 0; m < s_.shape.n_tables; ++m) order_.push_back(m);
    for (std::size_t r = 0; r < rest_.size(); ++r)
      for (const std::ptrdiff_t m : order_)
        if (s_.weight[m * s_.n_resources + static_cast<std::ptrdiff_t>(r)] != 0) {
          priced_.push_back(r);
          break;
        }
  }

  TableFound run(std::int64_t units, std::int64_t parts) {
    descend(0, 0, units, parts);
    found_.upper = std::max(found_.upper, found_.best);
    return std::move(found_);
  }

 private:
  std::int64_t fits(std::ptrdiff_t k, std::int64_t units, std::int64_t parts) const {
    if (s_.shape.units[k] > units || s_.shape.parts[k] > parts) return 0;  // avoids divisions for items that do not fit
    const std::int64_t* demand = s_.demand + k * s_.n_resources;
    for (std::size_t r = 0; r < rest_.size(); ++r)
      if (demand[r] > rest_[r]) return 0;
    std::int64_t most = limit_[k];
    if (s_.shape.units[k] > 0) most = std::min(most, units / s_.shape.units[k]);
    if (s_.shape.parts[k] > 0) most = std::min(most, parts / s_.shape.parts[k]);
    for (std::size_t r = 0; r < rest_.size(); ++r)
      if (demand[r] > 0) most = std::min(most, rest_[r] / demand[r]);
    return most;
  }

  // Returns the lowest bound of the tables, or one below `enough`: the table with the last such bound is tried first.
  double bound(std::ptrdiff_t k, std::int64_t units, std::int64_t parts, double enough) {
    const std::int32_t* entry = s_.table + s_.shape.entry(k, parts, units);
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < order_.size(); ++i) {
      const std::ptrdiff_t m = order_[i];
      const double* weight = s_.weight + m * s_.n_resources;
      double left = static_cast<double>(entry[m * s_.shape.size()]) * s_.worth[m];
      for (const std::size_t r : priced_) left += weight[r] * static_cast<double>(rest_[r]);
      // Sums of a few doubles below 2^53: inflated by far more than their rounding errors.
      least = std::min(least, left * (1.0 + 1e-12) + 1e-3);
      if (least < enough) {
        std::swap(order_[i], order_[0]);
        break;
      }
    }
    return least;
  }

  void keep(std::int64_t value) {
    found_.best = value;
    std::vector<std::int64_t> filling(static_cast<std::size_t>(s_.shape.n_items), 0);
    for (std::size_t i = 0; i < item_.size(); ++i) filling[static_cast<std::size_t>(item_[i])] = take_[i];
    if (found_.fillings.size() == s_.keep) found_.fillings.erase(found_.fillings.begin());
    found_.fillings.push_back(std::move(filling));
  }

  // Searches everything that can follow once the items before position `first` are decided and worth `value`.
  void descend(std::size_t first, std::int64_t value, std::int64_t units, std::int64_t parts) {
    if (value > found_.best) keep(value);
    for (std::size_t i = first; i < item_.size(); ++i) {
      const std::ptrdiff_t k = item_[i];
      const double missing = static_cast<double>(found_.best + 1 - value);
      const double most_more = bound(k, units, parts, missing);
      if (most_more < missing) return;
      const std::int64_t most = fits(k, units, parts);
      if (most == 0) continue;
      if (++found_.nodes > s_.node_limit) {
        const double reachable = std::min(std::floor(most_more), kMostValue);
        found_.upper = std::max(found_.upper, value + static_cast<std::int64_t>(reachable));
        return;
      }
      take_[i] = most;
      move(k, most);
      for (; take_[i] > 0; --take_[i]) {
        descend(i + 1, value + take_[i] * s_.value[k], units - take_[i] * s_.shape.units[k],
                parts - take_[i] * s_.shape.parts[k]);
        move(k, -1);
      }
    }
  }

  void move(std::ptrdiff_t k, std::int64_t n) {
    const std::int64_t* demand = s_.demand + k * s_.n_resources;
    for (std::size_t r = 0; r < rest_.size(); ++r) rest_[r] -= n * demand[r];
  }

  const TableSearch& s_;
  const std::int64_t* limit_;
  std::vector<std::int64_t> rest_, take_;
  std::vector<std::ptrdiff_t> item_;  // position -> item of the tables
  std::vector<std::ptrdiff_t> order_;  // order in which the tables are used
  std::vector<std::size_t> priced_;    // resources that some table prices
  TableFound found_;
};

}  // namespace

double most_of_tables(const KnapsackTables& shape, const std::int32_t* value, const std::int64_t* limit) {
  double dense = 0, loose = 0, all = 0;
  for (std::ptrdiff_t k = 0; k < shape.n_items; ++k) {
    if (shape.units[k] > shape.all_units || shape.parts[k] > shape.all_parts) continue;
    const double one = value[k], every = one * static_cast<double>(limit[k]);
    all += every;
    if (shape.units[k] > 0 && limit[k] > 0)
      dense = std::max(dense, one / static_cast<double>(shape.units[k]));
    else
      loose += every;
  }
  return std::min(all, dense * static_cast<double>(shape.all_units) + loose) + 1.0;
}

void fill_tables(const KnapsackTables& shape, const std::int32_t* value, const std::int64_t* limit,
                 std::ptrdiff_t threads, std::int32_t* table) {
  parallel_each(shape.n_tables, threads, [&] {
    return [&, spare = std::vector<std::int32_t>(static_cast<std::size_t>(shape.height(0) * shape.width()))](std::ptrdiff_t m) mutable {
      fill_table(shape, value + m * shape.n_items, limit, spare.data(), table + m * shape.size());
    };
  });
}

std::vector<TableFound> search_with_tables(const TableSearch& search, std::ptrdiff_t threads) {
  std::vector<TableFound> found(static_cast<std::size_t>(search.n_bins));
  parallel_each(search.n_bins, threads, [&] {
    return [&](std::ptrdiff_t bin) {
      found[static_cast<std::size_t>(bin)] = Descent(search, bin).run(search.units[bin], search.parts[bin]);
    };
  });
  return found;
}

}  // namespace kscale
