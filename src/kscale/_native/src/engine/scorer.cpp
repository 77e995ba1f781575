#include "kscale/engine/scorer.hpp"

namespace kscale::engine {

bool Scorer::idle() const {
  for (const i64 weight : weight_)
    if (weight != 0) return false;
  return users_.empty();
}

void Scorer::place(i32 pod, i32 node) {
  const ScoreClass& of = classes_[idx(pod)];
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    columns_[c].used[idx(node)] += of.takes[c];
    columns_[c].non_zero[idx(node)] += of.takes_non_zero[c];
  }
  for (const WeightedRow& touch : of.touch) {
    ScoreRow& row = rows_[idx(touch.row)];
    const i32 domain = row.domain[idx(node)];
    if (domain >= 0 && (row.counts.empty() || row.counts[idx(node)])) row.count[idx(domain)] += touch.weight;
  }
}

void Scorer::fixed(i32 row, const i32* nodes, i32 count, i64* out) const {
  const std::vector<i64>& scores = statics_[idx(row)];
  for (i32 i = 0; i < count; ++i) out[i] = scores[idx(nodes[i])];
}

void Scorer::resources_fit(const ScoreClass& pod, const i32* nodes, i32 count, i64* out) const {
  for (i32 i = 0; i < count; ++i) {
    const std::size_t n = idx(nodes[i]);
    i64 sum = 0, weights = 0;
    for (const WeightedRow& use : fit_) {
      const ScoreColumn& column = columns_[idx(use.row)];
      const i64 asked = pod.non_zero[idx(use.row)];
      const i64 capacity = column.allocatable[n];
      if (capacity == 0 || (asked == 0 && column.scalar)) continue;
      const i64 requested = column.non_zero[n] + asked;
      if (strategy_ == FitStrategy::kRequestedToCapacityRatio) {
        const i64 score = capacity_ratio(shape_, requested, capacity);
        if (score <= 0) continue;
        sum += score * use.weight;
      } else {
        const bool least = strategy_ == FitStrategy::kLeastAllocated;
        sum += (least ? least_allocated(requested, capacity) : most_allocated(requested, capacity)) * use.weight;
      }
      weights += use.weight;
    }
    if (weights == 0)
      out[i] = 0;
    else if (strategy_ == FitStrategy::kRequestedToCapacityRatio)
      out[i] = go::to_int64(std::round(static_cast<double>(sum) / static_cast<double>(weights)));
    else
      out[i] = divided(sum, weights);
  }
}

void Scorer::balanced(const ScoreClass& pod, const i32* nodes, i32 count, i64* out) const {
  const i32 n_columns = static_cast<i32>(balanced_.size());
  bool asks = false;
  for (const i32 c : balanced_) asks = asks || pod.requested[idx(c)] != 0;
  for (i32 i = 0; i < count; ++i) {
    if (!asks) {  // not scored: all such pods would go to one node
      out[i] = 0;
      continue;
    }
    const std::size_t n = idx(nodes[i]);
    const auto share = [&](i32 r, double& x, bool with) {
      const ScoreColumn& column = columns_[idx(balanced_[idx(r)])];
      const i64 asked = pod.requested[idx(balanced_[idx(r)])];
      const i64 capacity = column.allocatable[n];
      if (capacity == 0 || (asked == 0 && column.scalar)) return false;
      x = static_cast<double>(column.used[n] + (with ? asked : 0)) / static_cast<double>(capacity);
      return true;
    };
    const i64 after = balance(n_columns, [&](i32 r, double& x) { return share(r, x, true); });
    const i64 before = balance(n_columns, [&](i32 r, double& x) { return share(r, x, false); });
    out[i] = balanced_allocation(after, before);
  }
}

void Scorer::spread(const ScoreClass& pod, const i32* nodes, i32 count, i64* out) {
  i32 left = 0;
  for (i32 i = 0; i < count; ++i) {
    bool ignored = false;
    for (const SoftConstraint& soft : pod.spread)
      ignored = ignored || (pod.whole && rows_[idx(soft.row)].domain[idx(nodes[i])] < 0);
    out[i] = ignored ? -1 : 0;
    left += ignored ? 0 : 1;
  }
  std::vector<double> sums(idx(count), 0.0);
  for (const SoftConstraint& soft : pod.spread) {
    const ScoreRow& row = rows_[idx(soft.row)];
    i32 domains = left;
    if (!soft.hostname) {  // number of domains of the feasible nodes; a missing label counts as one more value
      seen_.assign(row.count.size() + 1, 0);
      domains = 0;
      for (i32 i = 0; i < count; ++i)
        if (out[i] >= 0 && seen_[idx(row.domain[idx(nodes[i])] + 1)]++ == 0) ++domains;
    }
    const double weight = go::log(static_cast<double>(domains + 2));
    for (i32 i = 0; i < count; ++i) {
      const i32 domain = row.domain[idx(nodes[i])];
      if (out[i] < 0 || domain < 0) continue;
      const i64 pods = row.count[idx(domain)];
      sums[idx(i)] += static_cast<double>(pods) * weight + static_cast<double>(soft.max_skew - 1);
    }
  }
  for (i32 i = 0; i < count; ++i)
    if (out[i] >= 0) out[i] = go::to_int64(std::round(sums[idx(i)]));
  normalize_spread(out, count);
}

void Scorer::affinity(const ScoreClass& pod, const i32* nodes, i32 count, i64* out) const {
  std::fill(out, out + count, i64{0});
  for (const WeightedRow& term : pod.terms) {
    const ScoreRow& row = rows_[idx(term.row)];
    for (i32 i = 0; i < count; ++i) {
      const i32 domain = row.domain[idx(nodes[i])];
      if (domain >= 0) out[i] += row.count[idx(domain)] * term.weight;
    }
  }
  normalize_between(out, count);
}

bool Scorer::of_user(const User& user, const ScoreClass& pod, const i32* nodes, i32 count, i64* out) {
  const std::size_t width = user.columns.size();
  std::vector<i64> request(width);
  free_.resize(width * idx(count));
  given_.assign(idx(count), 0.0);
  for (std::size_t c = 0; c < width; ++c) {
    const ScoreColumn& column = columns_[idx(user.columns[c])];
    request[c] = pod.requested[idx(user.columns[c])];
    for (i32 i = 0; i < count; ++i)
      free_[idx(i) * width + c] = column.allocatable[idx(nodes[i])] - column.used[idx(nodes[i])];
  }
  if (user.score(request.data(), free_.data(), count, static_cast<i64>(width), given_.data()) != 0) return false;
  for (i32 i = 0; i < count; ++i) {
    const double score = given_[idx(i)];
    if (!(score >= 0 && score <= static_cast<double>(kMostScore))) return false;
    out[i] = static_cast<i64>(score);
  }
  return true;
}

bool Scorer::score(i32 pod, const i32* nodes, i32 count, i64* total, i64* parts) {
  const ScoreClass& of = classes_[idx(pod)];
  std::fill(total, total + count, i64{0});
  work_.resize(idx(count));
  const auto take = [&](i32 plugin, i64 weight) {
    for (i32 i = 0; i < count; ++i) total[i] += work_[idx(i)] * weight;
    if (parts) std::copy_n(work_.data(), count, parts + static_cast<std::ptrdiff_t>(plugin) * count);
  };
  for (i32 plugin = 0; plugin < kScorePlugins; ++plugin) {
    const i64 weight = weight_[plugin];
    i64* out = work_.data();
    bool scored = weight != 0;
    switch (plugin) {
      case kScoreTaintToleration:
        if ((scored = scored && of.taints >= 0)) fixed(of.taints, nodes, count, out), normalize(out, count, true);
        break;
      case kScoreNodeAffinity:
        if ((scored = scored && of.affinity >= 0)) fixed(of.affinity, nodes, count, out), normalize(out, count, false);
        break;
      case kScoreNodeResourcesFit:
        if (scored) resources_fit(of, nodes, count, out);
        break;
      case kScorePodTopologySpread:
        if ((scored = scored && !of.spread.empty())) spread(of, nodes, count, out);
        break;
      case kScoreInterPodAffinity:
        if ((scored = scored && !of.terms.empty())) affinity(of, nodes, count, out);
        break;
      case kScoreBalancedAllocation:
        if (scored) balanced(of, nodes, count, out);
        break;
      case kScoreImageLocality:
        if ((scored = scored && of.images >= 0)) fixed(of.images, nodes, count, out);
        break;
      default:
        if ((scored = scored && of.volumes >= 0)) fixed(of.volumes, nodes, count, out);
    }
    if (!scored) std::fill(work_.begin(), work_.end(), i64{0});
    take(plugin, weight);
  }
  for (std::size_t u = 0; u < users_.size(); ++u) {
    if (!of_user(users_[u], of, nodes, count, work_.data())) {
      failed_ = static_cast<i32>(u);
      return false;
    }
    take(kScorePlugins + static_cast<i32>(u), users_[u].weight);
  }
  return true;
}

}  // namespace kscale::engine
