#pragma once

#include <vector>

#include "kscale/engine/search.hpp"

namespace kscale::engine {

// What a drain does with a pod; numbers as in kscale.ca.scale_down.moving_pods.
enum Drain : u8 { kMovesUnlessBudget, kMoves, kDaemon, kWaits, kSkipped, kBlocks };

// Result for a candidate.
enum Fate : std::int8_t { kRemovable, kBlocked, kNoPlace, kNotThere, kNotLooked };

// Disruption budgets: those of pod p are ids[start[s]..start[s + 1]) with s = set_of[p].
struct Budgets {
  const i32* set_of;
  const i32* start;
  const i32* ids;
  i64* allowed;            // remaining evictions of each; reduced as nodes are removed
};

struct RemovalInput {
  const i32* candidates;
  i32 n_candidates;
  u8* destinations;        // [nodes]; a removed node is no destination anymore
  const u8* codes;         // [pods] Drain
  const u8* atomic;        // [n_candidates], or null: those that do not count against `limit`
  i64 limit;               // stop when so many are removable
  bool persist;            // successful removals stay
  bool charge;
  bool restart;            // every candidate starts with the cursor of the first one
};

// One entry per candidate; `pods` and `to` have those of candidate c at start[c]..start[c + 1), in node order: all pods
// of a removable node, -1 = not moved.
struct RemovalOutput {
  std::int8_t* fate;
  u8* risky;
  i32* pod;                // the pod that blocks, or that found no place
  i64* start;              // [n_candidates + 1]
  std::vector<i32> pods, to;
  bool interrupted = false;
};

// Pods on nodes while nodes are removed: upstream's RemovalSimulator over a whole list of candidates.
class Removal {
 public:
  // [pods]: class while it runs, class with which it is placed, priority, node (-1 = none yet).
  Removal(Engine& engine, i32 pods, const i32* runs_as, const i32* moves_as, const i64* priority, const i32* node);

  void set_hints(const i32* hint);  // [pods] node or -1; none counts as new
  void put(i32 pod, i32 node);      // a pod that the engine has on this node already
  void run(const RemovalInput& in, const Budgets& budgets, RemovalOutput& out, Interrupted interrupted, void* context);

  i32 pods() const { return static_cast<i32>(runs_as_.size()); }
  const std::vector<i32>& on(i32 node) const { return on_node_[static_cast<std::size_t>(node)]; }
  i32 hint(i32 pod) const { return hint_[static_cast<std::size_t>(pod)]; }
  bool hinted(i32 pod) const { return hinted_[static_cast<std::size_t>(pod)] != 0; }

  // The same engine state, hints and pods for another engine, which is a copy of this one's.
  Removal(const Removal& other, Engine& engine);
  Removal(const Removal&) = delete;
  Removal& operator=(const Removal&) = delete;

 private:
  static std::size_t at(i32 i) { return static_cast<std::size_t>(i); }
  i32 first_blocking(i32 node, const RemovalInput& in, const Budgets& budgets) const;
  bool place_all(const RemovalInput& in);
  void gone(i32 node, const RemovalInput& in);
  bool charge(const Budgets& budgets);

  Engine& engine_;
  Search search_;
  std::vector<i32> runs_as_, moves_as_, hint_;
  std::vector<u8> hinted_;
  std::vector<i64> priority_;
  bool ranked_ = false;                    // pods have different priorities
  std::vector<std::vector<i32>> on_node_;
  // state of the current candidate
  std::vector<i32> moving_, sorted_, rest_, order_, node_of_, classes_;
  i32 homeless_ = -1;
};

// Simulates every candidate separately, on its own overlay: no removal stays, no budget is charged, and all candidates
// start with the same cursor. `threads` work on copies of the engine; the results do not depend on their number. An
// engine with a ledger of devices cannot be copied: it is used in place, and its state is restored. False: out of
// memory.
bool judge_alone(Engine& engine, const Removal& removal, const RemovalInput& in, const Budgets& budgets,
                 RemovalOutput& out, i32 threads, i32* user_failed, Interrupted interrupted, void* context);

}  // namespace kscale::engine
