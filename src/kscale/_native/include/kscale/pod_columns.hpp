// What a projector noted of pods, and what their texts stand for, as columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kscale {

// What is noted of a pod: the slots of the projector.
enum PodSlot : std::size_t {
  kName, kNamespace, kUid, kNode, kNominated, kCreated, kStarted, kDeletion, kSince, kReady, kVersion, kManaged, kPodSlots
};

// The columns that are written: where a pod is among the items, where its text, its managed fields, its UID and its
// node's name are, and what the columns of the table of pods with these names have.
enum PodColumn : std::size_t {
  kWhere, kBegin, kSize, kCutAt, kCutSize, kUidAt, kUidSize, kNodeAt, kNodeSize, kNodeOf, kCombined, kClassOf, kShape,
  kController, kQueueing, kPriority, kState, kPhase, kBound, kReadyStatus, kVersionNumber, kCreatedAt, kStartedAt,
  kDeletedAt, kSinceAt, kPodColumns
};

// What the pods of one combination of texts have in common. `waiting`: the class of one without a node, `settled`: of
// one with a node or that has finished; -1: such pods are read the slow way, kUnseen: it is not worked out yet.
// `queueing`: how one without a node waits, `unplaced`: the state of one; `bare`: only a list of pods tells that they are pods.
struct PodLooks {
  std::int64_t priority;
  std::int32_t waiting, settled, waiting_shape, settled_shape, controller, queueing;
  std::int8_t unplaced, phase;
  std::uint8_t known, done, bare;
};
constexpr std::int32_t kUnseen = -2;

// Pods in a text: a column of places and one of lengths a slot, `stride` entries from one slot to the next. `combined`:
// numbers of combinations, kOddItem for pods that are read the slow way, kNotedItem for pods of which only the slots
// count. `listed`: it is a list of pods.
struct NotedPods {
  const char* data;
  std::size_t n;
  const std::int64_t* begin;
  const std::int64_t* size;
  const std::int32_t* combined;
  const std::int64_t* at;
  const std::int64_t* length;
  std::ptrdiff_t stride;
  bool listed;

  std::int64_t place(PodSlot slot, std::size_t i) const { return at[static_cast<std::ptrdiff_t>(slot) * stride + static_cast<std::ptrdiff_t>(i)]; }
  std::int64_t size_of(PodSlot slot, std::size_t i) const {
    return length[static_cast<std::ptrdiff_t>(slot) * stride + static_cast<std::ptrdiff_t>(i)];
  }
};
constexpr std::int32_t kOddItem = -1, kNotedItem = -2;

// Whether the combinations have numbers below `kinds` - 1.
bool looks_fit(const NotedPods& pods, std::int64_t kinds);
// Whether all strings lie in a text of `size` bytes.
bool places_fit(const NotedPods& pods, std::int64_t size);

// The states of pods that have a node, and of those that have finished.
struct PlacedStates {
  std::int8_t placed, finished;
};

// Which pods can be told by columns; `looks`: by number of the combination + 1. False if some combination is not known
// yet, or not for pods like these.
bool usual_pods(const NotedPods& pods, const PodLooks* looks, std::uint8_t* usual);

// Which of `looks` have to be told for that: twice their place, and one more for pods with a node. Ascending, each once.
std::vector<std::int64_t> unknown_looks(const NotedPods& pods, const PodLooks* looks);

// The columns of the `count` usual pods, one after the other: out[column * count + pod]. kNodeOf is not written.
// `first`: where the first pod is among the items; `odd`: (usual pod, slot) of times that are written unusually.
void write_pods(const NotedPods& pods, const PodLooks* looks, const std::uint8_t* usual, std::size_t count,
                std::int64_t first, PlacedStates states, std::int64_t* out,
                std::vector<std::pair<std::int64_t, std::int64_t>>& odd);

// Entries of columns, of `n` pods each, at the pods `which`, as the columns of a table: out[c * m + i] is entry `which[i]`
// of column `from[c]`, 0 where that is negative.
void take_columns(const std::int64_t* columns, std::size_t n, const std::int64_t* which, std::size_t m,
                  const std::int32_t* from, std::size_t count, std::int64_t* out);

// Columns of a table that do not come from one column of pods.
struct TableColumns {
  std::int32_t at, stamp, seen, source, offset, size, uid_offset, bound, state;
};

// Writes those of `m` pods whose values have their other columns: `node[i]` is the node of pod `which[i]`.
void write_table(const TableColumns& of, const std::int64_t* which, std::size_t m, const std::int32_t* node,
                 std::int64_t first_stamp, bool seen, std::int64_t* values);
// Which of `m` pods keep their text: all, or those that are not bound and not in the state `finished`.
void choose_texts(const TableColumns& of, std::size_t m, bool all, std::int64_t finished, const std::int64_t* values,
                  std::uint8_t* keep);
// Writes where the texts are: `places` [3 * m] as `copy_texts` writes them, from `begin` on in the buffer `source`.
void write_texts(const TableColumns& of, std::size_t m, std::int64_t source, std::int64_t begin,
                 const std::int64_t* places, std::int64_t* values);

}  // namespace kscale
