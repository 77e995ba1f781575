// A hash of texts, also long ones, for tables in memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace kscale {

struct TextHash {
  // Not noexcept, so that the tables of the standard library keep hashes instead of making them again.
  std::size_t operator()(std::string_view text) const {
    constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15u;
    const auto add = [](std::uint64_t hash, const char* at) {
      std::uint64_t word;
      std::memcpy(&word, at, 8);
      return std::rotl(hash ^ word, 29) * kOdd;
    };
    std::uint64_t hash = kOdd ^ text.size();
    const char* at = text.data();
    std::size_t left = text.size();
    if (left >= 32) {  // four at a time, which do not wait for each other
      std::uint64_t second = kOdd * 3, third = kOdd * 5, fourth = kOdd * 7;
      for (; left >= 32; left -= 32, at += 32) {
        hash = add(hash, at);
        second = add(second, at + 8);
        third = add(third, at + 16);
        fourth = add(fourth, at + 24);
      }
      hash = mix(hash) + mix(second + 1) * 3 + mix(third + 2) * 5 + mix(fourth + 3) * 7;
    }
    for (; left >= 8; left -= 8, at += 8) hash = add(hash, at);
    if (left > 0) {
      char rest[8] = {};
      std::memcpy(rest, at, left);
      hash = add(hash, rest);
    }
    return static_cast<std::size_t>(mix(hash));
  }

 private:
  static std::uint64_t mix(std::uint64_t hash) noexcept {
    hash = (hash ^ (hash >> 32)) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ (hash >> 29)) * 0x94d049bb133111ebu;
    return hash ^ (hash >> 32);
  }
};

}  // namespace kscale
