#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kscale {

// Knapsacks in one or two dimensions, for every capacity at once: units (0..all_units) and, where there are few of
// something, parts (0..all_parts). Several tables, of the same items at other values.
//
// Of the items from `n_parted` on none takes parts: what can be had of them is the same for any number of parts, and is
// in one row.
struct KnapsackTables {
  std::ptrdiff_t n_tables = 0;
  std::ptrdiff_t n_items = 0;
  std::ptrdiff_t n_parted = 0;
  std::ptrdiff_t all_units = 0;
  std::ptrdiff_t all_parts = 0;
  const std::int32_t* units = nullptr;  // [n_items], >= 0
  const std::int32_t* parts = nullptr;  // [n_items], >= 0; 0 from n_parted on

  std::ptrdiff_t width() const { return all_units + 1; }
  std::ptrdiff_t height(std::ptrdiff_t k) const { return k < n_parted ? all_parts + 1 : 1; }
  // Rows before the first one of item k.
  std::ptrdiff_t rows(std::ptrdiff_t k) const { return k + (k < n_parted ? k : n_parted) * all_parts; }
  std::ptrdiff_t size() const { return rows(n_items + 1) * width(); }
  std::ptrdiff_t entry(std::ptrdiff_t k, std::int64_t parts_left, std::int64_t units_left) const {
    return (rows(k) + (k < n_parted ? parts_left : 0)) * width() + units_left;
  }
};

// table[m, rows(k) + h, c]: the most value[m] of items k, k + 1, ... (limit[k] of each) within c units and h parts; the
// last row, of no items, is 0. No filling may be worth 2^31: half the memory of wider numbers is half the time.
// `threads` changes the time only.
void fill_tables(const KnapsackTables& shape, const std::int32_t* value, const std::int64_t* limit,
                 std::ptrdiff_t threads, std::int32_t* table);

// More than any filling of the tables is worth, for one table's `value`: by value per unit, of what takes units.
double most_of_tables(const KnapsackTables& shape, const std::int32_t* value, const std::int64_t* limit);

// Bins, each searched by itself with the tables as bounds: maximise sum(value * take), in the tables' order of items.
//
// The other resources are priced out: in table m whatever is left of resource r is taken to be worth `weight[m, r]` a
// unit, and the table, in which one stands for `worth[m]`, is of values that are at least value - weight * demand. Then no filling of what is left is worth
// more than the table's entry plus sum(weight * rest): a bound, whatever the weights are. The least of them counts.
struct TableSearch {
  KnapsackTables shape;
  const std::int32_t* table = nullptr;     // [n_tables, rows(n_items + 1), all_units + 1]
  const double* worth = nullptr;           // [n_tables], powers of two
  const double* weight = nullptr;          // [n_tables, n_resources], >= 0
  std::ptrdiff_t n_resources = 0;
  const std::int64_t* value = nullptr;     // [n_items], >= 0
  const std::int64_t* demand = nullptr;    // [n_items, n_resources], all resources
  std::ptrdiff_t n_bins = 0;
  const std::int64_t* limit = nullptr;     // [n_bins, n_items], no more than the tables are of
  const std::int64_t* capacity = nullptr;  // [n_bins, n_resources]
  const std::int64_t* units = nullptr;     // [n_bins]
  const std::int64_t* parts = nullptr;     // [n_bins]
  const std::int64_t* at_least = nullptr;  // [n_bins]: fillings that are not worth more are of no interest
  std::int64_t node_limit = 0;             // of each bin
  std::size_t keep = 1;
};

struct TableFound {
  std::int64_t best = 0;   // at_least if there is none
  std::int64_t upper = 0;  // no filling is worth more; == best unless the search was given up
  std::int64_t nodes = 0;
  std::vector<std::vector<std::int64_t>> fillings;  // each better than the one before, the last `keep`
};

// Depth first, the most of an item first. Needs sum(value * limit) < 2^52. `threads` changes the time only.
std::vector<TableFound> search_with_tables(const TableSearch& search, std::ptrdiff_t threads);

}  // namespace kscale
