#include "kscale/engine/removal.hpp"

#include <algorithm>
#include <limits>

#include "kscale/parallel.hpp"

namespace kscale::engine {

Removal::Removal(Engine& engine, i32 pods, const i32* runs_as, const i32* moves_as, const i64* priority,
                 const i32* node)
    : engine_(engine),
      search_(engine),
      runs_as_(runs_as, runs_as + pods),
      moves_as_(moves_as, moves_as + pods),
      hint_(at(pods), -1),
      hinted_(at(pods), 0),
      priority_(priority, priority + pods),
      on_node_(at(engine.nodes())),
      node_of_(at(pods), -1) {
  for (i32 p = 0; p < pods; ++p) {
    ranked_ = ranked_ || priority[p] != priority[0];
    if (node[p] >= 0) on_node_[at(node[p])].push_back(p);
  }
}

Removal::Removal(const Removal& other, Engine& engine)
    : engine_(engine),
      search_(other.search_, engine),
      runs_as_(other.runs_as_),
      moves_as_(other.moves_as_),
      hint_(other.hint_),
      hinted_(other.hinted_),
      priority_(other.priority_),
      ranked_(other.ranked_),
      on_node_(other.on_node_),
      node_of_(other.node_of_) {}

void Removal::set_hints(const i32* hint) {
  std::copy(hint, hint + hint_.size(), hint_.begin());
  std::fill(hinted_.begin(), hinted_.end(), u8{0});
}

void Removal::put(i32 pod, i32 node) {
  on_node_[at(node)].push_back(pod);
  runs_as_[at(pod)] = moves_as_[at(pod)];
}

i32 Removal::first_blocking(i32 node, const RemovalInput& in, const Budgets& budgets) const {
  for (const i32 pod : on_node_[at(node)]) {
    const u8 code = in.codes[pod];
    if (code == kBlocks) return pod;
    if (code != kMovesUnlessBudget) continue;
    const i32 set = budgets.set_of[pod];
    for (i32 i = budgets.start[set]; i < budgets.start[set + 1]; ++i)
      if (budgets.allowed[budgets.ids[i]] < 1) return pod;
  }
  return -1;
}

// The hinting simulator with breakOnFailure: by priority, and within one first the pods with a usable hint.
bool Removal::place_all(const RemovalInput& in) {
  sorted_ = moving_;
  if (ranked_)
    std::stable_sort(sorted_.begin(), sorted_.end(),
                     [this](i32 a, i32 b) { return priority_[at(a)] > priority_[at(b)]; });
  order_.clear();
  homeless_ = -1;
  auto put = [&](i32 pod, i32 node) {
    engine_.place(moves_as_[at(pod)], node);
    search_.placed(node);
    node_of_[at(pod)] = node;
    hint_[at(pod)] = node;
    hinted_[at(pod)] = 1;
    order_.push_back(pod);
  };
  for (std::size_t first = 0, last; first < sorted_.size(); first = last) {
    last = first + 1;
    while (last < sorted_.size() && priority_[at(sorted_[last])] == priority_[at(sorted_[first])]) ++last;
    rest_.clear();
    for (std::size_t i = first; i < last; ++i) {
      const i32 pod = sorted_[i];
      const i32 hint = hint_[at(pod)];
      const bool usable = hint >= 0 && engine_.alive(hint) && in.destinations[hint];
      if (usable && engine_.check_single(moves_as_[at(pod)], hint) == kFits)
        put(pod, hint);
      else
        rest_.push_back(pod);
    }
    for (const i32 pod : rest_) {
      const i32 node = search_.find(moves_as_[at(pod)], in.destinations);
      if (node < 0) {
        if (homeless_ < 0) homeless_ = pod;
        break;
      }
      put(pod, node);
    }
  }
  return order_.size() == moving_.size();
}

// Charges the budgets of the pods that move; returns whether these do not allow all evictions at once.
bool Removal::charge(const Budgets& budgets) {
  bool risky = false;
  for (const i32 pod : moving_) {
    const i32 set = budgets.set_of[pod];
    for (i32 i = budgets.start[set]; i < budgets.start[set + 1]; ++i)
      risky = --budgets.allowed[budgets.ids[i]] < 0 || risky;
  }
  return risky;
}

void Removal::gone(i32 node, const RemovalInput& in) {
  for (const i32 pod : order_) {
    on_node_[at(node_of_[at(pod)])].push_back(pod);
    runs_as_[at(pod)] = moves_as_[at(pod)];
  }
  std::vector<i32>().swap(on_node_[at(node)]);
  in.destinations[node] = 0;
  search_.close(node);
}

void Removal::run(const RemovalInput& in, const Budgets& budgets, RemovalOutput& out, Interrupted interrupted,
                  void* context) {
  search_.open(in.destinations);
  const i64 cursor = engine_.cursor;
  i64 counted = 0;
  out.start[0] = 0;
  for (i32 c = 0; c < in.n_candidates; ++c) {
    const i32 node = in.candidates[c];
    out.fate[c] = kNotLooked;
    out.pod[c] = -1;
    out.risky[c] = 0;
    out.start[c + 1] = out.start[c];
    if (counted >= in.limit || out.interrupted) continue;
    if (interrupted && (c & 63) == 63 && interrupted(context)) {
      out.interrupted = true;
      continue;
    }
    if (in.restart) engine_.cursor = cursor;
    if (node < 0 || !engine_.alive(node)) {
      out.fate[c] = kNotThere;
      continue;
    }
    const auto& here = on_node_[at(node)];
    if (const i32 blocking = first_blocking(node, in, budgets); blocking >= 0) {
      out.fate[c] = kBlocked;
      out.pod[c] = blocking;
      continue;
    }
    moving_.clear();
    classes_.clear();
    for (const i32 pod : here) {
      classes_.push_back(runs_as_[at(pod)]);
      if (in.codes[pod] <= kMoves) moving_.push_back(pod);
    }
    order_.clear();
    const bool simulated = in.persist || !moving_.empty();
    if (simulated) {
      engine_.fork();
      search_.begin();
      engine_.vacate(node, classes_.data(), static_cast<i32>(classes_.size()));
    }
    if (!moving_.empty()) {
      const u8 was = in.destinations[node];
      in.destinations[node] = 0;
      search_.close(node);
      const bool placed = place_all(in);
      in.destinations[node] = was;
      if (!placed) {
        engine_.revert();
        search_.undo();
        if (was) search_.reopen(node);
        out.fate[c] = kNoPlace;
        out.pod[c] = homeless_;
        continue;
      }
    }
    out.fate[c] = kRemovable;
    for (const i32 pod : here) {
      out.pods.push_back(pod);
      out.to.push_back(in.codes[pod] <= kMoves ? node_of_[at(pod)] : -1);
    }
    out.start[c + 1] = static_cast<i64>(out.pods.size());
    if (in.charge) out.risky[c] = charge(budgets);
    if (!(in.atomic && in.atomic[c])) ++counted;
    if (in.persist) {
      engine_.remove_ghost(node);
      engine_.commit();
      gone(node, in);
    } else if (simulated) {
      engine_.revert();
      search_.undo();
      if (in.destinations[node]) search_.reopen(node);
    }
  }
}

bool judge_alone(Engine& engine, const Removal& removal, const RemovalInput& in, const Budgets& budgets,
                 RemovalOutput& out, i32 threads, i32* user_failed, Interrupted interrupted, void* context) {
  const bool in_place = engine.asks_ledger();
  const i32 parts = in_place ? 1 : std::clamp(threads, 1, std::max(in.n_candidates, 1));
  const i64 cursor = engine.cursor;
  const i32 step = (in.n_candidates + parts - 1) / parts;
  std::vector<RemovalOutput> found(static_cast<std::size_t>(parts));
  std::vector<i32> failed(found.size(), -1);
  std::vector<u8> worked(found.size(), 0);
  std::vector<i64> starts(static_cast<std::size_t>(in.n_candidates + parts) + 1, 0);
  parallel_for(parts, parts, [&](std::ptrdiff_t begin, std::ptrdiff_t end) {
    for (std::ptrdiff_t i = begin; i < end; ++i) {
      const std::size_t part = static_cast<std::size_t>(i);
      const i32 from = std::min(static_cast<i32>(i) * step, in.n_candidates);
      const i32 to = std::min(from + step, in.n_candidates);
      RemovalOutput& mine = found[part];
      mine.fate = out.fate + from;
      mine.risky = out.risky + from;
      mine.pod = out.pod + from;
      mine.start = starts.data() + from + i;
      try {
        const std::unique_ptr<Engine> copied = in_place ? nullptr : engine.copy();
        Engine& own = in_place ? engine : *copied;
        Removal overlay(removal, own);
        std::vector<u8> destinations(in.destinations, in.destinations + engine.nodes());
        RemovalInput given = in;
        given.candidates = in.candidates + from;
        given.n_candidates = to - from;
        given.destinations = destinations.data();
        given.atomic = nullptr;
        given.limit = std::numeric_limits<i64>::max();
        given.persist = given.charge = false;
        given.restart = true;
        overlay.run(given, budgets, mine, i == 0 ? interrupted : nullptr, context);
        failed[part] = own.user_failed();
        worked[part] = 1;
      } catch (...) {  // out of memory
      }
    }
  });
  engine.cursor = cursor;
  out.start[0] = 0;
  for (std::size_t part = 0; part < found.size(); ++part) {
    if (!worked[part]) return false;
    const i32 from = std::min(static_cast<i32>(part) * step, in.n_candidates);
    const i32 to = std::min(from + step, in.n_candidates);
    const i64 before = static_cast<i64>(out.pods.size());
    for (i32 c = from; c < to; ++c) out.start[c + 1] = before + found[part].start[c - from + 1];
    out.pods.insert(out.pods.end(), found[part].pods.begin(), found[part].pods.end());
    out.to.insert(out.to.end(), found[part].to.begin(), found[part].to.end());
    out.interrupted = out.interrupted || found[part].interrupted;
    if (*user_failed < 0) *user_failed = failed[part];
  }
  return true;
}

}  // namespace kscale::engine
