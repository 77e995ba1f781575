#pragma once

#include <bit>
#include <vector>

#include "kscale/engine/engine.hpp"

namespace kscale::engine {

// Candidate nodes of a class, from `base` on: nodes on which the class has not failed since its verdict could last have
// improved. One bit per node, and a summary bit for each word with a candidate. Failures by a count over domains are
// stored separately: while no room is given back, only those verdicts may improve, and a class with spread constraints
// starts again with nearly every pod.
struct Engine::Candidates {
  Stamp stamp;
  i32 base = 0;
  i32 count = 0;             // nodes from `base` on
  std::vector<u64> bits;     // [words of nodes]
  std::vector<u64> summary;  // [words of bits]
  std::vector<u64> counted;  // [words of nodes]: those dropped for a count over domains
  bool some_counted = false;

  i32 end() const { return base + count; }
  void start(i32 from, i32 nodes, Stamp now) {
    stamp = now;
    base = from;
    count = nodes - from;
    fill(bits, count);
    fill(summary, static_cast<i32>(bits.size()));
    counted.assign(bits.size(), 0);
    some_counted = false;
  }
  // Verdicts that depend on counts may have improved; others have not.
  void restore(Stamp now) {
    stamp = now;
    if (!some_counted) return;
    for (std::size_t word = 0; word < bits.size(); ++word) {
      bits[word] |= counted[word];
      counted[word] = 0;
      summary[word >> 6] |= u64{bits[word] != 0} << (word & 63);
    }
    some_counted = false;
  }
  void extend(i32 nodes) {  // new nodes are candidates
    for (; end() < nodes; ++count) {
      const std::size_t word = idx(count) >> 6;
      if (word == bits.size()) bits.push_back(0), counted.push_back(0);
      if (word >> 6 == summary.size()) summary.push_back(0);
      bits[word] |= one(idx(count));
      summary[word >> 6] |= one(word);
    }
  }
  // The first candidate at or after a node; the end if there is none.
  i32 find(i32 node) const {
    const std::size_t i = idx(node - base);
    if (some(bits, i)) return base + static_cast<i32>(first(bits, i));
    std::size_t word = (i >> 6) + 1;
    if (!some(summary, word)) {
      std::size_t top = (word >> 6) + 1;
      while (top < summary.size() && !summary[top]) ++top;
      if (top >= summary.size()) return end();
      word = top << 6;
    }
    return base + static_cast<i32>(first(bits, first(summary, word) << 6));
  }
  void drop(i32 node, Code why) {
    const std::size_t i = idx(node - base), word = i >> 6;
    const u32 plugin = why & 0xFF;
    if (plugin == kPodTopologySpread || plugin == kInterPodAffinity) {
      counted[word] |= one(i);
      some_counted = true;
    }
    bits[word] &= ~one(i);
    if (!bits[word]) summary[word >> 6] &= ~one(word);
  }

 private:
  static u64 one(std::size_t i) { return u64{1} << (i & 63); }
  static void fill(std::vector<u64>& words, i32 n) {
    words.assign((idx(n) + 63) >> 6, ~u64{0});
    if (n & 63) words.back() = one(idx(n)) - 1;
  }
  // Checks whether the word of bit i has a set bit from i on, and finds the first one.
  static bool some(const std::vector<u64>& words, std::size_t i) {
    return i >> 6 < words.size() && words[i >> 6] >> (i & 63);
  }
  static std::size_t first(const std::vector<u64>& words, std::size_t i) {
    return i + static_cast<std::size_t>(std::countr_zero(words[i >> 6] >> (i & 63)));
  }
};

}  // namespace kscale::engine
