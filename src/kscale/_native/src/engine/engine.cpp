#include "kscale/engine/engine.hpp"

#include <algorithm>

#include "kscale/engine/candidates.hpp"

namespace kscale::engine {

Engine::Engine(i32 n_resources, i32 n_port_keys, i32 n_ports, u16 disabled)
    : enabled_(static_cast<u16>(~disabled)),
      ports_(n_port_keys, n_ports),
      resources_(n_resources),
      pods_(std::make_shared<PodClasses>(n_resources)) {}

Engine::~Engine() = default;

std::unique_ptr<Engine> Engine::copy() const {
  std::unique_ptr<Engine> made(new Engine(*this));
  for (auto& memo : made->memo_) memo.reset();  // the copy would share it
  made->memo_entries_ = 0;
  return made;
}

// ---- building ------------------------------------------------------------------------------------------------------

void Engine::append_nodes(i32 count, const i64* free, const i64* slots, const i32* classes, const u8* unschedulable) {
  const std::size_t n = idx(count);
  class_.insert(class_.end(), classes, classes + n);
  cordoned_.insert(cordoned_.end(), unschedulable, unschedulable + n);
  gone_.resize(class_.size(), 0);
  resources_.append(n, free, slots);
  ports_.resize(class_.size());
  limits_.append(n);
}

void Engine::set_classes(const i32* classes) { std::copy(classes, classes + class_.size(), class_.begin()); }

void Engine::use_port(i32 node, Port port) {
  ports_.know(port);
  ports_.take({port}, node, journal_);
}

i32 Engine::add_class(const i64* request, const i64* occupancy, i32 static_row, bool prefilter_failed,
                      bool hostname_spread, std::shared_ptr<const Extra> extra) {
  if (pods_.use_count() > 1) pods_ = std::make_shared<PodClasses>(*pods_);  // a copy of the engine shares them
  if (extra) {
    for (const Port& port : extra->ports) ports_.know(port);
    for (const SpreadUse& use : extra->spread)
      if (use.min_domains > 1) topology_.want_domains(use.row);
  }
  pods_->add(request, occupancy, static_row, prefilter_failed, hostname_spread, std::move(extra));
  memo_.emplace_back();
  scans_.push_back(0);
  return classes() - 1;
}

void Engine::populate(const i32* pods, const i32* nodes, std::ptrdiff_t count) {
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    const Extra* extra = pods[i] < 0 ? nullptr : pods_->extra(pods[i]);
    if (!extra) continue;
    const i32 node = nodes[i];
    topology_.add_up(*extra, node, class_[idx(node)]);
    if (!extra->ports.empty()) ports_.take(extra->ports, node, journal_);
    restrictions_.take(*extra, node, class_.size(), 1, journal_);
    limits_.take(*extra, node, journal_);
  }
  settle_rows();
}

void Engine::reset_classes() {
  pods_ = std::make_shared<PodClasses>(resources());
  topology_.clear_rows();
  memo_.clear();
  memo_entries_ = 0;
  scans_.clear();
}

// ---- placing -------------------------------------------------------------------------------------------------------

void Engine::count(const Extra& extra, i32 node, i64 times) {
  if (!extra.ports.empty()) ports_.take(extra.ports, node, journal_);
  restrictions_.take(extra, node, class_.size(), times, journal_);
  limits_.take(extra, node, journal_);
  topology_.touch(extra, node, class_[idx(node)], times, journal_);
}

void Engine::uncount(const Extra& extra, i32 node) {
  if (!extra.ports.empty()) ports_.give_back(extra.ports, node, journal_);
  restrictions_.give_back(extra, node, journal_);
  limits_.give_back(extra, node, journal_);
  topology_.touch(extra, node, class_[idx(node)], -1, journal_);
}

void Engine::place(i32 pod, i32 node, i64 times) {
  resources_.take(*pods_, pod, node, times, journal_);
  if (pods_->gives_back()) ++growth_;
  const Extra* extra = pods_->extra(pod);
  if (!extra) return;
  count(*extra, node, times);
  if (extra->devices && devices_.tell(DeviceCall::kPlace, pod, node)) ++growth_;
}

void Engine::unplace(i32 pod, i32 node) {
  ++growth_;
  resources_.take(*pods_, pod, node, -1, journal_);
  const Extra* extra = pods_->extra(pod);
  if (!extra) return;
  uncount(*extra, node);
  if (extra->devices) devices_.tell(DeviceCall::kUnplace, pod, node);
}

i32 Engine::add_copy(const Template& t, i32 copy) {
  const i32 node = nodes();
  devices_.tell(DeviceCall::kAdd, t.number, copy);
  i32 node_class = t.node_class;
  const auto exception = std::lower_bound(t.exception_index.begin(), t.exception_index.end(), copy);
  if (exception != t.exception_index.end() && *exception == copy)
    node_class = t.exception_class[static_cast<std::size_t>(exception - t.exception_index.begin())];
  class_.push_back(node_class);
  cordoned_.push_back(t.unschedulable);
  gone_.push_back(0);
  resources_.append(t.free, t.slots);
  ports_.resize(class_.size());
  restrictions_.resize(class_.size());
  limits_.append(t.migrated, t.limits);
  for (i32 k = 0; k < keys(); ++k) {
    const i32 d = t.domain[idx(k)];
    topology_.append(k, d == -2 ? t.domain_of_copy(k, copy) : d);
  }
  for (const i32 r : topology_.spread_rows()) enroll(r, node, 1);
  for (const i32 pod : t.pods)
    if (const Extra* extra = pods_->extra(pod)) count(*extra, node, 1);
  return node;
}

void Engine::gone(i32 node) {
  ++growth_;
  if (journal_.open()) journal_.log(Undo::kNodeGone, 0, node, 0, 0);
  gone_[idx(node)] = 1;
  removed_.insert(std::lower_bound(removed_.begin(), removed_.end(), node), node);
}

void Engine::remove_node(i32 node) {
  gone(node);
  for (const i32 r : topology_.spread_rows()) enroll(r, node, -1);
}

void Engine::vacate(i32 node, const i32* pods, i32 count) {
  for (i32 i = 0; i < count; ++i) unplace(pods[i], node);
  for (const i32 r : topology_.spread_rows())
    if (leaves_ghosts(r)) enroll(r, node, -1);
}

void Engine::remove_ghost(i32 node) {
  gone(node);
  for (const i32 r : topology_.spread_rows())
    if (!leaves_ghosts(r)) enroll(r, node, -1);
}

// ---- forks ---------------------------------------------------------------------------------------------------------

void Engine::fork() {
  journal_.marks.push_back({journal_.entries.size(), nodes(), topology_.domains()});
  journal_.floor = nodes();
  devices_.tell(DeviceCall::kFork);
}

bool Engine::counters_are_few(i64 changes) const {
  return topology_.few(changes - static_cast<i64>(restrictions_.claims()) / 2);
}

void Engine::fork_counters() {
  fork();
  topology_.copy_counters();
  restrictions_.copy_counters();
  journal_.counters_copied = true;
}

void Engine::rollback(const Entry& e) {
  switch (e.what) {
    case Undo::kFree:
    case Undo::kSlots: resources_.rollback(e); break;
    case Undo::kAnyPort:
    case Undo::kWildPort:
    case Undo::kSpecificPort: ports_.rollback(e); break;
    case Undo::kCount:
    case Undo::kRegistered:
    case Undo::kShape:
    case Undo::kTotal: topology_.rollback(e); break;
    case Undo::kClaimUse:
    case Undo::kDisk: restrictions_.rollback(e); break;
    case Undo::kVolume: limits_.rollback(e); break;
    case Undo::kNodeGone:
      gone_[idx(e.b)] = 0;
      removed_.erase(std::lower_bound(removed_.begin(), removed_.end(), e.b));
      break;
  }
}

bool Engine::revert() {
  if (!journal_.open()) return false;
  const Mark mark = std::move(journal_.marks.back());
  auto& entries = journal_.entries;
  while (entries.size() > mark.entries) {
    rollback(entries.back());
    entries.pop_back();
  }
  const std::size_t n = idx(mark.nodes);
  if (class_.size() != n) {
    class_.resize(n);
    cordoned_.resize(n);
    gone_.resize(n);
    resources_.shrink(n);
    ports_.resize(n);
    restrictions_.resize(n);
    limits_.shrink(n);
    while (!removed_.empty() && removed_.back() >= mark.nodes) removed_.pop_back();
  }
  topology_.shrink(n, mark.domains);
  if (journal_.counters_copied) {
    topology_.restore_counters();
    restrictions_.restore_counters();
    journal_.counters_copied = false;
  }
  journal_.marks.pop_back();
  journal_.floor = journal_.open() ? journal_.marks.back().nodes : 0;
  ++growth_;
  devices_.tell(DeviceCall::kRevert);
  return true;
}

bool Engine::commit() {
  if (!journal_.open()) return false;
  journal_.marks.pop_back();
  journal_.floor = journal_.open() ? journal_.marks.back().nodes : 0;
  if (!journal_.open()) journal_.entries.clear();
  devices_.tell(DeviceCall::kCommit);
  return true;
}

// ---- looking -------------------------------------------------------------------------------------------------------

i32 Engine::position(i32 node) const {
  return node - static_cast<i32>(std::lower_bound(removed_.begin(), removed_.end(), node) - removed_.begin());
}

i32 Engine::at_position(i32 position) const {
  // There are removed_[k] - k other nodes before the k-th of the removed nodes (from 0): an ascending sequence.
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
  Checksum sum;
  resources_.mix(sum);
  for (const i32 v : class_) sum.mix(static_cast<u64>(v));
  for (const u8 v : gone_) sum.mix(v);
  ports_.mix(sum);
  topology_.mix(sum);
  restrictions_.mix(sum);
  limits_.mix(sum);
  return sum.h;
}

}  // namespace kscale::engine
