#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kscale {

// Knapsacks in one or two dimensions, for every capacity at once: units (0..all_units) and, for a scarce resource,
// parts (0..all_parts). Several tables have the same items with other values. Items from `n_parted` on take no parts:
// their results are the same for any number of parts, and are stored in one row.
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
  // Number of rows before the first one of item k.
  std::ptrdiff_t rows(std::ptrdiff_t k) const { return k + (k < n_parted ? k : n_parted) * all_parts; }
  std::ptrdiff_t size() const { return rows(n_items + 1) * width(); }
  std::ptrdiff_t entry(std::ptrdiff_t k, std::int64_t parts_left, std::int64_t units_left) const {
    return (rows(k) + (k < n_parted ? parts_left : 0)) * width() + units_left;
  }
};

// table[m, rows(k) + h, c]: the maximum value[m] of items k, k + 1, ... (limit[k] of each) within c units and h parts;
// the last row, of no items, is 0. No filling may be worth 2^31: entries of half the size take half the memory and
// time. `threads` changes only the time.
void fill_tables(const KnapsackTables& shape, const std::int32_t* value, const std::int64_t* limit,
                 std::ptrdiff_t threads, std::int32_t* table);

// Returns an upper bound of the value of any filling of the tables, for one table's `value`: by value per unit.
double most_of_tables(const KnapsackTables& shape, const std::int32_t* value, const std::int64_t* limit);

// Bins, each searched separately with the tables as bounds: maximize sum(value * take), in the tables' order of items.
// The other resources are priced: in table m a unit of the rest of resource r is worth `weight[m, r]`, and the table,
// in which 1 stands for `worth[m]`, has values that are at least value - weight * demand. Then no filling of the rest
// is worth more than the table's entry plus sum(weight * rest): a bound for any weights. The lowest of these bounds
// counts.
struct TableSearch {
  KnapsackTables shape;
  const std::int32_t* table = nullptr;     // [n_tables, rows(n_items + 1), all_units + 1]
  const double* worth = nullptr;           // [n_tables], powers of two
  const double* weight = nullptr;          // [n_tables, n_resources], >= 0
  std::ptrdiff_t n_resources = 0;
  const std::int64_t* value = nullptr;     // [n_items], >= 0
  const std::int64_t* demand = nullptr;    // [n_items, n_resources], all resources
  std::ptrdiff_t n_bins = 0;
  const std::int64_t* limit = nullptr;     // [n_bins, n_items], at most the limits of the tables
  const std::int64_t* capacity = nullptr;  // [n_bins, n_resources]
  const std::int64_t* units = nullptr;     // [n_bins]
  const std::int64_t* parts = nullptr;     // [n_bins]
  const std::int64_t* at_least = nullptr;  // [n_bins]: fillings that are not worth more are ignored
  std::int64_t node_limit = 0;             // per bin
  std::size_t keep = 1;
};

struct TableFound {
  std::int64_t best = 0;   // at_least if there is none
  std::int64_t upper = 0;  // no filling is worth more; == best unless the search was given up
  std::int64_t nodes = 0;
  std::vector<std::vector<std::int64_t>> fillings;  // each better than the one before; the last `keep`
};

// Depth first, with the maximum of an item first. Needs sum(value * limit) < 2^52. `threads` changes only the time.
std::vector<TableFound> search_with_tables(const TableSearch& search, std::ptrdiff_t threads);

}  // namespace kscale
