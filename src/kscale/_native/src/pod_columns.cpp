#include "kscale/pod_columns.hpp"

#include <algorithm>
#include <string_view>

#include "kscale/usual_texts.hpp"

namespace kscale {
namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 31;  // bytes of a pod's text
constexpr std::size_t kAhead = 12;

const PodLooks& looks_of(const NotedPods& pods, const PodLooks* looks, std::size_t i) {
  return looks[std::max(pods.combined[i], kOddItem) + 1];
}

bool is_bound(const NotedPods& pods, std::size_t i) { return pods.size_of(kNode, i) > 0; }
bool is_placed(const NotedPods& pods, std::size_t i) { return is_bound(pods, i) || pods.size_of(kNominated, i) > 0; }

// The texts come from all over a long buffer: those some places behind are on the way into the cache before they are read.
void ahead(const NotedPods& pods, std::size_t i, std::initializer_list<PodSlot> slots) {
  if (i + kAhead >= pods.n) return;
  for (const PodSlot slot : slots) __builtin_prefetch(pods.data + pods.place(slot, i + kAhead));
}

// As kscale.snapshot.pods.record.READY numbers the statuses of a condition.
std::int64_t ready_status(const NotedPods& pods, std::size_t i) {
  const std::int64_t size = pods.size_of(kReady, i);
  if (size < 0) return 0;
  const std::string_view text(pods.data + pods.place(kReady, i), static_cast<std::size_t>(size));
  return text == "True" ? 1 : text == "False" ? 2 : 3;
}

}  // namespace

bool looks_fit(const NotedPods& pods, std::int64_t kinds) {
  bool fit = kinds > 0;
  for (std::size_t i = 0; i < pods.n; ++i) fit &= pods.combined[i] >= -3 && pods.combined[i] < kinds - 1;
  return fit;
}

bool places_fit(const NotedPods& pods, std::int64_t size) {
  bool fit = true;
  for (std::size_t slot = 0; slot < kPodSlots; ++slot) {
    const std::int64_t* at = pods.at + static_cast<std::ptrdiff_t>(slot) * pods.stride;
    const std::int64_t* length = pods.length + static_cast<std::ptrdiff_t>(slot) * pods.stride;
    for (std::size_t i = 0; i < pods.n; ++i) {
      fit &= length[i] < 0 || (at[i] >= 0 && at[i] <= size && length[i] <= size - at[i]);
    }
  }
  return fit;
}

bool usual_pods(const NotedPods& pods, const PodLooks* looks, std::uint8_t* usual) {
  for (std::size_t i = 0; i < pods.n; ++i) {
    ahead(pods, i, {kName, kVersion});
    const PodLooks& own = looks_of(pods, looks, i);
    const std::int32_t class_of = is_placed(pods, i) ? own.settled : own.waiting;
    if (!own.known || class_of == kUnseen) return false;
    usual[i] = (class_of >= 0 || pods.combined[i] == kNotedItem) && (pods.listed || !own.bare) &&
               pods.size[i] < kLargest && is_plain_name(pods.data + pods.place(kName, i), pods.size_of(kName, i)) &&
               printed_number(pods.data + pods.place(kVersion, i), pods.size_of(kVersion, i)) != kOddNumber;
  }
  return true;
}

std::vector<std::int64_t> unknown_looks(const NotedPods& pods, const PodLooks* looks) {
  std::vector<std::int64_t> found;
  for (std::size_t i = 0; i < pods.n; ++i) {
    const PodLooks& own = looks_of(pods, looks, i);
    const bool placed = is_placed(pods, i);
    if (!own.known || (placed ? own.settled : own.waiting) == kUnseen) found.push_back(2 * (&own - looks) + placed);
  }
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

void write_pods(const NotedPods& pods, const PodLooks* looks, const std::uint8_t* usual, std::size_t count,
                std::int64_t first, PlacedStates states, std::int64_t* out,
                std::vector<std::pair<std::int64_t, std::int64_t>>& odd) {
  std::size_t to = 0;
  const auto put = [&](PodColumn column, std::int64_t value) { out[column * count + to] = value; };
  std::string_view last_text;  // many times of a pod are the same
  std::int64_t last = kOddMoment;
  const auto moment = [&](PodSlot slot, std::size_t i) {
    const std::int64_t size = pods.size_of(slot, i);
    if (size < 0) return kNoMoment;
    const std::string_view text(pods.data + pods.place(slot, i), static_cast<std::size_t>(size));
    if (text != last_text || last == kOddMoment) last = printed_moment(text.data(), size);
    last_text = text;
    if (last == kOddMoment) odd.emplace_back(to, slot);
    return last;
  };
  for (std::size_t i = 0; i < pods.n; ++i) {
    ahead(pods, i, {kCreated, kStarted, kSince});
    if (!usual[i]) continue;
    const PodLooks& own = looks_of(pods, looks, i);
    const bool bound = is_bound(pods, i), placed = is_placed(pods, i);
    put(kWhere, first + static_cast<std::int64_t>(i));
    put(kBegin, pods.begin[i]);
    put(kSize, pods.size[i]);
    put(kCutAt, pods.place(kManaged, i));
    put(kCutSize, pods.size_of(kManaged, i));
    put(kUidAt, pods.place(kUid, i));
    put(kUidSize, std::max<std::int64_t>(pods.size_of(kUid, i), 0));
    put(kNodeAt, pods.place(bound ? kNode : kNominated, i));
    put(kNodeSize, (own.done ? bound : placed) ? pods.size_of(bound ? kNode : kNominated, i) : -1);
    put(kCombined, std::max(pods.combined[i], kOddItem) + 1);
    put(kClassOf, placed ? own.settled : own.waiting);
    put(kShape, placed ? own.settled_shape : own.waiting_shape);
    put(kController, own.controller);
    put(kQueueing, own.queueing);
    put(kPriority, own.priority);
    put(kState, own.done ? states.finished : placed ? states.placed : own.unplaced);
    put(kPhase, own.phase);
    put(kBound, bound);
    put(kReadyStatus, ready_status(pods, i));
    put(kVersionNumber, printed_number(pods.data + pods.place(kVersion, i), pods.size_of(kVersion, i)));
    put(kCreatedAt, moment(kCreated, i));
    put(kStartedAt, moment(kStarted, i));
    put(kDeletedAt, moment(kDeletion, i));
    put(kSinceAt, moment(kSince, i));
    ++to;
  }
}

void take_columns(const std::int64_t* columns, std::size_t n, const std::int64_t* which, std::size_t m,
                  const std::int32_t* from, std::size_t count, std::int64_t* out) {
  for (std::size_t c = 0; c < count; ++c, out += m) {
    if (from[c] < 0) {
      std::fill(out, out + m, 0);
      continue;
    }
    const std::int64_t* column = columns + static_cast<std::size_t>(from[c]) * n;
    for (std::size_t i = 0; i < m; ++i) out[i] = column[which[i]];
  }
}

void write_table(const TableColumns& of, const std::int64_t* which, std::size_t m, const std::int32_t* node,
                 std::int64_t first_stamp, bool seen, std::int64_t* values) {
  const auto column = [=](std::int32_t number) { return values + static_cast<std::size_t>(number) * m; };
  std::int64_t *at = column(of.at), *stamp = column(of.stamp);
  for (std::size_t i = 0; i < m; ++i) at[i] = node[which[i]];
  for (std::size_t i = 0; i < m; ++i) stamp[i] = first_stamp + static_cast<std::int64_t>(i);
  std::fill_n(column(of.seen), m, seen);
}

void choose_texts(const TableColumns& of, std::size_t m, bool all, std::int64_t finished, const std::int64_t* values,
                  std::uint8_t* keep) {
  const std::int64_t* bound = values + static_cast<std::size_t>(of.bound) * m;
  const std::int64_t* state = values + static_cast<std::size_t>(of.state) * m;
  for (std::size_t i = 0; i < m; ++i) keep[i] = all || (bound[i] == 0 && state[i] != finished);
}

void write_texts(const TableColumns& of, std::size_t m, std::int64_t source, std::int64_t begin,
                 const std::int64_t* places, std::int64_t* values) {
  const auto column = [=](std::int32_t number) { return values + static_cast<std::size_t>(number) * m; };
  const std::int64_t *at = places, *size = places + m, *mark = places + 2 * m;
  std::fill_n(column(of.source), m, source);
  std::copy(size, size + m, column(of.size));
  std::int64_t *offset = column(of.offset), *uid_offset = column(of.uid_offset);
  for (std::size_t i = 0; i < m; ++i) {
    offset[i] = at[i] + begin;
    uid_offset[i] = mark[i] - at[i];
  }
}

}  // namespace kscale
