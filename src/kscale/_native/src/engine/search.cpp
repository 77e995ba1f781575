#include "kscale/engine/search.hpp"

#include <algorithm>
#include <bit>
#include <string>
#include <unordered_map>

namespace kscale::engine {

namespace {

// Classes that every node accepts or rejects equally share a number; -1 = verdicts depend on other nodes.
std::vector<i32> demands_of(const Engine& engine) {
  const PodClasses& pods = engine.pods();
  const std::size_t n = idx(engine.resources()) * sizeof(i64);
  std::vector<i32> found(idx(pods.size()), -1);
  if (pods.gives_back()) return found;  // such a pod increases the free room: nothing may be remembered
  std::unordered_map<std::string, i32> known;
  for (i32 pod = 0; pod < pods.size(); ++pod) {
    if (!engine.local(pod)) continue;
    std::string key(reinterpret_cast<const char*>(pods.request(pod)), n);
    const i32 row = pods.static_row(pod);
    key.append(reinterpret_cast<const char*>(&row), sizeof row);
    if (const Extra* extra = pods.extra(pod); extra && !extra->ports.empty())
      key.append(reinterpret_cast<const char*>(&pod), sizeof pod);
    found[idx(pod)] = known.emplace(std::move(key), static_cast<i32>(known.size())).first->second;
  }
  return found;
}

}  // namespace

Search::Search(Engine& engine)
    : engine_(engine), demand_(demands_of(engine)), filled_(idx(engine.nodes()), 0) {
  const std::size_t words = (filled_.size() + 63) / 64;
  constexpr std::size_t most = std::size_t{32} << 20;  // total number of words: a quarter of a gigabyte
  i32 count = 0;
  for (i32& demand : demand_) {
    if ((idx(demand) + 1) * words > most) demand = -1;
    count = std::max(count, demand + 1);
  }
  failed_.assign(idx(count), std::vector<u64>(words, 0));
  open(nullptr);
}

Search::Search(const Search& other, Engine& engine)
    : engine_(engine), demand_(other.demand_), failed_(other.failed_.size(), std::vector<u64>((other.filled_.size() + 63) / 64)),
      filled_(other.filled_.size(), 0) {
  open(nullptr);
}

void Search::open(const u8* acceptable) {
  open_.assign((filled_.size() + 63) / 64, 0);
  for (i32 node = 0; node < engine_.nodes(); ++node)
    if (!acceptable || acceptable[node]) reopen(node);
}

void Search::close(i32 node) { open_[static_cast<std::size_t>(node / 64)] &= ~(u64{1} << (node % 64)); }

void Search::reopen(i32 node) {
  if (engine_.alive(node) && !engine_.cordoned(node))
    open_[static_cast<std::size_t>(node / 64)] |= u64{1} << (node % 64);
}

void Search::undo() {
  for (const Dropped& d : dropped_)
    if (filled_[idx(d.node)] == step_)
      failed_[idx(d.demand)][static_cast<std::size_t>(d.node / 64)] &= ~(u64{1} << (d.node % 64));
  ++step_;
  dropped_.clear();
}

i32 Search::scan(i32 demand, i32 pod, i32 from, i32 to) {
  auto& failed = failed_[idx(demand)];
  for (i32 base = from & ~63; base < to; base += 64) {
    const std::size_t word = static_cast<std::size_t>(base / 64);
    u64 mask = open_[word] & ~failed[word];
    if (base < from) mask &= ~u64{0} << (from - base);
    if (to - base < 64) mask &= (u64{1} << (to - base)) - 1;
    while (mask) {
      const i32 node = base + static_cast<i32>(std::countr_zero(mask));
      if (engine_.check(pod, node) == kFits) return node;
      mask &= mask - 1;
      failed[word] |= u64{1} << (node % 64);
      dropped_.push_back({demand, node});
    }
  }
  return -1;
}

i32 Search::find(i32 pod, const u8* acceptable) {
  const i32 demand = demand_[idx(pod)];
  if (demand < 0) return engine_.any_node(pod, acceptable);
  const i32 count = engine_.alive_nodes();
  if (count == 0 || engine_.pods().prefilter_failed(pod)) return -1;
  const i32 start = engine_.at_position(static_cast<i32>((engine_.cursor + 1) % count));
  i32 found = scan(demand, pod, start, engine_.nodes());
  if (found < 0) found = scan(demand, pod, 0, start);
  if (found >= 0) engine_.cursor = engine_.position(found);
  return found;
}

}  // namespace kscale::engine
