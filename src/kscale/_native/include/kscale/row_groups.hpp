#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

// Rows by a number that each has.
namespace kscale {

// `rows`: those of number 0, then of 1 and so on, ascending within each; `starts`[count + 1]: where each number's begin.
// Negative numbers have no rows; none is `count` or more.
void group_rows(const std::int32_t* number, std::size_t n, std::size_t count, std::int64_t* starts,
                std::int64_t* rows);

// The rows of several groups together, ascending, for each of `m` selections: selection `i` has the groups
// `groups`[begin[i], begin[i + 1]), none of them twice. `ends`[m + 1]: where the rows of each selection begin in `out`.
void select_rows(const std::int64_t* starts, const std::int64_t* rows, const std::int64_t* begin,
                 const std::int64_t* groups, std::size_t m, std::int64_t* ends, std::vector<std::int64_t>& out);

}  // namespace kscale
