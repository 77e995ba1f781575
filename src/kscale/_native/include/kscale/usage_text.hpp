#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

// Usage over time out of text, as it is mostly written. Whatever is written in another way is left to others: a
// function says so and its results mean nothing.

namespace kscale::usage_text {

// What a column of a CSV file holds. Names count from kName on.
enum Role : std::int32_t { kSkipped = 0, kTime = 1, kCpu = 2, kMemory = 3, kName = 4 };
inline constexpr std::size_t kMostNames = 4;

// Rows of CSV without quotes: times as whole numbers or as 2026-01-05T00:00:00[.000][Z], numbers in decimals or empty
// (NaN). Rows of one series are those with the same names.
class CsvRows {
 public:
  // `unit`: nanoseconds of a time that is a number.
  CsvRows(std::vector<std::int32_t> roles, std::int64_t unit) : roles_(std::move(roles)), unit_(unit) {}

  // Takes in whole lines; columns that are null are not wanted. At most `room` rows; -1: not written that way.
  std::ptrdiff_t read(const char* text, std::size_t size, std::ptrdiff_t room, std::int64_t* time, double* cpu,
                      double* memory, std::int32_t* series);

  // The names of the series, [series, kMostNames], by the numbers of their roles.
  const std::vector<std::array<std::string_view, kMostNames>>& names() const noexcept { return names_; }

 private:
  std::int32_t number_of(const std::array<std::string_view, kMostNames>& names, std::int32_t before);

  std::vector<std::int32_t> roles_;
  std::int64_t unit_;
  std::vector<std::array<std::string_view, kMostNames>> names_;  // into the text
  std::vector<std::int32_t> next_;  // the series that last came behind each
  std::unordered_map<std::string, std::int32_t> numbers_;
  std::string joined_;
};

// How many lines there are, one without an end included.
std::ptrdiff_t lines(const char* text, std::size_t size) noexcept;

// A list of Prometheus's points, [[1767582000.123,"0.25"],...]: times in milliseconds, NaN and infinities as they are.
// How many; -1: not written that way, or more than `room`.
std::ptrdiff_t points(const char* text, std::size_t size, std::ptrdiff_t room, std::int64_t* milliseconds,
                      double* value) noexcept;

// out[i] = in[i] * unit; false if one is at least `most` from 0, and then the one that is farthest comes in `farthest`.
bool scaled(const std::int64_t* in, std::ptrdiff_t n, std::int64_t unit, std::int64_t most, std::int64_t* out,
            std::int64_t& farthest) noexcept;

}  // namespace kscale::usage_text
