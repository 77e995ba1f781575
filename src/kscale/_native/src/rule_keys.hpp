// The keys of a rule for an object: a small hash table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kscale {

// The bucket of a rule's keys that a key is in.
inline int bucket_of(std::string_view key) {
  const auto first = static_cast<unsigned char>(key.front());
  const auto last = static_cast<unsigned char>(key.back());
  return static_cast<int>((key.size() * 31u + first * 7u + last) & 63u);
}

// Puts the keys of a rule, none of them empty, into their buckets.
template <class Rule>
void fill_buckets(Rule& rule) {
  rule.bucket.fill(-1);
  for (std::size_t i = 0; i < rule.keys.size(); ++i) {
    std::int32_t& head = rule.bucket[static_cast<std::size_t>(bucket_of(rule.keys[i].name))];
    rule.keys[i].next = head;
    head = static_cast<std::int32_t>(i);
  }
}

// The number of a key among those of an object's rule; -1: it has no rule.
template <class Rule>
std::int32_t find_key(const Rule& rule, std::string_view key) {
  std::int32_t k = key.empty() ? -1 : rule.bucket[static_cast<std::size_t>(bucket_of(key))];
  while (k >= 0 && rule.keys[static_cast<std::size_t>(k)].name != key) k = rule.keys[static_cast<std::size_t>(k)].next;
  return k;
}

}  // namespace kscale
