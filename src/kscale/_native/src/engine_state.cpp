#include <algorithm>
#include <cstring>

#include "kscale/engine/candidates.hpp"
#include "kscale/engine/engine.hpp"

namespace kscale::engine {

Engine::Engine(i32 n_resources, i32 n_port_keys, i32 n_ports, u16 disabled)
    : n_resources_(n_resources),
      port_words_((n_port_keys + 63) / 64),
      specific_words_((n_ports + 63) / 64),
      enabled_(static_cast<u16>(~disabled)),
      free_(idx(n_resources)),
      specific_of_(idx(n_ports), Port{-1, -1}) {}

Engine::~Engine() = default;

std::unique_ptr<Engine> Engine::copy() const {
  std::unique_ptr<Engine> made(new Engine(*this));
  for (auto& memo : made->memo_) memo.reset();  // the copy would share it
  made->memo_entries_ = 0;
  return made;
}

void Engine::append_nodes(i32 count, const i64* free, const i64* slots, const i32* classes, const u8* unschedulable) {
  const std::size_t n = idx(count);
  for (std::size_t r = 0; r < idx(n_resources_); ++r) free_[r].insert(free_[r].end(), free + r * n, free + (r + 1) * n);
  slots_.insert(slots_.end(), slots, slots + n);
  class_.insert(class_.end(), classes, classes + n);
  cordoned_.insert(cordoned_.end(), unschedulable, unschedulable + n);
  gone_.resize(slots_.size(), 0);
  migrated_.resize(slots_.size(), 0);
  any_port_.resize(slots_.size() * idx(port_words_), 0);
  wild_port_.resize(slots_.size() * idx(port_words_), 0);
  specific_port_.resize(slots_.size() * idx(specific_words_), 0);
}

void Engine::set_classes(const i32* classes) { std::copy(classes, classes + slots_.size(), class_.begin()); }

i32 Engine::add_key(const i32* domain, i32 n_domains) {
  domain_.emplace_back(domain, domain + slots_.size());
  n_domains_.push_back(n_domains);
  return keys() - 1;
}

i32 Engine::add_driver(const i32* limit) {
  limit_.emplace_back(limit, limit + slots_.size());
  volumes_.resize(slots_.size());
  return drivers() - 1;
}

void Engine::set_migrated(const u32* plugins) { std::copy(plugins, plugins + slots_.size(), migrated_.begin()); }

void Engine::set_statics(i32 n_rows, i32 n_classes, const u16* bits) {
  n_node_classes_ = idx(n_classes);
  statics_.assign(bits, bits + idx(n_rows) * idx(n_classes));
  ++growth_;
}

void Engine::set_eligibility(i32 n_rows, const u8* eligible) {
  eligible_.assign(eligible, eligible + idx(n_rows) * n_node_classes_);
}

i32 Engine::add_row(i32 key, i32 group, i32 eligibility, const i64* counts, i32 n_counts) {
  const i32 index = rows();
  Row& row = rows_.emplace_back();
  row.key = key;
  row.group = group;
  row.eligibility = eligibility;
  row.count.assign(counts, counts + n_counts);
  row.count.resize(idx(n_domains_[idx(key)]), 0);
  if (group >= 0)
    for (const i64 c : row.count) totals_[idx(group)] += c;
  if (eligibility >= 0) {
    row.registered.assign(row.count.size(), 0);
    spread_rows_.push_back(index);
    for (i32 n = 0; n < nodes(); ++n) {
      if (!alive(n)) continue;
      const i32 d = domain_[idx(key)][idx(n)];
      if (d >= 0 && eligible_[idx(eligibility) * n_node_classes_ + idx(class_[idx(n)])]) ++row.registered[idx(d)];
    }
    for (std::size_t d = 0; d < row.count.size(); ++d) {
      if (!row.registered[d]) continue;
      if (row.domains++ == 0 || row.count[d] < row.min) row.min = row.count[d];
      recount(row, row.count[d], 1);
    }
  }
  return index;
}

void Engine::use_disk(i32 node, i32 disk, bool read_only) {
  if (disks_.empty()) disks_.resize(slots_.size());
  auto& list = disks_[idx(node)];
  auto found = std::find_if(list.begin(), list.end(), [&](const NodeDisk& d) { return d.id == disk; });
  if (found == list.end()) found = list.insert(list.end(), NodeDisk{disk, 0, 0});
  i32& references = read_only ? found->read_only : found->read_write;
  if (journaled(node)) log(Undo::kDisk, disk, node, read_only, references);
  ++references;
}

void Engine::use_volume(i32 node, i32 handle, i32 driver, bool attachment) {
  auto& list = volumes_[idx(node)];
  auto found = std::find_if(list.begin(), list.end(), [&](const NodeVolume& v) { return v.handle == handle; });
  if (found == list.end()) found = list.insert(list.end(), NodeVolume{handle, driver, 0, 0});
  if (attachment) {
    found->attachment = 1;
    return;
  }
  if (journaled(node)) log(Undo::kVolume, handle, node, driver, found->references);
  ++found->references;
}

void Engine::use_port(i32 node, Port port) {
  Extra extra;
  extra.ports.push_back(port);
  if (port.specific >= 0) specific_of_[idx(port.specific)] = port;
  take_ports(extra, node);
}

i32 Engine::add_class(const i64* request, const i64* occupancy, i32 static_row, bool prefilter_failed,
                      bool hostname_spread, std::unique_ptr<Extra> extra) {
  const std::size_t n = idx(n_resources_);
  request_.insert(request_.end(), request, request + n);
  occupancy_.insert(occupancy_.end(), occupancy, occupancy + n);
  columns_.resize(columns_.size() + n, 0);
  i32 wanted = 0;
  bool plain = true;  // amounts that no sum of a simulation can wrap
  constexpr i64 most = i64{1} << 59;
  for (i32 r = 0; r < n_resources_; ++r) {
    if (request[r] > 0) columns_[columns_.size() - n + idx(wanted++)] = r;
    plain = plain && occupancy[r] >= 0 && occupancy[r] < most && request[r] < most;
  }
  n_columns_.push_back(wanted);
  static_row_.push_back(static_row);
  prefilter_failed_.push_back(prefilter_failed);
  hostname_spread_.push_back(hostname_spread);
  plain_occupancy_.push_back(plain);
  local_.push_back(!extra || extra->local());
  if (extra) {
    for (const Port& port : extra->ports)
      if (port.specific >= 0) specific_of_[idx(port.specific)] = port;
    for (const SpreadUse& use : extra->spread)
      if (use.min_domains > 1) rows_[idx(use.row)].wants_domains = true;
  }
  extra_.push_back(std::move(extra));
  memo_.emplace_back();
  scans_.push_back(0);
  return classes() - 1;
}

i32 Engine::add_user(UserPredicate predicate, std::vector<i32> columns) {
  users_.push_back({predicate, std::move(columns)});
  return static_cast<i32>(users_.size()) - 1;
}

void Engine::reset_classes() {
  request_.clear();
  occupancy_.clear();
  columns_.clear();
  n_columns_.clear();
  static_row_.clear();
  prefilter_failed_.clear();
  hostname_spread_.clear();
  plain_occupancy_.clear();
  local_.clear();
  extra_.clear();
  rows_.clear();
  spread_rows_.clear();
  totals_.clear();
  memo_.clear();
  memo_entries_ = 0;
  scans_.clear();
}

// ---- counters ------------------------------------------------------------------------------------------------------

void Engine::shape(i32 r) {
  const Row& row = rows_[idx(r)];
  if (logs_counters()) log(Undo::kShape, r, row.domains, 0, row.min);
}

void Engine::recount(Row& row, i64 count, i32 delta) {
  const std::size_t slot = count > 0 ? static_cast<std::size_t>(count) : 0;
  if (slot >= row.with_count.size()) row.with_count.resize(slot + 1, 0);
  row.with_count[slot] += delta;
}

void Engine::settle(Row& row) {
  while (row.domains > 0 && row.min >= 0 && static_cast<std::size_t>(row.min) < row.with_count.size() &&
         row.with_count[static_cast<std::size_t>(row.min)] == 0)
    ++row.min;
}

void Engine::count(i32 r, i32 domain, i64 delta) {
  Row& row = rows_[idx(r)];
  if (idx(domain) >= row.count.size()) {
    row.count.resize(idx(n_domains_[idx(row.key)]), 0);
    if (row.eligibility >= 0) row.registered.resize(row.count.size(), 0);
  }
  i64& cell = row.count[idx(domain)];
  const i64 before = cell;
  if (logs_counters()) log(Undo::kCount, r, domain, 0, before);
  cell = before + delta;
  if (row.group >= 0) {
    if (logs_counters()) log(Undo::kTotal, row.group, 0, 0, totals_[idx(row.group)]);
    totals_[idx(row.group)] += delta;
    if (before <= 0 && cell > 0) ++row.version;
  }
  if (row.eligibility >= 0 && row.registered[idx(domain)]) {
    shape(r);
    const i64 minimum = row.min;
    recount(row, before, -1);
    recount(row, cell, 1);
    if (cell < row.min)
      row.min = cell;
    else if (before == row.min)
      settle(row);
    if (row.min > minimum || delta < 0) ++row.version;
  }
}

void Engine::enroll(i32 r, i32 node, i32 delta) {
  Row& row = rows_[idx(r)];
  const i32 d = domain_[idx(row.key)][idx(node)];
  if (d < 0 || !eligible_[idx(row.eligibility) * n_node_classes_ + idx(class_[idx(node)])]) return;
  if (idx(d) >= row.count.size()) row.count.resize(idx(n_domains_[idx(row.key)]), 0);
  row.registered.resize(row.count.size(), 0);
  i32& nodes_of = row.registered[idx(d)];
  if (logs_counters()) log(Undo::kRegistered, r, d, 0, nodes_of);
  nodes_of += delta;
  if (delta > 0 && nodes_of == 1) {  // a new domain; permits more only where a minimum number of domains is asked for
    shape(r);
    if (row.wants_domains) ++row.version;
    const i64 c = row.count[idx(d)];
    recount(row, c, 1);
    if (row.domains++ == 0 || c < row.min) row.min = c;
  } else if (delta < 0 && nodes_of == 0) {  // the last node of a domain left
    shape(r);
    ++row.version;
    recount(row, row.count[idx(d)], -1);
    if (--row.domains == 0)
      row.min = 0;
    else
      settle(row);
  }
}

void Engine::touch(const Extra& extra, i32 node, i64 times) {
  for (const i32 r : extra.spread_touch) {
    const Row& row = rows_[idx(r)];
    const i32 d = domain_[idx(row.key)][idx(node)];
    if (d >= 0 && eligible_[idx(row.eligibility) * n_node_classes_ + idx(class_[idx(node)])]) count(r, d, times);
  }
  for (const RowKey& rk : extra.touch) {
    const i32 d = domain_[idx(rk.key)][idx(node)];
    if (d >= 0) count(rk.row, d, times);
  }
  for (const i32 claim : extra.claims) {
    if (logs_counters()) log(Undo::kClaimUse, claim, 0, 0, claim_users_[idx(claim)]);
    claim_users_[idx(claim)] += times;
  }
}

// ---- ports ---------------------------------------------------------------------------------------------------------

void Engine::take_ports(const Extra& extra, i32 node) {
  const bool keep = journaled(node);
  auto set = [&](std::vector<u64>& words, Undo what, std::size_t word, u64 value) {
    if (keep) log(what, 0, static_cast<i32>(word), 0, static_cast<i64>(words[word]));
    words[word] |= value;
  };
  for (const Port& port : extra.ports) {
    const std::size_t word = idx(node) * idx(port_words_) + idx(port.key / 64);
    const u64 b = u64{1} << (port.key % 64);
    set(any_port_, Undo::kAnyPort, word, b);
    if (port.specific < 0)
      set(wild_port_, Undo::kWildPort, word, b);
    else
      set(specific_port_, Undo::kSpecificPort, idx(node) * idx(specific_words_) + idx(port.specific / 64),
          u64{1} << (port.specific % 64));
  }
}

// Upstream keeps a set without counts: removing one user of an entry frees it, even if another pod has it too.
void Engine::return_ports(const Extra& extra, i32 node) {
  for (const Port& port : extra.ports) {
    if (port.specific < 0) {
      const std::size_t word = idx(node) * idx(port_words_) + idx(port.key / 64);
      if (journaled(node)) log(Undo::kWildPort, 0, static_cast<i32>(word), 0, static_cast<i64>(wild_port_[word]));
      wild_port_[word] &= ~(u64{1} << (port.key % 64));
    } else {
      const std::size_t word = idx(node) * idx(specific_words_) + idx(port.specific / 64);
      if (journaled(node))
        log(Undo::kSpecificPort, 0, static_cast<i32>(word), 0, static_cast<i64>(specific_port_[word]));
      specific_port_[word] &= ~(u64{1} << (port.specific % 64));
    }
  }
  rebuild_any(node);
}

void Engine::rebuild_any(i32 node) {
  const std::size_t base = idx(node) * idx(port_words_);
  std::vector<u64> words(wild_port_.begin() + static_cast<std::ptrdiff_t>(base),
                         wild_port_.begin() + static_cast<std::ptrdiff_t>(base + idx(port_words_)));
  for (std::size_t s = 0; s < specific_of_.size(); ++s)
    if (specific_port_[idx(node) * idx(specific_words_) + s / 64] >> (s % 64) & 1) {
      const i32 key = specific_of_[s].key;
      words[idx(key / 64)] |= u64{1} << (key % 64);
    }
  for (std::size_t w = 0; w < words.size(); ++w) {
    if (journaled(node))
      log(Undo::kAnyPort, 0, static_cast<i32>(base + w), 0, static_cast<i64>(any_port_[base + w]));
    any_port_[base + w] = words[w];
  }
}

// ---- placing -------------------------------------------------------------------------------------------------------

void Engine::place(i32 pod, i32 node, i64 times) {
  const i64* occupancy = occupancy_.data() + idx(pod) * idx(n_resources_);
  const bool keep = journaled(node);
  for (i32 r = 0; r < n_resources_; ++r) {
    if (occupancy[r] == 0) continue;
    i64& cell = free_[idx(r)][idx(node)];
    if (keep) log(Undo::kFree, r, node, 0, cell);
    cell -= occupancy[r] * times;
    if (occupancy[r] < 0) ++growth_;  // a wrapped amount gives room back
  }
  if (keep) log(Undo::kSlots, 0, node, 0, slots_[idx(node)]);
  slots_[idx(node)] -= times;
  const Extra* extra = extra_[idx(pod)].get();
  if (!extra) return;
  if (!extra->ports.empty()) take_ports(*extra, node);
  for (const Disk& disk : extra->disks) use_disk(node, disk.id, disk.read_only != 0);
  for (const Volume& volume : extra->volumes)
    if (attaches(volume, node)) use_volume(node, volume.handle, volume.driver, false);
  touch(*extra, node, times);
  if (extra->devices && tell(DeviceCall::kPlace, pod, node)) ++growth_;
}

void Engine::unplace(i32 pod, i32 node) {
  ++growth_;
  const i64* occupancy = occupancy_.data() + idx(pod) * idx(n_resources_);
  const bool keep = journaled(node);
  for (i32 r = 0; r < n_resources_; ++r) {
    if (occupancy[r] == 0) continue;
    i64& cell = free_[idx(r)][idx(node)];
    if (keep) log(Undo::kFree, r, node, 0, cell);
    cell += occupancy[r];
  }
  if (keep) log(Undo::kSlots, 0, node, 0, slots_[idx(node)]);
  ++slots_[idx(node)];
  const Extra* extra = extra_[idx(pod)].get();
  if (!extra) return;
  if (!extra->ports.empty()) return_ports(*extra, node);
  for (const Disk& disk : extra->disks) {
    if (disks_.empty()) break;
    for (NodeDisk& used : disks_[idx(node)])
      if (used.id == disk.id) {
        i32& references = disk.read_only ? used.read_only : used.read_write;
        if (keep) log(Undo::kDisk, disk.id, node, disk.read_only, references);
        --references;
      }
  }
  for (const Volume& volume : extra->volumes)
    for (NodeVolume& used : volumes_[idx(node)])
      if (used.handle == volume.handle && attaches(volume, node)) {
        if (keep) log(Undo::kVolume, volume.handle, node, used.driver, used.references);
        --used.references;
      }
  touch(*extra, node, -1);
  if (extra->devices) tell(DeviceCall::kUnplace, pod, node);
}

i32 Engine::add_copy(const Template& t, i32 copy) {
  const i32 node = nodes();
  tell(DeviceCall::kAdd, t.number, copy);
  for (i32 r = 0; r < n_resources_; ++r) free_[idx(r)].push_back(t.free[idx(r)]);
  slots_.push_back(t.slots);
  i32 node_class = t.node_class;
  const auto exception = std::lower_bound(t.exception_index.begin(), t.exception_index.end(), copy);
  if (exception != t.exception_index.end() && *exception == copy)
    node_class = t.exception_class[static_cast<std::size_t>(exception - t.exception_index.begin())];
  class_.push_back(node_class);
  cordoned_.push_back(t.unschedulable);
  gone_.push_back(0);
  migrated_.push_back(t.migrated);
  any_port_.resize(any_port_.size() + idx(port_words_), 0);
  wild_port_.resize(wild_port_.size() + idx(port_words_), 0);
  specific_port_.resize(specific_port_.size() + idx(specific_words_), 0);
  for (i32 k = 0; k < keys(); ++k) {
    i32 d = t.domain[idx(k)];
    if (d == -2) d = t.domain_of_copy(k, copy);
    domain_[idx(k)].push_back(d == -2 ? n_domains_[idx(k)]++ : d);
  }
  if (!disks_.empty()) disks_.emplace_back();
  if (!limit_.empty()) {
    volumes_.emplace_back();
    for (i32 d = 0; d < drivers(); ++d) limit_[idx(d)].push_back(t.limits[idx(d)]);
  }
  for (const i32 r : spread_rows_) enroll(r, node, 1);
  for (const i32 pod : t.pods) {
    const Extra* extra = extra_[idx(pod)].get();
    if (!extra) continue;
    if (!extra->ports.empty()) take_ports(*extra, node);
    for (const Disk& disk : extra->disks) use_disk(node, disk.id, disk.read_only != 0);
    for (const Volume& volume : extra->volumes)
      if (attaches(volume, node)) use_volume(node, volume.handle, volume.driver, false);
    touch(*extra, node, 1);
  }
  return node;
}

void Engine::gone(i32 node) {
  ++growth_;
  if (!marks_.empty()) log(Undo::kNodeGone, 0, node, 0, 0);
  gone_[idx(node)] = 1;
  removed_.insert(std::lower_bound(removed_.begin(), removed_.end(), node), node);
}

void Engine::remove_node(i32 node) {
  gone(node);
  for (const i32 r : spread_rows_) enroll(r, node, -1);
}

void Engine::vacate(i32 node, const i32* pods, i32 count) {
  for (i32 i = 0; i < count; ++i) unplace(pods[i], node);
  for (const i32 r : spread_rows_)
    if (leaves_ghosts(r)) enroll(r, node, -1);
}

void Engine::remove_ghost(i32 node) {
  gone(node);
  for (const i32 r : spread_rows_)
    if (!leaves_ghosts(r)) enroll(r, node, -1);
}

// ---- forks ---------------------------------------------------------------------------------------------------------

void Engine::fork() {
  marks_.push_back({journal_.size(), nodes(), n_domains_});
  floor_ = nodes();
  tell(DeviceCall::kFork);
}

bool Engine::counters_are_few(i64 changes) const {
  i64 size = static_cast<i64>(totals_.size() + claim_users_.size());
  for (const Row& row : rows_) size += static_cast<i64>(row.count.size()) + 16;
  return size < 2 * changes;
}

void Engine::fork_counters() {
  fork();
  rows_before_ = rows_;
  totals_before_ = totals_;
  claims_before_ = claim_users_;
  counters_copied_ = true;
}

void Engine::rollback(const Entry& e) {
  switch (e.what) {
    case Undo::kFree: free_[idx(e.a)][idx(e.b)] = e.value; break;
    case Undo::kSlots: slots_[idx(e.b)] = e.value; break;
    case Undo::kAnyPort: any_port_[idx(e.b)] = static_cast<u64>(e.value); break;
    case Undo::kWildPort: wild_port_[idx(e.b)] = static_cast<u64>(e.value); break;
    case Undo::kSpecificPort: specific_port_[idx(e.b)] = static_cast<u64>(e.value); break;
    case Undo::kCount: {
      Row& row = rows_[idx(e.a)];
      if (row.eligibility >= 0 && row.registered[idx(e.b)]) {
        recount(row, row.count[idx(e.b)], -1);
        recount(row, e.value, 1);
      }
      row.count[idx(e.b)] = e.value;
      break;
    }
    case Undo::kRegistered: {
      Row& row = rows_[idx(e.a)];
      i32& nodes_of = row.registered[idx(e.b)];
      if ((nodes_of > 0) != (e.value > 0)) recount(row, row.count[idx(e.b)], e.value > 0 ? 1 : -1);
      nodes_of = static_cast<i32>(e.value);
      break;
    }
    case Undo::kShape:
      rows_[idx(e.a)].min = e.value;
      rows_[idx(e.a)].domains = e.b;
      break;
    case Undo::kTotal: totals_[idx(e.a)] = e.value; break;
    case Undo::kClaimUse: claim_users_[idx(e.a)] = e.value; break;
    case Undo::kDisk: {
      auto& list = disks_[idx(e.b)];
      auto found = std::find_if(list.begin(), list.end(), [&](const NodeDisk& d) { return d.id == e.a; });
      if (found == list.end()) found = list.insert(list.end(), NodeDisk{e.a, 0, 0});  // taken off and put back
      (e.c ? found->read_only : found->read_write) = static_cast<i32>(e.value);
      if (!found->read_only && !found->read_write) list.erase(found);
      break;
    }
    case Undo::kVolume: {
      auto& list = volumes_[idx(e.b)];
      auto found = std::find_if(list.begin(), list.end(), [&](const NodeVolume& v) { return v.handle == e.a; });
      if (found == list.end()) found = list.insert(list.end(), NodeVolume{e.a, e.c, 0, 0});
      found->references = static_cast<i32>(e.value);
      if (!found->references && !found->attachment) list.erase(found);
      break;
    }
    case Undo::kNodeGone:
      gone_[idx(e.b)] = 0;
      removed_.erase(std::lower_bound(removed_.begin(), removed_.end(), e.b));
      break;
  }
}

bool Engine::revert() {
  if (marks_.empty()) return false;
  const Mark& mark = marks_.back();
  if (journal_.size() != mark.journal) {
    while (journal_.size() > mark.journal) {
      rollback(journal_.back());
      journal_.pop_back();
    }
  }
  const std::size_t n = idx(mark.nodes);
  if (slots_.size() != n) {
    for (auto& column : free_) column.resize(n);
    slots_.resize(n);
    class_.resize(n);
    cordoned_.resize(n);
    gone_.resize(n);
    migrated_.resize(n);
    any_port_.resize(n * idx(port_words_));
    wild_port_.resize(n * idx(port_words_));
    specific_port_.resize(n * idx(specific_words_));
    for (auto& column : domain_) column.resize(n);
    if (!disks_.empty()) disks_.resize(n);
    if (!limit_.empty()) {
      volumes_.resize(n);
      for (auto& column : limit_) column.resize(n);
    }
    while (!removed_.empty() && removed_.back() >= mark.nodes) removed_.pop_back();
  }
  n_domains_ = mark.domains;
  if (counters_copied_) {
    rows_.swap(rows_before_);
    totals_.swap(totals_before_);
    claim_users_.swap(claims_before_);
    counters_copied_ = false;
  }
  marks_.pop_back();
  floor_ = marks_.empty() ? 0 : marks_.back().nodes;
  ++growth_;
  tell(DeviceCall::kRevert);
  return true;
}

bool Engine::commit() {
  if (marks_.empty()) return false;
  marks_.pop_back();
  floor_ = marks_.empty() ? 0 : marks_.back().nodes;
  if (marks_.empty()) journal_.clear();
  tell(DeviceCall::kCommit);
  return true;
}

i32 Engine::position(i32 node) const {
  return node - static_cast<i32>(std::lower_bound(removed_.begin(), removed_.end(), node) - removed_.begin());
}

i32 Engine::at_position(i32 position) const {
  // Before the k-th of the removed nodes (from 0) stand removed_[k] - k of the others: never fewer than before the last.
  std::size_t low = 0, high = removed_.size();
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (removed_[middle] - static_cast<i32>(middle) > position)
      high = middle;
    else
      low = middle + 1;
  }
  return position + static_cast<i32>(low);
}

u64 Engine::checksum() const {
  u64 h = 1469598103934665603ull;
  auto mix = [&h](u64 v) { h = (h ^ v) * 1099511628211ull + (h >> 29); };
  for (const auto& column : free_)
    for (const i64 v : column) mix(static_cast<u64>(v));
  for (const i64 v : slots_) mix(static_cast<u64>(v));
  for (const i32 v : class_) mix(static_cast<u64>(v));
  for (const u8 v : gone_) mix(v);
  for (const auto* words : {&any_port_, &wild_port_, &specific_port_})
    for (const u64 v : *words) mix(v);
  for (const auto& column : domain_)
    for (const i32 v : column) mix(static_cast<u64>(static_cast<i64>(v)));
  for (const Row& row : rows_) {
    for (std::size_t d = 0; d < row.count.size(); ++d)  // trailing zeros do not count: columns may have been lengthened
      if (row.count[d]) mix(static_cast<u64>(row.count[d]) * 31 + d);
    for (std::size_t d = 0; d < row.registered.size(); ++d)
      if (row.registered[d]) mix(static_cast<u64>(row.registered[d]) * 37 + d);
    mix(static_cast<u64>(row.min));
    mix(static_cast<u64>(row.domains));
    for (std::size_t c = 0; c < row.with_count.size(); ++c)
      if (row.with_count[c]) mix(static_cast<u64>(row.with_count[c]) * 41 + c);
  }
  for (const i64 v : totals_) mix(static_cast<u64>(v));
  for (const i64 v : claim_users_) mix(static_cast<u64>(v));
  for (std::size_t n = 0; n < disks_.size(); ++n) {  // nodes without any do not count, as with domains
    u64 sum = 0;
    for (const NodeDisk& d : disks_[n])
      sum += static_cast<u64>(d.id + 1) * (static_cast<u64>(d.read_write) * 1000003u + static_cast<u64>(d.read_only));
    if (sum) mix(sum * 41 + n);
  }
  for (std::size_t n = 0; n < volumes_.size(); ++n) {
    u64 sum = 0;
    for (const NodeVolume& v : volumes_[n])
      sum += static_cast<u64>(v.handle + 1) * (static_cast<u64>(v.references) * 3u + v.attachment);
    if (sum) mix(sum * 43 + n);
  }
  return h;
}

}  // namespace kscale::engine
