#pragma once

#include <vector>

#include "kscale/engine/journal.hpp"
#include "kscale/engine/plugins.hpp"
#include "kscale/engine/pod_classes.hpp"

namespace kscale::engine {

// NodePorts: which host ports are in use on each node. The Python side is kscale/scheduling/plugins/node_ports.py.
class NodePorts {
 public:
  // keys: (protocol, port) pairs in play; specific: (ip, protocol, port) triples.
  NodePorts(i32 keys, i32 specific)
      : words_(idx((keys + 63) / 64)), specific_words_(idx((specific + 63) / 64)), of_(idx(specific), Port{-1, -1}) {}

  void resize(std::size_t nodes) {
    any_.resize(nodes * words_, 0);
    wild_.resize(nodes * words_, 0);
    specific_.resize(nodes * specific_words_, 0);
  }
  void know(const Port& port) {
    if (port.specific >= 0) of_[idx(port.specific)] = port;
  }

  Code check(const std::vector<Port>& wanted, i32 node) const {
    const u64* any = any_.data() + idx(node) * words_;
    const u64* wild = wild_.data() + idx(node) * words_;
    const u64* specific = specific_.data() + idx(node) * specific_words_;
    for (const Port& port : wanted) {
      const std::size_t word = idx(port.key / 64);
      const u64 b = u64{1} << (port.key % 64);
      if (port.specific < 0) {
        if (any[word] & b) return code(kNodePorts);
      } else if ((wild[word] & b) || (specific[port.specific / 64] >> (port.specific % 64) & 1)) {
        return code(kNodePorts);
      }
    }
    return kFits;
  }

  void take(const std::vector<Port>& ports, i32 node, Journal& journal) {
    for (const Port& port : ports) {
      const std::size_t word = idx(node) * words_ + idx(port.key / 64);
      const u64 b = u64{1} << (port.key % 64);
      set(any_, Undo::kAnyPort, word, any_[word] | b, node, journal);
      if (port.specific < 0) {
        set(wild_, Undo::kWildPort, word, wild_[word] | b, node, journal);
      } else {
        const std::size_t at = idx(node) * specific_words_ + idx(port.specific / 64);
        set(specific_, Undo::kSpecificPort, at, specific_[at] | u64{1} << (port.specific % 64), node, journal);
      }
    }
  }

  // Upstream has a set without counts: removing one user of an entry frees it, even if another pod has it as well.
  void give_back(const std::vector<Port>& ports, i32 node, Journal& journal) {
    for (const Port& port : ports) {
      if (port.specific < 0) {
        const std::size_t word = idx(node) * words_ + idx(port.key / 64);
        set(wild_, Undo::kWildPort, word, wild_[word] & ~(u64{1} << (port.key % 64)), node, journal);
      } else {
        const std::size_t word = idx(node) * specific_words_ + idx(port.specific / 64);
        set(specific_, Undo::kSpecificPort, word, specific_[word] & ~(u64{1} << (port.specific % 64)), node, journal);
      }
    }
    rebuild_any(node, journal);
  }

  void rollback(const Entry& e) {
    auto& words = e.what == Undo::kAnyPort ? any_ : e.what == Undo::kWildPort ? wild_ : specific_;
    words[idx(e.b)] = static_cast<u64>(e.value);
  }

  void mix(Checksum& sum) const {
    for (const auto* words : {&any_, &wild_, &specific_})
      for (const u64 v : *words) sum.mix(v);
  }

 private:
  void set(std::vector<u64>& words, Undo what, std::size_t word, u64 value, i32 node, Journal& journal) {
    if (journal.keeps(node)) journal.log(what, 0, static_cast<i32>(word), 0, static_cast<i64>(words[word]));
    words[word] = value;
  }

  void rebuild_any(i32 node, Journal& journal) {
    const std::size_t base = idx(node) * words_;
    std::vector<u64> words(wild_.begin() + static_cast<std::ptrdiff_t>(base),
                           wild_.begin() + static_cast<std::ptrdiff_t>(base + words_));
    for (std::size_t s = 0; s < of_.size(); ++s)
      if (specific_[idx(node) * specific_words_ + s / 64] >> (s % 64) & 1)
        words[idx(of_[s].key / 64)] |= u64{1} << (of_[s].key % 64);
    for (std::size_t w = 0; w < words_; ++w) set(any_, Undo::kAnyPort, base + w, words[w], node, journal);
  }

  std::size_t words_, specific_words_;
  std::vector<u64> any_, wild_, specific_;  // [node][words]
  std::vector<Port> of_;                    // specific port id -> its (key, id)
};

}  // namespace kscale::engine
