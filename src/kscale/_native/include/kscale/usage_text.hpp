#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
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

// Rows of CSV, fields in quotes or not, but without quotes, commas and line ends inside: times as decimal numbers or as
// 2026-01-05T00:00:00[.000][Z|+01:00], numbers in decimals or empty (NaN). Rows of one series are those with the same names; a series keeps its number from text to text.
class CsvRows {
 public:
  // `unit`: nanoseconds of a time that is a number.
  CsvRows(std::vector<std::int32_t> roles, std::int64_t unit) : roles_(std::move(roles)), unit_(unit) {}

  // Takes in whole lines; columns that are null are not wanted. At most `room` rows; -1: not written that way, and the
  // series that the text added are forgotten.
  std::ptrdiff_t read(const char* text, std::size_t size, std::ptrdiff_t room, std::int64_t* time, double* cpu,
                      double* memory, std::int32_t* series);

  // The names of the series, [series, kMostNames], by the numbers of their roles.
  const std::vector<std::array<std::string_view, kMostNames>>& names() const noexcept { return names_; }
  // Forgets the series from this one on.
  void forget(std::size_t from);

 private:
  std::ptrdiff_t rows(const char* text, std::size_t size, std::ptrdiff_t room, std::int64_t* time, double* cpu,
                      double* memory, std::int32_t* series);
  std::int32_t number_of(const std::array<std::string_view, kMostNames>& names, std::int32_t before);

  std::vector<std::int32_t> roles_;
  std::int64_t unit_;
  std::deque<std::string> texts_;  // the names of each series, joined
  std::vector<std::array<std::string_view, kMostNames>> names_;  // into texts_
  std::vector<std::int32_t> next_;  // the series that last came behind each
  std::unordered_map<std::string_view, std::int32_t> numbers_;  // by texts_
  std::string joined_;
};

// Series told by the numbers of their names, as dictionaries have them.
class SeriesNumbers {
 public:
  using Key = std::array<std::int32_t, kMostNames>;
  // A column of names: row i has the one of number_of[codes[i]]. A column without codes is of no name, number 0.
  struct Column {
    const std::int32_t* codes = nullptr;
    const std::int32_t* number_of = nullptr;
    std::ptrdiff_t size = 0;  // of number_of
  };

  // out[i]: the number of row i's series, by first appearance. False: some code is out of range.
  bool number(const std::array<Column, kMostNames>& columns, std::ptrdiff_t n, std::int32_t* out);
  const std::vector<Key>& keys() const noexcept { return keys_; }

 private:
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept;
  };
  std::vector<Key> keys_;
  std::vector<std::int32_t> next_;
  std::unordered_map<Key, std::int32_t, Hash> numbers_;
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
