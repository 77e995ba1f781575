#include "kscale/engine/topology.hpp"

#include <map>
#include <utility>

namespace kscale::engine {
namespace {

// Adjusts the number of registered domains with this count.
void recount(Row& row, i64 count, i32 delta) {
  const std::size_t slot = count > 0 ? static_cast<std::size_t>(count) : 0;
  if (slot >= row.with_count.size()) row.with_count.resize(slot + 1, 0);
  row.with_count[slot] += delta;
}

// Updates the minimum after counts rose.
void rise(Row& row) {
  while (row.domains > 0 && row.min >= 0 && static_cast<std::size_t>(row.min) < row.with_count.size() &&
         row.with_count[static_cast<std::size_t>(row.min)] == 0)
    ++row.min;
}

void find_minimum(Row& row) {
  row.domains = 0;
  row.min = 0;
  row.with_count.clear();
  for (std::size_t d = 0; d < row.count.size(); ++d) {
    if (!row.registered[d]) continue;
    if (row.domains++ == 0 || row.count[d] < row.min) row.min = row.count[d];
    recount(row, row.count[d], 1);
  }
}

// Logs a row's minimum before it changes.
void log_shape(i32 r, const Row& row, Journal& journal) {
  if (journal.counters()) journal.log(Undo::kShape, r, row.domains, 0, row.min);
}

}  // namespace

i32 Topology::add_row(i32 key, i32 group, i32 eligibility, const i64* counts, i32 n_counts) {
  const i32 index = rows();
  Row& row = *rows_.emplace_back(std::make_shared<Row>());
  versions_.push_back(0);
  row.key = key;
  row.group = group;
  row.eligibility = eligibility;
  row.count.assign(idx(domains(key)), 0);
  for (i32 d = 0; d < n_counts; ++d) row.count[idx(d)] = static_cast<i32>(counts[d]);
  if (group >= 0)
    for (const i32 c : row.count) totals_[idx(group)] += c;
  if (eligibility >= 0) spread_rows_.push_back(index);
  return index;
}

void Topology::settle_all(const i32* node_class, std::size_t nodes) {
  std::map<std::pair<i32, i32>, std::vector<i32>> known;  // rows of one key and eligibility register the same nodes
  for (const i32 r : spread_rows_) {
    Row& row = own(r);
    auto [found, fresh] = known.try_emplace({row.key, row.eligibility});
    std::vector<i32>& registered = found->second;
    if (fresh) {
      registered.assign(idx(domains(row.key)), 0);
      const std::vector<i32>& domain = domain_[idx(row.key)];
      for (std::size_t n = 0; n < nodes; ++n)
        if (domain[n] >= 0 && eligible(row, node_class[n])) ++registered[idx(domain[n])];
    }
    row.registered = registered;
    find_minimum(row);
  }
}

void Topology::clear_rows() {
  rows_.clear();
  versions_.clear();
  spread_rows_.clear();
  totals_.clear();
}

void Topology::add_up(const Extra& extra, i32 node, i32 node_class) {
  for (const i32 r : extra.spread_touch) {
    Row& row = *rows_[idx(r)];
    const i32 d = domain_[idx(row.key)][idx(node)];
    if (d >= 0 && eligible(row, node_class)) ++row.count[idx(d)];
  }
  for (const i32 r : extra.touch) {
    Row& row = *rows_[idx(r)];
    const i32 d = domain_[idx(row.key)][idx(node)];
    if (d < 0) continue;
    ++row.count[idx(d)];
    if (row.group >= 0) ++totals_[idx(row.group)];
  }
}

void Topology::count(i32 r, i32 domain, i64 delta, Journal& journal) {
  Row& row = own(r);
  if (idx(domain) >= row.count.size()) {
    row.count.resize(idx(n_domains_[idx(row.key)]), 0);
    if (row.eligibility >= 0) row.registered.resize(row.count.size(), 0);
  }
  i32& cell = row.count[idx(domain)];
  const i32 before = cell;
  if (journal.counters()) journal.log(Undo::kCount, r, domain, 0, before);
  cell = static_cast<i32>(before + delta);
  if (row.group >= 0) {
    if (journal.counters()) journal.log(Undo::kTotal, row.group, 0, 0, totals_[idx(row.group)]);
    totals_[idx(row.group)] += delta;
    if (before <= 0 && cell > 0) ++versions_[idx(r)];
  }
  if (row.eligibility >= 0 && row.registered[idx(domain)]) {
    log_shape(r, row, journal);
    const i64 minimum = row.min;
    recount(row, before, -1);
    recount(row, cell, 1);
    if (cell < row.min)
      row.min = cell;
    else if (before == row.min)
      rise(row);
    if (row.min > minimum || delta < 0) ++versions_[idx(r)];
  }
}

void Topology::enroll(i32 r, i32 node, i32 node_class, i32 delta, Journal& journal) {
  const Row& shared = row(r);
  const i32 d = domain_[idx(shared.key)][idx(node)];
  if (d < 0 || !eligible(shared, node_class)) return;
  Row& row = own(r);
  if (idx(d) >= row.count.size()) row.count.resize(idx(n_domains_[idx(row.key)]), 0);
  row.registered.resize(row.count.size(), 0);
  i32& nodes_of = row.registered[idx(d)];
  if (journal.counters()) journal.log(Undo::kRegistered, r, d, 0, nodes_of);
  nodes_of += delta;
  if (delta > 0 && nodes_of == 1) {  // a new domain; permits more only if a minimum number of domains is required
    log_shape(r, row, journal);
    if (row.wants_domains) ++versions_[idx(r)];
    const i64 c = row.count[idx(d)];
    recount(row, c, 1);
    if (row.domains++ == 0 || c < row.min) row.min = c;
  } else if (delta < 0 && nodes_of == 0) {  // the last node of a domain was removed
    log_shape(r, row, journal);
    ++versions_[idx(r)];
    recount(row, row.count[idx(d)], -1);
    if (--row.domains == 0)
      row.min = 0;
    else
      rise(row);
  }
}

void Topology::rollback(const Entry& e) {
  if (e.what == Undo::kTotal) {
    totals_[idx(e.a)] = e.value;
    return;
  }
  Row& row = own(e.a);
  switch (e.what) {
    case Undo::kCount:
      if (row.eligibility >= 0 && row.registered[idx(e.b)]) {
        recount(row, row.count[idx(e.b)], -1);
        recount(row, e.value, 1);
      }
      row.count[idx(e.b)] = static_cast<i32>(e.value);
      break;
    case Undo::kRegistered: {
      i32& nodes_of = row.registered[idx(e.b)];
      if ((nodes_of > 0) != (e.value > 0)) recount(row, row.count[idx(e.b)], e.value > 0 ? 1 : -1);
      nodes_of = static_cast<i32>(e.value);
      break;
    }
    default:  // kShape
      row.min = e.value;
      row.domains = e.b;
  }
}

bool Topology::few(i64 changes) const {
  i64 size = static_cast<i64>(totals_.size());
  for (const auto& row : rows_) size += static_cast<i64>(row->count.size()) + 16;
  return size < 2 * changes;
}

void Topology::mix(Checksum& sum) const {
  for (const auto& column : domain_)
    for (const i32 v : column) sum.mix(static_cast<u64>(static_cast<i64>(v)));
  for (const auto& shared : rows_) {
    const Row& row = *shared;
    for (std::size_t d = 0; d < row.count.size(); ++d)  // trailing zeros do not count: columns may have been lengthened
      if (row.count[d]) sum.mix(static_cast<u64>(static_cast<i64>(row.count[d])) * 31 + d);
    for (std::size_t d = 0; d < row.registered.size(); ++d)
      if (row.registered[d]) sum.mix(static_cast<u64>(row.registered[d]) * 37 + d);
    sum.mix(static_cast<u64>(row.min));
    sum.mix(static_cast<u64>(row.domains));
    for (std::size_t c = 0; c < row.with_count.size(); ++c)
      if (row.with_count[c]) sum.mix(static_cast<u64>(row.with_count[c]) * 41 + c);
  }
  for (const i64 v : totals_) sum.mix(static_cast<u64>(v));
}

}  // namespace kscale::engine
