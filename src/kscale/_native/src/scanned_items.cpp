#include <cstdint>
#include <limits>
#include <utility>

#include "kscale/projection.hpp"

namespace kscale {
namespace {

constexpr std::size_t kItemsPerBlock = 1 << 14;  // items
constexpr std::uint32_t kAbsent = std::numeric_limits<std::uint32_t>::max();

}  // namespace

void ScannedItems::add(std::int64_t begin_at, std::int64_t whole, std::int32_t number, std::size_t slots,
                       const std::int64_t* at, const std::int64_t* length) {
  const bool far = whole >= static_cast<std::int64_t>(kAbsent);
  begin.push_back(begin_at);
  size.push_back(whole);
  combined.push_back(far ? kOdd : number);
  if (blocks_.empty() || blocks_.back().size() >= kItemsPerBlock * slots) blocks_.emplace_back();
  std::vector<Noted>& block = blocks_.back();
  const std::size_t first = block.size();
  block.resize(first + slots);
  for (std::size_t slot = 0; slot < slots; ++slot) {
    Noted& to = block[first + slot];
    if (far || length[slot] < 0) {
      to = {0, kAbsent};
    } else {
      to = {static_cast<std::uint32_t>(at[slot] - begin_at), static_cast<std::uint32_t>(length[slot])};
    }
  }
}

void ScannedItems::pop(std::size_t slots) {
  begin.pop_back();
  size.pop_back();
  combined.pop_back();
  std::vector<Noted>& block = blocks_.back();
  block.resize(block.size() - slots);
  if (block.empty()) blocks_.pop_back();
}

void ScannedItems::append(ScannedItems&& more) {
  begin.insert(begin.end(), more.begin.begin(), more.begin.end());
  size.insert(size.end(), more.size.begin(), more.size.end());
  for (std::vector<Noted>& block : more.blocks_) blocks_.push_back(std::move(block));
  more = {};
}

void ScannedItems::places(std::size_t slots, std::size_t first, std::size_t count, std::int64_t* at,
                          std::int64_t* length) const {
  std::size_t skipped = 0, done = 0;
  for (const std::vector<Noted>& block : blocks_) {
    const std::size_t items = block.size() / slots;
    const std::size_t from = first + done - skipped;  // in the block, if it is there
    skipped += items;
    for (std::size_t i = from; i < items && done < count; ++i, ++done) {
      const Noted* noted = block.data() + i * slots;
      const std::int64_t start = begin[first + done];
      for (std::size_t slot = 0; slot < slots; ++slot) {
        const bool absent = noted[slot].size == kAbsent;
        at[slot * count + done] = absent ? 0 : start + noted[slot].at;
        length[slot * count + done] = absent ? -1 : static_cast<std::int64_t>(noted[slot].size);
      }
    }
    if (done == count) break;
  }
}

void ScannedItems::places_of(std::size_t slots, std::size_t slot, const std::int64_t* which, std::size_t count,
                             std::int64_t* at, std::int64_t* length) const {
  std::size_t skipped = 0, done = 0;
  for (const std::vector<Noted>& block : blocks_) {
    const std::size_t end = skipped + block.size() / slots;
    for (; done < count && static_cast<std::size_t>(which[done]) < end; ++done) {
      const auto item = static_cast<std::size_t>(which[done]);
      const Noted& noted = block[(item - skipped) * slots + slot];
      const bool absent = noted.size == kAbsent;
      at[done] = absent ? 0 : begin[item] + noted.at;
      length[done] = absent ? -1 : static_cast<std::int64_t>(noted.size);
    }
    skipped = end;
  }
}

void ScannedItems::have(std::size_t slots, std::size_t slot, std::size_t first, std::uint8_t* out) const {
  std::size_t skipped = 0;
  for (const std::vector<Noted>& block : blocks_) {
    const std::size_t items = block.size() / slots;
    for (std::size_t i = first > skipped ? first - skipped : 0; i < items; ++i) {
      const std::uint32_t size = block[i * slots + slot].size;
      if (size != kAbsent && size > 0) out[skipped + i - first] = 1;
    }
    skipped += items;
  }
}

}  // namespace kscale
