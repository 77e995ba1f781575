#pragma once

#include <cstddef>
#include <cstdint>

namespace kscale {

// Classes of items and kinds of bins: the demand of one item of class k and the capacity of a bin of kind t, by
// resource. `most[t, k]`: how many items of class k one bin of kind t holds alone (0 = none). `count[k]`: number of
// items. A bin holds at most min(most[t, k], count[k]) items of class k.
struct BinKinds {
  std::ptrdiff_t n_items = 0;
  std::ptrdiff_t n_kinds = 0;
  std::ptrdiff_t n_resources = 0;
  const std::int64_t* demand = nullptr;    // [n_items, n_resources], >= 0
  const std::int32_t* most = nullptr;      // [n_kinds, n_items], >= 0
  const std::int64_t* count = nullptr;     // [n_items], >= 0
  const std::int64_t* capacity = nullptr;  // [n_kinds, n_resources], >= 0
};

// Computes the linear relaxation of the most valuable filling of one bin of each kind, and a filling rounded from it.
// `upper[t]`: value of the relaxation (in floating point: a hint, not a proof). `weight[t, r]`: its dual, the value of
// a unit of the resource. Where `upper[t]` exceeds `wanted[t]`, `filling[t, k]` is feasible and worth `worth[t]`;
// otherwise it is 0. `swaps`: maximum number of exchanges of an item for a better one. Bins are independent: `threads`
// changes only the time.
void price_bins(const BinKinds& bins, const double* value, const double* wanted, int swaps, std::ptrdiff_t threads,
                double* upper, double* weight, double* worth, std::int32_t* filling);

// Computes fillings with at least one item of a given class: `filling[i, k]` of a bin of kind `kind[i]` with class
// `item[i]` in it, computed as in `price_bins`. It is 0 if the item does not fit the bin.
void fill_around(const BinKinds& bins, const double* value, std::ptrdiff_t n, const std::int32_t* kind,
                 const std::int32_t* item, int swaps, std::ptrdiff_t threads, std::int32_t* filling);

// Proven upper bounds on the value of a filling of each kind of bin, in integers: for any weights w >= 0,
//   sum(value * take) <= sum(w * capacity) + sum(max(0, value - w * demand) * limit).
// The weights are rounded to multiples of 2^-24, the sums are exact (128 bits). Needs capacities below 2^60, at most 16
// resources and sum(value * limit) < 2^52.
void surrogate_bounds(const BinKinds& bins, const std::int64_t* value, const double* weight, std::int64_t* upper);

}  // namespace kscale
