#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "kscale/engine/journal.hpp"
#include "kscale/engine/pod_classes.hpp"

namespace kscale::engine {

// A counter per topology domain.
struct Row {
  i32 key = 0;
  i32 group = -1;               // affinity group whose total it feeds
  i32 eligibility = -1;         // spread: row of the eligibility table; -1 = not a spread row
  std::vector<i32> count;
  std::vector<i32> registered;  // spread: eligible nodes per domain; a domain exists while this is > 0
  i32 domains = 0;              // number of registered domains
  i64 min = 0;                  // minimum over the registered domains
  std::vector<i32> with_count;  // number of registered domains with each count
  bool wants_domains = false;   // some constraint has minDomains > 1
};

// Topology domains of the nodes, and the counters of PodTopologySpread and InterPodAffinity. Copies of an engine share
// rows until one of them changes a row.
class Topology {
 public:
  // -- keys: a node's domain under each, -1 = the label is absent ---------------------------------------------------
  i32 add_key(const i32* domain, std::size_t nodes, i32 n_domains) {
    domain_.emplace_back(domain, domain + nodes);
    n_domains_.push_back(n_domains);
    return keys() - 1;
  }
  i32 keys() const { return static_cast<i32>(domain_.size()); }
  i32 domains(i32 key) const { return n_domains_[idx(key)]; }
  i32 domain(i32 key, i32 node) const { return domain_[idx(key)][idx(node)]; }
  const i32* column(i32 key) const { return domain_[idx(key)].data(); }  // [node]
  // Adds a node; domain -2 = a domain of its own.
  void append(i32 key, i32 domain) { domain_[idx(key)].push_back(domain == -2 ? n_domains_[idx(key)]++ : domain); }
  void shrink(std::size_t nodes, const std::vector<i32>& n_domains) {
    for (auto& column : domain_) column.resize(nodes);
    n_domains_ = n_domains;
  }
  const std::vector<i32>& domains() const { return n_domains_; }

  // -- rows ---------------------------------------------------------------------------------------------------------
  void set_eligibility(i32 rows, std::size_t node_classes, const u8* eligible) {  // [rows][node classes]
    node_classes_ = node_classes;
    eligible_.assign(eligible, eligible + idx(rows) * node_classes);
  }
  i32 add_group() {
    totals_.push_back(0);
    return static_cast<i32>(totals_.size()) - 1;
  }
  // counts: [n_counts], of the pods on nodes, 0 beyond them; may be null.
  i32 add_row(i32 key, i32 group, i32 eligibility, const i64* counts, i32 n_counts);
  i32 rows() const { return static_cast<i32>(rows_.size()); }
  const Row& row(i32 r) const { return *rows_[idx(r)]; }
  i64 total(i32 group) const { return totals_[idx(group)]; }
  u64 version(i32 r) const { return versions_[idx(r)]; }  // incremented when the row may have become more permissive
  const std::vector<i32>& spread_rows() const { return spread_rows_; }
  void want_domains(i32 r) { own(r).wants_domains = true; }
  // Counts every node in the rows for which it is eligible, and computes their minima.
  void settle_all(const i32* node_class, std::size_t nodes);
  void clear_rows();

  i64 count_at(const Row& row, i32 node) const {
    const i32 d = domain_[idx(row.key)][idx(node)];
    return d >= 0 && idx(d) < row.count.size() ? row.count[idx(d)] : 0;
  }
  // Adds a pod of this class to a node (delta > 0), or removes it.
  void touch(const Extra& extra, i32 node, i32 node_class, i64 delta, Journal& journal) {
    for (const i32 r : extra.spread_touch) {
      const Row& row = *rows_[idx(r)];
      const i32 d = domain_[idx(row.key)][idx(node)];
      if (d >= 0 && eligible(row, node_class)) count(r, d, delta, journal);
    }
    for (const i32 r : extra.touch) {
      const i32 d = domain_[idx(rows_[idx(r)]->key)][idx(node)];
      if (d >= 0) count(r, d, delta, journal);
    }
  }
  // The same before any check, without minima: settle_all() computes them.
  void add_up(const Extra& extra, i32 node, i32 node_class);
  // Adds a node to a spread row (delta > 0), or removes it.
  void enroll(i32 r, i32 node, i32 node_class, i32 delta, Journal& journal);

  void rollback(const Entry& e);
  // Copies instead of a log, for changes that far outnumber the counters.
  bool few(i64 changes) const;
  void copy_counters() { rows_before_ = rows_, totals_before_ = totals_; }
  void restore_counters() {
    rows_.swap(rows_before_);
    totals_.swap(totals_before_);
    rows_before_.clear();
  }
  void mix(Checksum& sum) const;

 private:
  bool eligible(const Row& row, i32 node_class) const {
    return eligible_[idx(row.eligibility) * node_classes_ + idx(node_class)];
  }
  Row& own(i32 r) {
    auto& shared = rows_[idx(r)];
    if (shared.use_count() > 1)
      shared = std::make_shared<Row>(*shared);
    else
      std::atomic_thread_fence(std::memory_order_acquire);  // the other owners have finished reading
    return *shared;
  }
  void count(i32 r, i32 domain, i64 delta, Journal& journal);

  std::vector<std::vector<i32>> domain_;  // [key][node]
  std::vector<i32> n_domains_;
  std::size_t node_classes_ = 0;
  std::vector<u8> eligible_;
  std::vector<std::shared_ptr<Row>> rows_, rows_before_;
  std::vector<u64> versions_;  // [row]; not restored with counters
  std::vector<i32> spread_rows_;
  std::vector<i64> totals_, totals_before_;
};

}  // namespace kscale::engine
