#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

// Reads usage over time from text in the usual syntax. For any other syntax a function reports so, and its results are
// meaningless.

namespace kscale::usage_text {

// The content of a column of a CSV file. Names have the values from kName on.
enum Role : std::int32_t { kSkipped = 0, kTime = 1, kCpu = 2, kMemory = 3, kName = 4 };
inline constexpr std::size_t kMostNames = 4;

// Rows of CSV. Fields may be quoted, but contain no quotes, commas or line ends. Times are decimal numbers or
// 2026-01-05T00:00:00[.000][Z|+01:00]; numbers are decimals or empty (NaN). Rows with the same names belong to one
// series; a series keeps its number from text to text.
class CsvRows {
 public:
  // `unit`: nanoseconds of a time that is a number.
  CsvRows(std::vector<std::int32_t> roles, std::int64_t unit) : roles_(std::move(roles)), unit_(unit) {}

  // Reads whole lines. Columns that are null are skipped. At most `room` rows; -1: other syntax, and the series that
  // the text added are removed.
  std::ptrdiff_t read(const char* text, std::size_t size, std::ptrdiff_t room, std::int64_t* time, double* cpu,
                      double* memory, std::int32_t* series);

  // Writes the names of the series, [series, kMostNames], by the numbers of their roles.
  const std::vector<std::array<std::string_view, kMostNames>>& names() const noexcept { return names_; }
  // Removes the series from this one on.
  void forget(std::size_t from);

 private:
  std::ptrdiff_t rows(const char* text, std::size_t size, std::ptrdiff_t room, std::int64_t* time, double* cpu,
                      double* memory, std::int32_t* series);
  std::int32_t number_of(const std::array<std::string_view, kMostNames>& names, std::int32_t before);

  std::vector<std::int32_t> roles_;
  std::int64_t unit_;
  std::deque<std::string> texts_;  // the names of each series, joined
  std::vector<std::array<std::string_view, kMostNames>> names_;  // into texts_
  std::vector<std::int32_t> next_;  // the series that last followed each one
  std::unordered_map<std::string_view, std::int32_t> numbers_;  // by texts_
  std::string joined_;
};

// Series identified by the numbers of their names, as in dictionary-encoded columns.
class SeriesNumbers {
 public:
  using Key = std::array<std::int32_t, kMostNames>;
  // A column of names: the name of row i is number_of[codes[i]]. A column without codes has no names: number 0.
  struct Column {
    const std::int32_t* codes = nullptr;
    const std::int32_t* number_of = nullptr;
    std::ptrdiff_t size = 0;  // of number_of
  };

  // Sets out[i] to the number of row i's series, in order of first appearance. False: some code is out of range.
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

// Returns the number of lines, including a last one without an end.
std::ptrdiff_t lines(const char* text, std::size_t size) noexcept;

// Reads a list of Prometheus's points, [[1767582000.123,"0.25"],...]: times in milliseconds, with NaN and infinities.
// Returns their number; -1: other syntax, or more than `room`.
std::ptrdiff_t points(const char* text, std::size_t size, std::ptrdiff_t room, std::int64_t* milliseconds,
                      double* value) noexcept;

// Sets out[i] = in[i] * unit; false if a magnitude reaches `most`: then `farthest` is the value with the greatest one.
bool scaled(const std::int64_t* in, std::ptrdiff_t n, std::int64_t unit, std::int64_t most, std::int64_t* out,
            std::int64_t& farthest) noexcept;

}  // namespace kscale::usage_text
