#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "kscale/engine/scores.hpp"

namespace kscale::engine {

enum ScorePlugin : i32 {
  kScoreTaintToleration,
  kScoreNodeAffinity,
  kScoreNodeResourcesFit,
  kScorePodTopologySpread,
  kScoreInterPodAffinity,
  kScoreBalancedAllocation,
  kScoreImageLocality,
  kScoreVolumeBinding,
  kScorePlugins,
};

inline constexpr const char* kScorePluginNames[kScorePlugins] = {
    "TaintToleration", "NodeAffinity", "NodeResourcesFit", "PodTopologySpread", "InterPodAffinity",
    "NodeResourcesBalancedAllocation", "ImageLocality", "VolumeBinding",
};

enum class FitStrategy : i32 { kLeastAllocated, kMostAllocated, kRequestedToCapacityRatio };

// A user scorer, compiled to a C function: scores of [nodes] from a pod's requests [columns] and the free amounts
// [nodes][columns] of nodes; not 0 = it failed. Called without the GIL.
using UserScore = i32 (*)(const i64* request, const i64* free, i64 nodes, i64 columns, double* scores);

struct ScoreColumn {  // a resource, by node
  bool scalar = false;
  std::vector<i64> allocatable, used, non_zero;  // non_zero: with the default requests of containers without one
};

struct ScoreRow {  // pods per topology domain
  std::vector<i32> domain;  // [node], -1 = the label is absent
  std::vector<u8> counts;   // [node] whether its pods count; empty = everywhere
  std::vector<i64> count;   // [domain]
};

struct SoftConstraint {
  i32 row = 0;
  i64 max_skew = 0;
  u8 hostname = 0;
};

struct WeightedRow {
  i32 row = 0;
  i64 weight = 0;
};

struct ScoreClass {  // pods with equal scores
  i32 taints = -1, affinity = -1, images = -1, volumes = -1;  // static rows, -1 = none
  std::vector<i64> non_zero, requested;    // [column] request of one pod
  std::vector<i64> takes_non_zero, takes;  // [column] amount that a pod takes once it is placed
  bool broken = false;                     // a preference is invalid: an error if nodes are compared
  bool whole = false;                      // only nodes with the labels of all constraints are scored
  std::vector<SoftConstraint> spread;
  std::vector<WeightedRow> terms;          // affinity, either way
  std::vector<WeightedRow> touch;          // rows that count pods of this class, and how often
};

// Inputs of the Score plug-ins, updated while pods are placed. Every index is checked at the binding.
class Scorer {
 public:
  explicit Scorer(i32 nodes) : nodes_(nodes) {}

  i32 add_column(ScoreColumn column) { return columns_.push_back(std::move(column)), static_cast<i32>(columns_.size()) - 1; }
  i32 add_row(ScoreRow row) { return rows_.push_back(std::move(row)), static_cast<i32>(rows_.size()) - 1; }
  i32 add_static(const i64* scores) {  // [node]
    statics_.emplace_back(scores, scores + nodes_);
    return static_cast<i32>(statics_.size()) - 1;
  }
  i32 add_class(ScoreClass pod) { return classes_.push_back(std::move(pod)), static_cast<i32>(classes_.size()) - 1; }
  void set_weight(ScorePlugin plugin, i64 weight) { weight_[plugin] = weight; }
  void set_fit(FitStrategy strategy, std::vector<WeightedRow> columns, std::vector<std::pair<i64, i64>> shape) {
    strategy_ = strategy, fit_ = std::move(columns), shape_ = std::move(shape);
  }
  void set_balanced(std::vector<i32> columns) { balanced_ = std::move(columns); }
  void add_user(UserScore score, std::vector<i32> columns, i64 weight) {
    users_.push_back({score, std::move(columns), weight});
  }

  i32 nodes() const { return nodes_; }
  i32 columns() const { return static_cast<i32>(columns_.size()); }
  i32 rows() const { return static_cast<i32>(rows_.size()); }
  i32 statics() const { return static_cast<i32>(statics_.size()); }
  i32 classes() const { return static_cast<i32>(classes_.size()); }
  i32 users() const { return static_cast<i32>(users_.size()); }
  i32 plugins() const { return kScorePlugins + users(); }
  bool broken(i32 pod) const { return classes_[idx(pod)].broken; }
  bool idle() const;                 // nothing is scored: the first feasible node is chosen
  i32 failed() const { return failed_; }  // number of a user scorer that failed, or -1

  void place(i32 pod, i32 node);
  // total: [count] total scores of feasible nodes; parts: [plugins][count] scores of each plug-in before weights, or
  // null. False: a user scorer failed.
  bool score(i32 pod, const i32* nodes, i32 count, i64* total, i64* parts);

 private:
  struct User {
    UserScore score = nullptr;
    std::vector<i32> columns;
    i64 weight = 0;
  };
  void fixed(i32 row, const i32* nodes, i32 count, i64* out) const;
  void resources_fit(const ScoreClass& pod, const i32* nodes, i32 count, i64* out) const;
  void balanced(const ScoreClass& pod, const i32* nodes, i32 count, i64* out) const;
  void spread(const ScoreClass& pod, const i32* nodes, i32 count, i64* out);
  void affinity(const ScoreClass& pod, const i32* nodes, i32 count, i64* out) const;
  bool of_user(const User& user, const ScoreClass& pod, const i32* nodes, i32 count, i64* out);

  i32 nodes_;
  std::vector<ScoreColumn> columns_;
  std::vector<ScoreRow> rows_;
  std::vector<std::vector<i64>> statics_;
  std::vector<ScoreClass> classes_;
  i64 weight_[kScorePlugins] = {};
  FitStrategy strategy_ = FitStrategy::kLeastAllocated;
  std::vector<WeightedRow> fit_;  // row: a column
  std::vector<std::pair<i64, i64>> shape_;
  std::vector<i32> balanced_;
  std::vector<User> users_;
  i32 failed_ = -1;
  std::vector<i64> work_, free_;
  std::vector<double> given_;
  std::vector<i32> seen_;
};

}  // namespace kscale::engine
